// LSTM layers (Hochreiter and Schmidhuber 1997, with forget gates): the recurrent part, its gradient, and ONNX's
// operator. Kernel: pdcrt::Lstm. Forms of ONNX that the kernel does not compute are unrolled over the steps.
#include "Kernels/KernelOptions.h"
#include "Raise/RaiseLstm.h"
#include "Shared/InitialValues.h"
#include "Shared/Recurrent.h"
#include "Shared/RecurrentOps.h"

#include <cmath>

namespace pdc::ops::Lstm {

namespace {

pdcrt::Lstm::Options optionsOf(const Operation& op, const Shape& gates) {
  return {.steps = gates[0],
          .batch = gates[1],
          .hidden = gates[2] / 4,
          .order = op.attributes.get<std::string>("order"),
          .reverse = op.attributes.get<bool>("reverse")};
}
pdcrt::Lstm::Options forwardOf(const Operation& op) {
  return optionsOf(op, operandType(op, 0).shape);
}
pdcrt::Lstm::Options backwardOf(const Operation& op) {
  return optionsOf(op, operandType(op, 4).shape);
}

Types inferForward(const InferContext& c) {
  const Expected<RecurrentTypes> types = recurrentTypes(c, "lstm", 0, 1, 4, /*allGates=*/true);
  if (!types || !requireOrder(c, "lstm", "iofc") || !requireOptional(c, "lstm", 2, types->state) ||
      !requireOptional(c, "lstm", 3, types->state) || !requireOptional(c, "lstm", 4, types->lengths))
    return failure;
  return std::vector<Type>{types->states, types->states, types->gates};
}

Types inferGradient(const InferContext& c) {
  const char* op = "lstm_gradient";
  const Expected<RecurrentTypes> types = recurrentTypes(c, op, 4, 2, 4, /*allGates=*/true);
  if (!types || !requireOrder(c, op, "iofc") || !requireOptional(c, op, 0, types->states) ||
      !requireOptional(c, op, 1, types->states) || !requireOptional(c, op, 3, types->states) ||
      !requireOptional(c, op, 5, types->state) || !requireOptional(c, op, 6, types->lengths))
    return failure;
  return std::vector<Type>{types->gates, types->state, types->state};
}

/// A product with R and about 30 operations per cell.
Cost cost(const Operation& op, const pdcrt::Lstm::Options& o) {
  const double cells = static_cast<double>(o.steps) * static_cast<double>(o.batch * o.hidden);
  return {.flops = cells * (8.0 * static_cast<double>(o.hidden) + 30), .bytes = bytesMoved(op)};
}

std::vector<Value*> gradient(GradientContext& g) {
  const Operation& op = g.op();
  Value *dy = g.resultGradient(0), *dc = g.resultGradient(1);
  std::vector<Value*> gradients(5, nullptr);
  if (!dy && !dc) return gradients;
  // One kernel yields the gradients of X and the initial state; that of R is a product of its own, which can wait.
  const bool initialState = op.operand(2) && g.wants(2), initialCells = op.operand(3) && g.wants(3);
  const std::size_t owner = g.wants(0) ? 0 : initialState ? 2 : initialCells ? 3 : 1;
  Operation* backward = g.create(owner, "lstm_gradient",
                                 {dy, dc, op.operand(1), op.result(1), op.result(2), op.operand(3), op.operand(4)},
                                 op.attributes, {true, initialState, initialCells});
  if (!backward) return gradients;
  gradients[0] = backward->result(0);
  gradients[2] = backward->result(1);
  gradients[3] = backward->result(2);
  if (!g.wants(1)) return gradients;
  Operation* weights = g.create(1, "recurrent_weight_gradient", {backward->result(0), op.result(0), op.operand(2)},
                                {{"reverse", op.attributes.get<bool>("reverse")}}, {true, false});
  if (weights) gradients[1] = weights->result(0);
  return gradients;
}

/// The gates of one cell of row b at step t: their positions in [steps, batch, gates].
struct Cell {
  std::size_t i, o, f, g;

  Cell(const pdcrt::Lstm::Options& layer, std::int64_t t, std::int64_t b, std::int64_t j) {
    const auto at = [&](char gate) {
      const std::size_t block = layer.order.find(gate);
      return static_cast<std::size_t>((t * layer.batch + b) * 4 * layer.hidden + j) +
             block * static_cast<std::size_t>(layer.hidden);
    };
    i = at('i'), o = at('o'), f = at('f'), g = at('c');
  }
};

template <class T>
T sigmoid(T x) {
  return 1 / (1 + std::exp(-x));
}

template <class T>
void forwardReference(ReferenceContext& c) {
  const pdcrt::Lstm::Options o = forwardOf(c.op);
  const auto x = c.in<T>(0), r = c.in<T>(1);
  const std::int64_t count = o.batch * o.hidden;
  const Tensor* lengths = optionalOperand(c, 4);
  std::vector<T> h = valuesOrZeros<T>(c, 2, count), cells = valuesOrZeros<T>(c, 3, count);
  for (std::int64_t n = 0; n < o.steps; ++n) {
    const std::int64_t t = o.reverse ? o.steps - 1 - n : n;
    std::vector<T> next = h;
    for (std::int64_t b = 0; b < o.batch; ++b)
      for (std::int64_t j = 0; j < o.hidden && running(lengths, b, t); ++j) {
        const Cell at(o, t, b, j), row(o, 0, 0, j);
        const auto sum = [&](std::size_t position, std::size_t weights) {
          T value = x[position];
          for (std::int64_t k = 0; k < o.hidden; ++k)
            value += h[b * o.hidden + k] * r[weights * static_cast<std::size_t>(o.hidden) + k];
          return value;
        };
        const T i = sigmoid(sum(at.i, row.i)), output = sigmoid(sum(at.o, row.o)), f = sigmoid(sum(at.f, row.f)),
                g = std::tanh(sum(at.g, row.g));
        T& cell = cells[b * o.hidden + j];
        cell = f * cell + i * g;
        next[b * o.hidden + j] = output * std::tanh(cell);
        if (!c.results[2]) continue;
        const auto gates = c.out<T>(2);
        gates[at.i] = i, gates[at.o] = output, gates[at.f] = f, gates[at.g] = g;
      }
    h = next;
    std::copy(h.begin(), h.end(), c.out<T>(0).begin() + t * o.batch * o.hidden);
    if (c.results[1]) std::copy(cells.begin(), cells.end(), c.out<T>(1).begin() + t * o.batch * o.hidden);
  }
}

template <class T>
void gradientReference(ReferenceContext& c) {
  const pdcrt::Lstm::Options o = backwardOf(c.op);
  const auto r = c.in<T>(2), cells = c.in<T>(3), gates = c.in<T>(4);
  const auto dx = c.out<T>(0);
  const Tensor* lengths = optionalOperand(c, 6);
  const std::int64_t count = o.batch * o.hidden;
  const std::vector<T> initial = valuesOrZeros<T>(c, 5, count);
  std::vector<T> dh(initial.size(), 0), dc(initial.size(), 0);
  for (std::int64_t n = o.steps - 1; n >= 0; --n) {
    const std::int64_t t = o.reverse ? o.steps - 1 - n : n, before = o.reverse ? t + 1 : t - 1;
    std::vector<T> dhBefore(initial.size(), 0);
    for (std::int64_t b = 0; b < o.batch; ++b)
      for (std::int64_t j = 0; j < o.hidden; ++j) {
        const std::int64_t state = b * o.hidden + j, position = t * o.batch * o.hidden + state;
        if (c.operands[0]) dh[state] += c.in<T>(0)[position];
        if (c.operands[1]) dc[state] += c.in<T>(1)[position];
        if (!running(lengths, b, t)) {
          dhBefore[state] += dh[state];
          continue;
        }
        const Cell at(o, t, b, j), row(o, 0, 0, j);
        const T i = gates[at.i], output = gates[at.o], f = gates[at.f], g = gates[at.g];
        const T cellBefore = n > 0 ? cells[before * o.batch * o.hidden + state] : initial[state];
        const T squashed = std::tanh(cells[position]);
        const T dcell = dc[state] + dh[state] * output * (1 - squashed * squashed);
        dx[at.i] = dcell * g * i * (1 - i);
        dx[at.o] = dh[state] * squashed * output * (1 - output);
        dx[at.f] = dcell * cellBefore * f * (1 - f);
        dx[at.g] = dcell * i * (1 - g * g);
        dc[state] = dcell * f;
        for (auto [gate, weights] : {std::pair{at.i, row.i}, {at.o, row.o}, {at.f, row.f}, {at.g, row.g}})
          for (std::int64_t k = 0; k < o.hidden; ++k)
            dhBefore[b * o.hidden + k] += dx[gate] * r[weights * static_cast<std::size_t>(o.hidden) + k];
      }
    dh = dhBefore;
  }
  if (c.results[1]) std::copy(dh.begin(), dh.end(), c.out<T>(1).begin());
  if (c.results[2]) std::copy(dc.begin(), dc.end(), c.out<T>(2).begin());
}

/// One direction by the op.
RecurrentStates layer(RecurrentNode& node, const RecurrentDirection& d) {
  OnnxReader& n = node.n;
  Value* gates = node.projection(d, node.sumOfBiases(d));
  Operation* op =
      gates ? create(n, "lstm", {gates, d.r, d.h0, d.c0, node.lengths}, {{"order", d.order}, {"reverse", d.reverse}})
            : nullptr;
  if (!op) return {};
  RecurrentStates states{.y = op->result(0)};
  if (n.used(2))
    states.lastCells =
        n.reshape(sliced(n, op->result(1), 0, d.reverse ? 0 : node.steps - 1, 1), {node.batch, node.hidden});
  return states;
}

/// One direction step by step, with peepholes (Gers and Schmidhuber 2000), clipping, and the forget gate 1 - i.
RecurrentStates unrolled(RecurrentNode& node, const RecurrentDirection& d, bool inputForget) {
  OnnxReader& n = node.n;
  Unrolled u(node, d, node.projection(d, node.sumOfBiases(d)));
  const auto peephole = [&](std::int64_t gate) {
    return d.peepholes ? sliced(n, d.peepholes, 0, gate * node.hidden, node.hidden) : nullptr;
  };
  Value *toInput = peephole(0), *toOutput = peephole(1), *toForget = peephole(2);
  return u.run([&](Value* input, Value* h, Value* c) -> std::array<Value*, 2> {
    Value* all = u.add(input, u.recurrent(h, d.r));
    if (!all) return {};
    Value* i = u.activate(0, u.add(u.gate(all, 'i'), u.multiply(toInput, c)));
    Value* g = u.activate(1, u.gate(all, 'c'));
    Value* f = inputForget ? n.value("sub", {n.b.constant(1, i->type().element), i})
                           : u.activate(0, u.add(u.gate(all, 'f'), u.multiply(toForget, c)));
    Value* cell = u.add(u.multiply(f, c), u.multiply(i, g));
    Value* o = u.activate(0, u.add(u.gate(all, 'o'), u.multiply(toOutput, cell)));
    return {u.multiply(o, u.activate(2, cell)), cell};
  });
}

Expected<std::vector<Value*>> convert(OnnxReader& n) {
  RecurrentNode node(n, "iofc", {"Sigmoid", "Tanh", "Tanh"});
  if (!node.read()) return failure;
  const bool inputForget = n.integer("input_forget", 0) != 0;
  std::vector<RecurrentStates> states;
  for (const RecurrentDirection& d : node.directions) {
    const bool standard = d.activatedBy({"sigmoid", "tanh", "tanh"}) && !d.peepholes && node.clip == 0 && !inputForget;
    states.push_back(standard ? layer(node, d) : unrolled(node, d, inputForget));
    if (!states.back().y) return failure;
  }
  return node.outputs(states);
}

/// Shapes that differ in everything: initial state or none, one step, one row, rows that end early, both orders, more
/// units than fit into one register, so many steps that the weights are packed.
std::vector<std::string> examples() {
  const auto text = [](const std::string& sizes, const std::string& more, const std::string& operands,
                       const std::string& options, const std::string& results) {
    return example(sizes + more, "%y, %c, %g = lstm %x, %r" + operands + options + " : " + results);
  };
  const std::string state = ", %h: f32[2, 2], %c0: f32[2, 2]", both = "f32[3, 2, 2], f32[3, 2, 2], f32[3, 2, 8]";
  return {text("%x: f32[3, 2, 8], %r: f32[8, 2]", state, ", %h, %c0", "", both),
          text("%x: f32[3, 2, 8], %r: f32[8, 2]", state, ", %h, %c0", " {order = \"ifco\", reverse = true}", both),
          text("%x: f32[3, 2, 8], %r: f32[8, 2]", state + ", %lengths: i32[2]", ", %h, %c0, %lengths", "", both),
          text("%x: f32[4, 3, 4], %r: f32[4, 1]", ", %lengths: i32[3]", ", _, _, %lengths", " {reverse = true}",
               "f32[4, 3, 1], f32[4, 3, 1], f32[4, 3, 4]"),
          text("%x: f32[1, 1, 12], %r: f32[12, 3]", "", "", "", "f32[1, 1, 3], f32[1, 1, 3], f32[1, 1, 12]"),
          text("%x: f32[9, 1, 12], %r: f32[12, 3]", "", "", " {order = \"ifco\"}",
               "f32[9, 1, 3], f32[9, 1, 3], f32[9, 1, 12]"),
          text("%x: f32[1, 2, 8], %r: f32[8, 2]", ", %c0: f32[2, 2]", ", _, %c0", " {reverse = true}",
               "f32[1, 2, 2], f32[1, 2, 2], f32[1, 2, 8]"),
          example("%x: f32[3, 2, 76], %r: f32[76, 19]",
                  "%y, %c, %g = lstm %x, %r : f32[3, 2, 19], f32[3, 2, 19], f32[3, 2, 76]"),
          example("%x: f32[3, 2, 8], %r: f32[8, 2]", "%y, _, _ = lstm %x, %r : f32[3, 2, 2], _, _")};
}

} // namespace

std::vector<OpDef> define() {
  return {
      {
          .name = "lstm",
          .summary = "The recurrent part of an LSTM layer in one direction: all states Y and cells C from the input's "
                     "part of the gates X, which has all biases, the weights R and the state before",
          .onnx = {onnxMany("LSTM", 3, convert, 7)},
          .operands = {{"X"},
                       {"R"},
                       {.name = "h0", .optional = true},
                       {.name = "c0", .optional = true},
                       {.name = "lengths", .optional = true}},
          .results = {{"Y"}, {.name = "C", .optional = true}, {.name = "gates", .optional = true}},
          .attributes = {orderAttribute("iofc"), reverseAttribute()},
          .infer = inferForward,
          .precision = PrecisionClass::preferLow,
          .cost = [](const Operation& op) { return cost(op, forwardOf(op)); },
          .gradient = gradient,
          .kernel = {.use =
                         [](const Operation& op) { return kernelUse<pdcrt::Lstm>("Lstm", "forward", forwardOf(op)); }},
          .rewrites = {.evaluation = [](const Operation& op, Builder& b) -> std::vector<Value*> {
                         const Value* cells = op.result(1);
                         const bool keepsCells = cells && (!cells->users().empty() || b.graph().isOutput(cells));
                         Operation* made = b.create("lstm", op.operands(), op.attributes, {true, keepsCells, false});
                         return {made ? made->result(0) : nullptr, made ? made->result(1) : nullptr, nullptr};
                       },
                       .raise = raiseLstm},
          .split = {.loops = alongBatch({{0}, {2, 3, 4}}, {{0, 1, 2}, {}})},
          .usage = {.initialValues = asRecurrent(/*firstState=*/2)},
          .reference = reference([]<class T>(ReferenceContext& c) { forwardReference<T>(c); }),
          .examples = examples(),
      },
      {
          .name = "lstm_gradient",
          .summary = "Gradients of lstm for X and the state before; dX is also that of the gates, from which that of R "
                     "follows",
          .operands = {{.name = "dY", .optional = true},
                       {.name = "dC", .optional = true},
                       {"R"},
                       {"C"},
                       {"gates"},
                       {.name = "c0", .optional = true},
                       {.name = "lengths", .optional = true}},
          .results = {{"dX"}, {.name = "dh0", .optional = true}, {.name = "dc0", .optional = true}},
          .attributes = {orderAttribute("iofc"), reverseAttribute()},
          .infer = inferGradient,
          .precision = PrecisionClass::preferLow,
          .cost = [](const Operation& op) { return cost(op, backwardOf(op)); },
          .kernel =
              {.use = [](const Operation& op) { return kernelUse<pdcrt::Lstm>("Lstm", "gradient", backwardOf(op)); }},
          .split = {.loops = alongBatch({{3, 0, 1, 4}, {5, 6}}, {{0}, {1, 2}})},
          .reference = reference([]<class T>(ReferenceContext& c) { gradientReference<T>(c); }),
          .examples = {example(
                           "%dy: f32[3, 2, 2], %dc: f32[3, 2, 2], %r: f32[8, 2], %c: f32[3, 2, 2], %g: f32[3, 2, 8], "
                           "%c0: f32[2, 2], %lengths: i32[2]",
                           "%dx, %dh, %dc0 = lstm_gradient %dy, %dc, %r, %c, %g, %c0, %lengths {order = \"ifco\"} "
                           ": f32[3, 2, 8], f32[2, 2], f32[2, 2]"),
                       example("%dy: f32[2, 3, 19], %r: f32[76, 19], %c: f32[2, 3, 19], %g: f32[2, 3, 76]",
                               "%dx, %dh, %dc0 = lstm_gradient %dy, _, %r, %c, %g : f32[2, 3, 76], f32[3, 19], "
                               "f32[3, 19]"),
                       example("%dy: f32[9, 1, 3], %r: f32[12, 3], %c: f32[9, 1, 3], %g: f32[9, 1, 12]",
                               "%dx, _, _ = lstm_gradient %dy, _, %r, %c, %g {reverse = true} : f32[9, 1, 12], _, _")},
      },
  };
}

} // namespace pdc::ops::Lstm
