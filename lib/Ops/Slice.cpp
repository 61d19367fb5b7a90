// A rectangular part of a tensor and its gradient. Kernel: pdcrt::Slice.
#include "Convert/Onnx.h"
#include "Kernels/KernelOptions.h"
#include "Raise/MatchExpression.h"
#include "Shared/Define.h"
#include "Shared/LoopsOf.h"

#include <numeric>

namespace pdc::ops::Slice {

namespace {

/// The part of a tensor of shape `whole`: starts[a] + i · steps[a] for i from 0 to sizes[a] - 1, per axis.
struct Part {
  Shape whole, sizes;
  std::vector<std::int64_t> starts, steps;

  /// With channels in blocks, a tensor has five axes in memory.
  Part inMemory(const Operation& op) const {
    if (!inChannelBlocks(op)) return *this;
    return {blockedShape(op, whole),
            blockedShape(op, sizes),
            {starts[0], starts[1] / lanesOf(op), starts[2], starts[3], 0},
            {steps[0], 1, steps[2], steps[3], 1}};
  }

  pdcrt::Slice::Options options() const {
    const bool dense = std::all_of(steps.begin(), steps.end(), [](std::int64_t step) { return step == 1; });
    return {.input = toRuntime(whole),
            .output = toRuntime(sizes),
            .starts = axesOf(starts),
            .steps = dense ? pdcrt::Axes{} : axesOf(steps)};
  }
  /// Calls visit(position in the part, position in the whole) for all elements of the part.
  template <class Visit>
  void forEach(Visit visit) const {
    std::vector<std::int64_t> strides = stridesOf(whole);
    const std::int64_t begin = dot(starts, strides);
    for (std::size_t axis = 0; axis < strides.size(); ++axis) strides[axis] *= steps[axis];
    forEachIndex(sizes, [&, at = std::size_t{0}](const std::vector<std::int64_t>& index) mutable {
      visit(at++, static_cast<std::size_t>(begin + dot(index, strides)));
    });
  }
};

Part partOf(const Operation& op, const Shape& whole, const Shape& sizes) {
  return {whole, sizes, op.attributes.getInts("starts"), op.attributes.getInts("steps")};
}
Part forwardOf(const Operation& op) {
  return partOf(op, operandType(op, 0).shape, resultType(op).shape);
}
Part backwardOf(const Operation& op) {
  return partOf(op, resultType(op).shape, operandType(op, 0).shape);
}

/// Where the part begins with a block of channels and skips none.
ChannelBlocks wholeBlocks(const Operation& op) {
  const std::vector<std::int64_t>&starts = op.attributes.getInts("starts"), &steps = op.attributes.getInts("steps");
  if (starts.size() != 4 || starts[1] % channelBlock != 0 || steps[1] != 1) return {};
  return everyPlane(op);
}

const std::vector<AttributeDef> placeAttributes = {
    integers("starts", std::nullopt, "the first element, per axis"),
    integers("steps", std::nullopt, "from one element to the next, per axis; not 0")};

std::vector<AttributeDef> with(AttributeDef more) {
  std::vector<AttributeDef> defs = placeAttributes;
  defs.push_back(std::move(more));
  return defs;
}

/// Reports unless the part lies inside the whole.
Status requireInside(const InferContext& c, const char* op, const Shape& whole, const Shape& sizes) {
  const std::vector<std::int64_t>&starts = integersOf(c, "starts"), &steps = integersOf(c, "steps");
  if (sizes.size() != whole.size() || starts.size() != whole.size() || steps.size() != whole.size())
    return c.error() << "'" << op << "' op has " << starts.size() << " starts, " << sizes.size() << " sizes and "
                     << steps.size() << " steps for " << whole.size() << " axes";
  for (std::size_t axis = 0; axis < whole.size(); ++axis) {
    const std::int64_t size = sizes[axis], start = starts[axis], step = steps[axis];
    const auto inside = [&](std::int64_t i) { return i >= 0 && i < whole[axis]; };
    // Steps are compared, not multiplied: their product with a size may not fit.
    const bool fits = step != 0 && size >= 0 &&
                      (size == 0 || (inside(start) && (size == 1 || std::abs(step) <= whole[axis] / (size - 1))));
    if (!fits || (size > 1 && !inside(start + (size - 1) * step)))
      return c.error() << "'" << op << "' op takes " << size << " elements from " << start << " in steps of " << step
                       << " on axis " << axis << ", which has " << whole[axis];
  }
  return success;
}

Types inferForward(const InferContext& c) {
  const Shape& sizes = integersOf(c, "sizes");
  if (!requireRank(c, "slice", 0) || !requireInside(c, "slice", c.operand(0).shape, sizes)) return failure;
  return std::vector<Type>{{c.operand(0).element, sizes}};
}

Types inferBackward(const InferContext& c) {
  const Shape& whole = integersOf(c, "input_shape");
  if (!requireRank(c, "slice_gradient", 0) || !requireInside(c, "slice_gradient", whole, c.operand(0).shape))
    return failure;
  return std::vector<Type>{{c.operand(0).element, whole}};
}

Value* slice(OnnxReader& n, Value* x, std::vector<std::int64_t> starts, Shape sizes, std::vector<std::int64_t> steps) {
  if (sizes == x->type().shape && std::all_of(steps.begin(), steps.end(), [](std::int64_t step) { return step == 1; }))
    return x;
  return n.value("slice", {x},
                 {{"starts", std::move(starts)}, {"sizes", std::move(sizes)}, {"steps", std::move(steps)}});
}

/// ONNX Slice: ends are exclusive, negative positions count from the end, and what lies outside is cut off.
Value* convertSlice(OnnxReader& n) {
  const Shape& x = n.type(0).shape;
  const auto starts = n.movedIntegers("starts", 10, 1), ends = n.movedIntegers("ends", 10, 2);
  if (!starts || !ends) return nullptr;
  std::vector<std::int64_t> leading(starts->size());
  std::iota(leading.begin(), leading.end(), 0);
  const auto axes = n.movedIntegers("axes", 10, 3, leading);
  const auto steps = n.movedIntegers("steps", 10, 4, std::vector<std::int64_t>(starts->size(), 1));
  if (!axes || !steps) return nullptr;
  if (ends->size() != starts->size() || axes->size() != starts->size() || steps->size() != starts->size()) {
    static_cast<void>(n.error() << "has " << starts->size() << " starts, " << ends->size() << " ends, " << axes->size()
                                << " axes and " << steps->size() << " steps");
    return nullptr;
  }
  std::vector<std::int64_t> begin(x.size(), 0), step(x.size(), 1);
  Shape sizes = x;
  for (std::size_t i = 0; i < starts->size(); ++i) {
    const auto axis = n.axis((*axes)[i], static_cast<int>(x.size()));
    if (!axis) return nullptr;
    const auto a = static_cast<std::size_t>(*axis);
    step[a] = (*steps)[i];
    if (step[a] == 0 || step[a] == std::numeric_limits<std::int64_t>::min()) {
      static_cast<void>(n.error() << "has a step of " << step[a]);
      return nullptr;
    }
    const bool forwards = step[a] > 0;
    const auto place = [&](std::int64_t position, std::int64_t least, std::int64_t most) {
      return std::clamp(position < 0 ? position + x[a] : position, least, most);
    };
    begin[a] = place((*starts)[i], 0, forwards ? x[a] : x[a] - 1);
    const std::int64_t end = place((*ends)[i], forwards ? 0 : -1, forwards ? x[a] : x[a] - 1);
    const std::int64_t span = forwards ? end - begin[a] : begin[a] - end, stride = std::abs(step[a]);
    sizes[a] = span > 0 ? (span - 1) / stride + 1 : 0;
    if (sizes[a] <= 1) step[a] = 1;
  }
  return slice(n, n.input(0), begin, sizes, step);
}

/// ONNX Split: parts of stated sizes, or equal ones; since opset 18 the last may be smaller.
Expected<std::vector<Value*>> convertSplit(OnnxReader& n) {
  const Shape& x = n.type(0).shape;
  const auto axis = n.axis(n.integer("axis", 0), static_cast<int>(x.size()));
  const auto stated = n.movedIntegers("split", 13, 1);
  if (!axis || !stated) return failure;
  const auto a = static_cast<std::size_t>(*axis);
  std::vector<std::int64_t> parts = *stated;
  const auto outputs = static_cast<std::int64_t>(n.node.outputs);
  const std::int64_t stated18 = n.version() < 18 ? outputs : n.integer("num_outputs", outputs);
  if (stated18 != outputs) return n.error() << "has num_outputs " << stated18 << " and " << outputs << " outputs";
  if (parts.empty() && outputs > 0 && (x[a] % outputs == 0 || n.version() >= 18)) {
    const std::int64_t part = (x[a] + outputs - 1) / outputs;
    parts.assign(n.node.outputs, part);
    for (std::int64_t i = 0; i < outputs; ++i) // all but the last are full, where that is possible
      parts[static_cast<std::size_t>(i)] = std::clamp<std::int64_t>(x[a] - i * part, 0, part);
  }
  if (parts.size() != n.node.outputs || std::any_of(parts.begin(), parts.end(), [](std::int64_t p) { return p < 0; }) ||
      std::accumulate(parts.begin(), parts.end(), std::int64_t{0}) != x[a])
    return n.error() << "splits " << x[a] << " elements into " << toString(parts) << " for " << outputs << " outputs";
  std::vector<Value*> results;
  std::vector<std::int64_t> starts(x.size(), 0);
  for (std::int64_t part : parts) {
    Shape sizes = x;
    sizes[a] = part;
    results.push_back(slice(n, n.input(0), starts, sizes, std::vector<std::int64_t>(x.size(), 1)));
    if (!results.back()) return failure;
    starts[a] += part;
  }
  return results;
}

/// Appends the names that an expression adds up, perhaps rounding sums to 16 bits; false where it does anything else.
bool addsUp(const Expression& e, std::vector<std::string>& names) {
  if (e.kind == Expression::Kind::name) {
    names.push_back(e.symbol);
    return true;
  }
  for (const char* conversion : {"f32", "bf16", "f16"})
    if (isCall(e, conversion, 1)) return addsUp(*e.arguments[0], names);
  return isBinary(e, "+") && addsUp(*e.arguments[0], names) && addsUp(*e.arguments[1], names);
}

/// The axis along which parts lie one after the other and make up the whole; they are put in their order. Nothing where
/// they do not.
std::optional<std::size_t> joinedAxis(std::vector<Operation*>& slices) {
  const Shape& whole = resultType(*slices.front()).shape;
  std::size_t axis = 0;
  while (axis < whole.size() && operandType(*slices.front(), 0).shape[axis] == whole[axis]) ++axis;
  if (axis == whole.size()) return std::nullopt;
  std::stable_sort(slices.begin(), slices.end(), [&](const Operation* a, const Operation* b) {
    return a->attributes.getInts("starts")[axis] < b->attributes.getInts("starts")[axis];
  });
  std::int64_t end = 0;
  for (const Operation* slice : slices) {
    const Part part = backwardOf(*slice);
    Shape starts(whole.size(), 0), sizes = whole;
    starts[axis] = end;
    sizes[axis] = part.sizes[axis];
    const auto one = [](std::int64_t step) { return step == 1; };
    if (part.starts != starts || part.sizes != sizes || !std::all_of(part.steps.begin(), part.steps.end(), one))
      return std::nullopt;
    end += part.sizes[axis];
  }
  return end == whole[axis] ? std::optional(axis) : std::nullopt;
}

/// The last slice_gradient of those that a sum reads, when it reads nothing else and their parts make up the whole:
/// what was cut into parts is put together again, where each part was put among zeros before.
Absorbed absorbSum(Operation& op, Builder& b) {
  Operation* sum = onlyUser(op.result());
  if (!sum || sum->operands().size() < 2 || sum->result()->type() != resultType(op)) return {};
  std::vector<std::string> names;
  if (!addsUp(*expressionsOf(*sum).front(), names) || names.size() != sum->operands().size()) return {};
  std::vector<Operation*> slices;
  for (std::size_t i = 0; i < names.size(); ++i) {
    Operation* slice = sum->operand(i)->definer();
    const std::string name = operandNameInExpressions(sum->def(), i);
    if (!slice || slice->def().name != op.def().name || sum->operand(i)->type() != resultType(op) ||
        std::count(names.begin(), names.end(), name) != 1)
      return {};
    slices.push_back(slice);
  }
  std::vector<Operation*> inOrder;
  for (const auto& operation : b.graph().operations())
    if (std::find(slices.begin(), slices.end(), operation.get()) != slices.end()) inOrder.push_back(operation.get());
  if (inOrder.size() != slices.size() || inOrder.back() != &op) return {};
  const std::optional<std::size_t> axis = joinedAxis(slices);
  if (!axis) return {};
  std::vector<Value*> parts;
  for (const Operation* slice : slices) parts.push_back(slice->operand(0));
  b.setInsertionPoint(sum);
  Operation* made = b.create("concat", parts, {{"axis", static_cast<std::int64_t>(*axis)}});
  if (!made) return {};
  inOrder.push_back(sum);
  return {.made = made, .gone = inOrder, .replaced = {{sum->result(), made->result()}}};
}

/// An axis is divided in each of the blocks between which the part begins and ends: a member's part of a row [q, k, v]
/// has parts of all three. A whole axis is one block.
Loops sliceLoops(const Operation& op, const Part& part, bool backward) {
  Loops loops(op);
  for (int axis = 0; axis < static_cast<int>(part.whole.size()); ++axis) {
    const auto i = static_cast<std::size_t>(axis);
    if (part.steps[i] != 1 || part.sizes[i] == 0) continue;
    const std::int64_t block = std::gcd(part.whole[i], std::gcd(part.starts[i], part.sizes[i]));
    const Place whole{0, axis, part.whole[i] / block}, cut{0, axis, part.sizes[i] / block};
    addIndex(loops, op, {.size = block, .operands = {backward ? cut : whole}, .results = {backward ? whole : cut}});
  }
  return loops;
}

/// As many blocks come before the part, and they are smaller.
std::vector<Value*> divideSlice(const Operation& op, const Loops& loops, const Division& division,
                                const std::vector<Value*>& operands, Builder& b) {
  std::vector<std::int64_t> starts = op.attributes.getInts("starts");
  starts[static_cast<std::size_t>(formOfResult(loops, 0, division).axis)] /= division.parts;
  return sameWith(op, loops, division, operands, {{"starts", starts}}, b);
}

std::vector<std::string> examples() {
  const auto text = [](const char* x, const char* sizes, const char* starts, const char* steps,
                       const std::string& element = "f32") {
    return example("%x: " + element + x, "%y = slice %x {sizes = " + std::string(sizes) + ", starts = " + starts +
                                             ", steps = " + steps + "} : " + element + sizes);
  };
  return {text("[5]", "[3]", "[1]", "[1]"),
          text("[4, 3]", "[2, 3]", "[1, 0]", "[2, 1]"),
          text("[2, 6]", "[2, 3]", "[0, 5]", "[1, -2]"),
          text("[2, 3, 4]", "[1, 2, 4]", "[1, 1, 0]", "[1, 1, 1]"),
          text("[1, 2, 3, 3]", "[1, 2, 2, 1]", "[0, 0, 0, 2]", "[1, 1, 2, 1]"),
          text("[2, 12]", "[2, 4]", "[0, 8]", "[1, 1]"),
          text("[12]", "[8]", "[4]", "[1]"),
          text("[4]", "[2]", "[2]", "[1]", "i64")};
}

} // namespace

std::vector<OpDef> define() {
  return {
      {
          .name = "slice",
          .summary = "Every step-th element from start on, per axis",
          .onnx = {onnx("Slice", 1, convertSlice), onnxMany("Split", 1, convertSplit)},
          .operands = {{"X"}},
          .results = {{"Y"}},
          .attributes = with(shapeOf(0, integers("sizes", std::nullopt, "the shape of Y"))),
          .infer = inferForward,
          .cost = moveCost,
          .gradient = [](GradientContext& g) -> std::vector<Value*> {
            if (!g.resultGradient(0)) return {nullptr};
            const Attributes& place = g.op().attributes;
            return {g.value(0, "slice_gradient", {g.resultGradient(0)},
                            {{"input_shape", operandType(g.op(), 0).shape},
                             {"starts", place.getInts("starts")},
                             {"steps", place.getInts("steps")}})};
          },
          .kernel = {.use =
                         [](const Operation& op) {
                           return kernelUse<pdcrt::Slice>("Slice", "forward", forwardOf(op).inMemory(op).options());
                         },
                     .channelBlocks = wholeBlocks},
          .rewrites = {.canonicalize = [](Operation& op, Builder&) -> Value* {
            const std::vector<std::int64_t>& steps = op.attributes.getInts("steps");
            const bool dense = std::all_of(steps.begin(), steps.end(), [](std::int64_t step) { return step == 1; });
            return dense && op.operand(0)->type() == resultType(op) ? op.operand(0) : nullptr;
          }},
          .split = {.loops = [](const Operation& op) { return sliceLoops(op, forwardOf(op), false); },
                    .divide = divideSlice},
          .reference = moving([](ReferenceContext& c) {
            visitBytes(*c.operands[0], *c.results[0], [&](auto x, auto y) {
              forwardOf(c.op).forEach([&](std::size_t part, std::size_t whole) { y[part] = x[whole]; });
            });
          }),
          .examples = examples(),
          .facts = {.moves = true},
      },
      {
          .name = "slice_gradient",
          .summary = "Gradient of slice: dY where the part was, 0 elsewhere",
          .operands = {{"dY"}},
          .results = {{"dX"}},
          .attributes = with(shapeOf(0, integers("input_shape", std::nullopt, "the shape of X"))),
          .infer = inferBackward,
          .cost = moveCost,
          .kernel = {.use =
                         [](const Operation& op) {
                           return kernelUse<pdcrt::Slice>("Slice", "inputGradient",
                                                          backwardOf(op).inMemory(op).options());
                         },
                     .channelBlocks = wholeBlocks},
          .rewrites = {.absorb = absorbSum},
          .split = {.loops = [](const Operation& op) { return sliceLoops(op, backwardOf(op), true); },
                    .divide = divideSlice},
          .reference = moving([](ReferenceContext& c) {
            visitBytes(*c.operands[0], *c.results[0], [&](auto dy, auto dx) {
              backwardOf(c.op).forEach([&](std::size_t part, std::size_t whole) { dx[whole] = dy[part]; });
            });
          }),
          .examples = {example("%dy: f32[2, 3]", "%dx = slice_gradient %dy {input_shape = [2, 6], starts = [0, 5], "
                                                 "steps = [1, -2]} : f32[2, 6]"),
                       example("%dy: f32[4, 3]", "%dx = slice_gradient %dy {input_shape = [12, 3], starts = [4, 0], "
                                                 "steps = [1, 1]} : f32[12, 3]"),
                       example("%dy: f32[8]",
                               "%dx = slice_gradient %dy {input_shape = [12], starts = [0], steps = [1]} : f32[12]")},
          .facts = {.takesLow = true},
      },
  };
}

} // namespace pdc::ops::Slice
