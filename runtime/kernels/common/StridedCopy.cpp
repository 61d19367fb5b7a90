// The half of StridedCopy.h that is the same on every target: from two arrangements to as few loops as possible.
#include "pdcrt/kernels/StridedCopy.h"

#include "Shapes.h"

#include <utility>

namespace pdcrt {

Arrangement rowMajor(const Shape& shape) {
  Arrangement arrangement;
  std::int64_t stride = 1;
  for (int axis = shape.rank - 1; axis >= 0; stride *= shape.dims[axis--]) arrangement.strides[axis] = stride;
  return arrangement;
}

StridedCopy::StridedCopy(const Shape& box, const Arrangement& from, const Arrangement& to) : from_(from), to_(to) {
  // Only strides of axes that stay are kept, in order.
  for (int axis = 0; axis < box.rank; ++axis) {
    if (box.dims[axis] == 1) continue;
    const int last = box_.rank - 1;
    if (last >= 0 && from_.strides[last] == from.strides[axis] * box.dims[axis] &&
        to_.strides[last] == to.strides[axis] * box.dims[axis])
      box_.dims[last] *= box.dims[axis];
    else
      append(box_, box.dims[axis]);
    from_.strides[box_.rank - 1] = from.strides[axis];
    to_.strides[box_.rank - 1] = to.strides[axis];
  }
}

StridedCopy StridedCopy::reversed() const {
  StridedCopy back = *this;
  std::swap(back.from_, back.to_);
  return back;
}

} // namespace pdcrt
