// Fusion groups as nodes of the planner's cost graph.
#include "pdc/Analysis/Profile.h"
#include "pdc/IR/GradientGroups.h"
#include "pdc/IR/SharedParameters.h"
#include "pdc/Memory/MemoryPlan.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

using namespace pdc;

namespace {

bool isConstant(const Value* value) {
  return value->definer() && value->definer()->def().kind == OpKind::constant;
}

/// Results of input gradients that weight gradients read: kept between the halves of a backward.
std::set<const Value*> handedOverIn(const Graph& graph) {
  std::set<const Value*> values;
  for (const auto& operation : graph.operations())
    if (operation->phase == Phase::weightGradient && operation->def().kind != OpKind::view)
      for (const Value* operand : operation->operands()) {
        const Value* root = operand ? storageOf(operand) : nullptr;
        if (root && root->definer() && root->definer()->phase == Phase::inputGradient) values.insert(root);
      }
  return values;
}

/// What a phase of the backward keeps in memory for itself: the results of the group's gradient operations.
std::int64_t gradientScratch(const std::vector<const Operation*>& group, const std::set<const Value*>& outputs,
                             const std::set<const Value*>& handedOver) {
  std::int64_t bytes = 0;
  for (const Operation* operation : group)
    if (operation->phase != Phase::forward)
      for (const Value* result : operation->results())
        if (result && storageOf(result) == result && !outputs.contains(result) && !handedOver.contains(result))
          bytes += result->type().bytes();
  return bytes;
}

/// The group that reads an input first; -1: none does.
int firstReader(const Graph& graph, const Value* input) {
  for (const auto& operation : graph.operations())
    if (operation->group >= 0)
      for (const Value* operand : operation->operands())
        if (operand && storageOf(operand) == input) return operation->group;
  return -1;
}

/// The group that uses the largest input first: -1 without inputs. Reading the samples counts as a part of its forward.
int groupOfData(const Graph& graph) {
  const GraphInput* largest = nullptr;
  for (const GraphInput& input : graph.inputs)
    if (input.kind == InputKind::data && (!largest || input.value->type().bytes() > largest->value->type().bytes()))
      largest = &input;
  return largest ? firstReader(graph, largest->value) : -1;
}

/// Whether another group than its own reads it.
bool crossesGroups(const Value* value) {
  return value && value->definer() && std::ranges::any_of(value->users(), [&](const Operation* user) {
           return user->group != value->definer()->group;
         });
}

using Members = std::vector<std::vector<const Operation*>>;     ///< operations by group
using Readers = std::map<const Value*, std::set<std::int64_t>>; ///< of forward values, by other groups

/// Adds what groups of weights' gradients read, but for what is `passing` through them anyway.
void addGradientGroups(const Graph& graph, const std::map<const Value*, int>& passing, Readers& readers) {
  for (const auto& operation : graph.operations()) {
    if (!isAboveItsOrigin(*operation)) continue;
    for (const Value* operand : operation->operands()) {
      const Operation* definer = operand ? operand->definer() : nullptr;
      if (!definer || definer->phase != Phase::forward || isConstant(operand)) continue;
      const auto above = passing.find(operand);
      if (above != passing.end() && above->second == operation->group) continue;
      readers[operand].insert(operation->group);
    }
  }
}

/// Finds what the gradients are of that go from group to group.
class GradientParts {
public:
  GradientParts(const Graph& graph, const Readers& readers, const std::map<const Value*, int>& passing);

  /// The groups that have a part of the gradient of `value`: those that send one to another group. With how many: that
  /// of each use is added by itself.
  const std::map<std::int64_t, int>& of(const Value* value) { return parts_[value]; }
  /// Whether members of a team have terms of one of them.
  bool hasTerms(const Value* value) const { return inTerms_.contains(value); }
  /// Whether they have terms of what the group gets that makes the value.
  bool hasTermsAtMaker(const Value* value) const { return inTermsToMaker_.contains(value); }

private:
  const Value* wholeOf(const Value& part, int group, int next) const;
  void addTerms(const Graph& graph, const Value& terms);

  const std::map<const Value*, int>& passing_;
  std::map<int, std::vector<const Value*>> known_; ///< that each group makes, reads or passes on, in program order
  std::map<const Value*, std::map<std::int64_t, int>> parts_;
  std::set<const Value*> inTerms_, inTermsToMaker_;
};

GradientParts::GradientParts(const Graph& graph, const Readers& readers, const std::map<const Value*, int>& passing)
    : passing_(passing) {
  for (const auto& operation : graph.operations())
    for (const Value* result : operation->results()) {
      const auto found = readers.find(result);
      if (found == readers.end()) continue;
      std::set<std::int64_t> groups = found->second;
      groups.insert(operation->group);
      if (const auto between = passing.find(result); between != passing.end()) groups.insert(between->second);
      for (std::int64_t group : groups) known_[static_cast<int>(group)].push_back(result);
    }
  for (const auto& operation : graph.operations()) {
    if (operation->phase == Phase::forward || operation->def().kind == OpKind::constant) continue;
    for (const Value* result : operation->results()) {
      if (!result) continue;
      for (const Operation* user : result->users())
        if (user->group != operation->group)
          if (const Value* whole = wholeOf(*result, operation->group, user->group))
            parts_[whole].try_emplace(operation->group, 0);
    }
  }
  for (const auto& [name, form] : graph.team.forms)
    if (form.isPartial() && crossesGroups(graph.find(name))) addTerms(graph, *graph.find(name));
  // Of the last use there is no addition.
  for (const auto& operation : graph.operations()) {
    const Value* sum = operation->operand(0); // so far, by the name that `differentiate` gives it
    const std::size_t suffix = sum ? sum->name().rfind(".gradient.part") : std::string::npos;
    if (operation->phase == Phase::forward || suffix == std::string::npos) continue;
    const auto whole = parts_.find(graph.find(sum->name().substr(0, suffix)));
    if (whole == parts_.end()) continue;
    if (const auto part = whole->second.find(operation->group); part != whole->second.end()) ++part->second;
  }
  for (auto& [value, groups] : parts_) ++groups.rbegin()->second;
}

/// Notes the value of whose gradient members have terms by this name, which `differentiate` gives, or which they are.
void GradientParts::addTerms(const Graph& graph, const Value& terms) {
  const std::string& name = terms.name();
  const std::string of = name.substr(0, std::min(name.find(".gradient"), name.rfind(partSuffix)));
  for (const std::string_view suffix : {std::string_view(), partSuffix}) {
    const Value* value = graph.find(of + std::string(suffix));
    if (!value) continue;
    inTerms_.insert(value);
    const auto isMaker = [&](const Operation* user) {
      return value->definer() && user->group == value->definer()->group;
    };
    if (std::ranges::any_of(terms.users(), isMaker)) inTermsToMaker_.insert(value);
  }
}

/// The value that a part of a gradient is of which goes from `group` to `next`: both know it, the first does not make
/// it, and names tell where types leave a choice. What a group of weights' gradients sends its layer stands for what
/// passes through it, of whose gradient it has made that. Null: none.
const Value* GradientParts::wholeOf(const Value& part, int group, int next) const {
  const auto here = known_.find(group), there = known_.find(next);
  if (here == known_.end() || there == known_.end()) return nullptr;
  const Value *found = nullptr, *passed = nullptr;
  for (const Value* value : here->second) {
    if (const auto above = passing_.find(value); above != passing_.end() && above->second == group)
      if (value->definer()->group == next && !passed) passed = value;
    const Type &type = value->type(), &sent = part.type();
    if (value->definer()->group == group || type.element != sent.element || type.shape != sent.shape ||
        std::find(there->second.begin(), there->second.end(), value) == there->second.end())
      continue;
    if (part.name().starts_with(value->name() + ".gradient")) return value;
    if (!found) found = value;
  }
  return passed ? passed : found;
}

/// One colour for these groups and all that hang together with them.
void keepTogether(CostGraph& cost, const std::set<int>& groups) {
  const std::int64_t colour = *groups.begin();
  std::set<std::int64_t> merged;
  for (int group : groups) {
    CostNode& node = cost.nodes[static_cast<std::size_t>(group)];
    if (node.colour >= 0) merged.insert(node.colour);
    node.colour = colour;
  }
  for (CostNode& node : cost.nodes)
    if (merged.contains(node.colour)) node.colour = colour;
}

/// Leaves out of gradientFrom what no plan makes a difference of: several parts of a group, unless one that comes later
/// can be in an earlier stage, and a list of all users.
void simplifyParts(CostGraph& cost) {
  std::vector<std::vector<std::int64_t>> users(cost.nodes.size());
  for (const CostTensor& tensor : cost.tensors)
    users[static_cast<std::size_t>(tensor.from)].insert(users[static_cast<std::size_t>(tensor.from)].end(),
                                                        tensor.to.begin(), tensor.to.end());
  const auto leadsTo = [&](std::int64_t from, std::int64_t to) {
    std::set<std::int64_t> seen = {from};
    std::vector<std::int64_t> found = {from};
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (found[i] == to) return true;
      for (std::int64_t user : users[static_cast<std::size_t>(found[i])])
        if (user <= to && seen.insert(user).second) found.push_back(user);
    }
    return false;
  };
  for (CostTensor& tensor : cost.tensors) {
    std::vector<std::int64_t>& parts = tensor.gradientFrom;
    std::vector<std::int64_t> kept;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const bool again = i > 0 && parts[i] == parts[i - 1];
      const bool isFree = again && std::any_of(parts.begin() + static_cast<std::ptrdiff_t>(i), parts.end(),
                                               [&](std::int64_t later) { return !leadsTo(parts[i], later); });
      if (!again || isFree) kept.push_back(parts[i]);
    }
    parts = std::move(kept);
    if (parts == tensor.to) parts.clear();
  }
}

/// A node per group: its times, workspace and scratch memory.
Status addNodes(CostGraph& cost, const Graph& graph, const Members& members, const Profile& profile,
                const CostOptions& options, const std::set<const Value*>& handedOver, Diagnostics& diags) {
  std::set<const Value*> outputs;
  for (const GraphOutput& output : graph.outputs) outputs.insert(output.value);
  const std::vector<std::string> names = groupNames(graph);
  for (std::size_t g = 0; g < members.size(); ++g) {
    const GroupTimes& times = profile.groups[g];
    CostNode node{.name = names[g],
                  .forwardMs = times.forwardMs,
                  .inputGradientMs = times.inputGradientMs,
                  .weightGradientMs = times.weightGradientMs,
                  .updateMs = times.updateMs};
    if (options.earlyUpdates && times.earlyUpdateMs) {
      node.updateMs = std::min(*times.earlyUpdateMs, times.updateMs);
      node.lateUpdateMs = times.updateMs - node.updateMs;
    }
    Expected<std::int64_t> workspace = workspaceOf(members[g], options.target, options.threads, diags);
    if (!workspace) return failure;
    node.workspaceBytes = *workspace;
    node.scratchBytes = gradientScratch(members[g], outputs, handedOver);
    cost.nodes.push_back(node);
  }
  if (const int reader = groupOfData(graph); reader >= 0 && !options.readsAhead)
    cost.nodes[static_cast<std::size_t>(reader)].forwardMs += profile.dataMs;
  return success;
}

/// Charges each parameter to the group that uses it first. A parameter that several groups train is shared; if only
/// some of its groups train it, they get one colour, so that they share a stage. Every stage that uses a frozen one has
/// a copy.
void addParameters(CostGraph& cost, const Graph& graph, const Members& members) {
  std::map<const Parameter*, std::size_t> owner;
  for (std::size_t g = 0; g < members.size(); ++g)
    for (const Operation* operation : members[g])
      for (const Value* operand : operation->operands())
        if (operand && operand->parameter()) owner.try_emplace(operand->parameter(), g);
  for (const ParameterGroups& parameter : parameterGroups(graph)) {
    const std::int64_t bytes = parameter.type.bytes();
    if (parameter.groups.size() > 1 && parameter.canBeShared()) {
      const bool isPart = graph.team.sums || !graph.team.formOf(*parameter.parameter).isWhole();
      CostSharedParameter shared{.name = parameter.parameter->name, .nodes = {}, .bytes = bytes, .isPart = isPart};
      for (int group : parameter.groups) shared.nodes.push_back(group);
      cost.sharedParameters.push_back(shared);
      continue;
    }
    const bool frozen = parameter.parameter->role == ParameterRole::frozen;
    if (frozen && parameter.groups.size() > 1) {
      CostFrozenParameter copied{.name = parameter.parameter->name, .nodes = {}, .bytes = bytes};
      for (int group : parameter.groups) copied.nodes.push_back(group);
      cost.frozenParameters.push_back(copied);
      continue;
    }
    if (auto it = owner.find(parameter.parameter); it != owner.end() && frozen) {
      cost.nodes[it->second].frozenBytes += bytes;
    } else if (it != owner.end()) {
      cost.nodes[it->second].parameterBytes += bytes;
      cost.nodes[it->second].gradientBytes += bytes * static_cast<std::int64_t>(parameter.uses.size());
    }
    if (parameter.groups.size() > 1) keepTogether(cost, parameter.groups);
  }
}

/// Charges adding up the gradients of microbatches to the backwards that make them: what the mean microbatch adds.
void addAccumulation(CostGraph& cost, const Profile& profile, const CostOptions& options) {
  if (options.microbatches <= 1) return;
  std::vector<double> bytes;
  for (const CostNode& node : cost.nodes) bytes.push_back(static_cast<double>(node.gradientBytes));
  for (const CostSharedParameter& shared : cost.sharedParameters)
    for (const std::int64_t node : shared.nodes)
      bytes[static_cast<std::size_t>(node)] += static_cast<double>(shared.bytes);
  const double all = std::accumulate(bytes.begin(), bytes.end(), 0.0);
  const double ms = profile.accumulateMs * (1 - 1 / static_cast<double>(options.microbatches));
  for (std::size_t i = 0; all > 0 && i < bytes.size(); ++i)
    (options.splitBackward ? cost.nodes[i].weightGradientMs : cost.nodes[i].inputGradientMs) += ms * bytes[i] / all;
}

/// Charges a value that the backward reads to the group that makes it, if the backward of that group reads it,
/// otherwise to the first group whose backward does: if that group is in another stage, the maker's stage has the value
/// only until it is sent. The storage of a view counts, once. Fills in `readers`.
void addSaved(CostGraph& cost, const Graph& graph, Readers& readers) {
  std::map<const Value*, int> savedFor;
  for (const auto& operation : graph.operations())
    for (const Value* operand : operation->operands()) {
      if (!operand || operand->parameter() || isConstant(operand)) continue;
      const Value* root = storageOf(operand);
      if (root->parameter() || isConstant(root)) continue;
      const Operation* definer = root->definer();
      if (operation->phase != Phase::forward && (!definer || definer->phase == Phase::forward)) {
        int& group = savedFor.try_emplace(root, operation->group).first->second;
        group = std::min(group, operation->group); // that of the maker comes before all others
      }
      if (operation->phase == Phase::forward && operand->definer() && operand->definer()->group != operation->group)
        readers[operand].insert(operation->group);
    }
  for (const auto& [value, group] : savedFor)
    cost.nodes[static_cast<std::size_t>(group)].savedBytes += value->type().bytes();
}

/// Charges what is kept between the halves of a backward to the group that reads it first. (A value that another stage
/// has made has come over an edge, and is counted once too often.)
void addHandover(CostGraph& cost, const Graph& graph, const std::set<const Value*>& handedOver) {
  std::set<const Value*> counted;
  for (const auto& operation : graph.operations())
    if (operation->phase == Phase::weightGradient && operation->def().kind != OpKind::view)
      for (const Value* operand : operation->operands()) {
        const Value* root = operand ? storageOf(operand) : nullptr;
        if (handedOver.contains(root) && counted.insert(root).second)
          cost.nodes[static_cast<std::size_t>(operation->group)].handoverBytes += root->type().bytes();
      }
}

/// Charges data that waits beside the slot of a GPU to the group that reads it first, as handover, which is summed over
/// the groups of a stage like this.
void addStaging(CostGraph& cost, const Graph& graph) {
  for (const GraphInput& input : graph.inputs)
    if (input.kind == InputKind::data || input.kind == InputKind::label)
      if (const int reader = firstReader(graph, input.value); reader >= 0)
        cost.nodes[static_cast<std::size_t>(reader)].handoverBytes += input.value->type().bytes();
}

/// Adds what groups hand on, in program order of the values.
void addTensors(CostGraph& cost, const Graph& graph, const Readers& readers, const std::map<const Value*, int>& passing,
                GradientParts& parts) {
  for (const auto& operation : graph.operations())
    for (const Value* result : operation->results())
      if (const auto it = readers.find(result); it != readers.end()) {
        const std::map<std::int64_t, int>& giving = parts.of(result);
        const auto handOn = [&](std::int64_t from, const std::set<std::int64_t>& users) {
          CostTensor tensor{.name = result->name(),
                            .from = from,
                            .to = {users.begin(), users.end()},
                            .bytes = result->type().bytes(),
                            .isPart = graph.team.forms.contains(result->name()) || parts.hasTermsAtMaker(result),
                            .hasTerms = parts.hasTerms(result)};
          for (const auto& [group, count] : giving)
            if (users.contains(group)) tensor.gradientFrom.insert(tensor.gradientFrom.end(), std::max(1, count), group);
          tensor.isOwn = tensor.isPart && tensor.hasTerms;
          tensor.hasGradient = !tensor.gradientFrom.empty();
          cost.tensors.push_back(std::move(tensor));
        };
        std::int64_t from = operation->group;
        if (const auto between = passing.find(result); between != passing.end()) {
          handOn(from, {between->second});
          from = between->second;
        }
        handOn(from, it->second);
      }
}

} // namespace

Expected<CostGraph> pdc::costGraphOf(const Graph& graph, const std::string& model, const Profile& profile,
                                     const CostOptions& options, Diagnostics& diags) {
  CostGraph cost{.model = model, .costSource = profile.source, .nodes = {}, .tensors = {}};
  Members members(static_cast<std::size_t>(groupCount(graph)));
  for (const auto& operation : graph.operations())
    if (operation->group >= 0) members[static_cast<std::size_t>(operation->group)].push_back(operation.get());
  const std::set<const Value*> handedOver = options.splitBackward ? handedOverIn(graph) : std::set<const Value*>();
  if (!addNodes(cost, graph, members, profile, options, handedOver, diags)) return failure;
  addParameters(cost, graph, members);
  addAccumulation(cost, profile, options);
  Readers readers;
  addSaved(cost, graph, readers);
  // What passes through a group of weights' gradients on its way down goes through it upwards, too: so that is between
  // the two in every plan.
  const std::map<const Value*, int> passing = passedOn(graph);
  addGradientGroups(graph, passing, readers);
  GradientParts parts(graph, readers, passing);
  addHandover(cost, graph, handedOver);
  if (options.target == Target::cuda) addStaging(cost, graph);
  addTensors(cost, graph, readers, passing, parts);
  simplifyParts(cost);
  return cost;
}
