// See StridedCopy.h. Rows that are contiguous on both sides are copied whole; otherwise two axes, one contiguous on
// each side, are walked in tiles, so that every cache line that is touched is used up.
#include "pdcrt/kernels/StridedCopy.h"

#include "common/Shapes.h"
#include "device/cpu/Parts.h"

#include <algorithm>
#include <cassert>
#include <cstring>

namespace pdcrt {
namespace {

/// The axis with stride 1, or the last axis if there is none.
int contiguousAxis(const Shape& box, const Arrangement& arrangement) {
  for (int axis = box.rank - 1; axis >= 0; --axis)
    if (arrangement.strides[axis] == 1) return axis;
  return box.rank - 1;
}

/// The loops around the two inner ones.
struct Outer {
  Shape box;
  std::int64_t from[maxRank] = {}, to[maxRank] = {}; ///< strides
};

template <class T>
void copy(const Shape& box, const Arrangement& source, const Arrangement& destination, const T* from, T* to) {
  from += source.begin;
  to += destination.begin;
  if (box.rank == 0) {
    *to = *from;
    return;
  }
  // `fast` runs along the destination's memory; `slow` along the source's, if that is another axis.
  const int fast = contiguousAxis(box, destination), slow = contiguousAxis(box, source);
  const std::int64_t fastCount = box.dims[fast], slowCount = slow == fast ? 1 : box.dims[slow];
  const std::int64_t fastFrom = source.strides[fast], fastTo = destination.strides[fast];
  const std::int64_t slowFrom = source.strides[slow], slowTo = destination.strides[slow];
  Outer outer;
  for (int axis = 0; axis < box.rank; ++axis) {
    if (axis == fast || axis == slow) continue;
    outer.from[outer.box.rank] = source.strides[axis];
    outer.to[outer.box.rank] = destination.strides[axis];
    append(outer.box, box.dims[axis]);
  }
  constexpr std::int64_t tile = 32;
  std::int64_t fromIndex[maxRank] = {}, toIndex[maxRank] = {}, fromOffset = 0, toOffset = 0;
  do {
    const T* const f = from + fromOffset;
    T* const t = to + toOffset;
    if (slow == fast && fastFrom == 1 && fastTo == 1) {
      std::memcpy(t, f, static_cast<std::size_t>(fastCount) * sizeof(T));
    } else if (slow == fast) {
      for (std::int64_t i = 0; i < fastCount; ++i) t[i * fastTo] = f[i * fastFrom];
    } else {
      for (std::int64_t j0 = 0; j0 < slowCount; j0 += tile)
        for (std::int64_t i0 = 0; i0 < fastCount; i0 += tile)
          for (std::int64_t j = j0; j < std::min(j0 + tile, slowCount); ++j)
            for (std::int64_t i = i0; i < std::min(i0 + tile, fastCount); ++i)
              t[i * fastTo + j * slowTo] = f[i * fastFrom + j * slowFrom];
    }
    advance(outer.box, outer.from, fromIndex, fromOffset);
  } while (advance(outer.box, outer.to, toIndex, toOffset));
}

/// The axis along which threads share a copy: the outermost one that is long enough for all of them, or the longest.
int sharedAxis(const Shape& box) {
  int longest = 0;
  for (int axis = 0; axis < box.rank; ++axis) {
    if (box.dims[axis] >= kernelThreads) return axis;
    if (box.dims[axis] > box.dims[longest]) longest = axis;
  }
  return longest;
}

/// The whole copy, by the threads of the rank.
template <class T>
void share(const Shape& box, const Arrangement& source, const Arrangement& destination, const T* from, T* to) {
  if (box.rank == 0) return copy(box, source, destination, from, to);
  const int axis = sharedAxis(box);
  parts::runRanges(
      parts::countOf(box.dims[axis], box.elements()), box.dims[axis], [&](std::int64_t begin, std::int64_t end) {
        Shape part = box;
        part.dims[axis] = end - begin;
        copy(part, source, destination, from + begin * source.strides[axis], to + begin * destination.strides[axis]);
      });
}

} // namespace

void StridedCopy::run(Stream&, const void* from, void* to, std::size_t elementBytes) const {
  if (box_.rank > 0 && box_.elements() == 0) return;
  const auto as = [&]<class T>(T) { share(box_, from_, to_, static_cast<const T*>(from), static_cast<T*>(to)); };
  switch (elementBytes) {
  case 1: return as(std::uint8_t());
  case 2: return as(std::uint16_t());
  case 4: return as(std::uint32_t());
  case 8: return as(std::uint64_t());
  }
  assert(false && "elements have 1, 2, 4 or 8 bytes");
}

void fill(Stream&, void* to, std::int64_t count, std::uint64_t pattern, std::size_t elementBytes) {
  const auto as = [&]<class T>(T) {
    parts::runLines(count, count, [&](std::int64_t begin, std::int64_t end) {
      std::fill(static_cast<T*>(to) + begin, static_cast<T*>(to) + end, static_cast<T>(pattern));
    });
  };
  switch (elementBytes) {
  case 1: return as(std::uint8_t());
  case 2: return as(std::uint16_t());
  case 4: return as(std::uint32_t());
  case 8: return as(std::uint64_t());
  }
  assert(false && "elements have 1, 2, 4 or 8 bytes");
}

} // namespace pdcrt
