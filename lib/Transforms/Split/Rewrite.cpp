#include "Split/Rewrite.h"

#include "Split/Sums.h"
#include "pdc/IR/Builder.h"
#include "pdcrt/Stage.h"

#include <algorithm>
#include <tuple>
#include <unordered_set>

using namespace pdc;

namespace {

class MemberRewriter {
public:
  MemberRewriter(PassContext& context, const Graph& from, const std::string& name, const LoopTable& loops,
                 const Choice& choice, const SplitOptions& options, const Graph* training)
      : context_(context), from_(from), loops_(loops), choice_(choice), members_(options.members), training_(training),
        to_(std::make_unique<Graph>(name)), b_(context.module, *to_, context.registry, context.diags) {
    to_->team = {.members = options.members, .parts = choice.parameters, .sums = options.tokens};
  }

  std::unique_ptr<Graph> run();

private:
  /// A value of the old graph, in the form in which it is made here.
  struct Held {
    Form form;
    Value* value = nullptr;
    Value* rest = nullptr;   ///< of terms: is still to be added, and has the form in which they are joined
    Value* joined = nullptr; ///< put together where it was made, if someone reads it so
  };

  void decideForms();
  Form formOf(const GraphOutput& output) const;
  Form joinedFormOf(const Value* value) const {
    const auto found = choice_.joined.find(value);
    return found == choice_.joined.end() ? Form{} : found->second;
  }
  Form readAs(const Operation& operation, std::size_t i) const;
  bool isJoinedInTraining(const Value* value) const;
  bool isTermOf(const Value* operand, const Operation& operation) const;
  std::size_t termsOf(const Operation& operation) const;
  bool addsToItsSum(const Operation& operation) const;
  const Division* divisionOf(const Operation& operation) const {
    const auto found = choice_.divisions.find(&operation);
    return found == choice_.divisions.end() ? nullptr : &found->second;
  }

  void copyInputs();
  Status copyOperation(const Operation& operation);
  std::vector<Value*> makeDivided(const Operation& operation, const Division& division, Value*& added);
  std::vector<Value*> makeSame(const Operation& operation);
  std::vector<Value*> makeSum(const Operation& operation, Value*& rest);
  Status hold(const Operation& operation, std::size_t i, Value* value, Value* added);
  Status copyOutputs();
  void nameSteps(const std::string& of, std::size_t begin);

  void annotate(const Operation& like);
  Value* as(const Value* value, const Form& form);
  bool isReadForInputs(const Value* value, const Form& form) const;
  Value* asTerm(const Value* value);
  Value* reformed(Value* value, const Form& from, const Form& to);
  Value* join(const Value& old, Value* value, const Form& from, Value* added, int addedAxis);

  PassContext& context_;
  const Graph& from_;
  const LoopTable& loops_;
  const Choice& choice_;
  const std::int64_t members_;
  const Graph* training_; ///< of an evaluation: what a member trains
  std::unique_ptr<Graph> to_;
  Builder b_;
  std::unordered_map<const Value*, Form> forms_; ///< in which values are made
  std::unordered_set<const Value*> neededJoined_;
  std::unordered_set<const Value*> withRest_; ///< sums of terms and of something that is none
  std::unordered_map<const Value*, Held> held_;
  std::unordered_set<const Value*> named_; ///< here; a sum of one term, so far, is that term
  std::unordered_map<const Operation*, Operation*> made_;
  std::unordered_set<const Operation*> ofInputs_; ///< collectives that bring something to gradients of inputs first
  const Operation* at_ = nullptr;                 ///< the old operation that is copied
  /// What is brought into another form where it is read: once for each group and phase.
  std::map<std::tuple<const Value*, int, std::int64_t, int, Phase>, Value*> local_;
};

/// Whether a training puts the value together: then an evaluation does, too, because stages send the same values.
bool MemberRewriter::isJoinedInTraining(const Value* value) const {
  return training_ && (training_->find(value->name()) || training_->find(value->name() + ".made"));
}

/// Whether members have terms of an operand, which nothing but this sum reads: they need not be put together before.
bool MemberRewriter::isTermOf(const Value* operand, const Operation& operation) const {
  return forms_.at(operand) == Form::partial(Combine::sum) && operand->users().size() == 1 &&
         !from_.isOutput(operand) && addsOperands(operation) && !isJoinedInTraining(operand);
}

/// How many operands of an operation that is not divided are such.
std::size_t MemberRewriter::termsOf(const Operation& operation) const {
  if (divisionOf(operation)) return 0;
  return static_cast<std::size_t>(
      std::count_if(operation.operands().begin(), operation.operands().end(),
                    [&](const Value* operand) { return operand && isTermOf(operand, operation); }));
}

/// Whether the first result is put together where it is made, because something is added to it there.
bool MemberRewriter::addsToItsSum(const Operation& operation) const {
  const Division* division = divisionOf(operation);
  return division && pdc::addsToItsSum(operation, loops_.of(operation), *division);
}

/// The form in which an operation reads operand i, if that is no term of its sum.
Form MemberRewriter::readAs(const Operation& operation, std::size_t i) const {
  const Division* division = divisionOf(operation);
  if (!division) return termsOf(operation) > 0 ? joinedFormOf(operation.result()) : Form{};
  const Loops& loops = loops_.of(operation);
  if (!addsToItsSum(operation) || loops.added->operand != static_cast<int>(i))
    return formOfOperand(loops, i, *division);
  const Form sum = joinedFormOf(operation.result());
  if (loops.added->axis < 0) return sum;
  return sum.isSplit() && sum.axis == loops.added->axis ? Form::split(0, sum.blocks, sum.padded) : Form{};
}

void MemberRewriter::decideForms() {
  auto read = [&](const Value* value, const Form& form) {
    const bool isJoined = form.isWhole() ? !choice_.gathered.contains(value) : form == joinedFormOf(value);
    if (isJoined || withRest_.contains(value)) neededJoined_.insert(value);
  };
  for (const GraphInput& input : from_.inputs) forms_[input.value] = {};
  for (const Value* value : from_.parameterValues()) forms_[value] = to_->team.formOf(*value->parameter());
  for (const auto& operation : from_.operations()) {
    const Division* division = divisionOf(*operation);
    const std::size_t terms = termsOf(*operation);
    const Loops& loops = loops_.of(*operation);
    for (std::size_t i = 0; i < operation->results().size(); ++i) {
      if (!operation->result(i)) continue;
      Form& form = forms_[operation->result(i)];
      if (division && i == 0 && addsToItsSum(*operation))
        form = joinedFormOf(operation->result(i));
      else if (division)
        form = formOfResult(loops, i, *division);
      else if (terms > 0)
        form = Form::partial(Combine::sum);
    }
    const bool hasRest = terms > 0 && (terms < operation->operands().size() ||
                                       std::any_of(operation->operands().begin(), operation->operands().end(),
                                                   [&](const Value* operand) { return withRest_.contains(operand); }));
    if (hasRest) withRest_.insert(operation->result());
    for (const Value* result : operation->results())
      if (result && isJoinedInTraining(result)) neededJoined_.insert(result);
    for (std::size_t i = 0; i < operation->operands().size(); ++i)
      if (operation->operand(i) && (terms == 0 || !isTermOf(operation->operand(i), *operation)))
        read(operation->operand(i), readAs(*operation, i));
  }
  for (const GraphOutput& output : from_.outputs) read(output.value, formOf(output));
}

/// How members have an output. Of predictions they have parts where each has all classes of its positions: a metric
/// adds up what it makes of them.
Form MemberRewriter::formOf(const GraphOutput& output) const {
  if (output.kind != OutputKind::prediction) return to_->team.formOf(output);
  const Form& form = forms_.at(output.value);
  const bool hasParts = form.isSplit() && form.padded == 0 && !neededJoined_.contains(output.value) &&
                        !withRest_.contains(output.value) && form.axis != pdcrt::classAxis(output.value->type().rank());
  return hasParts ? form : Form{};
}

void MemberRewriter::annotate(const Operation& like) {
  at_ = &like;
  b_.setLocation(like.location);
  b_.setGroup(like.group);
  const auto origin = like.origin() ? made_.find(like.origin()) : made_.end();
  b_.setPhase(like.phase, origin == made_.end() ? nullptr : origin->second);
}

/// The collective that brings a value from one form into another.
Value* MemberRewriter::reformed(Value* value, const Form& from, const Form& to) {
  // Blocks of one axis that are not the same ones are no parts that members have for each other.
  if (from.isSplit() && to.isSplit() && from.axis == to.axis) {
    Value* const whole = reformed(value, from, {});
    return whole ? reformed(whole, {}, to) : nullptr;
  }
  static constexpr const char* reductions[] = {"all_reduce", "all_reduce_mean", "all_reduce_max", "all_reduce_min"};
  Attributes attributes;
  attributes.set("members", members_);
  auto split = [&](const std::string& prefix, const Form& form) {
    if (!form.isSplit()) return;
    attributes.set(prefix + "axis", std::int64_t{form.axis});
    attributes.set(prefix + "blocks", form.blocks);
    if (form.padded > 0) attributes.set(prefix + "padded", form.padded);
  };
  split("from_", from);
  split("", to);
  if (from.isPartial())
    return b_.value(to.isSplit() ? "reduce_scatter" : reductions[static_cast<int>(from.combine)], {value}, attributes);
  if (from.isSplit()) return b_.value(to.isSplit() ? "all_to_all" : "all_gather", {value}, attributes);
  return b_.value("own_part", {value}, attributes);
}

/// Puts together what members have made of `old`. `added` is added to the sum: along an axis, or (-1) element by
/// element.
Value* MemberRewriter::join(const Value& old, Value* value, const Form& from, Value* added, int addedAxis) {
  const Form to = joinedFormOf(&old);
  const Type type = partOf(old.type(), to, members_);
  const std::size_t before = to_->operations().size();
  Value* sum = nullptr;
  if (added && to.isWhole()) {
    sum = b_.value("all_reduce", {value, added}, {{"members", members_}, {"added_axis", std::int64_t{addedAxis}}});
  } else {
    sum = reformed(value, from, to);
    if (sum && added && addedAxis >= 0) {
      Shape along(type.shape.size(), 1);
      along[static_cast<std::size_t>(addedAxis)] = added->type().shape[0];
      added = b_.value("reshape", {added}, {{"shape", along}});
      if (!added) return nullptr;
    }
    if (sum && added) sum = b_.value("add", {sum, added});
  }
  nameSteps(old.name(), before);
  if (sum) sum->setType(type); // with its layout
  return sum;
}

/// The value in a form, for the operation that is copied. What someone reads in its joined form was put together where
/// it was made, so that it is wherever a stage may end; other parts of it are taken where they are read.
Value* MemberRewriter::as(const Value* value, const Form& form) {
  const Held& held = held_.at(value);
  if (held.form == form) return held.value;
  if (held.joined && form == joinedFormOf(value)) return held.joined;
  const int axis = form.isSplit() ? form.axis : -1;
  // What was sent in a forward is kept for its backward, and by that of inputs for that of weights, instead of what it
  // was made of. What is gathered is larger than what it is made of, and is gathered again.
  const bool isGathered = form.isWhole() && choice_.gathered.contains(value);
  for (const Phase earlier : {Phase::forward, Phase::inputGradient})
    if (at_->phase > earlier && !held.form.isWhole() && !(isGathered && earlier == Phase::forward))
      if (const auto sent = local_.find({value, axis, form.blocks, at_->group, earlier}); sent != local_.end())
        return sent->second;
  const bool isEarly = isReadForInputs(value, form);
  Value*& local = local_[{value, axis, form.blocks, at_->group, isEarly ? Phase::inputGradient : at_->phase}];
  if (local) return local;
  const std::size_t before = to_->operations().size();
  local = held.joined ? reformed(held.joined, joinedFormOf(value), form) : reformed(held.value, held.form, form);
  for (std::size_t i = before; isEarly && i < to_->operations().size(); ++i)
    ofInputs_.insert(to_->operations()[i].get());
  return local;
}

/// Whether a gradient of a weight is copied, and the gradient of an input, in its group, reads the value in this form,
/// too.
bool MemberRewriter::isReadForInputs(const Value* value, const Form& form) const {
  if (at_->phase != Phase::weightGradient) return false;
  return std::any_of(value->users().begin(), value->users().end(), [&](const Operation* user) {
    if (user->phase != Phase::inputGradient || user->group != at_->group) return false;
    const auto& operands = user->operands();
    const auto i = static_cast<std::size_t>(std::find(operands.begin(), operands.end(), value) - operands.begin());
    return readAs(*user, i) == form;
  });
}

/// The value as terms, which an update adds up. What everyone has is as many equal terms.
Value* MemberRewriter::asTerm(const Value* value) {
  const Held& held = held_.at(value);
  const bool isTerm = held.form == Form::partial(Combine::sum);
  Value* everyones = isTerm ? held.rest : as(value, {});
  if (!everyones) return isTerm ? held.value : nullptr;
  Value* const count = b_.constant(static_cast<double>(members_), value->type().element);
  Value* const share = count ? b_.value("div", {everyones, count}) : nullptr;
  return share && isTerm ? b_.value("add", {held.value, share}) : share;
}

void MemberRewriter::copyInputs() {
  for (const GraphInput& input : from_.inputs) {
    GraphInput copy = input;
    copy.value = to_->addInput(input.value->type(), input.value->name(), input.kind);
    to_->inputs.back() = copy;
    held_[input.value] = {.form = {}, .value = copy.value};
  }
  for (const Value* value : from_.parameterValues())
    held_[value] = {.form = forms_.at(value), .value = to_->parameterValue(*value->parameter())};
}

/// Where the first result is a sum, what the operation adds to it goes into the sum: `added` is that.
std::vector<Value*> MemberRewriter::makeDivided(const Operation& operation, const Division& division, Value*& added) {
  const Loops& loops = loops_.of(operation);
  const bool isTerm = operation.result(0) && formOfResult(loops, 0, division) == Form::partial(Combine::sum);
  std::vector<Value*> operands;
  for (std::size_t i = 0; i < operation.operands().size(); ++i) {
    const Value* operand = operation.operand(i);
    const bool isAdded = isTerm && loops.added && loops.added->operand == static_cast<int>(i);
    Value* local = operand ? as(operand, readAs(operation, i)) : nullptr;
    if (operand && !local) return {};
    if (isAdded) added = local;
    operands.push_back(isAdded ? nullptr : local);
  }
  return divided(operation, loops, division, operands, b_);
}

/// A sum of which members have terms. Those are added, and so is what is none, the `rest`. Both are put together when
/// someone reads the sum: a further sum only goes on with both. So the gradients that three layers have for their
/// common input cost one all-reduce.
std::vector<Value*> MemberRewriter::makeSum(const Operation& operation, Value*& rest) {
  Value* terms = nullptr;
  const Form joined = joinedFormOf(operation.result());
  auto add = [&](Value*& sum, Value* more) {
    sum = sum && more ? b_.value("add", {sum, more}) : more;
    if (sum) sum->setType(partOf(operation.result()->type(), &sum == &rest ? joined : Form{}, members_)); // with layout
    return sum != nullptr;
  };
  for (const Value* operand : operation.operands()) {
    if (isTermOf(operand, operation)) {
      const Held& held = held_.at(operand);
      if (!add(terms, held.value) || (held.rest && !add(rest, held.rest))) return {};
    } else if (!add(rest, as(operand, joined))) {
      return {};
    }
  }
  return {terms};
}

/// The same operation, of whole operands.
std::vector<Value*> MemberRewriter::makeSame(const Operation& operation) {
  std::vector<Value*> operands;
  for (const Value* operand : operation.operands()) {
    Value* here = operand ? as(operand, {}) : nullptr;
    if (operand && !here) return {};
    operands.push_back(here);
  }
  std::vector<const Type*> types;
  for (const Value* result : operation.results()) types.push_back(result ? &result->type() : nullptr);
  Operation* made = to_->addOperation(operation.def(), operands, types, operation.attributes, operation.location);
  return made->results();
}

/// Names what the operation has made of its result i, and puts it together if someone reads all of it.
Status MemberRewriter::hold(const Operation& operation, std::size_t i, Value* value, Value* added) {
  const Value* old = operation.result(i);
  const bool isBias = added && divisionOf(operation); // then what is kept of the terms would lack it
  const Form form = isBias ? Form::partial(Combine::sum) : forms_.at(old);
  Held held{.form = form, .value = value, .rest = added};
  const bool isJoined = !form.isWhole() && (neededJoined_.contains(old) || isBias);
  const bool isInParts = joinedFormOf(old).isSplit();
  const std::string name = old->name() + std::string(isJoined && isInParts ? ".made"
                                                     : form.isWhole()      ? ""
                                                                           : partSuffix);
  if (named_.insert(value).second) to_->rename(value, name);
  if (isJoined) {
    held.joined = join(*old, value, form, added, isBias ? loops_.of(operation).added->axis : -1);
    if (!held.joined) return failure;
    to_->rename(held.joined, old->name() + std::string(isInParts ? partSuffix : ""));
    named_.insert(held.joined);
    if (isInParts) to_->team.forms[held.joined->name()] = joinedFormOf(old);
  }
  if (!form.isWhole()) to_->team.forms[value->name()] = form;
  if (isBias) held = {.form = joinedFormOf(old), .value = held.joined};
  held_[old] = held;
  return success;
}

/// Names what was made since position `begin` after the value that it was made for. Numbers, which values without a
/// name have, could be names of other values of the old graph.
void MemberRewriter::nameSteps(const std::string& of, std::size_t begin) {
  for (std::size_t i = begin; i < to_->operations().size(); ++i)
    for (Value* made : to_->operations()[i]->results())
      if (made) to_->rename(made, of + ".step");
}

Status MemberRewriter::copyOperation(const Operation& operation) {
  annotate(operation);
  const std::size_t before = to_->operations().size();
  const Division* division = divisionOf(operation);
  Value* added = nullptr;
  const std::vector<Value*> results = division                 ? makeDivided(operation, *division, added)
                                      : termsOf(operation) > 0 ? makeSum(operation, added)
                                                               : makeSame(operation);
  if (results.empty()) return failure;
  const auto& old = operation.results();
  nameSteps((*std::find_if(old.begin(), old.end(), [](const Value* result) { return result; }))->name(), before);
  for (std::size_t i = 0; i < operation.results().size(); ++i)
    if (operation.result(i) && !hold(operation, i, results[i], i == 0 ? added : nullptr)) return failure;
  // What derives from the old operation derives from the one that makes its first result.
  const Value* first = *std::find_if(results.begin(), results.end(), [](const Value* result) { return result; });
  made_[&operation] = first->definer();
  for (std::size_t i = before; i < to_->operations().size(); ++i) {
    Operation& made = *to_->operations()[i];
    made.phase = ofInputs_.contains(&made) ? Phase::inputGradient : operation.phase;
    made.again = operation.again;
    made.group = operation.group;
    const auto origin = operation.origin() ? made_.find(operation.origin()) : made_.end();
    if (origin != made_.end()) made.setOrigin(origin->second);
  }
  return success;
}

Status MemberRewriter::copyOutputs() {
  for (GraphOutput output : from_.outputs) {
    if (output.value->definer()) annotate(*output.value->definer());
    const Form form = formOf(output);
    if (output.kind == OutputKind::prediction) output.part = form;
    const std::string name = output.value->name() + std::string(partSuffix);
    const std::size_t before = to_->operations().size();
    output.value = form.isPartial() ? asTerm(output.value) : as(output.value, form);
    if (!output.value) return failure;
    nameSteps(output.value->name(), before);
    if (to_->operations().size() > before) to_->rename(output.value, name);
    to_->outputs.push_back(output);
  }
  return success;
}

std::unique_ptr<Graph> MemberRewriter::run() {
  decideForms();
  copyInputs();
  for (const auto& operation : from_.operations())
    if (!copyOperation(*operation)) return nullptr;
  if (!copyOutputs()) return nullptr;
  return std::move(to_);
}

} // namespace

std::unique_ptr<Graph> pdc::rewriteForTeam(PassContext& context, const Graph& graph, const std::string& name,
                                           const LoopTable& loops, const Choice& choice, const SplitOptions& options,
                                           const Graph* training) {
  return MemberRewriter(context, graph, name, loops, choice, options, training).run();
}
