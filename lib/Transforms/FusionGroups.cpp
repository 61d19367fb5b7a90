// Fusion groups: the atoms of the partition.
//
// A group is an interval of forward program order that begins where a cut may pay: at an operation that reads a matrix
// of weights or computes much for each element that it touches (a convolution, a matrix product), and at one with other
// weights (a normalisation), if a cut before it sends no more than one behind it. What else follows and is bound by
// memory (activation, pooling, views) joins it, because a cut in between moves little work and mostly sends more. With
// BatchNorms on either side of a cut two stages of ResNet-50 (batch 8, CPU) have equal loads: a whole convolution more
// is too much for the one, and one less for the other. Intervals, not chains, because the gradient of a value with
// several consumers is folded in program order: only then does every partial sum travel towards the first stage.
//
// The gradient of a large layer's weights is a group of its own, behind the layer's: a cut between them leaves the
// layer below and has its weights' gradient computed above, which is sent down like any gradient. Of VGG-16 (batch 4,
// CPU) the layers at the middle are a tenth of a step each, and two stages have equal loads only so.
#include "FusionGroups.h"

#include <algorithm>
#include <map>
#include <set>

using namespace pdc;

/// Operations that compute more than this for each element of their largest value are not bound by memory.
static constexpr double manyFlopsPerElement = 32;

/// A gradient of weights is worth a cut before it if it is at least this share of a step, and at least so many
/// operations for each byte that crosses the cut for it: then it takes several times as long as sending them.
static constexpr double leastShareOfStep = 0.01, leastFlopsPerByte = 384;

namespace {

class Grouping {
public:
  /// `allGradients`: every gradient of weights has a group, large or not.
  Grouping(Graph& graph, bool allGradients) : graph_(graph), allGradients_(allGradients) {}
  void run();

private:
  void findTravelling();
  bool sendsNoMoreBefore(const Operation& operation) const;
  bool beginsGroup(const Operation& operation) const;
  void groupTravelling();
  void groupBackward();
  std::vector<Operation*> worthMoving(Operation& weightGradient, double stepFlops) const;
  void groupWeightGradients();
  void groupRest();
  void copyConstants();
  void keepWeightGradientsInside();
  void reorder();
  void emit(Operation& operation);

  Graph& graph_;
  bool allGradients_;
  std::set<const Value*> travelling_; ///< values that depend on the data
  int groups_ = 0;
  std::vector<Operation*> order_;
  std::unordered_set<const Operation*> emitted_;
};

} // namespace

/// Finds what depends on the data. The rest (constants, casts of labels, transposed parameters) has no place of its own
/// in program order: it goes with what uses it.
void Grouping::findTravelling() {
  for (const GraphInput& input : graph_.inputs)
    if (input.kind != InputKind::label && input.kind != InputKind::lossScale) travelling_.insert(input.value);
  for (const auto& operation : graph_.operations()) {
    const auto& operands = operation->operands();
    if (std::any_of(operands.begin(), operands.end(), [&](const Value* v) { return travelling_.contains(v); }))
      for (const Value* result : operation->results()) travelling_.insert(result);
  }
  travelling_.erase(nullptr);
}

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
    if (weights && isFloat(operand->type().element) && (operand->type().rank() >= 2 || sendsNoMoreBefore(operation)))
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

/// Whether all that an operation makes are gradients of weights, which only its own group uses.
static bool onlyMakesGradients(const Graph& graph, const Operation& operation) {
  const auto isOwnGradient = [&](const Value* result) {
    if (!result) return true;
    const auto output = std::find_if(graph.outputs.begin(), graph.outputs.end(), [&](const GraphOutput& o) {
      return o.kind == OutputKind::gradient && o.value == result;
    });
    if (output == graph.outputs.end() || !result->users().empty()) return false;
    const auto& parameters = graph.parameterValues();
    const auto weights = std::find_if(parameters.begin(), parameters.end(),
                                      [&](const Value* value) { return value->parameter() == output->parameter; });
    return weights != parameters.end() &&
           std::all_of((*weights)->users().begin(), (*weights)->users().end(),
                       [&](const Operation* user) { return user->group == operation.group; });
  };
  return std::all_of(operation.results().begin(), operation.results().end(), isOwnGradient);
}

/// Whether operations can leave their group's backward for a group above it: what enters it from above enters it
/// through them, and what they make nobody below it reads. Then gradients still go from each stage to the next that is
/// concerned.
static bool canBeAbove(const Graph& graph, const std::vector<Operation*>& moved) {
  const int group = moved.front()->group;
  const auto isInside = [&](const Operation* operation) { return operation->group == group; };
  for (const auto& operation : graph.operations()) {
    if (isForward(*operation) || !isInside(operation.get())) continue;
    if (std::find(moved.begin(), moved.end(), operation.get()) != moved.end()) {
      for (const Value* result : operation->results())
        if (result && !std::all_of(result->users().begin(), result->users().end(), isInside)) return false;
    } else {
      for (const Value* operand : operation->operands())
        if (const Operation* definer = operand ? operand->definer() : nullptr)
          if (!isForward(*definer) && !isConstant(*definer) && !isInside(definer)) return false;
    }
  }
  return true;
}

/// The operations of its group that a gradient of weights waits for, and itself; none unless it is worth a group.
std::vector<Operation*> Grouping::worthMoving(Operation& weightGradient, double stepFlops) const {
  const double flops = costOf(weightGradient).flops;
  const bool isLarge = allGradients_ || flops >= leastShareOfStep * stepFlops;
  if (weightGradient.phase != Phase::weightGradient || !isLarge || !onlyMakesGradients(graph_, weightGradient))
    return {};
  std::vector<Operation*> moved = {&weightGradient};
  std::set<const Value*> crossing(weightGradient.results().begin(), weightGradient.results().end());
  bool waitsForOthers = false;
  for (std::size_t i = 0; i < moved.size(); ++i)
    for (Value* operand : moved[i]->operands()) {
      if (!operand) continue;
      Operation* definer = operand->definer();
      if (!definer) return {}; // inputs of the model and parameters would be read in two stages
      if (isForward(*definer) || definer->group == weightGradient.group) {
        if (!isConstant(*definer)) crossing.insert(operand);
        if (!isForward(*definer) && std::find(moved.begin(), moved.end(), definer) == moved.end())
          moved.push_back(definer);
      } else {
        waitsForOthers = true;
      }
    }
  // What only operations that move read stays with them, and what other layers read crosses anyway.
  const auto readElsewhere = [&](const Value* value) {
    return std::any_of(value->users().begin(), value->users().end(),
                       [&](const Operation* user) { return isForward(*user) && user->group > weightGradient.group; });
  };
  const auto moves = [&](const Operation* user) { return std::find(moved.begin(), moved.end(), user) != moved.end(); };
  double bytes = 0;
  for (const Value* value : crossing)
    if (value && !readElsewhere(value) &&
        !(value->definer() && moves(value->definer()) && !value->users().empty() &&
          std::all_of(value->users().begin(), value->users().end(), moves)))
      bytes += static_cast<double>(value->type().bytes());
  const bool pays = allGradients_ || flops >= leastFlopsPerByte * bytes;
  return waitsForOthers && pays && canBeAbove(graph_, moved) ? moved : std::vector<Operation*>();
}

/// Behind the group of the layer, and with what comes between the next layer's gradient and it.
void Grouping::groupWeightGradients() {
  double stepFlops = 0;
  for (const auto& operation : graph_.operations()) stepFlops += costOf(*operation).flops;
  std::map<int, std::vector<Operation*>> movedOf;
  for (const auto& operation : graph_.operations())
    if (operation->group >= 0 && !movedOf.contains(operation->group))
      if (std::vector<Operation*> moved = worthMoving(*operation, stepFlops); !moved.empty())
        movedOf.emplace(operation->group, std::move(moved));
  std::vector<int> numbers(static_cast<std::size_t>(groups_));
  int next = 0;
  for (int group = 0; group < groups_; ++group) {
    numbers[static_cast<std::size_t>(group)] = next;
    next += movedOf.contains(group) ? 2 : 1;
  }
  for (const auto& operation : graph_.operations())
    if (operation->group >= 0) operation->group = numbers[static_cast<std::size_t>(operation->group)];
  for (const auto& [group, moved] : movedOf)
    for (Operation* operation : moved) ++operation->group;
  groups_ = next;
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

/// Appends `operation`, behind what it needs and has no place of its own.
void Grouping::emit(Operation& operation) {
  if (!emitted_.insert(&operation).second) return;
  for (const Value* operand : operation.operands())
    if (operand && operand->definer()) emit(*operand->definer());
  order_.push_back(&operation);
}

void Grouping::reorder() {
  // What travels keeps its order, which is already that of the groups.
  for (const auto& operation : graph_.operations()) {
    const auto& operands = operation->operands();
    if (isForward(*operation) &&
        std::any_of(operands.begin(), operands.end(), [&](const Value* v) { return travelling_.contains(v); }))
      emit(*operation);
  }
  for (bool forward : {true, false})
    for (const auto& operation : graph_.operations())
      if (isForward(*operation) == forward) emit(*operation);
  graph_.reorder(order_);
}

void Grouping::run() {
  findTravelling();
  groupTravelling();
  groupRest();
  groupBackward();
  groupWeightGradients();
  copyConstants();
  keepWeightGradientsInside();
  reorder();
}

Status pdc::assignFusionGroups(PassContext& context, Graph& graph) {
  Grouping(graph, context.options.contains("gradients")).run();
  return success;
}
