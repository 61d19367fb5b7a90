#include "AnnotatedModel.h"

#include "AnnotatedSplit.h"
#include "AnnotatedStages.h"
#include "Teams.h"
#include "pdc/Plan/PolicyText.h"
#include "pdc/Support/Names.h"

#include <algorithm>
#include <map>

using namespace pdc;

Status AnnotatedModel::read(CompileOptions& options, Diagnostics& diags) {
  if (!options.planFromModel && options.emit != "annotated-onnx") return success;
  path_ = options.model;
  flags_ = options.split;
  Expected<DeviceAnnotations> file = readDeviceAnnotations(path_, diags);
  if (!file) return failure;
  file_ = std::move(*file);
  if (!options.planFromModel) return success;
  if (options.choosesSplit)
    return diags.error({}).exit(ExitCode::usage).help("leave out --split=auto")
           << "--plan=model: the model says how stages are divided, or --split=tp:N does";
  const std::string& asked = options.planConfiguration;
  std::vector<std::string_view> names;
  std::string list;
  for (const DeviceConfiguration& each : file_.configurations) {
    names.push_back(each.name);
    list += (list.empty() ? "'" : ", '") + each.name + "'";
    if (asked.empty() || each.name == asked) configuration_ = each;
  }
  if (names.empty())
    return diags.error(at()).help("leave out --plan=model, or write a plan into a copy: --emit=annotated-onnx")
           << "has no configuration of devices, where --plan=model looks for a plan";
  if (asked.empty() && names.size() > 1)
    return diags.error(at()).exit(ExitCode::usage).help("say which: --plan=model:" + std::string(names.front()))
           << "has " << names.size() << " configurations of devices: " << list;
  if (configuration_.name.empty())
    return diags.error(at()).exit(ExitCode::usage).help(helpForUnknown(asked, names))
           << "has no configuration of devices '" << asked << "'";
  const Expected<std::vector<AskedPart>> parts = askedParts(path_, file_, configuration_.name, diags);
  if (!parts) return failure;
  if (!parts->empty() && !options.stageSplits.empty())
    return diags.error({}).exit(ExitCode::usage).help("leave out --split")
           << "--plan=model: the model says how each stage is divided";
  // Some transforms are for graphs that are not divided.
  if (!parts->empty() && flags_.isNone()) options.split.members = static_cast<int>(parts->front().members);
  if (options.devices == 0 && options.scheduleFile.empty()) options.devices = configuration_.devices;
  return success;
}

Status AnnotatedModel::takeSplits(PassContext& context, CompileOptions& options) {
  if (path_.empty()) return success;
  places_ = placesOf(file_, *context.module.findGraph("main"));
  if (!options.planFromModel) return success;
  const Expected<std::vector<AskedPart>> asked = askedParts(path_, file_, configuration_.name, context.diags);
  if (!asked) return failure;
  options.split = flags_;
  if (asked->empty()) return success;
  Expected<std::vector<TeamSplit>> splits =
      splitsFor(context, path_, file_, configuration_.name, places_, *asked, flags_);
  if (!splits) return failure;
  if (areDifferent(*splits))
    options.stageSplits = std::move(*splits);
  else
    options.split = splits->front();
  return success;
}

Status AnnotatedModel::learnParts(PassContext& context, const TeamSplit& split,
                                  const std::vector<TeamSplit>& stageSplits) {
  if (path_.empty()) return success;
  for (const TeamSplit& each : stageSplits.empty() ? std::vector{split} : stageSplits) {
    if (each.isNone() || parts_.contains(toText(each))) continue;
    Expected<TeamParts> parts = partsOverTeam(context, optionsOf(each));
    if (!parts) return failure;
    parts_.emplace(toText(each), std::move(*parts));
  }
  return success;
}

Status AnnotatedModel::constrain(CostGraph& costs, PlannerOptions& planner, Diagnostics& diags) const {
  const StagesOfFile of{path_, file_, configuration_.name, places_};
  const Expected<std::vector<int>> stages = stagesOfGroups(of, costs, diags);
  if (!stages) return failure;
  if (stages->empty()) {
    diags.remark(at()) << "no node has a pipeline_stage in configuration '" << configuration_.name
                       << "': the planner chooses the stages";
    return success;
  }
  warnOfNodesElsewhere(of, *stages, diags);
  std::map<int, std::size_t> numbers;
  for (const int stage : *stages) numbers[stage];
  std::size_t count = 0;
  for (auto& [stage, number] : numbers) number = count++;
  for (std::size_t g = 0; g < stages->size(); ++g)
    costs.nodes[g].colour = static_cast<std::int64_t>(numbers.at((*stages)[g]));
  const auto perRank = static_cast<std::size_t>(planner.schedule->stagesPerRank);
  if (count % perRank != 0)
    return diags.error(at()).exit(ExitCode::usage).help("take another schedule")
           << "has " << count << (count == 1 ? " stage" : " stages") << ", under '" << planner.schedule.name()
           << "' every rank has " << perRank;
  if (!planner.stageReplicas.empty() && planner.stageReplicas.size() != count)
    return diags.error(at()).exit(ExitCode::usage).help("give replicas for each stage of the model")
           << "has " << count << (count == 1 ? " stage" : " stages") << ", replicas are given for "
           << planner.stageReplicas.size();
  planner.stageReplicas.resize(count);
  if (!planner.stageSplits.empty() && planner.stageSplits.size() != count)
    return diags.error(at()).help("give every stage nodes that compute something")
           << "has " << count << (count == 1 ? " stage" : " stages") << " that compute something, and divides "
           << planner.stageSplits.size();
  const auto names = [&](const ShardingSpec& spec) { return !spec.devices.empty(); };
  for (const AnnotatedNode& node : file_.nodes)
    for (const NodeConfiguration& each : node.configurations)
      if (each.configuration == configuration_.name && std::ranges::any_of(each.shardings, names)) {
        diags.remark(at()) << "which devices sharding_specs name is not read: the planner places the stages";
        return success;
      }
  return success;
}
