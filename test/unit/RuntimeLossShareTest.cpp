// LINK: pdcrt pdcSchedule
// How much of the loss of its update a minibatch makes up, by hand.
#include "data/LossShare.h"

#include "exec/Executor.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

using namespace pdcrt;

namespace {

/// Minibatch b has two labels; -1 does not count.
class Labels : public BatchSource {
public:
  explicit Labels(std::vector<std::int64_t> labels) : labels_(std::move(labels)) {}
  Status read(const DataRow&, std::int64_t minibatch, std::byte* destination) override {
    ++reads;
    std::memcpy(destination, &labels_[static_cast<std::size_t>(minibatch) * 2], 2 * sizeof(std::int64_t));
    return {};
  }
  int reads = 0;

private:
  std::vector<std::int64_t> labels_;
};

constexpr double weights[] = {1, 0.5, 4};
constexpr LossShare plainShare{"label", true, -1, {}}, weightedShare{"label", true, -1, weights};
const DataRow rows[] = {{"label", Element::i64, {2}, 0, true, 3},
                        {"plain", Element::f32, {}, 16, false, 0, false, &plainShare},
                        {"weighted", Element::f32, {}, 20, false, 0, false, &weightedShare}};

Schedule scheduleOf(std::vector<int> replicas, std::int64_t perUpdate) {
  Schedule schedule;
  schedule.minibatchesPerUpdate = perUpdate;
  for (int count : replicas) schedule.stages.push_back({.replicas = count});
  return schedule;
}

/// Of all minibatches of a run that begins with minibatch `first` of the training.
std::vector<float> shares(const DataRow& row, const Schedule& schedule, Labels& labels, std::int64_t count,
                          std::int64_t first = 0) {
  LossShares of;
  std::vector<float> found;
  for (std::int64_t b = 0; b < count; ++b) {
    float share = -1;
    EXPECT_TRUE(of.of(row, rows, schedule, b, count, first, labels, share));
    found.push_back(share);
  }
  return found;
}

const std::vector<std::int64_t> someLabels = {0, 1, -1, 2, -1, -1, 2, 2, -1, -1, -1, -1, 1, -1, 0, 0};

TEST(LossShare, IsThatOfThePositionsOfTheUpdateThatCount) {
  Labels labels(someLabels);
  // 2 + 1 + 0 and 2 + 0 + 0 positions; the last update has two minibatches, with 1 + 2.
  const std::vector<float> expected = {2, 1, 0, 3, 0, 0, 2.0f / 3, 4.0f / 3};
  EXPECT_EQ(shares(rows[1], scheduleOf({1, 2}, 3), labels, 8), expected);
  EXPECT_EQ(labels.reads, 8) << "each once";
}

TEST(LossShare, CountsWeightsOfClasses) {
  Labels labels(someLabels);
  const std::vector<float> expected = {2 * 1.5f / 5.5f, 2 * 4 / 5.5f};
  EXPECT_EQ(shares(rows[2], scheduleOf({1}, 2), labels, 2), expected);
}

TEST(LossShare, IsZeroWhereNothingCounts) {
  Labels labels({-1, -1, -1, -1, 0, 1, 1, 2});
  EXPECT_EQ(shares(rows[1], scheduleOf({1}, 2), labels, 4), (std::vector<float>{0, 0, 1, 1}));
}

TEST(LossShare, OfReplicasThatUpdateAfterEachRound) {
  Labels labels(someLabels);
  EXPECT_EQ(shares(rows[1], scheduleOf({2, 2}, 0), labels, 2), (std::vector<float>{4.0f / 3, 2.0f / 3}));
}

TEST(LossShare, IsOneWhereStagesUpdateWithDifferentMinibatchesOrOne) {
  Labels labels(someLabels);
  EXPECT_EQ(shares(rows[1], scheduleOf({2, 1}, 0), labels, 2), (std::vector<float>{1, 1}));
  EXPECT_EQ(shares(rows[1], scheduleOf({1, 1}, 0), labels, 2), (std::vector<float>{1, 1}));
  EXPECT_EQ(labels.reads, 0);
}

TEST(LossShare, ARunThatGoesOnReadsItsOwnMinibatches) {
  Labels labels(someLabels);
  EXPECT_EQ(shares(rows[1], scheduleOf({1}, 2), labels, 2, 6), (std::vector<float>{2.0f / 3, 4.0f / 3}));
}

TEST(LossShare, NeedsItsLabels) {
  Labels labels(someLabels);
  LossShares of;
  float share = 0;
  EXPECT_FALSE(of.of(rows[1], std::span(rows).subspan(1), scheduleOf({1}, 2), 0, 4, 0, labels, share));
}

} // namespace
