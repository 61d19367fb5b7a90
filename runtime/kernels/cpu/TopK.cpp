// See TopK.h.
#include "pdcrt/kernels/TopK.h"

#include <algorithm>
#include <numeric>

namespace pdcrt {
namespace {

template <class T>
bool larger(T a, T b) {
  return a > b || (a != a && b == b);
}

template <class T>
void best(const TopK::Options& o, const T* x, std::int64_t* order, std::int64_t* indices) {
  for (std::int64_t outer = 0; outer < o.outer; ++outer)
    for (std::int64_t inner = 0; inner < o.inner; ++inner) {
      const T* const column = x + outer * o.size * o.inner + inner;
      std::iota(order, order + o.size, std::int64_t{0});
      std::partial_sort(order, order + o.k, order + o.size, [&](std::int64_t a, std::int64_t b) {
        const T first = column[a * o.inner], second = column[b * o.inner];
        if (larger(first, second)) return o.largest;
        if (larger(second, first)) return !o.largest;
        return a < b;
      });
      for (std::int64_t i = 0; i < o.k; ++i) indices[(outer * o.k + i) * o.inner + inner] = order[i];
    }
}

} // namespace

TopK::TopK(Setup& setup, const Options& options) : options_(options) {
  setup.needWorkspace(static_cast<std::size_t>(options.size) * sizeof(std::int64_t));
}

void TopK::run(Stream& q, Element element, const void* x, View<std::int64_t> indices) const {
  auto* const order = reinterpret_cast<std::int64_t*>(q.workspace());
  withElement(element, [&]<class T>(T) { best(options_, static_cast<const T*>(x), order, indices.data); });
}

} // namespace pdcrt
