#include "Split/ChooseClasses.h"

#include "Split/Sums.h"
#include "pdc/IR/OpDef.h"

#include <algorithm>
#include <cmath>
#include <set>

using namespace pdc;

namespace {

class Chooser {
public:
  Chooser(const Graph& graph, const LoopTable& loops, const SplitOptions& options)
      : graph_(graph), loops_(loops), options_(options), left_(parameterClasses(graph, loops, options.members)) {}

  Choice run();

private:
  /// Of a number of bytes or operations, what a division leaves to others.
  double share(double whole) const {
    return whole * static_cast<double>(options_.members - 1) / static_cast<double>(options_.members);
  }
  SplitClass worthOf(const AxisClass& axisClass) const;
  std::int64_t communicated(const AxisClass& axisClass) const;
  bool isDivided(const AxisClass& axisClass, const Operation& operation) const {
    return axisClass.divisions.contains(&operation) && !choice_.divisions.contains(&operation);
  }
  bool isNeededWhole(const AxisClass& axisClass, const Value* value) const;
  double ratioOf(const SplitClass& worth) const {
    return (worth.flops / leastFlopsPerByte + memoryOfParameterByte * static_cast<double>(worth.parameterBytes)) /
           std::max<double>(1, static_cast<double>(worth.communicatedBytes));
  }
  void take(const AxisClass& axisClass);
  void takeGradientsOfParts();

  const Graph& graph_;
  const LoopTable& loops_;
  const SplitOptions& options_;
  std::vector<AxisClass> left_;
  Choice choice_;
};

/// Whether someone reads all of a value that the class splits: who is not in it, or the outside.
bool Chooser::isNeededWhole(const AxisClass& axisClass, const Value* value) const {
  const Form& form = axisClass.forms.at(value);
  for (const Operation* user : value->users()) {
    if (!isDivided(axisClass, *user)) return true;
    const Division& division = axisClass.divisions.at(user);
    for (std::size_t i = 0; i < user->operands().size(); ++i)
      if (user->operand(i) == value && formOfOperand(loops_.of(*user), i, division) != form) return true;
  }
  for (const GraphOutput& output : graph_.outputs)
    if (output.value == value)
      return !output.parameter ||
             std::none_of(axisClass.values.begin(), axisClass.values.end(), [&](const Value* other) {
               return other->parameter() == output.parameter && axisClass.forms.at(other) == form;
             });
  return false;
}

/// Bytes that a member sends, and receives as many: of each sum of terms 2(t - 1)/t, of each value that is put together
/// (t - 1)/t. Terms of one sum count once.
std::int64_t Chooser::communicated(const AxisClass& axisClass) const {
  double bytes = 0;
  std::set<const Value*> sums;
  for (const Operation* operation : axisClass.operations) {
    if (!isDivided(axisClass, *operation)) continue;
    const Division& division = axisClass.divisions.at(operation);
    for (std::size_t i = 0; i < operation->results().size(); ++i) {
      const Value* result = operation->result(i);
      if (!result || !formOfResult(loops_.of(*operation), i, division).isPartial()) continue;
      while (result->users().size() == 1 && addsOperands(*result->users().front()))
        result = result->users().front()->result();
      if (sums.insert(result).second) bytes += 2 * share(static_cast<double>(result->type().bytes()));
    }
  }
  for (const Value* value : axisClass.values)
    if (isNeededWhole(axisClass, value)) bytes += share(static_cast<double>(value->type().bytes()));
  return static_cast<std::int64_t>(std::ceil(bytes));
}

SplitClass Chooser::worthOf(const AxisClass& axisClass) const {
  SplitClass worth;
  double flops = 0, parameters = 0;
  for (const Operation* operation : axisClass.operations)
    if (isDivided(axisClass, *operation)) flops += share(costOf(*operation).flops);
  for (const Value* value : axisClass.values) {
    if (!value->parameter() || choice_.parameters.contains(value->parameter()) || isNeededWhole(axisClass, value))
      continue;
    parameters += share(static_cast<double>(value->type().bytes()));
    const Form& form = axisClass.forms.at(value);
    worth.parameters.push_back(value->name() + " axis " + std::to_string(form.axis) +
                               (form.blocks > 1 ? " in " + std::to_string(form.blocks) + " blocks" : ""));
  }
  worth.flops = flops;
  worth.parameterBytes = static_cast<std::int64_t>(parameters);
  worth.communicatedBytes = communicated(axisClass);
  return worth;
}

void Chooser::take(const AxisClass& axisClass) {
  for (const Value* value : axisClass.values)
    if (value->parameter() && !isNeededWhole(axisClass, value))
      choice_.parameters.try_emplace(value->parameter(), axisClass.forms.at(value));
  for (const Operation* operation : axisClass.operations)
    choice_.divisions.try_emplace(operation, axisClass.divisions.at(operation));
}

/// A gradient that a member has a part of, and that is made of whole values, such as that of rows that are looked up:
/// each makes its part of it.
void Chooser::takeGradientsOfParts() {
  for (const GraphOutput& output : graph_.outputs) {
    const Operation* maker = output.value->definer();
    const auto part = choice_.parameters.find(output.parameter);
    if (output.kind != OutputKind::gradient || !maker || part == choice_.parameters.end()) continue;
    const Loops& loops = loops_.of(*maker);
    const auto& results = maker->results();
    const auto i = static_cast<std::size_t>(std::find(results.begin(), results.end(), output.value) - results.begin());
    const std::optional<Division> division = divisionOfResult(*maker, loops, i, part->second, options_.members);
    if (!division || !canDivide(*maker, loops, *division)) continue;
    bool readsWholes = true;
    for (std::size_t k = 0; k < maker->operands().size(); ++k)
      readsWholes &= !maker->operand(k) || formOfOperand(loops, k, *division).isWhole();
    if (readsWholes) choice_.divisions.try_emplace(maker, *division);
  }
}

Choice Chooser::run() {
  // The class that is worth most first; what it takes, others do without. Ties: the first in program order.
  while (!left_.empty()) {
    std::size_t best = 0;
    SplitClass worth = worthOf(left_[0]);
    for (std::size_t i = 1; i < left_.size(); ++i)
      if (SplitClass other = worthOf(left_[i]); ratioOf(other) > ratioOf(worth)) best = i, worth = std::move(other);
    worth.chosen = !worth.parameters.empty() && (options_.all || ratioOf(worth) > 1);
    if (worth.parameters.empty()) {
      worth.why = "no parameter of it is read in parts only";
    } else if (!worth.chosen) {
      worth.why = "a byte that members tell each other saves no more than " +
                  std::to_string(static_cast<int>(leastFlopsPerByte)) +
                  " operations, or a byte of memory for parameters, gradients and velocities";
    }
    if (worth.chosen) take(left_[best]);
    choice_.classes.push_back(std::move(worth));
    left_.erase(left_.begin() + static_cast<std::ptrdiff_t>(best));
  }
  takeGradientsOfParts();
  return std::move(choice_);
}

} // namespace

Choice pdc::chooseClasses(const Graph& graph, const LoopTable& loops, const SplitOptions& options) {
  return Chooser(graph, loops, options).run();
}

std::unordered_map<const Operation*, Division> pdc::divisionsFor(const Graph& graph, const LoopTable& loops,
                                                                 const std::map<const Parameter*, Form>& parameters,
                                                                 std::int64_t members) {
  std::unordered_map<const Operation*, Division> divisions;
  for (const Value* value : graph.parameterValues()) {
    const auto found = parameters.find(value->parameter());
    if (found == parameters.end()) continue;
    const AxisClass axisClass = classOf(loops, {{value, found->second}}, members);
    for (const Operation* operation : axisClass.operations)
      divisions.try_emplace(operation, axisClass.divisions.at(operation));
  }
  return divisions;
}
