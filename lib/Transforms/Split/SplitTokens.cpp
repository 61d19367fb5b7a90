#include "Split/SplitTokens.h"

#include "Split/SplitExperts.h"
#include "Split/SplitResiduals.h"
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
  TokenSplitter(const Graph& graph, const LoopTable& loops, const SplitOptions& options, const Choice* training)
      : graph_(graph), loops_(loops), options_(options), training_(training), members_(options.members) {}

  Expected<Choice> run(Diagnostics& diags);

private:
  /// A way to compute an operation; no division: every member computes all of it.
  struct Way {
    std::optional<Division> division;
    std::int64_t gathered = 0;     ///< bytes that are brought together: every member then has all of them
    std::int64_t sent = 0;         ///< bytes that it makes a member send, and what it computes in that time
    std::int64_t held = 0;         ///< bytes of operands and results
    bool makesTerms = false;       ///< each member makes a tensor of a result's whole shape
    bool dividesFirstAxis = false; ///< of an operand or result: the samples, of which there may be one
    bool isBetterThan(const Way& other) const {
      return std::tie(gathered, sent, held, dividesFirstAxis) <
             std::tie(other.gathered, other.sent, other.held, other.dividesFirstAxis);
    }
    bool sendsLessThan(const Way& other) const {
      return std::tie(sent, gathered, held) < std::tie(other.sent, other.gathered, other.held);
    }
  };
  using Seeds = std::vector<std::pair<const Value*, Form>>;

  Expected<Seeds> positions(Diagnostics& diags) const;
  Expected<Seeds> samples(Diagnostics& diags) const;
  Status findExperts(Diagnostics& diags);
  void chooseWeights();
  Form formOf(const Value* value) const {
    const auto found = made_.find(value);
    return found == made_.end() ? Form{} : found->second;
  }
  double bytesBetween(const Value& value, const Form& from, const Form& to) const;
  Way wayOf(const Operation& operation, const std::optional<Division>& division) const;
  bool isAlongTokens(const Operation& operation) const;
  std::optional<Form> readAs(const Value& result) const;
  Way bestOf(const Operation& operation, bool (Way::*isBetter)(const Way&) const) const;
  std::optional<Form> partOfGradient(const Value& result) const;
  bool makesPartOfGradient(const Operation& operation) const {
    const auto& results = operation.results();
    return std::any_of(results.begin(), results.end(),
                       [&](const Value* result) { return result && partOfGradient(*result); });
  }
  bool isOfWeights(const Operation& operation) const;
  bool isOnlyReadWhole(const Operation& operation) const;
  std::optional<Division> divisionOf(const Operation& operation) const;
  std::optional<Division> divisionAtBorder(const Operation& operation) const;
  void tell(const Operation& operation, const std::optional<Division>& division, SplitClass& tokens,
            std::vector<SplitClass>& wholes);
  void takeExperts(Choice& choice);
  void make(const Operation& operation, const std::optional<Division>& division);
  std::int64_t gatheredAgain(const Value& value, const Choice& choice) const;

  const Graph& graph_;
  const LoopTable& loops_;
  const SplitOptions& options_;
  const Choice* training_;
  const std::int64_t members_;
  Choice weights_; ///< what tensor parallelism divides
  AxisClass tokens_;
  ExpertClasses experts_;
  std::unordered_map<const ExpertClass*, SplitClass> told_;       ///< of classes of experts
  std::unordered_map<const Value*, Form> made_;                   ///< how results are made
  std::set<std::tuple<const Value*, int, std::int64_t>> brought_; ///< values in other forms that are counted
};

/// Axis 1 of inputs [batch, positions] of integers; without such, of inputs [batch, positions, features].
Expected<TokenSplitter::Seeds> TokenSplitter::positions(Diagnostics& diags) const {
  Seeds found;
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

/// Axis 0 of inputs from the data set.
Expected<TokenSplitter::Seeds> TokenSplitter::samples(Diagnostics& diags) const {
  Seeds found;
  for (const GraphInput& input : graph_.inputs) {
    const Type& type = input.value->type();
    if (input.kind != InputKind::data || type.rank() < 1) continue;
    if (type.shape[0] % members_ != 0)
      return diags.error({.node = "%" + input.value->name()})
                 .exit(ExitCode::usage)
                 .help("take a number of members that divides it, or another --batch")
             << "input '" << input.value->name() << "', " << toString(type) << ", has " << type.shape[0]
             << " samples, which " << members_ << " members cannot divide evenly";
    found.emplace_back(input.value, splitOf(type, 0, 1, members_));
  }
  return found;
}

Status TokenSplitter::findExperts(Diagnostics& diags) {
  experts_ = expertClasses(graph_, loops_, members_);
  for (const ExpertClass& experts : experts_.classes)
    for (const auto& [parameter, form] : experts.parameters) made_.emplace(parameter, form);
  if (!experts_.classes.empty()) return success;
  const std::string other = "take --split=tp:" + std::to_string(members_) + ", or --replicas";
  if (experts_.undivided.empty())
    return diags.error({.node = "@" + graph_.name()}).exit(ExitCode::usage).help(other)
           << "no parameter has a matrix for each expert, of which " << members_ << " members could have parts";
  const SplitClass& first = experts_.undivided.front();
  return diags.error({.node = "%" + first.parameters.front()})
             .exit(ExitCode::usage)
             .help("take a number of members that divides them")
         << "parameter '" << first.parameters.front() << "' " << first.why;
}

void TokenSplitter::chooseWeights() {
  if (training_)
    weights_ = {.divisions = divisionsFor(graph_, loops_, training_->parameters, members_),
                .parameters = training_->parameters};
  else
    weights_ = chooseClasses(graph_, loops_, options_);
  for (const Value* value : graph_.parameterValues())
    if (const auto part = weights_.parameters.find(value->parameter()); part != weights_.parameters.end())
      made_.emplace(value, part->second);
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
    way.makesTerms |= made.isPartial();
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

/// The form in which others read a result, which its makers had better have: that of experts, or of the positions.
std::optional<Form> TokenSplitter::readAs(const Value& result) const {
  if (const std::optional<Form> part = partOfGradient(result)) return part;
  const auto& users = result.users();
  for (const ExpertClass& experts : experts_.classes)
    if (std::any_of(users.begin(), users.end(), [&](const Operation* user) { return experts.divided.contains(user); }))
      if (const auto part = experts.along.forms.find(&result); part != experts.along.forms.end()) return part->second;
  if (std::none_of(users.begin(), users.end(), [&](const Operation* user) { return isAlongTokens(*user); }))
    return std::nullopt;
  const auto part = tokens_.forms.find(&result);
  return part == tokens_.forms.end() ? std::nullopt : std::optional(part->second);
}

TokenSplitter::Way TokenSplitter::bestOf(const Operation& operation, bool (Way::*isBetter)(const Way&) const) const {
  const Loops& loops = loops_.of(operation);
  Way best = wayOf(operation, std::nullopt);
  const auto consider = [&](const std::optional<Division>& division) {
    if (!division || !canDivide(operation, loops, *division)) return;
    const Way way = wayOf(operation, division);
    if ((way.*isBetter)(best)) best = way;
  };
  if (const auto along = tokens_.divisions.find(&operation); along != tokens_.divisions.end()) consider(along->second);
  if (const ExpertClass* experts = experts_.at(operation)) consider(experts->along.divisions.at(&operation));
  for (std::size_t i = 0; i < operation.operands().size(); ++i)
    if (operation.operand(i)) consider(divisionOfOperand(operation, loops, i, formOf(operation.operand(i)), members_));
  for (std::size_t i = 0; i < operation.results().size(); ++i)
    if (const Value* result = operation.result(i))
      if (const std::optional<Form> part = partOfGradient(*result))
        consider(divisionOfResult(operation, loops, i, *part, members_));
  for (int index = 0; index < static_cast<int>(loops.sizes.size()); ++index)
    if (!loops.inOneBlock[static_cast<std::size_t>(index)]) consider(Division{index, members_, 1});
  return best;
}

/// Of what brings tokens to experts or something from them: along the tokens where members have whole groups, so that
/// it needs nobody else's and makes no terms of a sum; else the division that sends least.
std::optional<Division> TokenSplitter::divisionAtBorder(const Operation& operation) const {
  if (isAlongTokens(operation)) {
    const Way along = wayOf(operation, tokens_.divisions.at(&operation));
    if (along.gathered == 0 && !along.makesTerms) return along.division;
  }
  return bestOf(operation, &Way::sendsLessThan).division;
}

/// The form in which members have the gradient that a result is; nothing: it is none, or of a whole parameter.
std::optional<Form> TokenSplitter::partOfGradient(const Value& result) const {
  for (const GraphOutput& output : graph_.outputs) {
    if (output.value != &result || output.kind != OutputKind::gradient) continue;
    const auto part = weights_.parameters.find(output.parameter);
    if (part != weights_.parameters.end()) return part->second;
  }
  return std::nullopt;
}

/// Whether tensor parallelism divides the operation. It makes parts of gradients of whole values; here members have
/// parts of those, which may be less to gather than to sum.
bool TokenSplitter::isOfWeights(const Operation& operation) const {
  const auto found = weights_.divisions.find(&operation);
  if (found == weights_.divisions.end()) return false;
  const auto& operands = operation.operands();
  bool readsParts = false;
  for (std::size_t i = 0; i < operands.size(); ++i)
    readsParts |= operands[i] && formOfOperand(loops_.of(operation), i, found->second).isSplit();
  return readsParts || !makesPartOfGradient(operation);
}

/// Whether the operation moves what everyone has for operations that tensor parallelism divides, and that read all of
/// it, such as the labels of a loss whose classes are divided.
bool TokenSplitter::isOnlyReadWhole(const Operation& operation) const {
  if (operation.operands().size() != 1 || operation.results().size() != 1 || costOf(operation).flops > 0) return false;
  if (!formOf(operation.operand(0)).isWhole()) return false;
  const auto& users = operation.result()->users();
  return !users.empty() && std::all_of(users.begin(), users.end(), [&](const Operation* user) {
    if (!isOfWeights(*user)) return isOnlyReadWhole(*user);
    const auto& operands = user->operands();
    const auto i = std::find(operands.begin(), operands.end(), operation.result()) - operands.begin();
    return formOfOperand(loops_.of(*user), static_cast<std::size_t>(i), weights_.divisions.at(user)).isWhole();
  });
}

/// The division of experts, or along the positions; of an operation whose positions depend on each other, or that has
/// none, the one that costs least.
std::optional<Division> TokenSplitter::divisionOf(const Operation& operation) const {
  if (isOfWeights(operation)) return weights_.divisions.at(&operation);
  if (options_.weights && makesPartOfGradient(operation)) return bestOf(operation, &Way::sendsLessThan).division;
  if (options_.weights && (goesOnWithTerms(graph_, operation, made_) || isOnlyReadWhole(operation)))
    return std::nullopt;
  if (const ExpertClass* experts = experts_.of(operation)) return experts->along.divisions.at(&operation);
  if (experts_.at(operation)) return divisionAtBorder(operation);
  if (isAlongTokens(operation)) return tokens_.divisions.at(&operation);
  bool hasTerms = false, hasParts = false;
  for (const Value* operand : operation.operands()) {
    hasTerms |= operand && formOf(operand).isPartial();
    hasParts |= operand && formOf(operand).isSplit();
  }
  // Terms are added before they are put together. What everyone has, everyone computes.
  if (!hasParts || (hasTerms && addsOperands(operation))) return std::nullopt;
  return bestOf(operation, &Way::isBetterThan).division;
}

/// How tokens come to experts where what brings them there is divided so.
static std::string wayToExperts(const Operation& operation, const std::optional<Division>& division,
                                const std::optional<Division>& alongTokens, bool makesTerms,
                                const ExpertClass& experts) {
  const auto is = [&](const std::optional<Division>& other) {
    return division && other && division->index == other->index;
  };
  if (is(alongTokens) && !makesTerms)
    return "all-to-alls bring tokens to their experts and back, as members have whole groups of them";
  const std::string why = ", as the slots of an expert are for tokens of all members";
  if (is(alongTokens)) return "slots are summed over the members, and gathered from the experts" + why;
  if (is(experts.along.divisions.at(&operation)))
    return "tokens are gathered, and what experts make of them is summed" + why;
  return division ? "all-to-alls give members some features of all tokens, and then some experts" + why
                  : "every member gathers all tokens" + why;
}

/// Counts what the choice for an operation saves, and makes the members tell each other.
void TokenSplitter::tell(const Operation& operation, const std::optional<Division>& division, SplitClass& tokens,
                         std::vector<SplitClass>& wholes) {
  const double parts = static_cast<double>(members_), saved = costOf(operation).flops * (parts - 1) / parts;
  const Loops& loops = loops_.of(operation);
  bool hasParts = false;
  const auto classOf = [&](const Operation& of) -> SplitClass* {
    const ExpertClass* const experts = experts_.at(of) ? experts_.at(of) : experts_.of(of);
    return experts ? &told_[experts] : nullptr;
  };
  SplitClass* const experts = classOf(operation);
  for (std::size_t i = 0; i < operation.operands().size(); ++i) {
    const Value* operand = operation.operand(i);
    if (!operand || formOf(operand).isWhole()) continue;
    hasParts |= formOf(operand).isSplit();
    const Form wanted = division ? formOfOperand(loops, i, *division) : Form{};
    SplitClass* const makers = operand->definer() ? classOf(*operand->definer()) : nullptr;
    SplitClass& counted = experts ? *experts : makers ? *makers : tokens;
    if (brought_.emplace(operand, wanted.isSplit() ? wanted.axis : -1, wanted.blocks).second)
      counted.communicatedBytes += std::llround(bytesBetween(*operand, formOf(operand), wanted));
  }
  if (const ExpertClass* const border = experts_.at(operation); border && experts->why.empty()) {
    const auto along = tokens_.divisions.find(&operation);
    const bool isAlong = along != tokens_.divisions.end();
    experts->why = wayToExperts(operation, division, isAlong ? std::optional(along->second) : std::nullopt,
                                wayOf(operation, division).makesTerms, *border);
  }
  if (division)
    (experts ? *experts : tokens).flops += saved;
  else if (hasParts && saved > 0)
    wholes.push_back({.parameters = {operation.location.node},
                      .flops = saved,
                      .why = "every member computes all of it, because nothing of it can be divided for less"});
}

/// What experts save and cost, and the parameters of which members have parts.
void TokenSplitter::takeExperts(Choice& choice) {
  for (const ExpertClass& experts : experts_.classes) {
    SplitClass& told = told_[&experts];
    told.chosen = true;
    for (const Value* value : graph_.parameterValues()) {
      const auto found = experts.parameters.find(value);
      if (found == experts.parameters.end()) continue;
      choice.parameters.emplace(value->parameter(), found->second);
      told.parameters.push_back(value->name() + " axis " + std::to_string(found->second.axis));
      told.parameterBytes += value->type().bytes() * (members_ - 1) / members_;
    }
    choice.classes.push_back(std::move(told));
  }
  choice.classes.insert(choice.classes.end(), experts_.undivided.begin(), experts_.undivided.end());
}

/// Notes how the results of an operation are made.
void TokenSplitter::make(const Operation& operation, const std::optional<Division>& division) {
  const Loops& loops = loops_.of(operation);
  for (std::size_t i = 0; i < operation.results().size(); ++i) {
    const Value* const result = operation.result(i);
    if (!result) continue;
    if (division)
      made_[result] = formOfResult(loops, i, *division);
    else if (options_.weights && goesOnWithTerms(graph_, operation, made_))
      made_[result] = Form::partial(Combine::sum);
    // A sum is put together where something is added to it.
    if (options_.weights && i == 0 && division && addsToItsSum(operation, loops, *division)) {
      const auto tokens = tokens_.forms.find(result);
      made_[result] = tokens == tokens_.forms.end() ? Form{} : tokens->second;
    }
  }
}

/// Bytes that a member sends because a backward gathers the value again.
std::int64_t TokenSplitter::gatheredAgain(const Value& value, const Choice& choice) const {
  bool forward = false, backward = false;
  for (const Operation* user : value.users())
    (user->phase == Phase::forward ? forward : backward) |= choice.divisions.contains(user);
  return forward && backward ? value.type().bytes() * (members_ - 1) / members_ : 0;
}

Expected<Choice> TokenSplitter::run(Diagnostics& diags) {
  const Expected<Seeds> seeds = options_.experts ? samples(diags) : positions(diags);
  if (!seeds || (options_.experts && !findExperts(diags))) return failure;
  if (options_.weights) chooseWeights();
  tokens_ = classOf(loops_, *seeds, members_);
  Choice choice{.parameters = weights_.parameters, .classes = weights_.classes};
  SplitClass tokens{.chosen = true};
  const std::string what = options_.experts ? "samples of " : "positions of ";
  for (const auto& [input, form] : *seeds) tokens.parameters.push_back(what + input->name());
  std::vector<SplitClass> wholes;
  for (const auto& operation : graph_.operations()) {
    const std::optional<Division> division = divisionOf(*operation);
    make(*operation, division);
    if (division) choice.divisions.emplace(operation.get(), *division);
    if (!isOfWeights(*operation)) tell(*operation, division, tokens, wholes);
  }
  if (options_.weights) {
    placeJoins(graph_, loops_, tokens_, made_, members_, choice);
    for (const Value* value : choice.gathered) tokens.communicatedBytes += gatheredAgain(*value, choice);
  }
  tokens.chosen = tokens.flops > 0;
  if (!tokens.chosen) tokens.why = "nothing that is computed can be divided";
  choice.classes.push_back(std::move(tokens));
  takeExperts(choice);
  choice.classes.insert(choice.classes.end(), std::make_move_iterator(wholes.begin()),
                        std::make_move_iterator(wholes.end()));
  return choice;
}

} // namespace

Expected<Choice> pdc::chooseTokens(const Graph& graph, const LoopTable& loops, const SplitOptions& options,
                                   Diagnostics& diags, const Choice* training) {
  return TokenSplitter(graph, loops, options, training).run(diags);
}
