// Small random problems for Piper's planner.
#pragma once

#include "pdc/Published/Piper.h"

#include <algorithm>
#include <random>
#include <string>

namespace pdc {

class RandomProblems {
public:
  explicit RandomProblems(unsigned seed) : random_(seed) {}

  std::int64_t between(std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random_);
  }
  double number(std::int64_t least, std::int64_t most) { return static_cast<double>(between(least, most)); }

  PiperProblem problem(std::int64_t mostNodes) {
    PiperProblem problem;
    problem.name = "random";
    std::int64_t nodes = between(1, mostNodes);
    problem.devices = between(1, 8);
    problem.microbatches = between(1, 12);
    problem.degreesDivideMicrobatches = between(0, 1) == 0;
    problem.bandwidth = number(1, 20);
    for (std::int64_t v = 0; v < nodes; ++v) {
      problem.nodes.emplace_back();
      problem.nodes.back().id = 10 + 3 * v;
      problem.nodes.back().name = "v" + std::to_string(v);
    }
    std::int64_t density = between(1, 6);
    for (std::int64_t to = 1; to < nodes; ++to)
      for (std::int64_t from = 0; from < to; ++from)
        if (between(0, density) == 0) problem.edges.push_back({from, to, number(0, 8)});
    // Numbers of nodes need not be a topological order.
    if (between(0, 1))
      for (PiperEdge& edge : problem.edges) edge = {nodes - 1 - edge.from, nodes - 1 - edge.to, edge.bytes};
    addChoices(problem);
    problem.memoryBytes = number(8, 40) * number(1, nodes);
    return problem;
  }

private:
  /// Equal nodes, nodes that differ in time only, and nodes with any numbers.
  void addChoices(PiperProblem& problem) {
    std::int64_t kind = between(0, 3), mostChoices = between(1, 3);
    choicesDiffer_ = between(0, 1) == 0;
    std::vector<std::int64_t> degrees = {1};
    if (between(0, 1)) degrees.push_back(2);
    if (between(0, 3) == 0) degrees.push_back(3);
    for (std::int64_t t : degrees) {
      std::vector<PiperChoice> pattern = list(problem, 0, t, kind == 3 ? 1 : mostChoices);
      for (std::size_t v = 0; v < problem.nodes.size(); ++v) {
        if (t > 1 && between(0, 9) == 0) continue;
        std::vector<PiperChoice> choices = list(problem, v, t, mostChoices);
        if (kind < 2 && between(0, 5) > 0) {
          std::vector<PiperChoice> equal = pattern;
          for (std::size_t c = 0; c < equal.size(); ++c) {
            if (kind == 1) equal[c].time += number(0, 2);
            equal[c].syncForward = choices[0].syncForward;
            equal[c].syncBackward = choices[0].syncBackward;
          }
          choices = equal;
        }
        problem.nodes[v].choices[t] = choices;
      }
    }
  }

  std::vector<PiperChoice> list(const PiperProblem& problem, std::size_t v, std::int64_t t, std::int64_t most) {
    std::vector<PiperChoice> choices;
    bool weightsDiffer = choicesDiffer_ && between(0, 2) > 0, syncDiffers = choicesDiffer_ && between(0, 2) == 0;
    for (std::int64_t c = between(1, most); c > 0; --c) {
      PiperChoice choice;
      choice.id = "c" + std::to_string(c);
      choice.time = number(1, 40) / static_cast<double>(t);
      choice.parameterBytes =
          choices.empty() || weightsDiffer ? number(0, 9) * number(0, 40) : choices[0].parameterBytes;
      choice.memoryA = number(0, 12);
      choice.memoryB = number(0, 12);
      if (!choices.empty() && between(0, 3) > 0) { // slower and smaller than the choice before
        choice.time = choices.back().time + number(0, 8) / static_cast<double>(t);
        choice.memoryA = std::max(0.0, choices.back().memoryA - number(0, 6));
      }
      for (const PiperEdge& edge : problem.edges) {
        std::int64_t from = problem.nodes[static_cast<std::size_t>(edge.from)].id;
        std::int64_t to = problem.nodes[static_cast<std::size_t>(edge.to)].id;
        bool asFirst = !choices.empty() && !syncDiffers;
        if (edge.to == static_cast<std::int64_t>(v))
          choice.syncForward[from] = asFirst ? choices[0].syncForward[from] : number(0, 4);
        if (edge.from == static_cast<std::int64_t>(v))
          choice.syncBackward[to] = asFirst ? choices[0].syncBackward[to] : number(0, 4);
      }
      choices.push_back(std::move(choice));
    }
    return choices;
  }

  std::mt19937 random_;
  bool choicesDiffer_ = false; ///< in what they send
};

} // namespace pdc
