// Fusion groups: the atoms of the partition.
//
// A group is an interval of forward program order that begins where a cut may pay: at an operation that reads a matrix
// of weights or computes much for each element that it touches (a convolution, a matrix product), and at one with other
// weights (a normalisation), if a cut before it sends no more than one behind it. What else follows and is bound by
// memory (activation, pooling, views) joins it, because a cut in between moves little work and mostly sends more. With
// BatchNorms on either side of a cut two stages of ResNet-50 (batch 8, CPU) have equal loads: a whole convolution more
// is too much for the one, and one less for the other. Intervals, not chains, because the gradient of a value with
// several consumers is folded in program order: only then does every partial sum travel towards the first stage.
// Gradients of large layers' weights become groups of their own (WeightGradientGroups.h).
#include "FusionGroups.h"

#include "ProgramOrder.h"
#include "WeightGradientGroups.h"

#include <algorithm>
#include <map>
#include <set>

using namespace pdc;

/// Operations that compute more than this for each element of their largest value are not bound by memory.
static constexpr double manyFlopsPerElement = 32;

namespace {

class Grouping {
public:
  /// `allGradients`: every gradient of weights has a group, large or not.
  Grouping(Graph& graph, bool allGradients)
      : graph_(graph), allGradients_(allGradients), travelling_(travellingValues(graph)) {}
  void run();

private:
  bool sendsNoMoreBefore(const Operation& operation) const;
  bool beginsGroup(const Operation& operation) const;
  void groupTravelling();
  void groupBackward();
  void groupRest();
  void copyConstants();
  void keepWeightGradientsInside();

  Graph& graph_;
  bool allGradients_;
  const std::set<const Value*> travelling_;
  int groups_ = 0;
};

} // namespace

/// Whether a cut before an operation sends no more than one behind it: it reads one value that travels, which nobody
/// else reads and which is no larger than its result. And it keeps nothing from being fused: a kernel makes that value.
bool Grouping::sendsNoMoreBefore(const Operation& operation) const {
  const auto& operands = operation.operands();
  const auto travels = [&](const Value* operand) { return travelling_.contains(operand); };
  if (!operation.result(0) || std::count_if(operands.begin(), operands.end(), travels) != 1) return false;
  const Value& read = **std::find_if(operands.begin(), operands.end(), travels);
  const auto readers =
      std::count_if(read.users().begin(), read.users().end(), [](const Operation* user) { return isForward(*user); });
  return read.definer() && read.definer()->def().kind == OpKind::kernel && readers == 1 &&
         read.type().bytes() <= operation.result(0)->type().bytes();
}

bool Grouping::beginsGroup(const Operation& operation) const {
  if (operation.def().kind != OpKind::kernel) return false;
  std::int64_t largest = 1;
  for (const Value* operand : operation.operands()) {
    if (!operand) continue;
    const bool weights = !travelling_.contains(operand) && !(operand->definer() && isConstant(*operand->definer()));
    const bool ofIntegers = operand->parameter() && operand->parameter()->derived; // and of their scales
    if (weights && ofIntegers && operand->type().rank() >= 2) return true;
    if (weights && !ofIntegers && isFloat(operand->type().element) &&
        (operand->type().rank() >= 2 || sendsNoMoreBefore(operation)))
      return true;
    largest = std::max(largest, operand->type().elements());
  }
  for (const Value* result : operation.results())
    if (result) largest = std::max(largest, result->type().elements());
  return operation.def().cost &&
         operation.def().cost(operation).flops >= manyFlopsPerElement * static_cast<double>(largest);
}

/// Whatever comes before the first beginning joins the first group.
void Grouping::groupTravelling() {
  bool begun = false;
  int group = 0;
  for (const auto& operation : graph_.operations()) {
    if (!isForward(*operation)) continue;
    const auto& operands = operation->operands();
    const bool travels =
        std::any_of(operands.begin(), operands.end(), [&](const Value* v) { return travelling_.contains(v); });
    operation->group = -1;
    if (!travels) continue;
    if (beginsGroup(*operation)) {
      if (begun) ++group;
      begun = true;
    }
    operation->group = group;
  }
  groups_ = group + 1;
}

void Grouping::groupBackward() {
  for (const auto& operation : graph_.operations())
    if (operation->origin()) operation->group = operation->origin()->group;
}

/// The group of the first use; of the last group when only an output uses it.
void Grouping::groupRest() {
  const auto& operations = graph_.operations();
  for (auto it = operations.rbegin(); it != operations.rend(); ++it) {
    Operation& operation = **it;
    if (!isForward(operation) || operation.group >= 0) continue;
    int first = groups_ - 1;
    for (const Value* result : operation.results())
      if (result)
        for (const Operation* user : result->users())
          if (isForward(*user)) first = std::min(first, user->group);
    operation.group = first;
  }
}

/// A constant is not worth a message: each group that uses it makes it.
void Grouping::copyConstants() {
  std::vector<Operation*> constants;
  for (const auto& operation : graph_.operations())
    if (isConstant(*operation) && isForward(*operation)) constants.push_back(operation.get());
  for (Operation* constant : constants) {
    Value* value = constant->result();
    std::map<int, std::set<Operation*>> users;
    for (Operation* user : value->users()) users[user->group].insert(user);
    if (users.empty()) continue;
    if (!users.contains(constant->group)) constant->group = users.begin()->first;
    for (const auto& [group, members] : users) {
      if (group == constant->group) continue;
      Operation* copy = graph_.addOperation(constant->def(), {}, {&value->type()}, constant->attributes,
                                            constant->location, constant, {value->name()});
      copy->group = group;
      for (Operation* user : members)
        for (std::size_t i = 0; i < user->operands().size(); ++i)
          if (user->operand(i) == value) user->setOperand(i, copy->result());
    }
  }
}

/// Gradients leave a stage after phase I, so what another group waits for is computed in phase I.
void Grouping::keepWeightGradientsInside() {
  for (const auto& operation : graph_.operations())
    for (const Value* operand : operation->operands())
      if (operand && operand->definer() && operand->definer()->group != operation->group)
        computeWithInputGradients(*operand->definer());
}

void Grouping::run() {
  groupTravelling();
  groupRest();
  groupBackward();
  groups_ = separateWeightGradients(graph_, groups_, allGradients_);
  copyConstants();
  keepWeightGradientsInside();
  putInProgramOrder(graph_); // what travels keeps its order, which is already that of the groups
}

Status pdc::assignFusionGroups(PassContext& context, Graph& graph) {
  Grouping(graph, context.options.contains("gradients")).run();
  return success;
}
