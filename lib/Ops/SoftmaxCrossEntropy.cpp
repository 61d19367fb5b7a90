// Softmax cross-entropy with integer labels and its gradient. Kernel: pdcrt::SoftmaxCrossEntropy.
//
// ONNX's losses of log-probabilities, or without a mean, become what their definition says, in elementwise ops and
// reductions: loss = sum(w · nll) / sum(w), with the labelled class picked by a comparison.
#include "Convert/Onnx.h"
#include "Kernels/KernelOptions.h"
#include "Shared/CrossEntropy.h"
#include "Shared/Define.h"
#include "Shared/LoopsOf.h"
#include "Shared/LossOverTeam.h"

#include <algorithm>
#include <cmath>

namespace pdc::ops::SoftmaxCrossEntropy {

namespace {

/// The logits as [batch, classes + gap, inner].
struct Classes {
  std::int64_t batch, classes, inner, gap;

  Classes(const Shape& logits, const Attributes& attributes)
      : batch(logits[0]), classes(logits[1] - attributes.getInt("gap")), inner(product(logits, 2, logits.size())),
        gap(attributes.getInt("gap")) {}
  /// Calls visit(position of the label, position of class 0 in the logits, position of the first of its statistics);
  /// other classes are `inner` apart, as are both statistics.
  template <class Visit>
  void forEachLabel(Visit visit) const {
    for (std::int64_t n = 0; n < batch; ++n)
      for (std::int64_t i = 0; i < inner; ++i) visit(n * inner + i, n * (classes + gap) * inner + i, n * 2 * inner + i);
  }
};

std::vector<AttributeDef> attributes() {
  std::vector<AttributeDef> all = crossEntropyAttributes();
  all.push_back(integer(
      "gap", 0, "logits at the end of axis 1 that are of no class, so that rows begin where they are read fast"));
  return all;
}
std::vector<AttributeDef> gradientAttributes() {
  std::vector<AttributeDef> all = attributes();
  all.push_back(integer("classes", 0,
                        "how many classes a team has, where the logits are one member's part of them, perhaps with "
                        "padding at the end; 0: the logits have all"));
  return all;
}

/// Of the gradient op: all classes, of which the logits may be a member's.
std::int64_t allClasses(const Attributes& attributes, std::int64_t ofLogits) {
  const std::int64_t classes = attributes.getInt("classes");
  return classes > 0 ? classes : ofLogits;
}

KernelUse kernel(const Operation& op, const Type& logits, const char* method) {
  const Classes size(logits.shape, op.attributes);
  return kernelUse<pdcrt::SoftmaxCrossEntropy>("SoftmaxCrossEntropy", method,
                                               {.batch = size.batch,
                                                .classes = size.classes,
                                                .inner = size.inner,
                                                .hasIgnoreIndex = op.attributes.get<bool>("has_ignore_index"),
                                                .ignoreIndex = op.attributes.getInt("ignore_index"),
                                                .labelSmoothing = op.attributes.getFloat("label_smoothing"),
                                                .gap = size.gap,
                                                .total = op.attributes.getOr<std::int64_t>("classes", 0),
                                                .element = logits.element});
}

template <class T>
void lossReference(ReferenceContext& c) {
  const Classes size(operandType(c.op, 0).shape, c.op.attributes);
  const auto x = c.in<T>(0);
  const LossDefinition<T> definition(c, 1, 2, size.classes);
  const double weights = definition.sumOfWeights(c);
  if (!c.error.empty()) return;
  double total = 0;
  size.forEachLabel([&](std::int64_t at, std::int64_t first, std::int64_t statistics) {
    T largest = x[first];
    for (std::int64_t k = 1; k < size.classes; ++k) largest = std::max(largest, x[first + k * size.inner]);
    T sum = 0;
    for (std::int64_t k = 0; k < size.classes; ++k) sum += std::exp(x[first + k * size.inner] - largest);
    if (c.results[1]) {
      c.out<T>(1)[statistics] = largest;
      c.out<T>(1)[statistics + size.inner] = 1 / sum;
    }
    const std::int64_t label = c.operands[1]->asInt(at);
    if (!countsInLoss(c.op, label)) return;
    for (std::int64_t k = 0; k < size.classes; ++k)
      if (const T share = definition.share(label, k); share != 0)
        total += share * (largest - x[first + k * size.inner] + std::log(sum));
  });
  c.out<T>(0)[0] = weights == 0 && total == 0 ? 0 : static_cast<T>(total / weights);
}

template <class T>
void gradientReference(ReferenceContext& c) {
  const Classes size(resultType(c.op).shape, c.op.attributes);
  const auto x = c.in<T>(2), statistics = c.in<T>(3);
  const auto dx = c.out<T>(0);
  const std::int64_t classes = allClasses(c.op.attributes, size.classes);
  const ClassesOfMember own(classes, size.classes, c.op.attributes.getInt("classes") > 0 ? c.member : 0);
  const LossDefinition<T> definition(c, 1, 4, classes);
  const double weights = definition.sumOfWeights(c);
  if (!c.error.empty() || weights == 0) return;
  const T scale = c.in<T>(0)[0] / static_cast<T>(weights);
  size.forEachLabel([&](std::int64_t at, std::int64_t first, std::int64_t known) {
    const std::int64_t label = c.operands[1]->asInt(at);
    if (!countsInLoss(c.op, label)) return;
    const T largest = statistics[known], factor = statistics[known + size.inner];
    T all = 0;
    for (std::int64_t k = 0; k < classes; ++k) all += definition.share(label, k);
    for (std::int64_t k = 0; k < own.count; ++k) {
      const std::int64_t i = first + k * size.inner;
      dx[i] = (std::exp(x[i] - largest) * factor * all - definition.share(label, own.first + k)) * scale;
    }
  });
}

/// Reports unless operand `labels` holds integers for each position of `logits`, and the gap leaves a class.
Status requireLabels(const InferContext& c, const char* op, std::size_t labels, const Shape& logits) {
  Shape wanted = logits;
  wanted.erase(wanted.begin() + 1);
  if (const std::int64_t gap = c.attributes.getInt("gap"); gap < 0 || gap >= logits[1])
    return c.error() << "'" << op << "' op has gap = " << gap << " behind the classes of " << toString(logits)
                     << ", it must be at least 0 and leave one class";
  return ops::requireLabels(c, op, labels, wanted, "logits of shape " + toString(logits));
}

Type statisticsOf(const Type& logits) {
  Type statistics{highOf(logits), logits.shape};
  statistics.shape[1] = 2;
  return statistics;
}

std::int64_t classesOf(const InferContext& c, const Type& logits) {
  return logits.shape[1] - c.attributes.getInt("gap");
}

Types inferLoss(const InferContext& c) {
  const char* op = "softmax_cross_entropy";
  if (!requireFloat(c, op, 0, 2) || !requireLabels(c, op, 1, c.operand(0).shape) ||
      !requireLossOptions(c, op, 2, highOf(c.operand(0)), classesOf(c, c.operand(0))))
    return failure;
  return std::vector<Type>{{highOf(c.operand(0)), {}}, statisticsOf(c.operand(0))};
}

/// Reports unless the logits can be those of a member, where `classes` says that they are.
Status requireMember(const InferContext& c, const char* op, const Type& logits) {
  const std::int64_t classes = integerOf(c, "classes");
  if (classes == 0 || (classes >= logits.shape[1] && integerOf(c, "gap") == 0)) return success;
  return c.error() << "'" << op << "' op has logits " << toString(logits) << " with gap = " << integerOf(c, "gap")
                   << ", which are no part of " << classes << " classes";
}

Types inferGradient(const InferContext& c) {
  const char* op = "softmax_cross_entropy_gradient";
  if (!requireFloat(c, op, 2, 2) || !requireLabels(c, op, 1, c.operand(2).shape) ||
      !requireMember(c, op, c.operand(2)) || !requireType(c, op, 0, {highOf(c.operand(2)), {}}, "a loss") ||
      !requireType(c, op, 3, statisticsOf(c.operand(2)), "statistics of the logits") ||
      !requireLossOptions(c, op, 4, highOf(c.operand(2)), allClasses(c.attributes, classesOf(c, c.operand(2)))))
    return failure;
  return std::vector<Type>{c.operand(2)};
}

/// An index for each axis of positions, which logits, labels and statistics have. Operands are those of the loss, or of
/// its gradient, which has dloss before them.
void addPositions(Loops& loops, const Operation& op, bool backward, const std::vector<std::size_t>& reduced) {
  const std::size_t logits = backward ? 2 : 0;
  const Shape& shape = operandType(op, logits).shape;
  for (int axis = 0; axis < static_cast<int>(shape.size()); ++axis) {
    if (axis == 1) continue;
    Index index{.size = shape[static_cast<std::size_t>(axis)],
                .operands = {{logits, axis}, {1, std::max(axis - 1, 0)}},
                .results = {{backward ? 0U : 1U, axis}},
                .reduced = reduced,
                .combine = Combine::mean};
    if (backward) index.operands.push_back({3, axis});
    addIndex(loops, op, index);
  }
}

bool weighsAllAlike(const Operation& op, std::size_t weights) {
  return !op.attributes.get<bool>("has_ignore_index") && !op.operand(weights);
}

/// Positions, and classes. If all positions have the same weight, the loss is the mean of the means of equal parts.
Loops loopsOfLoss(const Operation& op) {
  Loops loops(op);
  addPositions(loops, op, false, weighsAllAlike(op, 2) ? std::vector<std::size_t>{0} : std::vector<std::size_t>{});
  if (op.attributes.getInt("gap") == 0)
    addIndex(
        loops, op,
        {.size = operandType(op, 0).shape[1], .operands = {{0, 1}}, .results = {}, .mayPad = true, .inOneBlock = true});
  return loops;
}

/// The same.
Loops loopsOfGradient(const Operation& op) {
  Loops loops(op);
  if (op.attributes.getInt("classes") > 0) return loops; // a member's
  addPositions(loops, op, true, {});
  if (op.attributes.getInt("gap") == 0)
    addIndex(loops, op,
             {.size = resultType(op).shape[1],
              .operands = {{2, 1}},
              .results = {{0, 1}},
              .mayPad = true,
              .inOneBlock = true});
  return loops;
}

/// What a member computes of a loss that is divided along its positions.
std::vector<Value*> dividePositions(const Operation& op, const Loops& loops, const Division& division,
                                    const std::vector<Value*>& operands, Builder& b) {
  std::vector<Value*> results = sameWith(op, loops, division, operands, {}, b);
  if (results.empty() || weighsAllAlike(op, 2)) return results;
  results[0] = lossOfTeam(op, results[0], operands[1], operands.size() > 2 ? operands[2] : nullptr, division.parts, b);
  return results[0] ? results : std::vector<Value*>();
}

/// What a member computes of a loss that is divided along its classes: the ops of SoftmaxCrossEntropyParts.
std::vector<Value*> divideLoss(const Operation& op, const Loops& loops, const Division& division,
                               const std::vector<Value*>& operands, Builder& b) {
  Value* const x = operands[0];
  if (formOfOperand(loops, 0, division).axis != 1) return dividePositions(op, loops, division, operands, b);
  const std::int64_t classes = operandType(op, 0).shape[1];
  Attributes attributes = op.attributes;
  attributes.erase("gap");
  attributes.set("classes", classes);
  const Attributes team = {{"members", division.parts}};
  Value* own = b.value("softmax_cross_entropy_maxima", {x}, {{"classes", classes}});
  Value* const maxima = own ? b.value("all_reduce_max", {own}, team) : nullptr;
  if (!maxima) return {};
  std::vector<Value*> ofSums = {x, operands[1], maxima};
  ofSums.insert(ofSums.end(), operands.begin() + 2, operands.end());
  own = b.value("softmax_cross_entropy_sums", ofSums, attributes);
  Value* const sums = own ? b.value("all_reduce", {own}, team) : nullptr;
  if (!sums) return {};
  std::vector<Value*> ofLoss = {sums, maxima, operands[1]};
  ofLoss.insert(ofLoss.end(), operands.begin() + 2, operands.end());
  const Operation* loss =
      b.create("softmax_cross_entropy_of_sums", ofLoss, attributes, {true, op.result(1) != nullptr});
  return loss ? loss->results() : std::vector<Value*>();
}

/// The division tells a member that has some classes how many there are, and one that has some positions how much they
/// count.
std::vector<Value*> divideGradient(const Operation& op, const Loops& loops, const Division& division,
                                   const std::vector<Value*>& operands, Builder& b) {
  if (formOfResult(loops, 0, division).axis != 1) {
    std::vector<Value*> own = operands;
    own[0] =
        gradientOfMember(op, operands[0], operands[1], operands.size() > 4 ? operands[4] : nullptr, division.parts, b);
    return own[0] ? sameWith(op, loops, division, own, {}, b) : std::vector<Value*>();
  }
  return sameWith(op, loops, division, operands, {{"classes", resultType(op).shape[1]}}, b);
}

/// The definition of ONNX's losses, op by op. `logProbabilities` has its classes on axis 1.
class WeightedLoss {
public:
  WeightedLoss(OnnxReader& reader, Value* logProbabilities)
      : n(reader), x(logProbabilities), labels(reader.input(1)), weights(reader.input(2)) {}

  Value* run(const std::string& reduction, std::optional<std::int64_t> ignoreIndex) {
    const ElementType element = x->type().element;
    // chosen[n, c, …] = weight of class c where it is the label, else 0.
    Shape labelShape = labels->type().shape, classShape(x->type().shape.size(), 1);
    labelShape.insert(labelShape.begin() + 1, 1);
    const std::int64_t classes = x->type().shape[1];
    classShape[1] = classes;
    Tensor numbers(Type{labels->type().element, classShape});
    for (std::int64_t i = 0; i < classes; ++i) numbers.set(i, static_cast<double>(i));
    Value* label = n.reshape(labels, labelShape);
    Value* isLabel = value("equal", {label, n.b.constant(numbers)});
    Value* weight = weights ? n.reshape(weights, classShape) : n.b.constant(1, element);
    if (ignoreIndex) {
      Value* ignored = value("equal", {label, n.b.constant(static_cast<double>(*ignoreIndex), labels->type().element)});
      isLabel = value("and", {isLabel, value("not", {ignored})});
    }
    Value* chosen = value("where", {isLabel, weight, n.b.constant(0, element)});
    // The logarithms of other classes, which may be infinite, have no part in it.
    Value* losses = value("where", {isLabel, value("neg", {value("mul", {weight, x})}), n.b.constant(0, element)});
    if (reduction == "none") return sum(losses, {1});
    std::vector<std::int64_t> all;
    for (int axis = 0; axis < x->type().rank(); ++axis) all.push_back(axis);
    Value* total = sum(losses, all);
    if (reduction == "sum") return total;
    // Where no position counts, the loss is 0, and so are its gradients.
    Value* counted = sum(chosen, all);
    Value* none = value("equal", {counted, n.b.constant(0, element)});
    return value("div", {total, value("where", {none, n.b.constant(1, element), counted})});
  }

private:
  /// Null as soon as one operand is, so that a failure is reported once.
  Value* value(const char* op, std::vector<Value*> operands) {
    for (const Value* operand : operands)
      if (!operand) return nullptr;
    return n.value(op, std::move(operands));
  }
  Value* sum(Value* of, std::vector<std::int64_t> axes) {
    return of ? n.value("reduce_sum", {of}, {{"axes", std::move(axes)}, {"keep_dims", false}}) : nullptr;
  }

  OnnxReader& n;
  Value *x, *labels, *weights;
};

/// x with log_softmax over axis 1.
Value* logSoftmaxOverClasses(OnnxReader& n, Value* x) {
  const auto last = static_cast<std::size_t>(x->type().rank() - 1);
  if (last == 1) return n.value("log_softmax", {x});
  std::vector<std::int64_t> swap;
  for (std::size_t i = 0; i <= last; ++i) swap.push_back(static_cast<std::int64_t>(i));
  std::swap(swap[1], swap[last]);
  Value* transposed = n.transpose(x, swap);
  return transposed ? n.transpose(n.value("log_softmax", {transposed}), swap) : nullptr;
}

Expected<std::vector<Value*>> convertLoss(OnnxReader& n, bool logits) {
  const std::string reduction = n.text("reduction", "mean");
  const bool hasIgnoreIndex = n.has("ignore_index");
  const std::int64_t ignoreIndex = n.integer("ignore_index", -100);
  const Shape &x = n.type(0).shape, &labels = n.type(1).shape;
  Shape wanted = x;
  if (x.size() >= 2) wanted.erase(wanted.begin() + 1);
  if (x.size() < 2 || labels != wanted)
    return n.error() << "needs logits [N, C, …] and labels [N, …], they are " << toString(n.type(0)) << " and "
                     << toString(n.type(1));
  if (reduction != "mean" && reduction != "sum" && reduction != "none")
    return n.error() << "has reduction = '" << reduction << "', it must be mean, sum or none";
  const bool plain = logits && reduction == "mean";
  Value* logProbabilities =
      n.used(1) || !plain ? (logits ? logSoftmaxOverClasses(n, n.input(0)) : n.input(0)) : nullptr;
  if (!plain && !logProbabilities) return failure;
  std::vector<Value*> operands = {n.input(0), n.input(1)};
  if (n.input(2)) operands.push_back(n.input(2));
  Value* loss = plain ? n.value("softmax_cross_entropy", std::move(operands),
                                {{"has_ignore_index", hasIgnoreIndex}, {"ignore_index", ignoreIndex}})
                      : WeightedLoss(n, logProbabilities)
                            .run(reduction, hasIgnoreIndex ? std::optional(ignoreIndex) : std::nullopt);
  if (!loss) return failure;
  return std::vector{loss, n.used(1) ? logProbabilities : nullptr};
}

std::vector<std::string> examples() {
  const auto text = [](const char* x, const char* s, const char* labels, const char* options = "") {
    return example("%x: f32" + std::string(x) + ", %label: " + labels,
                   "%loss, %s = softmax_cross_entropy %x, %label" + std::string(options) + " : f32[], f32" + s);
  };
  return {text("[4, 3]", "[4, 2]", "i64[4]"),
          text("[1, 2]", "[1, 2]", "i32[1]"),
          text("[2, 5, 3]", "[2, 2, 3]", "i64[2, 3]"),
          text("[2, 6]", "[2, 2]", "i64[2]", " {label_smoothing = 0.25}"),
          text("[6, 3]", "[6, 2]", "i64[6]", " {has_ignore_index = true, ignore_index = 1}"),
          text("[2, 2, 2, 3]", "[2, 2, 2, 3]", "i32[2, 2, 3]", " {has_ignore_index = true, ignore_index = 0}"),
          text("[3, 4]", "[3, 2]", "i64[3]", " {label_smoothing = 0.1}"),
          text("[2, 3, 2]", "[2, 2, 2]", "i64[2, 2], %constant_positive: f32[3]",
               ", %constant_positive {has_ignore_index = true, ignore_index = 1, label_smoothing = 0.25}"),
          text("[5, 3]", "[5, 2]", "i32[5], %constant_positive: f32[3]", ", %constant_positive"),
          text("[3, 8]", "[3, 2]", "i64[3], %constant_positive: f32[5]",
               ", %constant_positive {gap = 3, label_smoothing = 0.125}")};
}

std::vector<std::string> gradientExamples() {
  return {example("%dloss: f32[], %label: i64[4], %x: f32[4, 3]",
                  "%loss, %s = softmax_cross_entropy %x, %label : f32[], f32[4, 2]\n"
                  "%dx = softmax_cross_entropy_gradient %dloss, %label, %x, %s : f32[4, 3]"),
          example("%dloss: f32[], %label: i64[2, 3], %x: f32[2, 6, 3], %positive: f32[6]",
                  "%loss, %s = softmax_cross_entropy %x, %label, %positive {has_ignore_index = true, ignore_index = 1} "
                  ": f32[], f32[2, 2, 3]\n"
                  "%dx = softmax_cross_entropy_gradient %dloss, %label, %x, %s, %positive {has_ignore_index = true, "
                  "ignore_index = 1} : f32[2, 6, 3]"),
          // Of the first member's classes.
          example("%dloss: f32[], %label: i64[4], %x: f32[4, 3], %positive_s: f32[4, 2]",
                  "%dx = softmax_cross_entropy_gradient %dloss, %label, %x, %positive_s {classes = 5, "
                  "label_smoothing = 0.1} : f32[4, 3]"),
          example("%dloss: f32[], %label: i64[4], %x: f32[4, 5], %positive: f32[3]",
                  "%loss, %s = softmax_cross_entropy %x, %label, %positive {gap = 2, label_smoothing = 0.2} : f32[], "
                  "f32[4, 2]\n"
                  "%dx = softmax_cross_entropy_gradient %dloss, %label, %x, %s, %positive {gap = 2, "
                  "label_smoothing = 0.2} : f32[4, 5]")};
}

} // namespace

std::vector<OpDef> define() {
  return {
      {
          .name = "softmax_cross_entropy",
          .summary =
              "Mean over the labelled positions of -log softmax(logits) at the label, classes on axis 1, weighted "
              "by the labels' class",
          .onnx = {onnxMany("SoftmaxCrossEntropyLoss", 2, [](OnnxReader& n) { return convertLoss(n, true); })},
          .operands = {{"logits"}, {"labels"}, {.name = "weights", .optional = true, .keepsHigh = true}},
          .results = {{"loss"}, {.name = "statistics", .optional = true}},
          .attributes = attributes(),
          .infer = inferLoss,
          .precision = PrecisionClass::readLow,
          .cost = perElement(14),
          .gradient = [](GradientContext& g) -> std::vector<Value*> {
            const Operation& op = g.op();
            if (!g.resultGradient(0)) return {nullptr, nullptr, nullptr};
            std::vector<Value*> operands = {g.resultGradient(0), op.operand(1), op.operand(0), op.result(1)};
            if (op.operands().size() > 2) operands.push_back(op.operand(2));
            return {g.value(0, "softmax_cross_entropy_gradient", std::move(operands), op.attributes), nullptr, nullptr};
          },
          .kernel = {.use = [](const Operation& op) { return kernel(op, operandType(op, 0), "forward"); }},
          .rewrites = {.evaluation = [](const Operation& op, Builder& b) -> std::vector<Value*> {
                         Operation* without = b.create(op.def().name, op.operands(), op.attributes, {true, false});
                         return {without ? without->result(0) : nullptr, nullptr};
                       },
                       .ignoreGap = [](const Operation& op, Value* wider, Builder& b) -> Operation* {
                         std::vector<Value*> operands = op.operands();
                         operands[0] = wider;
                         Attributes gap = op.attributes;
                         gap.set("gap", gap.getInt("gap") + wider->type().shape[1] - operandType(op, 0).shape[1]);
                         std::vector<bool> wanted;
                         for (const Value* result : op.results()) wanted.push_back(result != nullptr);
                         return b.create(op.def().name, operands, gap, wanted);
                       }},
          .split = {.loops = loopsOfLoss, .divide = divideLoss},
          .usage = {.choices = [](const Operation& op, std::size_t i) -> std::int64_t {
            const Shape& logits = operandType(op, 0).shape;
            return i == 1 && logits.size() > 1 ? logits[1] - op.attributes.getInt("gap") : 0;
          }},
          .reference = reference([]<class T>(ReferenceContext& c) { lossReference<T>(c); }),
          .examples = examples(),
          .facts = {.lossLike = true, .takesLow = true},
      },
      {
          .name = "softmax_cross_entropy_gradient",
          .summary = "Gradient of softmax_cross_entropy for the logits: probabilities, less 1 at the label, shared out",
          .operands = {{.name = "dloss", .keepsHigh = true},
                       {"labels"},
                       {"logits"},
                       {.name = "statistics", .keepsHigh = true},
                       {.name = "weights", .optional = true, .keepsHigh = true}},
          .results = {{"dlogits"}},
          .attributes = gradientAttributes(),
          .infer = inferGradient,
          .precision = PrecisionClass::readLow,
          .cost =
              [](const Operation& op) {
                return Cost{12.0 * static_cast<double>(resultType(op).elements()), bytesMoved(op)};
              },
          .kernel = {.use = [](const Operation& op) { return kernel(op, resultType(op), "inputGradient"); },
                     .replaceable = {{.operand = 2}}},
          .split = {.loops = loopsOfGradient, .divide = divideGradient},
          .reference = reference([]<class T>(ReferenceContext& c) { gradientReference<T>(c); }),
          .examples = gradientExamples(),
          .facts = {.takesLow = true},
      },
      composed("nll_loss", "Negative log-likelihood of labels: elementwise ops and reductions",
               {onnxMany("NegativeLogLikelihoodLoss", 2, [](OnnxReader& n) { return convertLoss(n, false); })}),
  };
}

} // namespace pdc::ops::SoftmaxCrossEntropy
