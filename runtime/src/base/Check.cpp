// The check as a whole: rules per rank, then the execution of all ranks; and which runs prove a schedule.
#include "pdcrt/Check.h"

#include "CheckParts.h"

#include <algorithm>
#include <numeric>

using namespace pdcrt;

std::int64_t pdcrt::periodMinibatches(const Schedule& schedule) {
  std::int64_t period = std::max<std::int64_t>(1, schedule.minibatchesPerUpdate);
  for (const ScheduleStage& stage : schedule.stages) period = std::lcm(period, stage.replicas);
  return period;
}

std::int64_t pdcrt::minibatchesInFlight(const Schedule& schedule) {
  std::int64_t most = 0;
  for (const ScheduleStage& stage : schedule.stages)
    most = std::max(most, (std::int64_t{stage.warmup} + 1) * stage.replicas);
  return most;
}

CheckResult pdcrt::check(const Schedule& schedule, std::int64_t minibatches, const CheckOptions& options) {
  CheckResult result;
  result.minibatches = minibatches;
  Lists lists;
  for (std::size_t r = 0; r < schedule.ranks.size(); ++r) {
    int rank = static_cast<int>(r);
    lists.push_back(options.evaluation ? expandEvaluation(schedule, rank, minibatches)
                                       : expand(schedule, rank, minibatches));
    result.problem = checkRules(schedule, rank, lists.back(), minibatches, options.evaluation, result.hosts);
    if (!result.problem.empty()) {
      result.problem += " (in a run of " + std::to_string(minibatches) + " minibatches)";
      return result;
    }
  }
  std::sort(result.hosts.begin(), result.hosts.end(), [](const HostUse& a, const HostUse& b) {
    return std::pair(a.host.stage, a.host.replica) < std::pair(b.host.stage, b.host.replica);
  });
  execute(schedule, lists, minibatches, options, result);
  result.passed = result.problem.empty();
  return result;
}

CheckResult pdcrt::checkEveryDrain(const Schedule& schedule) {
  std::int64_t period = periodMinibatches(schedule), warmup = minibatchesInFlight(schedule);
  CheckResult result = check(schedule, warmup + period, {.evaluation = true});
  for (std::int64_t minibatches = 1; result.passed && minibatches <= warmup + period; ++minibatches)
    result = check(schedule, minibatches);
  if (result.passed) result = check(schedule, warmup + 2 * period);
  return result;
}
