#include "GroupOrder.h"

#include "pdc/Transforms/GraphUtilities.h"

#include "pdc/IR/GradientGroups.h"

#include <algorithm>
#include <vector>

using namespace pdc;

GroupOrder::GroupOrder(const Graph& graph) {
  for (const auto& operation : graph.operations())
    for (const Value* operand : operation->operands())
      if (operand && operand->definer() && isForward(*operation) && operand->definer()->group != operation->group)
        users_[operand->definer()->group].insert(operation->group);
  for (const auto& [group, above] : gradientGroups(graph)) users_[group].insert(above);
  for (const auto& [value, above] : passedOn(graph))
    for (const Operation* user : value->users())
      if (isForward(*user) && user->group != value->definer()->group) users_[above].insert(user->group);
  for (const auto& operation : graph.operations())
    if (addsGradients(*operation) && isBelowItsOperands(*operation)) staying_.insert(operation->result()->name());
}

bool GroupOrder::leadsTo(int from, int to) const {
  std::set<int> seen = {from};
  std::vector<int> found = {from}; // the nearest first
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (found[i] == to) return true;
    const auto users = users_.find(found[i]);
    if (users == users_.end()) continue;
    for (int user : users->second)
      if (seen.insert(user).second) found.push_back(user);
  }
  return false;
}

bool GroupOrder::isBelow(int group, const Value* gradient) const {
  const Operation* definer = gradient ? gradient->definer() : nullptr;
  if (!definer || isForward(*definer) || isConstant(*definer)) return true;
  if (definer->group != group && !leadsTo(group, definer->group)) return false;
  if (!addsGradients(*definer) || staying_.contains(gradient->name())) return true;
  const auto& parts = definer->operands(); // it may be where the lowest of these is
  return std::all_of(parts.begin(), parts.end(), [&](const Value* part) { return isBelow(group, part); });
}

bool GroupOrder::isBelowItsOperands(const Operation& operation) const {
  const auto& operands = operation.operands();
  return isForward(operation) || std::all_of(operands.begin(), operands.end(),
                                             [&](const Value* operand) { return isBelow(operation.group, operand); });
}
