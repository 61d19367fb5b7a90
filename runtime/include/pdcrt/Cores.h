// The cores that a process may use, which need not be all of its machine: taskset, mpirun and containers bind processes
// to some of them, and containers may have a quota of their time.
#pragma once

#include <cstdint>
#include <string_view>

namespace pdcrt {

struct Cores {
  int count = 1;         ///< at least one
  std::uint32_t set = 0; ///< the same for processes of a machine that may use the same cores
};

/// Of the calling thread: those to which it is bound, of which a quota may leave fewer.
Cores ownCores();

/// The cores that a quota allows, rounded up, at least one: the text of cgroup v2's file cpu.max, "200000 100000" (µs
/// in each period) or "max 100000". 0: no limit, or another text.
int coresOfQuota(std::string_view text);

} // namespace pdcrt
