// LINK: pdcrt
// The cores that a process may use: what it is bound to, and what a quota leaves.
#include "pdcrt/Cores.h"

#include "BoundToCores.h"

#include <gtest/gtest.h>
#include <thread>

using namespace pdcrt;

namespace {

/// ownCores() of a thread that is bound to as many.
Cores boundTo(int count) {
  Cores found;
  std::thread([&] {
    bindToFirstCores(count);
    found = ownCores();
  }).join();
  return found;
}

TEST(Cores, AreThoseToWhichTheProcessIsBound) {
  EXPECT_EQ(boundTo(1).count, 1);
  EXPECT_EQ(boundTo(1).set, boundTo(1).set);
  const Cores own = ownCores();
  if (own.count < 2) GTEST_SKIP() << "this process has one core";
  EXPECT_EQ(boundTo(2).count, 2);
  EXPECT_NE(boundTo(1).set, boundTo(2).set);
}

TEST(Cores, AQuotaLeavesFewer) {
  EXPECT_EQ(coresOfQuota("200000 100000"), 2);
  EXPECT_EQ(coresOfQuota("150000 100000"), 2) << "rounded up";
  EXPECT_EQ(coresOfQuota("10000 100000"), 1);
}

TEST(Cores, OtherTextsAreNoQuota) {
  for (const char* text : {"max 100000", "", "100000", "100000 ", "-1 100000", "100000 0", "1e300 1", "a b"})
    EXPECT_EQ(coresOfQuota(text), 0) << text;
}

} // namespace
