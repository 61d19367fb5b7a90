#include "Split/SplitResiduals.h"

#include "Split/Sums.h"

#include <algorithm>
#include <optional>
#include <set>

using namespace pdc;
using Forms = std::unordered_map<const Value*, Form>;

static Form formIn(const Forms& forms, const Value* value) {
  const auto found = forms.find(value);
  return found == forms.end() ? Form{} : found->second;
}

static bool isTerm(const Graph& graph, const Value* value, const Forms& made) {
  return value && formIn(made, value) == Form::partial(Combine::sum) && value->users().size() == 1 &&
         !graph.isOutput(value);
}

bool pdc::goesOnWithTerms(const Graph& graph, const Operation& operation, const Forms& made) {
  const auto& operands = operation.operands();
  return addsOperands(operation) && std::any_of(operands.begin(), operands.end(),
                                                [&](const Value* operand) { return isTerm(graph, operand, made); });
}

namespace {

class ResidualPlacer {
public:
  ResidualPlacer(const Graph& graph, const LoopTable& loops, const AxisClass& tokens, const Forms& made,
                 std::int64_t members, Choice& choice)
      : graph_(graph), loops_(loops), tokens_(tokens), made_(made), members_(members), choice_(choice) {}

  void run() {
    // What reads a sum of terms decides for its terms.
    for (auto at = graph_.operations().rbegin(); at != graph_.operations().rend(); ++at)
      for (std::size_t i = 0; i < (*at)->results().size(); ++i)
        if (const Value* result = (*at)->result(i)) place(**at, i, *result);
  }

private:
  void place(const Operation& operation, std::size_t i, const Value& result);
  Form readAs(const Operation& user, std::size_t i) const;
  std::optional<Division> divisionOf(const Operation& operation) const {
    const auto found = choice_.divisions.find(&operation);
    return found == choice_.divisions.end() ? std::nullopt : std::optional(found->second);
  }
  std::set<int> groupsThatReadAllOf(const Value& value) const;
  bool isReadAs(const Value& value, const Form& form) const;

  const Graph& graph_;
  const LoopTable& loops_;
  const AxisClass& tokens_;
  const Forms& made_;
  const std::int64_t members_;
  Choice& choice_;
};

/// The form in which an operation behind reads its operand.
Form ResidualPlacer::readAs(const Operation& user, std::size_t i) const {
  const std::optional<Division> division = divisionOf(user);
  if (!division) return goesOnWithTerms(graph_, user, made_) ? formIn(choice_.joined, user.result()) : Form{};
  const Loops& loops = loops_.of(user);
  if (addsToItsSum(user, loops, *division) && loops.added->operand == static_cast<int>(i) && loops.added->axis < 0)
    return formIn(choice_.joined, user.result());
  return formOfOperand(loops, i, *division);
}

bool ResidualPlacer::isReadAs(const Value& value, const Form& form) const {
  const auto& users = value.users();
  return std::any_of(users.begin(), users.end(), [&](const Operation* user) {
    for (std::size_t i = 0; i < user->operands().size(); ++i)
      if (user->operand(i) == &value && readAs(*user, i) == form) return true;
    return false;
  });
}

std::set<int> ResidualPlacer::groupsThatReadAllOf(const Value& value) const {
  std::set<int> groups;
  for (const Operation* user : value.users())
    for (std::size_t i = 0; i < user->operands().size(); ++i)
      if (user->operand(i) == &value && readAs(*user, i).isWhole()) groups.insert(user->group);
  return groups;
}

void ResidualPlacer::place(const Operation& operation, std::size_t i, const Value& result) {
  const auto join = [&](const Form& form) {
    if (form.isSplit()) choice_.joined.emplace(&result, form);
  };
  // Terms of a longer sum are never put together; what is added to them has the form of that sum.
  if (isTerm(graph_, &result, made_) && goesOnWithTerms(graph_, *result.users().front(), made_))
    return join(formIn(choice_.joined, result.users().front()->result()));
  const Form made = formIn(made_, &result), tokens = formIn(tokens_.forms, &result);
  const std::optional<Division> division = divisionOf(operation);
  const bool isSum = i == 0 && division && addsToItsSum(operation, loops_.of(operation), *division);
  const bool mayBe = tokens.isSplit() && canSplit(result.type(), tokens, members_) && !graph_.isOutput(&result);
  if ((made.isWhole() && !isSum) || (made.isPartial() && made.combine != Combine::sum) || !mayBe) return;
  const std::size_t readers = groupsThatReadAllOf(result).size();
  if (made == tokens && !isSum) {
    if (readers == 1) choice_.gathered.insert(&result);
  } else if (readers < 2 && isReadAs(result, tokens)) {
    join(tokens);
  }
}

} // namespace

void pdc::placeJoins(const Graph& graph, const LoopTable& loops, const AxisClass& tokens, const Forms& made,
                     std::int64_t members, Choice& choice) {
  ResidualPlacer(graph, loops, tokens, made, members, choice).run();
}
