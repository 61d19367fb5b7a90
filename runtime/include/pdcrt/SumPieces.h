// Into how many pieces two members of a team cut a sum: a kernel makes its term in as many parts (`hide-collectives`),
// and the members send as many (collectives/PairSum.h).
#pragma once

#include <algorithm>
#include <cstdint>

namespace pdcrt {

/// The pieces in which a member sends `bytes`: 1 to 4. A piece of fewer bytes gains less than a message more costs.
constexpr std::int64_t piecesOfSum(std::int64_t bytes) {
  constexpr std::int64_t most = 4, fewestBytes = 128 << 10;
  return std::clamp<std::int64_t>(bytes / fewestBytes, 1, most);
}

} // namespace pdcrt
