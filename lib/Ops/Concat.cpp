// Concatenation along an axis. Kernel: pdcrt::Concat.
#include "Convert/Onnx.h"
#include "Kernels/KernelOptions.h"
#include "Shared/Define.h"
#include "Shared/InitialValues.h"
#include "Shared/LoopsOf.h"

#include <numeric>

namespace pdc::ops::Concat {

namespace {

std::size_t axisOf(const Operation& op) {
  return static_cast<std::size_t>(op.attributes.getInt("axis"));
}

Value* convert(OnnxReader& n) {
  // An axis was optional in opset 1 to 3 only.
  const auto axis = n.axis(n.integer("axis", 1), n.type(0).rank());
  if (!axis) return nullptr;
  return n.node.inputs.size() == 1 ? n.input(0) : n.value("concat", n.node.inputs, {{"axis", *axis}});
}

Types infer(const InferContext& c) {
  if (c.operands.empty()) return c.error() << "'concat' op needs an operand";
  const std::int64_t axis = integerOf(c, "axis");
  if (!requireRank(c, "concat", 0) || !requireAxis(c, "concat", axis, c.operand(0).rank())) return failure;
  Type y = c.operand(0);
  for (std::size_t i = 1; i < c.operands.size(); ++i) {
    Type part = c.operand(i);
    const std::int64_t size = part.rank() == y.rank() ? part.shape[static_cast<std::size_t>(axis)] : 0;
    if (part.rank() == y.rank()) part.shape[static_cast<std::size_t>(axis)] = y.shape[static_cast<std::size_t>(axis)];
    if (part != y)
      return c.error() << "'concat' op along axis " << axis << " has operands " << toString(c.operand(0)) << " and "
                       << toString(c.operand(i));
    y.shape[static_cast<std::size_t>(axis)] += size;
  }
  return std::vector<Type>{y};
}

/// Each operand's gradient is its slice.
std::vector<Value*> gradient(GradientContext& g) {
  const Operation& op = g.op();
  std::vector<Value*> gradients(op.operands().size(), nullptr);
  const std::size_t axis = axisOf(op);
  std::vector<std::int64_t> starts(resultType(op).shape.size(), 0), steps(starts.size(), 1);
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const Shape& shape = operandType(op, i).shape;
    if (g.resultGradient(0) && g.wants(i))
      gradients[i] =
          g.value(i, "slice", {g.resultGradient(0)}, {{"starts", starts}, {"sizes", shape}, {"steps", steps}});
    starts[axis] += shape[axis];
  }
  return gradients;
}

/// Elements of operand i below one index of the axes before the concatenated one.
std::int64_t innerOf(const Operation& op, std::size_t i) {
  const Shape& shape = operandType(op, i).shape;
  return product(shape, axisOf(op), shape.size());
}
std::int64_t outerOf(const Operation& op) {
  return product(resultType(op).shape, 0, axisOf(op));
}

/// All axes are free. The joined axis is made of blocks of one size, the largest that divides all operands, each of
/// which is divided.
Loops concatLoops(const Operation& op) {
  Loops loops(op);
  const auto joined = static_cast<int>(axisOf(op));
  const Shape& y = resultType(op).shape;
  std::int64_t block = 0;
  bool isEmpty = false;
  for (const Value* operand : op.operands()) {
    const std::int64_t size = operand->type().shape[axisOf(op)];
    block = std::gcd(block, size);
    isEmpty |= size == 0;
  }
  for (int axis = 0; axis < resultType(op).rank(); ++axis) {
    if (axis == joined && isEmpty) continue;
    const auto blocksOf = [&](const Type& type) { return axis == joined ? type.shape[axisOf(op)] / block : 1; };
    Index index{.size = axis == joined ? block : y[static_cast<std::size_t>(axis)],
                .operands = {},
                .results = {{0, axis, blocksOf(resultType(op))}}};
    for (std::size_t i = 0; i < op.operands().size(); ++i)
      index.operands.push_back({i, axis, blocksOf(operandType(op, i))});
    addIndex(loops, op, index);
  }
  return loops;
}

std::vector<std::string> examples() {
  return {example("%a: f32[2, 3], %b: f32[2, 1]", "%y = concat %a, %b {axis = 1} : f32[2, 4]"),
          example("%a: f32[2], %b: f32[3], %c: f32[1]", "%y = concat %a, %b, %c {axis = 0} : f32[6]"),
          example("%a: f32[2, 1, 3], %b: f32[2, 2, 3]", "%y = concat %a, %b {axis = 1} : f32[2, 3, 3]"),
          example("%a: f32[1, 2], %b: f32[3, 2]", "%y = concat %a, %b {axis = 0} : f32[4, 2]"),
          example("%a: f32[2, 2]", "%y = concat %a {axis = 0} : f32[2, 2]"),
          example("%a: f32[3, 4], %b: f32[3, 4], %c: f32[3, 4]", "%y = concat %a, %b, %c {axis = 1} : f32[3, 12]"),
          example("%a: f32[2, 3], %b: f32[4, 3]", "%y = concat %a, %b {axis = 0} : f32[6, 3]"),
          example("%a: i64[1], %b: i64[2]", "%y = concat %a, %b {axis = 0} : i64[3]")};
}

} // namespace

std::vector<OpDef> define() {
  return {{
      .name = "concat",
      .summary = "The operands one after the other along an axis",
      .onnx = {onnx("Concat", 1, convert)},
      .operands = {{.name = "X", .variadic = true}},
      .results = {{"Y"}},
      .attributes = {integer("axis", std::nullopt, "where they are put together")},
      .infer = infer,
      .cost = moveCost,
      .gradient = gradient,
      .kernel = {
          .use =
              [](const Operation& op) {
                pdcrt::Concat::Options options{.outer = outerOf(op)};
                for (std::size_t i = 0; i < op.operands().size(); ++i) options.inner.push_back(innerOf(op, i));
                return kernelUse<pdcrt::Concat>("Concat", "forward", options);
              },
          // Along samples or channels, the parts of a sample are contiguous in either layout.
          .channelBlocks = [](const Operation& op) { return axisOf(op) <= 1 ? everyPlane(op) : ChannelBlocks(); }},
      .rewrites = {.canonicalize = [](Operation& op, Builder&) -> Value* {
        return op.operands().size() == 1 ? op.operand(0) : nullptr;
      }},
      .split = {.loops = concatLoops},
      .usage = {.initialValues = [](const Operation& op, std::size_t i) -> std::optional<InitialValues> {
        const auto& all = op.operands();
        if (!isFromParameters(op.operand(i)) || std::all_of(all.begin(), all.end(), isFromParameters))
          return std::nullopt;
        return normally(0.02); // a token beside those that are computed
      }},
      .reference = moving([](ReferenceContext& c) {
        const std::int64_t row = product(resultType(c.op).shape, axisOf(c.op), resultType(c.op).shape.size());
        std::int64_t begin = 0;
        for (std::size_t i = 0; i < c.operands.size(); ++i) {
          const std::int64_t inner = innerOf(c.op, i);
          visitBytes(*c.operands[i], *c.results[0], [&](auto x, auto y) {
            for (std::int64_t at = 0; at < outerOf(c.op) * inner; ++at)
              y[static_cast<std::size_t>(at / inner * row + begin + at % inner)] = x[static_cast<std::size_t>(at)];
          });
          begin += inner;
        }
      }),
      .examples = examples(),
      .facts = {.moves = true},
  }};
}

} // namespace pdc::ops::Concat
