// Cuts @main and @evaluate into one graph per stage, between fusion groups.
//
// A forward value crosses to every later stage that uses it. Gradients cross by themselves: `differentiate` has put
// each addition of a gradient's fold, and each pass-through, into the stage of its consumer, so that a backward value
// which is used in another stage is exactly one message of the chain. @stageK.evaluate has the ports of @stageK, so
// that one plan of the channels serves both, but for values that only its backward reads. Linear in the size of the
// graphs, times the stages.
#include "Borders.h"
#include "StageCopier.h"
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

class StageSplitter {
public:
  StageSplitter(PassContext& context, StageSources sources, const std::vector<int>& stageOfGroup)
      : context_(context), sources_(std::move(sources)), stageOfGroup_(stageOfGroup) {}

  Expected<std::vector<StageGraphs>> run();

private:
  Status checkStages();
  Status placeOperations(Graph& graph);
  Status checkParameters();
  void sinkSums(Graph& training);
  Status checkForwardEdges(const Graph& training);
  Expected<std::vector<Crossing>> crossingsIn(const Graph& training);
  Expected<Graph*> buildStage(const Graph& source, int stage, const std::string& name);
  void receive(const Crossing& crossing, const Graph& source, Graph& graph, StageCopier& copier) const;
  Status takeParts(const std::vector<const Crossing*>& arriving, const Graph& source, Graph& graph,
                   StageCopier& copier);
  Status addOutputs(const Graph& source, int stage, Graph& graph, StageCopier& copier);
  Status send(const Crossing& crossing, const Graph& source, Graph& graph, StageCopier& copier);
  Status materialise(Graph& graph);

  bool isTraining(const Graph& source) const {
    return std::ranges::any_of(sources_.all, [&](const StageSource& each) { return each.training == &source; });
  }
  int stageOf(const Value* value) const;
  int stageOf(const GraphOutput& output) const;
  const Value* wholeOf(const Crossing& crossing, bool training) const;
  std::vector<const Crossing*> ports(bool gradient, int Crossing::*end, int Crossing::*peer, int stage) const;

  PassContext& context_;
  StageSources sources_;
  const std::vector<int>& stageOfGroup_;
  int stages_ = 0;
  std::vector<Crossing> crossings_; ///< those of one edge in order of the values' definitions
};

} // namespace

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
  for (const StageSource& source : sources_.all) {
    if (!placeOperations(*source.training) || !placeOperations(*source.evaluation)) return failure;
    sinkSums(*source.training);
    if (!checkForwardEdges(*source.training)) return failure;
  }
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
void StageSplitter::sinkSums(Graph& training) {
  for (const auto& operation : training.operations()) {
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
      if (operand->name().find(".gradient") == std::string::npos) training.rename(operand, whole + ".gradient.part");
  }
}

Status StageSplitter::checkForwardEdges(const Graph& training) {
  for (const auto& operation : training.operations())
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
  for (const ParameterGroups& parameter : parameterGroups(*sources_.all[0].training)) {
    std::set<int> stages;
    for (int group : parameter.groups) stages.insert(stageOfGroup_[static_cast<std::size_t>(group)]);
    if (stages.size() < 2 || parameter.parameter->role == ParameterRole::frozen) continue;
    if (!parameter.canBeShared())
      return context_.diags.error(parameter.parameter->location)
                 .exit(ExitCode::unsupported)
                 .help("keep the groups that use it in one stage")
             << "parameter '" << parameter.parameter->name << "' is used in stage " << *stages.begin()
             << " and in stage " << *stages.rbegin() << ", and not trained by all of its uses";
    if (!checkSharedForms(context_, sources_, *parameter.parameter, {stages.begin(), stages.end()})) return failure;
  }
  return success;
}

Expected<std::vector<Crossing>> StageSplitter::crossingsIn(const Graph& training) {
  std::vector<Crossing> crossings;
  // Who needs a value besides those who read it: whom its gradient passes through, and whose weights' it is.
  std::map<const Value*, std::set<int>> others;
  for (const auto& [value, group] : passedOn(training))
    others[value].insert(stageOfGroup_[static_cast<std::size_t>(group)]);
  for (const GraphOutput& output : training.outputs)
    if (output.kind == OutputKind::gradient) others[output.value].insert(stageOf(output));
  for (const auto& operation : training.operations()) {
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
        crossings.push_back({.sent = result,
                             .received = result,
                             .name = result->name(),
                             .from = operation->stage,
                             .to = user,
                             .gradient = gradient,
                             .evaluates = readers.contains(user)});
        if (gradient) computeWithInputGradients(*operation);
      }
    }
  }
  return crossings;
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

/// What stands for the undivided value of that name in the undivided graphs.
const Value* StageSplitter::wholeOf(const Crossing& crossing, bool training) const {
  const StageSource& whole = sources_.all[0];
  return (training ? whole.training : whole.evaluation)->find(crossing.name);
}

/// Adds the input of what arrives.
void StageSplitter::receive(const Crossing& crossing, const Graph& source, Graph& graph, StageCopier& copier) const {
  // An evaluation may lay it out in another way, at both ends.
  const Value* original = source.find(crossing.received->name());
  const Value* arriving = original ? original : crossing.received;
  if (crossing.isAtBorder) arriving = wholeOf(crossing, isTraining(source));
  Value* received = graph.addInput(arriving->type(), crossing.name, InputKind::received);
  graph.inputs.back().peer = crossing.from;
  graph.inputs.back().gradient = crossing.gradient;
  for (const Value* value : {crossing.received, crossing.receivedPart})
    if (const Value* here = value ? source.find(value->name()) : nullptr) copier.bind(here, received);
}

/// Adds the output of what leaves.
Status StageSplitter::send(const Crossing& crossing, const Graph& source, Graph& graph, StageCopier& copier) {
  const Value* original = source.find(crossing.sent->name());
  Value* sent = original ? copier.lookUp(original) : nullptr;
  if (!sent)
    return context_.diags.error({.file = context_.module.file}).exit(ExitCode::internal)
           << "'@" << graph.name() << "' has no value '" << crossing.sent->name() << "' to send";
  if (crossing.isAtBorder && graph.team.forms.contains(sent->name())) {
    Value* const gathered = graph.find(crossing.name); // for another stage
    sent = gathered ? gathered : gatherAtBorder(context_, graph, sent, *wholeOf(crossing, isTraining(source)));
    if (!sent) return failure;
  }
  graph.outputs.push_back({.kind = OutputKind::sent,
                           .value = sent,
                           .name = {},
                           .parameter = nullptr,
                           .peer = crossing.to,
                           .isGradient = crossing.gradient});
  return success;
}

/// What arrives whole, and of which members have parts, becomes these.
Status StageSplitter::takeParts(const std::vector<const Crossing*>& arriving, const Graph& source, Graph& graph,
                                StageCopier& copier) {
  for (const Crossing* crossing : arriving) {
    if (!crossing->isAtBorder) continue;
    const Value* part = source.find((crossing->receivedPart ? crossing->receivedPart : crossing->received)->name());
    if (!part || !source.team.forms.contains(part->name())) continue;
    std::vector<PartUse> uses;
    for (const auto& operation : source.operations())
      for (std::size_t i = 0; i < operation->operands().size(); ++i)
        if (operation->operand(i) == part)
          if (Operation* const user = copier.lookUp(operation.get())) uses.push_back({user, i});
    if (uses.empty()) continue;
    Value* const made = takePartAtBorder(context_, graph, copier.lookUp(part), *part, uses);
    if (!made) return failure;
    copier.bind(part, made);
  }
  return success;
}

/// The outputs of the model that leave here.
Status StageSplitter::addOutputs(const Graph& source, int stage, Graph& graph, StageCopier& copier) {
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
  return success;
}

Expected<Graph*> StageSplitter::buildStage(const Graph& source, int stage, const std::string& name) {
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
  const auto portsHere = [&](int Crossing::*end, int Crossing::*peer) {
    std::vector<const Crossing*> found = ports(false, end, peer, stage);
    if (isTraining(source))
      std::ranges::copy(ports(true, end, peer, stage), std::back_inserter(found));
    else
      std::erase_if(found, [](const Crossing* crossing) { return !crossing->evaluates; });
    return found;
  };
  const std::vector<const Crossing*> arriving = portsHere(&Crossing::to, &Crossing::from);
  for (const Crossing* crossing : arriving) receive(*crossing, source, graph, copier);
  if (!copier.copyOperations())
    return context_.diags.error({.file = context_.module.file}).exit(ExitCode::internal)
           << "an operation of '@" << name << "' uses a value of another stage that is not sent to it";
  if (!takeParts(arriving, source, graph, copier) || !addOutputs(source, stage, graph, copier)) return failure;
  for (const Crossing* crossing : portsHere(&Crossing::from, &Crossing::to))
    if (!send(*crossing, source, graph, copier)) return failure;
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
  if (!checkStages()) return failure;
  std::vector<std::vector<Crossing>> found;
  for (const StageSource& source : sources_.all) {
    Expected<std::vector<Crossing>> crossings = crossingsIn(*source.training);
    if (!crossings) return failure;
    found.push_back(std::move(*crossings));
  }
  Expected<std::vector<Crossing>> crossings = crossingsBetween(context_, sources_, found);
  if (!crossings) return failure;
  crossings_ = std::move(*crossings);
  std::vector<StageGraphs> graphs;
  for (int stage = 0; stage < stages_; ++stage) {
    const std::string name = "stage" + std::to_string(stage);
    const Expected<Graph*> training = buildStage(*sources_[stage].training, stage, name);
    if (!training) return failure;
    const Expected<Graph*> evaluation = buildStage(*sources_[stage].evaluation, stage, name + ".evaluate");
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

/// The graphs that the stages are cut out of, each once.
static Expected<StageSources> sourcesOf(PassContext& context, const std::vector<TeamSplit>& splits,
                                        std::size_t stages) {
  const Expected<Graph*> training = mainGraph(context);
  if (!training) return failure;
  Module& module = context.module;
  if (!module.findGraph("evaluate") && !addEvaluation(context)) return failure;
  StageSources sources{.all = {{.split = {}, .training = *training, .evaluation = module.findGraph("evaluate")}},
                       .of = std::vector<int>(stages, 0)};
  for (std::size_t stage = 0; stage < std::min(stages, splits.size()); ++stage) {
    const TeamSplit& split = splits[stage];
    auto source = std::ranges::find_if(sources.all, [&](const StageSource& each) { return each.split == split; });
    if (source == sources.all.end()) {
      const std::string suffix = suffixOf(split);
      sources.all.push_back({split, module.findGraph("main" + suffix), module.findGraph("evaluate" + suffix)});
      source = sources.all.end() - 1;
      if (!source->training || !source->evaluation)
        return context.diags.error({.file = module.file}).exit(ExitCode::usage).help("divide the graphs first")
               << "there are no graphs '@main" << suffix << "' and '@evaluate" << suffix << "' for stage " << stage;
    }
    sources.of[stage] = static_cast<int>(source - sources.all.begin());
  }
  return sources;
}

Expected<std::vector<StageGraphs>> pdc::splitStages(PassContext& context, const std::vector<int>& stageOfGroup,
                                                    const std::vector<TeamSplit>& splits) {
  const int last = stageOfGroup.empty() ? -1 : *std::ranges::max_element(stageOfGroup);
  Expected<StageSources> sources = sourcesOf(context, splits, static_cast<std::size_t>(std::max(0, last + 1)));
  if (!sources) return failure;
  return StageSplitter(context, std::move(*sources), stageOfGroup).run();
}
