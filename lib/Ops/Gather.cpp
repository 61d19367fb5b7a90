// Rows picked by index along an axis (an embedding) and the gradient of the table. Kernel: pdcrt::Gather.
#include "Convert/Onnx.h"
#include "Kernels/KernelOptions.h"
#include "Shared/Define.h"
#include "Shared/InitialValues.h"
#include "Shared/LoopsOf.h"

namespace pdc::ops::Gather {

namespace {

/// X as [outer, size, inner], and the number of indices.
pdcrt::Gather::Options optionsOf(const Operation& op, const Shape& x, const Shape& indices) {
  const auto axis = static_cast<std::size_t>(op.attributes.getInt("axis"));
  return {.outer = product(x, 0, axis),
          .size = x[axis],
          .inner = product(x, axis + 1, x.size()),
          .count = elementsOf(indices),
          .rows = op.attributes.getInt("rows")};
}
pdcrt::Gather::Options forwardOf(const Operation& op) {
  return optionsOf(op, operandType(op, 0).shape, operandType(op, 1).shape);
}
pdcrt::Gather::Options backwardOf(const Operation& op) {
  return optionsOf(op, resultType(op).shape, operandType(op, 1).shape);
}

/// How many rows the table has, of which X may be a part.
std::int64_t rowsOf(const pdcrt::Gather::Options& o) {
  return o.rows > 0 ? o.rows : o.size;
}

/// Calls visit(position in X, position in Y) for the elements of Y that come from X; reports an index that is outside.
template <class Visit>
void forEachPicked(ReferenceContext& c, const pdcrt::Gather::Options& o, Visit visit) {
  for (std::int64_t outer = 0; outer < o.outer; ++outer)
    for (std::int64_t i = 0; i < o.count; ++i) {
      const std::int64_t stated = c.operands[1]->asInt(i), rows = rowsOf(o), row = stated < 0 ? stated + rows : stated;
      if (row < 0 || row >= rows) {
        c.error = "index " + std::to_string(stated) + " is outside, the axis has " + std::to_string(rows);
        return;
      }
      const std::int64_t index = o.rows > 0 ? row - c.member * o.size : row;
      if (index < 0 || index >= o.size) continue;
      for (std::int64_t inner = 0; inner < o.inner; ++inner)
        visit(static_cast<std::size_t>((outer * o.size + index) * o.inner + inner),
              static_cast<std::size_t>((outer * o.count + i) * o.inner + inner));
    }
}

/// The shape of Y: axis `axis` of X is replaced by the shape of the indices.
Expected<Shape> pickedShape(const InferContext& c, const char* op, const Shape& x) {
  const std::int64_t axis = integerOf(c, "axis");
  const Type& indices = c.operand(1);
  if (indices.element != ElementType::i64 && indices.element != ElementType::i32)
    return c.error() << "'" << op << "' op needs indices of i64 or i32, they are " << toString(indices);
  if (!requireAxis(c, op, axis, static_cast<int>(x.size()))) return failure;
  Shape y(x.begin(), x.begin() + axis);
  y.insert(y.end(), indices.shape.begin(), indices.shape.end());
  y.insert(y.end(), x.begin() + axis + 1, x.end());
  return y;
}

Types inferForward(const InferContext& c) {
  const Expected<Shape> y = pickedShape(c, "gather", c.operand(0).shape);
  if (!y) return failure;
  return std::vector<Type>{{c.operand(0).element, *y}};
}

Types inferBackward(const InferContext& c) {
  const Shape& x = integersOf(c, "input_shape");
  if (!isFloat(c.operand(0).element))
    return c.error() << "'gather_gradient' op needs a float operand 0, it is " << toString(c.operand(0));
  if (!requireRank(c, "gather_gradient", 0)) return failure;
  if (std::any_of(x.begin(), x.end(), [](std::int64_t dim) { return dim < 0; }))
    return c.error() << "'gather_gradient' op has input_shape " << toString(x) << " with a negative dimension";
  const Expected<Shape> y = pickedShape(c, "gather_gradient", x);
  if (!y || !requireType(c, "gather_gradient", 0, {c.operand(0).element, *y}, "input_shape")) return failure;
  return std::vector<Type>{{c.operand(0).element, x}};
}

/// All axes of X but `axis` are free, and so are the axes of the indices, over which the gradient of X is summed. Rows
/// of the table that a member lacks give zeros: Y is summed over them.
Loops gatherLoops(const Operation& op, bool backward) {
  Loops loops(op);
  if (op.attributes.getInt("rows") > 0) return loops; // a member's part
  const auto axis = static_cast<int>(op.attributes.getInt("axis")), picked = operandType(op, 1).rank();
  const Shape &x = backward ? resultType(op).shape : operandType(op, 0).shape, &indices = operandType(op, 1).shape;
  const auto inBoth = [&](int ofX, int ofY) {
    addIndex(loops, op,
             {.size = x[static_cast<std::size_t>(ofX)],
              .operands = {{0, backward ? ofY : ofX}},
              .results = {{0, backward ? ofX : ofY}}});
  };
  for (int i = 0; i < axis; ++i) inBoth(i, i);
  for (int i = 0; i < picked; ++i) {
    Index index{.size = indices[static_cast<std::size_t>(i)], .operands = {{1, i}}, .results = {}};
    if (backward) {
      index.operands.push_back({0, axis + i});
      index.reduced = {0};
    } else {
      index.results = {{0, axis + i}};
    }
    addIndex(loops, op, index);
  }
  for (int i = axis + 1; i < static_cast<int>(x.size()); ++i) inBoth(i, i - 1 + picked);
  if (!isFloat(operandType(op, 0).element)) return loops;
  Index rows{
      .size = x[static_cast<std::size_t>(axis)], .operands = {}, .results = {}, .mayPad = true, .inOneBlock = true};
  if (backward) {
    rows.results = {{0, axis}};
  } else {
    rows.operands = {{0, axis}};
    rows.reduced = {0};
  }
  addIndex(loops, op, rows);
  return loops;
}

/// A member that has a part of the rows is told how many there are.
std::vector<Value*> divideGather(const Operation& op, const Loops& loops, const Division& division,
                                 const std::vector<Value*>& operands, Builder& b, bool backward) {
  const Form table = backward ? formOfResult(loops, 0, division) : formOfOperand(loops, 0, division);
  const std::int64_t axis = op.attributes.getInt("axis");
  if (!table.isSplit() || table.axis != axis) return sameWith(op, loops, division, operands, {}, b);
  const Shape& x = backward ? resultType(op).shape : operandType(op, 0).shape;
  return sameWith(op, loops, division, operands, {{"rows", x[static_cast<std::size_t>(axis)]}}, b);
}

/// Rows of integers, each times its own scale. A table has no kept inputs.
Value* gatherInt8(const Operation& op, const Int8Matrix& table, Builder& b) {
  const auto picked = [&](Value* from) { return b.value("gather", {from, op.operand(1)}, op.attributes); };
  const auto cast = [&](Value* value) { return b.value("cast", {value}, {{"to", std::string("f32")}}); };
  Value *integers = picked(table.integers), *scales = picked(table.scales);
  if (!integers || !scales) return nullptr;
  Shape column = scales->type().shape;
  column.push_back(1);
  scales = b.value("reshape", {scales}, {{"shape", column}});
  Value* const floats = cast(integers);
  return scales && floats ? b.value("mul", {floats, scales}) : nullptr;
}

AttributeDef rowsAttribute() {
  return integer(
      "rows", 0,
      "how many rows the table has of which X is a member's part, so that those of others give zeros; 0: X is "
      "all of it");
}

AttributeDef axisAttribute() {
  return integer("axis", 0, "the axis of X that the indices speak of");
}

std::vector<std::string> examples() {
  // Tests fill integers with 0 and 1, so that axes have at least two elements.
  const auto text = [](const char* x, const char* indices, const char* options, const char* y) {
    return example("%x: f32" + std::string(x) + ", %i: " + indices,
                   "%y = gather %x, %i" + std::string(options) + " : f32" + y);
  };
  return {text("[4, 3]", "i64[2]", "", "[2, 3]"),
          text("[2, 5]", "i64[]", " {axis = 1}", "[2]"),
          text("[3, 2]", "i32[2, 2]", "", "[2, 2, 2]"),
          text("[2, 3, 2]", "i64[4]", " {axis = 1}", "[2, 4, 2]"),
          text("[6]", "i32[3]", "", "[3]"),
          text("[2, 3]", "i64[2]", " {rows = 5}", "[2, 3]")};
}

} // namespace

std::vector<OpDef> define() {
  return {
      {
          .name = "gather",
          .summary = "Slices of X along an axis, picked by index; negative ones count from the end",
          .onnx = {onnx("Gather", 2,
                        [](OnnxReader& n) -> Value* {
                          const auto axis = n.axis(n.integer("axis", 0), n.type(0).rank());
                          return axis ? n.value("gather", {n.input(0), n.input(1)}, {{"axis", *axis}}) : nullptr;
                        })},
          .operands = {{"X"}, {"indices"}},
          .results = {{"Y"}},
          .attributes = {axisAttribute(), rowsAttribute()},
          .infer = inferForward,
          .cost = moveCost,
          .gradient = [](GradientContext& g) -> std::vector<Value*> {
            const Operation& op = g.op();
            if (!g.resultGradient(0) || !g.wants(0)) return {nullptr, nullptr};
            return {g.value(0, "gather_gradient", {g.resultGradient(0), op.operand(1)},
                            {{"axis", op.attributes.getInt("axis")},
                             {"input_shape", operandType(op, 0).shape},
                             {"rows", op.attributes.getInt("rows")}}),
                    nullptr};
          },
          .kernel =
              {.use = [](const Operation& op) { return kernelUse<pdcrt::Gather>("Gather", "forward", forwardOf(op)); }},
          .rewrites = {.int8Use = [](const Operation& op, std::size_t i) -> std::optional<Int8Use> {
                         if (i != 0 || op.attributes.getInt("axis") != 0 || op.attributes.getInt("rows") != 0)
                           return std::nullopt;
                         return Int8Use{};
                       },
                       .withInt8 = gatherInt8},
          .split = {.loops = [](const Operation& op) { return gatherLoops(op, false); },
                    .divide = [](const Operation& op, const Loops& loops, const Division& division,
                                 const std::vector<Value*>& operands,
                                 Builder& b) { return divideGather(op, loops, division, operands, b, false); }},
          .usage = {.initialValues = [](const Operation& op, std::size_t i) -> std::optional<InitialValues> {
                      if (i != 0 || !isFromParameters(op.operand(0))) return std::nullopt;
                      return normally(1); // torch.nn.Embedding
                    },
                    .choices = [](const Operation& op, std::size_t i) { return i == 1 ? rowsOf(forwardOf(op)) : 0; }},
          .reference = moving([](ReferenceContext& c) {
            visitBytes(*c.operands[0], *c.results[0], [&](auto x, auto y) {
              forEachPicked(c, forwardOf(c.op), [&](std::size_t atX, std::size_t atY) { y[atY] = x[atX]; });
            });
          }),
          .examples = examples(),
          .facts = {.picks = true, .takesDouble = true},
      },
      {
          .name = "gather_gradient",
          .summary = "Gradient of gather: adds each slice of dY where it came from",
          .operands = {{"dY"}, {"indices"}},
          .results = {{"dX"}},
          .attributes = {axisAttribute(), shapeOf(0, integers("input_shape", std::nullopt, "the shape of X")),
                         rowsAttribute()},
          .infer = inferBackward,
          .cost = perElement(1),
          .kernel = {.use =
                         [](const Operation& op) {
                           return kernelUse<pdcrt::Gather>("Gather", "inputGradient", backwardOf(op));
                         }},
          .split = {.loops = [](const Operation& op) { return gatherLoops(op, true); },
                    .divide = [](const Operation& op, const Loops& loops, const Division& division,
                                 const std::vector<Value*>& operands,
                                 Builder& b) { return divideGather(op, loops, division, operands, b, true); }},
          .reference = reference([]<class T>(ReferenceContext& c) {
            const auto dy = c.in<T>(0);
            const auto dx = c.out<T>(0);
            forEachPicked(c, backwardOf(c.op), [&](std::size_t atX, std::size_t atY) { dx[atX] += dy[atY]; });
          }),
          .examples = {example("%dy: f32[3, 2], %i: i64[3]",
                               "%dx = gather_gradient %dy, %i {input_shape = [4, 2]} : f32[4, 2]"),
                       example("%dy: f32[2, 2, 3, 2], %i: i32[2, 3]",
                               "%dx = gather_gradient %dy, %i {axis = 1, input_shape = [2, 3, 2]} : f32[2, 3, 2]")},
      },
  };
}

} // namespace pdc::ops::Gather
