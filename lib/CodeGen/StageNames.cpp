// Fixed places first (what the tables name), then the results of operations in program order.
#include "StageNames.h"

#include <algorithm>

using namespace pdc;

namespace {

std::tuple<Block, int, std::int64_t> keyOf(const Place& place) {
  return {place.block, place.edge, place.offset};
}

} // namespace

StageNames::StageNames(const StageProgram& program) {
  const MemoryPlan& memory = *program.memory;
  Identifiers weightNames, stateNames, gradientNames;
  for (const PlacedParameter& p : memory.parameters)
    nameFixed(weights, 'w', weightNames, p.parameter->name, {blockOf(*p.parameter), -1, p.offset}, p.type,
              p.parameter->name, true);
  for (const PlacedParameter& p : memory.states)
    nameFixed(state, 'r', stateNames, p.parameter->name, {Block::state, -1, p.offset}, p.type, p.parameter->name);
  for (const PlacedGradient& g : memory.gradients) {
    const PlacedParameter& placed = memory.parameters[static_cast<std::size_t>(g.parameter)];
    nameFixed(gradients, 'g', gradientNames, placed.parameter->name, {Block::gradients, -1, g.offset}, placed.type,
              placed.parameter->name);
  }
  for (const PlacedData& d : memory.data)
    nameFixed(slot, 's', slotNames_, d.value->name(), {Block::slot, -1, d.offset}, d.value->type(),
              d.value->name() + (d.label ? ", label" : ", input"));
  for (const PlacedSharedUse& use : memory.sharedUses) {
    const PlacedSharedValue& value = memory.sharedValues[static_cast<std::size_t>(use.value)];
    const pdcrt::SharedRow& row = memory.shared[static_cast<std::size_t>(value.shared)];
    if (row.user != program.index) continue;
    const std::string comment = value.parameter->name + ", of stage " + std::to_string(row.owner);
    nameFixed(slot, 's', slotNames_, value.parameter->name, {Block::shared, value.shared, value.offset}, value.type,
              comment, true);
    nameFixed(gradients, 'g', gradientNames, value.parameter->name, {Block::gradients, -1, use.gradient}, value.type,
              comment);
  }
  namePorts(program);
  nameOutputs(memory, memory.training);
  nameResults(memory.training, false);
  // Predictions lie where training has something else: named now, they do not take the place of its names.
  nameOutputs(memory, memory.evaluation);
  nameResults(memory.evaluation, true);
}

std::string pdc::wordOf(OutputKind output) {
  switch (output) {
  case OutputKind::loss: return "loss";
  case OutputKind::term: return "term";
  case OutputKind::load: return "load";
  default: return "prediction";
  }
}

/// What the runtime reads of the graph that `graph` is the memory of.
void StageNames::nameOutputs(const MemoryPlan& memory, const GraphMemory& graph) {
  for (const PlacedOutput& output : memory.outputs)
    if (graph.find(output.value))
      nameFixed(slot, 's', slotNames_, wordOf(output.kind), {Block::slot, -1, output.offset}, output.value->type(),
                output.name);
}

void StageNames::nameFixed(std::vector<ViewMember>& members, char view, Identifiers& names, const std::string& hint,
                           const Place& place, const Type& type, const std::string& comment, bool readOnly) {
  auto [it, isNew] = fixed_.try_emplace(keyOf(place));
  if (!isNew) return;
  const std::string name = names.unique(hint);
  it->second = std::string(1, view) + "." + name;
  members.push_back({name, place, type, comment, readOnly});
}

/// What comes from other stages, and what leaves to them.
void StageNames::namePorts(const StageProgram& program) {
  int received = 0, receivedGradients = 0, sentGradients = 0;
  for (const PlacedPort& port : program.memory->ports) {
    const pdcrt::EdgeRow& edge = program.memory->edges[static_cast<std::size_t>(port.edge)];
    const bool arrives = edge.to == program.index;
    const bool forward = edge.direction == pdcrt::Direction::forward;
    const std::string what =
        (arrives ? "from stage " + std::to_string(edge.from) : "to stage " + std::to_string(edge.to));
    const Place place{forward && !arrives ? Block::slot : Block::edge, forward && !arrives ? -1 : port.edge,
                      port.offset};
    std::string hint;
    if (forward)
      hint = arrives ? "in" + std::to_string(received++) : "a" + std::to_string(activations_++);
    else
      hint = arrives ? "gin" + std::to_string(receivedGradients++) : "gout" + std::to_string(sentGradients++);
    nameFixed(slot, 's', slotNames_, hint, place, port.value->type(), port.value->name() + ", " + what);
  }
}

/// One table for all constants with the same elements: the angles of rotary positions are those of every layer.
const std::string& StageNames::nameOfTable(const Operation& constant) {
  const auto& tensor = constant.attributes.get<Tensor>("value");
  const std::span<const std::byte> bytes = tensor.bytes();
  for (const ConstantTable& table : constants) {
    const auto& other = table.operation->attributes.get<Tensor>("value");
    if (other.type().element == tensor.type().element && std::ranges::equal(other.bytes(), bytes)) return table.name;
  }
  return constants.emplace_back("constant" + std::to_string(constants.size()), &constant).name;
}

/// Members for what operations compute: in scratch, saved in the slot, or left in the handover.
void StageNames::nameResults(const GraphMemory& memory, bool evaluation) {
  struct View {
    std::vector<ViewMember>& members;
    Identifiers& names;
    std::string prefix;
  };
  View inSlot{slot, slotNames_, "s."}, inHandover{handover, handoverNames_, "h."},
      inScratch{scratch, scratchNames_, "t."};
  for (const Buffer& buffer : memory.buffers) {
    const Operation* definer = buffer.value->definer();
    if (!definer) continue;
    if (buffer.place.block == Block::constant) {
      references_[buffer.value] = "k." + nameOfTable(*definer) + ".view";
      continue;
    }
    const Block block = buffer.place.block;
    // A place that is shared by lifetime has a member for each value. So has one in the slot where evaluate has another
    // value than training.
    if (!buffer.temporary && fixed_.contains(keyOf(buffer.place))) continue;
    std::string hint;
    if (evaluation)
      hint = "e" + std::to_string(evaluated_++);
    else if (definer->phase == Phase::forward)
      hint = "a" + std::to_string(activations_++);
    else
      hint = "g" + std::to_string(gradients_++);
    auto& [members, names, prefix] = block == Block::scratch    ? inScratch
                                     : block == Block::handover ? inHandover
                                                                : inSlot;
    const std::string name = names.unique(hint);
    std::string comment = definer->forwardOperation().location.node;
    if (definer->again)
      comment += ", again";
    else if (definer->phase != Phase::forward)
      comment += definer->phase == Phase::inputGradient ? ", input gradient" : ", weight gradient";
    members.push_back({name, buffer.place, buffer.value->type(), comment});
    references_[buffer.value] = prefix + name;
  }
}

std::string StageNames::reference(const GraphMemory& memory, const Value* value) const {
  const Buffer* buffer = memory.find(value);
  if (auto it = references_.find(buffer->value); it != references_.end()) return it->second;
  return reference(buffer->place);
}

std::string StageNames::reference(const Place& place) const {
  return fixed_.at(keyOf(place));
}
