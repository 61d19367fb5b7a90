// LINK: pdcPlanner
// Experts on members: the search against all placements there are, and bounds that hold where that is too many.
#include "pdc/Planner/ExpertPlacement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

using namespace pdc;

namespace {

using Counts = std::vector<std::int64_t>;

/// The least sum of the fullest member: by trying for the first expert that is left all sets of others beside it.
std::int64_t leastOf(const Counts& counts, unsigned left, int each) {
  if (left == 0) return 0;
  const int experts = static_cast<int>(counts.size());
  std::int64_t least = INT64_MAX;
  for (unsigned set = left; set != 0; set = (set - 1) & left) {
    if (__builtin_popcount(set) != each || (set & (left & -left)) == 0) continue;
    std::int64_t sum = 0;
    for (int i = 0; i < experts; ++i) sum += (set >> i & 1) ? counts[static_cast<std::size_t>(i)] : 0;
    if (sum < least) least = std::min(least, std::max(sum, leastOf(counts, left & ~set, each)));
  }
  return least;
}

std::int64_t leastOf(const Counts& counts, int members) {
  return leastOf(counts, (1U << counts.size()) - 1, static_cast<int>(counts.size()) / members);
}

/// Each expert once, and the sum that is stated.
void expectPlacement(const ExpertPlacement& placement, const Counts& counts, std::int64_t members) {
  std::vector<std::int32_t> sorted = placement.order, all(counts.size());
  std::sort(sorted.begin(), sorted.end());
  std::iota(all.begin(), all.end(), 0);
  ASSERT_EQ(sorted, all);
  const std::size_t each = counts.size() / static_cast<std::size_t>(members);
  std::int64_t fullest = 0;
  for (std::size_t m = 0; m < static_cast<std::size_t>(members); ++m) {
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < each; ++i) sum += counts[static_cast<std::size_t>(placement.order[m * each + i])];
    fullest = std::max(fullest, sum);
  }
  EXPECT_EQ(placement.fullest, fullest);
  EXPECT_EQ(fullestMember(counts, placement.order, members), fullest);
  EXPECT_LE(placement.lowerBound, placement.fullest);
}

Counts drawn(std::mt19937_64& random, std::size_t experts, int kind) {
  Counts counts(experts);
  for (std::size_t i = 0; i < experts; ++i) {
    const auto below = [&](std::uint64_t n) { return static_cast<std::int64_t>(random() % n); };
    if (kind == 0) counts[i] = below(1000);                                   // even
    if (kind == 1) counts[i] = below(4);                                      // many equal ones
    if (kind == 2) counts[i] = std::int64_t{1} << below(40);                  // one outweighs all smaller ones
    if (kind == 3) counts[i] = 1'000'000 + below(10);                         // nearly equal
    if (kind == 4) counts[i] = i < experts / 4 ? 500 + below(500) : below(3); // few have nearly all
    if (kind == 5) counts[i] = (std::int64_t{1} << 57) + below(1'000'000);    // large numbers
  }
  return counts;
}

} // namespace

TEST(ExpertPlacement, IsTheBestOfAll) {
  std::mt19937_64 random(1);
  int better = 0;
  for (int members : {2, 3, 4, 6})
    for (int experts = members; experts <= 12; experts += members)
      for (int kind = 0; kind < 6; ++kind)
        for (int round = 0; round < 40; ++round) {
          const Counts counts = drawn(random, static_cast<std::size_t>(experts), kind);
          const ExpertPlacement placement = placeExperts(counts, members);
          SCOPED_TRACE(::testing::Message() << experts << " experts, " << members << " members, kind " << kind);
          expectPlacement(placement, counts, members);
          ASSERT_EQ(placement.fullest, leastOf(counts, members));
          ASSERT_TRUE(placement.isOptimal());
          std::vector<std::int32_t> inOrder(counts.size());
          std::iota(inOrder.begin(), inOrder.end(), 0);
          better += placement.fullest < fullestMember(counts, inOrder, members);
        }
  EXPECT_GT(better, 1000);
}

TEST(ExpertPlacement, OfKnownCounts) {
  const ExpertPlacement placement = placeExperts({27, 26, 22, 18, 16, 13, 11, 11}, 2);
  EXPECT_EQ(placement.fullest, 72);
  EXPECT_TRUE(placement.isOptimal());
  EXPECT_EQ(placeExperts({8, 7, 6, 5, 4, 4, 4, 4}, 2).fullest, 21);
  EXPECT_EQ(placeExperts({5, 5, 5, 5}, 4).order, (std::vector<std::int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(placeExperts({0, 0, 0, 0}, 2).fullest, 0);
  EXPECT_EQ(placeExperts({1, 2, 3}, 1).fullest, 6);
}

// Some member has one expert more of the largest than the others have. That bound is the least there is here, above the
// mean, and what is found without a search is 1 more: were the bound higher, the search would end there.
TEST(ExpertPlacement, SearchesToTheBoundOfTheLargest) {
  for (const auto& [counts, members] : std::vector<std::pair<Counts, int>>{
           {{5, 9, 13, 3, 12, 7, 2, 4, 1, 3, 21, 24}, 4}, {{9, 34, 29, 11, 18, 13, 8, 8, 15}, 3}}) {
    const ExpertPlacement placement = placeExperts(counts, members);
    expectPlacement(placement, counts, members);
    EXPECT_EQ(placement.fullest, leastOf(counts, members));
    EXPECT_EQ(placement.lowerBound, placement.fullest);
  }
}

TEST(ExpertPlacement, IsBoundedWhereAllAreTooMany) {
  std::mt19937_64 random(2);
  for (const auto& [experts, members] : std::vector<std::pair<std::size_t, int>>{{64, 8}, {60, 4}, {256, 8}, {128, 64}})
    for (int kind = 0; kind < 5; ++kind)
      for (int round = 0; round < 2; ++round) {
        const Counts counts = drawn(random, experts, kind);
        const ExpertPlacement placement = placeExperts(counts, members);
        SCOPED_TRACE(::testing::Message() << experts << " experts, " << members << " members, kind " << kind);
        expectPlacement(placement, counts, members);
        const std::int64_t total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
        EXPECT_GE(placement.lowerBound * members, total);
        EXPECT_GE(placement.lowerBound, *std::max_element(counts.begin(), counts.end()));
        if (kind == 0 && members <= 8) {
          EXPECT_LE(placement.fullest * 200, placement.lowerBound * 201);
        }
        EXPECT_EQ(placeExperts(counts, members).order, placement.order);
      }
}

// A bound must hold for what is the best: of few experts that is known.
TEST(ExpertPlacement, BoundsHoldWithoutSearch) {
  // Three experts with 10 and two members: two of the three are with one member.
  const ExpertPlacement placement = placeExperts({10, 10, 10, 0}, 2);
  EXPECT_EQ(placement.lowerBound, 20);
  EXPECT_EQ(placement.fullest, 20);
}
