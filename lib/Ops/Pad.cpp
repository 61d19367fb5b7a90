// Padding with a constant. Kernel: pdcrt::Pad. ONNX's other modes repeat elements of X: they are gathers.
#include "Convert/Onnx.h"
#include "Kernels/KernelOptions.h"
#include "Shared/Define.h"
#include "Shared/LoopsOf.h"

#include <numeric>

namespace pdc::ops::Pad {

namespace {

/// Where element `i` of an axis of `size` elements comes from when it lies outside, for modes reflect, edge and wrap.
std::int64_t sourceOf(std::int64_t i, std::int64_t size, const std::string& mode) {
  if (mode == "wrap") return ((i % size) + size) % size;
  if (mode == "edge") return std::clamp<std::int64_t>(i, 0, size - 1);
  return i < 0 ? -i : i >= size ? 2 * (size - 1) - i : i;
}

/// Pads one axis after the other with elements of x.
Value* repeatEdges(OnnxReader& n, Value* x, const std::vector<std::int64_t>& before,
                   const std::vector<std::int64_t>& after, const std::string& mode) {
  const bool reflect = mode == "reflect";
  for (std::size_t axis = 0; x && axis < before.size(); ++axis) {
    const std::int64_t size = x->type().shape[axis];
    if (before[axis] == 0 && after[axis] == 0) continue;
    if (size == 0 || (reflect && std::max(before[axis], after[axis]) >= size)) {
      static_cast<void>(n.error() << "reflects " << std::max(before[axis], after[axis]) << " elements on axis " << axis
                                  << ", which has " << size);
      return nullptr;
    }
    std::vector<std::int64_t> sources;
    for (std::int64_t i = -before[axis]; i < size + after[axis]; ++i) sources.push_back(sourceOf(i, size, mode));
    Value* indices = n.b.constant(Tensor::ofInts({static_cast<std::int64_t>(sources.size())}, sources));
    x = indices ? n.value("gather", {x, indices}, {{"axis", static_cast<std::int64_t>(axis)}}) : nullptr;
  }
  return x;
}

/// `pads` of some axes (opset 18) as pads of all.
std::optional<std::vector<std::int64_t>> ofAllAxes(OnnxReader& n, const std::vector<std::int64_t>& pads) {
  const int rank = n.type(0).rank();
  const auto axes = n.constantIntegers(3, "axes");
  if (!axes) return std::nullopt;
  if (pads.size() != 2 * axes->size()) {
    static_cast<void>(n.error() << "has pads " << toString(pads) << " for axes " << toString(*axes));
    return std::nullopt;
  }
  std::vector<std::int64_t> all(2 * static_cast<std::size_t>(rank), 0);
  for (std::size_t i = 0; i < axes->size(); ++i) {
    const auto axis = n.axis((*axes)[i], rank);
    if (!axis) return std::nullopt;
    all[static_cast<std::size_t>(*axis)] = pads[i];
    all[static_cast<std::size_t>(rank + *axis)] = pads[axes->size() + i];
  }
  return all;
}

/// ONNX Pad: `pads` lists all begins, then all ends; negative ones cut off.
Value* convert(OnnxReader& n) {
  Value* x = n.input(0);
  const std::size_t rank = x->type().shape.size();
  auto pads = n.movedIntegers("pads", 11, 1);
  if (pads && n.version() >= 18 && n.input(3)) pads = ofAllAxes(n, *pads);
  const std::string mode = n.text("mode", "constant");
  double filler = n.version() < 11 ? n.number("value", 0) : 0;
  if (n.version() >= 11 && n.input(2)) {
    const std::optional<Tensor> constant = n.constant(2, "constant_value");
    if (!constant || constant->elements() != 1) return nullptr;
    filler = constant->asDouble(0);
  }
  if (!pads) return nullptr;
  constexpr std::int64_t limit = std::int64_t{1} << 31;
  if (pads->size() != 2 * rank ||
      std::any_of(pads->begin(), pads->end(), [](std::int64_t pad) { return std::abs(pad) >= limit; })) {
    static_cast<void>(n.error() << "has pads " << toString(*pads) << " for " << toString(x->type()));
    return nullptr;
  }
  std::vector<std::int64_t> before(pads->begin(), pads->begin() + static_cast<std::ptrdiff_t>(rank));
  std::vector<std::int64_t> after(pads->begin() + static_cast<std::ptrdiff_t>(rank), pads->end());
  // What negative padding cuts off goes first.
  std::vector<std::int64_t> starts(rank, 0), steps(rank, 1);
  Shape sizes = x->type().shape;
  for (std::size_t axis = 0; axis < rank; ++axis) {
    starts[axis] = std::max<std::int64_t>(0, -before[axis]);
    sizes[axis] -= starts[axis] + std::max<std::int64_t>(0, -after[axis]);
    before[axis] = std::max<std::int64_t>(0, before[axis]);
    after[axis] = std::max<std::int64_t>(0, after[axis]);
  }
  if (sizes != x->type().shape) x = n.value("slice", {x}, {{"starts", starts}, {"sizes", sizes}, {"steps", steps}});
  if (!x) return nullptr;
  if (mode == "reflect" || mode == "edge" || mode == "wrap") return repeatEdges(n, x, before, after, mode);
  if (mode != "constant") {
    static_cast<void>(n.error() << "has mode '" << mode << "', it must be constant, reflect, edge or wrap");
    return nullptr;
  }
  return n.value("pad", {x}, {{"before", before}, {"after", after}, {"value", filler}});
}

/// ONNX CenterCropPad: of each axis the middle, or the axis in the middle of zeros. What is odd is cut off at the end,
/// and added there.
Value* convertCenterCropPad(OnnxReader& n) {
  Value* x = n.input(0);
  const auto sizes = n.constantIntegers(1, "shape");
  std::vector<std::int64_t> all(x->type().shape.size());
  std::iota(all.begin(), all.end(), 0);
  const std::vector<std::int64_t> axes = n.integers("axes", all);
  if (!sizes) return nullptr;
  if (sizes->size() != axes.size()) {
    static_cast<void>(n.error() << "has sizes " << toString(*sizes) << " for axes " << toString(axes));
    return nullptr;
  }
  Shape cropped = x->type().shape;
  std::vector<std::int64_t> starts(cropped.size(), 0), steps(cropped.size(), 1), before = starts, after = starts;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const auto axis = n.axis(axes[i], x->type().rank());
    if (!axis) return nullptr;
    if ((*sizes)[i] < 0) {
      static_cast<void>(n.error() << "has sizes " << toString(*sizes) << ", which must not be negative");
      return nullptr;
    }
    const auto a = static_cast<std::size_t>(*axis);
    const std::int64_t missing = (*sizes)[i] - cropped[a];
    if (missing < 0) {
      starts[a] = -missing / 2;
      cropped[a] = (*sizes)[i];
    } else {
      before[a] = missing / 2;
      after[a] = missing - before[a];
    }
  }
  if (cropped != x->type().shape) x = n.value("slice", {x}, {{"starts", starts}, {"sizes", cropped}, {"steps", steps}});
  return x ? n.value("pad", {x}, {{"before", before}, {"after", after}}) : nullptr;
}

Types infer(const InferContext& c) {
  if (!requireRank(c, "pad", 0)) return failure;
  const std::vector<std::int64_t>&before = integersOf(c, "before"), &after = integersOf(c, "after");
  Type y = c.operand(0);
  if (before.size() != y.shape.size() || after.size() != y.shape.size())
    return c.error() << "'pad' op has " << before.size() << " and " << after.size() << " paddings for "
                     << toString(c.operand(0));
  constexpr std::int64_t limit = std::int64_t{1} << 31;
  for (std::size_t axis = 0; axis < y.shape.size(); ++axis) {
    if (before[axis] < 0 || after[axis] < 0 || before[axis] >= limit || after[axis] >= limit)
      return c.error() << "'pad' op has paddings " << before[axis] << " and " << after[axis] << " on axis " << axis
                       << ", they must lie in 0 to " << limit - 1;
    y.shape[axis] += before[axis] + after[axis];
  }
  return std::vector<Type>{y};
}

/// Axes that are not padded.
Loops loopsOfPad(const Operation& op) {
  Loops loops(op);
  for (int axis = 0; axis < resultType(op).rank(); ++axis)
    if (resultType(op).shape[static_cast<std::size_t>(axis)] ==
        operandType(op, 0).shape[static_cast<std::size_t>(axis)])
      addAxes(loops, op, {.begin = axis, .end = axis + 1, .operands = {0}, .results = {0}});
  return loops;
}

std::vector<std::string> examples() {
  const auto text = [](const char* x, const char* options, const char* y) {
    return example("%x: f32" + std::string(x), "%y = pad %x {" + std::string(options) + "} : f32" + y);
  };
  return {text("[3]", "after = [2], before = [1], value = 0.5", "[6]"),
          text("[2, 3]", "after = [0, 1], before = [1, 0]", "[3, 4]"),
          text("[1, 1, 2, 2]", "after = [0, 0, 1, 1], before = [0, 0, 1, 1], value = -1.5", "[1, 1, 4, 4]"),
          text("[2, 2, 2]", "after = [0, 0, 0], before = [0, 0, 0]", "[2, 2, 2]"),
          text("[4, 3]", "after = [0, 1], before = [0, 2]", "[4, 6]"),
          text("[2, 1]", "after = [1, 3], before = [0, 2]", "[3, 6]")};
}

} // namespace

std::vector<OpDef> define() {
  return {{
      .name = "pad",
      .summary = "X with elements of a constant value added before and after, per axis",
      .onnx = {onnx("Pad", 1, convert, 2), onnx("CenterCropPad", 2, convertCenterCropPad, 18)},
      .operands = {{"X"}},
      .results = {{"Y"}},
      .attributes = {integers("before", std::nullopt, "how many elements are added at the beginning, per axis"),
                     integers("after", std::nullopt, "how many are added at the end, per axis"),
                     number("value", 0, "what they are")},
      .infer = infer,
      .cost = moveCost,
      .gradient = [](GradientContext& g) -> std::vector<Value*> {
        if (!g.resultGradient(0)) return {nullptr};
        const Shape& x = operandType(g.op(), 0).shape;
        return {g.value(0, "slice", {g.resultGradient(0)},
                        {{"starts", g.op().attributes.getInts("before")},
                         {"sizes", x},
                         {"steps", std::vector<std::int64_t>(x.size(), 1)}})};
      },
      .kernel = {.use =
                     [](const Operation& op) {
                       const auto inMemory = [&](std::vector<std::int64_t> sizes) {
                         if (inChannelBlocks(op)) sizes = {sizes[0], 0, sizes[2], sizes[3], 0};
                         return axesOf(sizes);
                       };
                       return kernelUse<pdcrt::Pad>("Pad", "forward",
                                                    {.input = toRuntime(blockedShape(op, operandType(op, 0).shape)),
                                                     .before = inMemory(op.attributes.getInts("before")),
                                                     .after = inMemory(op.attributes.getInts("after")),
                                                     .value = op.attributes.getFloat("value")});
                     },
                 .channelBlocks =
                     [](const Operation& op) {
                       const Shape &x = operandType(op, 0).shape, &y = resultType(op).shape;
                       return x.size() == 4 && x[1] == y[1] ? everyPlane(op) : ChannelBlocks();
                     }},
      .rewrites = {.canonicalize = [](Operation& op, Builder&) -> Value* {
        return op.operand(0)->type() == resultType(op) ? op.operand(0) : nullptr;
      }},
      .split = {.loops = loopsOfPad},
      .reference = moving([](ReferenceContext& c) {
        Tensor& y = *c.results[0];
        for (std::int64_t i = 0; i < y.elements(); ++i) y.set(i, c.op.attributes.getFloat("value"));
        visitBytes(*c.operands[0], y, [&](auto from, auto to) {
          const std::vector<std::int64_t> strides = stridesOf(resultType(c.op).shape);
          const std::int64_t begin = dot(c.op.attributes.getInts("before"), strides);
          forEachIndex(operandType(c.op, 0).shape,
                       [&, at = std::size_t{0}](const std::vector<std::int64_t>& i) mutable {
                         to[static_cast<std::size_t>(begin + dot(i, strides))] = from[at++];
                       });
        });
      }),
      .examples = examples(),
      .facts = {.takesDouble = true, .takesLow = true},
  }};
}

} // namespace pdc::ops::Pad
