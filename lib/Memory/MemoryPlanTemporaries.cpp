// What lives inside a phase: when, how large, where.
#include "MemoryPlanner.h"

#include "pdc/Memory/KernelThreads.h"

#include <algorithm>
#include <stdexcept>

using namespace pdc;

/// What has learnt the workspace of the kernel.
static Expected<pdcrt::Setup> constructed(const KernelUse& use, const Operation& operation, Target target, int threads,
                                          Diagnostics& diags) {
  const KernelThreads scope(threads);
  pdcrt::Setup setup = target == Target::cuda ? pdcrt::Setup::forCuda() : pdcrt::Setup();
  try {
    use.construct(setup);
  } catch (const std::exception& e) {
    diags.error(operation.location) << "the kernel of '" << operation.def().name << "' cannot be built: " << e.what();
    return failure;
  }
  return setup;
}

Expected<std::int64_t> pdc::workspaceOf(const std::vector<const Operation*>& operations, Target target, int threads,
                                        Diagnostics& diags) {
  std::int64_t most = 0;
  for (const Operation* operation : operations) {
    if (!operation->def().kernel.use) continue;
    const KernelUse use = operation->def().kernel.use(*operation);
    const Expected<pdcrt::Setup> setup = constructed(use, *operation, target, threads, diags);
    if (!setup) return failure;
    most = std::max(most, static_cast<std::int64_t>(setup->workspaceBytes(use.method)));
  }
  return most;
}

Timeline pdc::timelineOf(const Graph& graph, bool splitBackward) {
  Timeline timeline;
  auto add = [&](auto belongs) {
    for (const auto& operation : graph.operations()) {
      const OpKind kind = operation->def().kind;
      if (kind == OpKind::view || kind == OpKind::constant || !belongs(operation->phase)) continue;
      timeline.operations.push_back(operation.get());
      timeline.positions[operation.get()] = static_cast<int>(timeline.operations.size());
    }
    return static_cast<int>(timeline.operations.size()) + 1;
  };
  timeline.backward = add([](Phase phase) { return phase == Phase::forward; });
  timeline.weights = add(
      [&](Phase phase) { return phase == Phase::inputGradient || (phase == Phase::weightGradient && !splitBackward); });
  timeline.end = add([&](Phase phase) { return phase == Phase::weightGradient && splitBackward; });
  return timeline;
}

/// From the operation that makes a value to the last one that reads it. What an evaluation is given, and all that has a
/// place where the runtime looks for it, stays to the end.
void MemoryPlanner::findLifetimes(GraphMemory& memory) {
  const Timeline& timeline = memory.timeline;
  auto bufferOf = [&](const Value* value) -> Buffer* {
    auto it = memory.index.find(value);
    return it == memory.index.end() ? nullptr : &memory.buffers[it->second];
  };
  int position = 0;
  for (const Operation* operation : timeline.operations) {
    ++position;
    for (const Value* operand : operation->operands())
      if (Buffer* buffer = operand ? bufferOf(operand) : nullptr) buffer->last = std::max(buffer->last, position);
    for (const Value* result : operation->results())
      if (Buffer* buffer = result ? bufferOf(result) : nullptr) {
        buffer->first = position;
        buffer->last = std::max(buffer->last, position);
      }
  }
  const bool training = &memory == &plan_.training;
  for (const Pin& pin : training ? pins_ : evaluationPins_)
    if (Buffer* buffer = bufferOf(pin.root); buffer && buffer->place == pin.place) buffer->last = timeline.end;
  for (const Copy& copy : plan_.copies)
    if (Buffer* buffer = bufferOf(copy.value); buffer && !copy.after) buffer->last = timeline.end;
  for (Buffer& buffer : memory.buffers)
    if (buffer.place.block == Block::slot && !training) buffer.last = timeline.end;
  // A copy fills its place in the slot at once, or at the beginning of a phase: nothing else may ever be there.
  for (const Pin& pin : training ? pins_ : evaluationPins_)
    if (const Buffer* buffer = bufferOf(pin.root); pin.place.block == Block::slot && buffer->place != pin.place)
      memory.copied.push_back({nullptr, pin.place, buffer->bytes, 0, timeline.end, false});
}

/// Of a part of what `operation` makes, if it is better made in parts; 0: it is not.
static std::int64_t partBytes(const Operation& operation) {
  return operation.def().kernel.use ? operation.def().kernel.use(operation).partBytes : 0;
}

/// A parameter is updated when its gradient is there and nothing reads its old value any more: the new one may lie in
/// its place. If nothing does while the gradient is made, each part of it can be used up at once.
void MemoryPlanner::timeEarlyUpdates() {
  const Timeline& timeline = plan_.training.timeline;
  std::unordered_map<const Value*, int> lastRead; // of parameters
  int position = 0;
  for (const Operation* operation : timeline.operations) {
    ++position;
    for (const Value* operand : operation->operands())
      if (operand && storageOf(operand)->parameter()) lastRead[storageOf(operand)] = position;
  }
  for (EarlyUpdate& update : plan_.earlyUpdates) {
    Buffer& gradient = plan_.training.buffers[plan_.training.index.at(update.gradient)];
    const Parameter* parameter = plan_.parameters[static_cast<std::size_t>(update.parameter)].parameter;
    for (const Value* value : training_.parameterValues())
      if (auto read = lastRead.find(value); value->parameter() == parameter && read != lastRead.end())
        gradient.last = std::max(gradient.last, read->second);
    update.after = timeline.operations[static_cast<std::size_t>(gradient.last) - 1];
    if (!options_.gradientsInParts || update.after->result(0) != gradient.value) continue;
    if (const std::int64_t bytes = partBytes(*update.after); bytes > 0) {
      gradient.bytes = bytes;
      update.inParts = true;
    }
  }
}

/// The workspace of each kernel call, as much as its method asks for. Kernels that are equal are asked once.
Status MemoryPlanner::addWorkspaces(GraphMemory& memory) {
  for (const Operation* operation : memory.timeline.operations) {
    if (!operation->def().kernel.use) continue;
    const KernelUse use = operation->def().kernel.use(*operation);
    const std::string key = use.className + "\n" + use.options;
    auto known = kernelSetups_.find(key);
    if (known == kernelSetups_.end()) {
      const Expected<pdcrt::Setup> setup = constructed(use, *operation, options_.target, options_.threads, diags_);
      if (!setup) return failure;
      known = kernelSetups_.emplace(key, *setup).first;
    }
    const bool inParts = &memory == &plan_.training && plan_.takerOfParts(*operation);
    const std::string& method = inParts ? use.partsMethod : use.method;
    const auto bytes = static_cast<std::int64_t>(known->second.workspaceBytes(method));
    const int position = memory.timeline.positions.at(operation);
    if (bytes > 0) memory.workspaces[operation] = {nullptr, {Block::scratch, -1, 0}, bytes, position, position, true};
  }
  return success;
}

/// First values, then workspaces: how large these are depends on the processor, and the places of values should not.
void MemoryPlanner::placeTemporaries(GraphMemory& memory) {
  std::vector<Buffer*> values, workspaces;
  std::vector<const Buffer*> kept;
  for (Buffer& buffer : memory.buffers)
    if (buffer.temporary)
      values.push_back(&buffer);
    else if (buffer.place.block == Block::slot)
      kept.push_back(&buffer);
  for (const Buffer& buffer : memory.copied) kept.push_back(&buffer);
  for (const Operation* operation : memory.timeline.operations)
    if (auto it = memory.workspaces.find(operation); it != memory.workspaces.end()) workspaces.push_back(&it->second);
  const TemporaryBytes bytes = placeByLifetime(values, workspaces, kept, slotBytes_, options_.oneSlot);
  scratchBytes_ = std::max(scratchBytes_, bytes.scratch);
  handoverBytes_ = std::max(handoverBytes_, bytes.handover);
}

static bool hasLifetime(const Buffer& buffer) {
  const Block block = buffer.place.block;
  return block == Block::slot || block == Block::handover || block == Block::scratch;
}

/// The bytes that are alive at each position of the timeline.
static std::vector<std::int64_t> liveBytes(const GraphMemory& memory) {
  std::vector<std::int64_t> change(static_cast<std::size_t>(memory.timeline.end) + 2, 0);
  auto count = [&](const Buffer& buffer) {
    if (!hasLifetime(buffer)) return;
    change[static_cast<std::size_t>(buffer.first)] += buffer.bytes;
    change[static_cast<std::size_t>(buffer.last) + 1] -= buffer.bytes;
  };
  for (const Buffer& buffer : memory.buffers) {
    count(buffer);
    if (!buffer.replaces) continue;
    change[static_cast<std::size_t>(buffer.first)] -= buffer.bytes; // the two may be the same bytes
    change[static_cast<std::size_t>(buffer.first) + 1] += buffer.bytes;
  }
  for (const Buffer& buffer : memory.copied) count(buffer);
  for (const auto& [operation, buffer] : memory.workspaces) count(buffer);
  for (std::size_t i = 1; i < change.size(); ++i) change[i] += change[i - 1];
  return change;
}

/// Bytes that are alive before `position` and still at it.
static std::int64_t aliveAcross(const GraphMemory& memory, int position) {
  std::int64_t bytes = 0;
  auto count = [&](const Buffer& buffer) {
    if (hasLifetime(buffer) && buffer.first < position && buffer.last >= position) bytes += buffer.bytes;
  };
  for (const Buffer& buffer : memory.buffers) count(buffer);
  for (const Buffer& buffer : memory.copied) count(buffer);
  return bytes;
}

/// What others send may arrive while a kernel makes what this member sends, where the bytes for it are free: time is
/// not bought with memory.
void MemoryPlanner::followMakers(GraphMemory& memory) {
  std::vector<std::int64_t> live = liveBytes(memory);
  const std::int64_t peak = *std::max_element(live.begin(), live.end());
  for (const Operation* operation : memory.timeline.operations) {
    const Operation* const sender =
        operation->def().kernel.use ? operation->def().kernel.use(*operation).sender : nullptr;
    if (!sender) continue;
    Buffer& arriving = memory.buffers[memory.index.at(sender->result())];
    const int from = memory.timeline.positions.at(operation);
    const auto begin = live.begin() + from, end = live.begin() + arriving.first;
    if (std::any_of(begin, end, [&](std::int64_t bytes) { return bytes + arriving.bytes > peak; })) continue;
    std::for_each(begin, end, [&](std::int64_t& bytes) { bytes += arriving.bytes; });
    arriving.first = from;
    memory.followed.emplace(operation, sender);
  }
}

void MemoryPlanner::countLiveBytes() {
  const Timeline& timeline = plan_.training.timeline;
  const std::vector<std::int64_t> training = liveBytes(plan_.training);
  plan_.live.peak = *std::max_element(training.begin(), training.end());
  plan_.live.stashed = aliveAcross(plan_.training, timeline.backward);
  if (plan_.splitBackward) plan_.live.handed = aliveAcross(plan_.training, timeline.weights);
  const std::vector<std::int64_t> evaluation = liveBytes(plan_.evaluation);
  plan_.live.evaluation = *std::max_element(evaluation.begin(), evaluation.end());
}
