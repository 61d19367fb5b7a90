#include "Split/SplitExperts.h"

#include "pdc/IR/OpDef.h"
#include "pdc/Transforms/GraphUtilities.h"

#include <algorithm>
#include <iterator>

using namespace pdc;

namespace {

bool has(const std::vector<LoopRun>& runs, int index) {
  return std::any_of(runs.begin(), runs.end(), [&](const LoopRun& run) { return run.index == index; });
}

/// Whether result 0 has a product of matrices for each value of the index: operands `a` and `b` have it, and share a
/// summed index.
bool isBatch(const Loops& loops, int index, std::size_t a, std::size_t b) {
  if (!has(loops.operands[a], index) || !has(loops.operands[b], index) || !has(loops.results[0], index)) return false;
  return std::any_of(loops.over[0].begin(), loops.over[0].end(), [&](const Reduced& reduced) {
    return reduced.combine == Combine::sum && has(loops.operands[a], reduced.index) &&
           has(loops.operands[b], reduced.index);
  });
}

/// The value of the parameter of which `value` is a view, or a cast; null: of none.
const Value* parameterBehind(const Value* value) {
  while (value && value->definer()) {
    const Operation& definer = *value->definer();
    const bool same = movesElements(definer) || definer.def().kind == OpKind::elementwise;
    if (!same || definer.operands().size() != 1) return nullptr;
    value = definer.operand(0);
  }
  return value && value->parameter() ? value : nullptr;
}

class Finder {
public:
  Finder(const Graph& graph, const LoopTable& loops, std::int64_t members)
      : graph_(graph), loops_(loops), members_(members) {}

  ExpertClasses run() {
    for (const auto& operation : graph_.operations())
      if (operation->result(0)) visit(*operation);
    for (ExpertClass& found : found_.classes) complete(found);
    return std::move(found_);
  }

private:
  void visit(const Operation& operation);
  void add(const Operation& operation, int index, std::size_t operand, const Value& parameter);
  void complete(ExpertClass& found) const;
  bool readsParts(const ExpertClass& found, const Operation& operation,
                  const std::unordered_set<const Value*>& made) const;
  bool isReadInParts(const ExpertClass& found, const Value& value) const;
  void addParameters(ExpertClass& found) const;
  bool hasPartsOnBothSides(const Operation& operation, const Division& division) const;

  const Graph& graph_;
  const LoopTable& loops_;
  const std::int64_t members_;
  ExpertClasses found_;
};

void Finder::visit(const Operation& operation) {
  const Loops& loops = loops_.of(operation);
  const std::size_t count = operation.operands().size();
  for (int index = 0; index < static_cast<int>(loops.sizes.size()); ++index)
    for (std::size_t a = 0; a < count; ++a)
      for (std::size_t b = 0; b < count; ++b)
        if (a != b && isBatch(loops, index, a, b))
          if (const Value* parameter = parameterBehind(operation.operand(b))) add(operation, index, b, *parameter);
}

void Finder::add(const Operation& operation, int index, std::size_t operand, const Value& parameter) {
  const auto isKnown = [&](const ExpertClass& found) { return found.parameters.contains(&parameter); };
  if (std::any_of(found_.classes.begin(), found_.classes.end(), isKnown)) return;
  const Loops& loops = loops_.of(operation);
  const Division division{index, members_, 1};
  const std::int64_t size = loops.sizes[static_cast<std::size_t>(index)];
  if (size % members_ != 0 || !canDivide(operation, loops, division)) {
    const auto isTold = [&](const SplitClass& told) { return told.parameters.front() == parameter.name(); };
    if (std::any_of(found_.undivided.begin(), found_.undivided.end(), isTold)) return;
    found_.undivided.push_back({.parameters = {parameter.name()},
                                .why = "has matrices of " + std::to_string(size) + " experts, which " +
                                       std::to_string(members_) + " members cannot divide evenly"});
    return;
  }
  const Value* read = operation.operand(operand);
  const Form form = formOfOperand(loops, operand, division);
  for (ExpertClass& found : found_.classes)
    if (found.along.holds(read, form) && found.along.forms.contains(&parameter)) {
      found.parameters.emplace(&parameter, found.along.forms.at(&parameter));
      return;
    }
  ExpertClass found{.along = classOf(loops_, {{read, form}}, members_), .divided = {}, .parameters = {}};
  if (!found.along.forms.contains(&parameter)) return;
  found.parameters.emplace(&parameter, found.along.forms.at(&parameter));
  found_.classes.push_back(std::move(found));
}

/// Whether the operation reads parts of parameters, or of what was made of them, as its division takes them.
bool Finder::readsParts(const ExpertClass& found, const Operation& operation,
                        const std::unordered_set<const Value*>& made) const {
  const Division& division = found.along.divisions.at(&operation);
  const Loops& loops = loops_.of(operation);
  bool makesParts = false, readsMade = false, readsParameters = false;
  for (std::size_t i = 0; i < operation.results().size(); ++i)
    makesParts |= operation.result(i) && formOfResult(loops, i, division).isSplit();
  for (std::size_t i = 0; i < operation.operands().size(); ++i) {
    const Value* operand = operation.operand(i);
    if (!operand || !found.along.holds(operand, formOfOperand(loops, i, division))) continue;
    readsMade |= made.contains(operand);
    readsParameters |= found.parameters.contains(operand);
  }
  return readsParameters || (readsMade && makesParts);
}

/// Whether operations that the class divides read the value, in its parts, and nobody else does. The outside reads
/// parts of gradients of parameters.
bool Finder::isReadInParts(const ExpertClass& found, const Value& value) const {
  const auto form = found.along.forms.find(&value);
  if (form == found.along.forms.end()) return false;
  bool isRead = !value.users().empty();
  for (const GraphOutput& output : graph_.outputs) {
    if (output.value != &value) continue;
    isRead = true;
    const auto isItsGradient = [&](const auto& parameter) {
      return parameter.first->parameter() == output.parameter && parameter.second == form->second;
    };
    if (output.kind != OutputKind::gradient ||
        std::none_of(found.parameters.begin(), found.parameters.end(), isItsGradient))
      return false;
  }
  return isRead && std::all_of(value.users().begin(), value.users().end(), [&](const Operation* user) {
           if (!found.divided.contains(user)) return false;
           const auto& operands = user->operands();
           const auto i =
               static_cast<std::size_t>(std::find(operands.begin(), operands.end(), &value) - operands.begin());
           return formOfOperand(loops_.of(*user), i, found.along.divisions.at(user)) == form->second;
         });
}

void Finder::addParameters(ExpertClass& found) const {
  for (const Value* value : graph_.parameterValues())
    if (isReadInParts(found, *value)) found.parameters.emplace(value, found.along.forms.at(value));
}

bool Finder::hasPartsOnBothSides(const Operation& operation, const Division& division) const {
  const Loops& loops = loops_.of(operation);
  return formOfOperand(loops, 0, division).isSplit() && formOfResult(loops, 0, division).isSplit();
}

/// What is divided begins with the products that read the parameters, and ends where experts are no axis any more.
void Finder::complete(ExpertClass& found) const {
  std::unordered_set<const Value*> made;
  for (const auto& operation : graph_.operations()) {
    if (!found.along.divisions.contains(operation.get()) || !readsParts(found, *operation, made)) continue;
    found.divided.insert(operation.get());
    for (const Value* result : operation->results())
      if (result && found.along.forms.contains(result)) made.insert(result);
  }
  addParameters(found);
  // Views of what they read, and what is made of parameters or for their gradients.
  for (auto at = graph_.operations().rbegin(); at != graph_.operations().rend(); ++at) {
    const Operation& operation = **at;
    const auto division = found.along.divisions.find(&operation);
    if (division == found.along.divisions.end() || operation.operands().size() != 1 || !operation.result(0)) continue;
    if (operation.results().size() == 1 && hasPartsOnBothSides(operation, division->second) &&
        isReadInParts(found, *operation.result()))
      found.divided.insert(&operation);
  }
  addParameters(found);
}

} // namespace

const ExpertClass* ExpertClasses::of(const Operation& operation) const {
  const auto found = std::find_if(classes.begin(), classes.end(),
                                  [&](const ExpertClass& each) { return each.divided.contains(&operation); });
  return found == classes.end() ? nullptr : &*found;
}

const ExpertClass* ExpertClasses::at(const Operation& operation) const {
  for (const ExpertClass& each : classes) {
    if (!each.along.divisions.contains(&operation) || each.divided.contains(&operation)) continue;
    const auto isDivided = [&](const Operation* other) { return other && each.divided.contains(other); };
    for (const Value* operand : operation.operands())
      if (operand && each.along.forms.contains(operand) && isDivided(operand->definer())) return &each;
    for (const Value* result : operation.results())
      if (result && each.along.forms.contains(result) &&
          std::any_of(result->users().begin(), result->users().end(), isDivided))
        return &each;
  }
  return nullptr;
}

ExpertClasses pdc::expertClasses(const Graph& graph, const LoopTable& loops, std::int64_t members) {
  return Finder(graph, loops, members).run();
}
