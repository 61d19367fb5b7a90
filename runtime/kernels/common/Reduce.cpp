// The half of Reduce.h that is the same on every target: which axes are kept, which are reduced.
#include "pdcrt/kernels/Reduce.h"

#include "Shapes.h"

#include <stdexcept>

namespace pdcrt {

Reduce::Reduce(Setup& setup, const Options& o) : kind_(o.kind) {
  setup.needWorkspace(workspaceBytes(o));
  bool isReduced[maxRank] = {};
  for (std::int64_t axis : o.axes) {
    if (axis < 0 || axis >= o.input.rank || isReduced[axis])
      throw std::runtime_error("reduction of " + toString(o.input) + ": axis " + std::to_string(axis) +
                               " is none of its axes, or named twice");
    isReduced[axis] = true;
  }
  std::int64_t stride = o.input.elements();
  bool first = true, before = false;
  for (int axis = 0; axis < o.input.rank; ++axis) {
    const std::int64_t size = o.input.dims[axis];
    stride = size ? stride / size : 0;
    if (size == 1) continue;
    const bool reduce = isReduced[axis];
    Shape& shape = reduce ? reduced_ : kept_;
    if (first || reduce != before)
      append(shape, size);
    else
      shape.dims[shape.rank - 1] *= size;
    (reduce ? reducedStrides_ : keptStrides_)[shape.rank - 1] = stride;
    first = false;
    before = reduce;
  }
}

} // namespace pdcrt
