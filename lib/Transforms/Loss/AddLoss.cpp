// Decides what is minimised: an output of the model, or a loss that is added to one.
#include "pdc/Transforms/Transforms.h"

#include "Logits.h"
#include "LossFormulas.h"
#include "pdc/Transforms/GraphUtilities.h"

#include "pdc/IR/Builder.h"
#include "pdc/Support/Names.h"

#include <algorithm>

using namespace pdc;

namespace {

class LossPass {
public:
  LossPass(PassContext& context, Graph& graph, const LossOptions& options)
      : context_(context), graph_(graph), options_(options),
        builder_(context.module, graph, context.registry, context.diags) {}

  Status run();

private:
  Status takeDefault();
  Status takeOutput();
  Status add();
  Expected<GraphOutput*> chosen();
  Expected<GraphOutput*> named();
  Value* weighted(Value* loss);
  void addTerms();
  Status becomeLoss(std::size_t place);
  void markLabels();
  void markPrediction();

  bool isScalar(const GraphOutput& output) const;
  bool isScalarResult(const GraphOutput& output) const {
    return output.kind == OutputKind::result && !output.inner && isScalar(output);
  }
  bool isTensorResult(const GraphOutput& output) const {
    return output.kind == OutputKind::result && !output.inner && isFloat(output.value->type().element) &&
           !isScalar(output);
  }

  Diagnostics::Builder error() { return context_.diags.error({.file = context_.module.file}); }
  std::string listResults() const;

  PassContext& context_;
  Graph& graph_;
  const LossOptions& options_;
  Builder builder_;
  std::vector<std::pair<std::string, Value*>> terms_; ///< the losses, without their weights
};

} // namespace

bool LossPass::isScalar(const GraphOutput& output) const {
  return isScalarOutput(graph_, output);
}

/// The loss operation that `value` comes from, through operations with one operand that is not constant; or null.
static const Operation* lossOperation(const Value* value) {
  while (const Operation* definer = value->definer()) {
    if (definer->def().facts.lossLike && value->resultIndex() == 0) return definer;
    const Value* only = nullptr;
    for (const Value* operand : definer->operands()) {
      if (!operand || (operand->definer() && isConstant(*operand->definer()))) continue;
      if (only) return nullptr;
      only = operand;
    }
    if (!only) return nullptr;
    value = only;
  }
  return nullptr;
}

std::string LossPass::listResults() const {
  std::string list;
  for (const GraphOutput& output : graph_.outputs)
    if (output.kind == OutputKind::result && !output.inner)
      list += (list.empty() ? "" : ", ") + ("'" + output.name + "' " + toString(output.value->type()));
  return list.empty() ? "none" : list;
}

/// The loss times its weight.
Value* LossPass::weighted(Value* loss) {
  if (!loss || options_.weight == 1) return loss;
  return builder_.value("mul", {loss, builder_.constant(options_.weight, loss->type().element)});
}

/// The output at this place.
Status LossPass::becomeLoss(std::size_t place) {
  GraphOutput& output = graph_.outputs[place];
  output.kind = OutputKind::loss;
  builder_.setLocation(output.value->definer() ? output.value->definer()->location : Location{});
  Value* scalar = output.value;
  if (scalar->type().rank() != 0)
    scalar = builder_.value("reshape", {scalar}, {{"shape", std::vector<std::int64_t>{}}});
  if (!scalar || !(output.value = weighted(scalar))) return failure;
  terms_.emplace_back(output.name, scalar);
  return success;
}

/// The outputs of loss operators, else the only scalar float output.
Status LossPass::takeDefault() {
  bool any = false;
  std::vector<std::size_t> scalars;
  for (std::size_t i = 0, count = graph_.outputs.size(); i < count; ++i) { // their terms come behind them
    if (!isScalarResult(graph_.outputs[i])) continue;
    scalars.push_back(i);
    if (!lossOperation(graph_.outputs[i].value)) continue;
    any = true;
    if (!becomeLoss(i)) return failure;
  }
  if (any) return success;
  if (scalars.size() == 1) return becomeLoss(scalars[0]);
  return error()
             .note("outputs of the model: " + listResults())
             .help("give --loss=softmax-cross-entropy, nll, mse, bce-with-logits or bce to add a loss, or "
                   "--loss=output:NAME to use an output of the model")
         << "the model has no loss: none of its outputs is that of a loss operator, and " << scalars.size()
         << " of them are scalars, where one is needed";
}

Status LossPass::takeOutput() {
  for (std::size_t i = 0; i < graph_.outputs.size(); ++i) {
    const GraphOutput& output = graph_.outputs[i];
    if (output.kind != OutputKind::result || output.name != options_.output) continue;
    if (isFloat(output.value->type().element) && isScalar(output)) return becomeLoss(i);
    return error().help("give --loss=softmax-cross-entropy:" + options_.output + " or another loss to add one")
           << "output '" << options_.output << "' is " << toString(output.value->type())
           << ", a loss is a float scalar";
  }
  return error().note("outputs of the model: " + listResults()).help("name one of them in --loss=output:NAME")
         << "the model has no output '" << options_.output << "' to use as its loss";
}

/// The output, or inner value, that the flag names.
Expected<GraphOutput*> LossPass::named() {
  std::vector<std::string_view> known;
  for (GraphOutput& output : graph_.outputs) {
    if (output.kind != OutputKind::result && output.kind != OutputKind::prediction) continue;
    known.push_back(output.name);
    if (output.name != options_.output) continue;
    const Type& type = output.value->type();
    if (isFloat(type.element) && type.rank() > 0) return &output;
    return error()
               .note("outputs of the model: " + listResults())
               .help("name a float tensor, as in --loss=" + options_.kind + ":OUTPUT")
           << "'" << options_.output << "' is " << toString(type) << ", the loss '" << options_.kind
           << "' applies to a float tensor";
  }
  return error().note("outputs of the model: " + listResults()).help(helpForUnknown(options_.output, known))
         << "the model has no output '" << options_.output << "', to which '" << options_.kind << "' could apply";
}

/// What the loss applies to: what the flag names, else the first output that is not a scalar, which is told where the
/// model has others.
Expected<GraphOutput*> LossPass::chosen() {
  if (!options_.output.empty()) return named();
  std::vector<GraphOutput*> results, candidates;
  for (GraphOutput& output : graph_.outputs) {
    // What an earlier loss applied to is a prediction, or still there beside one.
    const bool other = std::any_of(results.begin(), results.end(),
                                   [&](const GraphOutput* known) { return known->name == output.name; });
    if ((output.kind != OutputKind::result && output.kind != OutputKind::prediction) || output.inner || other) continue;
    results.push_back(&output);
    if (isFloat(output.value->type().element) && !isScalar(output)) candidates.push_back(&output);
  }
  if (candidates.empty())
    return error()
               .note("outputs of the model: " + listResults())
               .help("name one that is not a scalar, or an inner value: --loss=" + options_.kind + ":NAME")
           << "the model has no float output that is not a scalar, to which '" << options_.kind << "' could apply";
  if (results.size() > 1)
    context_.diags.remark({.file = context_.module.file})
            .note("outputs of the model: " + listResults())
            .help("name another one: --loss=" + options_.kind + ":NAME")
        << "the loss '" << options_.kind << "' applies to output '" << candidates.front()->name << "', the first of "
        << candidates.size() << " that it could apply to";
  return candidates.front();
}

Status LossPass::add() {
  Expected<GraphOutput*> output = chosen();
  if (!output) return failure;
  const std::string name = (*output)->name;

  builder_.setLocation({.file = context_.module.file, .node = "loss"});
  Expected<AddedLoss> added = lossOf(options_, *(*output)->value, name, builder_);
  if (!added) return failure;
  Value* loss = weighted(added->loss);
  if (!loss) return failure;
  graph_.rename(loss, "loss");
  // A metric looks at what the first loss applies to.
  const bool first = std::none_of(graph_.outputs.begin(), graph_.outputs.end(),
                                  [](const GraphOutput& other) { return other.kind == OutputKind::prediction; });
  if (first) {
    GraphOutput prediction{.kind = OutputKind::prediction, .value = added->prediction, .name = name};
    prediction.loss = added->evaluated;
    prediction.declared = (*output)->declared;
    prediction.perSample = (*output)->perSample;
    if (added->prediction == (*output)->value)
      **output = std::move(prediction);
    else
      graph_.outputs.push_back(std::move(prediction)); // the output stays as it is
  }
  const auto place = std::find_if(graph_.outputs.begin(), graph_.outputs.end(),
                                  [](const GraphOutput& other) { return other.kind != OutputKind::loss; });
  graph_.outputs.insert(place, {.kind = OutputKind::loss, .value = loss, .name = "loss", .parameter = nullptr});
  terms_.emplace_back(options_.kind + ":" + name, added->loss);
  return success;
}

/// Whether `value` is used, through views and conversions, as what a loss compares with and as nothing else.
static bool isLabel(const Value& value, const Graph& graph) {
  if (value.users().empty() || graph.isOutput(&value)) return false;
  return std::all_of(value.users().begin(), value.users().end(), [&](const Operation* user) {
    if (user->def().facts.lossLike) return user->operand(0) != &value;
    const bool passes =
        user->operands().size() == 1 && (user->def().kind == OpKind::view || user->def().kind == OpKind::elementwise);
    return passes && isLabel(*user->result(), graph);
  });
}

void LossPass::markLabels() {
  for (GraphInput& input : graph_.inputs)
    if (input.kind == InputKind::data && !isFloat(input.value->type().element) && isLabel(*input.value, graph_))
      input.kind = InputKind::label;
}

/// The loss operation from which the losses are computed, where there is one and no other.
static const Operation* onlyLossOperation(const Graph& graph) {
  const std::unordered_set<const Value*> behind = behindLosses(graph);
  const Operation* only = nullptr;
  for (const auto& operation : graph.operations()) {
    if (!operation->def().facts.lossLike || !behind.contains(operation->result(0))) continue;
    if (only) return nullptr;
    only = operation.get();
  }
  return only;
}

/// Where the model computes its loss itself, a metric looks at what the loss operator compares with the labels, if need
/// be below a sum with other terms; without one, at the first output that is not a scalar.
void LossPass::markPrediction() {
  Value* prediction = nullptr;
  for (const GraphOutput& output : graph_.outputs) {
    if (output.kind == OutputKind::prediction) return;
    if (output.kind != OutputKind::loss || prediction) continue;
    if (const Operation* loss = lossOperation(output.value)) prediction = loss->operand(0);
  }
  if (const Operation* loss = prediction ? nullptr : onlyLossOperation(graph_)) prediction = loss->operand(0);
  for (GraphOutput& output : graph_.outputs)
    if (prediction ? output.value == prediction : isTensorResult(output)) {
      output.kind = OutputKind::prediction;
      return;
    }
  if (prediction)
    graph_.outputs.push_back(
        {.kind = OutputKind::prediction, .value = prediction, .name = prediction->name(), .parameter = nullptr});
}

/// Adds the terms that a run reports beside the total, where there are several losses (nameTerms).
void LossPass::addTerms() {
  for (const auto& [first, value] : terms_) {
    std::string name = first;
    const auto isTaken = [&](const GraphOutput& other) { return other.kind == OutputKind::term && other.name == name; };
    for (int i = 2; std::any_of(graph_.outputs.begin(), graph_.outputs.end(), isTaken); ++i)
      name = first + " " + std::to_string(i);
    graph_.outputs.push_back({.kind = OutputKind::term, .value = value, .name = name, .parameter = nullptr});
  }
}

Status LossPass::run() {
  const Status status = options_.kind.empty() ? takeDefault() : options_.kind == "output" ? takeOutput() : add();
  if (!status) return failure;
  markLabels();
  markPrediction();
  addTerms();
  return shareLosses(context_, graph_, options_); // last: what is behind a loss operation is sought above
}

Status pdc::addLoss(PassContext& context, const LossOptions& options) {
  Expected<Graph*> graph = mainGraph(context);
  if (!graph) return failure;
  return LossPass(context, **graph, options).run();
}
