#include "pdcrt/Threads.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <sys/syscall.h>
#include <unistd.h>

namespace pdcrt {
namespace {

/// What the kernel calls sched_attr, in its first version; the C library has no such type before glibc 2.41.
struct SchedulingAttributes {
  std::uint32_t size = sizeof(SchedulingAttributes), policy = 0;
  std::uint64_t flags = 0;
  std::int32_t nice = 0;
  std::uint32_t priority = 0;
  std::uint64_t runtime = 0, deadline = 0, period = 0; ///< ns; of ordinary threads the runtime is that of a turn
};

} // namespace

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

bool takeTurnsOf(std::chrono::nanoseconds length) {
#if defined(SYS_sched_getattr) && defined(SYS_sched_setattr)
  SchedulingAttributes now;
  const auto read = [&] { return ::syscall(SYS_sched_getattr, 0, &now, sizeof now, 0) == 0; };
  if (!read() || now.policy != 0) return false;
  now.runtime = static_cast<std::uint64_t>(length.count());
  return ::syscall(SYS_sched_setattr, 0, &now, 0) == 0 && read() && now.runtime > 0;
#else
  static_cast<void>(length);
  return false;
#endif
}

} // namespace pdcrt
