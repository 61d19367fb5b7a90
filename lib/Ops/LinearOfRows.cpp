// A linear layer of which some rows have no readers: what `skip-padding` makes of `linear` where a mask says which
// positions of a text are padding.
#include "Kernels/KernelOptions.h"
#include "Shared/Define.h"
#include "Shared/LoopsOf.h"

namespace pdc::ops::LinearOfRows {

namespace {

struct Sizes {
  std::int64_t rows, inputs, outputs;
};

Sizes sizesOf(const Operation& op) {
  const Shape &x = operandType(op, 0).shape, &y = resultType(op).shape;
  return {product(x, 0, x.size() - 1), x.back(), y.back()};
}

int inputAxis(const Operation& op) {
  return op.attributes.get<bool>("transposed") ? 1 : 0;
}

pdcrt::LinearOfRows::Options optionsOf(const Operation& op) {
  const Sizes s = sizesOf(op);
  return {.rows = s.rows,
          .inputs = s.inputs,
          .outputs = s.outputs,
          .transposed = op.attributes.get<bool>("transposed"),
          .bias = op.operand(3) != nullptr};
}

Expected<std::vector<Type>> infer(const InferContext& c) {
  const Type &x = c.operand(0), &w = c.operand(1), &live = c.operand(2);
  if (x.rank() < 1 || w.rank() != 2)
    return c.error() << "'linear_of_rows' op needs X of at least 1 dimension and W of 2, got " << toString(x) << " and "
                     << toString(w);
  const bool transposed = c.attributes.get<bool>("transposed");
  const std::int64_t inputs = w.shape[transposed ? 1 : 0], outputs = w.shape[transposed ? 0 : 1];
  if (x.shape.back() != inputs)
    return c.error() << "'linear_of_rows' op multiplies rows of " << x.shape.back() << " by W with " << inputs
                     << " inputs";
  if (live.shape != Shape(x.shape.begin(), x.shape.end() - 1) || live.element != ElementType::f32)
    return c.error() << "'linear_of_rows' op needs one f32 in `live` for each row of " << toString(x) << ", got "
                     << toString(live);
  if (c.operands.size() > 3 && c.operands[3] && c.operands[3]->shape != Shape{outputs})
    return c.error() << "'linear_of_rows' op has " << outputs << " outputs and a bias of " << toString(*c.operands[3]);
  Type y = x;
  y.shape.back() = outputs;
  return std::vector{y};
}

/// Rows and outputs are free.
Loops loops(const Operation& op) {
  Loops loops(op);
  addAxes(loops, op, {.end = -1, .operands = {0, 2}, .results = {0}});
  addIndex(loops, op,
           {.size = sizesOf(op).outputs, .operands = {{1, 1 - inputAxis(op)}, {3, 0}}, .results = {{0, -1}}});
  return loops;
}

template <class T>
void compute(ReferenceContext& c) {
  const Sizes s = sizesOf(c.op);
  const bool transposed = c.op.attributes.get<bool>("transposed");
  const auto x = c.in<T>(0), w = c.in<T>(1), live = c.in<T>(2);
  const auto y = c.out<T>(0);
  for (std::int64_t row = 0; row < s.rows; ++row)
    for (std::int64_t output = 0; output < s.outputs; ++output) {
      T sum = c.operands.size() > 3 && c.operands[3] ? c.in<T>(3)[output] : T(0);
      for (std::int64_t input = 0; input < s.inputs; ++input)
        sum += x[row * s.inputs + input] * w[transposed ? output * s.inputs + input : input * s.outputs + output];
      y[row * s.outputs + output] = live[row] != T(0) ? sum : T(0);
    }
}

} // namespace

std::vector<OpDef> define() {
  return {
      {.name = "linear_of_rows",
       .summary = "Y = X · W + B over the last axis of X in the rows where live is not 0, zeros in the others",
       .operands = {{"X"}, {"W"}, {"live"}, {.name = "B", .optional = true}},
       .results = {{"Y"}},
       .attributes = {boolean("transposed", false, "whether W is [outputs, inputs], and not [inputs, outputs]")},
       .infer = infer,
       .precision = PrecisionClass::keepHigh,
       .cost =
           [](const Operation& op) {
             const Sizes s = sizesOf(op);
             return Cost{.flops = 2.0 * static_cast<double>(s.rows) * static_cast<double>(s.inputs) *
                                  static_cast<double>(s.outputs),
                         .bytes = bytesMoved(op)};
           },
       .kernel = {.use =
                      [](const Operation& op) {
                        return kernelUse<pdcrt::LinearOfRows>("LinearOfRows", "forward", optionsOf(op));
                      }},
       .split = {.loops = loops},
       .reference = reference([]<class T>(ReferenceContext& c) { compute<T>(c); }),
       .examples = {example("%x: f32[4, 3], %w: f32[3, 5], %b: f32[5]",
                            "%live = constant {value = dense<f32[4], [1.0, 0.0, 0.5, 0.0]>} : f32[4]\n"
                            "%y = linear_of_rows %x, %w, %live, %b : f32[4, 5]"),
                    example("%x: f32[2, 3, 4], %w: f32[2, 4], %live: f32[2, 3]",
                            "%y = linear_of_rows %x, %w, %live {transposed = true} : f32[2, 3, 2]"),
                    example("%x: f32[2, 3, 2], %w: f32[2, 4], %b: f32[4]",
                            "%live = constant {value = dense<f32[2, 3], [1.0, 1.0, 0.0, 0.0, 0.0, 0.0]>} : f32[2, 3]\n"
                            "%y = linear_of_rows %x, %w, %live, %b : f32[2, 3, 4]")}}};
}

} // namespace pdc::ops::LinearOfRows
