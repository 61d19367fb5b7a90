// See Gather.h.
#include "pdcrt/kernels/Gather.h"

#include "device/cpu/Parts.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace pdcrt {
namespace {

/// The row that `index` names, or -1.
std::int64_t rowOf(std::int64_t index, std::int64_t size) {
  if (index < 0) index += size;
  return index >= 0 && index < size ? index : -1;
}

template <class Index>
void gatherRows(const Gather::Options& o, const void* x, const Index* indices, void* y, std::size_t elementBytes) {
  const std::size_t rowBytes = static_cast<std::size_t>(o.inner) * elementBytes;
  const auto* from = static_cast<const std::byte*>(x);
  auto* to = static_cast<std::byte*>(y);
  for (std::int64_t n = 0; n < o.outer; ++n, from += static_cast<std::size_t>(o.size) * rowBytes)
    for (std::int64_t i = 0; i < o.count; ++i, to += rowBytes) {
      const std::int64_t row = rowOf(indices[i], o.size);
      if (row < 0)
        std::memset(to, 0xFF, rowBytes);
      else
        std::memcpy(to, from + static_cast<std::size_t>(row) * rowBytes, rowBytes);
    }
}

/// Threads share the rows of the table: each looks for the indices of its own.
template <class Index>
void addRows(const Gather::Options& o, const float* dy, const Index* indices, float* dx) {
  const auto addTo = [&](std::int64_t begin, std::int64_t end, const float* from, float* to) {
    std::fill(to + begin * o.inner, to + end * o.inner, 0.0f);
    for (std::int64_t i = 0; i < o.count; ++i, from += o.inner) {
      const std::int64_t row = rowOf(indices[i], o.size);
      if (row < begin || row >= end) continue;
      for (std::int64_t j = 0; j < o.inner; ++j) to[row * o.inner + j] += from[j];
    }
  };
  parts::runRanges(parts::countOf(o.size, o.outer * (o.size + o.count) * o.inner), o.size,
                   [&](std::int64_t begin, std::int64_t end) {
                     for (std::int64_t n = 0; n < o.outer; ++n)
                       addTo(begin, end, dy + n * o.count * o.inner, dx + n * o.size * o.inner);
                   });
}

} // namespace

Gather::Gather(Setup&, const Options& o) : options_(o) {}

void Gather::gather(Stream&, const void* x, const std::int64_t* indices, void* y, std::size_t elementBytes) const {
  gatherRows(options_, x, indices, y, elementBytes);
}

void Gather::gather(Stream&, const void* x, const std::int32_t* indices, void* y, std::size_t elementBytes) const {
  gatherRows(options_, x, indices, y, elementBytes);
}

void Gather::inputGradient(Stream&, View<const float> dy, View<const std::int64_t> indices, View<float> dx) const {
  addRows(options_, dy.data, indices.data, dx.data);
}

void Gather::inputGradient(Stream&, View<const float> dy, View<const std::int32_t> indices, View<float> dx) const {
  addRows(options_, dy.data, indices.data, dx.data);
}

} // namespace pdcrt
