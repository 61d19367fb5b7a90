#include "Split/AxisClasses.h"

#include "pdc/IR/OpDef.h"

#include <algorithm>
#include <set>
#include <tuple>

using namespace pdc;

LoopTable::LoopTable(const Graph& graph) {
  for (const auto& operation : graph.operations()) loops_.emplace(operation.get(), loopsOf(*operation));
}

namespace {

class Closure {
public:
  Closure(const LoopTable& loops, std::int64_t members) : loops_(loops), members_(members) {}

  AxisClass of(const std::vector<std::pair<const Value*, Form>>& seeds) {
    for (const auto& [value, form] : seeds) add(value, form);
    for (std::size_t next = 0; next < found_.values.size(); ++next) {
      const Value* at = found_.values[next];
      const Form split = found_.forms.at(at);
      if (at->definer())
        divide(*at->definer(), divisionOfResult(*at->definer(), loops_.of(*at->definer()),
                                                static_cast<std::size_t>(at->resultIndex()), split, members_));
      for (const Operation* user : inOrder(at->users())) {
        const auto& operands = user->operands();
        const auto i = static_cast<std::size_t>(std::find(operands.begin(), operands.end(), at) - operands.begin());
        divide(*user, divisionOfOperand(*user, loops_.of(*user), i, split, members_));
      }
    }
    return std::move(found_);
  }

private:
  /// Users have no order of their own; their first results do.
  static std::vector<const Operation*> inOrder(const std::vector<Operation*>& users) {
    std::vector<const Operation*> sorted(users.begin(), users.end());
    auto nameOf = [](const Operation* operation) {
      for (const Value* result : operation->results())
        if (result) return result->name();
      return std::string();
    };
    std::sort(sorted.begin(), sorted.end(),
              [&](const Operation* a, const Operation* b) { return nameOf(a) < nameOf(b); });
    return sorted;
  }

  void add(const Value* value, const Form& form) {
    if (value && form.isSplit() && found_.forms.emplace(value, form).second) found_.values.push_back(value);
  }

  void divide(const Operation& operation, const std::optional<Division>& division) {
    if (!division || !found_.divisions.emplace(&operation, *division).second) return;
    found_.operations.push_back(&operation);
    const Loops& loops = loops_.of(operation);
    for (std::size_t i = 0; i < operation.operands().size(); ++i)
      add(operation.operand(i), formOfOperand(loops, i, *division));
    for (std::size_t i = 0; i < operation.results().size(); ++i)
      add(operation.result(i), formOfResult(loops, i, *division));
  }

  const LoopTable& loops_;
  std::int64_t members_;
  AxisClass found_;
};

} // namespace

AxisClass pdc::classOf(const LoopTable& loops, const std::vector<std::pair<const Value*, Form>>& seeds,
                       std::int64_t members) {
  return Closure(loops, members).of(seeds);
}

std::vector<AxisClass> pdc::parameterClasses(const Graph& graph, const LoopTable& loops, std::int64_t members) {
  std::vector<AxisClass> classes;
  std::set<std::tuple<const Value*, int, std::int64_t>> seen;
  auto isInput = [&](const Value* value) { return !value->definer() && !value->parameter(); };
  auto begin = [&](const Value* value, const Form& form) {
    if (!value || !form.isSplit() || seen.contains({value, form.axis, form.blocks})) return;
    AxisClass found = classOf(loops, {{value, form}}, members);
    for (const Value* member : found.values) {
      const Form& split = found.forms.at(member);
      seen.insert({member, split.axis, split.blocks});
    }
    const bool hasParameter = std::any_of(found.values.begin(), found.values.end(),
                                          [](const Value* member) { return member->parameter() != nullptr; });
    if (hasParameter && std::none_of(found.values.begin(), found.values.end(), isInput))
      classes.push_back(std::move(found));
  };
  for (const auto& operation : graph.operations()) {
    const Loops& of = loops.of(*operation);
    for (int index = 0; index < static_cast<int>(of.sizes.size()); ++index) {
      const Division division{index, members, 1};
      // Parts that are not equal begin where a member's number counts anyway: at a vocabulary.
      const bool isEven = of.sizes[static_cast<std::size_t>(index)] % members == 0;
      if (!canDivide(*operation, of, division) || (!isEven && !of.inOneBlock[static_cast<std::size_t>(index)]))
        continue;
      for (std::size_t i = 0; i < operation->operands().size(); ++i)
        begin(operation->operand(i), formOfOperand(of, i, division));
      for (std::size_t i = 0; i < operation->results().size(); ++i)
        begin(operation->result(i), formOfResult(of, i, division));
    }
  }
  return classes;
}
