// A few numbers, from every member of a team to every other: what the runtime itself compares, beside the collectives
// of the kernels.
#pragma once

#include "TeamWork.h"

#include <cstdint>
#include <span>
#include <vector>

namespace pdcrt {

class MemberGather : public Work {
public:
  /// Has the last of TeamWork::channels for itself.
  explicit MemberGather(TeamGroup group);

  /// Before posting: what this member has. All members have as many.
  void prepare(std::span<const std::uint32_t> own);
  /// What all members have, member by member, once the work is complete.
  std::span<const std::uint32_t> all() const { return all_; }
  bool advance(Transport& transport) override { return transfers_.advance(transport); }
  void cancel(Transport& transport) override { transfers_.cancel(transport); }

private:
  TeamGroup group_;
  std::vector<std::uint32_t> all_; ///< here, because a run may end while others still read and write it
  TransferGroup transfers_;
};

} // namespace pdcrt
