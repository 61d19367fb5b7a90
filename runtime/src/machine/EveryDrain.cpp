// The check as a whole: rules per rank, then the execution of all ranks; and which runs prove a schedule.
#include "pdcrt/Verify.h"

#include "Parts.h"

#include <algorithm>
#include <numeric>

using namespace pdcrt;

std::int64_t pdcrt::periodMinibatches(const Schedule& schedule) {
  std::int64_t period = std::max<std::int64_t>(1, schedule.minibatchesPerUpdate);
  for (const ScheduleStage& stage : schedule.stages) period = std::lcm(period, stage.routing().length());
  return period;
}

std::int64_t pdcrt::minibatchesInFlight(const Schedule& schedule) {
  std::int64_t most = 0;
  for (const ScheduleStage& stage : schedule.stages)
    most = std::max(most, std::int64_t{std::max(stage.warmup + 1, stage.slots)} * stage.routing().length());
  return most;
}

/// The grid of a run in which `rank` breaks a rule: every rank goes on for as long as it keeps them.
static std::string gridUpTo(const Schedule& schedule, std::int64_t minibatches, bool evaluation, int rank) {
  std::vector<std::int64_t> executed(schedule.ranks.size());
  std::vector<HostUse> unused;
  for (std::size_t r = 0; r < executed.size(); ++r)
    (void)checkRules(schedule, static_cast<int>(r), minibatches, evaluation, unused, executed[r]);
  return gridOf(schedule, minibatches, evaluation, executed, {rank});
}

CheckResult pdcrt::check(const Schedule& schedule, std::int64_t minibatches, const CheckOptions& options) {
  CheckResult result;
  result.minibatches = minibatches;
  for (std::size_t r = 0; options.rules && r < schedule.ranks.size(); ++r) {
    std::int64_t executed = 0;
    result.problem = checkRules(schedule, static_cast<int>(r), minibatches, options.evaluation, result.hosts, executed);
    if (!result.problem.empty()) {
      result.problem += " (in a run of " + std::to_string(minibatches) + " minibatches)";
      if (options.picture)
        result.problem += "\n" + gridUpTo(schedule, minibatches, options.evaluation, static_cast<int>(r));
      return result;
    }
  }
  std::sort(result.hosts.begin(), result.hosts.end(), [](const HostUse& a, const HostUse& b) {
    return std::pair(a.host.stage, a.host.replica) < std::pair(b.host.stage, b.host.replica);
  });
  execute(schedule, minibatches, options, result);
  result.passed = result.problem.empty();
  return result;
}

/// The shortest run that fails; `minibatches` does.
static CheckResult shortestFailure(const Schedule& schedule, std::int64_t minibatches) {
  std::int64_t good = 0, bad = minibatches;
  while (bad - good > 1) {
    std::int64_t middle = good + (bad - good) / 2;
    (check(schedule, middle, {.order = false, .picture = false}).passed ? good : bad) = middle;
  }
  return check(schedule, bad);
}

/// So many minibatches begin before every rank is in the part that repeats.
static std::int64_t beginningOf(const Schedule& schedule) {
  std::int64_t most = minibatchesInFlight(schedule);
  for (const RankList& rank : schedule.ranks)
    for (const Action& action : rank.start)
      most = std::max(most, isVersioned(action.kind)
                                ? schedule.updateLast(schedule.versionedStage(action), schedule.versionOf(action))
                                : action.index + 1);
  return most;
}

bool pdcrt::isSame(const Schedule& schedule, const Halt& before, const Halt& after, std::int64_t period) {
  for (std::size_t r = 0; r < schedule.ranks.size(); ++r) {
    if (schedule.ranks[r].repeat.empty()) continue;
    std::int64_t rounds = period / schedule.ranks[r].step;
    if (before.round[r] < 0 || after.round[r] != before.round[r] + rounds || after.offset[r] != before.offset[r])
      return false;
  }
  return true;
}

CheckResult pdcrt::checkEveryDrain(const Schedule& schedule, std::int64_t mostActions) {
  std::int64_t period = periodMinibatches(schedule), beginning = beginningOf(schedule) + minibatchesInFlight(schedule);
  for (const RankList& rank : schedule.ranks) period = std::lcm(period, rank.step);
  double perMinibatch = 1;
  for (const RankList& rank : schedule.ranks)
    perMinibatch += static_cast<double>(rank.repeat.size()) / static_cast<double>(rank.step);
  auto most = static_cast<std::int64_t>(static_cast<double>(mostActions) / perMinibatch / 4);
  bool bounded = period > std::max(most, beginning);
  std::int64_t executed = beginning + (bounded ? std::max<std::int64_t>(most - beginning, 0) : 2 * period);

  CheckResult result = check(schedule, std::min(beginning + period, executed), {.evaluation = true, .order = false});
  if (!result.passed) return result;
  result = check(schedule, executed);
  if (!result.passed) return shortestFailure(schedule, executed);
  if (bounded) return result;

  GatedRun run(schedule);
  std::int64_t gate = (beginning + period - 1) / period * period;
  Halt before = run.runTo(gate);
  for (int i = 0; i < 64; ++i) {
    gate += period;
    Halt after = run.runTo(gate);
    result.proven = isSame(schedule, before, after, period);
    if (result.proven) return result;
    if (CheckResult longer = check(schedule, gate, {.order = false, .picture = false}); !longer.passed)
      return shortestFailure(schedule, gate);
    before = std::move(after);
  }
  return result;
}
