#include "pdc/IR/SharedParameters.h"

#include <algorithm>
#include <unordered_map>

using namespace pdc;

int SharedParameter::owner() const {
  return *std::min_element(useStages.begin(), useStages.end());
}

int SharedParameter::usesIn(int stage) const {
  return static_cast<int>(std::count(useStages.begin(), useStages.end(), stage));
}

bool ParameterGroups::canBeShared() const {
  return parameter->role == ParameterRole::trained && groups == std::set<int>(uses.begin(), uses.end());
}

std::vector<ParameterGroups> pdc::parameterGroups(const Graph& training) {
  std::vector<ParameterGroups> result;
  for (const Value* value : training.parameterValues()) {
    ParameterGroups& parameter =
        result.emplace_back(ParameterGroups{.parameter = value->parameter(), .type = value->type()});
    for (const Operation* user : value->users()) parameter.groups.insert(user->group);
  }
  std::unordered_map<const Parameter*, std::size_t> places;
  for (std::size_t i = 0; i < result.size(); ++i) places.emplace(result[i].parameter, i);
  for (const GraphOutput& output : training.outputs) {
    const auto place = places.find(output.parameter);
    if (place == places.end() || !output.value->definer()) continue;
    const int group = output.value->definer()->group;
    if (output.kind == OutputKind::gradient) result[place->second].uses.push_back(group);
    if (output.kind == OutputKind::state) result[place->second].groups.insert(group); // replaced where it is read
  }
  return result;
}

std::vector<SharedParameter> pdc::sharedParameters(const Graph& training, const std::vector<int>& stageOfGroup) {
  std::vector<SharedParameter> result;
  for (const ParameterGroups& parameter : parameterGroups(training)) {
    if (!parameter.canBeShared()) continue;
    SharedParameter shared{.parameter = parameter.parameter, .type = parameter.type, .useStages = {}};
    for (int group : parameter.uses) shared.useStages.push_back(stageOfGroup[static_cast<std::size_t>(group)]);
    if (std::set<int>(shared.useStages.begin(), shared.useStages.end()).size() > 1) result.push_back(shared);
  }
  return result;
}
