#include "Pdc/SolverSpine.h"

#include <algorithm>

using namespace pdc;

std::vector<double> pdc::spineMs(const SolverProblem& problem) {
  constexpr std::size_t most = 20'000;
  std::size_t n = problem.blocks.size();
  std::vector<double> spine(n, 0);
  if (n > most) return spine;
  std::vector<std::pair<int, int>> edges;
  for (const BlockTensor& tensor : problem.tensors)
    for (int to : tensor.to)
      if (tensor.hasGradient) edges.emplace_back(tensor.from, to);
  std::sort(edges.begin(), edges.end());
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  const std::optional<Dag> dag = Dag::make(n, std::move(edges));
  if (!dag) return spine;
  std::vector<std::size_t> related(n, 1); // itself
  for (const std::vector<NodeSet>& sets : {dag->ancestors(), dag->descendants()})
    for (std::size_t v = 0; v < n; ++v) related[v] += sets[v].size();
  for (std::size_t v = 0; v < n; ++v)
    if (related[v] == n) spine[v] = problem.blocks[v].forwardMs + problem.blocks[v].backwardMs;
  return spine;
}
