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

void waitPassively(char** argv, int threads) {
  if (threads < 2 || std::getenv("OMP_WAIT_POLICY") || std::getenv("GOMP_SPINCOUNT")) return;
  if (::setenv("OMP_WAIT_POLICY", "passive", 0) == 0) ::execv("/proc/self/exe", argv);
}

} // namespace pdcrt
