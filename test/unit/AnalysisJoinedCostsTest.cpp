// LINK: pdcAnalysis
#include "pdc/Analysis/JoinedCosts.h"

#include <gtest/gtest.h>

using namespace pdc;

namespace {

CostGraph graphOf(int members, std::vector<CostTensor> tensors) {
  CostGraph graph{.model = "m", .costSource = "test", .nodes = {{.name = "a"}, {.name = "b"}, {.name = "c"}}};
  graph.split.members = members;
  graph.tensors = std::move(tensors);
  return graph;
}

} // namespace

TEST(JoinedCosts, MatchPartsWithTheWhole) {
  const CostGraph joined =
      joinedCosts(graphOf(1, {{.name = "x", .from = 0, .to = {1}, .bytes = 8}}),
                  {graphOf(2, {{.name = "x.own", .from = 0, .to = {1, 2}, .bytes = 4, .isPart = true}})});
  EXPECT_EQ(differenceOf(joined, joined.divided[0]), "");
  ASSERT_EQ(joined.tensors.size(), 1u);
  EXPECT_EQ(joined.tensors[0].name, "x");
  EXPECT_EQ(joined.tensors[0].to, (std::vector<std::int64_t>{1, 2})); // the users in any split
  EXPECT_EQ(joined.tensors[0].bytes, 8);
  EXPECT_EQ(joined.divided[0].tensors[0].bytes, 4);
  EXPECT_TRUE(joined.divided[0].tensors[0].isPart);
  EXPECT_FALSE(joined.tensors[0].isOwn || joined.divided[0].tensors[0].isOwn);
  EXPECT_EQ(wholeBytes(joined, 0), 8);
}

TEST(JoinedCosts, WhatOneSplitHasAloneIsItsOwn) {
  const CostGraph joined =
      joinedCosts(graphOf(1, {{.name = "x", .from = 0, .to = {1}, .bytes = 8}}),
                  {graphOf(2, {{.name = "x", .from = 0, .to = {1}, .bytes = 8, .hasTerms = true},
                               {.name = "y", .from = 1, .to = {2}, .bytes = 6}}),
                   graphOf(4, {{.name = "x", .from = 1, .to = {2}, .bytes = 2}})}); // another group makes this one
  for (const CostGraph& divided : joined.divided) EXPECT_EQ(differenceOf(joined, divided), "");
  ASSERT_EQ(joined.tensors.size(), 3u);
  EXPECT_TRUE(joined.tensors[1].isOwn);
  EXPECT_EQ(joined.tensors[1].bytes, 0);
  EXPECT_TRUE(joined.divided[0].tensors[1].isOwn);
  EXPECT_EQ(joined.divided[0].tensors[1].bytes, 6);
  EXPECT_TRUE(joined.divided[0].tensors[0].hasTerms);
  EXPECT_TRUE(joined.divided[1].tensors[0].isOwn); // it does without that of the first group
  EXPECT_EQ(joined.divided[1].tensors[2].bytes, 2);
}
