// A member of a team, for tests of kernels that ask for its number; it does nothing with others.
#pragma once

#include "pdcrt/Team.h"

#include <cstdint>

namespace pdcrt {

class TeamMember : public Team {
public:
  TeamMember(std::int64_t member, std::int64_t members)
      : member_(static_cast<int>(member)), members_(static_cast<int>(members)) {}
  int member() const override { return member_; }
  int members() const override { return members_; }
  void start(int, Stream&, const std::byte*, std::byte*) override { throw PeerGone(); }
  void finish(int, Stream&) override { throw PeerGone(); }
  bool records() const override { return false; }

private:
  int member_, members_;
};

} // namespace pdcrt
