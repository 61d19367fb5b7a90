// Who does what when, for people: a grid of ranks and time, in which every computation takes one step and nothing else
// takes any, up to the spot where a schedule goes wrong.
#include "Machine.h"

#include <algorithm>
#include <cmath>
#include <map>

using namespace pdcrt;

namespace {

constexpr std::size_t widest = 110, mostRows = 16;

/// A rank's row: what it does in the last steps.
struct Row {
  int rank = 0;
  std::string name;
  std::map<std::int64_t, std::string> cells = {}; ///< by step

  void add(std::int64_t step, std::string text) {
    cells[step] = std::move(text);
    if (cells.size() > widest) cells.erase(cells.begin());
  }
};

/// The marked ranks, and of the others those next to the first of them, in order.
std::vector<int> shownRanks(int ranks, const std::vector<int>& marked) {
  std::vector<int> shown(marked.begin(),
                         marked.begin() + static_cast<std::ptrdiff_t>(std::min(marked.size(), mostRows)));
  for (int distance = 1; distance < ranks && shown.size() < mostRows; ++distance)
    for (int rank : {marked[0] - distance, marked[0] + distance})
      if (rank >= 0 && rank < ranks && shown.size() < mostRows &&
          std::find(shown.begin(), shown.end(), rank) == shown.end())
        shown.push_back(rank);
  std::sort(shown.begin(), shown.end());
  return shown;
}

std::string labelOf(const RankList& rank, int number) {
  std::string hosts;
  for (const Host& host : rank.hosts)
    hosts += (hosts.empty() ? "" : " ") + std::to_string(host.stage) + "." + std::to_string(host.replica);
  constexpr std::size_t mostHosts = 24;
  if (hosts.size() > mostHosts) hosts = hosts.substr(0, hosts.rfind(' ', mostHosts - 2)) + " …";
  return "rank " + std::to_string(number) + " (" + hosts + ")";
}

/// A few actions around the one at `position` of a rank's list, which is in brackets.
std::string surroundings(const Schedule& schedule, int rank, std::int64_t minibatches, bool evaluation,
                         std::int64_t position) {
  constexpr std::int64_t before = 4, after = 4;
  std::string text = "  rank " + std::to_string(rank) + "'s list:";
  if (position > before) text += " …";
  ListCursor list(schedule, rank, minibatches, evaluation);
  for (; list.peek() && list.executed() <= position + after; list.pop()) {
    if (list.executed() < position - before) continue;
    std::string action = toString(*list.peek());
    text += list.executed() == position ? " [" + action + "]" : " " + action;
  }
  if (list.executed() <= position) return text + " [end]";
  return list.peek() ? text + " …" : text;
}

/// Characters, not bytes.
std::size_t widthOf(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string padded(const std::string& text, std::size_t width) {
  return text + std::string(width - std::min(width, widthOf(text)), ' ');
}

std::string textOf(const std::vector<Row>& rows) {
  std::size_t name = 4, cell = 2;
  std::int64_t last = 0;
  for (const Row& row : rows) {
    name = std::max(name, widthOf(row.name));
    if (!row.cells.empty()) last = std::max(last, row.cells.rbegin()->first);
    for (const auto& [step, text] : row.cells) cell = std::max(cell, text.size());
  }
  cell = std::max(cell, std::to_string(last).size());
  std::size_t columns = std::max<std::size_t>(1, (widest - std::min(widest, name + 2)) / (cell + 1));
  std::int64_t first = std::max<std::int64_t>(0, last + 1 - static_cast<std::int64_t>(columns));
  auto line = [&](const std::string& title, auto textAt) {
    std::string text = "  " + padded(title, name);
    for (std::int64_t step = first; step <= last; ++step) text += " " + padded(textAt(step), cell);
    return text.substr(0, text.find_last_not_of(' ') + 1) + "\n";
  };
  std::string text = line("step", [](std::int64_t step) { return std::to_string(step); });
  for (const Row& row : rows)
    text += line(row.name, [&](std::int64_t step) {
      auto found = row.cells.find(step);
      return found == row.cells.end() ? "" : found->second;
    });
  return text;
}

} // namespace

std::string pdcrt::gridOf(const Schedule& schedule, std::int64_t minibatches, bool evaluation,
                          const std::vector<std::int64_t>& executed, const std::vector<int>& marked) {
  int ranks = static_cast<int>(schedule.ranks.size());
  std::vector<Row> rows;
  std::vector<int> rowOf(schedule.ranks.size(), -1);
  for (int rank : shownRanks(ranks, marked)) {
    rowOf[static_cast<std::size_t>(rank)] = static_cast<int>(rows.size());
    rows.push_back({rank, labelOf(schedule.ranks[static_cast<std::size_t>(rank)], rank)});
  }
  Times times;
  times.computation = [](const Action& action) { return action.kind == ActionKind::update ? 0.0 : 1.0; };
  CheckOptions options{.times = &times, .evaluation = evaluation, .order = false};
  options.observe = [&](const TracedAction& traced) {
    int row = rowOf[static_cast<std::size_t>(traced.rank)];
    if (row >= 0 && isComputation(traced.action.kind) && traced.action.kind != ActionKind::update)
      rows[static_cast<std::size_t>(row)].add(std::llround(traced.startMs), toString(traced.action));
  };
  CheckResult result;
  std::vector<double> idleSince = Machine(schedule, minibatches, options, result).runUntil(executed);

  for (int rank : marked) {
    auto r = static_cast<std::size_t>(rank);
    if (rowOf[r] < 0) continue;
    ListCursor list(schedule, rank, minibatches, evaluation);
    while (list.peek() && list.executed() < executed[r]) list.pop();
    rows[static_cast<std::size_t>(rowOf[r])].add(std::llround(idleSince[r]),
                                                 list.peek() ? "[" + toString(*list.peek()) + "]" : "[end]");
  }
  std::string text = textOf(rows);
  if (rows.size() < schedule.ranks.size())
    text += "  (" + std::to_string(rows.size()) + " of " + std::to_string(ranks) + " ranks are shown)\n";
  return text +
         surroundings(schedule, marked[0], minibatches, evaluation, executed[static_cast<std::size_t>(marked[0])]);
}
