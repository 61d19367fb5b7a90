// Repetition of elements: NumPy's broadcast to a stated shape. Kernel: pdcrt::Broadcast. Elementwise ops broadcast by
// themselves.
#include "Convert/Onnx.h"
#include "Kernels/KernelOptions.h"
#include "Shared/Define.h"
#include "Shared/LoopsOf.h"

namespace pdc::ops::Broadcast {

namespace {

/// ONNX Expand: both shapes broadcast together.
Value* convertExpand(OnnxReader& n) {
  const auto wanted = n.constantIntegers(1, "shape");
  if (!wanted) return nullptr;
  const std::optional<Shape> shape = broadcast(n.type(0).shape, *wanted);
  if (!shape) {
    static_cast<void>(n.error() << "expands " << toString(n.type(0)) << " to " << toString(*wanted)
                                << ", which does not broadcast");
    return nullptr;
  }
  return *shape == n.type(0).shape ? n.input(0) : n.value("broadcast", {n.input(0)}, {{"shape", *shape}});
}

/// ONNX Tile: each axis that repeats gets an axis of its own before it, which is broadcast.
Value* convertTile(OnnxReader& n) {
  const auto repeats = n.constantIntegers(1, "repeats");
  if (!repeats) return nullptr;
  const Shape& x = n.type(0).shape;
  if (repeats->size() != x.size()) {
    static_cast<void>(n.error() << "has " << repeats->size() << " repeats for " << toString(n.type(0)));
    return nullptr;
  }
  Shape apart, repeated, result;
  for (std::size_t axis = 0; axis < x.size(); ++axis) {
    const std::int64_t times = (*repeats)[axis];
    if (times != 1) {
      apart.push_back(1);
      repeated.push_back(times);
    }
    apart.push_back(x[axis]);
    repeated.push_back(x[axis]);
    result.push_back(times * x[axis]);
  }
  Value* split = n.reshape(n.input(0), apart);
  Value* wide = !split || apart == repeated ? split : n.value("broadcast", {split}, {{"shape", repeated}});
  return n.reshape(wide, result);
}

/// Where X is repeated: the axes of Y that X lacks or has with size 1.
std::vector<std::int64_t> repeatedAxes(const Shape& x, const Shape& y) {
  std::vector<std::int64_t> axes;
  for (std::size_t axis = 0; axis < y.size(); ++axis) {
    const std::size_t missing = y.size() - x.size();
    if (axis < missing || (x[axis - missing] == 1 && y[axis] != 1)) axes.push_back(static_cast<std::int64_t>(axis));
  }
  return axes;
}

Types infer(const InferContext& c) {
  if (!requireRank(c, "broadcast", 0)) return failure;
  const Type& x = c.operand(0);
  const Shape& shape = integersOf(c, "shape");
  const bool sizes = std::all_of(shape.begin(), shape.end(), [](std::int64_t dim) { return dim >= 0; });
  if (!sizes || shape.size() > pdcrt::maxRank || broadcast(x.shape, shape) != shape || elementsOf(shape) < 0)
    return c.error() << "'broadcast' op makes " << toString(shape) << " of " << toString(x)
                     << ", whose axes do not broadcast to it";
  return std::vector<Type>{{x.element, shape}};
}

std::vector<Value*> gradient(GradientContext& g) {
  Value* dy = g.resultGradient(0);
  if (!dy) return {nullptr};
  const Shape& x = operandType(g.op(), 0).shape;
  const std::vector<std::int64_t> axes = repeatedAxes(x, dy->type().shape);
  Value* sum = axes.empty() ? dy : g.value(0, "reduce_sum", {dy}, {{"axes", axes}, {"keep_dims", true}});
  return {sum->type().shape == x ? sum : g.value(0, "reshape", {sum}, {{"shape", x}})};
}

/// All axes of Y; X lacks those along which it is repeated.
Loops broadcastLoops(const Operation& op) {
  Loops loops(op);
  const Shape& y = resultType(op).shape;
  const auto rank = static_cast<int>(y.size());
  for (int axis = -rank; axis < 0; ++axis)
    addIndex(loops, op,
             {.size = y[static_cast<std::size_t>(axis + rank)], .operands = {{0, axis}}, .results = {{0, axis}}});
  return loops;
}

std::vector<std::string> examples() {
  const auto text = [](const char* x, const char* shape, const std::string& element = "f32") {
    return example("%x: " + element + x, "%y = broadcast %x {shape = " + std::string(shape) + "} : " + element + shape);
  };
  return {text("[3]", "[2, 3]"),          text("[2, 1]", "[2, 3]"),    text("[]", "[2, 2]"),
          text("[2, 1, 3]", "[2, 4, 3]"), text("[1, 3]", "[2, 2, 3]"), text("[2]", "[2]"),
          text("[1]", "[3]", "i64")};
}

} // namespace

std::vector<OpDef> define() {
  return {{
      .name = "broadcast",
      .summary = "X repeated along the axes that it lacks or has with size 1",
      .onnx = {onnx("Expand", 2, convertExpand), onnx("Tile", 2, convertTile, 6)},
      .operands = {{"X"}},
      .results = {{"Y"}},
      .attributes = {shapeOf(0, integers("shape", std::nullopt, "the shape of Y"))},
      .infer = infer,
      .cost = moveCost,
      .gradient = gradient,
      .kernel = {.use =
                     [](const Operation& op) {
                       return kernelUse<pdcrt::Broadcast>(
                           "Broadcast", "forward",
                           {.input = toRuntime(operandType(op, 0).shape), .output = toRuntime(resultType(op).shape)});
                     }},
      .rewrites = {.canonicalize = [](Operation& op, Builder&) -> Value* {
        return op.operand(0)->type() == resultType(op) ? op.operand(0) : nullptr;
      }},
      .split = {.loops = broadcastLoops},
      .reference = moving([](ReferenceContext& c) {
        visitBytes(*c.operands[0], *c.results[0], [&](auto x, auto y) {
          const Shape &from = operandType(c.op, 0).shape, &to = resultType(c.op).shape;
          std::vector<std::int64_t> strides(to.size() - from.size(), 0);
          const std::vector<std::int64_t> inside = stridesOf(from);
          for (std::size_t axis = 0; axis < from.size(); ++axis) strides.push_back(from[axis] == 1 ? 0 : inside[axis]);
          forEachIndex(to, [&, at = std::size_t{0}](const std::vector<std::int64_t>& index) mutable {
            y[at++] = x[static_cast<std::size_t>(dot(index, strides))];
          });
        });
      }),
      .examples = examples(),
      .facts = {.moves = true},
  }};
}

} // namespace pdc::ops::Broadcast
