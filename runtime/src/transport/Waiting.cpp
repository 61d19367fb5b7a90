// See Waiting.h.
#include "Waiting.h"

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <ratio>

namespace pdcrt {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void Wakeup::wait(std::chrono::nanoseconds limit) {
  if (limit < std::chrono::nanoseconds::zero()) {
    while (::sem_wait(&semaphore_) != 0 && errno == EINTR) {
    }
  } else if (limit > std::chrono::nanoseconds::zero()) {
    timespec until{};
    ::clock_gettime(CLOCK_MONOTONIC, &until);
    const auto nanoseconds = until.tv_nsec + limit.count();
    until.tv_sec += nanoseconds / std::nano::den;
    until.tv_nsec = nanoseconds % std::nano::den;
    while (::sem_clockwait(&semaphore_, CLOCK_MONOTONIC, &until) != 0 && errno == EINTR) {
    }
  }
  while (::sem_trywait(&semaphore_) == 0) {
  } // what is looked at from here on covers all of these
}

int ranksPerCore(int ranks, int cores) {
  return (std::max(ranks, 1) + cores - 1) / cores;
}

std::chrono::nanoseconds pollingPatience(int idle, bool awaited, bool sends, int crowd) {
  using namespace std::chrono_literals;
  constexpr std::chrono::microseconds longest = longestPatience;
  if (!awaited)
    return std::min<std::chrono::microseconds>({longest, sends ? crowd * 200us : longest, idle * crowd * 100us});
  const int spins = crowd > 1 ? 0 : 100;
  if (idle < spins) return 0ns;
  return std::min<std::chrono::microseconds>(
      {longest, crowd > 1 ? std::max(400us, crowd * 50us) : 200us, (idle - spins + 1) * crowd * 10us});
}

} // namespace pdcrt
