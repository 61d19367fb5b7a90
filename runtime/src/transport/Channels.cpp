// Numbers one after the other: control is 0.
#include "Channels.h"

#include "base/Index.h"

#include <algorithm>

namespace pdcrt {
namespace {

int firstOfEdge(const Schedule& schedule, int edge) {
  int channel = allReduceChannel(static_cast<int>(schedule.stages.size()));
  for (int before = 0; before < edge; ++before) {
    const ScheduleEdge& ends = schedule.edges[index(before)];
    channel += 2 * replicasOf(schedule, ends.from) * replicasOf(schedule, ends.to);
  }
  return channel;
}

} // namespace

int replicasOf(const Schedule& schedule, int stage) {
  return schedule.stages[index(stage)].replicas;
}

int allReduceChannel(int stage) {
  return 1 + 2 * stage;
}

int edgeChannel(const Schedule& schedule, int edge, Direction direction, int lowReplica, int highReplica) {
  const ScheduleEdge& ends = schedule.edges[index(edge)];
  const int lows = replicasOf(schedule, ends.from), highs = replicasOf(schedule, ends.to);
  const int turn = direction == Direction::backward ? lows * highs : 0;
  return firstOfEdge(schedule, edge) + turn + lowReplica * highs + highReplica;
}

int normChannel(const Schedule& schedule) {
  int channel = firstOfEdge(schedule, static_cast<int>(schedule.edges.size()));
  for (const SharedEdge& shared : schedule.shared) channel += 2 * replicasOf(schedule, shared.user);
  return channel;
}

int startChannel(const Schedule& schedule) {
  int channel = normChannel(schedule);
  for (const ScheduleStage& stage : schedule.stages) channel += 2 * stage.replicas * stage.team;
  return channel;
}

int teamNormChannel(const Schedule& schedule) {
  return startChannel(schedule) + 1;
}

int teamChannel(const Schedule& schedule) {
  int most = 1;
  for (const ScheduleStage& stage : schedule.stages) most = std::max(most, stage.team);
  return teamNormChannel(schedule) + 2 * most;
}

int sharedChannel(const Schedule& schedule, int shared, bool parts, int userReplica) {
  int channel = firstOfEdge(schedule, static_cast<int>(schedule.edges.size()));
  for (int before = 0; before < shared; ++before)
    channel += 2 * replicasOf(schedule, schedule.shared[index(before)].user);
  const int users = replicasOf(schedule, schedule.shared[index(shared)].user);
  return channel + (parts ? users : 0) + userReplica;
}

} // namespace pdcrt
