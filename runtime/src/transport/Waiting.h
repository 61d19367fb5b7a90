// How threads wait: the communication thread for transfers, and others for it.
#pragma once

#include <chrono>
#include <semaphore.h>
#include <thread>

namespace pdcrt {

/// Seconds of the steady clock, which the ranks of a machine share.
double now();

/// Lets a thread sleep until another one has something for it.
class Wakeup {
public:
  /// `shared`: it lies in memory of several processes, which all may notify.
  explicit Wakeup(bool shared = false) { ::sem_init(&semaphore_, shared, 0); }
  ~Wakeup() { ::sem_destroy(&semaphore_); }
  Wakeup(const Wakeup&) = delete;
  Wakeup& operator=(const Wakeup&) = delete;

  void notify() { ::sem_post(&semaphore_); }
  /// Returns when notified since the last call, or after `limit`; a negative limit is none.
  void wait(std::chrono::nanoseconds limit);

private:
  sem_t semaphore_;
};

/// How many of `ranks` that may use the same `cores` there are for each of them, rounded up.
int ranksPerCore(int ranks, int cores);

/// The most that a thread which must look sleeps between two looks while there are transfers.
constexpr std::chrono::milliseconds longestPatience{1};

/// Transport::patience() of those that only move while they are polled. Where somebody waits they spin for a few
/// rounds, then sleep, longer and longer, up to 200 µs. Beside a kernel every look takes time from it: they sleep 100
/// µs at least, and up to 200 µs while something is to be sent (`sends`), else up to 1 ms. Where several ranks share a
/// core, ranksPerCore() being `crowd`, the looks of all would take the cores from those that have something to do:
/// there nobody spins, who waits sleeps up to 400 µs, or 50 µs times `crowd` if that is more, and the others `crowd`
/// times as long, all 1 ms at most.
std::chrono::nanoseconds pollingPatience(int idle, bool awaited, bool sends, int crowd);

/// Looks for a while, and leaves the core to the communication thread after each look: a core that falls asleep takes
/// longer to wake than a short message takes to arrive.
template <class Done>
bool isSoon(Done done) {
  constexpr double longest = 100e-6;
  for (const double end = now() + longest; now() < end; std::this_thread::yield())
    if (done()) return true;
  return false;
}

} // namespace pdcrt
