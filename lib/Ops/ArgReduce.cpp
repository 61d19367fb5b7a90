// Where extrema are. Index arithmetic: of the places that hold the extremum, the first or the last.
#include "Convert/Indices.h"
#include "Shared/Define.h"

namespace pdc::ops::ArgReduce {

namespace {

/// The place of the extremum along `axis`, which stays with size 1. NaN is taken to be one, as in NumPy.
Value* extremum(OnnxReader& n, Value* x, std::int64_t axis, bool largest, bool last) {
  const std::int64_t size = x->type().shape[static_cast<std::size_t>(axis)];
  const Attributes along = {{"axes", std::vector{axis}}, {"keep_dims", true}};
  Value* best = n.value(largest ? "reduce_max" : "reduce_min", {x}, along);
  Value* isBest = compute(n, {x, best}, "a0 == a1 || a0 != a0");
  Value* places = arange(n, size, static_cast<std::size_t>(axis), x->type().shape.size());
  if (!isBest) return nullptr;
  Value* candidates =
      n.value("where", {isBest, places, n.b.constant(static_cast<double>(last ? -1 : size), ElementType::i64)});
  return candidates ? n.value(last ? "reduce_max" : "reduce_min", {candidates}, along) : nullptr;
}

OnnxMapping onnxArg(const char* opType, bool largest) {
  return onnx(opType, 1, [largest](OnnxReader& n) -> Value* {
    const auto axis = n.axis(n.integer("axis", 0), n.type(0).rank());
    const bool keepDims = n.integer("keepdims", 1) != 0, last = n.integer("select_last_index", 0) != 0;
    if (!axis) return nullptr;
    Shape shape = n.type(0).shape;
    Value* y = extremum(n, n.input(0), *axis, largest, last);
    if (!keepDims) shape.erase(shape.begin() + *axis);
    return keepDims ? y : n.reshape(y, shape);
  });
}

} // namespace

std::vector<OpDef> define() {
  return {
      composed("arg_max", "Place of the largest element along an axis, the first or the last of equal ones",
               {onnxArg("ArgMax", true)}),
      composed("arg_min", "Place of the smallest element along an axis, the first or the last of equal ones",
               {onnxArg("ArgMin", false)}),
  };
}

} // namespace pdc::ops::ArgReduce
