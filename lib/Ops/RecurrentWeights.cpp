// The gradient of the recurrent weights of LSTM, GRU and RNN. Kernel: pdcrt::RecurrentWeights.
#include "Kernels/KernelOptions.h"
#include "Shared/LoopsOf.h"
#include "Shared/RecurrentOps.h"

namespace pdc::ops::RecurrentWeights {

namespace {

pdcrt::RecurrentWeights::Options optionsOf(const Operation& op) {
  const Shape &da = operandType(op, 0).shape, &y = operandType(op, 1).shape;
  return {
      .steps = da[0], .batch = da[1], .hidden = y[2], .gates = da[2], .reverse = op.attributes.get<bool>("reverse")};
}

Types infer(const InferContext& c) {
  const char* op = "recurrent_weight_gradient";
  if (!requireFloat(c, op, 0, 3, 3) || !requireFloat(c, op, 1, 3, 3)) return failure;
  const Type &da = c.operand(0), &y = c.operand(1);
  const ElementType element = da.element;
  if (!requireType(c, op, 1, {element, {da.shape[0], da.shape[1], y.shape[2]}}, "dA")) return failure;
  if (has(c, 2) && !requireType(c, op, 2, {element, {da.shape[1], y.shape[2]}}, "Y")) return failure;
  return std::vector<Type>{{element, {da.shape[2], y.shape[2]}}, {element, {da.shape[2]}}};
}

/// The batch is summed; rows and columns of dR are free.
Loops weightLoops(const Operation& op) {
  Loops loops(op);
  const pdcrt::RecurrentWeights::Options o = optionsOf(op);
  addIndex(loops, op, {.size = o.batch, .operands = {{0, 1}, {1, 1}, {2, 0}}, .results = {}, .reduced = {0, 1}});
  addIndex(loops, op, {.size = o.gates, .operands = {{0, 2}}, .results = {{0, 0}, {1, 0}}});
  addIndex(loops, op, {.size = o.hidden, .operands = {{1, 2}, {2, 1}}, .results = {{0, 1}}});
  return loops;
}

template <class T>
void weightGradientReference(ReferenceContext& c) {
  const pdcrt::RecurrentWeights::Options o = optionsOf(c.op);
  const auto da = c.in<T>(0), y = c.in<T>(1);
  const auto dr = c.out<T>(0);
  const bool initial = optionalOperand(c, 2);
  for (std::int64_t t = 0; t < o.steps; ++t)
    for (std::int64_t b = 0; b < o.batch; ++b) {
      const std::int64_t before = o.reverse ? t + 1 : t - 1;
      const bool first = before < 0 || before == o.steps;
      for (std::int64_t g = 0; g < o.gates; ++g) {
        const T gradient = da[(t * o.batch + b) * o.gates + g];
        if (c.results[1]) c.out<T>(1)[g] += gradient;
        for (std::int64_t j = 0; j < o.hidden && (!first || initial); ++j)
          dr[g * o.hidden + j] +=
              gradient * (first ? c.in<T>(2)[b * o.hidden + j] : y[(before * o.batch + b) * o.hidden + j]);
      }
    }
}

} // namespace

std::vector<OpDef> define() {
  return {{
      .name = "recurrent_weight_gradient",
      .summary = "Gradients of a recurrent layer for R and its bias: dR = sum over steps of transposed dA · the state "
                 "before, dB the sum of dA",
      .operands = {{"dA"}, {"Y"}, {.name = "h0", .optional = true}},
      .results = {{"dR"}, {.name = "dB", .optional = true}},
      .attributes = {reverseAttribute()},
      .infer = infer,
      .precision = PrecisionClass::preferLow,
      .cost =
          [](const Operation& op) {
            return Cost{.flops = 2.0 * static_cast<double>(operandType(op, 0).elements()) *
                                 static_cast<double>(operandType(op, 1).shape[2]),
                        .bytes = bytesMoved(op)};
          },
      .kernel = {.use =
                     [](const Operation& op) {
                       return kernelUse<pdcrt::RecurrentWeights>("RecurrentWeights", "gradient", optionsOf(op));
                     }},
      .split = {.loops = weightLoops},
      .reference = reference([]<class T>(ReferenceContext& c) { weightGradientReference<T>(c); }),
      .examples = {example("%da: f32[3, 2, 8], %y: f32[3, 2, 5], %h: f32[2, 5]",
                           "%dr, %db = recurrent_weight_gradient %da, %y, %h : f32[8, 5], f32[8]"),
                   example("%da: f32[3, 2, 4], %y: f32[3, 2, 4], %h: f32[2, 4]",
                           "%dr, _ = recurrent_weight_gradient %da, %y, %h {reverse = true} : f32[4, 4], _"),
                   example("%da: f32[4, 1, 4], %y: f32[4, 1, 2]",
                           "%dr, _ = recurrent_weight_gradient %da, %y : f32[4, 2], _"),
                   example("%da: f32[1, 3, 4], %y: f32[1, 3, 1]",
                           "%dr, %db = recurrent_weight_gradient %da, %y {reverse = true} : f32[4, 1], f32[4]")},
  }};
}

} // namespace pdc::ops::RecurrentWeights
