// What has a place of its own: parameters, inputs, what leaves, what backward reads of forward.
#include "MemoryPlanner.h"

#include <algorithm>
#include <set>
#include <tuple>

using namespace pdc;

/// Whether the results of an operation with one operand are its elements, elsewhere or in another type.
static bool keepsElements(const Operation& operation) {
  if (operation.operands().size() != 1 || !operation.result()) return false;
  const OpDef& def = operation.def();
  const bool isOwnPart = def.kind == OpKind::collective && def.split.forms(operation).from.isWhole();
  return def.kind == OpKind::view || def.facts.moves || isOwnPart ||
         (def.kind == OpKind::elementwise &&
          operation.result()->type().element != operation.operand(0)->type().element);
}

/// Among how many things the integers of an input choose: the fewest that one of its readers (through views, casts and
/// members' parts) says; 0: none does.
static std::int64_t choicesOf(const Value* input) {
  std::int64_t fewest = 0;
  for (const Operation* user : input->users()) {
    if (user->phase != Phase::forward) continue;
    std::int64_t choices = 0;
    if (user->def().usage.choices) {
      for (std::size_t i = 0; i < user->operands().size() && choices == 0; ++i)
        if (user->operand(i) == input) choices = user->def().usage.choices(*user, i);
    } else if (keepsElements(*user)) {
      choices = choicesOf(user->result());
    }
    if (choices > 0 && (fewest == 0 || choices < fewest)) fewest = choices;
  }
  return fewest;
}

/// Parameters of other stages, which this one is sent; and what is exchanged about those of its own.
void MemoryPlanner::placeShared() {
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
      const std::int64_t bytes = shared->type.bytes();
      plan_.sharedValues.push_back({row, shared->parameter, shared->type, values.take(bytes), -1});
      for (std::size_t use = 0; use < shared->useStages.size(); ++use)
        if (shared->useStages[use] == ends.second)
          plan_.sharedUses.push_back({value, static_cast<int>(use), parts.take(bytes), -1});
    }
    plan_.shared.push_back(
        {ends.first, ends.second, static_cast<std::size_t>(values.end()), static_cast<std::size_t>(parts.end())});
  }
}

/// The value of `parameter` that another stage sends; null where it is this stage's own.
const PlacedSharedValue* MemoryPlanner::received(const Parameter* parameter) const {
  for (const PlacedSharedValue& value : plan_.sharedValues)
    if (value.parameter == parameter && plan_.shared[static_cast<std::size_t>(value.shared)].user == options_.stage)
      return &value;
  return nullptr;
}

Block pdc::blockOf(const Parameter& parameter) {
  switch (parameter.role) {
  case ParameterRole::trained: return Block::weights;
  case ParameterRole::frozen: return Block::frozen;
  case ParameterRole::state: return Block::state;
  }
  return Block::weights;
}

void MemoryPlanner::placeParameters() {
  placeShared();
  auto add = [&](const Graph& graph, GraphMemory& memory) {
    for (const Value* value : graph.parameterValues()) {
      if (value->users().empty() && !graph.isOutput(value)) continue;
      const Parameter* parameter = value->parameter();
      if (const PlacedSharedValue* shared = received(parameter)) {
        addBuffer(memory, value, {Block::shared, shared->shared, shared->offset});
        continue;
      }
      const Block role = blockOf(*parameter);
      auto& list = role == Block::state ? plan_.states : plan_.parameters;
      Bump& block = role == Block::state ? state_ : role == Block::frozen ? frozen_ : weights_;
      auto it = std::find_if(list.begin(), list.end(), [&](const auto& p) { return p.parameter == parameter; });
      if (it == list.end()) {
        list.push_back({parameter, value->type(), block.take(value->type().bytes())});
        it = list.end() - 1;
        if (parameter->role == ParameterRole::trained) plan_.trainedBytes += value->type().bytes();
      }
      addBuffer(memory, value, {role, -1, it->offset});
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

void MemoryPlanner::collectEdges() {
  using EdgeKey = std::tuple<pdcrt::Direction, int, int>; // direction, from, to
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

int MemoryPlanner::edgeOf(bool gradient, int from, int to) const {
  const auto direction = gradient ? pdcrt::Direction::backward : pdcrt::Direction::forward;
  for (std::size_t i = 0; i < plan_.edges.size(); ++i)
    if (plan_.edges[i].direction == direction && plan_.edges[i].from == from && plan_.edges[i].to == to)
      return static_cast<int>(i);
  return -1;
}

Place MemoryPlanner::takeEdge(int edge, const Value* value) {
  return {Block::edge, edge, edgeBlocks_[static_cast<std::size_t>(edge)].take(value->type().bytes())};
}

void MemoryPlanner::placeInputs() {
  for (const GraphInput& input : training_.inputs) {
    Place place;
    if (input.kind == InputKind::received) {
      place = takeEdge(edgeOf(input.gradient, input.peer, options_.stage), input.value);
      plan_.ports.push_back({place.edge, input.value, place.offset});
    } else {
      place = {Block::slot, -1, slot_.take(input.value->type().bytes())};
      plan_.data.push_back({input.value, input.kind == InputKind::label,
                            isFloat(input.value->type().element) ? 0
                            : input.classes > 0                  ? input.classes
                                                                 : choicesOf(input.value),
                            place.offset});
      // The slot is read until the minibatch before is done: data that comes while a GPU computes waits elsewhere.
      const bool ofDataSet = input.kind == InputKind::data || input.kind == InputKind::label;
      if (options_.target == Target::cuda && ofDataSet) dataStaging_.take(input.value->type().bytes());
    }
    addBuffer(plan_.training, input.value, place);
  }
}

/// The first use of another stage's parameter that has no accumulator yet; uses come in program order.
PlacedSharedUse& MemoryPlanner::nextSharedUse(const Parameter* parameter) {
  const PlacedSharedValue* value = received(parameter);
  return *std::find_if(plan_.sharedUses.begin(), plan_.sharedUses.end(), [&](const PlacedSharedUse& use) {
    return &plan_.sharedValues[static_cast<std::size_t>(use.value)] == value && use.gradient < 0;
  });
}

/// The place of `root` in the slot, which it gets now if it has none.
Place MemoryPlanner::slotPlace(const Value* root) {
  if (const Buffer* buffer = plan_.training.find(root); buffer && buffer->place.block == Block::slot)
    return buffer->place;
  auto [it, isNew] = inSlot_.try_emplace(root);
  if (isNew) it->second = {Block::slot, -1, slot_.take(root->type().bytes())};
  return it->second;
}

/// Whether the gradient is the only one of its parameter, and a temporary.
bool MemoryPlanner::updatesEarly(const GraphOutput& gradient) const {
  const Parameter* parameter = gradient.parameter;
  const Operation* definer = storageOf(gradient.value)->definer();
  if (!options_.earlyUpdates || options_.splitBackward || !definer || definer->phase == Phase::forward) return false;
  const bool shared = std::any_of(plan_.sharedValues.begin(), plan_.sharedValues.end(),
                                  [&](const PlacedSharedValue& value) { return value.parameter == parameter; });
  return gradientUses_.at(parameter) == 1 && outputsOf_.at(storageOf(gradient.value)) == 1 && !shared &&
         definer->def().kind != OpKind::constant;
}

void MemoryPlanner::placeWhatLeaves() {
  for (const GraphOutput& output : training_.outputs) {
    ++outputsOf_[storageOf(output.value)];
    if (output.kind == OutputKind::gradient) ++gradientUses_[output.parameter];
  }
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
    case OutputKind::term:
    case OutputKind::load:
    case OutputKind::prediction:
    case OutputKind::result: {
      const bool ofTraining = output.kind == OutputKind::loss || output.kind == OutputKind::term;
      if (!ofTraining && !options_.keepResults) break; // a prediction is read after an evaluate only
      const Place place = slotPlace(root);
      pins_.push_back({root, place, ProgramPhase::forward});
      plan_.outputs.push_back({ofTraining ? output.kind : OutputKind::prediction,
                               output.name.empty() ? output.value->name() : output.name, output.value, place.offset,
                               output.part});
      break;
    }
    case OutputKind::gradient: {
      if (updatesEarly(output)) {
        plan_.earlyUpdates.push_back({parameterIndex(output.parameter), output.value, nullptr});
        break;
      }
      const Place place{Block::gradients, -1, gradients_.take(output.value->type().bytes())};
      pins_.push_back({root, place, ProgramPhase::backwardWeight});
      const bool withInput = root->definer() && plan_.phaseOf(*root->definer()) == ProgramPhase::backwardInput;
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

/// Values of forward that backward reads are kept in the slot: those first that backward is done with first, which are
/// mostly made last. So the free part of the slot, behind what leaves, is in one piece in both directions. In program
/// order where the slot is all there is, so that what comes and goes lies above them, and where the halves of the
/// backward run apart: most of them stay to the end there.
void MemoryPlanner::placeSaved() {
  const Timeline& timeline = plan_.training.timeline;
  std::unordered_map<const Value*, int> lastRead; // of what is saved
  for (const Operation* operation : timeline.operations)
    if (operation->phase != Phase::forward)
      for (const Value* operand : operation->operands())
        if (operand) lastRead[storageOf(operand)] = timeline.positions.at(operation);
  for (const Pin& pin : pins_)
    if (pin.phase != ProgramPhase::forward) lastRead[pin.root] = timeline.end;
  std::vector<const Value*> saved;
  for (const auto& operation : training_.operations())
    if (operation->phase == Phase::forward && operation->def().kind != OpKind::constant)
      for (const Value* result : operation->results())
        if (result && lastRead.contains(result)) saved.push_back(result);
  if (!options_.oneSlot && !plan_.splitBackward)
    std::stable_sort(saved.begin(), saved.end(),
                     [&](const Value* a, const Value* b) { return lastRead.at(a) < lastRead.at(b); });
  for (const Value* value : saved) slotPlace(value);
}

/// What backward_weight reads of what backward_input has made. Between the two there may be other minibatches, which
/// overwrite scratch, gradients that have left, and gradients of parameters: those get a copy.
void MemoryPlanner::findHandedOver() {
  if (!plan_.splitBackward) return;
  for (const auto& operation : training_.operations()) {
    if (operation->phase != Phase::weightGradient || operation->def().kind == OpKind::view) continue;
    for (const Value* operand : operation->operands()) {
      if (!operand) continue;
      const Value* root = storageOf(operand);
      if (root->definer() && root->definer()->phase == Phase::inputGradient) handedOver_.insert(root);
    }
  }
}
