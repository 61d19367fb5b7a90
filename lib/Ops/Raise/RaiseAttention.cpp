#include "Raise/RaiseAttention.h"

#include "Raise/Match.h"
#include "Raise/SwapAxes.h"
#include "pdc/IR/Elementwise.h"
#include "pdcrt/kernels/Attention.h"

#include <algorithm>
#include <limits>

using namespace pdc;
using namespace pdc::ops;

namespace {

/// x of a product with a number, or of a quotient by one, and the factor.
struct Scaled {
  Value* of = nullptr;
  double factor = 1;
};
Scaled withoutFactor(Value* value) {
  if (const Operation* product = definedBy(value, "mul"))
    for (auto [x, number] : bothOrders(*product))
      if (const auto factor = numberOf(number); factor && x->type().shape == value->type().shape) return {x, *factor};
  const Operation* quotient = definedBy(value, "div");
  const auto divisor = quotient ? numberOf(quotient->operand(1)) : std::nullopt;
  if (divisor && *divisor != 0 && quotient->operand(0)->type().shape == value->type().shape)
    return {quotient->operand(0), 1 / *divisor};
  return {value, 1};
}

/// x of [batch, groups, positions, size] where `value` has each of its heads several times in a row; else `value`.
Value* withoutCopies(Value* value) {
  const Operation* merged = definedBy(value, "reshape");
  const Operation* copies = merged ? definedBy(merged->operand(0), "broadcast") : nullptr;
  const Operation* apart = copies ? definedBy(copies->operand(0), "reshape") : nullptr;
  if (!apart || value->type().rank() != 4 || apart->operand(0)->type().rank() != 4) return value;
  const Shape &x = apart->operand(0)->type().shape, &y = copies->result()->type().shape;
  const bool repeats = y.size() == 5 && apart->result()->type().shape == Shape{x[0], x[1], 1, x[2], x[3]} &&
                       y == Shape{x[0], x[1], y[2], x[2], x[3]} &&
                       value->type().shape == Shape{x[0], x[1] * y[2], x[2], x[3]};
  return repeats ? apart->operand(0) : value;
}

constexpr const char* putAside = "select(a0 == -inf, 0, a1)";

/// An operation that puts 0 into the rows of its second operand whose largest number, its first operand, is -inf.
const Operation* puttingAside(const Value* value) {
  const Operation* guard = definedBy(value, "elementwise");
  const Operation* largest =
      guard && guard->operands().size() == 2 ? definedBy(guard->operand(0), "reduce_max") : nullptr;
  const bool ofRows =
      largest && largest->attributes.get<bool>("keep_dims") &&
      largest->attributes.getInts("axes") == std::vector{std::int64_t{largest->operand(0)->type().rank() - 1}};
  return ofRows && toString(*expressionsOf(*guard).front()) == putAside ? guard : nullptr;
}

/// Whether each row has a number above -inf.
bool isSeenEverywhere(const Tensor& bias) {
  const std::int64_t keys = bias.shape().back();
  for (std::int64_t row = 0; row < bias.elements(); row += keys) {
    std::int64_t hidden = 0;
    while (hidden < keys && bias.asDouble(row + hidden) == -std::numeric_limits<double>::infinity()) ++hidden;
    if (hidden == keys) return false;
  }
  return true;
}

/// What a constant says about the scores that it masks: bias[i][j] for the last two axes, all before of size 1.
enum class Constant { causal, everyQuerySees, other };

Constant kindOf(const Tensor& bias, std::int64_t queries, std::int64_t keys) {
  const Shape& shape = bias.shape();
  const bool onePerKey = bias.elements() == keys && shape.back() == keys;
  const bool onePerScore = bias.elements() == queries * keys && shape.size() >= 2 && shape[shape.size() - 2] == queries;
  if (!onePerKey && !onePerScore) return Constant::other;
  bool causal = onePerScore && keys >= queries, everySees = true;
  for (std::int64_t i = 0; i < (onePerScore ? queries : 1); ++i) {
    bool sees = false;
    for (std::int64_t j = 0; j < keys; ++j) {
      const double value = bias.asDouble(i * keys + j);
      const bool hidden = value <= double(pdcrt::Attention::hidden);
      causal = causal && (j <= i + keys - queries ? value == 0 : hidden);
      sees |= !hidden;
    }
    everySees &= sees;
  }
  return causal ? Constant::causal : everySees ? Constant::everyQuerySees : Constant::other;
}

/// Follows the values from the last product back to queries, keys and values.
class AttentionRecogniser {
public:
  AttentionRecogniser(const Operation& root, Builder& builder) : root_(root), b(builder) {}

  Value* run(bool drops) {
    if (root_.def().name != "matmul" || transposes(root_, "transpose_a") || transposes(root_, "transpose_b"))
      return nullptr;
    Value* weights = root_.operand(0);
    const Operation* dropout = definedBy(weights, "dropout");
    if (drops != (dropout != nullptr) || !isOnlyRead(weights)) return nullptr;
    if (dropout) {
      if (!dropout->result(1)->users().empty() || b.graph().isOutput(dropout->result(1))) return nullptr;
      weights = dropout->operand(0);
    }
    const Operation* guard = puttingAside(weights);
    if (guard) weights = guard->operand(1);
    const Operation* softmax = definedBy(weights, "softmax");
    if (!softmax || !isOnlyRead(weights)) return nullptr;
    scores_ = weights->type();
    Value* masked = softmax->operand(0);
    if (guard && !(masked = withoutGuard(masked, guard->operand(0)))) return nullptr;
    Value* products = findMask(masked);
    if (!products || !findProduct(products) || !fits() || (largest_ && !knowsHiddenRows())) return nullptr;
    return make(dropout);
  }

private:
  static bool transposes(const Operation& matmul, const char* flag) { return matmul.attributes.get<bool>(flag); }
  /// By the next operation, and by the one that finds the largest number of each row.
  bool isOnlyRead(const Value* value) const {
    return value->users().size() == (value == ofLargest_ ? 2 : 1) && !b.graph().isOutput(value);
  }
  std::int64_t queries() const { return scores_.shape[scores_.shape.size() - 2]; }
  std::int64_t keys() const { return scores_.shape.back(); }

  /// The masked scores of a softmax whose rows are put aside, before and after it, where `largest` is -inf.
  Value* withoutGuard(Value* safe, Value* largest) {
    const Operation* guard = puttingAside(safe);
    if (!guard || guard->operand(0) != largest || !isOnlyRead(safe) || largest->users().size() != 2 ||
        b.graph().isOutput(largest))
      return nullptr;
    largest_ = largest->definer();
    return guard->operand(1);
  }

  /// Whether the mask alone says which rows are put aside. Their largest number is that of the mask, or of the masked
  /// scores: the same rows, since only an overflow makes -inf of a score.
  bool knowsHiddenRows() const { return largest_->operand(0) == bias_ || ofLargest_; }

  /// The scores before they were masked.
  Value* findMask(Value* masked) {
    if (largest_ && largest_->operand(0) == masked) ofLargest_ = masked;
    if (!isOnlyRead(masked)) return nullptr;
    if (const Operation* sum = definedBy(masked, "add"))
      for (auto [scores, bias] : bothOrders(*sum))
        if (isScores(scores) && setBias(bias)) return scores;
    const Operation* choice = definedBy(masked, "where");
    return choice ? hiddenBy(*choice) : masked;
  }

  /// Whether a product of queries and keys, perhaps scaled, is there.
  bool isScores(Value* value) const {
    return value->type() == scores_ && isOnlyRead(value) && definedBy(withoutFactor(value).of, "matmul");
  }

  bool setBias(Value* bias) {
    const Shape& shape = bias->type().shape;
    if (shape.empty() || shape.size() > scores_.shape.size() || shape.back() != keys()) return false;
    bias_ = bias;
    if (const std::optional<Tensor> constant = b.evaluated(bias))
      causal_ = kindOf(*constant, queries(), keys()) == Constant::causal;
    return true;
  }

  /// where(mask, number, scores), or with the branches changed: a bias of 0 and the number. A query that sees no key
  /// has equal weights either way, but the scores get no gradient, which `hides` says.
  Value* hiddenBy(const Operation& choice) {
    const bool first = numberOf(choice.operand(1)).has_value();
    Value *mask = choice.operand(0), *number = choice.operand(first ? 1 : 2), *scores = choice.operand(first ? 2 : 1);
    const std::optional<double> fill = numberOf(number);
    const Shape& shape = mask->type().shape;
    if (!fill || !(*fill <= double(pdcrt::Attention::hidden)) || !isScores(scores) || shape.empty() ||
        shape.size() > scores_.shape.size() || shape.back() != keys())
      return nullptr;
    const std::optional<Tensor> constant = b.evaluated(mask);
    hides_ = true;
    if (constant) {
      Tensor bias(Type{scores_.element, shape});
      for (std::int64_t i = 0; i < bias.elements(); ++i) bias.set(i, (constant->asInt(i) != 0) == first ? *fill : 0);
      const Constant kind = kindOf(bias, queries(), keys());
      causal_ = kind == Constant::causal;
      hides_ = kind == Constant::other;
      if (causal_) return scores;
      if (Builder::constantValue(mask)) {
        bias_ = b.constant(bias);
        return bias_ ? scores : nullptr;
      }
    }
    Value* zero = b.constant(0, scores_.element);
    bias_ = b.value("where", first ? std::vector{mask, number, zero} : std::vector{mask, zero, number});
    return bias_ ? scores : nullptr;
  }

  bool findProduct(Value* products) {
    if (!isOnlyRead(products)) return false;
    const Scaled after = withoutFactor(products);
    const Operation* product = definedBy(after.of, "matmul");
    if (!product || !isOnlyRead(after.of) || transposes(*product, "transpose_a")) return false;
    const Scaled query = withoutFactor(product->operand(0)), key = withoutFactor(product->operand(1));
    q_ = query.of, v_ = root_.operand(1);
    k_ = transposes(*product, "transpose_b") ? key.of : withLastAxesSwapped(key.of, b);
    if (!k_) return false;
    scale_ = after.factor * query.factor * key.factor;
    return true;
  }

  /// One batch for all; keys and values without copies where both have them.
  bool fits() {
    const auto rank = scores_.shape.size();
    for (const Value* each : {q_, k_, v_})
      if (each->type().shape.size() != rank || (rank != 3 && rank != 4)) return false;
    Value *k = withoutCopies(k_), *v = withoutCopies(v_);
    if (k->type().shape[1] == v->type().shape[1]) k_ = k, v_ = v;
    const auto batch = [&](const Value* value, std::size_t axes) {
      const Shape& shape = value->type().shape; // NOLINT(clang-analyzer-core.CallAndMessage): above all are looked at
      return Shape(shape.begin(), shape.begin() + static_cast<std::ptrdiff_t>(axes));
    };
    return batch(q_, 1) == batch(k_, 1) && batch(k_, rank - 2) == batch(v_, rank - 2) && q_->type().elements() > 0 &&
           k_->type().elements() > 0 && v_->type().elements() > 0;
  }

  /// Whether a query may see no key.
  bool mayHideAll() const {
    if (!largest_ || !bias_ || causal_) return false;
    if (const std::optional<Tensor> constant = b.evaluated(bias_)) return !isSeenEverywhere(*constant);
    const auto isFinite = [](const Value* value) {
      const std::optional<double> number = numberOf(value);
      return number && *number > -std::numeric_limits<double>::infinity();
    };
    const Operation* choice = definedBy(bias_, "where");
    return !choice || !isFinite(choice->operand(1)) || !isFinite(choice->operand(2));
  }

  /// 0 in the rows of `value` that the mask hides.
  Value* withHiddenRowsAside(Value* largest, Value* value) {
    return largest && value
               ? b.value("elementwise", {largest, value}, {{"expressions", std::vector<std::string>{putAside}}})
               : nullptr;
  }

  Value* make(const Operation* dropout) {
    if (!mayHideAll()) return attention(dropout);
    const std::vector<std::int64_t> last{bias_->type().rank() - 1};
    Value* largest = b.value("reduce_max", {bias_}, {{"axes", last}, {"keep_dims", true}});
    bias_ = withHiddenRowsAside(largest, bias_);
    return bias_ ? withHiddenRowsAside(largest, attention(dropout)) : nullptr;
  }

  Value* attention(const Operation* dropout) {
    Attributes attributes{{"scale", scale_}, {"causal", causal_}, {"hides", hides_ && !causal_}};
    std::vector<Value*> operands = {q_, k_, v_};
    if (bias_ && !causal_) {
      Shape shape = bias_->type().shape;
      if (shape.size() == 3 && scores_.shape.size() == 3) shape.insert(shape.begin() + 1, 1);
      while (shape.size() < 4) shape.insert(shape.begin(), 1);
      Value* bias = shape == bias_->type().shape ? bias_ : b.value("reshape", {bias_}, {{"shape", shape}});
      if (!bias) return nullptr;
      operands.push_back(bias);
    }
    if (!dropout) return b.value("dot_product_attention", std::move(operands), std::move(attributes));
    for (const char* name : {"ratio", "op_number"}) attributes.set(name, *dropout->attributes.find(name));
    return b.value("dropout_attention", std::move(operands), std::move(attributes));
  }

  const Operation& root_;
  Builder& b;
  Type scores_;
  Value *q_ = nullptr, *k_ = nullptr, *v_ = nullptr, *bias_ = nullptr;
  double scale_ = 1;
  bool causal_ = false, hides_ = false;
  const Operation* largest_ = nullptr; ///< of each row, where rows of -inf are put aside
  const Value* ofLargest_ = nullptr;   ///< the masked scores, where it is theirs
};

} // namespace

Value* pdc::ops::raiseAttention(Operation& root, Builder& b) {
  return AttentionRecogniser(root, b).run(false);
}

Value* pdc::ops::raiseDropoutAttention(Operation& root, Builder& b) {
  return AttentionRecogniser(root, b).run(true);
}
