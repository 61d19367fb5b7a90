// The graph of evaluations uses the places that training has for the same values.
#include "MemoryPlanner.h"

using namespace pdc;

Status MemoryPlanner::planEvaluation() {
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
    } else if (output.kind == OutputKind::prediction || output.kind == OutputKind::load) {
      const Place place = predictionPlace(root, predictions);
      evaluationPins_.push_back({root, place, ProgramPhase::evaluate});
      plan_.outputs.push_back(
          {output.kind, output.name.empty() ? output.value->name() : output.name, output.value, place.offset});
    }
  }
  slotBytes_ = pinnedSlotBytes_ + predictions.end();
  memory.timeline = timelineOf(*evaluation_, false);
  placeResults(*evaluation_, memory);
  addCopies(*evaluation_, memory);
  return success;
}

/// Where training has what an input of the evaluation graph stands for: the input of the same name, else the same in
/// order among those of that edge.
std::optional<Place> MemoryPlanner::placeInTraining(const GraphInput& input,
                                                    std::map<std::pair<int, bool>, std::size_t>& seen) const {
  const GraphInput* match = nullptr;
  std::size_t position = 0;
  const std::size_t wanted = seen[{input.peer, input.kind == InputKind::received}]++;
  for (const GraphInput& candidate : training_.inputs) {
    const bool received = candidate.kind == InputKind::received;
    if (received != (input.kind == InputKind::received) || candidate.peer != input.peer || candidate.gradient) continue;
    if (candidate.value->name() == input.value->name()) {
      match = &candidate;
      break;
    }
    if (received && position++ == wanted) match = &candidate;
  }
  if (!match) return std::nullopt;
  return plan_.training.find(match->value)->place;
}

std::optional<Place> MemoryPlanner::sentPlace(const GraphOutput& output, std::size_t position) const {
  const int edge = edgeOf(false, options_.stage, output.peer);
  std::optional<Place> place;
  for (const PlacedPort& port : plan_.ports) {
    if (port.edge != edge) continue;
    if (port.value->name() == output.value->name()) return Place{Block::slot, -1, port.offset};
    if (position-- == 0) place = Place{Block::slot, -1, port.offset};
  }
  return place;
}

Place MemoryPlanner::lossPlace(std::size_t position, const Value* root, Bump& predictions) const {
  for (const PlacedOutput& output : plan_.outputs)
    if (output.kind == OutputKind::loss && position-- == 0) return {Block::slot, -1, output.offset};
  return {Block::slot, -1, pinnedSlotBytes_ + predictions.take(root->type().bytes())};
}

Place MemoryPlanner::predictionPlace(const Value* root, Bump& predictions) const {
  for (const Pin& pin : evaluationPins_)
    if (pin.root == root) return pin.place; // it leaves anyway
  if (const Buffer* input = plan_.evaluation.find(root); input && input->place.block == Block::slot)
    return input->place;
  return {Block::slot, -1, pinnedSlotBytes_ + predictions.take(root->type().bytes())};
}
