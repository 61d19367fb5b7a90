// LINK: pdcSchedule pdcrt_base
// The walk over a rank's list against the definition of a schedule, and the table of action kinds.
#include "machine/ListCursor.h"
#include "RandomShape.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

using namespace pdcrt;

namespace {

Schedule randomSchedule(std::mt19937& random) {
  return pdc::buildSchedule(pdc::randomShape(random));
}

/// Whether a run of `minibatches` has `action`: by the sentence at the top of Schedule.h.
bool belongs(const Schedule& schedule, const Action& action, std::int64_t minibatches) {
  if (!isVersioned(action.kind)) return action.index < minibatches;
  return schedule.updateFirst(schedule.versionedStage(action), action.index) < minibatches;
}

/// The endless list of a rank, far enough for a run of `minibatches`, without what the run leaves out.
std::vector<Action> byDefinition(const Schedule& schedule, int rank, std::int64_t minibatches) {
  const RankList& list = schedule.ranks[static_cast<std::size_t>(rank)];
  std::vector<Action> actions;
  auto add = [&](Action action, std::int64_t round) {
    const std::int64_t more = round * list.step;
    action.index +=
        isVersioned(action.kind) ? more / schedule.minibatchesOfUpdate(schedule.versionedStage(action)) : more;
    if (belongs(schedule, action, minibatches)) actions.push_back(action);
  };
  for (const Action& action : list.start) add(action, 0);
  for (std::int64_t round = 0; round * list.step <= minibatches; ++round)
    for (const Action& action : list.repeat) add(action, round);
  return actions;
}

std::vector<Action> walked(ListCursor list) {
  std::vector<Action> actions;
  for (; list.peek(); list.pop()) actions.push_back(*list.peek());
  return actions;
}

} // namespace

TEST(ListCursor, WalksTheEndlessListWithoutWhatTheRunLeavesOut) {
  std::mt19937 random(1);
  for (int i = 0; i < 60; ++i) {
    const Schedule schedule = randomSchedule(random);
    for (int rank = 0; rank < static_cast<int>(schedule.ranks.size()); ++rank)
      for (std::int64_t minibatches : {0, 1, 2, 3, 7, 30})
        EXPECT_EQ(walked(ListCursor(schedule, rank, minibatches)), byDefinition(schedule, rank, minibatches))
            << toString(schedule) << "rank " << rank << ", " << minibatches << " minibatches";
  }
}

TEST(ListCursor, ShortensARunFromTheNextActionOn) {
  std::mt19937 random(2);
  for (int i = 0; i < 60; ++i) {
    const Schedule schedule = randomSchedule(random);
    const std::vector<Action> whole = walked(ListCursor(schedule, 0, 30));
    for (std::size_t executed : {std::size_t{0}, whole.size() / 3, whole.size() - 1}) {
      ListCursor list(schedule, 0, 30);
      for (std::size_t at = 0; at < executed; ++at) list.pop();
      list.limit(11);
      std::vector<Action> expected = {whole[executed]};
      std::copy_if(whole.begin() + static_cast<std::ptrdiff_t>(executed) + 1, whole.end(), std::back_inserter(expected),
                   [&](const Action& action) { return belongs(schedule, action, 11); });
      EXPECT_EQ(walked(std::move(list)), expected) << toString(schedule) << executed;
    }
  }
}

TEST(ActionKind, HasLettersOfItsOwn) {
  std::set<std::string_view> letters;
  for (const ActionKindRow& row : actionKinds) {
    EXPECT_TRUE(letters.insert(row.letters).second) << row.letters;
    const bool hasPeer = row.does == ActionClass::transfer || row.does == ActionClass::tied;
    EXPECT_EQ(row.arrow != 0, hasPeer) << row.letters;
    const Action action{row.kind, /*wait=*/!isComputation(row.kind), 3, hasPeer ? 4 : -1, 12};
    Action read;
    std::string error;
    ASSERT_TRUE(parseAction(toString(action), read, error)) << error;
    EXPECT_EQ(read, action);
  }
}

TEST(ActionKind, PairsSendsWithReceivesOfTheSameLane) {
  for (const ActionKindRow& row : actionKinds) {
    const ActionKind other = otherEnd(row.kind);
    EXPECT_EQ(otherEnd(other), row.kind) << row.letters;
    EXPECT_EQ(kindRow(other).lane, row.lane) << row.letters;
    EXPECT_EQ(other == row.kind, row.arrow == 0) << row.letters;
    if (row.arrow != 0) {
      EXPECT_EQ(sendOf(row.lane), isSend(row.kind) ? row.kind : other) << row.letters;
    }
  }
}
