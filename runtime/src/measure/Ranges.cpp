#include "pdcrt/Ranges.h"

#include <algorithm>

namespace pdcrt {

PhaseRange::PhaseRange(Stream& q, const char* phase, std::span<const GroupRow> groups) : stream_(q), groups_(groups) {
  if (!device::namesRanges()) return;
  device::beginRange(phase);
  stream_.observe(this);
}

PhaseRange::~PhaseRange() {
  if (!device::namesRanges()) return;
  stream_.observe(nullptr);
  if (inGroup_) device::endRange();
  device::endRange();
}

void PhaseRange::beginGroup(int group) {
  if (inGroup_) device::endRange();
  const auto row = std::lower_bound(groups_.begin(), groups_.end(), group,
                                    [](const GroupRow& candidate, int id) { return candidate.id < id; });
  device::beginRange(row != groups_.end() && row->id == group ? row->name : "");
  inGroup_ = true;
}

} // namespace pdcrt
