// Losses as graphs: cross-entropies of logits and of probabilities, mean squared error.
#include "LossFormulas.h"

#include "Logits.h"
#include "pdcrt/Stage.h"

#include <algorithm>

using namespace pdc;

namespace {

/// Builds one loss.
class LossFormula {
public:
  LossFormula(const LossOptions& options, Builder& builder) : options_(options), builder_(builder) {}

  Value* softmaxCrossEntropy(Value& logits);
  Value* negativeLogLikelihood(Value& probabilities);
  Value* meanSquaredError(Value& prediction);
  Value* binaryCrossEntropy(Value& logits);
  Value* binaryCrossEntropyOfProbabilities(Value& probabilities);

private:
  Value* label(const Type& type, const std::string& usualName);
  Value* classLabel(Value& prediction);
  Value* classWeights(std::int64_t classes, ElementType element);
  Value* sumOfAll(Value* value);
  Value* meanOfAll(Value& value);
  Diagnostics::Builder error() { return builder_.diags().error({.file = builder_.module().file}); }

  const LossOptions& options_;
  Builder& builder_;
};

/// The input to compare with: one of that name that is a label already, or that the flag names, else a new one.
Value* LossFormula::label(const Type& type, const std::string& usualName) {
  const std::string& name = options_.label.empty() ? usualName : options_.label;
  for (GraphInput& input : builder_.graph().inputs) {
    if (input.value->name() != name || (input.kind != InputKind::label && options_.label.empty())) continue;
    const Type& found = input.value->type();
    const bool fits = isFloat(type.element) ? found == type
                                            : found.shape == type.shape && (found.element == ElementType::i64 ||
                                                                            found.element == ElementType::i32);
    if (!fits) {
      static_cast<void>(error().help("give it a label of its own: --loss=" + options_.kind + ":OUTPUT,label=NAME")
                        << "the label '" << name << "' is " << toString(found) << ", the loss '" << options_.kind
                        << "' needs " << toString(type));
      return nullptr;
    }
    input.kind = InputKind::label;
    return input.value;
  }
  return builder_.graph().addInput(type, name, InputKind::label);
}

Value* LossFormula::classWeights(std::int64_t classes, ElementType element) {
  const auto& weights = options_.classWeights;
  if (static_cast<std::int64_t>(weights.size()) != classes) {
    static_cast<void>(error().exit(ExitCode::usage) << "class_weights are " << weights.size()
                                                    << " numbers, the output has " << classes << " classes");
    return nullptr;
  }
  Tensor tensor(Type{element, {classes}});
  for (std::size_t i = 0; i < weights.size(); ++i) tensor.set(static_cast<std::int64_t>(i), weights[i]);
  return builder_.constant(tensor);
}

/// The classes of `prediction`, an integer for each position.
Value* LossFormula::classLabel(Value& prediction) {
  Shape labels = prediction.type().shape;
  if (labels.size() < 2) {
    static_cast<void>(error() << "the loss '" << options_.kind << "' applies to at least f32[samples, classes], here "
                              << toString(prediction.type()));
    return nullptr;
  }
  labels.erase(labels.begin() + static_cast<std::ptrdiff_t>(pdcrt::classAxis(prediction.type().rank())));
  return label({ElementType::i64, labels}, "label");
}

/// The op has classes on axis 1.
Value* LossFormula::softmaxCrossEntropy(Value& prediction) {
  Value* logits = &prediction;
  Value* target = classLabel(prediction);
  if (!target) return nullptr;
  const std::int64_t axis = pdcrt::classAxis(logits->type().rank()),
                     classes = logits->type().shape[static_cast<std::size_t>(axis)];
  if (axis != 1) {
    const std::int64_t positions = target->type().elements();
    logits = builder_.value("reshape", {logits}, {{"shape", std::vector<std::int64_t>{positions, classes}}});
    target = builder_.value("reshape", {target}, {{"shape", std::vector<std::int64_t>{positions}}});
  }
  if (!logits || !target) return nullptr;
  std::vector<Value*> operands = {logits, target};
  if (!options_.classWeights.empty()) {
    operands.push_back(classWeights(classes, logits->type().element));
    if (!operands.back()) return nullptr;
  }
  Attributes attributes = {{"label_smoothing", options_.labelSmoothing}};
  if (options_.ignoreIndex) {
    attributes.set("has_ignore_index", true);
    attributes.set("ignore_index", *options_.ignoreIndex);
  }
  return builder_.value("softmax_cross_entropy", std::move(operands), std::move(attributes));
}

/// Σ w[label] · -log p[label] / Σ w[label] over the positions that count, the label picked by a comparison. 0 where
/// none counts.
Value* LossFormula::negativeLogLikelihood(Value& probabilities) {
  const Type type = probabilities.type();
  Value* target = classLabel(probabilities);
  if (!target) return nullptr;
  const auto axis = static_cast<std::size_t>(pdcrt::classAxis(type.rank()));
  const std::int64_t classes = type.shape[axis];
  for (GraphInput& input : builder_.graph().inputs)
    if (input.value == target) input.classes = classes;
  Shape perPosition = type.shape, perClass(type.shape.size(), 1);
  perPosition[axis] = 1;
  perClass[axis] = classes;
  Tensor numbers(Type{target->type().element, perClass});
  for (std::int64_t c = 0; c < classes; ++c) numbers.set(c, static_cast<double>(c));
  // Null as soon as one operand is.
  const auto value = [&](const char* op, std::vector<Value*> operands, Attributes attributes = {}) -> Value* {
    if (std::find(operands.begin(), operands.end(), nullptr) != operands.end()) return nullptr;
    return builder_.value(op, std::move(operands), std::move(attributes));
  };
  Value* weight =
      options_.classWeights.empty() ? builder_.constant(1, type.element) : classWeights(classes, type.element);
  if (weight && !options_.classWeights.empty()) weight = value("reshape", {weight}, {{"shape", perClass}});
  Value* zero = builder_.constant(0, type.element);
  Value* label = value("reshape", {target}, {{"shape", perPosition}});
  Value* chosen = value("where", {value("equal", {label, builder_.constant(numbers)}), weight, zero});
  if (options_.ignoreIndex) {
    Value* ignored = builder_.constant(static_cast<double>(*options_.ignoreIndex), target->type().element);
    chosen = value("where", {value("equal", {label, ignored}), zero, chosen});
  }
  Value* total = sumOfAll(value("neg", {value("mul", {chosen, value("log_probability", {&probabilities})})}));
  Value* weights = sumOfAll(chosen);
  Value* counted = value("where", {value("equal", {weights, zero}), builder_.constant(1, type.element), weights});
  Value* loss = value("div", {total, counted});
  const bool shared =
      options_.average != LossAverage::minibatch && type.element == ElementType::f32 &&
      (options_.ignoreIndex || (options_.average == LossAverage::update && !options_.classWeights.empty()));
  if (!loss || !shared) return loss;
  return withShare(loss, {target->name(), options_.ignoreIndex, options_.classWeights}, builder_);
}

Value* LossFormula::sumOfAll(Value* value) {
  if (!value) return nullptr;
  std::vector<std::int64_t> axes;
  for (int axis = 0; axis < value->type().rank(); ++axis) axes.push_back(axis);
  return builder_.value("reduce_sum", {value}, {{"axes", axes}, {"keep_dims", false}});
}

Value* LossFormula::meanOfAll(Value& value) {
  std::vector<std::int64_t> axes;
  for (int axis = 0; axis < value.type().rank(); ++axis) axes.push_back(axis);
  return builder_.value("reduce_mean", {&value}, {{"axes", axes}, {"keep_dims", false}});
}

Value* LossFormula::meanSquaredError(Value& prediction) {
  Value* target = label(prediction.type(), "target");
  Value* difference = target ? builder_.value("sub", {&prediction, target}) : nullptr;
  Value* square = difference ? builder_.value("mul", {difference, difference}) : nullptr;
  return square ? meanOfAll(*square) : nullptr;
}

/// -t·log σ(x) - (1 - t)·log(1 - σ(x)), which is softplus(x) - x·t, without overflow.
Value* LossFormula::binaryCrossEntropy(Value& logits) {
  Value* target = label(logits.type(), "target");
  if (!target) return nullptr;
  Value* loss = builder_.value("elementwise", {&logits, target},
                               {{"expressions", std::vector<std::string>{"softplus(a0) - a0 * a1"}}});
  return loss ? meanOfAll(*loss) : nullptr;
}

Value* LossFormula::binaryCrossEntropyOfProbabilities(Value& probabilities) {
  Value* target = label(probabilities.type(), "target");
  Value* loss = target ? builder_.value("binary_cross_entropy", {&probabilities, target}) : nullptr;
  return loss ? meanOfAll(*loss) : nullptr;
}

/// What a loss is made of, and whether that suits the value which users named.
class LossChoice {
public:
  LossChoice(const LossOptions& options, Value& value, const std::string& name, Builder& builder)
      : options_(options), value_(value), name_(name), builder_(builder),
        ofClasses_(options.kind == "softmax-cross-entropy" || options.kind == "nll"),
        from_(fromLogits(value, ofClasses_ && value.type().rank() >= 2 ? pdcrt::classAxis(value.type().rank()) : -1)) {}

  Expected<AddedLoss> run();

private:
  Expected<AddedLoss> ofValue(const std::string& kind);
  Expected<AddedLoss> ofLogits(const std::string& kind);
  bool isSigmoid() const { return from_ && from_->kind() == OfLogits::sigmoid; }
  /// "the softmax of node '/Softmax'".
  std::string whatItIs() const;
  /// "--loss=KIND:LOGITS".
  std::string flagForLogits(const std::string& kind) const;
  void warnOfProbabilities(const std::string& otherKind);
  void tellLogits(const std::string& kind);
  Location where() const { return {.file = builder_.module().file}; }

  const LossOptions& options_;
  Value& value_;
  const std::string& name_;
  Builder& builder_;
  bool ofClasses_;
  std::optional<FromLogits> from_;
};

std::string LossChoice::whatItIs() const {
  const std::string what = from_->kind() == OfLogits::sigmoid   ? "sigmoid"
                           : from_->kind() == OfLogits::softmax ? "softmax"
                                                                : "logarithm of a softmax";
  const std::string& node = from_->operation->location.node;
  return "the " + what + (node.empty() ? "" : " '" + node + "'");
}

std::string LossChoice::flagForLogits(const std::string& kind) const {
  const std::string logits = nameOfLogits(*from_, builder_.module());
  return "--loss=" + kind + ":" + (logits.empty() ? "LOGITS" : logits);
}

/// The loss takes logits, the value has probabilities that are made otherwise.
void LossChoice::warnOfProbabilities(const std::string& otherKind) {
  builder_.diags().warning(where()).help("--loss=" + otherKind + ":" + name_ + " takes probabilities as they are, " +
                                         flagForLogits(options_.kind) + " what comes before")
      << "the loss '" << options_.kind << "' takes logits, but '" << name_ << "' comes from " << whatItIs()
      << ": gradients nearly vanish";
}

void LossChoice::tellLogits(const std::string& kind) {
  builder_.diags().remark(where()) << "'" << name_ << "' is " << whatItIs() << ": the loss '" << kind
                                   << "' is that of its logits, the same function";
}

Expected<AddedLoss> LossChoice::ofValue(const std::string& kind) {
  LossFormula formula(options_, builder_);
  Value* loss = kind == "softmax-cross-entropy" ? formula.softmaxCrossEntropy(value_)
                : kind == "nll"                 ? formula.negativeLogLikelihood(value_)
                : kind == "bce-with-logits"     ? formula.binaryCrossEntropy(value_)
                : kind == "bce"                 ? formula.binaryCrossEntropyOfProbabilities(value_)
                                                : formula.meanSquaredError(value_);
  if (!loss) return failure;
  return AddedLoss{loss, &value_, kind};
}

/// The loss `kind` of the logits; the metric of a sigmoid still looks at the probabilities.
Expected<AddedLoss> LossChoice::ofLogits(const std::string& kind) {
  Value* logits = logitsOf(*from_, builder_);
  if (!logits) return failure;
  LossFormula formula(options_, builder_);
  Value* loss = ofClasses_ ? formula.softmaxCrossEntropy(*logits) : formula.binaryCrossEntropy(*logits);
  if (!loss) return failure;
  tellLogits(options_.kind);
  return ofClasses_ ? AddedLoss{loss, logits, kind} : AddedLoss{loss, &value_, "bce"};
}

Expected<AddedLoss> LossChoice::run() {
  const std::string& kind = options_.kind;
  const bool logarithms = from_ && from_->kind() == OfLogits::logSoftmax;
  if (ofClasses_ && from_ && from_->isSoftmaxOfAxis()) return ofLogits("softmax-cross-entropy");
  if (kind == "bce-with-logits" && isSigmoid() && from_->moved) return ofLogits(kind);
  if (from_ && kind == "softmax-cross-entropy") warnOfProbabilities(isSigmoid() ? "bce" : "nll");
  if (from_ && kind == "bce-with-logits") warnOfProbabilities("bce");
  if ((kind == "nll" || kind == "bce") && logarithms && from_->moved)
    return builder_.diags().error(where()).help(
               flagForLogits(ofClasses_ ? "softmax-cross-entropy" : "bce-with-logits") + " takes logits")
           << "the loss '" << kind << "' takes probabilities, but '" << name_ << "' is " << whatItIs();
  if ((kind == "nll" || kind == "bce") && !from_)
    builder_.diags().warning(where()).help(std::string("of logits: --loss=") +
                                           (ofClasses_ ? "softmax-cross-entropy:" : "bce-with-logits:") + name_)
        << "the loss '" << kind << "' takes probabilities, and no softmax or sigmoid makes '" << name_ << "'";
  return ofValue(kind);
}

} // namespace

Expected<AddedLoss> pdc::lossOf(const LossOptions& options, Value& value, const std::string& name, Builder& builder) {
  return LossChoice(options, value, name, builder).run();
}

bool pdc::isScalarOutput(const Graph& graph, const GraphOutput& output) {
  const Type& type = output.value->type();
  if (!isFloat(type.element) || type.elements() != 1) return false;
  std::int64_t batch = 1;
  for (const GraphInput& input : graph.inputs)
    if (input.value->type().rank() > 0) batch = std::max(batch, input.value->type().shape[0]);
  if (type.rank() < 2) return type.rank() == 0 || !output.perSample || batch > 1;
  return !output.perSample && batch > 1;
}
