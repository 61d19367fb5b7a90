// Times of a stream by its events; on the stand-in every piece of work takes a microsecond.
#include "StandIn.h"
#include "pdcrt/Device.h"
#include "pdcrt/StreamClock.h"

#include <gtest/gtest.h>

#include <array>

namespace pdcrt {
namespace {

constexpr std::size_t bytes = 64;

TEST(CudaClock, TimesWhatLiesBetweenItsPoints) {
  device::use(0);
  std::byte* memory = device::allocate(bytes);
  StreamClock clock;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    stand_in::interleave(seed);
    Stream q = device::openStream();
    std::array<std::size_t, 4> points;
    for (std::size_t i = 0; i < points.size(); ++i) {
      points[i] = clock.mark(q);
      EXPECT_EQ(points[i], i);
      for (std::size_t work = 0; work < 2 * i; ++work) device::zero(q, memory, bytes);
    }
    ASSERT_TRUE(device::wait(q));
    EXPECT_NEAR(clock.seconds(points[0], points[1]), 0, 1e-9);
    EXPECT_NEAR(clock.seconds(points[1], points[2]), 2e-6, 1e-9);
    EXPECT_NEAR(clock.seconds(points[0], points[3]), 6e-6, 1e-9);
    clock.clear(); // the next round records the same events again
    device::close(q);
  }
  device::release(memory, bytes);
}

TEST(CudaClock, TheDeviceHasAName) {
  device::use(0);
  EXPECT_EQ(device::name(), "stand-in");
}

// The last one: the device stays failed.
TEST(CudaClock, ATimeThatHasNotComeIsAFailureOfTheDevice) {
  device::use(0);
  Stream q = device::openStream(), other = device::openStream();
  StreamClock clock;
  const std::size_t begin = clock.mark(q);
  for (int work = 0; work < 1000; ++work) device::zero(q, nullptr, 0);
  clock.seconds(begin, clock.mark(q));
  EXPECT_FALSE(device::wait(other));
  device::close(q);
  device::close(other);
}

} // namespace
} // namespace pdcrt
