// LINK: pdcrt
// How long ranks compute where several share a core.
#include "pdcrt/Threads.h"
#include "transport/Transport.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <sched.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

using namespace pdcrt;

namespace {

/// What the kernel says of the calling thread.
struct Attributes {
  std::uint32_t size = 48, policy = 0;
  std::uint64_t flags = 0;
  std::int32_t nice = 0;
  std::uint32_t priority = 0;
  std::uint64_t runtime = 0, deadline = 0, period = 0;

  static Attributes now() {
    Attributes attributes;
    EXPECT_EQ(::syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0), 0);
    return attributes;
  }
};

/// In a thread of its own: it stays as it is.
template <class F>
void apart(const F& f) {
  std::thread(f).join();
}

TEST(Turns, AreLongAndThoseOfThreadsThatAreStarted) {
  bool given = false;
  apart([&] {
    const Attributes before = Attributes::now();
    if (!(given = takeTurnsOf(longTurn))) return;
    const Attributes after = Attributes::now();
    EXPECT_EQ(after.runtime, 100'000'000u);
    EXPECT_EQ(after.policy, before.policy);
    EXPECT_EQ(after.nice, before.nice);
    apart([] { EXPECT_EQ(Attributes::now().runtime, 100'000'000u); });
  });
  if (!given) GTEST_SKIP() << "this kernel gives no such turns";
}

TEST(Turns, StayThoseThatSomebodyHasChosen) {
  apart([] {
    const sched_param none = {};
    ASSERT_EQ(::sched_setscheduler(0, SCHED_BATCH, &none), 0);
    EXPECT_FALSE(takeTurnsOf(longTurn));
    EXPECT_EQ(Attributes::now().policy, static_cast<std::uint32_t>(SCHED_BATCH));
  });
}

TEST(Turns, ThreadsKnowHowManyRanksShareACore) {
  const auto cores = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  EXPECT_EQ(makeThreadTransports(cores)[0]->crowd(), 1);
  EXPECT_EQ(makeThreadTransports(cores + 1)[0]->crowd(), 2);
}

} // namespace
