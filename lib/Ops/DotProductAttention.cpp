// Scaled dot products, softmax and weighted sum as one op, so that neither scores nor weights wait in memory for the
// backward pass: that computes them again from two numbers per query. Kernel: pdcrt::Attention.
#include "Kernels/AttentionOptions.h"
#include "Kernels/KernelOptions.h"
#include "Raise/MergeHeads.h"
#include "Raise/RaiseAttention.h"
#include "Shared/AttentionBias.h"
#include "Shared/AttentionLoops.h"
#include "Shared/Define.h"
#include "Shared/OwnElements.h"

#include "pdcrt/Random.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace pdc::ops::DotProductAttention {
using namespace pdc::ops::attention;

namespace {

std::vector<AttributeDef> attributes(bool drops) {
  std::vector<AttributeDef> defs = {
      number("scale", 1, "factor of the products"),
      boolean("causal", false, "whether query i sees no key after i + keys - queries"),
      boolean("hides", false, "whether a bias of at most -1e30 stands instead of a score, which gets no gradient")};
  if (!drops) {
    for (AttributeDef& def : attentionAlgorithms()) defs.push_back(std::move(def));
    return defs;
  }
  defs.push_back(number("ratio", std::nullopt, "the probability with which a weight becomes 0"));
  defs.push_back(integer("op_number", std::nullopt, "number of the operation, which keys its random numbers"));
  for (AttributeDef& def : ownElementsAttributes()) defs.push_back(std::move(def));
  return defs;
}
/// Of the gradient of both ops.
std::vector<AttributeDef> gradientAttributes() {
  std::vector<AttributeDef> defs = attributes(false);
  defs.push_back(number("ratio", 0, "the probability with which a weight became 0"));
  return defs;
}

/// Reports unless queries, keys, values and bias fit; `first` is the operand with the queries.
Status requireOperands(const InferContext& c, const char* op, std::size_t first) {
  for (std::size_t i : {query, key, value})
    if (!requireFloat(c, op, first + i, 3, 4)) return failure;
  const Type &q = c.operand(first + query), &k = c.operand(first + key), &v = c.operand(first + value);
  const Shape a = withHeads(q.shape), b = withHeads(k.shape), d = withHeads(v.shape);
  if (q.element != k.element || q.element != v.element || q.rank() != k.rank() || q.rank() != v.rank() ||
      a[0] != b[0] || b[0] != d[0] || b[1] != d[1] || b[2] != d[2] || a[3] != b[3] || a[1] % b[1] != 0)
    return c.error() << "'" << op << "' op has queries " << toString(q) << ", keys " << toString(k) << " and values "
                     << toString(v) << ", which do not fit";
  if (c.attributes.get<bool>("causal") && b[2] < a[2])
    return c.error() << "'" << op << "' op is causal and has " << a[2] << " queries and " << b[2]
                     << " keys, it needs as many keys";
  return requireAttentionBias(c, op, first + bias, {besideQueries(q.element), {a[0], a[1], a[2], b[2]}});
}

Type yType(const InferContext& c, std::size_t first) {
  Type y = c.operand(first + query);
  y.shape.back() = c.operand(first + value).shape.back();
  return y;
}
Type statisticsType(const InferContext& c, std::size_t first) {
  Type type = c.operand(first + query);
  type.element = besideQueries(type.element);
  type.shape.pop_back();
  return type;
}
/// Of the weights.
Type maskType(const InferContext& c, std::size_t first) {
  Type type = {ElementType::u8, c.operand(first + query).shape};
  type.shape.back() = withHeads(c.operand(first + key).shape)[2];
  return type;
}

Types infer(const InferContext& c, const char* op, bool drops) {
  if (!requireOperands(c, op, 0) || !requireAttentionAlgorithms(c, op)) return failure;
  std::vector<Type> types = {yType(c, 0), statisticsType(c, 0), statisticsType(c, 0)};
  if (!drops) return types;
  const double ratio = c.attributes.getFloat("ratio");
  const std::int64_t number = integerOf(c, "op_number");
  if (!(ratio > 0 && ratio < 1) || number < 0 || number >= pdcrt::permutationStream)
    return c.error() << "'" << op << "' op has ratio " << ratio << " and op_number " << number
                     << ", they must lie in (0, 1) and 0 to " << pdcrt::permutationStream - 1;
  types.push_back(maskType(c, 0));
  if (!requireOwnElements(c, op, types.back())) return failure;
  return types;
}

Types inferGradient(const InferContext& c) {
  constexpr const char* op = "dot_product_attention_gradient";
  if (!requireOperands(c, op, 1) || !requireAttentionAlgorithms(c, op) ||
      !requireType(c, op, 0, yType(c, 1), "the values' shape"))
    return failure;
  for (std::size_t i : {5, 6})
    if (!requireType(c, op, i, statisticsType(c, 1), "the queries' shape")) return failure;
  if (has(c, 7) && !requireType(c, op, 7, maskType(c, 1), "the weights' shape")) return failure;
  const double ratio = c.attributes.getFloat("ratio");
  if (!(ratio >= 0 && ratio < 1) || has(c, 7) != (ratio > 0))
    return c.error() << "'" << op << "' op has ratio " << ratio << " and " << (has(c, 7) ? "a" : "no")
                     << " mask, a ratio in (0, 1) goes with one";
  return std::vector<Type>{c.operand(1), c.operand(2), c.operand(3)};
}

/// `products` of queries and keys, or of weights and values, and `flops` per weight; it reads and writes what it has.
CostFn cost(std::size_t first, double products, double flops) {
  return [=](const Operation& op) {
    const pdcrt::Attention::Options o = attentionOptions(op, first);
    const double weights =
        static_cast<double>(o.batch * o.heads) * static_cast<double>(o.queries) * static_cast<double>(o.keys);
    return Cost{.flops = weights * (products * static_cast<double>(o.size + o.valueSize) + flops),
                .bytes = bytesMoved(op)};
  };
}

// --- reference ---

/// The rows of one call: scores, weights, and where their operands are.
template <class T>
class Rows {
public:
  Rows(ReferenceContext& c, std::size_t first)
      : o(attentionOptions(c.op, first)), q_(c.in<T>(first + query)), k_(c.in<T>(first + key)),
        v_(c.in<T>(first + value)) {
    if (!c.op.operand(first + bias)) return;
    bias_ = c.in<T>(first + bias);
    strides_ = biasStrides(operandType(c.op, first + bias).shape);
  }

  template <class F>
  void forEach(F f) const {
    for (std::int64_t b = 0; b < o.batch; ++b)
      for (std::int64_t h = 0; h < o.heads; ++h)
        for (std::int64_t i = 0; i < o.queries; ++i) f(b, h, i, (b * o.heads + h) * o.queries + i);
  }
  /// First element of key j or value j for head h.
  std::int64_t rowOf(std::int64_t b, std::int64_t h, std::int64_t j) const {
    return (b * o.groups + h / (o.heads / o.groups)) * o.keys + j;
  }
  T biasOf(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    return bias_.empty() ? T(0) : bias_[dot({b, h, i, j}, strides_)];
  }
  bool isHidden(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    return o.hides && biasOf(b, h, i, j) <= T(pdcrt::Attention::hidden);
  }

  std::vector<T> scores(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t row) const {
    std::vector<T> s(static_cast<std::size_t>(o.keys), -std::numeric_limits<T>::infinity());
    for (std::int64_t j = 0; j < o.keys && (!o.causal || j <= i + o.keys - o.queries); ++j) {
      T sum = 0;
      for (std::int64_t e = 0; e < o.size; ++e) sum += q_[row * o.size + e] * k_[rowOf(b, h, j) * o.size + e];
      s[j] = static_cast<T>(o.scale) * sum + biasOf(b, h, i, j);
    }
    return s;
  }
  T dotOfValue(std::span<const T> dy, std::int64_t row, std::int64_t valueRow) const {
    T sum = 0;
    for (std::int64_t e = 0; e < o.valueSize; ++e) sum += dy[row * o.valueSize + e] * v_[valueRow * o.valueSize + e];
    return sum;
  }

  pdcrt::Attention::Options o;
  std::span<const T> q_, k_, v_, bias_;
  std::vector<std::int64_t> strides_;
};

template <class T>
void forwardReference(ReferenceContext& c, bool drops) {
  const Rows<T> rows(c, 0);
  const auto& o = rows.o;
  const auto threshold = static_cast<std::uint64_t>(std::llround(o.ratio * 4294967296.0));
  const pdcrt::OwnElements own{.run = o.run, .members = o.members, .member = c.member};
  rows.forEach([&](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t row) {
    std::vector<T> p = rows.scores(b, h, i, row);
    const T largest = *std::max_element(p.begin(), p.end());
    T sum = 0;
    for (T& each : p) sum += each = std::exp(each - largest);
    if (c.results[1]) c.out<T>(1)[row] = largest;
    if (c.results[2]) c.out<T>(2)[row] = 1 / sum;
    for (std::int64_t j = 0; j < o.keys; ++j) {
      p[j] /= sum;
      if (!drops) continue;
      const std::int64_t at = row * o.keys + j;
      const bool kept = pdcrt::philoxWord(own.at(at), o.op, c.minibatch, c.seed) >= threshold;
      if (c.results[3]) c.out<std::uint8_t>(3)[at] = kept;
      p[j] = kept ? p[j] * static_cast<T>(1 / (1 - o.ratio)) : T(0);
    }
    for (std::int64_t e = 0; e < o.valueSize; ++e) {
      T y = 0;
      for (std::int64_t j = 0; j < o.keys; ++j) y += p[j] * rows.v_[rows.rowOf(b, h, j) * o.valueSize + e];
      c.out<T>(0)[row * o.valueSize + e] = y;
    }
  });
}

template <class T>
void gradientReference(ReferenceContext& c) {
  const Rows<T> rows(c, 1);
  const auto& o = rows.o;
  const auto dy = c.in<T>(0), largest = c.in<T>(5), inverse = c.in<T>(6);
  const auto mask = c.operands.size() > 7 && c.operands[7] ? c.in<std::uint8_t>(7) : std::span<const std::uint8_t>{};
  const auto add = [&](std::size_t result, std::int64_t at, T what) {
    if (c.results[result]) c.out<T>(result)[at] += what;
  };
  rows.forEach([&](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t row) {
    const T scale = static_cast<T>(o.scale);
    std::vector<T> p = rows.scores(b, h, i, row), dp(p.size()), kept(p.size(), 1);
    T sum = 0;
    for (std::int64_t j = 0; j < o.keys; ++j) {
      p[j] = std::exp(p[j] - largest[row]) * inverse[row];
      if (!mask.empty()) kept[j] = mask[row * o.keys + j] ? static_cast<T>(1 / (1 - o.ratio)) : T(0);
      dp[j] = rows.dotOfValue(dy, row, rows.rowOf(b, h, j)) * kept[j];
      sum += p[j] * dp[j];
    }
    for (std::int64_t j = 0; j < o.keys; ++j) {
      const std::int64_t other = rows.rowOf(b, h, j);
      const T ds = rows.isHidden(b, h, i, j) ? T(0) : p[j] * (dp[j] - sum) * scale;
      for (std::int64_t e = 0; e < o.size; ++e) {
        add(0, row * o.size + e, ds * rows.k_[other * o.size + e]);
        add(1, other * o.size + e, ds * rows.q_[row * o.size + e]);
      }
      for (std::int64_t e = 0; e < o.valueSize; ++e)
        add(2, other * o.valueSize + e, p[j] * kept[j] * dy[row * o.valueSize + e]);
    }
  });
}

// --- gradient ---

std::vector<Value*> gradient(GradientContext& g) {
  const Operation& op = g.op();
  std::vector<Value*> gradients(4, nullptr);
  if (!g.resultGradient(0)) return gradients;
  std::vector<bool> wanted;
  for (std::size_t i : {query, key, value}) wanted.push_back(g.wants(i));
  const auto first = static_cast<std::size_t>(std::find(wanted.begin(), wanted.end(), true) - wanted.begin());
  if (first < wanted.size()) {
    Attributes attributes;
    for (const char* name : {"scale", "causal", "hides", "ratio"})
      if (const Attribute* attribute = op.attributes.find(name)) attributes.set(name, *attribute);
    Value* mask = op.results().size() > 3 ? op.result(3) : nullptr;
    Operation* backward = g.create(first, "dot_product_attention_gradient",
                                   {g.resultGradient(0), op.operand(query), op.operand(key), op.operand(value),
                                    op.operand(bias), op.result(1), op.result(2), mask},
                                   std::move(attributes), wanted);
    if (!backward) return gradients;
    for (std::size_t i : {query, key, value}) gradients[i] = backward->result(i);
  }
  if (op.operand(bias) && g.wants(bias))
    gradients[bias] = attentionBiasGradient(
        g, attentionOptions(op, 0), {op.operand(query), op.operand(key), op.operand(value), g.resultGradient(0)});
  return gradients;
}

/// Without what serves the gradient, and without dropout.
std::vector<Value*> evaluation(const Operation& op, Builder& b) {
  Attributes attributes;
  for (const char* name : {"scale", "causal", "hides", "algorithms", "workspace"})
    if (const Attribute* attribute = op.attributes.find(name)) attributes.set(name, *attribute);
  Operation* without = b.create("dot_product_attention", op.operands(), attributes, {true, false, false});
  std::vector<Value*> values(op.def().results.size(), nullptr);
  if (without) values[0] = without->result(0);
  return values;
}

// --- division ---

/// Operands of the gradient have dY before them.
Loops loopsOfAttention(const Operation& op, bool backward) {
  const pdcrt::Attention::Options o = attentionOptions(op, backward ? 1 : 0);
  const AttentionSizes sizes{o.batch, o.heads, o.groups, o.queries, o.causal};
  if (!backward)
    return attentionLoops(op, sizes, {.queries = {{0, 1}}, .keys = {{1, 1}, {2, 1}}, .statistics = {}, .perScore = {3}},
                          {.queries = {{0, 1}}, .keys = {}, .statistics = {1, 2}, .perScore = {3}});
  return attentionLoops(
      op, sizes, {.queries = {{0, 1}, {1, 1}}, .keys = {{2, 1}, {3, 1}}, .statistics = {5, 6}, .perScore = {4, 7}},
      {.queries = {{0, 1}}, .keys = {{1, 1}, {2, 1}}, .statistics = {}});
}

/// Backward: of the gradient. A mask that is drawn is result 3.
std::vector<Value*> divideAttention(const Operation& op, bool backward, const Loops& loops, const Division& division,
                                    const std::vector<Value*>& operands, Builder& b) {
  return divideQueries(op, backward ? 1 : 0, loops, division, operands, b, [&](const std::vector<Value*>& own) {
    return op.results().size() > 3 ? divideDrawn(op, 3, loops, division, own, b)
                                   : sameWith(op, loops, division, own, {}, b);
  });
}

OpSplit splitOfAttention(bool backward) {
  return {.loops =
              [=](const Operation& op) {
                Loops loops = loopsOfAttention(op, backward);
                return op.results().size() > 3 ? loopsOfWhole(op, std::move(loops)) : loops;
              },
          .divide = [=](const Operation& op, const Loops& loops, const Division& division,
                        const std::vector<Value*>& operands,
                        Builder& b) { return divideAttention(op, backward, loops, division, operands, b); }};
}

// --- examples ---

struct Example {
  std::string q, k, v, bias, y, statistics, weights;
  const char *causal, *scale; ///< as attributes, or nothing
};

const std::vector<Example>& allExamples() {
  static const char *const causal = "causal = true", *const half = "scale = 0.5", *const none = "";
  static const std::vector<Example> list = {
      {"[2, 3, 4]", "[2, 5, 4]", "[2, 5, 2]", "", "[2, 3, 2]", "[2, 3]", "[2, 3, 5]", none, half},
      {"[1, 2, 3, 4]", "[1, 2, 3, 4]", "[1, 2, 3, 4]", "", "[1, 2, 3, 4]", "[1, 2, 3]", "[1, 2, 3, 3]", causal, half},
      {"[2, 4, 3, 2]", "[2, 2, 5, 2]", "[2, 2, 5, 3]", "[2, 1, 1, 5]", "[2, 4, 3, 3]", "[2, 4, 3]", "[2, 4, 3, 5]",
       none, half},
      {"[2, 2, 2, 3]", "[2, 1, 4, 3]", "[2, 1, 4, 1]", "[1, 2, 2, 4]", "[2, 2, 2, 1]", "[2, 2, 2]", "[2, 2, 2, 4]",
       causal, none},
      {"[1, 4, 4, 1]", "[1, 2, 3, 1]", "[1, 2, 3, 2]", "[1, 4, 4, 3]", "[1, 4, 4, 2]", "[1, 4, 4]", "[1, 4, 4, 3]",
       none, none},
      {"[3, 1, 2]", "[3, 1, 2]", "[3, 1, 3]", "", "[3, 1, 3]", "[3, 1]", "[3, 1, 1]", causal, none},
      {"[1, 2, 70, 2]", "[1, 1, 70, 2]", "[1, 1, 70, 2]", "", "[1, 2, 70, 2]", "[1, 2, 70]", "[1, 2, 70, 70]", causal,
       half}};
  return list;
}

/// "{…}" of the parts that say something.
std::string options(std::initializer_list<const char*> parts) {
  std::string text;
  for (const char* part : parts)
    if (*part) text += (text.empty() ? " {" : ", ") + std::string(part);
  return text.empty() ? text : text + "}";
}

std::string inputs(const Example& e) {
  return "%q: f32" + e.q + ", %k: f32" + e.k + ", %v: f32" + e.v + (e.bias.empty() ? "" : ", %bias: f32" + e.bias);
}

std::vector<std::string> examples(bool drops) {
  std::vector<std::string> texts;
  for (const Example& e : allExamples()) {
    const std::string statistics = ", f32" + e.statistics;
    const bool measured = !drops && texts.empty(); // as on a GPU
    texts.push_back(example(
        inputs(e),
        "%y, %largest, %inverse" + std::string(drops ? ", %mask = dropout_attention" : " = dot_product_attention") +
            " %q, %k, %v" + (e.bias.empty() ? "" : ", %bias") +
            options({measured ? R"(algorithms = ["plain", "plain"])" : "", e.causal,
                     drops ? "op_number = 7, ratio = 0.25" : "", e.scale, measured ? "workspace = 4096" : ""}) +
            " : f32" + e.y + statistics + statistics + (drops ? ", u8" + e.weights : "")));
  }
  // The samples of one of two members.
  if (drops)
    texts.push_back(example("%q: f32[1, 3, 4], %k: f32[1, 5, 4], %v: f32[1, 5, 2]",
                            "%y, %largest, %inverse, %mask = dropout_attention %q, %k, %v {members = 2, op_number = 7, "
                            "ratio = 0.25, run = 15} : f32[1, 3, 2], f32[1, 3], f32[1, 3], u8[1, 3, 5]"));
  // A query that sees one key of three, and one that sees none: its weights are equal, its scores get no gradient.
  const std::string hidden = "-1e+31, ", mask = "[0.0, " + hidden + hidden + hidden + hidden + "-1e+31]";
  texts.push_back(example("%q: f32[1, 1, 2, 3], %k: f32[1, 1, 3, 3], %v: f32[1, 1, 3, 2]",
                          "%bias = constant {value = dense<f32[1, 1, 2, 3], " + mask + ">} : f32[1, 1, 2, 3]\n" +
                              "%y, %largest, %inverse" +
                              (drops ? ", %mask = dropout_attention" : " = dot_product_attention") +
                              " %q, %k, %v, %bias {hides = true" + (drops ? ", op_number = 7, ratio = 0.25" : "") +
                              "} : f32[1, 1, 2, 2], f32[1, 1, 2], f32[1, 1, 2]" + (drops ? ", u8[1, 1, 2, 3]" : "")));
  return texts;
}

/// Those with a bias have dropout, too.
std::vector<std::string> gradientExamples() {
  std::vector<std::string> texts;
  for (const Example& e : allExamples()) {
    const bool drops = !e.bias.empty();
    texts.push_back(example("%dy: f32" + e.y + ", " + inputs(e) + ", %largest_positive: f32" + e.statistics +
                                ", %inverse_positive: f32" + e.statistics + (drops ? ", %mask: u8" + e.weights : ""),
                            std::string("%dq, %dk, %dv = dot_product_attention_gradient %dy, %q, %k, %v, ") +
                                (drops ? "%bias" : "_") + ", %largest_positive, %inverse_positive" +
                                (drops ? ", %mask" : "") + options({e.causal, drops ? "ratio = 0.25" : "", e.scale}) +
                                " : f32" + e.q + ", f32" + e.k + ", f32" + e.v));
  }
  return texts;
}

OpDef forwardOp(const std::string& name, std::string summary, bool drops) {
  OpDef def{.name = name,
            .summary = std::move(summary),
            .operands = {{"Q"}, {"K"}, {"V"}, {.name = "bias", .optional = true, .keepsHigh = true}},
            .results = {{"Y"}, {.name = "largest", .optional = true}, {.name = "inverse_sum", .optional = true}},
            .attributes = attributes(drops),
            .infer = [name, drops](const InferContext& c) { return infer(c, name.c_str(), drops); },
            .precision = PrecisionClass::preferLow,
            .cost = cost(0, 2, drops ? 36 : 14),
            .gradient = gradient,
            .kernel = {.use =
                           [drops](const Operation& op) {
                             KernelUse use = kernelUse<pdcrt::Attention>(
                                 "Attention", drops ? "forwardDropped" : "forward", attentionOptions(op, 0));
                             use.draws = drops;
                             return use;
                           },
                       .alternatives =
                           [](const Operation& op, Target target) {
                             return attentionAlternatives(attentionOptions(op, 0), "forward", target);
                           }},
            .rewrites = {.evaluation = evaluation,
                         .raise = drops ? raiseDropoutAttention : raiseAttention,
                         .mergeHeads = drops ? nullptr : mergeAttentionHeads},
            .split = splitOfAttention(false),
            .usage = {.addedScores = [](const Operation& op) -> std::optional<AddedScores> {
                        if (!op.operand(3) || op.attributes.get<bool>("causal")) return std::nullopt;
                        return AddedScores{.scores = 3, .keys = {1, 2}};
                      },
                      .staysFinite = [](const Operation&) { return true; }},
            .reference = drops ? reference([]<class T>(ReferenceContext& c) { forwardReference<T>(c, true); })
                               : reference([]<class T>(ReferenceContext& c) { forwardReference<T>(c, false); }),
            .examples = examples(drops),
            .facts = {.random = drops, .takesLow = true}};
  if (!drops) return def;
  def.kernel.alternatives = nullptr;
  def.results.push_back({"mask"});
  return def;
}

} // namespace

std::vector<OpDef> define() {
  return {
      forwardOp("dot_product_attention",
                "V weighted by the softmax of scale · Q · Kᵀ + bias; heads in a row share keys", false),
      forwardOp("dropout_attention", "dot_product_attention with dropout between softmax and V", true),
      {
          .name = "dot_product_attention_gradient",
          .summary = "Gradients of dot_product_attention and dropout_attention for Q, K and V",
          .operands = {{"dY"},
                       {"Q"},
                       {"K"},
                       {"V"},
                       {.name = "bias", .optional = true, .keepsHigh = true},
                       {.name = "largest", .keepsHigh = true},
                       {.name = "inverse_sum", .keepsHigh = true},
                       {.name = "mask", .optional = true}},
          .results = {{.name = "dQ", .optional = true},
                      {.name = "dK", .optional = true},
                      {.name = "dV", .optional = true}},
          .attributes = gradientAttributes(),
          .infer = inferGradient,
          .precision = PrecisionClass::preferLow,
          .cost = cost(1, 5, 14),
          .kernel = {.use =
                         [](const Operation& op) {
                           return kernelUse<pdcrt::Attention>("Attention", "inputGradient", attentionOptions(op, 1));
                         },
                     .alternatives =
                         [](const Operation& op, Target target) {
                           return attentionAlternatives(attentionOptions(op, 1), "inputGradient", target);
                         }},
          .split = splitOfAttention(true),
          .reference = reference([]<class T>(ReferenceContext& c) { gradientReference<T>(c); }),
          .examples = gradientExamples(),
          .facts = {.takesLow = true},
      },
  };
}

} // namespace pdc::ops::DotProductAttention
