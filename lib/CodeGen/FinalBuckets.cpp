#include "FinalBuckets.h"

#include <algorithm>

using namespace pdc;

std::map<const Parameter*, int> pdc::bucketsOfParameters(const StageProgram& program) {
  std::map<const Parameter*, int> buckets;
  for (const auto& operation : program.training->operations())
    for (const Value* operand : operation->operands()) {
      if (!operand || !operand->parameter()) continue;
      const auto group = static_cast<std::size_t>(std::max(operation->group, 0));
      buckets.emplace(operand->parameter(), program.buckets.empty() ? 0 : program.buckets[group]);
    }
  for (const PlacedParameter& unused : program.memory->parameters) buckets.emplace(unused.parameter, 0);
  return buckets;
}

/// The last operation that writes or reads each value's memory, as a position on the timeline.
static std::map<const Value*, int> lastUses(const StageProgram& program) {
  const Timeline& timeline = program.memory->training.timeline;
  std::map<const Value*, int> last;
  auto use = [&](const Value* value, int position) {
    if (!value) return;
    int& known = last[storageOf(value)];
    known = std::max(known, position);
  };
  for (const auto& [operation, position] : timeline.positions) {
    for (const Value* operand : operation->operands()) use(operand, position);
    for (const Value* result : operation->results()) use(result, position);
  }
  return last;
}

std::map<const Operation*, std::vector<FinalBucket>> pdc::finalBuckets(const StageProgram& program) {
  std::map<const Operation*, std::vector<FinalBucket>> result;
  if (program.replicas < 2 && !program.training->team.sums) return result;
  const MemoryPlan& memory = *program.memory;
  const Timeline& timeline = memory.training.timeline;
  struct State {
    int position = 0; ///< after which it is final; 0: unknown
    bool isHere = true;
    std::vector<const Parameter*> parameters;
  };
  std::map<int, State> buckets;
  const std::map<const Parameter*, int> bucketOf = bucketsOfParameters(program);
  const std::map<const Value*, int> last = lastUses(program);
  for (const PlacedGradient& gradient : memory.gradients) {
    const Parameter* parameter = memory.parameters[static_cast<std::size_t>(gradient.parameter)].parameter;
    State& state = buckets[bucketOf.at(parameter)];
    if (state.parameters.empty() || state.parameters.back() != parameter) state.parameters.push_back(parameter);
    // A copy into its place follows the operation that makes the value.
    const auto found = last.find(storageOf(gradient.value));
    state.isHere = state.isHere && gradient.value->definer() && found != last.end();
    if (found != last.end()) state.position = std::max(state.position, found->second);
    for (const PlacedSharedValue& shared : memory.sharedValues)
      state.isHere = state.isHere && shared.index != gradient.parameter;
  }
  int position = 0; // all replicas reduce them in this order
  for (const auto& [bucket, state] : buckets) {
    position = std::max(position, state.position);
    if (!state.isHere || position < timeline.backward) break;
    result[timeline.operations[static_cast<std::size_t>(position) - 1]].push_back({bucket, state.parameters});
  }
  return result;
}
