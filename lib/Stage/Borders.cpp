#include "Borders.h"

#include "pdc/IR/Builder.h"
#include "pdc/Transforms/Split.h"

#include <algorithm>
#include <map>
#include <tuple>

using namespace pdc;

namespace {

/// How members have a value.
Form formOf(const Graph& graph, const Value& value) {
  const auto found = graph.team.forms.find(value.name());
  return found == graph.team.forms.end() ? Form{} : found->second;
}

/// What the undivided graph calls a value.
std::string nameOfWhole(const Graph& graph, const Value& value) {
  const std::string& name = value.name();
  const bool isPart = formOf(graph, value).isSplit() && name.ends_with(partSuffix);
  return isPart ? name.substr(0, name.size() - partSuffix.size()) : name;
}

std::string stageText(const StageSources& sources, int stage) {
  return "stage " + std::to_string(stage) + " (" + toText(sources[stage].split) + ")";
}

class BorderFinder {
public:
  BorderFinder(PassContext& context, const StageSources& sources) : context_(context), sources_(sources) {}

  Expected<std::vector<Crossing>> run(const std::vector<std::vector<Crossing>>& found);

private:
  using Key = std::tuple<int, int, bool, std::string>; // from, to, gradient, name of the whole

  bool isAtBorder(const Crossing& crossing) const {
    return sources_.of[static_cast<std::size_t>(crossing.from)] != sources_.of[static_cast<std::size_t>(crossing.to)];
  }
  void await(const Crossing& crossing, const Graph& receiver);
  Status add(const Crossing& crossing, const Graph& sender);
  Status refuse(const Crossing& crossing, const Value& value, const std::string& why) const;

  PassContext& context_;
  const StageSources& sources_;
  struct Awaited {
    const Value *whole = nullptr, *part = nullptr;
    bool evaluates = false;
  };
  std::map<Key, Awaited> awaited_;  ///< by the receivers at borders
  std::map<Key, std::size_t> made_; ///< at borders: the crossing
  std::vector<Crossing> crossings_;
};

Status BorderFinder::refuse(const Crossing& crossing, const Value& value, const std::string& why) const {
  const Operation* definer = value.definer();
  return context_.diags.error(definer ? definer->location : Location{.file = context_.module.file})
             .exit(ExitCode::unsupported)
             .help("cut where it is whole, or give both stages one split")
         << (crossing.gradient ? "gradient '%" : "value '%") << value.name() << "' crosses from "
         << stageText(sources_, crossing.from) << " to " << stageText(sources_, crossing.to) << ", and " << why;
}

/// Notes what a receiver awaits. It may have the whole and a part.
void BorderFinder::await(const Crossing& crossing, const Graph& receiver) {
  const Value& received = *crossing.received;
  Awaited& awaited = awaited_[{crossing.from, crossing.to, crossing.gradient, nameOfWhole(receiver, received)}];
  (formOf(receiver, received).isSplit() ? awaited.part : awaited.whole) = &received;
  awaited.evaluates = awaited.evaluates || crossing.evaluates;
}

Status BorderFinder::add(const Crossing& crossing, const Graph& sender) {
  const Graph &whole = *sources_.all[0].training, &receiver = *sources_[crossing.to].training;
  const std::string name = nameOfWhole(sender, *crossing.sent);
  const Form form = formOf(sender, *crossing.sent);
  if (form.isPartial()) return refuse(crossing, *crossing.sent, "its members have terms of a sum there");
  const Key key{crossing.from, crossing.to, crossing.gradient, name};
  if (const auto before = made_.find(key); before != made_.end()) { // the sender has both
    if (form.isWhole()) crossings_[before->second].sent = crossing.sent;
    return success;
  }
  const auto awaited = awaited_.find(key);
  if (awaited == awaited_.end() || !whole.find(name)) {
    const bool needsTerms = std::ranges::any_of(awaited_, [&](const auto& entry) {
      const auto& [from, to, gradient, _] = entry.first;
      const Value* const value = entry.second.whole;
      return from == crossing.from && to == crossing.to && gradient == crossing.gradient && value &&
             formOf(receiver, *value).isPartial();
    });
    return refuse(crossing, *crossing.sent,
                  needsTerms ? "the members of the latter have terms of a sum there" : "the latter has no such value");
  }
  const auto& [ofAll, ofMember, evaluates] = awaited->second;
  if (ofAll && formOf(receiver, *ofAll).isPartial())
    return refuse(crossing, *ofAll, "the members of the latter need terms of a sum");
  made_[key] = crossings_.size();
  Crossing& made = crossings_.emplace_back(crossing);
  made.name = name;
  made.received = ofAll ? ofAll : ofMember;
  made.receivedPart = ofAll ? ofMember : nullptr;
  made.isAtBorder = true;
  made.evaluates = evaluates;
  awaited_.erase(awaited);
  return success;
}

Expected<std::vector<Crossing>> BorderFinder::run(const std::vector<std::vector<Crossing>>& found) {
  for (std::size_t i = 0; i < found.size(); ++i)
    for (const Crossing& crossing : found[i])
      if (isAtBorder(crossing) && sources_.of[static_cast<std::size_t>(crossing.to)] == static_cast<int>(i))
        await(crossing, *sources_.all[i].training);
  for (std::size_t i = 0; i < found.size(); ++i)
    for (const Crossing& crossing : found[i]) {
      if (sources_.of[static_cast<std::size_t>(crossing.from)] != static_cast<int>(i)) continue;
      if (!isAtBorder(crossing))
        crossings_.push_back(crossing);
      else if (!add(crossing, *sources_.all[i].training))
        return failure;
    }
  if (awaited_.empty()) return std::move(crossings_);
  const auto& [key, missing] = *awaited_.begin();
  const auto& [from, to, gradient, name] = key;
  const Value& value = missing.whole ? *missing.whole : *missing.part;
  const Crossing crossing{
      .sent = nullptr, .received = &value, .name = name, .from = from, .to = to, .gradient = gradient, .evaluates = {}};
  (void)refuse(crossing, value, "the former has no such value");
  return failure;
}

/// How an update gets the gradient of a parameter.
struct SharedForm {
  Form part;                       ///< of the parameter
  int members;                     ///< that have parts, or terms; 1: each has all
  bool sums = false;               ///< members have terms of its gradient
  std::vector<std::int32_t> order; ///< of the elements that are divided

  friend bool operator==(const SharedForm&, const SharedForm&) = default;
};

SharedForm sharedFormOf(const StageSource& source, const Parameter& parameter) {
  const Team& team = source.training->team;
  const Form part = team.formOf(parameter);
  const bool sums = team.sums && part.isWhole();
  const auto order = team.orders.find(&parameter);
  return {.part = part,
          .members = part.isWhole() && !sums ? 1 : source.split.members,
          .sums = sums,
          .order = order == team.orders.end() ? std::vector<std::int32_t>() : order->second};
}

/// The attributes of the collective that gathers, or takes, a part.
Attributes attributesOf(const Team& team, const Form& form, const std::string& prefix) {
  Attributes attributes;
  attributes.set("members", team.members);
  attributes.set(prefix + "axis", std::int64_t{form.axis});
  attributes.set(prefix + "blocks", form.blocks);
  if (form.padded > 0) attributes.set(prefix + "padded", form.padded);
  return attributes;
}

Operation* operationAfter(const Graph& graph, const Operation& operation) {
  const auto& all = graph.operations();
  const auto next = std::find_if(all.begin(), all.end(), [&](const auto& o) { return o.get() == &operation; }) + 1;
  return next == all.end() ? nullptr : next->get();
}

/// Makes a collective with the annotations of `like`.
Value* makeLike(PassContext& context, Graph& graph, const std::string& op, Value* operand, const Attributes& attributes,
                const Operation& like, const Operation* before) {
  Builder builder(context.module, graph, context.registry, context.diags);
  builder.setInsertionPoint(before);
  builder.setLocation(like.location);
  builder.setPhase(like.phase, like.origin());
  builder.setGroup(like.group);
  Value* made = builder.value(op, {operand}, attributes);
  if (made) made->definer()->stage = like.stage;
  return made;
}

} // namespace

Expected<std::vector<Crossing>> pdc::crossingsBetween(PassContext& context, const StageSources& sources,
                                                      const std::vector<std::vector<Crossing>>& found) {
  return BorderFinder(context, sources).run(found);
}

Status pdc::checkSharedForms(PassContext& context, const StageSources& sources, const Parameter& parameter,
                             const std::vector<int>& stages) {
  for (const int stage : stages) {
    const SharedForm first = sharedFormOf(sources[stages.front()], parameter),
                     other = sharedFormOf(sources[stage], parameter);
    if (first == other) continue;
    const char* const why = first.sums || other.sums ? "which add up its gradient over different members"
                                                     : "whose members have different parts of it";
    return context.diags.error(parameter.location)
               .exit(ExitCode::unsupported)
               .help("give these stages one split, or keep the groups that use it in one stage")
           << "parameter '" << parameter.name << "' is used in " << stageText(sources, stages.front()) << " and in "
           << stageText(sources, stage) << ", " << why;
  }
  return success;
}

Value* pdc::gatherAtBorder(PassContext& context, Graph& stage, Value* part, const Value& whole) {
  const Operation& maker = *part->definer();
  Value* made = makeLike(context, stage, "all_gather", part, attributesOf(stage.team, formOf(stage, *part), "from_"),
                         maker, operationAfter(stage, maker));
  if (!made) return nullptr;
  made->setType(whole.type()); // its layout, too
  stage.rename(made, whole.name());
  return divideInHalves(context, stage, *made->definer());
}

Value* pdc::takePartAtBorder(PassContext& context, Graph& stage, Value* received, const Value& part,
                             const std::vector<PartUse>& uses) {
  // What an input gradient reads too is taken for that.
  const auto ofInputs =
      std::ranges::find_if(uses, [](const PartUse& use) { return use.user->phase != Phase::weightGradient; });
  const Operation& like = *(ofInputs == uses.end() ? uses.front() : *ofInputs).user;
  const auto first = std::ranges::find_if(stage.operations(), [&](const auto& operation) {
    return std::ranges::any_of(uses, [&](const PartUse& use) { return use.user == operation.get(); });
  });
  Value* made = makeLike(context, stage, "own_part", received, attributesOf(stage.team, formOf(stage, part), ""), like,
                         first->get());
  if (!made) return nullptr;
  for (const PartUse& use : uses) use.user->setOperand(use.operand, made);
  made->setType(part.type());
  stage.rename(made, part.name());
  return made;
}
