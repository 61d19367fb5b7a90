// LINK: pdcrt_kernels
// The counter-based generator against its published test vectors, permutations, Dropout, and updates.
#include "KernelTest.h"
#include "TeamMember.h"
#include "pdcrt/Optimizer.h"
#include "pdcrt/Random.h"
#include "pdcrt/kernels/Dropout.h"

#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <span>
#include <stdexcept>
#include <vector>

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
  dropout.inputGradient(q, dy, mask, dy);
  EXPECT_TRUE(std::ranges::equal(dy.values(), dx.values()));
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

/// Of a tensor of `rows` rows, each of which has `run` elements for each member.
void expectPartsOfTheWhole(std::int64_t rows, std::int64_t run, std::int64_t members) {
  SCOPED_TRACE(testing::Message() << rows << " rows, " << members << " runs of " << run);
  const Draw draw{.seed = 42, .minibatch = 7};
  const std::int64_t share = rows * run;
  const std::vector<std::uint8_t> whole = maskOf(5, draw, share * members, 0.4);
  const Buffer<float> x = randomBuffer(share, 1), y(share);
  const Buffer<std::uint8_t> mask(share);
  pdcrt::Setup setup;
  const Dropout dropout(setup, {.elements = share, .op = 5, .ratio = 0.4, .run = run, .members = members});
  for (std::int64_t m = 0; m < members; ++m) {
    TeamMember member(m, members);
    expectGoodManners(setup, {y, mask}, [&](Stream& q) {
      q.join(&member);
      dropout.forward(q, draw, x, y, mask);
    });
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t i = 0; i < run; ++i) {
        const bool kept = mask[row * run + i] != 0;
        ASSERT_EQ(kept, whole[static_cast<std::size_t>((row * members + m) * run + i)] != 0)
            << "member " << m << ", row " << row << ", element " << i;
        ASSERT_EQ(y[row * run + i], kept ? x[row * run + i] * static_cast<float>(1 / 0.6) : 0.0f);
      }
  }
}

TEST(DropoutKernel, AMembersPartDrawsAsInTheWhole) {
  for (std::int64_t members : {2, 3})
    for (std::int64_t run : {1, 3, 4, 6, 17, 32, 36, 100, 1028}) {
      expectPartsOfTheWhole(1, run, members);
      expectPartsOfTheWhole(7, run, members);
    }
  expectPartsOfTheWhole(500, 260, 2); // for several threads
  expectPartsOfTheWhole(500, 261, 3);
}

TEST(DropoutKernel, RefusesAPartThatIsNone) {
  pdcrt::Setup setup;
  EXPECT_NO_THROW(Dropout(setup, {.elements = 8, .run = 4, .members = 2}));
  EXPECT_THROW(Dropout(setup, {.elements = 8, .run = 3, .members = 2}), std::runtime_error);
  EXPECT_THROW(Dropout(setup, {.elements = 8, .run = -1, .members = 2}), std::runtime_error);
  EXPECT_THROW(Dropout(setup, {.elements = 8, .run = 4, .members = 0}), std::runtime_error);
  const std::int64_t many = std::int64_t{1} << 33; // of two members they are too many
  EXPECT_NO_THROW(Dropout(setup, {.elements = many}));
  EXPECT_THROW(Dropout(setup, {.elements = many, .run = many, .members = 2}), std::runtime_error);
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

/// Of arrays that begin at `offset` elements after a multiple of 64 bytes.
void checkMomentum(std::int64_t count, std::int64_t offset, bool nesterov, float decay) {
  SCOPED_TRACE(testing::Message() << count << " elements at " << offset);
  const Training training = {.optimizer = OptimizerKind::momentum, .momentum = 0.75, .nesterov = nesterov};
  const Buffer<float> old = randomBuffer(count + offset, 1), gradient = randomBuffer(count + offset, 2),
                      before = randomBuffer(count + offset, 3), velocity(count + offset), fresh(count + offset);
  pdcrt::Setup setup;
  expectGoodManners(setup, {velocity, fresh}, [&](Stream& q) {
    std::ranges::copy(before.values(), velocity.values().begin());
    std::ranges::fill(fresh.values().first(static_cast<std::size_t>(offset)), 0.0f);
    const UpdateSlice slice = {.old = old.view().data + offset,
                               .fresh = fresh.view().data + offset,
                               .gradient = gradient.view().data + offset,
                               .first = velocity.view().data + offset,
                               .second = nullptr,
                               .count = count,
                               .update = 1,
                               .minibatches = 3,
                               .scale = 0.5f,
                               .learningRate = 0.1f,
                               .weightDecay = decay};
    device::update(q, {&slice, 1}, training);
  });
  for (std::int64_t i = offset; i < count + offset; ++i) {
    const float mean = gradient[i] / 3.0f * 0.5f, g = decay == 0 ? mean : mean + decay * old[i];
    const float v = 0.75f * before[i] + g;
    ASSERT_EQ(velocity[i], v) << i;
    ASSERT_EQ(fresh[i], old[i] - 0.1f * (nesterov ? g + 0.75f * v : v)) << i;
  }
}

TEST(MomentumKernel, HasTheSameBitsForAnySizeAndPlace) {
  for (std::int64_t count : {0, 1, 3, 4, 5, 1023, 4096, 40001})
    for (std::int64_t offset : {0, 1, 4}) checkMomentum(count, offset, count % 2 == 0, offset == 1 ? 0.0f : 0.01f);
}

/// What updates write.
struct Updated {
  Buffer<float> fresh, first, second;
  explicit Updated(std::int64_t count) : fresh(count), first(randomBuffer(count, 3)), second(randomBuffer(count, 4)) {
    for (float& value : second.values()) value = std::abs(value);
  }
  bool operator==(const Updated& other) const {
    auto same = [](const Buffer<float>& a, const Buffer<float>& b) {
      return std::ranges::equal(std::as_bytes(a.values()), std::as_bytes(b.values()));
    };
    return same(fresh, other.fresh) && same(first, other.first) && same(second, other.second);
  }
};

/// Up to 100 slices of many sizes, some of them aligned, with gaps between them. Each has numbers of its own.
std::vector<UpdateSlice> manySlices(const Buffer<float>& old, const Buffer<float>& gradient, const Updated& to,
                                    OptimizerKind optimizer, int number) {
  const bool hasFirst = optimizer != OptimizerKind::sgd, hasSecond = hasFirst && optimizer != OptimizerKind::momentum;
  std::vector<UpdateSlice> slices;
  std::int64_t begin = 0;
  for (int i = 0; i < number; ++i) {
    const std::int64_t count =
        std::to_array<std::int64_t>({1, 0, 7, 2051, 64, 1023, 5, 4096, 8, 3})[i * 7 % 10] + i / 10;
    slices.push_back({.old = old.view().data + begin,
                      .fresh = to.fresh.view().data + begin,
                      .gradient = gradient.view().data + begin,
                      .first = hasFirst ? to.first.view().data + begin : nullptr,
                      .second = hasSecond ? to.second.view().data + begin : nullptr,
                      .count = count,
                      .update = 1 + i % 4,
                      .minibatches = 3,
                      .scale = 0.5f,
                      .learningRate = 0.01f * static_cast<float>(i),
                      .weightDecay = i % 3 == 0 ? 0.0f : 0.1f});
    begin += count + 1;
    if (i % 2 == 0) begin = (begin + 3) / 4 * 4;
  }
  EXPECT_LE(begin, old.count());
  return slices;
}

TEST(Update, HasTheSameBitsForManySlicesAsForEach) {
  constexpr std::int64_t count = 74000;
  const Buffer<float> old = randomBuffer(count, 1), gradient = randomBuffer(count, 2);
  Stream q;
  for (OptimizerKind optimizer :
       {OptimizerKind::sgd, OptimizerKind::momentum, OptimizerKind::adam, OptimizerKind::adamw}) {
    const Training training = {.optimizer = optimizer, .momentum = 0.75};
    // A launch for CUDA has room for more than 30, and for fewer than 50.
    for (int number : {0, 1, 30, 100}) {
      const Updated together(count), apart(count), before(count);
      device::update(q, manySlices(old, gradient, together, optimizer, number), training);
      for (const UpdateSlice& slice : manySlices(old, gradient, apart, optimizer, number))
        device::update(q, {&slice, 1}, training);
      EXPECT_TRUE(together == apart) << "optimizer " << static_cast<int>(optimizer) << ", " << number << " slices";
      EXPECT_EQ(together == before, number == 0);
    }
  }
}

} // namespace
