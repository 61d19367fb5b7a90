// The largest or smallest elements along an axis: the kernel pdcrt::TopK says where they are, a gather fetches them.
#include "Convert/Indices.h"
#include "Kernels/KernelOptions.h"
#include "Shared/Define.h"
#include "Shared/LoopsOf.h"

#include <algorithm>
#include <numeric>

namespace pdc::ops::TopK {

namespace {

pdcrt::TopK::Options optionsOf(const Operation& op) {
  const Shape& x = operandType(op, 0).shape;
  const auto axis = static_cast<std::size_t>(op.attributes.getInt("axis"));
  return {.outer = product(x, 0, axis),
          .size = x[axis],
          .inner = product(x, axis + 1, x.size()),
          .k = op.attributes.getInt("k"),
          .largest = op.attributes.get<bool>("largest")};
}

Expected<std::vector<Value*>> convert(OnnxReader& n) {
  const auto axis = n.axis(n.integer("axis", -1), n.type(0).rank());
  const bool largest = n.integer("largest", 1) != 0;
  n.ignore("sorted"); // sorted ones are among those that are allowed where it is 0
  std::int64_t k = n.integer("k", 0);
  if (n.version() >= 10) {
    const auto stated = n.constantIntegers(1, "K");
    if (!stated) return failure;
    if (stated->size() != 1) return n.error() << "has " << stated->size() << " numbers as K, it needs one";
    k = stated->front();
  }
  if (!axis) return failure;
  Value* x = n.input(0);
  Value* indices = n.value("top_k", {x}, {{"axis", *axis}, {"k", k}, {"largest", largest}});
  if (!indices) return failure;
  Value* flat = n.reshape(x, {x->type().elements()});
  Value* positions = elementPositions(n, x->type().shape, indices, *axis);
  Value* values = flat && positions ? n.value("gather", {flat, positions}) : nullptr;
  if (!values) return failure;
  return std::vector<Value*>{values, indices};
}

void findLargest(ReferenceContext& c) {
  const pdcrt::TopK::Options o = optionsOf(c.op);
  const Tensor& x = *c.operands[0];
  const auto y = c.out<std::int64_t>(0);
  const ElementType element = x.type().element;
  const auto isLarger = [&](std::int64_t i, std::int64_t j) {
    if (!isFloat(element)) return isLess(element, x.asInt(j), x.asInt(i));
    const double a = x.asDouble(i), b = x.asDouble(j);
    return a > b || (a != a && b == b);
  };
  for (std::int64_t outer = 0; outer < o.outer; ++outer)
    for (std::int64_t inner = 0; inner < o.inner; ++inner) {
      const auto at = [&](std::int64_t i) { return (outer * o.size + i) * o.inner + inner; };
      std::vector<std::int64_t> order(static_cast<std::size_t>(o.size));
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
        return o.largest ? isLarger(at(a), at(b)) : isLarger(at(b), at(a));
      });
      for (std::int64_t i = 0; i < o.k; ++i)
        y[static_cast<std::size_t>((outer * o.k + i) * o.inner + inner)] = order[static_cast<std::size_t>(i)];
    }
}

} // namespace

std::vector<OpDef> define() {
  return {{
      .name = "top_k",
      .summary =
          "Places of the k largest (or smallest) elements along an axis, the best first, of equal ones the first",
      .onnx = {onnxMany("TopK", 1, convert)},
      .operands = {{"X"}},
      .results = {{"indices"}},
      .attributes = {integer("axis", std::nullopt, "along which is compared"), integer("k", std::nullopt, "how many"),
                     boolean("largest", true, "whether the largest are the best")},
      .infer = [](const InferContext& c) -> Types {
        const Type& x = c.operand(0);
        const std::int64_t axis = integerOf(c, "axis"), k = integerOf(c, "k");
        if (!requireRank(c, "top_k", 0) || !requireAxis(c, "top_k", axis, x.rank())) return failure;
        Shape shape = x.shape;
        std::int64_t& size = shape[static_cast<std::size_t>(axis)];
        if (k < 0 || k > size || x.element == ElementType::boolean)
          return c.error() << "'top_k' op takes " << k << " numbers of " << size << " on axis " << axis << " of "
                           << toString(x);
        size = k;
        return std::vector<Type>{{ElementType::i64, shape}};
      },
      .cost = perElement(8),
      .kernel = {.use = [](const Operation& op) { return kernelUse<pdcrt::TopK>("TopK", "forward", optionsOf(op)); }},
      .split = {.loops = loopsBesideAxis},
      .reference = moving(findLargest),
      .examples = {example("%x: f32[5]", "%i = top_k %x {axis = 0, k = 3} : i64[3]"),
                   example("%x: f32[2, 4, 3]", "%i = top_k %x {axis = 1, k = 2, largest = false} : i64[2, 2, 3]"),
                   example("%x: i64[2, 3]", "%i = top_k %x {axis = 1, k = 3} : i64[2, 3]"),
                   example("%x: f32[2, 1]", "%i = top_k %x {axis = 1, k = 1} : i64[2, 1]")},
      .facts = {.takesDouble = true},
  }};
}

} // namespace pdc::ops::TopK
