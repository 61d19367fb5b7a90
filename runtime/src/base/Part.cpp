// Parts are few stretches of one axis; two parts have boxes of the whole tensor in common.
#include "pdcrt/Part.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <set>
#include <vector>

namespace pdcrt {
namespace {

/// Elements of an axis that follow one another in the whole tensor and in a part.
struct Stretch {
  std::int64_t whole = 0, local = 0, size = 0; ///< where it begins in both
};

/// What a member has of an axis of `size`, in ascending order; without padding.
std::vector<Stretch> stretchesOf(const MemberPart& of, int axis, std::int64_t size) {
  const Part& part = of.part;
  if (part.isWhole() || part.axis != axis) return {{0, 0, size}};
  const std::int64_t block = part.wholeSize / part.blocks, share = part.share();
  const std::int64_t begin = of.member * share, own = std::min(share, block - begin);
  std::vector<Stretch> stretches;
  if (!part.order.empty()) {
    for (std::int64_t i = 0; i < own; ++i) stretches.push_back({part.order[static_cast<std::size_t>(begin + i)], i, 1});
    std::sort(stretches.begin(), stretches.end(), [](const Stretch& a, const Stretch& b) { return a.whole < b.whole; });
    return stretches;
  }
  for (std::int64_t b = 0; own > 0 && b < part.blocks; ++b) stretches.push_back({b * block + begin, b * share, own});
  return stretches;
}

/// Elements of an axis that two parts have in common.
struct Common {
  std::int64_t from = 0, to = 0, size = 0; ///< where they begin in each
};

std::vector<Common> commonOf(const std::vector<Stretch>& source, const std::vector<Stretch>& target) {
  std::vector<Common> common;
  for (auto s = source.begin(), t = target.begin(); s != source.end() && t != target.end();) {
    const std::int64_t begin = std::max(s->whole, t->whole), end = std::min(s->whole + s->size, t->whole + t->size);
    if (begin < end) common.push_back({s->local + begin - s->whole, t->local + begin - t->whole, end - begin});
    if (s->whole + s->size < t->whole + t->size)
      ++s;
    else
      ++t;
  }
  return common;
}

/// A walk over the common boxes of two parts, axis by axis.
struct Walk {
  std::vector<Common> common[maxRank];
  std::size_t fromStride[maxRank] = {}, toStride[maxRank] = {}; ///< bytes between neighbours on an axis
  int last = 0; ///< both parts have all of the axes behind this one, so its elements follow one another

  void copy(int axis, const std::byte* from, std::byte* to) const {
    for (const Common& each : common[axis]) {
      const std::byte* source = from + static_cast<std::size_t>(each.from) * fromStride[axis];
      std::byte* target = to + static_cast<std::size_t>(each.to) * toStride[axis];
      const auto size = static_cast<std::size_t>(each.size);
      if (axis == last) {
        std::memcpy(target, source, size * toStride[axis]);
        continue;
      }
      for (std::size_t i = 0; i < size; ++i) copy(axis + 1, source + i * fromStride[axis], target + i * toStride[axis]);
    }
  }
};

std::string text(std::int64_t number) {
  return std::to_string(number);
}

std::string problemOfOrder(const Part& part) {
  if (part.blocks != 1 || part.isPadded())
    return "has an order of an axis of " + text(part.wholeSize) + " in " + text(part.blocks) + " blocks of " +
           text(part.of) + " parts, which are not equal parts of one block";
  const auto size = static_cast<std::int64_t>(part.order.size());
  if (size != part.wholeSize) return "has an order of " + text(size) + " of an axis of " + text(part.wholeSize);
  std::vector<bool> isThere(part.order.size());
  for (const std::int32_t place : part.order) {
    if (place < 0 || place >= size || isThere[static_cast<std::size_t>(place)])
      return "has an order of " + text(size) + " in which " + text(place) + " is outside, or twice";
    isThere[static_cast<std::size_t>(place)] = true;
  }
  return "";
}

} // namespace

std::string problemOf(const Part& part, const Shape& whole) {
  if (part.isWhole()) return "";
  if (part.of < 1 || part.of > mostMembers)
    return "is divided over " + text(part.of) + " members, a team has 2 to " + text(mostMembers);
  if (part.axis < 0 || part.axis >= whole.rank)
    return "is divided along axis " + text(part.axis) + " of " + text(whole.rank);
  const std::int64_t size = whole.dims[part.axis];
  if (part.wholeSize != size)
    return "is divided along an axis of " + text(part.wholeSize) + ", which has " + text(size);
  // The largest axis leaves room for what a share is rounded up by.
  if (size > INT64_MAX / 4) return "is divided along an axis of " + text(size) + ", which is too large";
  if (part.blocks < 1 || part.blocks > size || size % part.blocks != 0)
    return "has " + text(part.blocks) + " blocks of an axis of " + text(size);
  return part.order.empty() ? "" : problemOfOrder(part);
}

std::span<const std::int32_t> keptOrder(const std::vector<std::int32_t>& order) {
  static std::mutex mutex;
  static std::set<std::vector<std::int32_t>> kept;
  const std::lock_guard lock(mutex);
  return *kept.insert(order).first;
}

Shape localShape(const Shape& whole, const Part& part) {
  Shape local = whole;
  if (!part.isWhole()) local.dims[part.axis] = part.localSize();
  return local;
}

Shape wholeShape(const Shape& local, const Part& part) {
  Shape whole = local;
  if (!part.isWhole()) whole.dims[part.axis] = part.wholeSize;
  return whole;
}

void copyPart(const Shape& whole, std::size_t elementBytes, const MemberPart& source, std::span<const std::byte> from,
              const MemberPart& target, std::span<std::byte> to) {
  if (whole.elements() == 0) return;
  const Shape fromShape = localShape(whole, source.part), toShape = localShape(whole, target.part);
  if (whole.rank == 0) {
    std::memcpy(to.data(), from.data(), elementBytes);
    return;
  }
  Walk walk;
  std::size_t fromBytes = elementBytes, toBytes = elementBytes;
  for (int axis = whole.rank - 1; axis >= 0; --axis) {
    walk.fromStride[axis] = fromBytes;
    walk.toStride[axis] = toBytes;
    fromBytes *= static_cast<std::size_t>(fromShape.dims[axis]);
    toBytes *= static_cast<std::size_t>(toShape.dims[axis]);
    walk.common[axis] =
        commonOf(stretchesOf(source, axis, whole.dims[axis]), stretchesOf(target, axis, whole.dims[axis]));
    // A part with all of an axis may still be padding there, and have nothing in common.
    const bool isAll = fromShape.dims[axis] == whole.dims[axis] && toShape.dims[axis] == whole.dims[axis] &&
                       walk.common[axis].size() == 1 && walk.common[axis][0].size == whole.dims[axis];
    if (!isAll) walk.last = std::max(walk.last, axis);
  }
  walk.copy(0, from.data(), to.data());
}

} // namespace pdcrt
