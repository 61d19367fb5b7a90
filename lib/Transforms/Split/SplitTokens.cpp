#include "Split/SplitTokens.h"

#include "Split/Sums.h"
#include "pdc/IR/OpDef.h"
#include "pdc/Support/DiagnosticsBuilder.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <set>
#include <tuple>

using namespace pdc;

namespace {

class TokenSplitter {
public:
  TokenSplitter(const Graph& graph, const LoopTable& loops, std::int64_t members)
      : graph_(graph), loops_(loops), members_(members) {}

  Expected<Choice> run(Diagnostics& diags);

private:
  /// A way to compute an operation; no division: every member computes all of it.
  struct Way {
    std::optional<Division> division;
    std::int64_t gathered = 0;     ///< bytes that are brought together: every member then has all of them
    std::int64_t sent = 0;         ///< bytes that it makes a member send, and what it computes in that time
    std::int64_t held = 0;         ///< bytes of operands and results
    bool dividesFirstAxis = false; ///< of an operand or result: the samples, of which there may be one
    bool isBetterThan(const Way& other) const {
      return std::tie(gathered, sent, held, dividesFirstAxis) <
             std::tie(other.gathered, other.sent, other.held, other.dividesFirstAxis);
    }
  };

  Expected<std::vector<std::pair<const Value*, Form>>> positions(Diagnostics& diags) const;
  Form formOf(const Value* value) const {
    const auto found = made_.find(value);
    return found == made_.end() ? Form{} : found->second;
  }
  double bytesBetween(const Value& value, const Form& from, const Form& to) const;
  Way wayOf(const Operation& operation, const std::optional<Division>& division) const;
  bool isAlongTokens(const Operation& operation) const;
  std::optional<Form> readAs(const Value& result) const;
  std::optional<Division> divisionOf(const Operation& operation) const;
  void tell(const Operation& operation, const std::optional<Division>& division, SplitClass& tokens,
            std::vector<SplitClass>& wholes);

  const Graph& graph_;
  const LoopTable& loops_;
  const std::int64_t members_;
  AxisClass tokens_;
  std::unordered_map<const Value*, Form> made_;                   ///< how results are made
  std::set<std::tuple<const Value*, int, std::int64_t>> brought_; ///< values in other forms that are counted
};

/// Axis 1 of inputs [batch, positions] of integers; without such, of inputs [batch, positions, features].
Expected<std::vector<std::pair<const Value*, Form>>> TokenSplitter::positions(Diagnostics& diags) const {
  std::vector<std::pair<const Value*, Form>> found;
  const auto take = [&](auto isSequence) -> Status {
    for (const GraphInput& input : graph_.inputs) {
      const Type& type = input.value->type();
      if (input.kind != InputKind::data || type.rank() < 2 || !isSequence(type)) continue;
      const std::int64_t size = type.shape[1];
      if (size % members_ != 0)
        return diags.error({.node = "%" + input.value->name()})
                   .exit(ExitCode::usage)
                   .help("take a number of members that divides it, or pad the sequences")
               << "input '" << input.value->name() << "', " << toString(type) << ", has " << size
               << " positions, which " << members_ << " members cannot divide evenly";
      found.emplace_back(input.value, splitOf(type, 1, 1, members_));
    }
    return success;
  };
  if (!take([](const Type& type) { return !isFloat(type.element); })) return failure;
  if (found.empty() && !take([](const Type& type) { return type.rank() == 3; })) return failure;
  if (found.empty())
    return diags.error({.node = "@" + graph_.name()})
               .exit(ExitCode::usage)
               .help("take --split=tp:" + std::to_string(members_))
           << "no input is a sequence, [batch, positions] of integers or [batch, positions, features], of which "
           << members_ << " members could have parts";
  return found;
}

/// That a member sends to bring a value from one form into another.
double TokenSplitter::bytesBetween(const Value& value, const Form& from, const Form& to) const {
  if (from == to || from.isWhole()) return 0;
  const double parts = static_cast<double>(members_),
               others = static_cast<double>(value.type().bytes()) * (parts - 1) / parts;
  if (from.isPartial()) return to.isSplit() ? others : 2 * others;
  return to.isSplit() && to.axis != from.axis ? others / parts : others;
}

TokenSplitter::Way TokenSplitter::wayOf(const Operation& operation, const std::optional<Division>& division) const {
  const Loops& loops = loops_.of(operation);
  const double parts = static_cast<double>(members_);
  Way way{.division = division};
  double sent = 0;
  const auto add = [&](const Value& value, const Form& form) {
    way.held += partOf(value.type(), form, members_).bytes();
    way.dividesFirstAxis |= form.isSplit() && form.axis == 0;
  };
  for (std::size_t i = 0; i < operation.operands().size(); ++i) {
    const Value* operand = operation.operand(i);
    if (!operand) continue;
    const Form wanted = division ? formOfOperand(loops, i, *division) : Form{};
    sent += bytesBetween(*operand, formOf(operand), wanted);
    if (wanted.isWhole() && formOf(operand).isSplit()) way.gathered += operand->type().bytes();
    add(*operand, wanted);
  }
  for (std::size_t i = 0; i < operation.results().size(); ++i) {
    const Value* result = operation.result(i);
    if (!result) continue;
    const Form made = division ? formOfResult(loops, i, *division) : Form{};
    if (const std::optional<Form> read = readAs(*result))
      sent += bytesBetween(*result, made, *read);
    else if (made.isPartial())
      sent += bytesBetween(*result, made, {});
    add(*result, made);
  }
  if (!division) sent += costOf(operation).flops * (parts - 1) / parts / leastFlopsPerByte;
  way.sent = std::llround(sent);
  return way;
}

/// Whether the class of the positions divides the operation, and what it reads in the parts that this takes. Attention
/// reads all positions of the keys, which are divided.
bool TokenSplitter::isAlongTokens(const Operation& operation) const {
  const auto along = tokens_.divisions.find(&operation);
  if (along == tokens_.divisions.end()) return false;
  for (std::size_t i = 0; i < operation.operands().size(); ++i) {
    const auto part = tokens_.forms.find(operation.operand(i));
    if (part != tokens_.forms.end() && part->second != formOfOperand(loops_.of(operation), i, along->second))
      return false;
  }
  return true;
}

/// The form in which others read a result, which its makers had better have: that of the positions.
std::optional<Form> TokenSplitter::readAs(const Value& result) const {
  const auto& users = result.users();
  if (std::none_of(users.begin(), users.end(), [&](const Operation* user) { return isAlongTokens(*user); }))
    return std::nullopt;
  const auto part = tokens_.forms.find(&result);
  return part == tokens_.forms.end() ? std::nullopt : std::optional(part->second);
}

/// The division along the positions; of an operation whose positions depend on each other, or that has none, the one
/// that costs least.
std::optional<Division> TokenSplitter::divisionOf(const Operation& operation) const {
  const auto along = tokens_.divisions.find(&operation);
  if (isAlongTokens(operation)) return along->second;
  bool hasTerms = false, hasParts = false;
  for (const Value* operand : operation.operands()) {
    hasTerms |= operand && formOf(operand).isPartial();
    hasParts |= operand && formOf(operand).isSplit();
  }
  // Terms are added before they are put together. What everyone has, everyone computes.
  if (!hasParts || (hasTerms && addsOperands(operation))) return std::nullopt;
  const Loops& loops = loops_.of(operation);
  Way best = wayOf(operation, std::nullopt);
  const auto consider = [&](const std::optional<Division>& division) {
    if (!division || !canDivide(operation, loops, *division)) return;
    const Way way = wayOf(operation, division);
    if (way.isBetterThan(best)) best = way;
  };
  if (along != tokens_.divisions.end()) consider(along->second);
  for (std::size_t i = 0; i < operation.operands().size(); ++i)
    if (operation.operand(i)) consider(divisionOfOperand(operation, loops, i, formOf(operation.operand(i)), members_));
  for (int index = 0; index < static_cast<int>(loops.sizes.size()); ++index)
    if (!loops.inOneBlock[static_cast<std::size_t>(index)]) consider(Division{index, members_, 1});
  return best.division;
}

/// Counts what the choice for an operation saves, and makes the members tell each other.
void TokenSplitter::tell(const Operation& operation, const std::optional<Division>& division, SplitClass& tokens,
                         std::vector<SplitClass>& wholes) {
  const double parts = static_cast<double>(members_), saved = costOf(operation).flops * (parts - 1) / parts;
  const Loops& loops = loops_.of(operation);
  double sent = 0;
  bool hasParts = false;
  for (std::size_t i = 0; i < operation.operands().size(); ++i) {
    const Value* operand = operation.operand(i);
    if (!operand || formOf(operand).isWhole()) continue;
    hasParts |= formOf(operand).isSplit();
    const Form wanted = division ? formOfOperand(loops, i, *division) : Form{};
    if (brought_.emplace(operand, wanted.isSplit() ? wanted.axis : -1, wanted.blocks).second)
      sent += bytesBetween(*operand, formOf(operand), wanted);
  }
  tokens.communicatedBytes += std::llround(sent);
  if (division)
    tokens.flops += saved;
  else if (hasParts && saved > 0)
    wholes.push_back({.parameters = {operation.location.node},
                      .flops = saved,
                      .why = "every member computes all of it, because nothing of it can be divided for less"});
}

Expected<Choice> TokenSplitter::run(Diagnostics& diags) {
  const auto seeds = positions(diags);
  if (!seeds) return failure;
  tokens_ = classOf(loops_, *seeds, members_);
  Choice choice;
  SplitClass tokens{.chosen = true};
  for (const auto& [input, form] : *seeds) tokens.parameters.push_back("positions of " + input->name());
  std::vector<SplitClass> wholes;
  for (const auto& operation : graph_.operations()) {
    const std::optional<Division> division = divisionOf(*operation);
    for (std::size_t i = 0; i < operation->results().size(); ++i)
      if (const Value* result = operation->result(i); result && division)
        made_[result] = formOfResult(loops_.of(*operation), i, *division);
    if (division) choice.divisions.emplace(operation.get(), *division);
    tell(*operation, division, tokens, wholes);
  }
  tokens.chosen = tokens.flops > 0;
  if (!tokens.chosen) tokens.why = "nothing that is computed can be divided";
  choice.classes.push_back(std::move(tokens));
  choice.classes.insert(choice.classes.end(), std::make_move_iterator(wholes.begin()),
                        std::make_move_iterator(wholes.end()));
  return choice;
}

} // namespace

Expected<Choice> pdc::chooseTokens(const Graph& graph, const LoopTable& loops, std::int64_t members,
                                   Diagnostics& diags) {
  return TokenSplitter(graph, loops, members).run(diags);
}
