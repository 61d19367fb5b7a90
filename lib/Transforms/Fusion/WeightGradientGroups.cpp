// Gradients of weights as fusion groups.
//
// A cut before such a group leaves the layer below and has its weights' gradient computed above, which is sent down
// like any gradient. So the loads of two stages of VGG-16 (batch 4, CPU), whose layers at the middle are a tenth of a
// step each, come closer (docs/decisions/0006-cost-model.md).
#include "WeightGradientGroups.h"

#include "pdc/IR/Builder.h"
#include "pdc/IR/GradientGroups.h"

#include <algorithm>
#include <map>
#include <set>

using namespace pdc;

/// A gradient of weights is worth a cut before it if it is at least this share of a step, and at least so many
/// operations for each byte that crosses the cut for it: then it takes several times as long as sending them.
static constexpr double leastShareOfStep = 0.01, leastFlopsPerCrossingByte = 384;

namespace {

class Separation {
public:
  Separation(Graph& graph, bool all) : graph_(graph), all_(all) {
    for (const auto& operation : graph.operations()) stepFlops_ += costOf(*operation).flops;
  }

  /// The operations of its group that a gradient of weights waits for, and itself; none unless it is worth a group.
  std::vector<Operation*> worthMoving(Operation& weightGradient) const;

private:
  bool onlyMakesGradients(const Operation& operation) const;
  bool hasOtherWays(const std::vector<Operation*>& moved, const std::set<const Value*>& arriving) const;
  double crossingBytes(const std::vector<Operation*>& moved) const;

  Graph& graph_;
  bool all_;
  double stepFlops_ = 0;
};

} // namespace

static bool contains(const std::vector<Operation*>& operations, const Operation* operation) {
  return std::find(operations.begin(), operations.end(), operation) != operations.end();
}

/// Whether all that an operation makes are gradients of weights, which only its own group uses.
bool Separation::onlyMakesGradients(const Operation& operation) const {
  const auto isInside = [&](const Operation* user) { return user->group == operation.group; };
  const auto isOwnGradient = [&](const Value* result) {
    if (!result) return true;
    const auto output = std::find_if(graph_.outputs.begin(), graph_.outputs.end(), [&](const GraphOutput& o) {
      return o.kind == OutputKind::gradient && o.value == result;
    });
    if (output == graph_.outputs.end() || !result->users().empty()) return false;
    const auto& parameters = graph_.parameterValues();
    const auto weights = std::find_if(parameters.begin(), parameters.end(),
                                      [&](const Value* value) { return value->parameter() == output->parameter; });
    return weights != parameters.end() && std::all_of((*weights)->users().begin(), (*weights)->users().end(), isInside);
  };
  return std::all_of(operation.results().begin(), operation.results().end(), isOwnGradient);
}

/// Whether gradients have other ways through their group than these operations, which read those that are `arriving`.
/// Parallel branches add up gradients of what they read, in whatever stages they are, and sums for groups below leave
/// from the layer's.
bool Separation::hasOtherWays(const std::vector<Operation*>& moved, const std::set<const Value*>& arriving) const {
  const int group = moved.front()->group;
  const auto isOutside = [&](const Operation* operation) { return operation->group != group; };
  for (const Operation* operation : moved)
    for (const Value* result : operation->results())
      if (result && std::any_of(result->users().begin(), result->users().end(), isOutside)) return true;
  for (const auto& operation : graph_.operations()) {
    if (isForward(*operation) || operation->group != group || contains(moved, operation.get())) continue;
    for (const Value* operand : operation->operands()) {
      const Operation* definer = operand ? operand->definer() : nullptr;
      if (definer && !isForward(*definer) && !isConstant(*definer) && isOutside(definer) && !arriving.contains(operand))
        return true;
    }
  }
  return false;
}

/// What crosses a cut before these operations only because they are behind it.
double Separation::crossingBytes(const std::vector<Operation*>& moved) const {
  const int group = moved.front()->group;
  const auto moves = [&](const Operation* user) { return contains(moved, user); };
  const auto readsElsewhere = [&](const Operation* user) { return isForward(*user) && user->group > group; };
  std::set<const Value*> crossing;
  for (const Operation* operation : moved) {
    for (const Value* operand : operation->operands())
      if (operand && operand->definer() && isForward(*operand->definer()) && !isConstant(*operand->definer()) &&
          std::none_of(operand->users().begin(), operand->users().end(), readsElsewhere))
        crossing.insert(operand);
    for (const Value* result : operation->results())
      if (result && (result->users().empty() || !std::all_of(result->users().begin(), result->users().end(), moves)))
        crossing.insert(result);
  }
  double bytes = 0;
  for (const Value* value : crossing) bytes += static_cast<double>(value->type().bytes());
  return bytes;
}

std::vector<Operation*> Separation::worthMoving(Operation& weightGradient) const {
  const double flops = costOf(weightGradient).flops;
  const bool isLarge = all_ || flops >= leastShareOfStep * stepFlops_;
  if (weightGradient.phase != Phase::weightGradient || !isLarge || !onlyMakesGradients(weightGradient)) return {};
  std::vector<Operation*> moved = {&weightGradient};
  std::set<const Value*> arriving;
  for (std::size_t i = 0; i < moved.size(); ++i)
    for (const Value* operand : moved[i]->operands()) {
      if (!operand) continue;
      Operation* definer = operand->definer();
      if (!definer) return {}; // inputs of the model and parameters would be read in two stages
      if (isForward(*definer) || isConstant(*definer)) continue;
      if (definer->group != weightGradient.group)
        arriving.insert(operand);
      else if (!contains(moved, definer))
        moved.push_back(definer);
    }
  const bool pays = all_ || flops >= leastFlopsPerCrossingByte * crossingBytes(moved);
  return !arriving.empty() && pays && !hasOtherWays(moved, arriving) ? moved : std::vector<Operation*>();
}

int pdc::separateWeightGradients(Graph& graph, int groups, bool all) {
  const Separation separation(graph, all);
  std::map<int, std::vector<Operation*>> movedOf;
  for (const auto& operation : graph.operations())
    if (operation->group >= 0 && !movedOf.contains(operation->group))
      if (std::vector<Operation*> moved = separation.worthMoving(*operation); !moved.empty())
        movedOf.emplace(operation->group, std::move(moved));
  std::vector<int> numbers;
  int next = 0;
  for (int group = 0; group < groups; ++group) {
    numbers.push_back(next);
    next += movedOf.contains(group) ? 2 : 1;
  }
  for (const auto& operation : graph.operations())
    if (operation->group >= 0) operation->group = numbers[static_cast<std::size_t>(operation->group)];
  for (const auto& [group, moved] : movedOf)
    for (Operation* operation : moved) ++operation->group;
  return next;
}

/// Puts a view of `gradient`, which belongs to the group `above` of gradients, before its first use in that group and
/// in the layer's.
static Status handOn(PassContext& context, Graph& graph, Value* gradient, int group, int above) {
  std::vector<Operation*> users;
  for (const auto& operation : graph.operations()) {
    const auto& operands = operation->operands();
    if ((operation->group == group || operation->group == above) &&
        std::find(operands.begin(), operands.end(), gradient) != operands.end())
      users.push_back(operation.get());
  }
  const auto isInGroup = [&](const Operation* user) { return user->group == group; };
  if (std::none_of(users.begin(), users.end(), isInGroup)) return success;
  Builder builder(context.module, graph, context.registry, context.diags);
  builder.setInsertionPoint(users.front());
  builder.setLocation(users.front()->location);
  builder.setPhase(Phase::inputGradient, users.front()->origin());
  builder.setGroup(above);
  Value* view = builder.value("reshape", {gradient}, {{"shape", gradient->type().shape}});
  if (!view) return failure;
  for (Operation* user : users)
    for (std::size_t i = 0; i < user->operands().size(); ++i)
      if (user->operand(i) == gradient) user->setOperand(i, view);
  return success;
}

Status pdc::handGradientsOn(PassContext& context, Graph& graph) {
  for (const auto& [group, above] : gradientGroups(graph)) {
    std::vector<Value*> arriving; // gradients of other groups
    for (const auto& operation : graph.operations())
      if (!isForward(*operation) && operation->group == group)
        for (Value* operand : operation->operands()) {
          const Operation* definer = operand ? operand->definer() : nullptr;
          if (definer && !isForward(*definer) && !isConstant(*definer) && definer->group != group &&
              definer->group != above && std::find(arriving.begin(), arriving.end(), operand) == arriving.end())
            arriving.push_back(operand);
        }
    for (Value* gradient : arriving)
      if (!handOn(context, graph, gradient, group, above)) return failure;
  }
  return success;
}
