#include "Teams.h"

#include "pdc/Analysis/Profile.h"
#include "pdc/Support/DiagnosticsBuilder.h"

#include <algorithm>
#include <sstream>

using namespace pdc;

Status pdc::checkSamples(const Graph& graph, const TeamSplit& split, const BatchAxes& batch, Diagnostics& diags) {
  if (!split.experts) return success;
  for (const GraphInput& input : graph.inputs) {
    const auto axis = batch.axes.find(input.value->name());
    if (input.kind == InputKind::data && axis != batch.axes.end() && axis->second > 0)
      return diags.error({.node = "%" + input.value->name()})
                 .exit(ExitCode::usage)
                 .help("export the model with samples first, or take --split=tp:" + std::to_string(split.members))
             << "input '" << input.value->name() << "', " << toString(input.value->type())
             << ", has its samples along axis " << axis->second << "; --split=" << toText(split)
             << " divides them along axis 0";
  }
  return success;
}

SplitOptions pdc::optionsOf(const TeamSplit& split) {
  return {.members = split.members,
          .all = split.all,
          .tokens = split.tokens,
          .experts = split.experts,
          .weights = split.weights};
}

Status pdc::divideOverTeam(PassContext& context, const TeamSplit& split, const ExpertPlans& plans,
                           std::vector<SplitClass>& classes, std::vector<PlacedLayer>& placed) {
  SplitOptions options = optionsOf(split);
  for (const auto& [layer, plan] : plans) options.orders[layer] = plan.order;
  auto& graphs = context.module.graphs;
  const std::size_t before = graphs.size();
  if (!splitOverTeam(context, options, &classes, &placed)) return failure;
  if (groupNames(*graphs[before]) != groupNames(*context.module.findGraph("main"))) // costs are compared by group
    return context.diags.error({}).exit(ExitCode::internal).help("report this, with the model")
           << "--split=" << toText(split) << " has changed the fusion groups of the model";
  for (std::size_t i = before; i < graphs.size(); ++i) {
    const std::string& name = graphs[i]->name();
    graphs[i] = clone(*graphs[i], name.substr(0, name.find('.')) + suffixOf(split));
  }
  if (std::none_of(classes.begin(), classes.end(), [](const SplitClass& c) { return c.chosen; }))
    context.diags.remark({}).help(split.tokens ? "take --split=tp:" + std::to_string(split.members)
                                               : "split less, or take --split=tp:" + std::to_string(split.members) +
                                                     ",all to divide what does not pay")
        << "nothing of this model is worth dividing over " << split.members << " members: each computes all of it";
  return success;
}

void pdc::takeGraphsOf(Module& module, const TeamSplit& split) {
  std::vector<std::unique_ptr<Graph>> ofMember;
  for (const char* name : {"main", "evaluate"})
    if (const Graph* graph = module.findGraph(name + suffixOf(split))) ofMember.push_back(clone(*graph, name));
  module.graphs = std::move(ofMember);
}

Expected<Cluster> pdc::teamsOf(const Cluster& machines, const TeamSplit& split, Diagnostics& diags) {
  const std::int64_t members = split.members;
  if (split.isNone()) return machines;
  Cluster teams = machines;
  auto refuse = [&](std::int64_t count, const std::string& what) {
    return diags.error({})
               .exit(ExitCode::usage)
               .help("take a multiple of " + std::to_string(members) + " devices, or another --split")
           << "teams of " << members << " do not fit into " << count << " " << what;
  };
  std::int64_t& innermost = teams.levels[0].count;
  if (innermost % members != 0) return refuse(innermost, innermost == 1 ? "device" : "devices");
  innermost /= members;
  // Bytes of a plan are those of a member; links of a machine carry what all of them send.
  for (std::size_t level = 1; level < teams.levels.size(); ++level)
    teams.levels[level].bandwidthBytesPerS /= static_cast<double>(members);
  for (DeviceGroup& group : teams.devices) {
    if (group.count % members != 0) return refuse(group.count, "devices of kind '" + group.device.name + "'");
    group.count /= members;
  }
  // A team keeps as many cores busy as it has members; it is slower where there are not as many.
  auto share = [&](DeviceKind& device) {
    device.speed *= shareOfCore(device.cores, split);
    device.cores = teamsAtOnce(device.cores, split);
  };
  share(teams.device);
  for (DeviceGroup& group : teams.devices) share(group.device);
  return teams;
}

/// Times of stages are those of a member that has a core, also where teamsOf has made teams slower.
static void takeMembersAlone(Plan& plan, const TeamSplit& split, const Cluster& machines) {
  std::vector<double> shares(plan.stages.size(), 1.0);
  for (const PlanRank& rank : plan.ranks)
    for (const PlanRank::Host& host : rank.hosts)
      for (const std::int64_t team : rank.devices) {
        double& share = shares[static_cast<std::size_t>(host.stage)];
        share = std::min(share, shareOfCore(machines.deviceAt(team * split.members).cores, split));
      }
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    PlanStage& stage = plan.stages[s];
    for (double* ms : {&stage.forwardMs, &stage.inputGradientMs, &stage.weightGradientMs, &stage.updateMs,
                       &stage.allReduceCoreMs, &stage.forwardTeamMs, &stage.backwardTeamMs})
      *ms *= shares[s];
  }
}

void pdc::giveDevices(Plan& plan, const TeamSplit& split, const Cluster& machines) {
  if (split.isNone()) return;
  for (PlanStage& stage : plan.stages) stage.split = split;
  takeMembersAlone(plan, split, machines);
  for (PlanRank& rank : plan.ranks) {
    std::vector<std::int64_t> devices;
    for (std::int64_t team : rank.devices)
      for (std::int64_t member = 0; member < split.members; ++member) devices.push_back(team * split.members + member);
    rank.devices = std::move(devices);
  }
  plan.cluster = machines;
}

Status pdc::checkSplit(const Plan& plan, const TeamSplit& split, Diagnostics& diags) {
  for (std::size_t s = 0; s < plan.stages.size(); ++s)
    if (plan.stages[s].split != split)
      return diags.error(plan.at("/stages/" + std::to_string(s) + "/split"))
                 .help("add --split=" + toText(plan.stages[s].split))
             << "the plan is for --split=" << toText(plan.stages[s].split) << ", not for " << toText(split);
  return success;
}

std::vector<TeamSplit> pdc::differentSplits(const Plan& plan) {
  std::vector<TeamSplit> splits;
  for (const PlanStage& stage : plan.stages) splits.push_back(stage.split);
  return areDifferent(splits) ? splits : std::vector<TeamSplit>();
}

bool pdc::areDifferent(const std::vector<TeamSplit>& splits) {
  return std::ranges::any_of(splits, [&](const TeamSplit& split) { return split != splits.front(); });
}

Graph& pdc::mainOf(const Module& module, const Plan& plan, std::size_t stage) {
  return *module.findGraph("main" + (differentSplits(plan).empty() ? "" : suffixOf(plan.stages[stage].split)));
}

Status pdc::giveSplits(Plan& plan, const std::vector<TeamSplit>& splits, const Cluster& machines, Diagnostics& diags) {
  if (splits.size() != plan.stages.size())
    return diags.error(plan.at("/stages")).exit(ExitCode::usage).help("write one split for each stage, or one for all")
           << "the plan has " << plan.stages.size() << " stages, --split has " << splits.size() << " splits";
  bool isAsPlanned = true;
  for (std::size_t s = 0; s < splits.size(); ++s) {
    isAsPlanned = isAsPlanned && plan.stages[s].split == splits[s];
    plan.stages[s].split = splits[s];
  }
  if (isAsPlanned) return success;
  std::int64_t devices = 0;
  for (PlanRank& rank : plan.ranks) {
    rank.devices.clear();
    for (int member = 0; member < membersOf(plan, rank); ++member) rank.devices.push_back(devices++);
  }
  if (plan.cluster.deviceCount() < devices) plan.cluster = machines;
  if (plan.cluster.deviceCount() < devices)
    return diags.error({}).exit(ExitCode::usage).help("take more devices, or smaller teams")
           << "the members of all teams need " << devices << " devices, there are " << plan.cluster.deviceCount();
  plan.optimal = false, plan.lowerBoundMs = 0;
  diags.remark(plan.at("/stages")) << "times of the stages are those of the splits that the plan had before";
  return success;
}

Status pdc::checkTeams(const Plan& plan, Diagnostics& diags) {
  if (std::ranges::all_of(plan.stages, [](const PlanStage& stage) { return stage.split.isNone(); })) return success;
  for (const PlanRank& rank : plan.ranks) {
    const std::string at = "/ranks/" + std::to_string(rank.rank);
    const auto splitOf = [&](const PlanRank::Host& host) {
      return plan.stages[static_cast<std::size_t>(host.stage)].split;
    };
    for (const PlanRank::Host& host : rank.hosts)
      if (splitOf(host).members != membersOf(plan, rank))
        return diags.error(plan.at(at + "/hosts"))
                   .exit(ExitCode::unsupported)
                   .help("give the stages of a rank teams of one size, or each a rank of its own")
               << "rank " << rank.rank << " hosts stage " << rank.hosts[0].stage << " with the split "
               << toText(splitOf(rank.hosts[0])) << " and stage " << host.stage << " with " << toText(splitOf(host));
    if (std::ssize(rank.devices) != membersOf(plan, rank))
      return diags.error(plan.at(at + "/devices")).help("list a device for each member of the team")
             << "rank " << rank.rank << " has " << rank.devices.size() << " devices for the " << membersOf(plan, rank)
             << " members of a team";
  }
  return success;
}

std::string pdc::toText(const std::vector<SplitClass>& classes) {
  std::ostringstream text;
  for (const SplitClass& c : classes) {
    if (c.parameters.empty()) continue;
    text << (c.chosen ? "  divided  " : "  whole    ");
    for (std::size_t i = 0; i < c.parameters.size(); ++i) text << (i ? ", " : "") << c.parameters[i];
    text << "\n           saves " << c.flops << " operations and " << c.parameterBytes
         << " bytes of parameters per member, tells " << c.communicatedBytes << " bytes"
         << (c.why.empty() ? "" : ": " + c.why) << "\n";
  }
  return text.str();
}
