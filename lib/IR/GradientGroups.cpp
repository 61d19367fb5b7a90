#include "pdc/IR/GradientGroups.h"

#include <algorithm>

using namespace pdc;

bool pdc::isAboveItsOrigin(const Operation& operation) {
  return operation.origin() && operation.origin()->group != operation.group;
}

std::map<int, int> pdc::gradientGroups(const Graph& training) {
  std::map<int, int> groups;
  for (const auto& operation : training.operations())
    if (isAboveItsOrigin(*operation)) groups.emplace(operation->origin()->group, operation->group);
  return groups;
}

std::map<const Value*, int> pdc::passedOn(const Graph& training) {
  const std::map<int, int> groups = gradientGroups(training);
  std::map<const Value*, int> values;
  for (const auto& operation : training.operations()) {
    const auto above = groups.find(operation->group);
    if (above == groups.end() || operation->phase != Phase::forward) continue;
    for (const Value* result : operation->results())
      if (result && isFloat(result->type().element) &&
          std::any_of(result->users().begin(), result->users().end(), [&](const Operation* user) {
            return user->phase == Phase::forward && user->group != operation->group;
          }))
        values.emplace(result, above->second);
  }
  return values;
}
