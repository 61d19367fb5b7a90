#include "pdcrt/Threads.h"

#include <algorithm>
#include <cstdlib>
#include <unistd.h>

namespace pdcrt {

int threadsOf(int flag, std::span<const Stage* const> stages) {
  if (flag > 0) return flag;
  int threads = 1;
  for (const Stage* stage : stages) threads = std::max(threads, stage->threads);
  return threads;
}

void waitBriefly(char** argv, int threads) {
  // About as long as waking a thread takes: two programs of two threads each on two cores, where spinning only hinders
  // the other, hardly notice it.
  const char* const spins = "1000";
  if (threads < 2 || std::getenv("OMP_WAIT_POLICY") || std::getenv("GOMP_SPINCOUNT")) return;
  if (::setenv("OMP_WAIT_POLICY", "passive", 0) == 0 && ::setenv("GOMP_SPINCOUNT", spins, 0) == 0)
    ::execv("/proc/self/exe", argv);
}

} // namespace pdcrt
