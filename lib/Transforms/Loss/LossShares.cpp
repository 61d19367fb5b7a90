// How much of the loss of its update a minibatch makes up, as a factor of each loss some of whose positions do not
// count.
#include "LossFormulas.h"

#include "pdc/Transforms/GraphUtilities.h"

#include <algorithm>

using namespace pdc;

/// The graph input whose integers `labels` are, one for one; null where they are computed.
static const GraphInput* inputOf(const Graph& graph, const Value* labels) {
  while (const Operation* definer = labels->definer()) {
    const bool keeps = definer->operands().size() == 1 &&
                       (definer->def().kind == OpKind::view ||
                        (definer->def().kind == OpKind::elementwise && !isFloat(labels->type().element) &&
                         !isFloat(definer->operand(0)->type().element) &&
                         labels->type().element != definer->operand(0)->type().element));
    if (!keeps) return nullptr;
    labels = definer->operand(0);
  }
  for (const GraphInput& input : graph.inputs)
    if (input.value == labels) return &input;
  return nullptr;
}

/// Whether `loss` has its share already, from another run of the pass.
static bool isShared(const Graph& graph, const Value& loss) {
  return std::any_of(loss.users().begin(), loss.users().end(), [&](const Operation* user) {
    return std::any_of(graph.inputs.begin(), graph.inputs.end(), [&](const GraphInput& input) {
      return input.share &&
             std::find(user->operands().begin(), user->operands().end(), input.value) != user->operands().end();
    });
  });
}

namespace {
/// What is known of a loss operation.
struct Counting {
  Value* loss;
  const Value* labels;
  LossShare share;
};
} // namespace

Value* pdc::withShare(Value* loss, LossShare share, Builder& builder) {
  Value* factor = builder.graph().addInput({ElementType::f32, {}}, "loss_share", InputKind::lossShare);
  builder.graph().inputs.back().share = std::move(share);
  return builder.value("mul", {loss, factor});
}

/// Multiplies `counting.loss` with its share wherever it is used.
static Status multiply(PassContext& context, Graph& graph, const Counting& counting, const Operation* before) {
  Builder builder(context.module, graph, context.registry, context.diags);
  builder.setInsertionPoint(before);
  builder.setLocation(counting.loss->definer()->location);
  const std::vector<Operation*> users = counting.loss->users();
  Value* shared = withShare(counting.loss, counting.share, builder);
  if (!shared) return failure;
  for (Operation* user : users)
    for (std::size_t i = 0; i < user->operands().size(); ++i)
      if (user->operand(i) == counting.loss) user->setOperand(i, shared);
  for (GraphOutput& output : graph.outputs)
    if (output.value == counting.loss) output.value = shared;
  return success;
}

Status pdc::shareLosses(PassContext& context, Graph& graph, const LossOptions& options) {
  if (options.average == LossAverage::minibatch) return success;
  const bool always = options.average == LossAverage::update;
  for (std::size_t i = 0; i < graph.operations().size(); ++i) {
    const Operation& operation = *graph.operations()[i];
    const Attributes& attributes = operation.attributes;
    if (!operation.def().facts.lossLike || !operation.result(0) || isShared(graph, *operation.result(0))) continue;
    const bool ignores = attributes.getOr("has_ignore_index", false);
    Value* weights = operation.operand(2);
    if (!ignores && !(always && weights)) continue;
    Counting counting{operation.result(0), operation.operand(1), {}};
    if (ignores) counting.share.ignoreIndex = attributes.getOr<std::int64_t>("ignore_index", -100);
    const std::optional<Tensor> known = weights ? Builder::constantValue(weights) : std::nullopt;
    for (std::int64_t c = 0; known && c < known->elements(); ++c)
      counting.share.classWeights.push_back(known->asDouble(c));
    const GraphInput* labels = inputOf(graph, counting.labels);
    if (!labels || (weights && !known) || operation.result(0)->type() != Type{ElementType::f32, {}}) {
      const std::string what = !labels ? "its labels are computed by the model" : "its class weights are no constants";
      if (always)
        return context.diags.error(operation.location).help("leave out average=update")
               << "the positions of an update that count cannot be counted: " << what;
      context.diags.remark(operation.location)
          << "the loss is a mean over each minibatch, not over the positions of an update that count: " << what;
      continue;
    }
    counting.share.labels = labels->value->name();
    const Operation* next = i + 1 < graph.operations().size() ? graph.operations()[i + 1].get() : nullptr;
    if (!multiply(context, graph, counting, next)) return failure;
  }
  return success;
}
