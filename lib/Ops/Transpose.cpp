// Permutation of axes. Kernel: pdcrt::Transpose.
#include "Convert/Onnx.h"
#include "Kernels/KernelOptions.h"
#include "Shared/Define.h"
#include "Shared/LoopsOf.h"

#include <algorithm>
#include <numeric>

namespace pdc::ops::Transpose {

namespace {

const std::vector<std::int64_t>& permutationOf(const Operation& op) {
  return op.attributes.getInts("permutation");
}

/// The permutation that undoes `permutation`.
std::vector<std::int64_t> inverse(const std::vector<std::int64_t>& permutation) {
  std::vector<std::int64_t> result(permutation.size());
  for (std::size_t i = 0; i < permutation.size(); ++i)
    result[static_cast<std::size_t>(permutation[i])] = static_cast<std::int64_t>(i);
  return result;
}

Value* convert(OnnxReader& n) {
  std::vector<std::int64_t> reversed(n.type(0).shape.size());
  std::iota(reversed.rbegin(), reversed.rend(), 0);
  return n.transpose(n.input(0), n.integers("perm", reversed));
}

Types infer(const InferContext& c) {
  if (!requireRank(c, "transpose", 0)) return failure;
  const std::vector<std::int64_t>& permutation = integersOf(c, "permutation");
  std::vector<std::int64_t> sorted = permutation, all(c.operand(0).shape.size());
  std::sort(sorted.begin(), sorted.end());
  std::iota(all.begin(), all.end(), 0);
  if (sorted != all)
    return c.error() << "'transpose' op has permutation " << toString(permutation) << ", which is none of the axes of "
                     << toString(c.operand(0));
  Type y{c.operand(0).element, {}};
  for (std::int64_t axis : permutation) y.shape.push_back(c.operand(0).shape[static_cast<std::size_t>(axis)]);
  return std::vector<Type>{y};
}

/// Removes what changes nothing and merges two in a row.
Value* simplified(Operation& op, Builder& b) {
  Value* x = op.operand(0);
  const std::vector<std::int64_t>& second = permutationOf(op);
  if (std::is_sorted(second.begin(), second.end())) return x;
  if (!x->definer() || &x->definer()->def() != &op.def()) return nullptr;
  const std::vector<std::int64_t>& first = permutationOf(*x->definer());
  std::vector<std::int64_t> both;
  for (std::int64_t axis : second) both.push_back(first[static_cast<std::size_t>(axis)]);
  return b.value(op.def().name, {x->definer()->operand(0)}, {{"permutation", both}});
}

Loops transposeLoops(const Operation& op) {
  Loops loops(op);
  for (int axis = 0; axis < resultType(op).rank(); ++axis) {
    const auto i = static_cast<std::size_t>(axis);
    addIndex(loops, op,
             {.size = resultType(op).shape[i],
              .operands = {{0, static_cast<int>(permutationOf(op)[i])}},
              .results = {{0, axis}}});
  }
  return loops;
}

std::vector<std::string> examples() {
  const auto text = [](const char* x, const char* permutation, const char* y) {
    return example("%x: " + std::string(x),
                   "%y = transpose %x {permutation = " + std::string(permutation) + "} : " + y);
  };
  return {text("f32[2, 3]", "[1, 0]", "f32[3, 2]"),
          text("f32[2, 3, 4]", "[0, 2, 1]", "f32[2, 4, 3]"),
          text("f32[2, 3, 4]", "[2, 0, 1]", "f32[4, 2, 3]"),
          text("f32[1, 2, 3, 2]", "[0, 2, 1, 3]", "f32[1, 3, 2, 2]"),
          text("f32[5]", "[0]", "f32[5]"),
          text("i64[2, 3]", "[1, 0]", "i64[3, 2]"),
          text("bool[3, 1, 2]", "[2, 1, 0]", "bool[2, 1, 3]")};
}

} // namespace

std::vector<OpDef> define() {
  return {{
      .name = "transpose",
      .summary = "Axis i of Y is axis permutation[i] of X",
      .onnx = {onnx("Transpose", 1, convert)},
      .operands = {{"X"}},
      .results = {{"Y"}},
      .attributes = {integers("permutation", std::nullopt, "axes of X in the order in which Y has them")},
      .infer = infer,
      .cost = moveCost,
      .gradient = [](GradientContext& g) -> std::vector<Value*> {
        if (!g.resultGradient(0)) return {nullptr};
        return {g.value(0, "transpose", {g.resultGradient(0)}, {{"permutation", inverse(permutationOf(g.op()))}})};
      },
      .kernel = {.use =
                     [](const Operation& op) {
                       return kernelUse<pdcrt::Transpose>(
                           "Transpose", "forward",
                           {.input = toRuntime(operandType(op, 0).shape), .permutation = axesOf(permutationOf(op))});
                     }},
      .rewrites = {.canonicalize = simplified},
      .split = {.loops = transposeLoops},
      .reference = moving([](ReferenceContext& c) {
        visitBytes(*c.operands[0], *c.results[0], [&](auto x, auto y) {
          const std::vector<std::int64_t> strides = stridesOf(resultType(c.op).shape);
          const std::vector<std::int64_t> back = inverse(permutationOf(c.op));
          std::vector<std::int64_t> stridesOfX;
          for (std::int64_t axis : back) stridesOfX.push_back(strides[static_cast<std::size_t>(axis)]);
          forEachIndex(operandType(c.op, 0).shape,
                       [&, at = std::size_t{0}](const std::vector<std::int64_t>& i) mutable {
                         y[static_cast<std::size_t>(dot(i, stridesOfX))] = x[at++];
                       });
        });
      }),
      .examples = examples(),
      .facts = {.moves = true, .permutes = true},
  }};
}

} // namespace pdc::ops::Transpose
