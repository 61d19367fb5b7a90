// LINK: pdcAnalysis
// Places by lifetime: against brute force, and against the best of all orders where there are few buffers.
#include "Analysis/BlockLayout.h"

#include "Rounds.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <numeric>
#include <random>

using namespace pdc;

namespace {

struct Instance {
  std::vector<Buffer> kept, temporary;
  std::int64_t slotBytes = 0;
  bool grows = false; ///< the slot
};

/// `kept` buffers lie one after the other, from the middle of the time on or until then; temporaries anywhere.
Instance randomInstance(std::mt19937_64& random, int kept, int temporaries, bool grows) {
  constexpr int moments = 8;
  Instance instance;
  instance.grows = grows;
  auto below = [&](int n) { return static_cast<int>(random() % static_cast<std::uint64_t>(n)); };
  for (int i = 0; i < kept; ++i) {
    const std::int64_t bytes = 64 * (1 + below(4)) - below(2);
    instance.kept.push_back(
        {nullptr, {Block::slot, -1, instance.slotBytes}, bytes, below(moments / 2), moments / 2 + below(moments / 2)});
    instance.slotBytes += aligned(bytes);
  }
  for (int i = 0; i < temporaries; ++i) {
    const int first = below(moments);
    instance.temporary.push_back({nullptr,
                                  {Block::scratch, -1, 0},
                                  64 * (1 + below(4)) - below(2),
                                  first,
                                  first + below(moments - first),
                                  true});
  }
  return instance;
}

bool overlap(const Buffer& a, const Buffer& b) {
  return a.place.block == b.place.block && a.place.offset < b.place.offset + b.bytes &&
         b.place.offset < a.place.offset + a.bytes && a.first <= b.last && b.first <= a.last;
}

TemporaryBytes place(Instance& instance) {
  std::vector<Buffer*> temporaries;
  std::vector<const Buffer*> kept;
  for (Buffer& buffer : instance.temporary) temporaries.push_back(&buffer);
  for (const Buffer& buffer : instance.kept) kept.push_back(&buffer);
  return placeByLifetime(temporaries, {}, kept, instance.slotBytes, instance.grows);
}

/// The least scratch of any layout. In a layout that cannot be pushed down any further every buffer is at 0 or on
/// another one, so it is found by placing the buffers in the order of their offsets, each in one of the two blocks; all
/// in the slot, if that grows.
std::int64_t leastScratch(const Instance& instance) {
  std::vector<std::size_t> order(instance.temporary.size());
  std::iota(order.begin(), order.end(), 0);
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  do {
    const unsigned ways = 1U << order.size();
    for (unsigned inSlot = instance.grows ? ways - 1 : 0; inSlot < ways; ++inSlot) {
      std::vector<Buffer> placed = instance.kept;
      std::int64_t end = 0;
      bool fits = true;
      for (std::size_t i : order) {
        Buffer buffer = instance.temporary[i];
        buffer.place = {(inSlot >> i) & 1 ? Block::slot : Block::scratch, -1, 0};
        while (std::any_of(placed.begin(), placed.end(), [&](const Buffer& other) { return overlap(buffer, other); }))
          buffer.place.offset += 64;
        const std::int64_t top = buffer.place.offset + aligned(buffer.bytes);
        if (instance.grows)
          end = std::max(end, top - instance.slotBytes);
        else if (buffer.place.block == Block::slot)
          fits = fits && top <= instance.slotBytes;
        else
          end = std::max(end, top);
        placed.push_back(buffer);
      }
      if (fits) least = std::min(least, end);
    }
  } while (std::next_permutation(order.begin(), order.end()));
  return least;
}

} // namespace

TEST(AnalysisLayout, NoTwoBuffersThatAreAliveOverlap) {
  std::mt19937_64 random(1);
  for (int round = 0; round < rounds(500); ++round) {
    Instance instance = randomInstance(random, round % 7, 1 + round % 40, round % 3 == 0);
    const TemporaryBytes bytes = place(instance);
    std::vector<Buffer> all = instance.kept;
    all.insert(all.end(), instance.temporary.begin(), instance.temporary.end());
    std::int64_t end = 0;
    for (std::size_t a = 0; a < all.size(); ++a) {
      EXPECT_EQ(all[a].place.offset % 64, 0);
      const std::int64_t top = all[a].place.offset + aligned(all[a].bytes);
      if (all[a].place.block != Block::slot)
        end = std::max(end, top);
      else if (instance.grows)
        end = std::max(end, top - instance.slotBytes);
      else
        EXPECT_LE(top, instance.slotBytes);
      EXPECT_TRUE(all[a].place.block == Block::slot || !instance.grows);
      for (std::size_t b = 0; b < a; ++b) EXPECT_FALSE(overlap(all[a], all[b])) << "round " << round;
    }
    EXPECT_EQ(bytes.scratch, end);
    EXPECT_EQ(bytes.handover, 0);
  }
}

TEST(AnalysisLayout, IsMostlyTheBestThereIs) {
  std::mt19937_64 random(2);
  int best = 0, all = 0;
  for (int round = 0; round < rounds(60); ++round) {
    Instance instance = randomInstance(random, round % 4, 2 + round % 4, round % 3 == 0);
    const std::int64_t least = leastScratch(instance);
    const std::int64_t taken = place(instance).scratch;
    ASSERT_GE(taken, least);
    EXPECT_LE(taken, 2 * least + 256) << "round " << round;
    best += taken == least;
    ++all;
  }
  EXPECT_GE(best, all * 8 / 10);
}
