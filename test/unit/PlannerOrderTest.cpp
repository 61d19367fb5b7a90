// LINK: pdcPlanner
// Dags, strongly connected components and down-sets, against their definitions.
#include "pdc/Planner/Order/DownSets.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

using namespace pdc;

namespace {

std::vector<std::pair<int, int>> randomEdges(std::mt19937_64& random, int nodes, bool forwardOnly) {
  std::vector<std::pair<int, int>> edges;
  for (int a = 0; a < nodes; ++a)
    for (int b = forwardOnly ? a + 1 : 0; b < nodes; ++b)
      if (random() % 4 == 0) edges.emplace_back(a, b);
  return edges;
}

/// Whether there is a path of at least one edge, by trying all.
std::vector<std::vector<char>> reachability(int nodes, const std::vector<std::pair<int, int>>& edges) {
  std::vector<std::vector<char>> reach(nodes, std::vector<char>(nodes, 0));
  for (auto [a, b] : edges) reach[a][b] = 1;
  for (int k = 0; k < nodes; ++k)
    for (int a = 0; a < nodes; ++a)
      for (int b = 0; b < nodes; ++b) reach[a][b] |= reach[a][k] & reach[k][b];
  return reach;
}

TEST(Dag, RefusesACycle) {
  EXPECT_FALSE(Dag::make(3, {{0, 1}, {1, 2}, {2, 0}}));
  EXPECT_FALSE(Dag::make(1, {{0, 0}}));
  EXPECT_TRUE(Dag::make(3, {{2, 1}, {1, 0}}));
}

TEST(Dag, OrderTakesTheSmallestNumberFirst) {
  EXPECT_EQ(Dag::make(4, {{3, 0}, {2, 0}})->order(), (std::vector<int>{1, 2, 3, 0}));
}

TEST(Dag, AncestorsAndDescendantsAreReachability) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    int nodes = 1 + static_cast<int>(random() % 70);
    auto edges = randomEdges(random, nodes, true);
    auto reach = reachability(nodes, edges);
    Dag dag = *Dag::make(nodes, edges);
    auto up = dag.ancestors(), down = dag.descendants();
    for (int a = 0; a < nodes; ++a)
      for (int b = 0; b < nodes; ++b) {
        ASSERT_EQ(down[a].contains(b), reach[a][b] != 0);
        ASSERT_EQ(up[b].contains(a), reach[a][b] != 0);
      }
  }
}

TEST(StrongComponents, AreMutualReachability) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 300; ++round) {
    int nodes = 1 + static_cast<int>(random() % 12);
    auto edges = randomEdges(random, nodes, false);
    if (round % 2) edges.resize(edges.size() / 3);
    auto reach = reachability(nodes, edges);
    std::vector<int> component = strongComponents(nodes, edges);
    for (int a = 0; a < nodes; ++a)
      for (int b = 0; b < nodes; ++b)
        ASSERT_EQ(component[a] == component[b], a == b || (reach[a][b] && reach[b][a])) << "round " << round;
  }
}

TEST(DownSets, AreAllSetsThatHoldTheirPredecessors) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 200; ++round) {
    int nodes = 1 + static_cast<int>(random() % 10);
    auto edges = randomEdges(random, nodes, true);
    std::set<unsigned> expected;
    for (unsigned set = 0; set < 1u << nodes; ++set) {
      bool isDown = true;
      for (auto [a, b] : edges) isDown = isDown && (!(set >> b & 1) || (set >> a & 1));
      if (isDown) expected.insert(set);
    }
    std::optional<DownSets> found = DownSets::all(*Dag::make(nodes, edges), expected.size());
    ASSERT_TRUE(found);
    ASSERT_EQ(found->size(), expected.size());
    for (std::size_t i = 0; i < found->size(); ++i) {
      unsigned set = 0;
      (*found)[i].forEach([&](std::size_t v) { set |= 1u << v; });
      ASSERT_EQ(expected.erase(set), 1u);
      ASSERT_EQ(found->find((*found)[i]), i);
    }
    ASSERT_FALSE(DownSets::all(*Dag::make(nodes, edges), found->size() - 1));
  }
}

} // namespace
