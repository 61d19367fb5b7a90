// See CumSum.h. One thread per line.
#include "pdcrt/kernels/CumSum.h"

#include "device/cuda/Cuda.h"

namespace pdcrt {
namespace {

template <class T>
__global__ void sums(CumSum::Options o, const T* x, T* y) {
  using Sum = std::conditional_t<std::is_floating_point_v<T>, double, std::uint64_t>;
  for (std::int64_t line = thread(); line < o.outer * o.inner; line += threads()) {
    Sum sum = 0;
    for (std::int64_t step = 0; step < o.size; ++step) {
      const std::int64_t at = o.reverse ? o.size - 1 - step : step,
                         i = (line / o.inner * o.size + at) * o.inner + line % o.inner;
      const Sum before = sum;
      sum += static_cast<Sum>(x[i]);
      y[i] = static_cast<T>(o.exclusive ? before : sum);
    }
  }
}

} // namespace

void CumSum::run(Stream& q, Element element, const void* x, void* y) const {
  withElement(element, [&]<class T>(T) {
    launchLoop(q, "running sum", sums<T>, options_.outer * options_.inner, options_, static_cast<const T*>(x),
               static_cast<T*>(y));
  });
}

} // namespace pdcrt
