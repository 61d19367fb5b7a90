// See CumSum.h.
#include "pdcrt/kernels/CumSum.h"

namespace pdcrt {
namespace {

template <class T>
void sums(const CumSum::Options& o, const T* x, T* y) {
  using Sum = std::conditional_t<std::is_floating_point_v<T>, double, std::uint64_t>;
  for (std::int64_t outer = 0; outer < o.outer; ++outer)
    for (std::int64_t inner = 0; inner < o.inner; ++inner) {
      Sum sum = 0;
      for (std::int64_t step = 0; step < o.size; ++step) {
        const std::int64_t i = (outer * o.size + (o.reverse ? o.size - 1 - step : step)) * o.inner + inner;
        const Sum before = sum;
        sum += static_cast<Sum>(x[i]);
        y[i] = static_cast<T>(o.exclusive ? before : sum);
      }
    }
}

} // namespace

void CumSum::run(Stream&, Element element, const void* x, void* y) const {
  withElement(element, [&]<class T>(T) { sums(options_, static_cast<const T*>(x), static_cast<T*>(y)); });
}

} // namespace pdcrt
