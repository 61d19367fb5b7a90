// A member of a team, for tests of kernels that ask for its number.
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

private:
  int member_, members_;
};

} // namespace pdcrt
