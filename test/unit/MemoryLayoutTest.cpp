// LINK: pdcMemory
// Places by lifetime: against brute force, and against the best of all orders where there are few buffers.
#include "Memory/BlockLayout.h"
#include "pdc/IR/Graph.h"

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

/// Names of buffers.
const Value* valueOf(std::size_t buffer) {
  static Graph graph("names");
  static std::vector<const Value*> values;
  while (values.size() <= buffer)
    values.push_back(graph.addInput({ElementType::f32, {}}, "v" + std::to_string(values.size())));
  return values[buffer];
}

/// Every other temporary may replace one that ends when it begins, or be replaced by one that begins when it ends.
void addReplacements(std::mt19937_64& random, Instance& instance) {
  std::size_t count = 0;
  for (auto* buffers : {&instance.kept, &instance.temporary})
    for (Buffer& buffer : *buffers) buffer.value = valueOf(count++);
  std::vector<bool> taken(count, false);
  for (std::size_t i = 0; i < instance.temporary.size(); i += 2) {
    Buffer& buffer = instance.temporary[i];
    const std::size_t with = random() % (instance.kept.size() + i + 1);
    Buffer& other = with < instance.kept.size() ? instance.kept[with] : instance.temporary[with - instance.kept.size()];
    if (&other == &buffer || taken[with]) continue;
    taken[with] = true;
    buffer.bytes = other.bytes;
    if (with < instance.kept.size() && random() % 2 == 0 && !other.replaces && other.first > 0) {
      buffer.last = other.first;
      buffer.first = other.first - 1;
      other.replaces = buffer.value;
      taken[instance.kept.size() + i] = true;
      continue;
    }
    buffer.first = other.last;
    buffer.last = std::max(buffer.last, buffer.first + 1);
    buffer.replaces = other.value;
  }
}

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
  if (random() % 2 == 0) addReplacements(random, instance);
  return instance;
}

bool replaces(const Buffer& a, const Buffer& b) {
  return a.value && a.replaces == b.value && b.last == a.first && a.bytes == b.bytes;
}

/// The two are at the same bytes at the same time, and not in each other's very place.
bool overlap(const Buffer& a, const Buffer& b) {
  if (a.place == b.place && (replaces(a, b) || replaces(b, a))) return false;
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

/// Buffers that lie at one place.
using Together = std::vector<const Buffer*>;

/// The least scratch where each of `groups` lies at one place. In a layout that cannot be pushed down any further every
/// group is at 0 or on another one, or where one of it is kept, so it is found by placing the groups in the order of
/// their offsets, each in one of the two blocks; all in the slot, if that grows.
std::int64_t leastScratch(const Instance& instance, std::vector<Together> groups) {
  std::sort(groups.begin(), groups.end());
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  do {
    const unsigned ways = 1U << groups.size();
    for (unsigned inSlot = instance.grows ? ways - 1 : 0; inSlot < ways; ++inSlot) {
      std::vector<Buffer> placed = instance.kept;
      std::int64_t end = 0;
      bool fits = true;
      for (std::size_t g = 0; g < groups.size(); ++g) {
        Place at = {(inSlot >> g) & 1 ? Block::slot : Block::scratch, -1, 0};
        const auto isFree = [&](const Buffer* member) {
          Buffer there = *member;
          there.place = at;
          return !member->temporary ||
                 std::none_of(placed.begin(), placed.end(), [&](const Buffer& other) { return overlap(there, other); });
        };
        const auto kept =
            std::find_if(groups[g].begin(), groups[g].end(), [](const Buffer* member) { return !member->temporary; });
        if (kept != groups[g].end())
          at = (*kept)->place;
        else
          while (!std::all_of(groups[g].begin(), groups[g].end(), isFree)) at.offset += 64;
        fits = fits && std::all_of(groups[g].begin(), groups[g].end(), isFree);
        const std::int64_t top = at.offset + aligned(groups[g].front()->bytes);
        if (instance.grows)
          end = std::max(end, top - instance.slotBytes);
        else if (at.block == Block::slot)
          fits = fits && top <= instance.slotBytes;
        else
          end = std::max(end, top);
        for (const Buffer* member : groups[g]) {
          if (!member->temporary) continue;
          placed.push_back(*member);
          placed.back().place = at;
        }
      }
      if (fits) least = std::min(least, end);
    }
  } while (std::next_permutation(groups.begin(), groups.end()));
  return least;
}

/// The least scratch of any layout: whatever buffers lie where those do that they replace.
std::int64_t leastScratch(const Instance& instance) {
  std::vector<const Buffer*> all;
  for (const auto* buffers : {&instance.kept, &instance.temporary})
    for (const Buffer& buffer : *buffers) all.push_back(&buffer);
  std::vector<std::pair<std::size_t, std::size_t>> pairs;
  for (std::size_t a = 0; a < all.size(); ++a)
    for (std::size_t b = 0; b < all.size(); ++b)
      if (replaces(*all[a], *all[b])) pairs.emplace_back(a, b);
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (unsigned chosen = 0; chosen < 1U << pairs.size(); ++chosen) {
    std::vector<std::size_t> groupOf(all.size());
    std::iota(groupOf.begin(), groupOf.end(), 0);
    for (std::size_t p = 0; p < pairs.size(); ++p)
      if ((chosen >> p) & 1) {
        const std::size_t from = groupOf[pairs[p].first], to = groupOf[pairs[p].second];
        std::replace(groupOf.begin(), groupOf.end(), from, to);
      }
    std::vector<Together> groups(all.size());
    for (std::size_t i = 0; i < all.size(); ++i) groups[groupOf[i]].push_back(all[i]);
    const auto isKept = [](const Buffer* member) { return !member->temporary; };
    const bool possible = std::all_of(groups.begin(), groups.end(), [&](const Together& group) {
      return std::count_if(group.begin(), group.end(), isKept) < 2; // kept ones are at several places
    });
    std::erase_if(groups, [&](const Together& group) { return std::all_of(group.begin(), group.end(), isKept); });
    if (possible) least = std::min(least, leastScratch(instance, groups));
  }
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

// The one in the middle replaces the first and is replaced by the last, but those overlap by halves: at the place of
// either it would overlap the other.
TEST(AnalysisLayout, OneThatReplacesAnotherLiesAtItsVeryPlaceOrApart) {
  Instance instance;
  instance.slotBytes = 192;
  instance.kept = {{valueOf(0), {Block::slot, -1, 0}, 128, 0, 2}, {valueOf(2), {Block::slot, -1, 64}, 128, 4, 6}};
  instance.temporary = {{valueOf(1), {Block::scratch, -1, 0}, 128, 2, 4, true, valueOf(0)}};
  instance.kept[1].replaces = valueOf(1);
  EXPECT_EQ(place(instance).scratch, 128);
  instance.kept[1].place.offset = 0;
  EXPECT_EQ(place(instance).scratch, 0);
  EXPECT_EQ(instance.temporary[0].place, instance.kept[0].place);
}

TEST(AnalysisLayout, WhatReplacesAnotherLiesWithItWhereNothingIsInTheWay) {
  std::mt19937_64 random(3);
  int apart = 0, together = 0;
  for (int round = 0; round < rounds(300); ++round) {
    Instance instance = randomInstance(random, round % 5, 4 + round % 20, round % 3 == 0);
    place(instance);
    std::vector<const Buffer*> all;
    for (auto* buffers : {&instance.kept, &instance.temporary})
      for (const Buffer& buffer : *buffers) all.push_back(&buffer);
    for (const Buffer& buffer : instance.temporary)
      for (const Buffer* replaced : all) {
        if (!replaces(buffer, *replaced)) continue;
        Buffer there = buffer;
        there.place = replaced->place;
        const bool isThere = buffer.place == there.place;
        EXPECT_TRUE(isThere ||
                    std::any_of(all.begin(), all.end(),
                                [&](const Buffer* other) { return other != &buffer && overlap(there, *other); }))
            << "round " << round;
        ++(isThere ? together : apart);
      }
  }
  EXPECT_GT(together, apart);
  EXPECT_GT(apart, 0); // where something is
}

TEST(AnalysisLayout, IsMostlyTheBestThereIs) {
  std::mt19937_64 random(2);
  int best = 0, all = 0, shared = 0;
  for (int round = 0; round < rounds(120); ++round) {
    Instance instance = randomInstance(random, round % 4, 2 + round % 4, round % 3 == 0);
    const std::int64_t least = leastScratch(instance);
    const std::int64_t taken = place(instance).scratch;
    ASSERT_GE(taken, least);
    EXPECT_LE(taken, 2 * least + 256) << "round " << round;
    best += taken == least;
    ++all;
    for (const Buffer& a : instance.temporary)
      for (const auto* others : {&instance.kept, &instance.temporary})
        for (const Buffer& b : *others) shared += a.place == b.place && (replaces(a, b) || replaces(b, a));
  }
  EXPECT_GE(best, all * 8 / 10);
  EXPECT_GT(shared, all / 6); // buffers that lie where those do that they replace
}
