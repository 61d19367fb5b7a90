// See Transpose.h.
#include "pdcrt/kernels/Transpose.h"

#include "Shapes.h"

#include <stdexcept>

namespace pdcrt {

Transpose::Transpose(Setup&, const Options& o) {
  const Arrangement whole = rowMajor(o.input);
  Shape output;
  Arrangement from;
  bool taken[maxRank] = {};
  for (std::int64_t axis : o.permutation) {
    if (axis < 0 || axis >= o.input.rank || taken[axis]) break;
    taken[axis] = true;
    from.strides[output.rank] = whole.strides[axis];
    append(output, o.input.dims[axis]);
  }
  if (output.rank != o.input.rank || static_cast<std::int64_t>(o.permutation.size()) != o.input.rank)
    throw std::runtime_error("transposition of " + toString(o.input) + ": not a permutation of its axes");
  copy_ = StridedCopy(output, from, rowMajor(output));
}

} // namespace pdcrt
