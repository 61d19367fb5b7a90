// A plan in ONNX's terms, and what these cannot say as metadata.
#include "AnnotatedModel.h"
#include "AnnotatedStages.h"
#include "Teams.h"
#include "pdc/Plan/PolicyText.h"
#include "pdc/Support/Names.h"

#include <algorithm>

using namespace pdc;

namespace {

/// The texts of all stages, one after the other.
template <class Text>
std::string ofStages(const Plan& plan, const char* between, const Text& text) {
  std::string all;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) all += (s > 0 ? between : "") + text(s);
  return all;
}

class Annotator {
public:
  Annotator(const DeviceAnnotations& file, const NodePlaces& places, const std::map<std::string, TeamParts>& parts,
            const Plan& plan, const CostGraph& costs)
      : made_(file), places_(places), parts_(parts), plan_(plan), costs_(costs), stageOfGroup_(costs.nodes.size()) {
    for (std::size_t s = 0; s < plan.stages.size(); ++s)
      for (const std::int64_t group : plan.stages[s].nodes)
        stageOfGroup_[static_cast<std::size_t>(group)] = static_cast<int>(s);
    made_.configurations = {{.name = ownConfiguration, .devices = plan.cluster.deviceCount()}};
    made_.metadata.clear();
  }

  DeviceAnnotations run(const Team& team) {
    const std::vector<int> stages = stagesOfNodes(made_, places_, stageOfGroup_);
    for (std::size_t i = 0; i < made_.nodes.size(); ++i) {
      AnnotatedNode& node = made_.nodes[i];
      node.configurations = {{.configuration = ownConfiguration, .shardings = {}, .stage = stages[i]}};
      addShardings(node, places_.values[i], stages[i]);
    }
    addPlan();
    for (const auto& [parameter, order] : team.orders) {
      std::string& text = made_.metadata["pdc.order." + parameter->name];
      for (const std::int32_t place : order) text += (text.empty() ? "" : ",") + std::to_string(place);
    }
    addGroups();
    return std::move(made_);
  }

  /// Parts that are not equal.
  const std::set<std::string>& padded() const { return padded_; }

private:
  void addShardings(AnnotatedNode& node, const std::string& value, int stage) {
    const auto add = [&](const std::string& tensor, const TeamPart& part) {
      const auto rank = made_.ranks.find(tensor);
      if (rank != made_.ranks.end() && rank->second != part.whole.rank()) return;
      if (part.form.padded > 0) padded_.insert(tensor);
      node.configurations.back().shardings.push_back(specOf(tensor, part, stage));
    };
    const auto of = parts_.find(toText(plan_.stages[static_cast<std::size_t>(stage)].split));
    if (of == parts_.end()) return; // one device computes it
    const auto& [parameters, values] = of->second;
    std::set<std::string> seen;
    for (const std::string& input : node.inputs)
      if (const auto part = parameters.find(input); part != parameters.end() && seen.insert(input).second)
        add(input, part->second);
    if (const auto part = values.find(value); part != values.end() && !node.outputs.empty())
      add(node.outputs.front(), part->second);
  }

  /// Member i of all replicas has part i: a device, or a group of devices with a negative number.
  ShardingSpec specOf(const std::string& tensor, const TeamPart& part, int stage) const {
    ShardingSpec spec{.tensor = tensor};
    const std::int64_t members = plan_.stages[static_cast<std::size_t>(stage)].split.members;
    for (const PlanRank& rank : plan_.ranks)
      if (std::ranges::any_of(rank.hosts, [&](const PlanRank::Host& host) { return host.stage == stage; }))
        for (std::int64_t m = 0; m < members; ++m)
          spec.groups[-1 - m].push_back(rank.devices[static_cast<std::size_t>(m)]);
    for (std::int64_t m = 0; m < members; ++m) spec.devices.push_back(-1 - m);
    if (spec.groups[-1].size() == 1) {
      for (std::int64_t& device : spec.devices) device = spec.groups[device].front();
      spec.groups.clear();
    }
    const std::int64_t size = part.whole.shape[static_cast<std::size_t>(part.form.axis)], blocks = part.form.blocks;
    ShardedAxis axis{.axis = part.form.axis};
    if (blocks > 1) axis.factors.push_back({.size = blocks, .shards = 1});
    axis.factors.push_back({.size = size / blocks, .shards = members});
    spec.axes.push_back(std::move(axis));
    return spec;
  }

  /// What a plan has beside stages and splits.
  void addPlan() {
    auto& metadata = made_.metadata;
    const auto stage = [&](std::size_t s) -> const PlanStage& { return plan_.stages[s]; };
    metadata["pdc.schedule"] = plan_.schedule.name();
    if (plan_.schedule->hasBatches) metadata["pdc.microbatches"] = std::to_string(plan_.microbatches);
    metadata["pdc.replicas"] = ofStages(plan_, ",", [&](std::size_t s) { return std::to_string(stage(s).replicas); });
    metadata["pdc.warmup"] = ofStages(plan_, ",", [&](std::size_t s) { return std::to_string(stage(s).warmup); });
    metadata["pdc.recompute"] =
        ofStages(plan_, ",", [&](std::size_t s) -> std::string { return stage(s).recompute ? "all" : "none"; });
    if (std::ranges::any_of(plan_.stages, &PlanStage::isSharded))
      metadata["pdc.shard"] = ofStages(plan_, ",", [&](std::size_t s) { return nameIn(shardings, stage(s).sharding); });
    if (std::ranges::any_of(plan_.stages, [](const PlanStage& each) { return !each.split.isNone(); }))
      metadata["pdc.split"] = differentSplits(plan_).empty()
                                  ? toText(plan_.stages.front().split)
                                  : ofStages(plan_, ",", [&](std::size_t s) { return toText(stage(s).split); });
    metadata["pdc.devices"] = ofStages(plan_, ";", [&](std::size_t s) {
      std::string devices;
      for (const PlanRank& rank : plan_.ranks)
        if (std::ranges::any_of(rank.hosts, [&](const auto& host) { return host.stage == static_cast<int>(s); }))
          for (const std::int64_t device : rank.devices)
            devices += (devices.empty() ? "" : ",") + std::to_string(device);
      return devices;
    });
  }

  /// Groups that would be read back in other stages: of several nodes in several stages, or of none.
  void addGroups() {
    const std::vector<std::string> names = uniqueNames(costs_);
    const auto tell = [&](std::size_t group) {
      return made_.metadata.emplace(groupMetadata + names[group], std::to_string(stageOfGroup_[group])).second;
    };
    for (std::size_t i = 0; i < made_.nodes.size(); ++i)
      for (const int group : places_.groups[i])
        if (stageOfGroup_[static_cast<std::size_t>(group)] != made_.nodes[i].configurations.back().stage)
          (void)tell(static_cast<std::size_t>(group));
    const std::string path, configuration = ownConfiguration;
    for (bool more = true; more;) {
      more = false;
      Diagnostics silent(nullptr);
      const auto read = stagesOfGroups({path, made_, configuration, places_}, costs_, silent);
      for (std::size_t g = 0; g < stageOfGroup_.size(); ++g) {
        if (read && !read->empty() && (*read)[g] == stageOfGroup_[g]) continue;
        more |= tell(g);
      }
    }
  }

  DeviceAnnotations made_;
  const NodePlaces& places_;
  const std::map<std::string, TeamParts>& parts_;
  const Plan& plan_;
  const CostGraph& costs_;
  std::vector<int> stageOfGroup_;
  std::set<std::string> padded_;
};

} // namespace

/// Nodes that are computed in several stages.
static void warnOfTornNodes(const DeviceAnnotations& file, const NodePlaces& places, const Plan& plan,
                            const Location& where, Diagnostics& diags) {
  std::map<int, int> stageOfGroup;
  for (std::size_t s = 0; s < plan.stages.size(); ++s)
    for (const std::int64_t group : plan.stages[s].nodes) stageOfGroup[static_cast<int>(group)] = static_cast<int>(s);
  std::int64_t count = 0;
  std::string example;
  for (std::size_t i = 0; i < file.nodes.size(); ++i) {
    std::set<int> stages;
    for (const int group : places.groups[i]) stages.insert(stageOfGroup[group]);
    if (stages.size() > 1 && count++ == 0) example = file.nodes[i].name;
  }
  if (count > 0)
    diags.warning({.file = where.file, .node = example})
        << counted(count, "node") << (count == 1 ? " is" : " are")
        << " computed in several stages, and annotated with the last; metadata has the others";
}

Status AnnotatedModel::write(const Plan& plan, const CostGraph& costs, const Graph& member, const std::string& out,
                             Diagnostics& diags) const {
  Annotator annotator(file_, places_, parts_, plan, costs);
  const DeviceAnnotations annotations = annotator.run(member.team);
  warnOfTornNodes(file_, places_, plan, at(), diags);
  if (!annotator.padded().empty())
    diags.remark(at()) << "parts of '" << *annotator.padded().begin()
                       << "' are not equal: each has as many as the largest, and the last is filled up with zeros";
  if (std::ranges::any_of(plan.tensors, [](const PlanTensor& tensor) { return tensor.codec.has_value(); }))
    diags.remark(at()) << "annotations do not say that tensors cross between stages encoded";
  return writeDeviceAnnotations(path_, annotations, out, diags);
}
