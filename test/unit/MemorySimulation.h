// The memory plan of a stage, executed: a memory that remembers which value was written where.
#pragma once

#include "pdc/Memory/MemoryPlan.h"
#include "pdc/Ops/AllOps.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>

namespace pdc {

/// All ops.
inline const OpRegistry& registry() {
  static const OpRegistry* ops = [] {
    auto* made = new OpRegistry;
    registerAllOps(*made);
    return made;
  }();
  return *ops;
}

/// Who wrote each 64 bytes last.
class SimulatedMemory {
public:
  void write(const Place& place, std::int64_t bytes, const Value* value) {
    for (std::int64_t at = place.offset; at < place.offset + bytes; at += 64)
      owner_[{place.block, place.edge, at}] = value;
  }
  bool holds(const Place& place, std::int64_t bytes, const Value* value) const {
    for (std::int64_t at = place.offset; at < place.offset + bytes; at += 64) {
      auto it = owner_.find({place.block, place.edge, at});
      if (it == owner_.end() || it->second != value) return false;
    }
    return true;
  }
  void forget(Block block) {
    std::erase_if(owner_, [&](const auto& entry) { return std::get<0>(entry.first) == block; });
  }

private:
  std::map<std::tuple<Block, int, std::int64_t>, const Value*> owner_;
};

/// Runs the phases on a SimulatedMemory and returns what went wrong first.
class Simulation {
public:
  explicit Simulation(const MemoryPlan& plan) : plan_(plan) {}

  std::string train(const Graph& graph) {
    begin(plan_.training);
    for (ProgramPhase phase : {ProgramPhase::forward, ProgramPhase::backwardInput, ProgramPhase::backwardWeight}) {
      runPhase(graph, plan_.training, phase);
      checkGradients(phase);
      checkOutputs(phase, plan_.training);
      forgetWhatOthersOverwrite();
    }
    if (updates_ != plan_.earlyUpdates.size()) fail("some parameters are not updated");
    return wrong_;
  }

  std::string evaluate(const Graph& graph) {
    memory_ = {};
    begin(plan_.evaluation);
    runPhase(graph, plan_.evaluation, ProgramPhase::evaluate);
    checkOutputs(ProgramPhase::evaluate, plan_.evaluation);
    return wrong_;
  }

  /// Results that had an operand's place.
  std::size_t inPlace() const { return inPlace_; }

private:
  void begin(const GraphMemory& memory) {
    for (const Buffer& buffer : memory.buffers)
      if (!buffer.value->definer()) memory_.write(buffer.place, buffer.bytes, buffer.value);
  }

  void runPhase(const Graph& graph, const GraphMemory& memory, ProgramPhase phase) {
    copy(phase, nullptr, memory);
    for (const auto& operation : graph.operations()) {
      const OpKind kind = operation->def().kind;
      const bool here = phase == ProgramPhase::evaluate || plan_.phaseOf(*operation) == phase;
      if (!here || kind == OpKind::view || kind == OpKind::constant) continue;
      // What is sent while it is made arrives meanwhile.
      const auto followed = memory.followed.find(operation.get());
      const Value* const arriving = followed == memory.followed.end() ? nullptr : followed->second->result();
      if (arriving) write(memory, arriving);
      for (const Value* operand : operation->operands())
        if (operand) read(memory, operand);
      for (const Value* result : operation->results())
        if (result) write(memory, result);
      // Neither results nor the workspace may lie on an operand, nor the workspace on a result; but results may have
      // the very places of operands that the op says they may replace.
      const std::set<const Buffer*> replaced = replacedBy(*operation, memory);
      if (auto it = memory.workspaces.find(operation.get()); it != memory.workspaces.end()) {
        inside(it->second, "the workspace of " + operation->def().name);
        memory_.write(it->second.place, it->second.bytes, nullptr);
      }
      for (const auto* values : {&operation->operands(), &operation->results()})
        for (const Value* value : *values)
          if (value && !value->parameter() && !replaced.contains(memory.find(value))) read(memory, value);
      if (arriving) read(memory, arriving);
      copy(phase, operation.get(), memory);
      for (const EarlyUpdate& update : plan_.earlyUpdates)
        if (phase != ProgramPhase::evaluate && update.after == operation.get()) updateEarly(memory, update);
    }
  }

  /// The operands whose places results take.
  std::set<const Buffer*> replacedBy(const Operation& operation, const GraphMemory& memory) {
    std::set<const Buffer*> all;
    for (std::size_t r = 0; r < operation.results().size(); ++r) {
      const Value* result = operation.result(r);
      const Buffer* buffer = result ? memory.find(result) : nullptr;
      if (!buffer || !buffer->replaces || memory.find(buffer->replaces)->place != buffer->place) continue;
      const Buffer* replaced = memory.find(buffer->replaces);
      if (!all.insert(replaced).second) fail("two results are in place of one operand");
      if (replaced->bytes != buffer->bytes) fail("%" + result->name() + " has another size than the operand");
      for (std::size_t i = 0; i < operation.operands().size(); ++i) {
        const Value* operand = operation.operand(i);
        if (!operand || memory.find(operand) != replaced) continue;
        if (operand->type() != result->type()) fail("%" + result->name() + " has other elements than the operand");
        if (!isReplaceable(operation, i, r)) fail("%" + result->name() + " overwrites an operand that is still read");
      }
    }
    inPlace_ += all.size();
    return all;
  }

  static bool isReplaceable(const Operation& operation, std::size_t operand, std::size_t result) {
    if (operation.def().kind == OpKind::elementwise) return result + 1 == operation.results().size();
    const auto& pairs = operation.def().kernel.replaceable;
    return std::any_of(pairs.begin(), pairs.end(),
                       [&](const Replaceable& pair) { return pair.operand == operand && pair.result == result; });
  }

  /// The gradient is there; from now on the parameter is another.
  void updateEarly(const GraphMemory& memory, const EarlyUpdate& update) {
    read(memory, update.gradient);
    const PlacedParameter& placed = plan_.parameters[static_cast<std::size_t>(update.parameter)];
    memory_.write({blockOf(*placed.parameter), -1, placed.offset}, placed.parameter->type.bytes(), nullptr);
    ++updates_;
  }

  void read(const GraphMemory& memory, const Value* value) {
    const Buffer* buffer = memory.find(value);
    if (buffer->place.block != Block::constant) expect(buffer->place, buffer->bytes, buffer->value, "an operand");
  }
  void write(const GraphMemory& memory, const Value* value) {
    const Buffer* buffer = memory.find(value);
    memory_.write(buffer->place, buffer->bytes, buffer->value);
    inside(*buffer, "%" + value->name());
  }
  void inside(const Buffer& buffer, const std::string& what) {
    const std::map<Block, std::size_t> sizes = {{Block::slot, plan_.bytes.slot},
                                                {Block::handover, plan_.bytes.handover},
                                                {Block::scratch, plan_.bytes.scratch}};
    const auto size = sizes.find(buffer.place.block);
    if (size != sizes.end() && buffer.place.offset + buffer.bytes > static_cast<std::int64_t>(size->second))
      fail(what + " does not fit into its block");
    if (buffer.place.offset % 64 != 0) fail(what + " is not aligned");
  }
  void copy(ProgramPhase phase, const Operation* after, const GraphMemory& memory) {
    for (const Copy& copy : plan_.copies)
      if (copy.phase == phase && copy.after == after) {
        read(memory, copy.value);
        memory_.write(copy.to, copy.value->type().bytes(), storageOf(copy.value));
      }
  }
  /// Another minibatch may come between any two phases: scratch, gradients of parameters, and gradients that have left
  /// may be overwritten.
  void forgetWhatOthersOverwrite() {
    memory_.forget(Block::scratch);
    memory_.forget(Block::gradients);
    for (const PlacedPort& port : plan_.ports)
      if (const auto& edge = plan_.edges[static_cast<std::size_t>(port.edge)];
          edge.direction == pdcrt::Direction::backward && edge.from == plan_.stage)
        memory_.write({Block::edge, port.edge, port.offset}, port.value->type().bytes(), nullptr);
  }
  /// The gradients that `phase` has written.
  void checkGradients(ProgramPhase phase) {
    for (const PlacedGradient& g : plan_.gradients)
      if (phase == (g.withInput ? ProgramPhase::backwardInput : ProgramPhase::backwardWeight))
        expect({Block::gradients, -1, g.offset}, g.value, "a gradient");
  }
  /// What `phase` sends, and what the runtime reads after it.
  void checkOutputs(ProgramPhase phase, const GraphMemory& memory) {
    for (const PlacedPort& port : plan_.ports)
      if (memory.find(port.value) && plan_.edges[static_cast<std::size_t>(port.edge)].from == plan_.stage) {
        const bool forward = plan_.edges[static_cast<std::size_t>(port.edge)].direction == pdcrt::Direction::forward;
        if (forward ? phase == ProgramPhase::backwardInput : phase != ProgramPhase::backwardInput) continue;
        expect({forward ? Block::slot : Block::edge, forward ? -1 : port.edge, port.offset}, port.value,
               "a sent value");
      }
    for (const PlacedOutput& output : plan_.outputs)
      if (memory.find(output.value)) expect({Block::slot, -1, output.offset}, output.value, "an output");
  }
  void expect(const Place& place, const Value* value, const std::string& what) {
    expect(place, value->type().bytes(), value, what);
  }
  void expect(const Place& place, std::int64_t bytes, const Value* value, const std::string& what) {
    if (!memory_.holds(place, bytes, storageOf(value))) fail(what + ", %" + value->name() + ", was overwritten");
  }
  void fail(const std::string& what) {
    if (wrong_.empty()) wrong_ = what;
  }

  const MemoryPlan& plan_;
  SimulatedMemory memory_;
  std::string wrong_;
  std::size_t updates_ = 0, inPlace_ = 0;
};

} // namespace pdc
