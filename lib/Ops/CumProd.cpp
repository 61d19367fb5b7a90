// Running products: in each of log2(n) steps an element is multiplied by the product that ends where its own begins
// (Hillis and Steele 1986).
#include "Helpers/Define.h"
#include "Helpers/Onnx.h"

using namespace pdc;
using namespace pdc::ops;

namespace {

class RunningProduct {
public:
  RunningProduct(OnnxReader& reader, std::size_t axis) : n(reader), axis_(axis) {}

  Value* of(Value* x, bool exclusive, bool reverse) {
    if (reverse) x = part(x, -1, 0);
    if (exclusive) x = x ? shifted(x) : nullptr;
    for (std::int64_t step = 1; x && step < size(x); step *= 2) {
      Value* later = part(x, 1, step);
      Value* product = later ? n.value("mul", {later, part(x, 1, 0, size(later))}) : nullptr;
      x = product ? n.value("concat", {part(x, 1, 0, step), product}, {{"axis", axis()}}) : nullptr;
    }
    return reverse && x ? part(x, -1, 0) : x;
  }

private:
  std::int64_t axis() const { return static_cast<std::int64_t>(axis_); }
  std::int64_t size(const Value* x) const { return x->type().shape[axis_]; }

  /// The elements from `begin` on, `count` of them or all; backwards where step is -1.
  Value* part(Value* x, std::int64_t step, std::int64_t begin, std::int64_t count = -1) {
    Shape sizes = x->type().shape;
    Shape starts(sizes.size(), 0), steps(sizes.size(), 1);
    starts[axis_] = step < 0 ? sizes[axis_] - 1 : begin;
    steps[axis_] = step;
    sizes[axis_] = count < 0 ? sizes[axis_] - begin : count;
    return n.value("slice", {x}, {{"starts", starts}, {"sizes", sizes}, {"steps", steps}});
  }
  /// 1, then all elements but the last.
  Value* shifted(Value* x) {
    Type type = x->type();
    const std::int64_t count = type.shape[axis_];
    type.shape[axis_] = 1;
    Tensor ones(type);
    for (std::int64_t i = 0; i < ones.elements(); ++i) ones.set(i, 1);
    Value* one = n.b.constant(ones);
    return count == 1 ? one : n.value("concat", {one, part(x, 1, 0, count - 1)}, {{"axis", axis()}});
  }

  OnnxReader& n;
  const std::size_t axis_;
};

Value* convert(OnnxReader& n) {
  const auto stated = n.constantIntegers(1, "axis");
  const bool exclusive = n.integer("exclusive", 0) != 0, reverse = n.integer("reverse", 0) != 0;
  if (!stated) return nullptr;
  if (stated->size() != 1) {
    static_cast<void>(n.error() << "has " << stated->size() << " axes, it needs one");
    return nullptr;
  }
  const auto axis = n.axis(stated->front(), n.type(0).rank());
  return axis ? RunningProduct(n, static_cast<std::size_t>(*axis)).of(n.input(0), exclusive, reverse) : nullptr;
}

} // namespace

PDC_OPS(CumProd) {
  return {composed("cumprod", "Running products along an axis: log2(n) products of slices",
                   {onnx("CumProd", 2, convert, 26)})};
}
