// See Slice.h.
#include "pdcrt/kernels/Slice.h"

#include "Shapes.h"

#include <stdexcept>

namespace pdcrt {

Slice::Slice(Setup&, const Options& o) : inputElements_(o.input.elements()) {
  const auto refuse = [&](const std::string& why) {
    throw std::runtime_error("slice of " + toString(o.input) + " to " + toString(o.output) + ": " + why);
  };
  const auto rank = static_cast<std::size_t>(o.input.rank);
  if (o.output.rank != o.input.rank || o.starts.size() != rank || (!o.steps.empty() && o.steps.size() != rank))
    refuse("ranks differ");
  const Arrangement whole = rowMajor(o.input);
  Arrangement from;
  for (std::size_t axis = 0; axis < rank; ++axis) {
    const std::int64_t step = o.steps.empty() ? 1 : o.steps[axis], first = o.starts[axis],
                       last = first + (o.output.dims[axis] - 1) * step, size = o.input.dims[axis];
    if (step == 0) refuse("a step is 0");
    if (o.output.dims[axis] > 0 && (first < 0 || first >= size || last < 0 || last >= size))
      refuse("elements " + std::to_string(first) + " to " + std::to_string(last) + " of axis " + std::to_string(axis));
    from.begin += first * whole.strides[axis];
    from.strides[axis] = step * whole.strides[axis];
  }
  part_ = StridedCopy(o.output, from, rowMajor(o.output));
  back_ = part_.reversed();
}

} // namespace pdcrt
