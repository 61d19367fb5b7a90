// See Broadcast.h.
#include "pdcrt/kernels/Broadcast.h"

#include "Shapes.h"

#include <stdexcept>

namespace pdcrt {

Broadcast::Broadcast(Setup&, const Options& o) {
  const Arrangement whole = rowMajor(o.input);
  Arrangement from;
  const int missing = o.output.rank - o.input.rank;
  bool fits = missing >= 0;
  for (int axis = 0; fits && axis < o.input.rank; ++axis) {
    const std::int64_t size = o.input.dims[axis];
    fits = size == o.output.dims[missing + axis] || size == 1;
    from.strides[missing + axis] = size == 1 ? 0 : whole.strides[axis];
  }
  if (!fits) throw std::runtime_error("broadcast of " + toString(o.input) + " to " + toString(o.output));
  copy_ = StridedCopy(o.output, from, rowMajor(o.output));
}

} // namespace pdcrt
