#include "Teams.h"

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
  if (!splitOverTeam(context, options, &classes, &placed)) return failure;
  auto& graphs = context.module.graphs;
  std::vector<std::unique_ptr<Graph>> ofMember;
  for (const char* name : {"main", "evaluate"})
    if (const Graph* graph = context.module.findGraph(name + suffixOf(options)))
      ofMember.push_back(clone(*graph, name));
  graphs = std::move(ofMember);
  if (std::none_of(classes.begin(), classes.end(), [](const SplitClass& c) { return c.chosen; }))
    context.diags.remark({}).help(split.tokens ? "take --split=tp:" + std::to_string(split.members)
                                               : "split less, or take --split=tp:" + std::to_string(split.members) +
                                                     ",all to divide what does not pay")
        << "nothing of this model is worth dividing over " << split.members << " members: each computes all of it";
  return success;
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
  for (DeviceGroup& group : teams.devices) {
    if (group.count % members != 0) return refuse(group.count, "devices of kind '" + group.device.name + "'");
    group.count /= members;
  }
  // A team keeps as many cores busy as it has members.
  auto share = [&](DeviceKind& device) { device.cores = teamsAtOnce(device.cores, split); };
  share(teams.device);
  for (DeviceGroup& group : teams.devices) share(group.device);
  return teams;
}

void pdc::giveDevices(Plan& plan, const TeamSplit& split, const Cluster& machines) {
  if (split.isNone()) return;
  for (PlanStage& stage : plan.stages) stage.split = split;
  for (PlanRank& rank : plan.ranks) {
    std::vector<std::int64_t> devices;
    for (std::int64_t team : rank.devices)
      for (std::int64_t member = 0; member < split.members; ++member) devices.push_back(team * split.members + member);
    rank.devices = std::move(devices);
  }
  plan.cluster = machines;
}

Status pdc::checkSplit(const Plan& plan, const TeamSplit& split, const std::string& file, Diagnostics& diags) {
  for (std::size_t s = 0; s < plan.stages.size(); ++s)
    if (plan.stages[s].split != split)
      return diags.error({file, "/stages/" + std::to_string(s) + "/split", 0, 0})
                 .help("add --split=" + toText(plan.stages[s].split))
             << "the plan is for --split=" << toText(plan.stages[s].split) << ", not for " << toText(split);
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
