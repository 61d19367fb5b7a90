// See Scatter.h.
#include "pdcrt/kernels/Scatter.h"

#include "pdcrt/Math.h"

#include <cstring>

namespace pdcrt {
namespace {

template <class T>
void combine(Combination kind, T& to, T from) {
  using Wide = std::conditional_t<std::is_floating_point_v<T>, T, std::uint64_t>;
  switch (kind) {
  case Combination::replace: to = from; return;
  case Combination::add: to = static_cast<T>(static_cast<Wide>(to) + static_cast<Wide>(from)); return;
  case Combination::multiply: to = static_cast<T>(static_cast<Wide>(to) * static_cast<Wide>(from)); return;
  case Combination::max: to = maximum(to, from); return;
  case Combination::min: to = minimum(to, from); return;
  }
}

template <class T>
void scatter(const Scatter::Options& o, const T* x, const std::int64_t* indices, const T* updates, T* y) {
  if (o.size * o.inner > 0) std::memcpy(y, x, static_cast<std::size_t>(o.size * o.inner) * sizeof(T));
  for (std::int64_t i = 0; i < o.count; ++i) {
    const std::int64_t row = indices[i] < 0 ? indices[i] + o.size : indices[i];
    if (row < 0 || row >= o.size) continue;
    for (std::int64_t j = 0; j < o.inner; ++j) combine(o.kind, y[row * o.inner + j], updates[i * o.inner + j]);
  }
}

} // namespace

Scatter::Scatter(Setup&, const Options& options) : options_(options) {}

void Scatter::run(Stream&, Element element, const void* x, const std::int64_t* indices, const void* updates,
                  void* y) const {
  withElement(element, [&]<class T>(T) {
    scatter(options_, static_cast<const T*>(x), indices, static_cast<const T*>(updates), static_cast<T*>(y));
  });
}

} // namespace pdcrt
