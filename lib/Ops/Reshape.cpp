// The same elements under another shape. Costs nothing: the result is the operand's memory.
#include "Convert/Onnx.h"
#include "Raise/SwapAxes.h"
#include "Shared/Define.h"
#include "Shared/LoopsOf.h"

namespace pdc::ops::Reshape {

/// ONNX Reshape: 0 keeps the input's dimension (unless allowzero), one -1 takes what is left.
static Value* convertReshape(OnnxReader& n) {
  const std::optional<std::vector<std::int64_t>> wanted = n.movedIntegers("shape", 5, 1);
  const bool allowZero = n.integer("allowzero", 0) != 0;
  if (!wanted) return nullptr;
  Shape shape = *wanted;
  const Type& x = n.type(0);
  std::int64_t known = 1;
  std::optional<std::size_t> rest;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 0 && !allowZero && i < x.shape.size()) shape[i] = x.shape[i];
    if (shape[i] == -1 && !rest)
      rest = i;
    else if (shape[i] < 0 || __builtin_mul_overflow(known, shape[i], &known)) {
      static_cast<void>(n.error() << "has shape " << toString(*wanted) << ", which is none of " << toString(x));
      return nullptr;
    }
  }
  if (rest && known != 0) shape[*rest] = x.elements() / known;
  return n.reshape(n.input(0), shape);
}

static Value* convertFlatten(OnnxReader& n) {
  const Type& x = n.type(0);
  const std::int64_t stated = n.integer("axis", 1);
  // Unlike other axes this one lies between dimensions, so that the rank itself is allowed.
  const std::int64_t axis = stated < 0 ? stated + x.rank() : stated;
  if (axis < 0 || axis > x.rank()) {
    static_cast<void>(n.error() << "has axis " << stated << ", its input has rank " << x.rank());
    return nullptr;
  }
  const auto split = static_cast<std::size_t>(axis);
  return n.reshape(n.input(0), {product(x.shape, 0, split), product(x.shape, split, x.shape.size())});
}

static Value* convertSqueeze(OnnxReader& n) {
  const Shape& shape = n.type(0).shape;
  const auto stated = n.movedIntegers("axes", 13, 1);
  const auto axes = stated ? n.axes(*stated, static_cast<int>(shape.size())) : std::nullopt;
  if (!axes) return nullptr;
  const bool all = axes->empty();
  Shape result;
  auto next = axes->begin();
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const bool named = next != axes->end() && *next == static_cast<std::int64_t>(i);
    if (named) ++next;
    if (named && shape[i] != 1) {
      static_cast<void>(n.error() << "drops axis " << i << ", whose size is " << shape[i] << " and not 1");
      return nullptr;
    }
    if (!named && !(all && shape[i] == 1)) result.push_back(shape[i]);
  }
  return n.reshape(n.input(0), result);
}

static Value* convertUnsqueeze(OnnxReader& n) {
  Shape shape = n.type(0).shape;
  const auto stated = n.movedIntegers("axes", 13, 1);
  const auto axes = stated ? n.axes(*stated, static_cast<int>(shape.size() + stated->size())) : std::nullopt;
  if (!axes) return nullptr;
  for (std::int64_t axis : *axes) shape.insert(shape.begin() + axis, 1);
  return n.reshape(n.input(0), shape);
}

std::vector<OpDef> define() {
  return {
      {
          .name = "reshape",
          .summary = "The elements of X, in the same order, under another shape",
          .kind = OpKind::view,
          .onnx = {onnx("Reshape", 1, convertReshape), onnx("Flatten", 1, convertFlatten),
                   onnx("Squeeze", 1, convertSqueeze), onnx("Unsqueeze", 1, convertUnsqueeze),
                   onnx("Identity", 1, [](OnnxReader& n) { return n.input(0); })},
          .operands = {{"X"}},
          .results = {{"Y"}},
          .attributes = {shapeOf(0, integers("shape", std::nullopt, "the shape of Y"))},
          .infer = [](const InferContext& c) -> Types {
            Type type = c.operand(0);
            type.shape = integersOf(c, "shape");
            for (std::int64_t dim : type.shape)
              if (dim < 0)
                return c.error() << "'reshape' op has shape " << toString(type.shape) << " with a negative dimension";
            if (type.elements() != c.operand(0).elements())
              return c.error() << "'reshape' op makes " << type.elements() << " elements of " << c.operand(0).elements()
                               << ": " << toString(c.operand(0)) << " to " << toString(type.shape);
            return std::vector<Type>{type};
          },
          .gradient = [](GradientContext& g) -> std::vector<Value*> {
            if (!g.resultGradient(0)) return {nullptr};
            return {g.value(0, "reshape", {g.resultGradient(0)}, {{"shape", operandType(g.op(), 0).shape}})};
          },
          .rewrites = {.canonicalize = [](Operation& op, Builder& b) -> Value* {
            Value* x = op.operand(0);
            if (x->type() == resultType(op)) return x;
            // Of two reshapes in a row only the second counts.
            if (x->definer() && &x->definer()->def() == &op.def())
              return b.value(op.def().name, {x->definer()->operand(0)}, op.attributes);
            return swappedInGroups(op, b);
          }},
          .reference =
              moving([](ReferenceContext& c) { *c.results[0] = c.operands[0]->reshaped(c.results[0]->shape()); }),
          .examples = {example("%x: f32[2, 3]", "%y = reshape %x {shape = [3, 2]} : f32[3, 2]"),
                       example("%x: f32[2, 3, 4]", "%y = reshape %x {shape = [2, 12]} : f32[2, 12]"),
                       example("%x: f32[]", "%y = reshape %x {shape = [1, 1]} : f32[1, 1]"),
                       example("%x: f32[1]", "%y = reshape %x {shape = []} : f32[]"),
                       example("%x: f32[8]", "%y = reshape %x {shape = [2, 1, 4]} : f32[2, 1, 4]"),
                       example("%x: f32[2, 12]", "%y = reshape %x {shape = [2, 3, 4]} : f32[2, 3, 4]"),
                       example("%x: f32[4, 6]", "%y = reshape %x {shape = [8, 3]} : f32[8, 3]"),
                       example("%x: i64[4]", "%y = reshape %x {shape = [2, 2]} : i64[2, 2]")},
          .facts = {.moves = true},
      },
  };
}

} // namespace pdc::ops::Reshape
