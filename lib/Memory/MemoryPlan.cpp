// The order in which things get their places, and the results of operations.
#include "MemoryPlanner.h"

#include <algorithm>
#include <string>

using namespace pdc;

const Value* pdc::storageOf(const Value* value) {
  while (value->definer() && value->definer()->def().kind == OpKind::view) value = value->definer()->operand(0);
  return value;
}

ProgramPhase MemoryPlan::phaseOf(const Operation& operation) const {
  if (operation.phase == Phase::forward) return ProgramPhase::forward;
  return operation.phase == Phase::weightGradient && splitBackward ? ProgramPhase::backwardWeight
                                                                   : ProgramPhase::backwardInput;
}

const EarlyUpdate* MemoryPlan::takerOfParts(const Operation& operation) const {
  for (const EarlyUpdate& update : earlyUpdates)
    if (update.inParts && update.after == &operation) return &update;
  return nullptr;
}

const Buffer* GraphMemory::find(const Value* value) const {
  auto it = index.find(value);
  return it == index.end() ? nullptr : &buffers[it->second];
}

MemoryPlanner::MemoryPlanner(const Graph& training, const Graph* evaluation, const MemoryOptions& options,
                             Diagnostics& diags)
    : training_(training), evaluation_(evaluation), options_(options), diags_(diags) {
  plan_.stage = options.stage;
  plan_.threads = options.threads;
  plan_.splitBackward = options.splitBackward;
}

Expected<MemoryPlan> MemoryPlanner::run() {
  if (!checkTypes(training_) || (evaluation_ && !checkTypes(*evaluation_)) || !checkPhases()) return failure;
  placeParameters();
  collectEdges();
  placeInputs();
  placeWhatLeaves();
  plan_.training.timeline = timelineOf(training_, plan_.splitBackward);
  placeSaved();
  findHandedOver();
  placeResults(training_, plan_.training);
  addCopies(training_, plan_.training);
  if (evaluation_ && !planEvaluation()) return failure;
  slotBytes_ = std::max(slotBytes_, slot_.end());
  for (GraphMemory* memory : {&plan_.training, &plan_.evaluation}) {
    findLifetimes(*memory);
    if (memory == &plan_.training) timeEarlyUpdates();
    findReplacements(*memory);
    if (!addWorkspaces(*memory)) return failure;
    followMakers(*memory);
    placeTemporaries(*memory);
  }
  countLiveBytes();
  finish();
  return std::move(plan_);
}

/// Refuses what no kernel computes with. `op`: whose operand or result it is, or null; `keepsHigh`: whatever else is in
/// low precision.
Status MemoryPlanner::checkType(const Value* value, const Location& location, const OpDef* op, bool keepsHigh) {
  if (!value) return success;
  const Type& type = value->type();
  const bool inDouble = type.element == ElementType::f64, inLow = isLowPrecision(type.element);
  const bool takesAll = !op || op->kind != OpKind::kernel || op->facts.moves;
  const bool takesDouble = takesAll || op->facts.takesDouble;
  const bool onCuda = options_.target == Target::cuda;
  const bool takesLow = onCuda && (takesAll || (op->facts.takesLow && !keepsHigh));
  if (isFloat(type.element) && type.element != ElementType::f32 && !(inDouble && takesDouble) && !(inLow && takesLow))
    return diags_.error(location).exit(ExitCode::unsupported).help("export the model in f32")
           << "'%" << value->name() << "' is " << toString(type) << ", the " << (onCuda ? "CUDA" : "CPU")
           << " target computes " << (op && (inDouble || onCuda) ? "'" + op->name + "' " : "") << "in f32 only";
  if (type.rank() > pdcrt::maxRank)
    return diags_.error(location).exit(ExitCode::unsupported)
           << "'%" << value->name() << "' has rank " << type.rank() << ", the limit is " << pdcrt::maxRank;
  return success;
}

Status MemoryPlanner::checkTypes(const Graph& graph) {
  for (const GraphInput& input : graph.inputs)
    if (!checkType(input.value, {}, nullptr)) return failure;
  for (const auto& operation : graph.operations()) {
    const OpDef& def = operation->def();
    for (std::size_t i = 0; i < operation->operands().size(); ++i)
      if (!checkType(operation->operand(i), operation->location, &def,
                     def.operands[std::min(i, def.operands.size() - 1)].keepsHigh))
        return failure;
    for (const Value* result : operation->results())
      if (!checkType(result, operation->location, &def)) return failure;
  }
  for (const GraphOutput& output : graph.outputs)
    if (output.kind == OutputKind::gradient && output.value->type().element != ElementType::f32)
      return diags_.error(output.parameter->location)
                 .exit(ExitCode::unsupported)
                 .help("export the model in f32, or keep the parameter as it is: --freeze")
             << "the parameter is " << toString(output.parameter->type) << ", pdc trains f32 only";
  return success;
}

/// backward_input runs before backward_weight: nothing that it computes may need a result of the latter.
Status MemoryPlanner::checkPhases() {
  for (const auto& operation : training_.operations())
    for (const Value* operand : operation->operands())
      if (operand && operand->definer() && operand->definer()->phase > operation->phase)
        return diags_.error(operation->location).exit(ExitCode::internal)
               << "'" << operation->def().name << "' of phase " << nameOf(operation->phase) << " needs '%"
               << operand->name() << "' of phase " << nameOf(operand->definer()->phase);
  return success;
}

/// Buffers for the results of operations; what lives inside a phase has no offset yet.
void MemoryPlanner::placeResults(const Graph& graph, GraphMemory& memory) {
  for (const auto& operation : graph.operations())
    for (const Value* result : operation->results()) {
      if (!result) continue;
      if (operation->def().kind == OpKind::view) {
        if (auto it = memory.index.find(storageOf(result)); it != memory.index.end()) memory.index[result] = it->second;
        continue;
      }
      Buffer& buffer = addBuffer(memory, result, placeOfResult(graph, *operation, result));
      buffer.temporary = buffer.place.block == Block::scratch || buffer.place.block == Block::handover;
    }
}

Place MemoryPlanner::placeOfResult(const Graph& graph, const Operation& operation, const Value* result) {
  if (operation.def().kind == OpKind::constant) return {Block::constant, -1, 0};
  const auto& pins = &graph == &training_ ? pins_ : evaluationPins_;
  if (&graph == &training_) {
    if (auto it = inSlot_.find(result); it != inSlot_.end()) return it->second;
    if (handedOver_.contains(result)) return {Block::handover, -1, 0};
  }
  for (const Pin& pin : pins)
    if (pin.root == result) return pin.place;
  return {Block::scratch, -1, 0};
}

void MemoryPlanner::addCopies(const Graph& graph, const GraphMemory& memory) {
  const bool training = &graph == &training_;
  for (const Pin& pin : training ? pins_ : evaluationPins_) {
    const Buffer* buffer = memory.find(pin.root);
    if (buffer->place == pin.place) continue;
    const Operation* definer = pin.root->definer();
    Copy copy{training ? pin.phase : ProgramPhase::evaluate, pin.root, nullptr, pin.place};
    if (definer && definer->def().kind != OpKind::constant) {
      const ProgramPhase made = training ? plan_.phaseOf(*definer) : ProgramPhase::evaluate;
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

void MemoryPlanner::finish() {
  auto size = [](std::int64_t bytes) { return static_cast<std::size_t>(bytes); };
  plan_.bytes = {.weights = size(weights_.end()),
                 .state = size(state_.end()),
                 .gradients = size(gradients_.end()),
                 .slot = size(slotBytes_ + (options_.oneSlot ? scratchBytes_ : 0)),
                 .handover = size(handoverBytes_),
                 .scratch = size(options_.oneSlot ? 0 : scratchBytes_),
                 .workspace = 0, // that of each call is among the temporaries
                 .dataStaging = size(dataStaging_.end()),
                 .frozen = size(frozen_.end())};
  for (std::size_t i = 0; i < plan_.edges.size(); ++i) plan_.edges[i].bytes = size(edgeBlocks_[i].end());
}

Buffer& MemoryPlanner::addBuffer(GraphMemory& memory, const Value* value, Place place) {
  memory.index[value] = memory.buffers.size();
  return memory.buffers.emplace_back(Buffer{value, place, value->type().bytes(), 0, 0, false});
}

int MemoryPlanner::parameterIndex(const Parameter* parameter) const {
  for (std::size_t i = 0; i < plan_.parameters.size(); ++i)
    if (plan_.parameters[i].parameter == parameter) return static_cast<int>(i);
  return -1;
}

std::int64_t MemoryPlanner::stateOffset(const Parameter* parameter) const {
  for (const PlacedParameter& state : plan_.states)
    if (state.parameter == parameter) return state.offset;
  return 0;
}

Expected<MemoryPlan> pdc::planMemory(const Graph& training, const Graph* evaluation, const MemoryOptions& options,
                                     Diagnostics& diags) {
  return MemoryPlanner(training, evaluation, options, diags).run();
}
