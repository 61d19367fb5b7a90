// Who waits for whom, for people: one row per rank with its last actions and what blocks it, then one cycle.
#include "Machine.h"

#include <algorithm>

using namespace pdcrt;

std::vector<int> pdcrt::cycleOf(const std::vector<BlockedRank>& ranks) {
  int rank = 0;
  while (ranks[rank].waitsFor < 0) ++rank;
  // After as many steps as there are ranks the walk is on the cycle, or has ended at a finished rank.
  for (std::size_t i = 0; i < ranks.size() && ranks[rank].waitsFor >= 0; ++i) rank = ranks[rank].waitsFor;
  std::vector<int> cycle{rank};
  for (int next = ranks[rank].waitsFor; next >= 0 && next != rank; next = ranks[next].waitsFor) cycle.push_back(next);
  return cycle;
}

std::string pdcrt::pictureOf(std::int64_t minibatches, const std::vector<BlockedRank>& ranks) {
  std::vector<int> cycle = cycleOf(ranks);
  constexpr std::size_t mostRows = 32; // of more ranks, only those of the cycle are shown
  std::vector<std::vector<std::string>> rows{{"rank", "hosts", "last actions", "waits in", "for"}};
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    if (ranks.size() > mostRows && std::find(cycle.begin(), cycle.end(), static_cast<int>(r)) == cycle.end()) continue;
    if (rows.size() > mostRows) break;
    rows.push_back({std::to_string(r), ranks[r].hosts, ranks[r].last, ranks[r].waitsIn, ranks[r].reason});
  }
  std::string text = "deadlock in a run of " + std::to_string(minibatches) + " minibatches:\n";
  std::vector<std::size_t> widths(rows[0].size(), 0);
  for (const auto& row : rows)
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  for (const auto& row : rows) {
    std::string line = " ";
    for (std::size_t c = 0; c < row.size(); ++c) line += " " + row[c] + std::string(widths[c] - row[c].size() + 1, ' ');
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  if (rows.size() - 1 < ranks.size())
    text += "  (" + std::to_string(rows.size() - 1) + " of " + std::to_string(ranks.size()) + " ranks are shown)\n";
  if (ranks[cycle[0]].waitsFor < 0)
    return text + "  rank " + std::to_string(cycle[0]) + " has finished without doing its part";
  text += "  cycle: " + std::to_string(cycle[0]);
  for (std::size_t i = 1; i < cycle.size(); ++i) text += " -> " + std::to_string(cycle[i]);
  return text + " -> " + std::to_string(cycle[0]);
}
