#include "Convert/Indices.h"

#include "Shared/Define.h"

#include <algorithm>
#include <numeric>

namespace pdc::ops {

Value* arange(OnnxReader& n, std::int64_t size, std::size_t axis, std::size_t rank) {
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(size));
  std::iota(numbers.begin(), numbers.end(), 0);
  Shape shape(rank, 1);
  shape[axis] = size;
  return n.b.constant(Tensor::ofInts(std::move(shape), numbers));
}

Value* compute(OnnxReader& n, std::vector<Value*> operands, const std::string& expression) {
  if (std::find(operands.begin(), operands.end(), nullptr) != operands.end()) return nullptr;
  return n.value("elementwise", std::move(operands), {{"expressions", std::vector{expression}}});
}

Value* asIndices(OnnxReader& n, Value* x) {
  if (!x || x->type().element == ElementType::i64) return x;
  return n.value("cast", {x}, {{"to", std::string("i64")}});
}

Status requireIndices(OnnxReader& n, std::size_t input) {
  const Type& type = n.type(input);
  if (type.element == ElementType::i64 || type.element == ElementType::i32) return success;
  return n.error() << "needs indices of i64 or i32 as input " << input << ", they are " << toString(type);
}

/// "select(a0 < -5 || a0 >= 5, 60, select(a0 < 0, a0 + 5, a0) * 12)": the offset of an index into an axis of `size`;
/// `outside`, which is no position, where there is none.
static std::string offsetText(std::int64_t size, std::int64_t stride, std::int64_t outside) {
  const std::string n = std::to_string(size);
  return "select(a0 < -" + n + " || a0 >= " + n + ", " + std::to_string(outside) + ", select(a0 < 0, a0 + " + n +
         ", a0) * " + std::to_string(stride) + ")";
}

/// Adds to `positions` the index of axis `axis`, of `size`, times `stride`. What is outside stays outside.
static Value* addAxis(OnnxReader& n, Value* positions, std::int64_t size, std::size_t axis, std::int64_t stride) {
  if (!positions || size == 1 || stride == 0) return positions;
  return compute(n, {positions, arange(n, size, axis, positions->type().shape.size())},
                 "a0 + a1 * " + std::to_string(stride));
}

Value* elementPositions(OnnxReader& n, const Shape& x, Value* indices, std::int64_t axis) {
  const std::vector<std::int64_t> strides = stridesOf(x);
  const auto a = static_cast<std::size_t>(axis);
  Value* positions = compute(n, {asIndices(n, indices)}, offsetText(x[a], strides[a], elementsOf(x)));
  for (std::size_t other = 0; positions && other < x.size(); ++other)
    if (other != a) positions = addAxis(n, positions, indices->type().shape[other], other, strides[other]);
  return positions;
}

Value* tuplePositions(OnnxReader& n, const Shape& x, Value* indices, std::int64_t batch) {
  const Shape shape = indices->type().shape;
  if (shape.empty()) return nullptr; // callers have seen to it
  const auto b = static_cast<std::size_t>(batch), k = static_cast<std::size_t>(shape.back());
  const Shape picked(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(b + k)), left(shape.begin(), shape.end() - 1);
  const std::vector<std::int64_t> strides = stridesOf(picked);
  Value* all = asIndices(n, indices);
  Value* positions = nullptr;
  for (std::size_t i = 0; all && i < k; ++i) {
    std::vector<std::int64_t> starts(left.size(), 0), steps(shape.size(), 1);
    starts.push_back(static_cast<std::int64_t>(i));
    Shape column = left;
    column.push_back(1);
    Value* part = n.value("slice", {all}, {{"starts", starts}, {"sizes", column}, {"steps", steps}});
    part = n.reshape(part, left);
    part = part ? compute(n, {part}, offsetText(x[b + i], strides[b + i], elementsOf(picked))) : nullptr;
    positions = !positions || !part ? part : n.value("add", {positions, part});
    if (!positions) return nullptr;
  }
  for (std::size_t i = 0; positions && i < b; ++i) positions = addAxis(n, positions, shape[i], i, strides[i]);
  return positions;
}

} // namespace pdc::ops
