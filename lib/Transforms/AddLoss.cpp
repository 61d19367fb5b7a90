// Decides what is minimised: an output of the model, or a loss that is added to one.
#include "pdc/Transforms/Transforms.h"

#include "GraphUtilities.h"
#include "LossFormulas.h"

#include "pdc/IR/Builder.h"

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
  Value* weighted(Value* loss);
  Status becomeLoss(GraphOutput& output);
  void markLabels();
  void markPrediction();

  Diagnostics::Builder error() { return context_.diags.error({.file = context_.module.file}); }
  std::string listResults() const;

  PassContext& context_;
  Graph& graph_;
  const LossOptions& options_;
  Builder builder_;
};

} // namespace

static bool isScalar(const Type& type) {
  return isFloat(type.element) && type.elements() == 1;
}
static bool isScalarResult(const GraphOutput& output) {
  return output.kind == OutputKind::result && isScalar(output.value->type());
}
static bool isTensorResult(const GraphOutput& output) {
  return output.kind == OutputKind::result && isFloat(output.value->type().element) && !isScalar(output.value->type());
}

/// The loss operation that `value` comes from, through operations with one operand that is not constant; or null.
static const Operation* lossOperation(const Value* value) {
  while (const Operation* definer = value->definer()) {
    if (definer->def().lossLike && value->resultIndex() == 0) return definer;
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
    if (output.kind == OutputKind::result)
      list += (list.empty() ? "" : ", ") + ("'" + output.name + "' " + toString(output.value->type()));
  return list.empty() ? "none" : list;
}

/// The loss times its weight.
Value* LossPass::weighted(Value* loss) {
  if (!loss || options_.weight == 1) return loss;
  return builder_.value("mul", {loss, builder_.constant(options_.weight, loss->type().element)});
}

Status LossPass::becomeLoss(GraphOutput& output) {
  output.kind = OutputKind::loss;
  builder_.setLocation(output.value->definer() ? output.value->definer()->location : Location{});
  Value* scalar = output.value;
  if (scalar->type().rank() != 0)
    scalar = builder_.value("reshape", {scalar}, {{"shape", std::vector<std::int64_t>{}}});
  output.value = weighted(scalar);
  return output.value ? Status(success) : Status(failure);
}

/// The outputs of loss operators, else the only scalar float output.
Status LossPass::takeDefault() {
  bool any = false;
  std::vector<GraphOutput*> scalars;
  for (GraphOutput& output : graph_.outputs) {
    if (!isScalarResult(output)) continue;
    scalars.push_back(&output);
    if (!lossOperation(output.value)) continue;
    any = true;
    if (!becomeLoss(output)) return failure;
  }
  if (any) return success;
  if (scalars.size() == 1) return becomeLoss(*scalars[0]);
  return error()
             .note("outputs of the model: " + listResults())
             .help("give --loss=softmax-cross-entropy, mse or bce-with-logits to add a loss, or --loss=output:NAME to "
                   "use "
                   "an output of the model")
         << "the model has no loss: none of its outputs is that of a loss operator, and " << scalars.size()
         << " of them are scalars, where one is needed";
}

Status LossPass::takeOutput() {
  for (GraphOutput& output : graph_.outputs) {
    if (output.kind != OutputKind::result || output.name != options_.output) continue;
    if (isScalarResult(output)) return becomeLoss(output);
    return error().help("give --loss=softmax-cross-entropy:" + options_.output + " or another loss to add one")
           << "output '" << options_.output << "' is " << toString(output.value->type())
           << ", a loss is a float scalar";
  }
  return error().note("outputs of the model: " + listResults()).help("name one of them in --loss=output:NAME")
         << "the model has no output '" << options_.output << "' to use as its loss";
}

Status LossPass::add() {
  const auto output = std::find_if(graph_.outputs.begin(), graph_.outputs.end(), [&](const GraphOutput& candidate) {
    if (options_.output.empty()) return isTensorResult(candidate);
    return candidate.name == options_.output && isFloat(candidate.value->type().element) &&
           !isScalar(candidate.value->type()) &&
           (candidate.kind == OutputKind::result || candidate.kind == OutputKind::prediction);
  });
  if (output == graph_.outputs.end())
    return error()
               .note("outputs of the model: " + listResults())
               .help("name one that is not a scalar, as in --loss=" + options_.kind + ":OUTPUT")
           << (options_.output.empty() ? "the model has no float output that is not a scalar"
                                       : "the model has no float output '" + options_.output + "' that is not a scalar")
           << ", to which '" << options_.kind << "' could apply";

  builder_.setLocation({.file = context_.module.file, .node = "loss"});
  Value* loss = weighted(lossOf(options_, *output->value, builder_));
  if (!loss) return failure;
  graph_.rename(loss, "loss");
  // A metric looks at what the first loss applies to.
  const bool first = std::none_of(graph_.outputs.begin(), graph_.outputs.end(),
                                  [](const GraphOutput& other) { return other.kind == OutputKind::prediction; });
  if (first) output->kind = OutputKind::prediction;
  const auto place = std::find_if(graph_.outputs.begin(), graph_.outputs.end(),
                                  [](const GraphOutput& other) { return other.kind != OutputKind::loss; });
  graph_.outputs.insert(place, {.kind = OutputKind::loss, .value = loss, .name = "loss", .parameter = nullptr});
  return success;
}

/// Whether `value` is used, through views and conversions, as what a loss compares with and as nothing else.
static bool isLabel(const Value& value, const Graph& graph) {
  if (value.users().empty() || graph.isOutput(&value)) return false;
  return std::all_of(value.users().begin(), value.users().end(), [&](const Operation* user) {
    if (user->def().lossLike) return user->operand(0) != &value;
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

/// Where the model computes its loss itself, a metric looks at what the loss operator compares with the labels; without
/// one, at the first output that is not a scalar.
void LossPass::markPrediction() {
  Value* prediction = nullptr;
  for (const GraphOutput& output : graph_.outputs) {
    if (output.kind == OutputKind::prediction) return;
    if (output.kind != OutputKind::loss || prediction) continue;
    if (const Operation* loss = lossOperation(output.value)) prediction = loss->operand(0);
  }
  for (GraphOutput& output : graph_.outputs)
    if (prediction ? output.value == prediction : isTensorResult(output)) {
      output.kind = OutputKind::prediction;
      return;
    }
  if (prediction)
    graph_.outputs.push_back(
        {.kind = OutputKind::prediction, .value = prediction, .name = prediction->name(), .parameter = nullptr});
}

Status LossPass::run() {
  const Status status = options_.kind.empty() ? takeDefault() : options_.kind == "output" ? takeOutput() : add();
  if (!status) return failure;
  markLabels();
  markPrediction();
  return success;
}

Status pdc::addLoss(PassContext& context, const LossOptions& options) {
  Expected<Graph*> graph = mainGraph(context);
  if (!graph) return failure;
  return LossPass(context, **graph, options).run();
}
