// ONNX Attention (scaled dot products, Vaswani et al. 2017; grouped queries, Ainslie et al. 2023) and RotaryEmbedding
// (Su et al. 2021), said with matmul, softmax and elementwise ops.
#include "Convert/Onnx.h"
#include "Shared/Define.h"

#include <charconv>
#include <cmath>
#include <limits>

namespace pdc::ops::Attention {

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
const std::vector<std::int64_t> swapHeads = {0, 2, 1, 3}; ///< [batch, positions, heads, size], and back

std::string literal(double value) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

/// [batch, positions, heads · size] as [batch, heads, positions, size]; null, with an error reported, when it does not
/// divide.
Value* splitHeads(OnnxReader& n, Value* x, std::int64_t heads) {
  const Shape s = x->type().shape;
  if (s.size() == 4) return x;
  if (s.size() != 3 || heads < 1 || s[2] % heads != 0) {
    static_cast<void>(n.error() << "splits " << toString(x->type()) << " into " << heads << " heads");
    return nullptr;
  }
  Value* split = n.reshape(x, {s[0], s[1], heads, s[2] / heads});
  return split ? n.transpose(split, swapHeads) : nullptr;
}

/// One node's attention: Q [batch, query heads, queries, size], K and V [batch, heads, keys, size]. Several query heads
/// in a row share a head of K and V, as rows of one product.
class Attention {
public:
  explicit Attention(OnnxReader& reader) : n(reader) {}

  Expected<std::vector<Value*>> run() {
    if (!readInputs() || !readAttributes()) return failure;
    if (isOneOp()) {
      Value* y = merged(n.value("dot_product_attention", {q_, k_, v_}, {{"scale", scale_}, {"causal", causal_}}));
      if (!y) return failure;
      return std::vector<Value*>{y, n.used(1) ? k_ : nullptr, n.used(2) ? v_ : nullptr, nullptr};
    }
    Value* products = scores();
    Value* capped = products ? cap(products) : nullptr;
    if (!capped || !buildBias()) return failure;
    Value* biased = bias_ ? n.value("add", {capped, bias_}) : capped;
    Value* weights = biased ? probabilities(biased) : nullptr;
    Value* y = weights ? output(weights) : nullptr;
    if (!y) return failure;
    Value* const states[] = {products, capped, biased, weights};
    return std::vector<Value*>{y, n.used(1) ? k_ : nullptr, n.used(2) ? v_ : nullptr, states[outputMode_]};
  }

private:
  bool readInputs() {
    flat_ = n.type(0).rank() == 3;
    const std::int64_t queryHeads = n.integer("q_num_heads", 0), heads = n.integer("kv_num_heads", 0);
    q_ = splitHeads(n, n.input(0), queryHeads);
    k_ = splitHeads(n, n.input(1), heads);
    v_ = splitHeads(n, n.input(2), heads);
    if (!q_ || !k_ || !v_) return false;
    if (!appendToPast(k_, 4) || !appendToPast(v_, 5)) return false;
    const Shape &q = q_->type().shape, &k = k_->type().shape, &v = v_->type().shape;
    const bool fits = q.size() == 4 && k.size() == 4 && v.size() == 4 && isFloat(q_->type().element) &&
                      elementsOf(q) > 0 && elementsOf(k) > 0 && elementsOf(v) > 0 && q[0] == k[0] && k[0] == v[0] &&
                      q[3] == k[3] && k[1] == v[1] && k[2] == v[2] && q[1] % k[1] == 0;
    if (!fits)
      static_cast<void>(n.error() << "has queries " << toString(q_->type()) << ", keys " << toString(k_->type())
                                  << " and values " << toString(v_->type()) << ", which do not fit");
    return fits;
  }

  /// Keys and values of earlier positions, inputs 4 and 5, come before those of this node.
  bool appendToPast(Value*& x, std::size_t input) {
    Value* past = n.input(input);
    if (!past) return true;
    past_ = past->type().rank() == 4 ? past->type().shape[2] : 0;
    x = n.value("concat", {past, x}, {{"axis", std::int64_t{2}}});
    return x != nullptr;
  }

  bool readAttributes() {
    const std::int64_t size = q_->type().shape[3];
    scale_ = n.number("scale", 1 / std::sqrt(static_cast<double>(size)));
    softcap_ = n.number("softcap", 0);
    causal_ = n.integer("is_causal", 0) != 0;
    if (n.version() >= 25) {
      left_ = n.integer("left_window_size", -1);
      right_ = n.integer("right_window_size", -1);
    }
    const std::int64_t mode = n.integer("qk_matmul_output_mode", 0);
    n.ignore("softmax_precision"); // the softmax is as exact as any of them
    lengths_ = n.input(6);
    const Shape perSample{q_->type().shape[0]};
    if (lengths_ && (lengths_->type() != Type{ElementType::i64, perSample} || n.input(4) || n.input(5))) {
      static_cast<void>(n.error() << "needs " << toString(Type{ElementType::i64, perSample})
                                  << " as input 6 (nonpad_kv_seqlen) and no past, it has "
                                  << toString(lengths_->type()));
      return false;
    }
    if (mode < 0 || mode > 3 || left_ < -1 || right_ < -1) {
      static_cast<void>(n.error() << "has qk_matmul_output_mode " << mode << " and windows of " << left_ << " and "
                                  << right_);
      return false;
    }
    outputMode_ = static_cast<std::size_t>(mode);
    return true;
  }

  /// Whether nothing but causality changes the scores, and nobody reads them. Where a mask may hide all keys of a
  /// query, ONNX has an answer of its own.
  bool isOneOp() const {
    const bool windowed = left_ >= 0 || right_ >= 0, aligned = past_ == k_->type().shape[2] - q_->type().shape[2];
    return !n.used(3) && !n.input(3) && !lengths_ && !(softcap_ > 0) && !windowed && (!causal_ || aligned);
  }

  /// [batch, query heads, …] as [batch, heads, query heads / heads · …], and back.
  Value* grouped(Value* x) {
    const Shape s = x ? x->type().shape : Shape{};
    const std::int64_t heads = k_->type().shape[1];
    return x ? n.reshape(x, {s[0], heads, s[1] / heads * s[2], s[3]}) : nullptr;
  }
  Value* ungrouped(Value* x) {
    const Shape& q = q_->type().shape;
    return x ? n.reshape(x, {q[0], q[1], q[2], x->type().shape[3]}) : nullptr;
  }

  Value* scores() {
    Value* scaled = n.value("mul", {q_, n.b.constant(scale_, q_->type().element)});
    scaled = grouped(scaled);
    return scaled ? ungrouped(n.value("matmul", {scaled, k_}, {{"transpose_b", true}})) : nullptr;
  }

  Value* cap(Value* x) {
    if (!(softcap_ > 0)) return x;
    const std::string c = literal(softcap_);
    return n.value("elementwise", {x}, {{"expressions", std::vector{c + " * tanh(a0 / " + c + ")"}}});
  }

  /// What is added to the scores: -inf where a query may not see a key. It is a constant but for a mask that is data.
  bool buildBias() {
    if (Value* mask = n.input(3)) {
      mask = additive(mask);
      bias_ = mask ? padded(mask) : nullptr;
      if (!bias_) return false;
      const std::optional<Shape> all = broadcast(bias_->type().shape, scoresShape());
      if (!all || *all != scoresShape() || bias_->type().shape.empty()) {
        static_cast<void>(n.error() << "has a mask " << toString(n.type(3)) << " for scores "
                                    << toString(scoresShape()));
        return false;
      }
      mayHideAll_ = true;
    }
    if (lengths_ && !addBias(paddingBias())) return false;
    if (!causal_ && left_ < 0 && right_ < 0) return true;
    return addBias(lengths_ ? windowBiasOfSamples() : windowBias());
  }

  bool addBias(Value* more) {
    bias_ = bias_ && more ? n.value("add", {bias_, more}) : more;
    return bias_ != nullptr;
  }

  Shape scoresShape() const {
    const Shape& q = q_->type().shape;
    return {q[0], q[1], q[2], k_->type().shape[2]};
  }

  Value* additive(Value* mask) {
    const ElementType element = q_->type().element;
    if (mask->type().element != ElementType::boolean) return mask;
    return n.value("where", {mask, n.b.constant(0, element), n.b.constant(-infinity, element)});
  }

  /// A mask that speaks of fewer keys hides the others.
  Value* padded(Value* mask) {
    const Shape s = mask->type().shape;
    const std::int64_t missing = s.empty() ? 0 : k_->type().shape[2] - s.back();
    if (missing <= 0) return mask;
    std::vector<std::int64_t> before(s.size(), 0), after(s.size(), 0);
    after.back() = missing;
    return n.value("pad", {mask}, {{"before", before}, {"after", after}, {"value", -infinity}});
  }

  Value* windowBias() {
    const std::int64_t queries = q_->type().shape[2], keys = k_->type().shape[2];
    Tensor tensor(Type{q_->type().element, {queries, keys}});
    for (std::int64_t i = 0; i < queries; ++i) {
      bool any = false;
      for (std::int64_t j = 0; j < keys; ++j) {
        const std::int64_t ahead = j - (past_ + i);
        const bool seen = (!causal_ || ahead <= 0) && (left_ < 0 || -ahead <= left_) && (right_ < 0 || ahead <= right_);
        tensor.set(i * keys + j, seen ? 0 : -infinity);
        any |= seen;
      }
      mayHideAll_ |= !any;
    }
    return n.b.constant(tensor);
  }

  /// 0 where an expression of integers holds, -inf elsewhere.
  Value* biasWhere(std::vector<Value*> integers, const std::string& condition) {
    mayHideAll_ = true;
    Value* holds = elementwise(std::move(integers), condition);
    return holds ? additive(holds) : nullptr;
  }
  /// f(i, j) for query i and key j.
  template <class F>
  Value* table(std::int64_t queries, F f) {
    const std::int64_t keys = k_->type().shape[2];
    std::vector<std::int64_t> values;
    for (std::int64_t i = 0; i < queries; ++i)
      for (std::int64_t j = 0; j < keys; ++j) values.push_back(f(i, j));
    return n.b.constant(Tensor::ofInts({queries, keys}, values));
  }
  Value* lengthsPerSample() { return n.reshape(lengths_, {q_->type().shape[0], 1, 1, 1}); }

  /// Keys from a sample's length on are padding.
  Value* paddingBias() {
    return biasWhere({table(1, [](std::int64_t, std::int64_t j) { return j; }), lengthsPerSample()}, "a0 < a1");
  }
  /// As windowBias, with the last query at the last key that a sample has.
  Value* windowBiasOfSamples() {
    const std::int64_t queries = q_->type().shape[2];
    Value* ahead =
        elementwise({table(queries, [](std::int64_t i, std::int64_t j) { return j - i; }), lengthsPerSample()},
                    "a0 - (a1 - " + std::to_string(queries) + ")");
    std::string condition = causal_ ? "a0 <= 0" : "";
    const auto also = [&](const std::string& more) { condition += (condition.empty() ? "" : " && ") + more; };
    if (left_ >= 0) also("-a0 <= " + std::to_string(left_));
    if (right_ >= 0) also("a0 <= " + std::to_string(right_));
    return biasWhere({ahead}, condition);
  }

  /// Softmax over the keys. A query that sees no key takes nothing from any; its scores are put aside before, so that
  /// no gradient becomes NaN.
  Value* probabilities(Value* biased) {
    if (!mayHideAll_) return n.value("softmax", {biased});
    const std::int64_t last = bias_->type().rank() - 1;
    Value* largest = n.value("reduce_max", {bias_}, {{"axes", std::vector{last}}, {"keep_dims", true}});
    Value* safe = elementwise({largest, biased}, "select(a0 == -inf, 0, a1)");
    Value* weights = safe ? n.value("softmax", {safe}) : nullptr;
    return weights ? elementwise({largest, weights}, "select(a0 == -inf, 0, a1)") : nullptr;
  }

  Value* elementwise(std::vector<Value*> operands, const std::string& expression) {
    for (const Value* operand : operands)
      if (!operand) return nullptr;
    return n.value("elementwise", std::move(operands), {{"expressions", std::vector{expression}}});
  }

  Value* output(Value* weights) {
    weights = grouped(weights);
    return weights ? merged(ungrouped(n.value("matmul", {weights, v_}))) : nullptr;
  }

  /// With the heads side by side again, where they came so.
  Value* merged(Value* y) {
    if (!y || !flat_) return y;
    const Shape s = y->type().shape;
    y = n.transpose(y, swapHeads);
    return y ? n.reshape(y, {s[0], s[2], s[1] * s[3]}) : nullptr;
  }

  OnnxReader& n;
  Value *q_ = nullptr, *k_ = nullptr, *v_ = nullptr, *bias_ = nullptr, *lengths_ = nullptr;
  bool flat_ = false, causal_ = false, mayHideAll_ = false;
  double scale_ = 1, softcap_ = 0;
  std::int64_t past_ = 0, left_ = -1, right_ = -1;
  std::size_t outputMode_ = 0;
};

/// Pairs of elements of each head, turned by an angle that grows with the position: X times cos plus its partner times
/// sin. Pairs are neighbours, or elements of the two halves.
class Rotation {
public:
  explicit Rotation(OnnxReader& reader) : n(reader) {}

  Value* run() {
    const Shape x = n.type(0).shape;
    const std::int64_t heads = n.integer("num_heads", 0), stated = n.integer("rotary_embedding_dim", 0);
    interleaved_ = n.integer("interleaved", 0) != 0;
    const bool flat = x.size() == 3;
    if ((x.size() != 4 && !flat) || (flat && (heads < 1 || x[2] % heads != 0))) {
      static_cast<void>(n.error() << "splits " << toString(n.type(0)) << " into " << heads << " heads");
      return nullptr;
    }
    Value* split = flat ? n.reshape(n.input(0), {x[0], x[1], heads, x[2] / heads}) : n.input(0);
    if (!split) return nullptr;
    size_ = split->type().shape[3];
    rotated_ = stated == 0 ? size_ : stated;
    if (rotated_ < 2 || rotated_ > size_ || rotated_ % 2 != 0) {
      static_cast<void>(n.error() << "turns " << rotated_ << " of the " << size_ << " elements of a head");
      return nullptr;
    }
    const std::int64_t positions = flat ? x[1] : x[2];
    Value *cos = angles(1, x[0], positions, flat), *sin = angles(2, x[0], positions, flat);
    Value* y = cos && sin ? turn(split, cos, sin) : nullptr;
    return n.reshape(y, x);
  }

private:
  /// Cosines or sines as [batch, positions, 1, half] or [batch, 1, positions, half], as X has its heads.
  Value* angles(std::size_t input, std::int64_t batch, std::int64_t positions, bool flat) {
    Value* table = n.input(input);
    if (Value* ids = n.input(3)) table = n.value("gather", {table, ids}, {{"axis", std::int64_t{0}}});
    if (!table) return nullptr;
    if (table->type().shape != Shape{batch, positions, rotated_ / 2}) {
      static_cast<void>(n.error() << "has " << toString(table->type()) << " as angles of "
                                  << toString(Shape{batch, positions, rotated_ / 2}));
      return nullptr;
    }
    return n.reshape(table, flat ? Shape{batch, positions, 1, rotated_ / 2} : Shape{batch, 1, positions, rotated_ / 2});
  }

  /// `count` elements of the last axis from `begin` on, `step` apart.
  Value* part(Value* x, std::int64_t begin, std::int64_t step, std::int64_t count) {
    std::vector<std::int64_t> starts(4, 0), steps(4, 1), sizes = x->type().shape;
    starts[3] = begin, steps[3] = step, sizes[3] = count;
    return n.value("slice", {x}, {{"starts", starts}, {"steps", steps}, {"sizes", sizes}});
  }

  Value* turn(Value* x, Value* cos, Value* sin) {
    const std::int64_t half = rotated_ / 2;
    Value *a = part(x, 0, interleaved_ ? 2 : 1, half),
          *b = part(x, interleaved_ ? 1 : half, interleaved_ ? 2 : 1, half);
    if (!a || !b) return nullptr;
    const auto combine = [&](const char* expression) {
      return n.value("elementwise", {a, b, cos, sin}, {{"expressions", std::vector<std::string>{expression}}});
    };
    Value *real = combine("a0 * a2 - a1 * a3"), *imaginary = combine("a0 * a3 + a1 * a2");
    if (!real || !imaginary) return nullptr;
    Shape shape = real->type().shape;
    if (interleaved_) {
      Shape apart = shape;
      apart.push_back(1);
      real = n.reshape(real, apart);
      imaginary = n.reshape(imaginary, apart);
      if (!real || !imaginary) return nullptr;
    }
    Value* y = n.value("concat", {real, imaginary}, {{"axis", std::int64_t{interleaved_ ? 4 : 3}}});
    shape[3] = rotated_;
    y = n.reshape(y, shape);
    if (!y || rotated_ == size_) return y;
    Value* rest = part(x, rotated_, 1, size_ - rotated_);
    return rest ? n.value("concat", {y, rest}, {{"axis", std::int64_t{3}}}) : nullptr;
  }

  OnnxReader& n;
  bool interleaved_ = false;
  std::int64_t size_ = 0, rotated_ = 0; ///< elements of a head, and how many of them are turned
};

} // namespace

std::vector<OpDef> define() {
  return {
      composed("attention", "Values weighted by the softmax of scaled products of queries and keys",
               {onnxMany(
                   "Attention", 3, [](OnnxReader& n) { return Attention(n).run(); }, 23)}),
      composed("rotary_embedding", "Pairs of elements of each head turned by angles that depend on the position",
               {onnx(
                   "RotaryEmbedding", 3, [](OnnxReader& n) { return Rotation(n).run(); }, 23)}),
  };
}

} // namespace pdc::ops::Attention
