// See Pad.h.
#include "pdcrt/kernels/Pad.h"

#include "Shapes.h"

#include <stdexcept>

namespace pdcrt {

Pad::Pad(Setup&, const Options& o) : value_(o.value) {
  const auto rank = static_cast<std::size_t>(o.input.rank);
  if (o.before.size() != rank || o.after.size() != rank)
    throw std::runtime_error("padding of " + toString(o.input) + ": " + std::to_string(o.before.size()) + " and " +
                             std::to_string(o.after.size()) + " paddings");
  Shape padded;
  for (std::size_t axis = 0; axis < rank; ++axis) {
    if (o.before[axis] < 0 || o.after[axis] < 0)
      throw std::runtime_error("padding of " + toString(o.input) + ": negative on axis " + std::to_string(axis));
    append(padded, o.before[axis] + o.input.dims[axis] + o.after[axis]);
  }
  paddedElements_ = padded.elements();
  Arrangement to = rowMajor(padded);
  for (std::size_t axis = 0; axis < rank; ++axis) to.begin += o.before[axis] * to.strides[axis];
  inside_ = StridedCopy(o.input, rowMajor(o.input), to);
  back_ = inside_.reversed();
}

} // namespace pdcrt
