#include "pdcrt/ExchangeProblem.h"

#include "pdcrt/Arena.h"

#include <algorithm>

namespace pdcrt {
namespace {

std::string name(int stage) {
  return "stage " + std::to_string(stage);
}

std::string sharedProblem(const Schedule& schedule, int stage, std::span<const SharedRow> rows) {
  auto shares = [&](const SharedEdge& edge) {
    return std::any_of(rows.begin(), rows.end(),
                       [&](const SharedRow& row) { return row.owner == edge.owner && row.user == edge.user; });
  };
  auto other = [&](int owner, int user) { return std::to_string(owner == stage ? user : owner); };
  for (const SharedRow& row : rows)
    if (schedule.sharedBetween(row.owner, row.user) < 0)
      return name(stage) + " shares parameters with stage " + other(row.owner, row.user) + ", schedule.txt does not";
  for (const SharedEdge& edge : schedule.shared)
    if ((edge.owner == stage || edge.user == stage) && !shares(edge))
      return name(stage) + " shares no parameters with stage " + other(edge.owner, edge.user) + ", schedule.txt does";
  return {};
}

/// What travels, and where to.
std::string exchange(int stage, int peer, bool forward) {
  const bool leaves = (peer > stage) == forward;
  return std::string(leaves ? "sends " : "receives ") + (forward ? "values" : "gradients") +
         (leaves ? " to " : " from ") + name(peer);
}

} // namespace

std::string exchangeProblem(const Schedule& schedule, int stage, std::span<const EdgeRow> edges,
                            std::span<const SharedRow> shared) {
  auto has = [&](int peer, bool forward) {
    return std::any_of(edges.begin(), edges.end(), [&](const EdgeRow& row) {
      return (row.direction == Direction::forward) == forward && (row.from == stage ? row.to : row.from) == peer;
    });
  };
  for (const EdgeRow& row : edges) {
    const bool forward = row.direction == Direction::forward;
    const EdgeBuffers buffers = edgeBuffers(schedule, stage, row);
    const ScheduleEdge* edge = buffers.edge < 0 ? nullptr : &schedule.edges[static_cast<std::size_t>(buffers.edge)];
    if (!edge || !(forward ? edge->forward : edge->backward))
      return name(stage) + " " + exchange(stage, buffers.peer, forward) + ", schedule.txt has no such edge";
  }
  for (const ScheduleEdge& edge : schedule.edges) {
    if (edge.from != stage && edge.to != stage) continue;
    const int peer = edge.from == stage ? edge.to : edge.from;
    for (bool forward : {true, false})
      if ((forward ? edge.forward : edge.backward) && !has(peer, forward))
        return name(stage) + " " + exchange(stage, peer, forward) + " in schedule.txt, its program does not";
  }
  return sharedProblem(schedule, stage, shared);
}

} // namespace pdcrt
