// LINK: pdcrt_kernels
// The counter-based generator against its published test vectors, permutations, and Dropout.
#include "KernelTest.h"
#include "pdcrt/Random.h"
#include "pdcrt/kernels/Dropout.h"

#include <map>
#include <numeric>
#include <set>
#include <stdexcept>

using namespace pdcrt;

namespace {

// "kat_vectors" of the Random123 library, philox4x32 with 10 rounds.
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox({0, 0, 0, 0}, 0), (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, 0xffffffffffffffff),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0a4093822),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, CounterHoldsBlockStreamAndBothWordsOfTheStep) {
  EXPECT_EQ(philoxCounter(1, 2, 0x0000000400000003), (PhiloxBlock{1, 2, 3, 4}));
}

TEST(Permutation, HoldsEveryNumberOnce) {
  for (std::int64_t count : {0, 1, 2, 3, 64, 65, 1797}) {
    std::vector<std::int64_t> order = permutation(42, 3, count), expected(static_cast<std::size_t>(count));
    std::iota(expected.begin(), expected.end(), 0);
    std::ranges::sort(order);
    EXPECT_EQ(order, expected);
  }
}

TEST(Permutation, DependsOnSeedAndEpochAlone) {
  EXPECT_EQ(permutation(42, 3, 100), permutation(42, 3, 100));
  EXPECT_NE(permutation(42, 3, 100), permutation(42, 4, 100));
  EXPECT_NE(permutation(42, 3, 100), permutation(43, 3, 100));
  EXPECT_NE(permutation(42, 3, 100), permutation(42 + (std::uint64_t{1} << 32), 3, 100));
}

TEST(Permutation, EveryOrderIsEquallyLikely) {
  std::map<std::vector<std::int64_t>, int> seen;
  const int draws = 24000;
  for (int epoch = 0; epoch < draws; ++epoch) ++seen[permutation(7, static_cast<std::uint64_t>(epoch), 4)];
  EXPECT_EQ(seen.size(), 24u);
  double chiSquare = 0;
  for (const auto& [order, times] : seen) chiSquare += (times - 1000.0) * (times - 1000.0) / 1000.0;
  EXPECT_LT(chiSquare, 49.7); // 23 degrees of freedom: exceeded with probability 0.001
}

TEST(DropoutKernel, ScalesWhatItKeepsAndItsGradient) {
  const std::int64_t count = 1003;
  const Buffer<float> x = randomBuffer(count, 1), dy = randomBuffer(count, 2), y(count), dx(count);
  const Buffer<std::uint8_t> mask(count);
  pdcrt::Setup setup;
  const Dropout dropout(setup, {.elements = count, .op = 5, .ratio = 0.25});
  expectGoodManners(setup, {y, mask}, [&](Stream& q) { dropout.forward(q, {.seed = 42, .minibatch = 7}, x, y, mask); });
  expectGoodManners(setup, {dx}, [&](Stream& q) { dropout.inputGradient(q, dy, mask, dx); });
  const float scale = static_cast<float>(1 / 0.75);
  for (std::int64_t i = 0; i < count; ++i) {
    ASSERT_LE(mask[i], 1);
    EXPECT_EQ(y[i], mask[i] ? x[i] * scale : 0);
    EXPECT_EQ(dx[i], mask[i] ? dy[i] * scale : 0);
  }
  Stream q;
  dropout.forward(q, {.seed = 42, .minibatch = 7}, x, x, mask); // in place
  EXPECT_TRUE(std::ranges::equal(x.values(), y.values()));
}

std::vector<std::uint8_t> maskOf(std::uint32_t op, Draw draw, std::int64_t count, double ratio) {
  const Buffer<float> x(count), y(count);
  const Buffer<std::uint8_t> mask(count);
  pdcrt::Setup setup;
  Stream q;
  Dropout(setup, {.elements = count, .op = op, .ratio = ratio}).forward(q, draw, x, y, mask);
  return {mask.values().begin(), mask.values().end()};
}

TEST(DropoutKernel, MasksOfOtherSeedsOperationsAndMinibatchesAreOthers) {
  std::set<std::vector<std::uint8_t>> masks;
  for (std::uint64_t seed : {std::uint64_t{1}, std::uint64_t{2}, std::uint64_t{1} << 32})
    for (std::uint32_t op : {0u, 1u})
      for (std::uint64_t minibatch : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1} << 32})
        masks.insert(maskOf(op, {seed, minibatch}, 256, 0.5));
  EXPECT_EQ(masks.size(), 18u);
}

TEST(DropoutKernel, ElementIDrawsWordIOfItsStream) {
  const std::uint64_t seed = 0xFEDCBA9876543210, minibatch = 0x123456789ABCDEF;
  // The last one is so near to 1 that every word is below.
  for (double ratio : {0.0, 0.1, 0.5, 0.9, 1 - 1e-12}) {
    const double bound = std::round(ratio * 4294967296.0);
    const auto mask = maskOf(6, {seed, minibatch}, 1003, ratio);
    for (std::uint32_t i = 0; i < mask.size(); ++i)
      EXPECT_EQ(mask[i], philox(philoxCounter(i / 4, 6, minibatch), seed)[i % 4] >= bound)
          << "element " << i << ", ratio " << ratio;
  }
}

TEST(DropoutKernel, AnElementsMaskDoesNotDependOnHowManyThereAre) {
  const auto few = maskOf(3, {1, 2}, 101, 0.5), many = maskOf(3, {1, 2}, 1000, 0.5);
  EXPECT_TRUE(std::equal(few.begin(), few.end(), many.begin()));
}

TEST(DropoutKernel, DropsTheShareThatItIsTold) {
  const std::int64_t count = 1 << 20;
  for (double ratio : {0.0, 0.1, 0.5, 0.9}) {
    const auto mask = maskOf(0, {42, 0}, count, ratio);
    const double kept = std::accumulate(mask.begin(), mask.end(), 0.0) / count;
    EXPECT_NEAR(kept, 1 - ratio, 4 * std::sqrt(ratio * (1 - ratio) / count)) << "ratio " << ratio;
  }
}

TEST(DropoutKernel, RefusesARatioThatIsNone) {
  pdcrt::Setup setup;
  for (double ratio : {-0.1, 1.0, std::nan("")})
    EXPECT_THROW(Dropout(setup, {.elements = 4, .ratio = ratio}), std::runtime_error);
}

} // namespace
