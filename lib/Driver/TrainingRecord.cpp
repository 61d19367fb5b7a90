#include "TrainingRecord.h"

#include "pdc/IR/Builder.h"
#include "pdc/Support/DiagnosticsBuilder.h"

#include <algorithm>

using namespace pdc;

/// The options of the loss that an evaluation repeats: those of the first loss operation, or what the flag says.
static void completeLoss(pdcrt::Training& training, const CompileOptions& options, const Graph& main,
                         const std::string& evaluatedLoss, Diagnostics& diags) {
  if (evaluatedLoss == "nll") {
    if (const Expected<LossOptions> loss = lossOptions(options.losses.front(), diags)) {
      training.ignoreIndex = loss->ignoreIndex;
      training.classWeights = loss->classWeights;
    }
    return;
  }
  for (const auto& operation : main.operations()) {
    if (!operation->def().facts.lossLike) continue;
    const Attributes& attributes = operation->attributes;
    if (attributes.getOr("has_ignore_index", false))
      training.ignoreIndex = attributes.getOr<std::int64_t>("ignore_index", -100);
    training.labelSmoothing = attributes.getOr("label_smoothing", 0.0);
    if (const auto& operands = operation->operands(); operands.size() > 2 && operands[2])
      if (const std::optional<Tensor> weights = Builder::constantValue(operands[2]))
        for (std::int64_t i = 0; i < weights->elements(); ++i) training.classWeights.push_back(weights->asDouble(i));
    return;
  }
}

static void warnOfUnusedGroups(const pdcrt::Training& training, const CompileOptions& options, const Module& module,
                               Diagnostics& diags) {
  for (const pdcrt::ParameterGroup& group : training.groups)
    if (std::none_of(module.parameters.begin(), module.parameters.end(), [&](const auto& parameter) {
          return parameter->role == ParameterRole::trained &&
                 pdcrt::matches(group, parameter->name, parameter->type.rank());
        }))
      diags.warning({.file = options.model}).help("'pdc " + options.model + " --emit=ir' lists their names")
          << "--param-group='" << group.match << "' matches no trained parameter";
}

void pdc::completeTraining(pdcrt::Training& training, const CompileOptions& options, const Module& module,
                           const BatchAxes& batch, const std::string& evaluatedLoss, Diagnostics& diags) {
  const Graph& main = *module.findGraph("main");
  bool integerLabels = false, labels = false;
  training.batch = batch.size;
  for (const GraphInput& input : main.inputs) {
    if (const auto axis = batch.axes.find(input.value->name());
        axis != batch.axes.end() && axis->second != 0 && !input.value->users().empty())
      training.batchAxes.insert(*axis);
    if (input.kind == InputKind::label)
      labels = true, integerLabels = integerLabels || !isFloat(input.value->type().element);
  }
  completeLoss(training, options, main, evaluatedLoss, diags);
  if (!evaluatedLoss.empty())
    training.loss = evaluatedLoss;
  else
    training.loss = integerLabels ? "softmax-cross-entropy" : "output";
  training.metric = !options.metric.empty() ? options.metric : integerLabels ? "accuracy" : labels ? "mse" : "none";
  for (const GraphOutput& output : main.outputs)
    if (output.kind == OutputKind::term) training.terms.push_back(output.name);
  if (const Graph* evaluation = module.findGraph("evaluate"))
    for (const GraphOutput& output : evaluation->outputs)
      if (output.kind == OutputKind::load) training.loads.push_back(output.name);
  warnOfUnusedGroups(training, options, module, diags);
}
