// LINK: pdcrt pdcSchedule
// The verdict of the check against real execution, on schedules that a mutation has made good or bad: two actions of a
// rank exchanged, one left out, or one moved. StrictRun.h says what real execution is, WitnessStages.h what it
// computes. A mutated schedule is bad when its run
//
// - does not end,
// - is refused by the executor, or breaks the contract of transfers, or
// - ends with other weights, or other digests of what its phases have read, than the schedule before the mutation.
//
// What the check finds good runs, besides, over transports that do one transfer or all-reduce at a time, in the one
// order of its start lists (StartOrder), and ends the same.
#include "OneLaneTransport.h"
#include "RandomShape.h"
#include "Rounds.h"
#include "StrictRun.h"
#include "ThreadRun.h"
#include "WitnessStages.h"

#include "pdc/Schedule/PipelineShape.h"
#include "pdcrt/Machine.h"

#include <gtest/gtest.h>

#include <future>
#include <map>

using namespace pdcrt;

namespace {

Training trainingFor(const Schedule& schedule) {
  Training training;
  training.learningRate = 0.125;
  if (schedule.gradientNorm) training.clipNorm = 0.25;
  return training;
}

strict::Outcome execute(const Schedule& schedule, std::int64_t minibatches) {
  const Training training = trainingFor(schedule);
  std::vector<const Stage*> stages = witness::stagesOf(schedule);
  return strict::StrictRun(schedule, stages, training, witness::readInitial).run(minibatches);
}

/// The run in which each rank has one lane, and starts everything in its turn.
struct InTurns {
  bool ended = false, deadlock = false;
  std::vector<std::byte> result; ///< as strict::Outcome's
  int reductions = 0;            ///< all-reduces that had a turn, of rank 0
};

InTurns executeInTurns(const Schedule& schedule, std::int64_t minibatches) {
  const auto hub = std::make_shared<one_lane::Lanes>();
  ThreadRun run;
  run.schedule = &schedule;
  run.stages = witness::stagesOf(schedule);
  run.training = trainingFor(schedule);
  run.readWeights = witness::readInitial;
  run.makeTransports = [&](int ranks) { return one_lane::makeTransports(ranks, /*ordered=*/true, hub); };
  InTurns outcome;
  // A rank whose turn never comes waits in no circle: a time-out ends the run, in steps, so that a process that is held
  // up as a whole is not taken for one that waits.
  std::promise<void> end;
  std::thread watchdog([&, ended = end.get_future()] {
    for (int seconds = 0; seconds < 60; ++seconds)
      if (ended.wait_for(std::chrono::seconds(1)) == std::future_status::ready) return;
    run.transports[0]->abort(1);
  });
  outcome.ended = run.run([&](Executor& executor, int) { return executor.train(0, minibatches); });
  end.set_value();
  watchdog.join();
  outcome.deadlock = hub->deadlock;
  if (!outcome.ended) return outcome;
  for (const auto& executor : run.executors)
    for (const HostedStage& hosted : executor->hosted()) {
      const std::span<const std::byte> weights = newestOf(hosted);
      outcome.result.insert(outcome.result.end(), weights.begin(), weights.end());
      outcome.result.insert(outcome.result.end(), hosted.state, hosted.state + hosted.stage->bytes.state);
    }
  const StartOrder order(schedule, 0, minibatches);
  for (const Action& action : expand(schedule, 0, minibatches))
    outcome.reductions += (action.kind == ActionKind::allReduce || action.kind == ActionKind::reduceScatter) &&
                          !action.wait && order.turn(action) >= 0;
  return outcome;
}

/// Now and then, updates that await the norm of all gradients; and stages that share parameters, wherever the schedule
/// can.
void connect(pdc::PipelineShape& shape, std::mt19937& random) {
  shape.gradientNorm = shape.microbatches > 0 && random() % 4 == 0;
  if (shape.weights != WeightPolicy::stash || random() % 3 > 0) return;
  const int count = static_cast<int>(shape.stages.size());
  for (int owner = 0; owner < count; ++owner)
    for (int user = owner + 1; user < count; ++user)
      if (random() % 2) shape.shared.push_back({owner, user});
}

/// Two ranks, or twice two, that host two stages each.
Schedule randomLoop(std::mt19937& random) {
  pdc::PipelineShape shape = pdc::straightShape(std::vector<pdc::StageShape>(random() % 4 ? 4 : 2));
  const int replicas = random() % 6 == 0 && shape.stages.size() == 2 ? 4 : 1 + static_cast<int>(random() % 2);
  for (pdc::StageShape& stage : shape.stages) stage.replicas = replicas;
  const char* const kinds[] = {"interleaved:2", "zb-v", "bfs:2", "bfs:4"};
  shape.kind = kinds[random() % (shape.stages.size() == 4 ? 4 : 3)];
  shape.microbatches = 1 + static_cast<std::int64_t>(random() % 6);
  connect(shape, random);
  if (random() % 2)
    for (pdc::StageShape& stage : shape.stages) stage.sharding = Sharding::optimizer;
  // What several stages use is not in shards.
  if (shape.kind.name().starts_with("bfs") && random() % 4 > 0)
    for (int s = 0; s < static_cast<int>(shape.stages.size()); ++s)
      if (std::ranges::none_of(shape.shared, [&](const auto& pair) { return pair.first == s; }))
        shape.stages[static_cast<std::size_t>(s)].sharding = Sharding::weights;
  for (pdc::StageShape& stage : shape.stages)
    if (replicas == 4 && stage.sharding != Sharding::none) stage.shardDegree = 2;
  return pdc::buildSchedule(shape);
}

/// A pipeline of few ranks, with its schedule.
Schedule randomSchedule(std::mt19937& random) {
  while (true) {
    if (random() % 4 == 0) return randomLoop(random);
    pdc::PipelineShape shape = pdc::randomShape(random);
    int ranks = 0;
    for (pdc::StageShape& stage : shape.stages) {
      stage.replicas = std::min(stage.replicas, 2);
      if (stage.replicas == 1) stage.syncDelay = 0;
      ranks += stage.replicas;
    }
    if (shape.microbatches > 0) {
      const char* kinds[] = {"1f1b-flush", "gpipe", "2bw", "zb-h1"};
      shape.kind = kinds[random() % 4];
    } else {
      const WeightPolicy policies[] = {WeightPolicy::stash, WeightPolicy::verticalSync, WeightPolicy::latest};
      shape.weights = policies[random() % 3];
    }
    if (ranks > 4) continue;
    connect(shape, random);
    for (pdc::StageShape& stage : shape.stages)
      if (random() % 2) stage.sharding = Sharding::optimizer; // if it has replicas
    Schedule schedule = pdc::buildSchedule(shape);
    if (check(schedule, 12, {.picture = false}).passed) return schedule;
  }
}

/// The lists of a run, without an endless part.
Schedule finite(const Schedule& schedule, std::int64_t minibatches) {
  Schedule result = schedule;
  for (std::size_t r = 0; r < schedule.ranks.size(); ++r) {
    result.ranks[r].start = expand(schedule, static_cast<int>(r), minibatches);
    result.ranks[r].repeat.clear();
  }
  return result;
}

/// Whether an action of shared parameters has nothing to send or to receive: of the replicas at the other end that this
/// one serves none has a minibatch that uses the version, or is of the update. The check asks for the same order as if
/// there were something, and nothing can go wrong without it.
bool movesNothing(const Schedule& schedule, std::size_t rank, const Action& action, std::int64_t minibatches) {
  const bool version = action.kind == ActionKind::sendVersion || action.kind == ActionKind::receiveVersion;
  if (!version && action.kind != ActionKind::sendPart && action.kind != ActionKind::receivePart) return false;
  const bool owner = action.kind == ActionKind::sendVersion || action.kind == ActionKind::receivePart;
  const int at =
      owner ? schedule.sharedBetween(action.stage, action.peer) : schedule.sharedBetween(action.peer, action.stage);
  const SharedEdge& edge = schedule.shared[static_cast<std::size_t>(at)];
  const int owners = schedule.stages[static_cast<std::size_t>(edge.owner)].replicas;
  const int users = schedule.stages[static_cast<std::size_t>(edge.user)].replicas;
  auto moves = [&](int user) {
    for (std::int64_t b = user; b < minibatches; b += users)
      if (version ? schedule.versionUsed(edge.owner, b) == action.index
                  : b / schedule.minibatchesOfUpdate(edge.owner) + 1 == action.index)
        return true;
    return false;
  };
  int replica = 0;
  for (const Host& host : schedule.ranks[rank].hosts)
    if (host.stage == action.stage) replica = host.replica;
  if (!owner) return !moves(replica);
  for (int user = replica; user < users; user += owners)
    if (moves(user)) return false;
  return true;
}

/// Changes one list in one place; says how. Empty if that would change the order of what moves nothing.
std::string mutate(Schedule& schedule, std::mt19937& random, std::int64_t minibatches) {
  std::size_t r = random() % schedule.ranks.size();
  std::vector<Action>& list = schedule.ranks[r].start;
  auto at = [&](std::size_t i) { return list.begin() + static_cast<std::ptrdiff_t>(i); };
  const std::size_t i = random() % list.size();
  // Next to it, mostly: what is far is found easily.
  const std::size_t distance = 1 + (random() % 4 ? 0 : random() % list.size());
  std::size_t j = random() % 2 ? i + distance : i + list.size() - distance % list.size();
  j %= list.size();
  for (std::size_t k = std::min(i, j); k <= std::max(i, j); ++k)
    if (movesNothing(schedule, r, list[k], minibatches)) return {};
  std::string text = "rank " + std::to_string(r) + ": " + toString(list[i]);
  switch (random() % 4) {
  case 0: // left out
    list.erase(at(i));
    return text + " left out";
  case 1: // moved
    text += " moved to " + toString(list[j]);
    if (i < j)
      std::rotate(at(i), at(i) + 1, at(j) + 1);
    else
      std::rotate(at(j), at(i), at(i) + 1);
    return text;
  default:
    text += " exchanged with " + toString(list[j]);
    std::swap(list[i], list[j]);
    return text;
  }
}

} // namespace

TEST(Mutation, VerdictIsThatOfRealExecution) {
  std::mt19937 random(20261);
  int bad = 0, total = 0, differing = 0, inTurns = 0, reductions = 0, spared = 0;
  std::map<strict::End, int> ends;
  for (int round = 0; round < pdc::rounds(80); ++round) {
    Schedule endless = randomSchedule(random);
    const std::int64_t minibatches = 1 + static_cast<std::int64_t>(random() % 8);
    const Schedule good = finite(endless, minibatches);
    const bool sharded = std::ranges::any_of(good.stages, [](const ScheduleStage& stage) { return stage.isSharded(); });
    ASSERT_EQ(check(good, minibatches).problem, "");
    const strict::Outcome expected = execute(good, minibatches);
    ASSERT_EQ(expected.end, strict::End::finished) << expected.why << "\n" << toString(good);
    for (int i = 0; i < 25; ++i) {
      Schedule mutated = good;
      const std::string mutation = mutate(mutated, random, minibatches);
      if (mutation.empty()) continue;
      const CheckResult verdict = check(mutated, minibatches, {.picture = false});
      const strict::Outcome outcome = execute(mutated, minibatches);
      const bool runs = outcome.end == strict::End::finished && outcome.result == expected.result;
      ++ends[outcome.end];
      ++total;
      bad += !runs;
      if (verdict.passed && runs) {
        const InTurns turns = executeInTurns(mutated, minibatches);
        ASSERT_TRUE(turns.ended && !turns.deadlock && turns.result == expected.result)
            << "after " << mutation << " the run in turns "
            << (turns.deadlock ? "deadlocks"
                : turns.ended  ? "computes something else"
                               : "does not end")
            << "\nin a run of " << minibatches << " minibatches of\n"
            << toString(endless);
        ++inTurns;
        reductions += turns.reductions;
      }
      if (verdict.passed == runs) continue;
      // The shard that a replica updates may have nothing of the tied parameters that are still being sent, or all of
      // those that it sends before it has the others' shards.
      const auto says = [&](const char* text) { return verdict.problem.find(text) != std::string::npos; };
      const bool sendsUngathered = says("SV") && says(" needs ?") && says("AG");
      if (runs && sharded && (says("overwrites a version that is being sent") || sendsUngathered)) {
        ++spared;
        continue;
      }
      ++differing;
      ADD_FAILURE() << "after " << mutation << " the check says '" << verdict.problem << "', execution "
                    << (runs                                   ? "finds nothing wrong"
                        : outcome.end == strict::End::finished ? "computes something else"
                        : outcome.end == strict::End::stuck    ? "does not end"
                                                               : outcome.why)
                    << "\nin a run of " << minibatches << " minibatches of\n"
                    << toString(endless);
      ASSERT_LT(differing, 10);
    }
  }
  std::printf("%d mutations: %d bad; %d runs did not end, %d were refused; %d ran in turns, with %d all-reduces\n",
              total, bad, ends[strict::End::stuck], ends[strict::End::refused], inTurns, reductions);
  EXPECT_GE(3 * bad, total);
  EXPECT_EQ(inTurns + spared, total - bad);
  EXPECT_LE(spared, total / 1000 + 1);
  EXPECT_GT(reductions, inTurns / 10);
}
