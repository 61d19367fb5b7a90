// Places the values of a stage. First what has a fixed place (parameters, inputs, what leaves), then what is saved from
// forward to backward, last what lives inside a phase.
#include "pdc/Analysis/MemoryPlan.h"

#include "BlockLayout.h"

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <tuple>
#include <unordered_set>

using namespace pdc;

const Value* pdc::storageOf(const Value* value) {
  while (value->definer() && value->definer()->def().kind == OpKind::view) value = value->definer()->operand(0);
  return value;
}

ProgramPhase pdc::programPhase(const Operation& operation) {
  switch (operation.phase) {
  case Phase::forward: return ProgramPhase::forward;
  case Phase::inputGradient: return ProgramPhase::backwardInput;
  case Phase::weightGradient: return ProgramPhase::backwardWeight;
  }
  return ProgramPhase::forward;
}

Expected<std::int64_t> pdc::workspaceOf(const std::vector<const Operation*>& operations, Diagnostics& diags) {
  pdcrt::Setup setup;
  for (const Operation* operation : operations) {
    if (operation->def().kind != OpKind::kernel) continue;
    try {
      operation->def().kernel(*operation).construct(setup);
    } catch (const std::exception& e) {
      return diags.error(operation->location)
             << "the kernel of '" << operation->def().name << "' cannot be built: " << e.what();
    }
  }
  return static_cast<std::int64_t>(setup.workspaceBytes());
}

const Buffer* GraphMemory::find(const Value* value) const {
  auto it = index.find(value);
  return it == index.end() ? nullptr : &buffers[it->second];
}

namespace {

/// How many classes an integer label may name: what the loss that reads it (through views and casts) says.
std::int64_t classesOf(const Value* label) {
  for (const Operation* user : label->users()) {
    if (user->phase != Phase::forward) continue;
    if (user->def().lossLike && user->operand(0) != label)
      return user->operand(0)->type().rank() > 1 ? user->operand(0)->type().shape[1] : 0;
    if (user->operands().size() == 1 && user->result())
      if (std::int64_t classes = classesOf(user->result())) return classes;
  }
  return 0;
}

using EdgeKey = std::tuple<pdcrt::Direction, int, int>; // direction, from, to

class MemoryPlanner {
public:
  MemoryPlanner(const Graph& training, const Graph* evaluation, const MemoryOptions& options, Diagnostics& diags)
      : training_(training), evaluation_(evaluation), options_(options), diags_(diags) {
    plan_.stage = options.stage;
  }

  Expected<StageMemory> run() {
    if (!checkTypes(training_) || (evaluation_ && !checkTypes(*evaluation_)) || !checkPhases()) return failure;
    placeParameters();
    collectEdges();
    placeInputs();
    placeWhatLeaves();
    placeSaved();
    findHandedOver();
    placeResults(training_, plan_.training);
    addCopies(training_, plan_.training);
    if (evaluation_ && !planEvaluation()) return failure;
    planScratch();
    if (!planWorkspace()) return failure;
    finish();
    return std::move(plan_);
  }

private:
  /// A place where a value must be at the end of its phase, beside where it is made.
  struct Pin {
    const Value* root;
    Place place;
    ProgramPhase phase; ///< in which the place is filled, unless the value is made earlier in the same pass
  };

  /// Refuses what no kernel computes with. `op`: whose operand or result it is, or null.
  Status checkType(const Value* value, const Location& location, const OpDef* op) {
    if (!value) return success;
    const Type& type = value->type();
    const bool inDouble = type.element == ElementType::f64;
    const bool takesDouble = !op || op->kind != OpKind::kernel || op->moves || op->takesDouble;
    if (isFloat(type.element) && type.element != ElementType::f32 && !(inDouble && takesDouble))
      return diags_.error(location).exit(ExitCode::unsupported).help("export the model in f32")
             << "'%" << value->name() << "' is " << toString(type) << ", the CPU target computes "
             << (inDouble ? "'" + op->name + "' " : "") << "in f32 only";
    if (type.rank() > pdcrt::maxRank)
      return diags_.error(location).exit(ExitCode::unsupported)
             << "'%" << value->name() << "' has rank " << type.rank() << ", the limit is " << pdcrt::maxRank;
    return success;
  }

  Status checkTypes(const Graph& graph) {
    for (const GraphInput& input : graph.inputs)
      if (!checkType(input.value, {}, nullptr)) return failure;
    for (const auto& operation : graph.operations())
      for (const auto& values : {operation->operands(), operation->results()})
        for (const Value* value : values)
          if (!checkType(value, operation->location, &operation->def())) return failure;
    for (const GraphOutput& output : graph.outputs)
      if (output.kind == OutputKind::gradient && output.value->type().element != ElementType::f32)
        return diags_.error(output.parameter->location)
                   .exit(ExitCode::unsupported)
                   .help("export the model in f32, or keep the parameter as it is: --freeze")
               << "the parameter is " << toString(output.parameter->type) << ", the CPU target trains f32 only";
    return success;
  }

  /// backward_input runs before backward_weight: nothing that it computes may need a result of the latter.
  Status checkPhases() {
    for (const auto& operation : training_.operations())
      for (const Value* operand : operation->operands())
        if (operand && operand->definer() && operand->definer()->phase > operation->phase)
          return diags_.error(operation->location).exit(ExitCode::internal)
                 << "'" << operation->def().name << "' of phase " << nameOf(operation->phase) << " needs '%"
                 << operand->name() << "' of phase " << nameOf(operand->definer()->phase);
    return success;
  }

  /// Parameters of other stages, which this one is sent; and what is exchanged about those of its own.
  void placeShared() {
    std::map<std::pair<int, int>, std::vector<const SharedParameter*>> rows; // by owner and user
    for (const SharedParameter& shared : options_.shared)
      for (int user : std::set<int>(shared.useStages.begin(), shared.useStages.end()))
        if (user != shared.owner() && (user == options_.stage || shared.owner() == options_.stage))
          rows[{shared.owner(), user}].push_back(&shared);
    for (const auto& [ends, parameters] : rows) {
      const auto row = static_cast<int>(plan_.shared.size());
      Bump values, parts;
      for (const SharedParameter* shared : parameters) {
        const auto value = static_cast<int>(plan_.sharedValues.size());
        const std::int64_t bytes = shared->parameter->type.bytes();
        plan_.sharedValues.push_back({row, shared->parameter, values.take(bytes), -1});
        for (std::size_t use = 0; use < shared->useStages.size(); ++use)
          if (shared->useStages[use] == ends.second)
            plan_.sharedUses.push_back({value, static_cast<int>(use), parts.take(bytes), -1});
      }
      plan_.shared.push_back(
          {ends.first, ends.second, static_cast<std::size_t>(values.end()), static_cast<std::size_t>(parts.end())});
    }
  }

  /// The value of `parameter` that another stage sends; null where it is this stage's own.
  const PlacedSharedValue* received(const Parameter* parameter) const {
    for (const PlacedSharedValue& value : plan_.sharedValues)
      if (value.parameter == parameter && plan_.shared[static_cast<std::size_t>(value.shared)].user == options_.stage)
        return &value;
    return nullptr;
  }

  void placeParameters() {
    placeShared();
    auto add = [&](const Graph& graph, GraphMemory& memory) {
      for (const Value* value : graph.parameterValues()) {
        if (value->users().empty() && !graph.isOutput(value)) continue;
        const Parameter* parameter = value->parameter();
        if (const PlacedSharedValue* shared = received(parameter)) {
          addBuffer(memory, value, {Block::shared, shared->shared, shared->offset});
          continue;
        }
        const bool state = parameter->role == ParameterRole::state;
        auto& list = state ? plan_.states : plan_.parameters;
        Bump& block = state ? state_ : weights_;
        auto it = std::find_if(list.begin(), list.end(), [&](const auto& p) { return p.parameter == parameter; });
        if (it == list.end()) {
          list.push_back({parameter, block.take(parameter->type.bytes())});
          it = list.end() - 1;
          if (parameter->role == ParameterRole::trained) plan_.trainedBytes += parameter->type.bytes();
        }
        addBuffer(memory, value, {state ? Block::state : Block::weights, -1, it->offset});
      }
    };
    add(training_, plan_.training);
    if (evaluation_) add(*evaluation_, plan_.evaluation);
    for (PlacedSharedValue& value : plan_.sharedValues) {
      if (plan_.shared[static_cast<std::size_t>(value.shared)].owner != options_.stage) continue;
      value.index = parameterIndex(value.parameter);
      value.offset = plan_.parameters[static_cast<std::size_t>(value.index)].offset;
    }
  }

  void collectEdges() {
    std::map<EdgeKey, std::int64_t> edges;
    auto addEdge = [&](bool gradient, int from, int to) {
      edges[{gradient ? pdcrt::Direction::backward : pdcrt::Direction::forward, from, to}] = 0;
    };
    for (const GraphInput& input : training_.inputs)
      if (input.kind == InputKind::received) addEdge(input.gradient, input.peer, options_.stage);
    for (const GraphOutput& output : training_.outputs)
      if (output.kind == OutputKind::sent) addEdge(output.isGradient, options_.stage, output.peer);
    for (const auto& [key, bytes] : edges)
      plan_.edges.push_back({std::get<0>(key), std::get<1>(key), std::get<2>(key), 0});
    edgeBlocks_.resize(plan_.edges.size());
  }

  int edgeOf(bool gradient, int from, int to) const {
    const auto direction = gradient ? pdcrt::Direction::backward : pdcrt::Direction::forward;
    for (std::size_t i = 0; i < plan_.edges.size(); ++i)
      if (plan_.edges[i].direction == direction && plan_.edges[i].from == from && plan_.edges[i].to == to)
        return static_cast<int>(i);
    return -1;
  }

  Place takeEdge(int edge, const Value* value) {
    return {Block::edge, edge, edgeBlocks_[static_cast<std::size_t>(edge)].take(value->type().bytes())};
  }

  void placeInputs() {
    for (const GraphInput& input : training_.inputs) {
      Place place;
      if (input.kind == InputKind::received) {
        place = takeEdge(edgeOf(input.gradient, input.peer, options_.stage), input.value);
        plan_.ports.push_back({place.edge, input.value, place.offset});
      } else {
        place = {Block::slot, -1, slot_.take(input.value->type().bytes())};
        const bool label = input.kind == InputKind::label;
        plan_.data.push_back({input.value, label,
                              label && !isFloat(input.value->type().element) ? classesOf(input.value) : 0,
                              place.offset});
      }
      addBuffer(plan_.training, input.value, place);
    }
  }

  /// The first use of another stage's parameter that has no accumulator yet; uses come in program order.
  PlacedSharedUse& nextSharedUse(const Parameter* parameter) {
    const PlacedSharedValue* value = received(parameter);
    return *std::find_if(plan_.sharedUses.begin(), plan_.sharedUses.end(), [&](const PlacedSharedUse& use) {
      return &plan_.sharedValues[static_cast<std::size_t>(use.value)] == value && use.gradient < 0;
    });
  }

  /// The place of `root` in the slot, which it gets now if it has none.
  Place slotPlace(const Value* root) {
    if (const Buffer* buffer = plan_.training.find(root); buffer && buffer->place.block == Block::slot)
      return buffer->place;
    auto [it, isNew] = inSlot_.try_emplace(root);
    if (isNew) it->second = {Block::slot, -1, slot_.take(root->type().bytes())};
    return it->second;
  }

  void placeWhatLeaves() {
    for (const GraphOutput& output : training_.outputs) {
      const Value* root = storageOf(output.value);
      switch (output.kind) {
      case OutputKind::sent: {
        const int edge = edgeOf(output.isGradient, options_.stage, output.peer);
        const Place place = output.isGradient ? takeEdge(edge, output.value) : slotPlace(root);
        pins_.push_back({root, place, output.isGradient ? ProgramPhase::backwardInput : ProgramPhase::forward});
        plan_.ports.push_back({edge, output.value, place.offset});
        break;
      }
      case OutputKind::loss:
      case OutputKind::prediction:
      case OutputKind::result: {
        if (output.kind != OutputKind::loss && !options_.keepResults)
          break; // a prediction is read after an evaluate only
        const Place place = slotPlace(root);
        pins_.push_back({root, place, ProgramPhase::forward});
        plan_.outputs.push_back({output.kind == OutputKind::loss ? OutputKind::loss : OutputKind::prediction,
                                 output.name.empty() ? output.value->name() : output.name, output.value, place.offset});
        break;
      }
      case OutputKind::gradient: {
        const Place place{Block::gradients, -1, gradients_.take(output.value->type().bytes())};
        pins_.push_back({root, place, ProgramPhase::backwardWeight});
        const bool withInput = root->definer() && root->definer()->phase == Phase::inputGradient;
        if (received(output.parameter)) {
          PlacedSharedUse& use = nextSharedUse(output.parameter);
          use.gradient = place.offset;
          use.withInput = withInput;
          break;
        }
        plan_.gradients.push_back({parameterIndex(output.parameter), output.value, place.offset, withInput});
        break;
      }
      case OutputKind::state:
        pins_.push_back({root, {Block::state, -1, stateOffset(output.parameter)}, ProgramPhase::forward});
        break;
      }
    }
    std::stable_sort(plan_.ports.begin(), plan_.ports.end(),
                     [](const PlacedPort& a, const PlacedPort& b) { return a.edge < b.edge; });
    pinnedSlotBytes_ = slot_.end();
  }

  /// Values of forward that backward reads are kept in the slot, in program order.
  void placeSaved() {
    std::unordered_set<const Value*> saved;
    for (const auto& operation : training_.operations())
      if (operation->phase != Phase::forward)
        for (const Value* operand : operation->operands())
          if (operand) saved.insert(storageOf(operand));
    for (const Pin& pin : pins_)
      if (pin.phase != ProgramPhase::forward) saved.insert(pin.root);
    for (const auto& operation : training_.operations())
      if (operation->phase == Phase::forward && operation->def().kind != OpKind::constant)
        for (const Value* result : operation->results())
          if (result && saved.contains(result)) slotPlace(result);
  }

  /// What backward_weight reads of what backward_input has made. Between the two there may be other minibatches, which
  /// overwrite scratch, gradients that have left, and gradients of parameters: those get a copy.
  void findHandedOver() {
    for (const auto& operation : training_.operations()) {
      if (operation->phase != Phase::weightGradient || operation->def().kind == OpKind::view) continue;
      for (const Value* operand : operation->operands()) {
        if (!operand) continue;
        const Value* root = storageOf(operand);
        if (root->definer() && root->definer()->phase == Phase::inputGradient) handedOver_.insert(root);
      }
    }
  }

  /// Buffers for the results of operations, scratch still without offsets.
  void placeResults(const Graph& graph, GraphMemory& memory) {
    const std::vector<int> positions = timeline(graph);
    std::unordered_map<const Value*, std::pair<int, int>> lifetimes;
    std::size_t i = 0;
    for (const auto& operation : graph.operations()) {
      const int position = positions[i++];
      for (const Value* operand : operation->operands())
        if (operand)
          if (auto it = lifetimes.find(storageOf(operand)); it != lifetimes.end())
            it->second.second = std::max(it->second.second, position);
      for (const Value* result : operation->results())
        if (result && storageOf(result) == result) lifetimes[result] = {position, position};
    }
    for (const auto& operation : graph.operations())
      for (const Value* result : operation->results()) {
        if (!result) continue;
        if (operation->def().kind == OpKind::view) {
          if (auto it = memory.index.find(storageOf(result)); it != memory.index.end())
            memory.index[result] = it->second;
          continue;
        }
        Buffer& buffer = addBuffer(memory, result, placeOfResult(graph, *operation, result));
        std::tie(buffer.first, buffer.last) = lifetimes[result];
      }
  }

  Place placeOfResult(const Graph& graph, const Operation& operation, const Value* result) {
    if (operation.def().kind == OpKind::constant) return {Block::constant, -1, 0};
    const auto& pins = &graph == &training_ ? pins_ : evaluationPins_;
    if (&graph == &training_) {
      if (auto it = inSlot_.find(result); it != inSlot_.end()) return it->second;
      if (handedOver_.contains(result)) return {Block::handover, -1, handover_.take(result->type().bytes())};
    }
    for (const Pin& pin : pins)
      if (pin.root == result) return pin.place;
    return {Block::scratch, -1, 0};
  }

  /// Positions of the operations on the timelines. In a training graph W follows I.
  std::vector<int> timeline(const Graph& graph) const {
    std::vector<int> positions(graph.operations().size());
    int forward = 0, backward = 0;
    for (Phase phase : {Phase::forward, Phase::inputGradient, Phase::weightGradient})
      for (std::size_t i = 0; i < positions.size(); ++i)
        if (graph.operations()[i]->phase == phase) positions[i] = phase == Phase::forward ? forward++ : backward++;
    return positions;
  }

  void addCopies(const Graph& graph, const GraphMemory& memory) {
    const bool training = &graph == &training_;
    for (const Pin& pin : training ? pins_ : evaluationPins_) {
      const Buffer* buffer = memory.find(pin.root);
      if (buffer->place == pin.place) continue;
      const Operation* definer = pin.root->definer();
      Copy copy{training ? pin.phase : ProgramPhase::evaluate, pin.root, nullptr, pin.place};
      if (definer && definer->def().kind != OpKind::constant) {
        const ProgramPhase made = training ? programPhase(*definer) : ProgramPhase::evaluate;
        // A gradient that backward_input makes is copied there, before its scratch is used again.
        const bool sameBackward = made != ProgramPhase::forward && pin.phase != ProgramPhase::forward;
        if (!training || made == pin.phase || sameBackward) {
          copy.phase = made;
          copy.after = definer;
        }
      }
      plan_.copies.push_back(copy);
    }
  }

  Status planEvaluation() {
    Bump predictions; // in the part of the slot that only training uses
    GraphMemory& memory = plan_.evaluation;
    std::map<std::pair<int, bool>, std::size_t> seen;
    for (const GraphInput& input : evaluation_->inputs) {
      const std::optional<Place> place = placeInTraining(input, seen);
      if (!place)
        return diags_.error({}).exit(ExitCode::internal) << "evaluation of stage " << options_.stage << " needs '%"
                                                         << input.value->name() << "', which training does not have";
      addBuffer(memory, input.value, *place);
    }
    std::map<int, std::size_t> sent;
    std::size_t losses = 0;
    for (const GraphOutput& output : evaluation_->outputs) {
      const Value* root = storageOf(output.value);
      if (output.kind == OutputKind::sent) {
        const std::optional<Place> place = sentPlace(output, sent[output.peer]++);
        if (!place)
          return diags_.error({}).exit(ExitCode::internal)
                 << "evaluation of stage " << options_.stage << " sends '%" << output.value->name() << "' to stage "
                 << output.peer << ", training does not";
        evaluationPins_.push_back({root, *place, ProgramPhase::evaluate});
      } else if (output.kind == OutputKind::loss) {
        evaluationPins_.push_back({root, lossPlace(losses++, root, predictions), ProgramPhase::evaluate});
      } else if (output.kind == OutputKind::prediction) {
        const Place place = predictionPlace(root, predictions);
        evaluationPins_.push_back({root, place, ProgramPhase::evaluate});
        plan_.outputs.push_back({OutputKind::prediction, output.name.empty() ? output.value->name() : output.name,
                                 output.value, place.offset});
      }
    }
    slotBytes_ = pinnedSlotBytes_ + predictions.end();
    placeResults(*evaluation_, memory);
    addCopies(*evaluation_, memory);
    return success;
  }

  /// Where training has what an input of the evaluation graph stands for: the input of the same name, else the same in
  /// order among those of that edge.
  std::optional<Place> placeInTraining(const GraphInput& input,
                                       std::map<std::pair<int, bool>, std::size_t>& seen) const {
    const GraphInput* match = nullptr;
    std::size_t position = 0;
    const std::size_t wanted = seen[{input.peer, input.kind == InputKind::received}]++;
    for (const GraphInput& candidate : training_.inputs) {
      const bool received = candidate.kind == InputKind::received;
      if (received != (input.kind == InputKind::received) || candidate.peer != input.peer || candidate.gradient)
        continue;
      if (candidate.value->name() == input.value->name()) {
        match = &candidate;
        break;
      }
      if (received && position++ == wanted) match = &candidate;
    }
    if (!match) return std::nullopt;
    return plan_.training.find(match->value)->place;
  }

  std::optional<Place> sentPlace(const GraphOutput& output, std::size_t position) const {
    const int edge = edgeOf(false, options_.stage, output.peer);
    std::optional<Place> place;
    for (const PlacedPort& port : plan_.ports) {
      if (port.edge != edge) continue;
      if (port.value->name() == output.value->name()) return Place{Block::slot, -1, port.offset};
      if (position-- == 0) place = Place{Block::slot, -1, port.offset};
    }
    return place;
  }

  Place lossPlace(std::size_t position, const Value* root, Bump& predictions) const {
    for (const PlacedOutput& output : plan_.outputs)
      if (output.kind == OutputKind::loss && position-- == 0) return {Block::slot, -1, output.offset};
    return {Block::slot, -1, pinnedSlotBytes_ + predictions.take(root->type().bytes())};
  }

  Place predictionPlace(const Value* root, Bump& predictions) const {
    for (const Pin& pin : evaluationPins_)
      if (pin.root == root) return pin.place; // it leaves anyway
    if (const Buffer* input = plan_.evaluation.find(root); input && input->place.block == Block::slot)
      return input->place;
    return {Block::slot, -1, pinnedSlotBytes_ + predictions.take(root->type().bytes())};
  }

  void planScratch() {
    std::vector<Buffer*> forward, backward, evaluate;
    for (Buffer& buffer : plan_.training.buffers)
      if (buffer.place.block == Block::scratch)
        (buffer.value->definer()->phase == Phase::forward ? forward : backward).push_back(&buffer);
    for (Buffer& buffer : plan_.evaluation.buffers)
      if (buffer.place.block == Block::scratch) evaluate.push_back(&buffer);
    for (auto& buffers : {forward, backward, evaluate})
      scratchBytes_ = std::max(scratchBytes_, shareByLifetime(buffers));
  }

  Status planWorkspace() {
    std::vector<const Operation*> operations;
    for (const Graph* graph : {&training_, evaluation_})
      if (graph)
        for (const auto& operation : graph->operations()) operations.push_back(operation.get());
    Expected<std::int64_t> bytes = workspaceOf(operations, diags_);
    if (!bytes) return failure;
    workspaceBytes_ = *bytes;
    return success;
  }

  void finish() {
    auto size = [](std::int64_t bytes) { return static_cast<std::size_t>(bytes); };
    plan_.bytes = {.weights = size(weights_.end()),
                   .state = size(state_.end()),
                   .gradients = size(gradients_.end()),
                   .slot = size(std::max(slot_.end(), slotBytes_)),
                   .handover = size(handover_.end()),
                   .scratch = size(scratchBytes_),
                   .workspace = size(aligned(workspaceBytes_))};
    for (std::size_t i = 0; i < plan_.edges.size(); ++i) plan_.edges[i].bytes = size(edgeBlocks_[i].end());
  }

  Buffer& addBuffer(GraphMemory& memory, const Value* value, Place place) {
    memory.index[value] = memory.buffers.size();
    return memory.buffers.emplace_back(Buffer{value, place, value->type().bytes(), 0, 0});
  }

  int parameterIndex(const Parameter* parameter) const {
    for (std::size_t i = 0; i < plan_.parameters.size(); ++i)
      if (plan_.parameters[i].parameter == parameter) return static_cast<int>(i);
    return -1;
  }

  std::int64_t stateOffset(const Parameter* parameter) const {
    for (const PlacedParameter& state : plan_.states)
      if (state.parameter == parameter) return state.offset;
    return 0;
  }

  const Graph& training_;
  const Graph* evaluation_;
  MemoryOptions options_;
  Diagnostics& diags_;
  StageMemory plan_;
  Bump weights_, state_, gradients_, slot_, handover_;
  std::vector<Bump> edgeBlocks_;
  std::vector<Pin> pins_, evaluationPins_;
  std::unordered_map<const Value*, Place> inSlot_;
  std::unordered_set<const Value*> handedOver_;
  std::int64_t pinnedSlotBytes_ = 0; ///< of what training and evaluation have in common
  std::int64_t slotBytes_ = 0, scratchBytes_ = 0, workspaceBytes_ = 0;
};

} // namespace

Expected<StageMemory> pdc::planMemory(const Graph& training, const Graph* evaluation, const MemoryOptions& options,
                                      Diagnostics& diags) {
  return MemoryPlanner(training, evaluation, options, diags).run();
}
