// How blocks and threads share the terms of channels, of which `lanes` lie together at each position of a plane.
#pragma once

#include "Divider.h"
#include "pdcrt/CudaWorkspace.h"

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

namespace pdcrt::cuda {

/// Floats of one access of 16 bytes.
inline constexpr int widest = 4;

struct ChannelSizes {
  std::int64_t samples, channels, inner, lanes;
  SumParts parts; ///< with one lane of a size that `widest` divides
  Divider byChannels, byInner;

  PDCRT_DEVICE std::int64_t elements() const { return samples * channels * inner; }
  PDCRT_DEVICE std::int64_t terms() const { return samples * inner; }
  /// Where the first term of channel c is, and how far term i is from it.
  __device__ std::int64_t begin(std::int64_t c) const { return c / lanes * inner * lanes + c % lanes; }
  __device__ std::int64_t offset(std::int64_t i) const {
    return i * lanes + byInner.quotient(i) * (channels - lanes) * inner;
  }
  __device__ std::int64_t end(std::int64_t part) const {
    return (part + 1) * parts.size < terms() ? (part + 1) * parts.size : terms();
  }
};

/// Calls use(i, load(i)) for i = first, first + step, … before `end`. The next loads do not wait for what an earlier
/// one has brought: `atOnce` are under way together.
template <int atOnce, class Load, class Use>
__device__ void forEach(std::int64_t first, std::int64_t end, std::int64_t step, Load load, Use use) {
  for (std::int64_t i = first; i < end; i += atOnce * step) {
    decltype(load(i)) loaded[atOnce] = {};
    for (int k = 0; k < atOnce; ++k)
      if (i + k * step < end) loaded[k] = load(i + k * step);
    for (int k = 0; k < atOnce; ++k)
      if (i + k * step < end) use(i + k * step, loaded[k]);
  }
}

/// How blocks share the channels that lie together: as tiles of `width` accesses, which `rows` positions have at once.
struct Tiles {
  int width, rows;
  std::int64_t perGroup, count; ///< tiles of one group of lanes, and of all
};
template <int n>
Tiles tilesOf(const ChannelSizes& s) {
  constexpr std::int64_t most = lanesPerBlock / widest;
  const std::int64_t accesses = s.lanes / n, perGroup = (accesses + most - 1) / most;
  const auto width = static_cast<int>((accesses + perGroup - 1) / perGroup);
  return {width, static_cast<int>(threadsPerBlock) / width, perGroup, s.channels / s.lanes * perGroup};
}

/// What a thread has of a tile and a part: n channels from `channel` on, at positions first, first + step, … before
/// `end`. Neighbouring blocks have the tiles of the same positions. `all`: all channels lie together.
template <int n, bool all>
struct Share {
  std::int64_t part, channel, begin, first, end, step;
  bool some; ///< else the thread is one too many

  __device__ Share(const ChannelSizes& s, const Tiles& tiles, std::int64_t block, int number) {
    const std::int64_t tile = block % tiles.count, group = tile / tiles.perGroup;
    const int row = number / tiles.width;
    const std::int64_t lane = ((tile - group * tiles.perGroup) * tiles.width + number - row * tiles.width) * n;
    part = block / tiles.count;
    channel = group * s.lanes + lane;
    begin = group * s.inner * s.lanes + lane;
    some = row < tiles.rows && lane < s.lanes;
    first = part * s.parts.size + row;
    end = s.end(part);
    step = tiles.rows;
  }
  /// Where the first of the channels has term i.
  __device__ std::int64_t at(const ChannelSizes& s, std::int64_t i) const {
    // This is a multiple of n already. The compiler has to see it, or it stores the elements one by one.
    return (begin + (all ? i * s.lanes : s.offset(i))) & ~std::int64_t{n - 1};
  }
};

inline ChannelSizes channelSizesOf(std::int64_t samples, std::int64_t channels, std::int64_t inner,
                                   std::int64_t lanes) {
  const std::int64_t elements = samples * channels * inner, terms = samples * inner;
  SumParts parts = partsOfLanes(channels, lanes, terms);
  if (lanes == 1) {
    parts.size = (parts.size + widest - 1) / widest * widest;
    parts.parts = std::max<std::int64_t>(1, (terms + parts.size - 1) / parts.size);
  }
  return {samples, channels, inner, lanes, parts, {channels, elements}, {inner, elements}};
}

/// Whether a thread can move `widest` neighbours at once, where runs of `length` floats begin at these addresses.
inline bool movesPacks(std::int64_t length, std::initializer_list<const float*> addresses) {
  return length % widest == 0 && std::all_of(addresses.begin(), addresses.end(), [](const float* address) {
           return reinterpret_cast<std::uintptr_t>(address) % sizeof(Pack<float, widest>) == 0;
         });
}
/// Calls f with how many it moves.
template <class F>
void withWidth(std::int64_t length, std::initializer_list<const float*> addresses, F f) {
  if (movesPacks(length, addresses))
    f(std::integral_constant<int, widest>());
  else
    f(std::integral_constant<int, 1>());
}

/// How lanes are moved: n at once; `all`: all channels lie together.
template <int n, bool all>
struct Together {};

/// Calls f(tiles, Together<n, all>()), where elements begin at the first addresses and numbers of channels at the
/// others.
template <class F>
void withTiles(const ChannelSizes& s, std::initializer_list<const float*> elements,
               std::initializer_list<const float*> perChannel, F f) {
  if (!movesPacks(s.lanes, elements) || !movesPacks(s.lanes, perChannel))
    f(tilesOf<1>(s), Together<1, false>());
  else if (s.lanes == s.channels)
    f(tilesOf<widest>(s), Together<widest, true>());
  else
    f(tilesOf<widest>(s), Together<widest, false>());
}

/// The sizes for a pass that makes no sums: parts of whole rounds of the threads, in as many blocks as a loop has.
inline ChannelSizes cutForPass(ChannelSizes s, const Tiles& tiles, int atOnce) {
  const std::int64_t round = static_cast<std::int64_t>(tiles.rows) * atOnce, rounds = (s.terms() + round - 1) / round;
  const std::int64_t most = std::max<std::int64_t>(1, 4096 / std::max<std::int64_t>(1, tiles.count));
  s.parts.size = std::max<std::int64_t>(1, (rounds + most - 1) / most) * round;
  s.parts.parts = (s.terms() + s.parts.size - 1) / s.parts.size;
  return s;
}

} // namespace pdcrt::cuda
