#include "pdc/Schedule/PlanSchedule.h"

#include "pdc/Plan/PolicyText.h"
#include "pdc/Support/Diagnostics.h"
#include "pdcrt/Verify.h"

#include <algorithm>
#include <map>
#include <numeric>

using namespace pdc;

int pdc::syncDelayFor(const Plan& plan, int replicas) {
  return plan.schedule->syncDelay(plan.sync, static_cast<int>(plan.stages.size()), replicas);
}

std::vector<EdgeTraffic> pdc::trafficOf(const Plan& plan) {
  std::map<std::pair<int, int>, EdgeTraffic> edges;
  auto edge = [&](int from, int to) -> EdgeTraffic& {
    EdgeTraffic& traffic = edges[{from, to}];
    if (traffic.edge.to == 0) traffic.edge = {.from = from, .to = to, .backward = false, .forward = false};
    return traffic;
  };
  std::map<std::pair<int, std::string>, std::vector<const PlanTensor*>> uses; // of one value, by producer and name
  for (const PlanTensor& tensor : plan.tensors) {
    EdgeTraffic& traffic = edge(tensor.from, tensor.to);
    traffic.edge.forward = true;
    traffic.forwardBytes += tensor.bytes;
    if (tensor.hasGradient && !plan.gradients) uses[{tensor.from, tensor.name}].push_back(&tensor);
  }
  auto sendBack = [&](int from, int to, std::int64_t bytes) {
    EdgeTraffic& traffic = edge(to, from);
    traffic.edge.backward = true;
    traffic.backwardBytes += bytes;
  };
  for (auto& [value, list] : uses) {
    std::sort(list.begin(), list.end(), [](const PlanTensor* a, const PlanTensor* b) { return a->to < b->to; });
    int earlier = value.first;
    for (const PlanTensor* tensor : list) {
      sendBack(tensor->to, earlier, tensor->bytes);
      earlier = tensor->to;
    }
  }
  if (plan.gradients)
    for (const PlanGradient& gradient : *plan.gradients) sendBack(gradient.from, gradient.to, gradient.bytes);
  std::vector<EdgeTraffic> result;
  for (const auto& [ends, traffic] : edges) result.push_back(traffic);
  return result;
}

PipelineShape pdc::shapeOf(const Plan& plan) {
  PipelineShape shape;
  shape.weights = plan.weights;
  shape.kind = plan.schedule;
  shape.microbatches = plan.schedule->hasBatches ? plan.microbatches : 0;
  const bool isSharded =
      std::any_of(plan.stages.begin(), plan.stages.end(), [](const PlanStage& stage) { return stage.isSharded(); });
  shape.gradientNorm = plan.gradientNorm && (shape.microbatches > 0 || isSharded);
  for (const PlanStage& stage : plan.stages)
    shape.stages.push_back({.replicas = stage.replicas,
                            .warmup = stage.warmup,
                            .syncDelay = stage.syncDelay,
                            .sharding = stage.sharding,
                            .shardDegree = stage.shardDegree,
                            .teamSums = stage.split.tokens});
  for (const EdgeTraffic& traffic : trafficOf(plan)) shape.edges.push_back(traffic.edge);
  for (const PlanSharedParameter& parameter : plan.sharedParameters)
    for (std::size_t i = 1; i < parameter.stages.size(); ++i)
      shape.shared.push_back({parameter.stages[0], parameter.stages[i]});
  std::sort(shape.shared.begin(), shape.shared.end());
  shape.shared.erase(std::unique(shape.shared.begin(), shape.shared.end()), shape.shared.end());
  return shape;
}

/// "0.0 3.0": stages with their replicas.
template <class Host>
static std::string hostsText(const std::vector<Host>& hosts) {
  std::string text;
  for (const Host& host : hosts)
    text += (text.empty() ? "" : " ") + std::to_string(host.stage) + "." + std::to_string(host.replica);
  return text;
}

/// Puts the lists of a generated schedule in the order of the plan's ranks.
static Status orderRanks(const Plan& plan, pdcrt::Schedule& schedule, Diagnostics& diags) {
  std::map<std::pair<int, int>, std::size_t> listOf; // by each rank's first host
  for (std::size_t r = 0; r < schedule.ranks.size(); ++r) {
    const pdcrt::Host& first = schedule.ranks[r].hosts[0];
    listOf[{first.stage, first.replica}] = r;
  }
  std::vector<pdcrt::RankList> ordered;
  for (const PlanRank& rank : plan.ranks) {
    std::vector<pdcrt::Host> hosts;
    for (const PlanRank::Host& host : rank.hosts) hosts.push_back({host.stage, host.replica});
    std::sort(hosts.begin(), hosts.end(), [](const auto& a, const auto& b) { return a.stage < b.stage; });
    auto list = hosts.empty() ? listOf.end() : listOf.find({hosts[0].stage, hosts[0].replica});
    if (list == listOf.end() || schedule.ranks[list->second].hosts != hosts) {
      std::string expected;
      for (const pdcrt::RankList& other : schedule.ranks)
        if (!hosts.empty() && std::find(other.hosts.begin(), other.hosts.end(), hosts[0]) != other.hosts.end())
          expected = hostsText(other.hosts);
      return diags.error(plan.at("/ranks/" + std::to_string(rank.rank)))
                 .exit(ExitCode::unsupported)
                 .help("let one rank host " + (expected.empty() ? std::string("replicas of stages") : expected))
             << "rank " << rank.rank << " hosts '" << hostsText(hosts) << "', the schedule '" << plan.schedule.name()
             << "' has no rank for that";
    }
    ordered.push_back(std::move(schedule.ranks[list->second]));
  }
  schedule.ranks = std::move(ordered);
  return success;
}

/// What a schedule whose ranks host several stages demands of a plan.
static Status checkPlacement(const PipelineShape& shape, const Plan& plan, Diagnostics& diags) {
  const std::string& name = plan.schedule.name();
  auto chunks = static_cast<std::size_t>(plan.schedule->stagesPerRank);
  if (chunks < 2) return success;
  if (shape.stages.size() % chunks != 0)
    return diags.error(plan.at("/stages"))
               .exit(ExitCode::unsupported)
               .help("take " + std::to_string((shape.stages.size() + chunks - 1) / chunks * chunks) + " stages")
           << "every rank hosts " << chunks << " stages under '" << name << "', the plan has " << shape.stages.size();
  int replicas = shape.stages[0].replicas;
  for (std::size_t s = 0; s < shape.stages.size(); ++s)
    if (shape.stages[s].replicas != replicas)
      return diags.error(plan.at("/stages/" + std::to_string(s) + "/replicas"))
                 .exit(ExitCode::unsupported)
                 .help("replicate all stages equally, or take another schedule")
             << "the replicas of '" << name << "' are copies of the whole pipeline, got " << replicas
             << " of stage 0 and " << shape.stages[s].replicas << " of stage " << s;
  std::int64_t each = static_cast<std::int64_t>(shape.stages.size() / chunks) * replicas;
  if (!plan.schedule->fillsRanks || shape.microbatches % each == 0) return success;
  return diags.error(plan.at())
             .exit(ExitCode::unsupported)
             .help("take --microbatches=" + std::to_string((shape.microbatches + each - 1) / each * each))
         << "the microbatches of '" << name << "' must be a multiple of its " << each << " ranks, got "
         << shape.microbatches;
}

/// What a policy of weights demands of a plan.
static Status checkWeights(const PipelineShape& shape, const Plan& plan, Diagnostics& diags) {
  if (plan.schedule->hasBatches && plan.weights != pdcrt::WeightPolicy::stash)
    return diags.error(plan.at()).exit(ExitCode::unsupported).help("take --weights=stash")
           << "the weights '" << nameOf(plan.weights) << "' go with the schedule '1f1b', got '" << plan.schedule.name()
           << "'";
  for (std::size_t s = 0; s < plan.stages.size(); ++s)
    if (plan.stages[s].sharding == pdcrt::Sharding::weights && !plan.schedule->isGiven &&
        plan.schedule->sweeps(static_cast<int>(s), static_cast<int>(plan.stages.size())) == 0)
      return diags.error(plan.at("/stages/" + std::to_string(s) + "/shard"))
                 .exit(ExitCode::unsupported)
                 .help("take the schedule 'bfs:V', under which a rank goes through V stages, or shards of 'optimizer'")
             << "the weights of stage " << s << " lie in shards, and '" << plan.schedule.name()
             << "' needs all of them all the time";
  if (plan.schedule->inFlightFitsBatch)
    for (std::size_t s = 0; s < shape.stages.size(); ++s) {
      std::int64_t inFlight = (std::int64_t{shape.stages[s].warmup} + 1) * shape.stages[s].replicas;
      if (inFlight > shape.microbatches)
        return diags.error(plan.at("/stages/" + std::to_string(s) + "/warmup"))
                   .exit(ExitCode::unsupported)
                   .help("take --microbatches=" + std::to_string(inFlight) + " or more")
               << "'" << plan.schedule.name()
               << "' needs as many microbatches per update as a stage has in flight, got " << shape.microbatches
               << " and " << inFlight;
    }
  if (shape.microbatches > 0) return success;
  if (!shape.shared.empty() && shape.weights != pdcrt::WeightPolicy::stash)
    return diags.error(plan.at()).exit(ExitCode::unsupported).help("take --weights=stash, or a flushing schedule")
           << "stages " << shape.shared[0].first << " and " << shape.shared[0].second
           << " share parameters, which goes with the weights 'stash', got '" << nameOf(plan.weights) << "'";
  if (shape.weights != pdcrt::WeightPolicy::verticalSync) return success;
  const StageShape& input = shape.stages[0];
  for (std::size_t s = 1; s < shape.stages.size(); ++s) {
    const StageShape& stage = shape.stages[s];
    if (input.replicas * (input.warmup + input.syncDelay) >= stage.replicas * (stage.warmup + stage.syncDelay))
      continue;
    return diags.error(plan.at("/stages/" + std::to_string(s) + "/warmup"))
               .help("raise the warm-up of stage 0 or lower that of stage " + std::to_string(s))
           << "vertical sync needs R·(w + d) of stage 0 to be at least that of stage " << s << ", got "
           << input.replicas * (input.warmup + input.syncDelay) << " and "
           << stage.replicas * (stage.warmup + stage.syncDelay);
  }
  return success;
}

bool pdc::isSafeByOrder(const Plan& plan) {
  if (!plan.schedule->hasSafeOrder) return false; // a rank's stages wait for each other, too, or nobody proved it
  if (plan.gradientNorm) return false;            // so do all stages
  for (const PlanStage& stage : plan.stages)
    if (stage.isSharded()) return false; // replicas wait for what each has updated
  if (plan.schedule->forwardsFirst) return true;
  for (const PlanTensor& tensor : plan.tensors) {
    const PlanStage &from = plan.stages[tensor.from], &to = plan.stages[tensor.to];
    if (std::int64_t{from.warmup} * from.replicas < std::int64_t{to.warmup} * to.replicas) return false;
  }
  for (const PlanSharedParameter& parameter : plan.sharedParameters)
    for (int user : parameter.stages) {
      const PlanStage &from = plan.stages[parameter.stages[0]], &to = plan.stages[user];
      if (std::int64_t{from.warmup} * from.replicas < std::int64_t{to.warmup} * to.replicas) return false;
    }
  return true;
}

/// Actions in the lists of a plan's schedule, roughly.
static double listedActions(const Plan& plan) {
  std::vector<double> ports(plan.stages.size(), 0);
  for (const EdgeTraffic& traffic : trafficOf(plan))
    for (int stage : {traffic.edge.from, traffic.edge.to})
      ports[stage] += 2.0 * (traffic.edge.forward + traffic.edge.backward);
  double actions = 0;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    auto R = static_cast<std::int64_t>(plan.stages[s].replicas);
    double listed = plan.stages[s].warmup + 6.0; // minibatches
    if (plan.schedule->flushes)
      listed = std::max(listed, 2.0 * static_cast<double>(std::lcm(plan.microbatches, R) / R));
    actions += static_cast<double>(R) * listed * (3 + ports[s]);
  }
  return actions;
}

constexpr double mostListed = 1e7; // actions, 32 bytes each

bool pdc::canList(const Plan& plan) {
  return listedActions(plan) <= mostListed;
}

Status pdc::checkRunnable(const Plan& plan, Diagnostics& diags) {
  PipelineShape shape = shapeOf(plan);
  if (!checkWeights(shape, plan, diags) || !checkPlacement(shape, plan, diags)) return failure;
  if (isSafeByOrder(plan)) return success;
  return scheduleFor(plan, diags) ? Status(success) : Status(failure);
}

Expected<pdcrt::Schedule> pdc::scheduleFor(const Plan& plan, Diagnostics& diags) {
  PipelineShape shape = shapeOf(plan);
  if (!checkWeights(shape, plan, diags) || !checkPlacement(shape, plan, diags)) return failure;
  if (!canList(plan))
    return diags.error(plan.at("/stages")).exit(ExitCode::unsupported).help("take fewer stages, or smaller warm-ups")
           << "the schedule of this plan has about " << static_cast<std::int64_t>(listedActions(plan))
           << " actions, at most " << static_cast<std::int64_t>(mostListed) << " can be written";
  pdcrt::Schedule schedule = buildSchedule(shape);
  if (schedule.ranks.empty())
    return diags.error(plan.at()).help("name the file of the schedule, or take one by its name")
           << "the lists of the schedule '" << plan.schedule.name() << "' are not for the edges of this plan";
  for (std::size_t s = 0; s < plan.stages.size(); ++s) schedule.stages[s].team = plan.stages[s].split.members;
  if (!orderRanks(plan, schedule, diags)) return failure;
  pdcrt::CheckResult result = pdcrt::checkEveryDrain(schedule);
  const std::string help =
      plan.schedule->isGiven
          ? "put the actions of the file into an order in which each can begin"
          : "no stage may run ahead of the one before it: w·R must not grow from a stage to the next; "
            "without --warmup a legal one is chosen";
  if (!result.passed)
    return diags.error(plan.at("/stages")).help(help)
           << "the schedule of this plan cannot be executed: " << result.problem;
  if (!result.proven && !isSafeByOrder(plan))
    return diags.error(plan.at("/stages")).help(help)
           << "the schedule of this plan repeats itself after " << pdcrt::periodMinibatches(schedule)
           << " minibatches, too many to show that it never stops; " << result.minibatches << " were executed";
  return schedule;
}
