// Softmax cross-entropy whose classes, a vocabulary, a team divides: what softmax_cross_entropy becomes on a member.
// Kernel: pdcrt::SoftmaxCrossEntropyParts, whose header has the formula.
//
//   maxima -> all_reduce_max -> sums -> all_reduce -> of_sums
#include "Kernels/KernelOptions.h"
#include "Shared/CrossEntropy.h"
#include "Shared/Define.h"

#include <cmath>
#include <limits>

namespace pdc::ops::SoftmaxCrossEntropyParts {

namespace {

AttributeDef classes() {
  return integer("classes", std::nullopt, "of all members; those of one member follow one another");
}
std::vector<AttributeDef> withClasses() {
  std::vector<AttributeDef> all = crossEntropyAttributes();
  all.push_back(classes());
  return all;
}

/// A tensor as [batch, size, inner].
struct Rows {
  std::int64_t batch, size, inner;

  explicit Rows(const Shape& shape) : batch(shape[0]), size(shape[1]), inner(product(shape, 2, shape.size())) {}
  std::int64_t positions() const { return batch * inner; }
  /// Where the first number of a position is, of `size` that lie `inner` behind each other.
  std::size_t at(std::int64_t position, std::int64_t i = 0) const {
    return static_cast<std::size_t>((position / inner * size + i) * inner + position % inner);
  }
};

/// `shape`, of which axis 1 has `size` elements; 0: without that axis.
Shape withAxis1(Shape shape, std::int64_t size) {
  if (size > 0)
    shape[1] = size;
  else
    shape.erase(shape.begin() + 1);
  return shape;
}

/// Reports unless operand 0 holds logits of a part of the classes.
Status requireOwnLogits(const InferContext& c, const char* op) {
  if (!requireFloat(c, op, 0, 2)) return failure;
  const Type& logits = c.operand(0);
  if (integerOf(c, "classes") >= logits.shape[1]) return success;
  return c.error() << "'" << op << "' op has logits " << toString(logits) << " of a member, and only "
                   << integerOf(c, "classes") << " classes of all members";
}

Types inferMaxima(const InferContext& c) {
  if (!requireOwnLogits(c, "softmax_cross_entropy_maxima")) return failure;
  return std::vector<Type>{{highOf(c.operand(0)), withAxis1(c.operand(0).shape, 0)}};
}

Types inferSums(const InferContext& c) {
  const char* op = "softmax_cross_entropy_sums";
  if (!requireOwnLogits(c, op)) return failure;
  const Type& logits = c.operand(0);
  const Shape positions = withAxis1(logits.shape, 0);
  if (!requireLabels(c, op, 1, positions, "logits of shape " + toString(logits.shape)) ||
      !requireType(c, op, 2, {highOf(logits), positions}, "the largest logits") ||
      !requireLossOptions(c, op, 3, highOf(logits), integerOf(c, "classes")))
    return failure;
  return std::vector<Type>{{highOf(logits), withAxis1(logits.shape, 3)}};
}

Types inferOfSums(const InferContext& c) {
  const char* op = "softmax_cross_entropy_of_sums";
  if (!requireFloat(c, op, 0, 2)) return failure;
  const Type& sums = c.operand(0);
  const Shape positions = withAxis1(sums.shape, 0);
  if (sums.shape[1] != 3 || isLowPrecision(sums.element))
    return c.error() << "'" << op << "' op needs three sums for each position, they are " << toString(sums);
  if (integerOf(c, "classes") < 1)
    return c.error() << "'" << op << "' op has " << integerOf(c, "classes") << " classes, and needs at least 1";
  if (!requireType(c, op, 1, {sums.element, positions}, "the largest logits") ||
      !requireLabels(c, op, 2, positions, "sums of shape " + toString(sums.shape)) ||
      !requireLossOptions(c, op, 3, sums.element, integerOf(c, "classes")))
    return failure;
  return std::vector<Type>{{sums.element, {}}, {sums.element, withAxis1(sums.shape, 2)}};
}

KernelUse kernel(const Operation& op, const char* method) {
  const Type& type = operandType(op, 0);
  const Rows rows(type.shape);
  const Attributes& a = op.attributes;
  return kernelUse<pdcrt::SoftmaxCrossEntropyParts>("SoftmaxCrossEntropyParts", method,
                                                    {.batch = rows.batch,
                                                     .classes = rows.size,
                                                     .inner = rows.inner,
                                                     .total = a.getInt("classes"),
                                                     .hasIgnoreIndex = a.getOr<bool>("has_ignore_index", false),
                                                     .ignoreIndex = a.getOr<std::int64_t>("ignore_index", -100),
                                                     .labelSmoothing = a.getOr<double>("label_smoothing", 0),
                                                     .element = type.element});
}

ClassesOfMember ownClasses(const ReferenceContext& c) {
  return {c.op.attributes.getInt("classes"), operandType(c.op, 0).shape[1], c.member};
}

template <class T>
void maximaReference(ReferenceContext& c) {
  const Rows logits(operandType(c.op, 0).shape);
  const ClassesOfMember own = ownClasses(c);
  const auto x = c.in<T>(0);
  for (std::int64_t p = 0; p < logits.positions(); ++p) {
    T largest = -std::numeric_limits<T>::infinity();
    for (std::int64_t k = 0; k < own.count; ++k) largest = std::max(largest, x[logits.at(p, k)]);
    c.out<T>(0)[static_cast<std::size_t>(p)] = largest;
  }
}

template <class T>
void sumsReference(ReferenceContext& c) {
  const Rows logits(operandType(c.op, 0).shape), sums(resultType(c.op).shape);
  const ClassesOfMember own = ownClasses(c);
  const auto x = c.in<T>(0), maxima = c.in<T>(2);
  const auto y = c.out<T>(0);
  const LossDefinition<T> definition(c, 1, 3, c.op.attributes.getInt("classes"));
  for (std::int64_t p = 0; p < logits.positions(); ++p) {
    const std::int64_t label = c.operands[1]->asInt(p);
    const T largest = maxima[static_cast<std::size_t>(p)];
    if (largest == -std::numeric_limits<T>::infinity()) continue; // zeros
    for (std::int64_t k = 0; k < own.count; ++k) {
      const T below = largest - x[logits.at(p, k)];
      y[sums.at(p, 0)] += std::exp(-below);
      const T share = countsInLoss(c.op, label) ? definition.share(label, own.first + k) : T(0);
      if (share == 0) continue;
      y[sums.at(p, 1)] += share * below;
      y[sums.at(p, 2)] += share;
    }
  }
}

template <class T>
void ofSumsReference(ReferenceContext& c) {
  const Rows sums(operandType(c.op, 0).shape);
  Rows statistics = sums;
  statistics.size = 2;
  const auto y = c.in<T>(0), maxima = c.in<T>(1);
  const LossDefinition<T> definition(c, 2, 3, c.op.attributes.getInt("classes"));
  const double weights = definition.sumOfWeights(c);
  if (!c.error.empty()) return;
  double total = 0;
  for (std::int64_t p = 0; p < sums.positions(); ++p) {
    // 0: all logits are -infinity, and their probabilities NaN.
    const T sum = y[sums.at(p, 0)] == 0 ? std::numeric_limits<T>::quiet_NaN() : y[sums.at(p, 0)];
    if (c.results[1]) {
      c.out<T>(1)[statistics.at(p, 0)] = maxima[static_cast<std::size_t>(p)];
      c.out<T>(1)[statistics.at(p, 1)] = 1 / sum;
    }
    if (countsInLoss(c.op, c.operands[2]->asInt(p))) total += y[sums.at(p, 1)] + y[sums.at(p, 2)] * std::log(sum);
  }
  c.out<T>(0)[0] = weights == 0 && total == 0 ? 0 : static_cast<T>(total / weights);
}

std::vector<std::string> examplesOfMaxima() {
  return {example("%x: f32[4, 3]", "%m = softmax_cross_entropy_maxima %x {classes = 5} : f32[4]"),
          example("%x: f32[2, 4, 3]", "%m = softmax_cross_entropy_maxima %x {classes = 4} : f32[2, 3]")};
}

/// Of sums, or of the loss that is made of them. `options` are attributes behind the number of classes.
std::vector<std::string> examplesOfSums(bool withLoss) {
  const auto text = [&](const std::string& batch, const std::string& inner, const std::string& own,
                        const std::string& label, const std::string& weights, const std::string& options) {
    const std::string positions = "[" + batch + inner + "]", operand = weights.empty() ? "" : ", %positive";
    std::string body = "%m = softmax_cross_entropy_maxima %x {classes = 5} : f32" + positions +
                       "\n%y = softmax_cross_entropy_sums %x, %label, %m" + operand + " {classes = 5" + options +
                       "} : f32[" + batch + ", 3" + inner + "]";
    if (withLoss)
      body += "\n%loss, %s = softmax_cross_entropy_of_sums %y, %m, %label" + operand + " {classes = 5" + options +
              "} : f32[], f32[" + batch + ", 2" + inner + "]";
    return example("%x: f32[" + batch + ", " + own + inner + "], %label: " + label + positions +
                       (weights.empty() ? "" : ", %positive: f32[5]"),
                   body);
  };
  return {text("4", "", "5", "i64", "", ""), text("3", "", "3", "i32", "", ", label_smoothing = 0.25"),
          text("2", ", 3", "3", "i64", "weights", ", has_ignore_index = true, ignore_index = 1"),
          text("6", "", "2", "i32", "weights", ", has_ignore_index = true, ignore_index = 0, label_smoothing = 0.125")};
}

} // namespace

std::vector<OpDef> define() {
  const OperandDef labels = {"labels"}, maxima = {.name = "maxima", .keepsHigh = true},
                   weights = {.name = "weights", .optional = true, .keepsHigh = true};
  return {
      {
          .name = "softmax_cross_entropy_maxima",
          .summary = "Largest logit of a member's classes, on axis 1; -infinity where it has none",
          .operands = {{"logits"}},
          .results = {{"maxima"}},
          .attributes = {classes()},
          .infer = inferMaxima,
          .precision = PrecisionClass::readLow,
          .cost = perElement(1),
          .kernel = {.use = [](const Operation& op) { return kernel(op, "maxima"); }},
          .reference = reference([]<class T>(ReferenceContext& c) { maximaReference<T>(c); }),
          .examples = examplesOfMaxima(),
          .facts = {.takesLow = true},
      },
      {
          .name = "softmax_cross_entropy_sums",
          .summary = "A member's terms of the three sums of which softmax_cross_entropy_of_sums makes the loss",
          .operands = {{"logits"}, labels, maxima, weights},
          .results = {{"sums"}},
          .attributes = withClasses(),
          .infer = inferSums,
          .precision = PrecisionClass::readLow,
          .cost = perElement(13),
          .kernel = {.use = [](const Operation& op) { return kernel(op, "sums"); }},
          .usage = {.choices = [](const Operation& op, std::size_t i) -> std::int64_t {
            return i == 1 ? op.attributes.getInt("classes") : 0;
          }},
          .reference = reference([]<class T>(ReferenceContext& c) { sumsReference<T>(c); }),
          .examples = examplesOfSums(false),
          .facts = {.takesLow = true},
      },
      {
          .name = "softmax_cross_entropy_of_sums",
          .summary = "Loss and statistics of softmax_cross_entropy from the sums over the classes of all members",
          .operands = {{"sums"}, maxima, labels, weights},
          .results = {{"loss"}, {.name = "statistics", .optional = true}},
          .attributes = withClasses(),
          .infer = inferOfSums,
          .precision = PrecisionClass::keepHigh,
          .cost = perElement(4),
          .kernel = {.use = [](const Operation& op) { return kernel(op, "ofSums"); }},
          .usage = {.choices = [](const Operation& op, std::size_t i) -> std::int64_t {
            return i == 2 ? op.attributes.getInt("classes") : 0;
          }},
          .reference = reference([]<class T>(ReferenceContext& c) { ofSumsReference<T>(c); }),
          .examples = examplesOfSums(true),
      },
  };
}

} // namespace pdc::ops::SoftmaxCrossEntropyParts
