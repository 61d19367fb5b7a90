// Simple recurrent layers (Elman 1990): the recurrent part, its gradient, and ONNX's operator. Kernel: pdcrt::Rnn.
// Other activations than tanh and relu are unrolled over the steps.
#include "Kernels/KernelOptions.h"
#include "Shared/InitialValues.h"
#include "Shared/Recurrent.h"
#include "Shared/RecurrentOps.h"

#include <cmath>

namespace pdc::ops::Rnn {

namespace {

pdcrt::Rnn::Options optionsOf(const Operation& op) {
  const Shape& states = operandType(op, 0).shape;
  return {.steps = states[0],
          .batch = states[1],
          .hidden = states[2],
          .relu = op.attributes.get<bool>("relu"),
          .reverse = op.attributes.get<bool>("reverse")};
}

Types inferForward(const InferContext& c) {
  const Expected<RecurrentTypes> types = recurrentTypes(c, "rnn", 0, 1, 1, /*allGates=*/true);
  if (!types || !requireOptional(c, "rnn", 2, types->state) || !requireOptional(c, "rnn", 3, types->lengths))
    return failure;
  return std::vector<Type>{types->states};
}

Types inferGradient(const InferContext& c) {
  const Expected<RecurrentTypes> types = recurrentTypes(c, "rnn_gradient", 0, 1, 1, /*allGates=*/true);
  if (!types || !requireOptional(c, "rnn_gradient", 2, types->states) ||
      !requireOptional(c, "rnn_gradient", 3, types->lengths))
    return failure;
  return std::vector<Type>{types->states, types->state};
}

Cost cost(const Operation& op) {
  const pdcrt::Rnn::Options o = optionsOf(op);
  const double cells = static_cast<double>(o.steps) * static_cast<double>(o.batch * o.hidden);
  return {.flops = cells * (2.0 * static_cast<double>(o.hidden) + 10), .bytes = bytesMoved(op)};
}

std::vector<Value*> gradient(GradientContext& g) {
  const Operation& op = g.op();
  std::vector<Value*> gradients(4, nullptr);
  if (!g.resultGradient(0)) return gradients;
  const bool initialState = op.operand(2) && g.wants(2);
  Operation* backward = g.create(g.wants(0)     ? 0
                                 : initialState ? 2
                                                : 1,
                                 "rnn_gradient", {g.resultGradient(0), op.operand(1), op.result(0), op.operand(3)},
                                 op.attributes, {true, initialState});
  if (!backward) return gradients;
  gradients[0] = backward->result(0);
  gradients[2] = backward->result(1);
  if (!g.wants(1)) return gradients;
  Operation* weights = g.create(1, "recurrent_weight_gradient", {backward->result(0), op.result(0), op.operand(2)},
                                {{"reverse", op.attributes.get<bool>("reverse")}}, {true, false});
  if (weights) gradients[1] = weights->result(0);
  return gradients;
}

template <class T>
void forwardReference(ReferenceContext& c) {
  const pdcrt::Rnn::Options o = optionsOf(c.op);
  const auto x = c.in<T>(0), r = c.in<T>(1);
  std::vector<T> h = valuesOrZeros<T>(c, 2, o.batch * o.hidden);
  for (std::int64_t n = 0; n < o.steps; ++n) {
    const std::int64_t t = o.reverse ? o.steps - 1 - n : n;
    std::vector<T> next = h;
    for (std::int64_t b = 0; b < o.batch; ++b)
      for (std::int64_t j = 0; j < o.hidden && running(optionalOperand(c, 3), b, t); ++j) {
        T a = x[(t * o.batch + b) * o.hidden + j];
        for (std::int64_t k = 0; k < o.hidden; ++k) a += h[b * o.hidden + k] * r[j * o.hidden + k];
        next[b * o.hidden + j] = o.relu ? std::max(a, T(0)) : std::tanh(a);
      }
    h = next;
    std::copy(h.begin(), h.end(), c.out<T>(0).begin() + t * o.batch * o.hidden);
  }
}

template <class T>
void gradientReference(ReferenceContext& c) {
  const pdcrt::Rnn::Options o = optionsOf(c.op);
  const auto dy = c.in<T>(0), r = c.in<T>(1), y = c.in<T>(2);
  const auto dx = c.out<T>(0);
  std::vector<T> dh(static_cast<std::size_t>(o.batch * o.hidden), T(0));
  for (std::int64_t n = o.steps - 1; n >= 0; --n) {
    const std::int64_t t = o.reverse ? o.steps - 1 - n : n;
    std::vector<T> dhBefore(dh.size(), T(0));
    for (std::int64_t b = 0; b < o.batch; ++b)
      for (std::int64_t j = 0; j < o.hidden; ++j) {
        const std::int64_t state = b * o.hidden + j, position = t * o.batch * o.hidden + state;
        dh[state] += dy[position];
        if (!running(optionalOperand(c, 3), b, t)) {
          dhBefore[state] += dh[state];
          continue;
        }
        dx[position] = dh[state] * (o.relu ? T(y[position] > 0) : 1 - y[position] * y[position]);
        for (std::int64_t k = 0; k < o.hidden; ++k) dhBefore[b * o.hidden + k] += dx[position] * r[j * o.hidden + k];
      }
    dh = dhBefore;
  }
  if (c.results[1]) std::copy(dh.begin(), dh.end(), c.out<T>(1).begin());
}

RecurrentStates statesOf(RecurrentNode& node, const RecurrentDirection& d) {
  Value* input = node.projection(d, node.sumOfBiases(d));
  const bool relu = d.activatedBy({"relu"});
  if (node.clip == 0 && (relu || d.activatedBy({"tanh"}))) {
    Operation* op =
        input ? create(node.n, "rnn", {input, d.r, d.h0, node.lengths}, {{"relu", relu}, {"reverse", d.reverse}})
              : nullptr;
    return {op ? op->result(0) : nullptr};
  }
  Unrolled u(node, d, input);
  return u.run([&](Value* x, Value* h, Value*) -> std::array<Value*, 2> {
    return {u.activate(0, u.add(x, u.recurrent(h, d.r))), nullptr};
  });
}

Expected<std::vector<Value*>> convert(OnnxReader& n) {
  RecurrentNode node(n, "h", {"Tanh"});
  if (!node.read()) return failure;
  std::vector<RecurrentStates> states;
  for (const RecurrentDirection& d : node.directions) {
    states.push_back(statesOf(node, d));
    if (!states.back().y) return failure;
  }
  return node.outputs(states);
}

std::vector<std::string> examples() {
  return {example("%x: f32[3, 2, 4], %r: f32[4, 4], %h: f32[2, 4]", "%y = rnn %x, %r, %h : f32[3, 2, 4]"),
          example("%x: f32[3, 2, 4], %r: f32[4, 4], %h: f32[2, 4], %lengths: i32[2]",
                  "%y = rnn %x, %r, %h, %lengths {reverse = true} : f32[3, 2, 4]"),
          example("%x: f32[4, 3, 2], %r: f32[2, 2], %lengths: i32[3]", "%y = rnn %x, %r, _, %lengths : f32[4, 3, 2]"),
          example("%x: f32[1, 1, 3], %r: f32[3, 3]", "%y = rnn %x, %r {relu = true} : f32[1, 1, 3]"),
          example("%x: f32[2, 3, 19], %r: f32[19, 19]", "%y = rnn %x, %r : f32[2, 3, 19]"),
          example("%x: f32[9, 1, 2], %r: f32[2, 2]", "%y = rnn %x, %r {relu = true, reverse = true} : f32[9, 1, 2]")};
}

} // namespace

std::vector<OpDef> define() {
  const std::vector<AttributeDef> attributes = {boolean("relu", false, "whether relu takes the place of tanh"),
                                                reverseAttribute()};
  return {
      {
          .name = "rnn",
          .summary = "The recurrent part of a simple recurrent layer in one direction: all states Y from the input's "
                     "part X, which has all biases, the weights R and the state before",
          .onnx = {onnxMany("RNN", 3, convert, 7)},
          .operands = {{"X"}, {"R"}, {.name = "h0", .optional = true}, {.name = "lengths", .optional = true}},
          .results = {{"Y"}},
          .attributes = attributes,
          .infer = inferForward,
          .precision = PrecisionClass::preferLow,
          .cost = cost,
          .gradient = gradient,
          .kernel = {.use = [](const Operation& op) { return kernelUse<pdcrt::Rnn>("Rnn", "forward", optionsOf(op)); }},
          .split = {.loops = alongBatch({{0}, {2, 3}}, {{0}, {}})},
          .usage = {.initialValues = asRecurrent(/*firstState=*/2)},
          .reference = reference([]<class T>(ReferenceContext& c) { forwardReference<T>(c); }),
          .examples = examples(),
      },
      {
          .name = "rnn_gradient",
          .summary = "Gradients of rnn for X and the state before, from which that of R follows",
          .operands = {{"dY"}, {"R"}, {"Y"}, {.name = "lengths", .optional = true}},
          .results = {{"dX"}, {.name = "dh0", .optional = true}},
          .attributes = attributes,
          .infer = inferGradient,
          .precision = PrecisionClass::preferLow,
          .cost = cost,
          .kernel = {.use =
                         [](const Operation& op) { return kernelUse<pdcrt::Rnn>("Rnn", "gradient", optionsOf(op)); }},
          .split = {.loops = alongBatch({{0, 2}, {3}}, {{0}, {1}})},
          .reference = reference([]<class T>(ReferenceContext& c) { gradientReference<T>(c); }),
          .examples = {example("%dy: f32[3, 2, 4], %r: f32[4, 4], %y: f32[3, 2, 4], %lengths: i32[2]",
                               "%dx, %dh = rnn_gradient %dy, %r, %y, %lengths : f32[3, 2, 4], f32[2, 4]"),
                       example("%dy: f32[2, 3, 19], %r: f32[19, 19], %y: f32[2, 3, 19]",
                               "%dx, %dh = rnn_gradient %dy, %r, %y : f32[2, 3, 19], f32[3, 19]"),
                       example("%dy: f32[9, 1, 2], %r: f32[2, 2], %y: f32[9, 1, 2]",
                               "%dx, _ = rnn_gradient %dy, %r, %y {relu = true, reverse = true} : f32[9, 1, 2], _")},
      },
  };
}

} // namespace pdc::ops::Rnn
