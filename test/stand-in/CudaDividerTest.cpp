// Quotients by a product and a shift are those of a division, up to the largest number that was stated, and beyond.
#include "cuda/support/Divider.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

namespace pdcrt {
namespace {

constexpr std::int64_t limit = std::numeric_limits<std::int32_t>::max();

void expectQuotients(std::int64_t divisor, std::int64_t largest) {
  const cuda::Divider by(divisor, largest);
  std::mt19937_64 random(static_cast<std::uint64_t>(divisor));
  const auto expectQuotient = [&](std::int64_t number) {
    ASSERT_EQ(by.quotient(number), number / divisor) << number << " / " << divisor;
    ASSERT_EQ(by.remainder(number), number % divisor) << number << " % " << divisor;
  };
  for (int i = 0; i < 1000; ++i)
    expectQuotient(static_cast<std::int64_t>(random() % (static_cast<std::uint64_t>(largest) + 1)));
  // Where the quotient changes.
  for (std::int64_t multiple = divisor; multiple <= largest && multiple / divisor < 100; multiple += divisor)
    for (std::int64_t number : {multiple - 1, multiple}) expectQuotient(number);
  const std::int64_t last = largest / divisor * divisor;
  for (std::int64_t number : {std::int64_t{0}, std::max<std::int64_t>(last - 1, 0), last, largest})
    expectQuotient(number);
}

TEST(CudaDivider, SmallNumbersHaveTheQuotientsOfADivision) {
  for (std::int64_t divisor = 1; divisor < 3000; ++divisor) expectQuotients(divisor, limit);
  for (int power = 1; power < 31; ++power)
    for (std::int64_t near : {-1, 0, 1})
      expectQuotients(std::max<std::int64_t>(1, (std::int64_t{1} << power) + near), limit);
  expectQuotients(limit, limit);
}

TEST(CudaDivider, LargeNumbersToo) {
  for (std::int64_t divisor : {std::int64_t{1}, std::int64_t{7}, limit, limit + 1, std::int64_t{1} << 40})
    expectQuotients(divisor, std::int64_t{1} << 50);
}

} // namespace
} // namespace pdcrt
