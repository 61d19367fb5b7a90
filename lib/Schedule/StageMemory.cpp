#include "pdc/Schedule/StageMemory.h"

#include "pdcrt/Arena.h"

using namespace pdc;

StageBytes pdc::inShards(const StageBytes& bytes, int owners) {
  StageBytes own = bytes;
  own.parameters = own.gradients = (bytes.parameters + owners - 1) / owners;
  return own;
}

StageFrame pdc::frameOf(const pdcrt::Schedule& schedule, int stage) {
  const pdcrt::ScheduleStage& at = schedule.stages[static_cast<std::size_t>(stage)];
  const pdcrt::GradientSets sets = pdcrt::gradientSets(schedule, stage);
  return {.versions = at.versions,
          .gradientSets = sets.ring + (sets.spare ? 1 : 0),
          .depths = {.slots = at.slots, .handovers = at.handovers}};
}

std::int64_t pdc::ringBytes(const pdcrt::Schedule& schedule, const std::vector<EdgeTraffic>& traffic, int stage) {
  std::int64_t bytes = 0;
  for (const EdgeTraffic& edge : traffic) {
    const int index = schedule.edgeBetween(edge.edge.from, edge.edge.to);
    if (index < 0) continue;
    const pdcrt::EdgeRings& rings = schedule.rings[static_cast<std::size_t>(index)];
    if (edge.edge.to == stage)
      bytes += edge.forwardBytes * rings.forwardReceive + edge.backwardBytes * rings.backwardSend;
    if (edge.edge.from == stage) bytes += edge.backwardBytes * rings.backwardReceive;
  }
  return bytes;
}
