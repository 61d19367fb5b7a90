// Dot-product attention of heads that lie beside each other in rows, as the layers before and behind it have them.
// Kernel: pdcrt::MultiHeadAttention. What exporters write is dot_product_attention between transposes
// (Raise/MergeHeads.h).
#include "Kernels/AttentionOptions.h"
#include "Kernels/KernelOptions.h"
#include "Shared/AttentionBias.h"
#include "Shared/AttentionLoops.h"
#include "Shared/Define.h"

#include "pdc/IR/Builder.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace pdc::ops::MultiHeadAttention {
using namespace pdc::ops::attention;

namespace {

// Operands are those of the forward op; the gradient has dY before them, and Y and statistics behind them.

std::vector<AttributeDef> attributes() {
  std::vector<AttributeDef> defs = {
      integer("heads", std::nullopt, "heads of the queries"),
      integer("groups", std::nullopt, "heads of keys and values, each of which as many heads of queries share"),
      number("scale", 1, "factor of the products"),
      boolean("causal", false, "whether query i sees no key after i + keys - queries")};
  for (AttributeDef& def : attentionAlgorithms()) defs.push_back(std::move(def));
  return defs;
}

/// From the types of queries, keys and values, of which the last two are null where rows are packed.
pdcrt::MultiHeadAttention::Options optionsOf(const Attributes& attributes, const Type& q, const Type* k,
                                             const Type* v) {
  pdcrt::MultiHeadAttention::Options o = {.batch = q.shape[0],
                                          .heads = attributes.getInt("heads"),
                                          .groups = attributes.getInt("groups"),
                                          .queries = q.shape[1],
                                          .keys = k ? k->shape[1] : q.shape[1],
                                          .size = 0,
                                          .valueSize = 0,
                                          .scale = attributes.getFloat("scale"),
                                          .causal = attributes.get<bool>("causal"),
                                          .packed = !k,
                                          .element = q.element};
  o.size = q.shape[2] / (o.packed ? o.heads + 2 * o.groups : o.heads);
  o.valueSize = v ? v->shape[2] / o.groups : o.size;
  return o;
}
pdcrt::MultiHeadAttention::Options optionsOf(const Operation& op, std::size_t first) {
  const auto typeOf = [&](std::size_t i) { return op.operand(first + i) ? &op.operand(first + i)->type() : nullptr; };
  pdcrt::MultiHeadAttention::Options o = optionsOf(op.attributes, *typeOf(query), typeOf(key), typeOf(value));
  if (const Value* added = op.operand(first + bias)) o.bias = toRuntime(added->type().shape);
  o.algorithms = attentionAlgorithmsOf(op.attributes);
  return o;
}

/// Reports unless the rows fit; `first` is the operand with the queries.
Expected<pdcrt::MultiHeadAttention::Options> requireRows(const InferContext& c, const char* op, std::size_t first) {
  const bool packed = !has(c, first + key);
  if (has(c, first + value) == packed) return c.error() << "'" << op << "' op has keys without values";
  for (std::size_t i : {query, key, value})
    if (has(c, first + i) && !requireFloat(c, op, first + i, 3, 3)) return failure;
  const std::int64_t heads = integerOf(c, "heads"), groups = integerOf(c, "groups");
  if (heads < 1 || groups < 1 || heads % groups != 0)
    return c.error() << "'" << op << "' op has " << heads << " heads and " << groups
                     << " groups, both must be positive, and groups share them evenly";
  const Type &q = c.operand(first + query), &k = packed ? q : c.operand(first + key),
             &v = packed ? q : c.operand(first + value);
  const pdcrt::MultiHeadAttention::Options o = optionsOf(c.attributes, q, packed ? nullptr : &k, packed ? nullptr : &v);
  const std::int64_t all = packed ? (heads + 2 * groups) * o.size : heads * o.size;
  bool fits = o.size > 0 && o.valueSize > 0 && q.shape[2] == all;
  if (!packed)
    fits = fits && q.element == k.element && q.element == v.element &&
           k.shape == Shape{o.batch, o.keys, groups * o.size} &&
           v.shape == Shape{o.batch, o.keys, groups * o.valueSize};
  if (!fits)
    return c.error() << "'" << op << "' op has " << (packed ? "packed rows " : "queries ") << toString(q)
                     << (packed ? "" : ", keys " + toString(k) + " and values " + toString(v)) << " for " << heads
                     << " heads and " << groups << " groups, which do not fit";
  if (o.causal && o.keys < o.queries)
    return c.error() << "'" << op << "' op is causal and has " << o.queries << " queries and " << o.keys
                     << " keys, it needs as many keys";
  if (!requireAttentionBias(c, op, first + bias, {besideQueries(q.element), {o.batch, heads, o.queries, o.keys}}))
    return failure;
  return o;
}

Type yType(const Type& q, const pdcrt::MultiHeadAttention::Options& o) {
  return {q.element, {o.batch, o.queries, o.heads * o.valueSize}};
}
Type statisticsType(const Type& q, const pdcrt::MultiHeadAttention::Options& o) {
  return {besideQueries(q.element), {o.batch, o.heads, o.queries}};
}

Types infer(const InferContext& c) {
  constexpr const char* op = "multi_head_attention";
  const auto o = requireRows(c, op, 0);
  if (!o || !requireAttentionAlgorithms(c, op)) return failure;
  const Type& q = c.operand(query);
  return std::vector<Type>{yType(q, *o), statisticsType(q, *o), statisticsType(q, *o)};
}

Types inferGradient(const InferContext& c) {
  constexpr const char* op = "multi_head_attention_gradient";
  const auto o = requireRows(c, op, 1);
  if (!o || !requireAttentionAlgorithms(c, op)) return failure;
  const Type& q = c.operand(1 + query);
  for (std::size_t i : {0, 5})
    if (!requireType(c, op, i, yType(q, *o), "the shape of results")) return failure;
  for (std::size_t i : {6, 7})
    if (!requireType(c, op, i, statisticsType(q, *o), "one number per query")) return failure;
  std::vector<Type> types = {q};
  for (std::size_t i : {key, value}) types.push_back(has(c, 1 + i) ? c.operand(1 + i) : q);
  return types;
}

CostFn cost(std::size_t first, double products, double flops) {
  return [=](const Operation& op) {
    const pdcrt::MultiHeadAttention::Options o = optionsOf(op, first);
    const double weights =
        static_cast<double>(o.batch * o.heads) * static_cast<double>(o.queries) * static_cast<double>(o.keys);
    return Cost{.flops = weights * (products * static_cast<double>(o.size + o.valueSize) + flops),
                .bytes = bytesMoved(op)};
  };
}

// --- reference ---

/// Operands by sample, head, position and element, and the weights of a query.
template <class T>
struct Heads {
  using Part = pdcrt::MultiHeadAttention::Part;

  Heads(ReferenceContext& c, std::size_t first)
      : o(optionsOf(c.op, first)), rows(o), q(c.in<T>(first + query)), k(o.packed ? q : c.in<T>(first + key)),
        v(o.packed ? q : c.in<T>(first + value)) {
    if (!c.op.operand(first + bias)) return;
    added = c.in<T>(first + bias);
    strides = biasStrides(operandType(c.op, first + bias).shape);
  }

  std::int64_t groupOf(std::int64_t h) const { return h / (o.heads / o.groups); }
  std::int64_t seen(std::int64_t i) const { return o.causal ? i + 1 + o.keys - o.queries : o.keys; }
  std::int64_t statistic(std::int64_t b, std::int64_t h, std::int64_t i) const {
    return (b * o.heads + h) * o.queries + i;
  }
  T score(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    T sum = 0;
    for (std::int64_t e = 0; e < o.size; ++e) sum += q[rows.query.at(b, h, i, e)] * k[rows.key.at(b, groupOf(h), j, e)];
    return static_cast<T>(o.scale) * sum + (added.empty() ? T(0) : added[dot({b, h, i, j}, strides)]);
  }
  template <class F>
  void forEach(F f) const {
    for (std::int64_t b = 0; b < o.batch; ++b)
      for (std::int64_t h = 0; h < o.heads; ++h)
        for (std::int64_t i = 0; i < o.queries; ++i) f(b, h, i);
  }

  pdcrt::MultiHeadAttention::Options o;
  pdcrt::MultiHeadAttention::Rows rows;
  std::span<const T> q, k, v, added = {};
  std::vector<std::int64_t> strides; ///< of what is added
};

template <class T>
void forwardReference(ReferenceContext& c) {
  const Heads<T> heads(c, 0);
  heads.forEach([&](std::int64_t b, std::int64_t h, std::int64_t i) {
    std::vector<T> p;
    for (std::int64_t j = 0; j < heads.seen(i); ++j) p.push_back(heads.score(b, h, i, j));
    const T largest = *std::max_element(p.begin(), p.end());
    T sum = 0;
    for (T& each : p) sum += each = std::exp(each - largest);
    if (c.results[1]) c.out<T>(1)[heads.statistic(b, h, i)] = largest;
    if (c.results[2]) c.out<T>(2)[heads.statistic(b, h, i)] = 1 / sum;
    for (std::int64_t e = 0; e < heads.o.valueSize; ++e) {
      T y = 0;
      for (std::int64_t j = 0; j < heads.seen(i); ++j)
        y += p[j] / sum * heads.v[heads.rows.value.at(b, heads.groupOf(h), j, e)];
      c.out<T>(0)[heads.rows.y.at(b, h, i, e)] = y;
    }
  });
}

template <class T>
void gradientReference(ReferenceContext& c) {
  const Heads<T> heads(c, 1);
  const auto dy = c.in<T>(0), largest = c.in<T>(6), inverse = c.in<T>(7);
  const auto add = [&](std::size_t result, std::int64_t at, T what) {
    if (heads.o.packed) result = 0;
    if (c.results[result]) c.out<T>(result)[at] += what;
  };
  heads.forEach([&](std::int64_t b, std::int64_t h, std::int64_t i) {
    const std::int64_t g = heads.groupOf(h), statistic = heads.statistic(b, h, i), seen = heads.seen(i);
    std::vector<T> p, dp;
    T mean = 0;
    for (std::int64_t j = 0; j < seen; ++j) {
      p.push_back(std::exp(heads.score(b, h, i, j) - largest[statistic]) * inverse[statistic]);
      dp.push_back(0);
      for (std::int64_t e = 0; e < heads.o.valueSize; ++e)
        dp[j] += dy[heads.rows.y.at(b, h, i, e)] * heads.v[heads.rows.value.at(b, g, j, e)];
      mean += p[j] * dp[j];
    }
    for (std::int64_t j = 0; j < seen; ++j) {
      const T ds = p[j] * (dp[j] - mean) * static_cast<T>(heads.o.scale);
      for (std::int64_t e = 0; e < heads.o.size; ++e) {
        const std::int64_t ofQuery = heads.rows.query.at(b, h, i, e), ofKey = heads.rows.key.at(b, g, j, e);
        add(0, ofQuery, ds * heads.k[ofKey]);
        add(1, ofKey, ds * heads.q[ofQuery]);
      }
      for (std::int64_t e = 0; e < heads.o.valueSize; ++e)
        add(2, heads.rows.value.at(b, g, j, e), p[j] * dy[heads.rows.y.at(b, h, i, e)]);
    }
  });
}

// --- gradient ---

/// Rows as heads that lie apart.
Value* apart(GradientContext& g, Value* rows, const pdcrt::MultiHeadAttention::Part& part, std::int64_t batch) {
  const std::int64_t width = part.heads * part.size;
  if (width != part.row)
    rows = g.value(bias, "slice", {rows},
                   {{"starts", Shape{0, 0, part.begin}},
                    {"sizes", Shape{batch, part.positions, width}},
                    {"steps", Shape{1, 1, 1}}});
  Value* split =
      rows ? g.value(bias, "reshape", {rows}, {{"shape", Shape{batch, part.positions, part.heads, part.size}}})
           : nullptr;
  return split ? g.value(bias, "transpose", {split}, {{"permutation", std::vector<std::int64_t>{0, 2, 1, 3}}})
               : nullptr;
}

Value* biasGradient(GradientContext& g) {
  const Operation& op = g.op();
  const pdcrt::MultiHeadAttention::Options o = optionsOf(op, 0);
  const pdcrt::MultiHeadAttention::Rows rows(o);
  const AttentionHeads heads = {apart(g, op.operand(query), rows.query, o.batch),
                                apart(g, op.operand(o.packed ? query : key), rows.key, o.batch),
                                apart(g, op.operand(o.packed ? query : value), rows.value, o.batch),
                                apart(g, g.resultGradient(0), rows.y, o.batch)};
  if (!heads.query || !heads.key || !heads.value || !heads.dy) return nullptr;
  return attentionBiasGradient(g, pdcrt::MultiHeadAttention::attentionOf(o), heads);
}

std::vector<Value*> gradient(GradientContext& g) {
  const Operation& op = g.op();
  std::vector<Value*> gradients(4, nullptr);
  if (!g.resultGradient(0)) return gradients;
  std::vector<bool> wanted;
  for (std::size_t i : {query, key, value}) wanted.push_back(op.operand(i) && g.wants(i));
  const auto first = static_cast<std::size_t>(std::find(wanted.begin(), wanted.end(), true) - wanted.begin());
  if (first < wanted.size()) {
    Attributes attributes;
    for (const char* name : {"heads", "groups", "scale", "causal"})
      if (const Attribute* attribute = op.attributes.find(name)) attributes.set(name, *attribute);
    Operation* backward = g.create(first, "multi_head_attention_gradient",
                                   {g.resultGradient(0), op.operand(query), op.operand(key), op.operand(value),
                                    op.operand(bias), op.result(0), op.result(1), op.result(2)},
                                   std::move(attributes), wanted);
    if (!backward) return gradients;
    for (std::size_t i : {query, key, value}) gradients[i] = backward->result(i);
  }
  if (op.operand(bias) && g.wants(bias)) gradients[bias] = biasGradient(g);
  return gradients;
}

/// Without what serves the gradient.
std::vector<Value*> evaluation(const Operation& op, Builder& b) {
  Operation* without = b.create(op.def().name, op.operands(), op.attributes, {true, false, false});
  return {without ? without->result(0) : nullptr, nullptr, nullptr};
}

// --- division ---

Loops loopsOfHeads(const Operation& op, bool backward) {
  const pdcrt::MultiHeadAttention::Options o = optionsOf(op, backward ? 1 : 0);
  const AttentionSizes sizes{o.batch, o.heads, o.groups, o.queries, o.causal, o.packed};
  const std::int64_t blocks = o.packed ? 3 : 1; // of heads in a row of Q
  if (!backward)
    return attentionLoops(op, sizes,
                          {.queries = {{0, 2, blocks}}, .keys = {{1, 2}, {2, 2}}, .statistics = {}, .perScore = {3}},
                          {.queries = {{0, 2}}, .keys = {}, .statistics = {1, 2}});
  return attentionLoops(
      op, sizes,
      {.queries = {{0, 2}, {1, 2, blocks}, {5, 2}}, .keys = {{2, 2}, {3, 2}}, .statistics = {6, 7}, .perScore = {4}},
      {.queries = {{0, 2, blocks}}, .keys = {{1, 2}, {2, 2}}, .statistics = {}});
}

/// The same op with fewer heads; `first` is the operand with the queries.
std::vector<Value*> divideHeads(const Operation& op, std::size_t first, const Loops& loops, const Division& division,
                                const std::vector<Value*>& operands, Builder& b) {
  const auto countOf = [&](const char* name, std::size_t rows) {
    const Form form = formOfOperand(loops, rows, division);
    return op.attributes.getInt(name) / (form.isSplit() && form.axis == 2 ? division.parts : 1);
  };
  return divideQueries(op, first, loops, division, operands, b, [&](const std::vector<Value*>& own) {
    return sameWith(op, loops, division, own,
                    {{"heads", countOf("heads", first + query)},
                     {"groups", countOf("groups", first + (op.operand(first + key) ? key : query))}},
                    b);
  });
}

OpSplit split(bool backward) {
  return {.loops = [backward](const Operation& op) { return loopsOfHeads(op, backward); },
          .divide = [backward](const Operation& op, const Loops& loops, const Division& division,
                               const std::vector<Value*>& operands,
                               Builder& b) { return divideHeads(op, backward ? 1 : 0, loops, division, operands, b); }};
}

// --- examples ---

struct Example {
  std::string q, k, v, y, statistics, options, bias = "";
};

const std::vector<Example>& allExamples() {
  static const std::vector<Example> list = {
      {"[2, 3, 8]", "[2, 5, 8]", "[2, 5, 4]", "[2, 3, 4]", "[2, 2, 3]", "groups = 2, heads = 2, scale = 0.5"},
      {"[1, 3, 24]", "", "", "[1, 3, 8]", "[1, 2, 3]", "causal = true, groups = 2, heads = 2, scale = 0.5"},
      {"[2, 4, 16]", "", "", "[2, 4, 8]", "[2, 4, 4]", "groups = 2, heads = 4"},
      {"[2, 2, 6]", "[2, 4, 3]", "[2, 4, 1]", "[2, 2, 2]", "[2, 2, 2]", "causal = true, groups = 1, heads = 2"},
      {"[1, 70, 12]", "", "", "[1, 70, 4]", "[1, 2, 70]", "causal = true, groups = 2, heads = 2, scale = 0.25"},
      {"[2, 3, 4]", "[2, 5, 4]", "[2, 5, 4]", "[2, 3, 4]", "[2, 2, 3]", "groups = 2, heads = 2", "[2, 1, 1, 5]"},
      {"[2, 3, 12]", "", "", "[2, 3, 4]", "[2, 2, 3]", "groups = 2, heads = 2", "[1, 2, 3, 3]"},
      {"[1, 4, 8]", "[1, 3, 4]", "[1, 3, 2]", "[1, 4, 4]", "[1, 4, 4]", "groups = 2, heads = 4", "[1, 4, 4, 3]"},
      {"[1, 2, 24]", "", "", "[1, 2, 8]", "[1, 4, 2]", "groups = 4, heads = 4", "[1, 4, 1, 2]"}};
  return list;
}

std::string inputs(const Example& e) {
  return "%q: f32" + e.q + (e.k.empty() ? "" : ", %k: f32" + e.k + ", %v: f32" + e.v) +
         (e.bias.empty() ? "" : ", %bias: f32" + e.bias);
}
/// Behind %q, in a call.
std::string others(const Example& e) {
  return std::string(e.k.empty() ? "_, _" : "%k, %v") + (e.bias.empty() ? ", _" : ", %bias");
}

std::vector<std::string> examples() {
  std::vector<std::string> texts;
  for (const Example& e : allExamples())
    texts.push_back(example(inputs(e), "%y, %largest, %inverse = multi_head_attention %q" +
                                           (e.k.empty() && e.bias.empty() ? "" : ", " + others(e)) + " {" +
                                           (texts.empty() ? R"(algorithms = ["plain", "plain"], )" : "") + e.options +
                                           (texts.empty() ? ", workspace = 4096" : "") + "} : f32" + e.y + ", f32" +
                                           e.statistics + ", f32" + e.statistics));
  return texts;
}

std::vector<std::string> gradientExamples() {
  std::vector<std::string> texts;
  for (const Example& e : allExamples())
    texts.push_back(example("%dy: f32" + e.y + ", " + inputs(e) + ", %y: f32" + e.y + ", %largest_positive: f32" +
                                e.statistics + ", %inverse_positive: f32" + e.statistics,
                            "%dq, " + std::string(e.k.empty() ? "_, _" : "%dk, %dv") +
                                " = multi_head_attention_gradient %dy, %q, " + others(e) +
                                ", %y, %largest_positive, %inverse_positive {" + e.options + "} : f32" + e.q +
                                (e.k.empty() ? ", _, _" : ", f32" + e.k + ", f32" + e.v)));
  return texts;
}

KernelAlternatives alternatives(const Operation& op, std::size_t first, const char* method, Target target) {
  return attentionAlternatives(pdcrt::MultiHeadAttention::attentionOf(optionsOf(op, first)), method, target);
}

} // namespace

std::vector<OpDef> define() {
  return {
      {
          .name = "multi_head_attention",
          .summary =
              "dot_product_attention of heads beside each other in rows; without K and V a row of Q has all three",
          .operands = {{"Q"},
                       {.name = "K", .optional = true},
                       {.name = "V", .optional = true},
                       {.name = "bias", .optional = true, .keepsHigh = true}},
          .results = {{"Y"}, {.name = "largest", .optional = true}, {.name = "inverse_sum", .optional = true}},
          .attributes = attributes(),
          .infer = infer,
          .precision = PrecisionClass::preferLow,
          .cost = cost(0, 2, 14),
          .gradient = gradient,
          .kernel = {.use =
                         [](const Operation& op) {
                           return kernelUse<pdcrt::MultiHeadAttention>("MultiHeadAttention", "forward",
                                                                       optionsOf(op, 0));
                         },
                     .alternatives = [](const Operation& op,
                                        Target target) { return alternatives(op, 0, "forward", target); }},
          .rewrites = {.evaluation = evaluation},
          .split = split(false),
          .reference = reference([]<class T>(ReferenceContext& c) { forwardReference<T>(c); }),
          .examples = examples(),
          .facts = {.takesLow = true},
      },
      {
          .name = "multi_head_attention_gradient",
          .summary = "Gradients of multi_head_attention for its operands",
          .operands = {{"dY"},
                       {"Q"},
                       {.name = "K", .optional = true},
                       {.name = "V", .optional = true},
                       {.name = "bias", .optional = true, .keepsHigh = true},
                       {"Y"},
                       {.name = "largest", .keepsHigh = true},
                       {.name = "inverse_sum", .keepsHigh = true}},
          .results = {{.name = "dQ", .optional = true},
                      {.name = "dK", .optional = true},
                      {.name = "dV", .optional = true}},
          .attributes = attributes(),
          .infer = inferGradient,
          .precision = PrecisionClass::preferLow,
          .cost = cost(1, 5, 14),
          .kernel = {.use =
                         [](const Operation& op) {
                           return kernelUse<pdcrt::MultiHeadAttention>("MultiHeadAttention", "inputGradient",
                                                                       optionsOf(op, 1));
                         },
                     .alternatives = [](const Operation& op,
                                        Target target) { return alternatives(op, 1, "inputGradient", target); }},
          .split = split(true),
          .reference = reference([]<class T>(ReferenceContext& c) { gradientReference<T>(c); }),
          .examples = gradientExamples(),
          .facts = {.takesLow = true},
      },
  };
}

} // namespace pdc::ops::MultiHeadAttention
