// GRU layers (Cho et al. 2014): the recurrent part, its gradient, and ONNX's operator. Kernel: pdcrt::Gru, for layers
// that apply the reset gate after the product with the recurrent weights (ONNX's linear_before_reset = 1, PyTorch and
// Keras). Others are unrolled over the steps.
#include "Kernels/KernelOptions.h"
#include "Shared/InitialValues.h"
#include "Shared/Recurrent.h"
#include "Shared/RecurrentOps.h"

#include <cmath>

namespace pdc::ops::Gru {

namespace {

pdcrt::Gru::Options optionsOf(const Operation& op) {
  const Type& states = op.def().results[0].name == "Y" ? resultType(op) : operandType(op, 0);
  return {.steps = states.shape[0],
          .batch = states.shape[1],
          .hidden = states.shape[2],
          .order = op.attributes.get<std::string>("order"),
          .reverse = op.attributes.get<bool>("reverse")};
}

/// z, r, n, and the recurrent part of n.
Type savedType(const RecurrentTypes& types) {
  Type saved = types.states;
  saved.shape[2] *= 4;
  return saved;
}

Types inferForward(const InferContext& c) {
  const Expected<RecurrentTypes> types = recurrentTypes(c, "gru", 0, 1, 3, /*allGates=*/true);
  if (!types || !requireOrder(c, "gru", "zrh") || !requireOptional(c, "gru", 2, types->bias) ||
      !requireOptional(c, "gru", 3, types->state) || !requireOptional(c, "gru", 4, types->lengths))
    return failure;
  return std::vector<Type>{types->states, savedType(*types)};
}

Types inferGradient(const InferContext& c) {
  const char* op = "gru_gradient";
  const Expected<RecurrentTypes> types = recurrentTypes(c, op, 0, 1, 3, /*allGates=*/false);
  if (!types || !requireOrder(c, op, "zrh") || !requireOptional(c, op, 2, types->states) ||
      !requireOptional(c, op, 3, savedType(*types)) || !requireOptional(c, op, 4, types->state) ||
      !requireOptional(c, op, 5, types->lengths))
    return failure;
  return std::vector<Type>{types->gates, types->gates, types->state};
}

/// A product with R and about 25 operations per cell.
Cost cost(const Operation& op) {
  const pdcrt::Gru::Options o = optionsOf(op);
  const double cells = static_cast<double>(o.steps) * static_cast<double>(o.batch * o.hidden);
  return {.flops = cells * (6.0 * static_cast<double>(o.hidden) + 25), .bytes = bytesMoved(op)};
}

std::vector<Value*> gradient(GradientContext& g) {
  const Operation& op = g.op();
  std::vector<Value*> gradients(5, nullptr);
  if (!g.resultGradient(0)) return gradients;
  const bool bias = op.operand(2) && g.wants(2), initialState = op.operand(3) && g.wants(3);
  const std::size_t owner = g.wants(0) ? 0 : initialState ? 3 : g.wants(1) ? 1 : 2;
  Operation* backward =
      g.create(owner, "gru_gradient",
               {g.resultGradient(0), op.operand(1), op.result(0), op.result(1), op.operand(3), op.operand(4)},
               op.attributes, {true, true, initialState});
  if (!backward) return gradients;
  gradients[0] = backward->result(0);
  gradients[3] = backward->result(2);
  if (!g.wants(1) && !bias) return gradients;
  Operation* weights =
      g.create(g.wants(1) ? 1 : 2, "recurrent_weight_gradient", {backward->result(1), op.result(0), op.operand(3)},
               {{"reverse", op.attributes.get<bool>("reverse")}}, {true, bias});
  if (!weights) return gradients;
  gradients[1] = weights->result(0);
  gradients[2] = weights->result(1);
  return gradients;
}

/// Element j of row b at step t: its state, its gates in [T, B, 3H], and what is saved of it in [T, B, 4H].
struct Cell {
  std::size_t state, z, r, n, savedZ, savedR, savedN, savedP;

  Cell(const pdcrt::Gru::Options& o, std::int64_t t, std::int64_t b, std::int64_t j) {
    const auto hidden = static_cast<std::size_t>(o.hidden), row = static_cast<std::size_t>(t * o.batch + b),
               unit = static_cast<std::size_t>(j);
    const auto at = [&](char gate) { return (row * 3 + o.order.find(gate)) * hidden + unit; };
    state = row * hidden + unit;
    z = at('z'), r = at('r'), n = at('h');
    savedZ = row * 4 * hidden + unit, savedR = savedZ + hidden, savedN = savedR + hidden, savedP = savedN + hidden;
  }
};

template <class T>
T sigmoid(T x) {
  return 1 / (1 + std::exp(-x));
}

template <class T>
void forwardReference(ReferenceContext& c) {
  const pdcrt::Gru::Options o = optionsOf(c.op);
  const auto x = c.in<T>(0), weights = c.in<T>(1);
  const std::vector<T> bias = valuesOrZeros<T>(c, 2, 3 * o.hidden);
  std::vector<T> h = valuesOrZeros<T>(c, 3, o.batch * o.hidden);
  for (std::int64_t count = 0; count < o.steps; ++count) {
    const std::int64_t t = o.reverse ? o.steps - 1 - count : count;
    std::vector<T> next = h;
    for (std::int64_t b = 0; b < o.batch; ++b)
      for (std::int64_t j = 0; j < o.hidden && running(optionalOperand(c, 4), b, t); ++j) {
        const Cell at(o, t, b, j), row(o, 0, 0, j);
        const auto recurrent = [&](std::size_t gate) {
          T sum = bias[gate];
          for (std::int64_t k = 0; k < o.hidden; ++k)
            sum += h[b * o.hidden + k] * weights[gate * static_cast<std::size_t>(o.hidden) + k];
          return sum;
        };
        const T z = sigmoid(x[at.z] + recurrent(row.z)), r = sigmoid(x[at.r] + recurrent(row.r)), p = recurrent(row.n),
                n = std::tanh(x[at.n] + r * p);
        next[b * o.hidden + j] = (1 - z) * n + z * h[b * o.hidden + j];
        if (!c.results[1]) continue;
        const auto saved = c.out<T>(1);
        saved[at.savedZ] = z, saved[at.savedR] = r, saved[at.savedN] = n, saved[at.savedP] = p;
      }
    h = next;
    std::copy(h.begin(), h.end(), c.out<T>(0).begin() + t * o.batch * o.hidden);
  }
}

template <class T>
void gradientReference(ReferenceContext& c) {
  const pdcrt::Gru::Options o = optionsOf(c.op);
  const auto dy = c.in<T>(0), weights = c.in<T>(1), y = c.in<T>(2), saved = c.in<T>(3);
  const auto dx = c.out<T>(0), da = c.out<T>(1);
  const std::vector<T> initial = valuesOrZeros<T>(c, 4, o.batch * o.hidden);
  std::vector<T> dh(initial.size(), T(0));
  for (std::int64_t count = o.steps - 1; count >= 0; --count) {
    const std::int64_t t = o.reverse ? o.steps - 1 - count : count, before = o.reverse ? t + 1 : t - 1;
    std::vector<T> dhBefore(dh.size(), T(0));
    for (std::int64_t b = 0; b < o.batch; ++b)
      for (std::int64_t j = 0; j < o.hidden; ++j) {
        const Cell at(o, t, b, j), row(o, 0, 0, j);
        T& gradient = dh[b * o.hidden + j];
        gradient += dy[at.state];
        if (!running(optionalOperand(c, 5), b, t)) {
          dhBefore[b * o.hidden + j] += gradient;
          continue;
        }
        const T z = saved[at.savedZ], r = saved[at.savedR], n = saved[at.savedN], p = saved[at.savedP];
        const T h = count > 0 ? y[(before * o.batch + b) * o.hidden + j] : initial[b * o.hidden + j];
        dhBefore[b * o.hidden + j] += gradient * z;
        dx[at.z] = da[at.z] = gradient * (h - n) * z * (1 - z);
        dx[at.n] = gradient * (1 - z) * (1 - n * n);
        dx[at.r] = da[at.r] = dx[at.n] * p * r * (1 - r);
        da[at.n] = dx[at.n] * r;
        for (auto [gate, rows] : {std::pair{at.z, row.z}, {at.r, row.r}, {at.n, row.n}})
          for (std::int64_t k = 0; k < o.hidden; ++k)
            dhBefore[b * o.hidden + k] += da[gate] * weights[rows * static_cast<std::size_t>(o.hidden) + k];
      }
    dh = dhBefore;
  }
  if (c.results[2]) std::copy(dh.begin(), dh.end(), c.out<T>(2).begin());
}

/// One direction by the op.
RecurrentStates layer(RecurrentNode& node, const RecurrentDirection& d) {
  Value* input = node.projection(d, d.wb);
  Operation* op = input ? create(node.n, "gru", {input, d.r, d.rb, d.h0, node.lengths},
                                 {{"order", d.order}, {"reverse", d.reverse}})
                        : nullptr;
  return {op ? op->result(0) : nullptr};
}

/// One direction step by step.
RecurrentStates unrolled(RecurrentNode& node, const RecurrentDirection& d, bool resetAfter) {
  OnnxReader& n = node.n;
  Unrolled u(node, d, node.projection(d, resetAfter ? d.wb : node.sumOfBiases(d)));
  Value* bias = resetAfter ? d.rb : nullptr;
  return u.run([&](Value* x, Value* h, Value*) -> std::array<Value*, 2> {
    const auto recurrent = [&](char gate, Value* state) {
      Value* product = u.recurrent(state, u.gate(d.r, gate, 0));
      return bias ? u.add(product, u.gate(bias, gate, 0)) : product;
    };
    Value* z = u.activate(0, u.add(u.gate(x, 'z'), recurrent('z', h)));
    Value* r = u.activate(0, u.add(u.gate(x, 'r'), recurrent('r', h)));
    Value* part = resetAfter ? u.multiply(r, recurrent('h', h)) : recurrent('h', u.multiply(r, h));
    Value* candidate = u.activate(1, u.add(u.gate(x, 'h'), part));
    if (!z || !candidate) return {};
    Value* kept = n.value("sub", {n.b.constant(1, z->type().element), z});
    return {u.add(u.multiply(kept, candidate), u.multiply(z, h)), nullptr};
  });
}

Expected<std::vector<Value*>> convert(OnnxReader& n) {
  RecurrentNode node(n, "zrh", {"Sigmoid", "Tanh"});
  if (!node.read()) return failure;
  const bool resetAfter = n.integer("linear_before_reset", 0) != 0;
  std::vector<RecurrentStates> states;
  for (const RecurrentDirection& d : node.directions) {
    const bool standard = resetAfter && d.activatedBy({"sigmoid", "tanh"}) && node.clip == 0;
    states.push_back(standard ? layer(node, d) : unrolled(node, d, resetAfter));
    if (!states.back().y) return failure;
  }
  return node.outputs(states);
}

std::vector<std::string> examples() {
  return {
      example("%x: f32[3, 2, 6], %r: f32[6, 2], %b: f32[6], %h: f32[2, 2]",
              "%y, %g = gru %x, %r, %b, %h : f32[3, 2, 2], f32[3, 2, 8]"),
      example("%x: f32[3, 2, 6], %r: f32[6, 2], %b: f32[6], %h: f32[2, 2], %lengths: i32[2]",
              "%y, %g = gru %x, %r, %b, %h, %lengths {order = \"rzh\", reverse = true} : f32[3, 2, 2], f32[3, 2, 8]"),
      example("%x: f32[4, 3, 3], %r: f32[3, 1], %lengths: i32[3]",
              "%y, %g = gru %x, %r, _, _, %lengths : f32[4, 3, 1], f32[4, 3, 4]"),
      example("%x: f32[1, 1, 9], %r: f32[9, 3]", "%y, %g = gru %x, %r {reverse = true} : f32[1, 1, 3], f32[1, 1, 12]"),
      example("%x: f32[9, 1, 9], %r: f32[9, 3], %b: f32[9]",
              "%y, %g = gru %x, %r, %b {order = \"rzh\"} : f32[9, 1, 3], f32[9, 1, 12]"),
      example("%x: f32[2, 3, 57], %r: f32[57, 19], %b: f32[57]",
              "%y, %g = gru %x, %r, %b : f32[2, 3, 19], f32[2, 3, 76]"),
      example("%x: f32[3, 2, 6], %r: f32[6, 2]", "%y, _ = gru %x, %r : f32[3, 2, 2], _")};
}

} // namespace

std::vector<OpDef> define() {
  return {
      {
          .name = "gru",
          .summary = "The recurrent part of a GRU layer in one direction: all states Y from the input's part of the "
                     "gates X, which has the input's bias, the weights R with the recurrent bias B, and the state "
                     "before; the reset gate multiplies R's product",
          .onnx = {onnxMany("GRU", 3, convert, 7)},
          .operands = {{"X"},
                       {"R"},
                       {.name = "B", .optional = true},
                       {.name = "h0", .optional = true},
                       {.name = "lengths", .optional = true}},
          .results = {{"Y"}, {.name = "gates", .optional = true}},
          .attributes = {orderAttribute("zrh"), reverseAttribute()},
          .infer = inferForward,
          .precision = PrecisionClass::preferLow,
          .cost = cost,
          .gradient = gradient,
          .kernel = {.use = [](const Operation& op) { return kernelUse<pdcrt::Gru>("Gru", "forward", optionsOf(op)); }},
          .rewrites = {.evaluation = [](const Operation& op, Builder& b) -> std::vector<Value*> {
            Operation* made = b.create("gru", op.operands(), op.attributes, {true, false});
            return {made ? made->result(0) : nullptr, nullptr};
          }},
          .split = {.loops = alongBatch({{0}, {3, 4}}, {{0, 1}, {}})},
          .usage = {.initialValues = asRecurrent(/*firstState=*/3)},
          .reference = reference([]<class T>(ReferenceContext& c) { forwardReference<T>(c); }),
          .examples = examples(),
      },
      {
          .name = "gru_gradient",
          .summary = "Gradients of gru for X, for R's product A, from which those of R and B follow, and for the state "
                     "before",
          .operands = {{"dY"},
                       {"R"},
                       {"Y"},
                       {"gates"},
                       {.name = "h0", .optional = true},
                       {.name = "lengths", .optional = true}},
          .results = {{"dX"}, {"dA"}, {.name = "dh0", .optional = true}},
          .attributes = {orderAttribute("zrh"), reverseAttribute()},
          .infer = inferGradient,
          .precision = PrecisionClass::preferLow,
          .cost = cost,
          .kernel = {.use =
                         [](const Operation& op) { return kernelUse<pdcrt::Gru>("Gru", "gradient", optionsOf(op)); }},
          .split = {.loops = alongBatch({{0, 2, 3}, {4, 5}}, {{0, 1}, {2}})},
          .reference = reference([]<class T>(ReferenceContext& c) { gradientReference<T>(c); }),
          .examples = {example("%dy: f32[3, 2, 2], %r: f32[6, 2], %y: f32[3, 2, 2], %g: f32[3, 2, 8], %h: f32[2, 2], "
                               "%lengths: i32[2]",
                               "%dx, %da, %dh = gru_gradient %dy, %r, %y, %g, %h, %lengths {order = \"rzh\"} : "
                               "f32[3, 2, 6], f32[3, 2, 6], f32[2, 2]"),
                       example(
                           "%dy: f32[2, 3, 19], %r: f32[57, 19], %y: f32[2, 3, 19], %g: f32[2, 3, 76]",
                           "%dx, %da, %dh = gru_gradient %dy, %r, %y, %g : f32[2, 3, 57], f32[2, 3, 57], f32[3, 19]"),
                       example("%dy: f32[9, 1, 3], %r: f32[9, 3], %y: f32[9, 1, 3], %g: f32[9, 1, 12]",
                               "%dx, %da, _ = gru_gradient %dy, %r, %y, %g {reverse = true} : f32[9, 1, 9], "
                               "f32[9, 1, 9], _")},
      },
  };
}

} // namespace pdc::ops::Gru
