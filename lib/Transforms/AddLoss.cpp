// Decides what is minimised: an output of the model, or a loss that is added to one.
#include "pdc/Transforms/Transforms.h"

#include "GraphUtilities.h"

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
  Value* softmaxCrossEntropy(Value* logits);
  Value* meanSquaredError(Value* prediction);
  Value* binaryCrossEntropy(Value* logits);

  Value* meanOfAll(Value* value);
  Value* addLabel(Type type, const std::string& name);
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

/// The loss operation that `value` comes from, through operations with one operand; or null.
static const Operation* lossOperation(const Value* value) {
  while (const Operation* definer = value->definer()) {
    if (definer->def().lossLike && value->resultIndex() == 0) return definer;
    if (definer->operands().size() != 1) return nullptr;
    value = definer->operand(0);
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

Status LossPass::becomeLoss(GraphOutput& output) {
  output.kind = OutputKind::loss;
  if (output.value->type().rank() == 0) return success;
  builder_.setLocation(output.value->definer() ? output.value->definer()->location : Location{});
  Value* scalar = builder_.value("reshape", {output.value}, {{"shape", std::vector<std::int64_t>{}}});
  if (!scalar) return failure;
  output.value = scalar;
  return success;
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

Value* LossPass::addLabel(Type type, const std::string& name) {
  return graph_.addInput(std::move(type), name, InputKind::label);
}

Value* LossPass::meanOfAll(Value* value) {
  std::vector<std::int64_t> axes;
  for (int axis = 0; axis < value->type().rank(); ++axis) axes.push_back(axis);
  return value ? builder_.value("reduce_mean", {value}, {{"axes", axes}, {"keep_dims", false}}) : nullptr;
}

/// Classes are on the last axis, on axis 1 of 4-D logits, which is where the op has them.
Value* LossPass::softmaxCrossEntropy(Value* logits) {
  Shape labels = logits->type().shape;
  if (labels.size() < 2) {
    static_cast<void>(error() << "logits of a softmax cross-entropy are at least f32[samples, classes], here "
                              << toString(logits->type()));
    return nullptr;
  }
  const bool classesOnAxis1 = labels.size() == 2 || labels.size() == 4;
  const auto classAxis = labels.begin() + (classesOnAxis1 ? 1 : static_cast<std::ptrdiff_t>(labels.size()) - 1);
  const std::int64_t classes = *classAxis;
  labels.erase(classAxis);
  Value* label = addLabel({ElementType::i64, labels}, "label");
  if (!classesOnAxis1) {
    const std::int64_t positions = elementsOf(labels);
    logits = builder_.value("reshape", {logits}, {{"shape", std::vector<std::int64_t>{positions, classes}}});
    label = builder_.value("reshape", {label}, {{"shape", std::vector<std::int64_t>{positions}}});
  }
  return logits && label ? builder_.value("softmax_cross_entropy", {logits, label}) : nullptr;
}

Value* LossPass::meanSquaredError(Value* prediction) {
  Value* target = addLabel(prediction->type(), "target");
  Value* difference = builder_.value("sub", {prediction, target});
  Value* square = difference ? builder_.value("mul", {difference, difference}) : nullptr;
  return square ? meanOfAll(square) : nullptr;
}

/// -t·log σ(x) - (1 - t)·log(1 - σ(x)), which is softplus(x) - x·t, without overflow.
Value* LossPass::binaryCrossEntropy(Value* logits) {
  Value* target = addLabel(logits->type(), "target");
  Value* loss = builder_.value("elementwise", {logits, target},
                               {{"expressions", std::vector<std::string>{"softplus(a0) - a0 * a1"}}});
  return loss ? meanOfAll(loss) : nullptr;
}

Status LossPass::add() {
  const auto output = std::find_if(graph_.outputs.begin(), graph_.outputs.end(), [&](const GraphOutput& candidate) {
    return isTensorResult(candidate) && (options_.output.empty() || candidate.name == options_.output);
  });
  if (output == graph_.outputs.end())
    return error()
               .note("outputs of the model: " + listResults())
               .help("name one that is not a scalar, as in --loss=" + options_.kind + ":OUTPUT")
           << (options_.output.empty() ? "the model has no float output that is not a scalar"
                                       : "the model has no float output '" + options_.output + "' that is not a scalar")
           << ", to which '" << options_.kind << "' could apply";

  Value* prediction = output->value;
  builder_.setLocation({.file = context_.module.file, .node = "loss"});
  Value* loss = nullptr;
  if (options_.kind == "softmax-cross-entropy")
    loss = softmaxCrossEntropy(prediction);
  else if (options_.kind == "mse")
    loss = meanSquaredError(prediction);
  else
    loss = binaryCrossEntropy(prediction);
  if (!loss) return failure;
  graph_.rename(loss, "loss");
  output->kind = OutputKind::prediction;
  graph_.outputs.insert(graph_.outputs.begin(),
                        {.kind = OutputKind::loss, .value = loss, .name = "loss", .parameter = nullptr});
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
  const std::vector<std::string> added = {"softmax-cross-entropy", "mse", "bce-with-logits"};
  Status status = failure;
  if (options_.kind.empty())
    status = takeDefault();
  else if (options_.kind == "output")
    status = takeOutput();
  else if (std::find(added.begin(), added.end(), options_.kind) != added.end())
    status = add();
  else
    return error().exit(ExitCode::usage).help("it is one of softmax-cross-entropy, mse, bce-with-logits, output:NAME")
           << "there is no loss '" << options_.kind << "'";
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
