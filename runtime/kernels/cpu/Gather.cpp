// See Gather.h.
#include "pdcrt/kernels/Gather.h"

#include "device/cpu/Parts.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace pdcrt {
namespace {

constexpr std::int64_t outside = -1, ofOthers = -2;

/// The rows of the table that a member has.
struct Rows {
  std::int64_t first, size, all;

  Rows(const Gather::Options& o, const Stream& q)
      : first(o.rows > 0 ? q.member() * o.size : 0), size(o.size), all(o.rows > 0 ? o.rows : o.size) {}
  /// Which of them `index` names; or it is outside of the table, or another member's.
  std::int64_t at(std::int64_t index) const {
    if (index < 0) index += all;
    if (index < 0 || index >= all) return outside;
    return index >= first && index < first + size ? index - first : ofOthers;
  }
};

template <class Index>
void gatherRows(const Gather::Options& o, const Rows& rows, const void* x, const Index* indices, void* y,
                std::size_t elementBytes) {
  const std::size_t rowBytes = static_cast<std::size_t>(o.inner) * elementBytes;
  const auto* from = static_cast<const std::byte*>(x);
  auto* to = static_cast<std::byte*>(y);
  for (std::int64_t n = 0; n < o.outer; ++n, from += static_cast<std::size_t>(o.size) * rowBytes)
    for (std::int64_t i = 0; i < o.count; ++i, to += rowBytes) {
      const std::int64_t row = rows.at(indices[i]);
      if (row < 0)
        std::memset(to, row == outside ? 0xFF : 0, rowBytes);
      else
        std::memcpy(to, from + static_cast<std::size_t>(row) * rowBytes, rowBytes);
    }
}

/// Threads share the rows of the table: each looks for the indices of its own.
template <class Index>
void addRows(const Gather::Options& o, const Rows& rows, const float* dy, const Index* indices, float* dx) {
  const auto addTo = [&](std::int64_t begin, std::int64_t end, const float* from, float* to) {
    std::fill(to + begin * o.inner, to + end * o.inner, 0.0f);
    for (std::int64_t i = 0; i < o.count; ++i, from += o.inner) {
      const std::int64_t row = rows.at(indices[i]);
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

void Gather::gather(Stream& q, const void* x, const std::int64_t* indices, void* y, std::size_t elementBytes) const {
  gatherRows(options_, Rows(options_, q), x, indices, y, elementBytes);
}

void Gather::gather(Stream& q, const void* x, const std::int32_t* indices, void* y, std::size_t elementBytes) const {
  gatherRows(options_, Rows(options_, q), x, indices, y, elementBytes);
}

void Gather::inputGradient(Stream& q, View<const float> dy, View<const std::int64_t> indices, View<float> dx) const {
  addRows(options_, Rows(options_, q), dy.data, indices.data, dx.data);
}

void Gather::inputGradient(Stream& q, View<const float> dy, View<const std::int32_t> indices, View<float> dx) const {
  addRows(options_, Rows(options_, q), dy.data, indices.data, dx.data);
}

} // namespace pdcrt
