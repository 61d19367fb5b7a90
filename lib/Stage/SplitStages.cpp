// Cuts @main and @evaluate into one graph per stage, between fusion groups.
//
// A forward value crosses to every later stage that uses it. Gradients cross by themselves: `differentiate` has put
// each addition of a gradient's fold, and each pass-through, into the stage of its consumer, so that a backward value
// which is used in another stage is exactly one message of the chain. @stageK.evaluate has the ports of @stageK, so
// that one plan of the channels serves both, but for values that only its backward reads. Linear in the size of the
// graphs, times the stages.
#include "pdc/Stage/StagePasses.h"

#include "pdc/IR/GradientGroups.h"
#include "pdc/IR/SharedParameters.h"
#include "pdc/Transforms/GraphUtilities.h"
#include "pdc/Transforms/Transforms.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

using namespace pdc;

namespace {

/// One tensor on its way between two stages.
struct Crossing {
  const Value* value; ///< of @main
  int from, to;
  bool gradient;
  bool evaluates; ///< read by forward operations of `to`
};

class StageSplitter {
public:
  StageSplitter(PassContext& context, Graph& training, Graph& evaluation, const std::vector<int>& stageOfGroup)
      : context_(context), training_(training), evaluation_(evaluation), stageOfGroup_(stageOfGroup) {}

  Expected<std::vector<StageGraphs>> run();

private:
  Status checkStages();
  Status placeOperations(Graph& graph);
  Status checkParameters();
  void sinkSums();
  Status checkForwardEdges();
  Status findCrossings();
  Expected<Graph*> buildStage(const Graph& source, int stage, const std::string& name);
  Status materialise(Graph& graph);

  int stageOf(const Value* value) const;
  int stageOf(const GraphOutput& output) const;
  std::vector<const Crossing*> ports(bool gradient, int Crossing::*end, int Crossing::*peer, int stage) const;

  PassContext& context_;
  Graph& training_;
  Graph& evaluation_;
  const std::vector<int>& stageOfGroup_;
  int stages_ = 0;
  std::vector<Crossing> crossings_; ///< in order of the values' definitions
};

/// Copies the operations of one stage into a graph of its own.
class StageCopier {
public:
  StageCopier(const Graph& source, Graph& target, int stage) : source_(source), target_(target), stage_(stage) {}

  void bind(const Value* from, Value* to) { values_[from] = to; }
  /// What stands for `value` of the source; null when it is not there.
  Value* lookUp(const Value* value);
  /// False when an operation needs a value that is not in its stage.
  bool copyOperations();
  /// What stands for `operation` of the source; null when it is in another stage.
  Operation* lookUp(const Operation* operation) const;

private:
  Operation* copy(const Operation& operation);
  Value* constantHere(const Operation& constant);

  const Graph& source_;
  Graph& target_;
  int stage_;
  std::unordered_map<const Value*, Value*> values_;
  std::unordered_map<const Operation*, Operation*> operations_;
};

} // namespace

Value* StageCopier::lookUp(const Value* value) {
  auto it = values_.find(value);
  if (it != values_.end()) return it->second;
  if (value->parameter()) return values_[value] = target_.parameterValue(*value->parameter());
  return value->definer() && isConstant(*value->definer()) ? constantHere(*value->definer()) : nullptr;
}

/// Constants are made where they are used, also those of other stages.
Value* StageCopier::constantHere(const Operation& constant) {
  if (constant.stage == stage_) return copy(constant)->result();
  const Value& value = *constant.result();
  Operation* made = target_.addOperation(constant.def(), {}, {&value.type()}, constant.attributes, constant.location,
                                         nullptr, {value.name()});
  made->stage = stage_;
  return values_[&value] = made->result();
}

Operation* StageCopier::copy(const Operation& operation) {
  std::vector<Value*> operands;
  for (const Value* operand : operation.operands()) operands.push_back(operand ? lookUp(operand) : nullptr);
  std::vector<const Type*> types;
  std::vector<std::string> names;
  for (const Value* result : operation.results()) {
    types.push_back(result ? &result->type() : nullptr);
    names.push_back(result ? result->name() : "");
  }
  Operation* made = target_.addOperation(operation.def(), std::move(operands), types, operation.attributes,
                                         operation.location, nullptr, names);
  made->phase = operation.phase;
  made->again = operation.again;
  made->group = operation.group;
  made->stage = operation.stage;
  if (operation.origin()) made->setOrigin(lookUp(operation.origin()));
  operations_[&operation] = made;
  for (std::size_t i = 0; i < names.size(); ++i)
    if (operation.result(i)) values_[operation.result(i)] = made->result(i);
  return made;
}

Operation* StageCopier::lookUp(const Operation* operation) const {
  const auto it = operations_.find(operation);
  return it == operations_.end() ? nullptr : it->second;
}

bool StageCopier::copyOperations() {
  for (const auto& operation : source_.operations()) {
    if (operation->stage != stage_ || operations_.contains(operation.get())) continue;
    for (const Value* operand : operation->operands())
      if (operand && !lookUp(operand)) return false;
    copy(*operation);
  }
  return true;
}

/// Of values that an operation makes; -1 for graph inputs and parameters, which are wherever they are used.
int StageSplitter::stageOf(const Value* value) const {
  return value->definer() ? value->definer()->stage : -1;
}

/// Where an output leaves: a gradient where its parameter is, wherever it is computed.
int StageSplitter::stageOf(const GraphOutput& output) const {
  const Operation* definer = output.value->definer();
  if (output.kind == OutputKind::gradient && definer && isAboveItsOrigin(*definer)) return definer->origin()->stage;
  return std::max(stageOf(output.value), 0); // an input of the model belongs to the first stage
}

Status StageSplitter::checkStages() {
  const Location location{.file = context_.module.file};
  std::set<int> used(stageOfGroup_.begin(), stageOfGroup_.end());
  stages_ = static_cast<int>(used.size());
  if (used.empty() || *used.begin() < 0 || *used.rbegin() >= stages_)
    return context_.diags.error(location) << "stages must be numbered from 0 without gaps; the highest is "
                                          << (used.empty() ? -1 : *used.rbegin()) << " of " << stages_;
  if (!placeOperations(training_) || !placeOperations(evaluation_)) return failure;
  sinkSums();
  if (!checkForwardEdges()) return failure;
  return checkParameters();
}

Status StageSplitter::placeOperations(Graph& graph) {
  for (const auto& operation : graph.operations()) {
    if (operation->group < 0 || static_cast<std::size_t>(operation->group) >= stageOfGroup_.size())
      return context_.diags.error(operation->location)
             << "operation '" << describe(*operation) << "' is in group " << operation->group
             << ", but stages are given for " << stageOfGroup_.size() << " groups";
    operation->stage = stageOfGroup_[static_cast<std::size_t>(operation->group)];
  }
  return success;
}

/// A value's gradient is the sum over its users in the order of the program, whatever the plan. Where parallel branches
/// lie in stages of another order, a sum can only be taken in the lowest stage that a part of it comes from: gradients
/// go down.
void StageSplitter::sinkSums() {
  for (const auto& operation : training_.operations()) {
    if (!addsGradients(*operation)) continue;
    const Operation *first = operation->operand(0)->definer(), *second = operation->operand(1)->definer(),
                    *lowest = second->stage < first->stage ? second : first;
    if (lowest->stage >= operation->stage) continue;
    operation->stage = lowest->stage;
    operation->group = lowest->group;
    operation->setOrigin(lowest->origin());
    // What is sent now has the name of what it is a gradient of.
    const std::string whole = operation->result()->name().substr(0, operation->result()->name().find(".gradient"));
    for (Value* operand : operation->operands())
      if (operand->name().find(".gradient") == std::string::npos) training_.rename(operand, whole + ".gradient.part");
  }
}

Status StageSplitter::checkForwardEdges() {
  for (const auto& operation : training_.operations())
    for (const Value* operand : operation->operands()) {
      if (!isForward(*operation) || !operand || !operand->definer() || isConstant(*operand->definer())) continue;
      const Operation& producer = *operand->definer();
      if (producer.stage <= operation->stage) continue;
      return context_.diags.error(operation->location)
                 .help("let stages not decrease from a group to the groups that use its values")
             << "value '" << operand->name() << "' goes back from stage " << producer.stage << " (group "
             << producer.group << ") to stage " << operation->stage << " (group " << operation->group << ")";
    }
  return success;
}

/// Stages share a trained parameter only where each of them has a gradient of it to give. Each has a frozen one itself.
Status StageSplitter::checkParameters() {
  for (const ParameterGroups& parameter : parameterGroups(training_)) {
    std::set<int> stages;
    for (int group : parameter.groups) stages.insert(stageOfGroup_[static_cast<std::size_t>(group)]);
    if (stages.size() > 1 && parameter.parameter->role != ParameterRole::frozen && !parameter.canBeShared())
      return context_.diags.error(parameter.parameter->location)
                 .exit(ExitCode::unsupported)
                 .help("keep the groups that use it in one stage")
             << "parameter '" << parameter.parameter->name << "' is used in stage " << *stages.begin()
             << " and in stage " << *stages.rbegin() << ", and not trained by all of its uses";
  }
  return success;
}

Status StageSplitter::findCrossings() {
  // Who needs a value besides those who read it: whom its gradient passes through, and whose weights' it is.
  std::map<const Value*, std::set<int>> others;
  for (const auto& [value, group] : passedOn(training_))
    others[value].insert(stageOfGroup_[static_cast<std::size_t>(group)]);
  for (const GraphOutput& output : training_.outputs)
    if (output.kind == OutputKind::gradient) others[output.value].insert(stageOf(output));
  for (const auto& operation : training_.operations()) {
    if (isConstant(*operation)) continue;
    const bool gradient = !isForward(*operation);
    for (const Value* result : operation->results()) {
      if (!result) continue;
      std::set<int> users = others[result], readers;
      for (const Operation* user : result->users()) {
        users.insert(user->stage);
        if (isForward(*user)) readers.insert(user->stage);
      }
      users.erase(operation->stage);
      for (int user : users) {
        if (gradient ? user > operation->stage : user < operation->stage)
          return context_.diags.error(operation->location).help("give these groups stages in the order of the groups")
                 << (gradient ? "gradient '" : "value '") << result->name() << "' would go from stage "
                 << operation->stage << " to stage " << user;
        crossings_.push_back({result, operation->stage, user, gradient, readers.contains(user)});
        if (gradient) computeWithInputGradients(*operation);
      }
    }
  }
  return success;
}

/// The crossings whose `end` is `stage`, by the stage at the other end; those of one edge in order of definition, first
/// those that an evaluation has, too.
std::vector<const Crossing*> StageSplitter::ports(bool gradient, int Crossing::*end, int Crossing::*peer,
                                                  int stage) const {
  std::vector<const Crossing*> found;
  for (const Crossing& crossing : crossings_)
    if (crossing.gradient == gradient && crossing.*end == stage) found.push_back(&crossing);
  std::stable_sort(found.begin(), found.end(), [&](const Crossing* a, const Crossing* b) {
    return std::tuple(a->*peer, !a->evaluates) < std::tuple(b->*peer, !b->evaluates);
  });
  return found;
}

Expected<Graph*> StageSplitter::buildStage(const Graph& source, int stage, const std::string& name) {
  const bool training = &source == &training_;
  auto owned = std::make_unique<Graph>(name);
  Graph& graph = *owned;
  graph.team = source.team;
  StageCopier copier(source, graph, stage);

  for (const GraphInput& input : source.inputs) {
    const auto& users = input.value->users();
    if (std::none_of(users.begin(), users.end(), [&](const Operation* user) { return user->stage == stage; })) continue;
    copier.bind(input.value, graph.addInput(input.value->type(), input.value->name(), input.kind));
    graph.inputs.back().share = input.share;
    graph.inputs.back().classes = input.classes;
  }
  for (bool gradient : {false, true}) {
    if (gradient && !training) continue;
    for (const Crossing* crossing : ports(gradient, &Crossing::to, &Crossing::from, stage)) {
      if (!training && !crossing->evaluates) continue;
      // An evaluation may lay it out in another way, at both ends.
      const Value* original = source.find(crossing->value->name());
      const Type& type = original ? original->type() : crossing->value->type();
      Value* received = graph.addInput(type, crossing->value->name(), InputKind::received);
      graph.inputs.back().peer = crossing->from;
      graph.inputs.back().gradient = gradient;
      if (original) copier.bind(original, received);
    }
  }

  if (!copier.copyOperations())
    return context_.diags.error({.file = context_.module.file}).exit(ExitCode::internal)
           << "an operation of '@" << name << "' uses a value of another stage that is not sent to it";

  for (GraphOutput output : source.outputs) {
    if (stageOf(output) != stage) continue;
    const Value* original = output.value;
    output.value = copier.lookUp(original);
    if (output.kind == OutputKind::gradient && stageOf(original) != stage) {
      const Operation& layer = *copier.lookUp(original->definer()->origin());
      output.value = copyOf(context_, graph, output.value, layer, Phase::weightGradient);
      if (!output.value) return failure;
    }
    if (!output.value) {
      output.value = graph.addInput(original->type(), original->name());
      copier.bind(original, output.value);
    }
    graph.outputs.push_back(output);
  }
  for (bool gradient : {false, true}) {
    if (gradient && !training) continue;
    for (const Crossing* crossing : ports(gradient, &Crossing::from, &Crossing::to, stage)) {
      if (!training && !crossing->evaluates) continue;
      const Value* original = source.find(crossing->value->name());
      Value* sent = original ? copier.lookUp(original) : nullptr;
      if (!sent)
        return context_.diags.error({.file = context_.module.file}).exit(ExitCode::internal)
               << "'@" << name << "' has no value '" << crossing->value->name() << "' to send";
      graph.outputs.push_back({.kind = OutputKind::sent,
                               .value = sent,
                               .name = {},
                               .parameter = nullptr,
                               .peer = crossing->to,
                               .isGradient = gradient});
    }
  }
  if (!materialise(graph)) return failure;

  std::erase_if(context_.module.graphs, [&](const auto& other) { return other->name() == name; });
  return context_.module.graphs.emplace_back(std::move(owned)).get();
}

/// What leaves a stage has memory of its own there: a view of something that arrived, or of a gradient that leaves by
/// another port too, becomes a copy. The copy takes over the name, by which both ends know the tensor.
Status StageSplitter::materialise(Graph& graph) {
  std::set<const Value*> gradientsSent;
  for (GraphOutput& output : graph.outputs) {
    const bool leaves = output.kind == OutputKind::sent || output.kind == OutputKind::loss ||
                        output.kind == OutputKind::term || output.kind == OutputKind::prediction ||
                        output.kind == OutputKind::load;
    if (!leaves || !output.value->definer()) continue;
    const Value* root = rootOf(output.value);
    if (root->definer() && (!output.isGradient || gradientsSent.insert(root).second)) continue;

    Operation& view = *output.value->definer();
    const auto& operations = graph.operations();
    auto next = std::find_if(operations.begin(), operations.end(), [&](const auto& o) { return o.get() == &view; }) + 1;
    Value* copy =
        copyOf(context_, graph, output.value, view, view.phase, next == operations.end() ? nullptr : next->get());
    if (!copy) return failure;
    const std::string name = output.value->name();
    graph.rename(output.value, name + ".view");
    graph.rename(copy, name);
    const Value* viewed = output.value;
    for (GraphOutput& other : graph.outputs)
      if (other.value == viewed) other.value = copy;
  }
  return success;
}

Expected<std::vector<StageGraphs>> StageSplitter::run() {
  if (!checkStages() || !findCrossings()) return failure;
  std::vector<StageGraphs> graphs;
  for (int stage = 0; stage < stages_; ++stage) {
    const std::string name = "stage" + std::to_string(stage);
    const Expected<Graph*> training = buildStage(training_, stage, name);
    if (!training) return failure;
    const Expected<Graph*> evaluation = buildStage(evaluation_, stage, name + ".evaluate");
    if (!evaluation) return failure;
    graphs.push_back({.stage = stage, .training = *training, .evaluation = *evaluation});
  }
  return graphs;
}

std::vector<StageGraphs> pdc::stageGraphs(Module& module) {
  std::vector<StageGraphs> graphs;
  for (int stage = 0;; ++stage) {
    const std::string name = "stage" + std::to_string(stage);
    Graph* const training = module.findGraph(name);
    if (!training) return graphs;
    graphs.push_back({.stage = stage, .training = training, .evaluation = module.findGraph(name + ".evaluate")});
  }
}

Expected<std::vector<StageGraphs>> pdc::splitStages(PassContext& context, const std::vector<int>& stageOfGroup) {
  Expected<Graph*> training = mainGraph(context);
  if (!training) return failure;
  Graph* evaluation = context.module.findGraph("evaluate");
  if (!evaluation) {
    if (!addEvaluation(context)) return failure;
    evaluation = context.module.findGraph("evaluate");
  }
  return StageSplitter(context, **training, *evaluation, stageOfGroup).run();
}
