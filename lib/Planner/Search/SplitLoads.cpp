#include "Search/SplitLoads.h"

#include "pdc/Cost/Pipeline.h"

#include <algorithm>

using namespace pdc;

SplitLoads::SplitLoads(const CostGraph& graph, const std::vector<SolverProblem>& problems, const States& states,
                       const Machine& machine, const PlannerOptions& options)
    : shards_(options.stageShards) {
  const std::size_t splits = problems.size();
  std::vector<NodeSet> sets;
  for (int i = 0; splits > 1 && i < states.size(); ++i) sets.push_back(states.set(i));
  states_.reserve(splits);
  loads_.reserve(splits);
  for (std::size_t k = 0; k < splits; ++k) {
    if (k > 0) states_.emplace_back(problems[k], sets, states.isComplete());
    const CostGraph& own = graph.in(static_cast<int>(k));
    loads_.emplace_back(own, problems[k], k > 0 ? states_.back() : states, machine, options, splits > 1);
    teams_.push_back(own.split.members);
  }
  for (const TeamSplit& split : options.stageSplits)
    for (std::size_t k = 0; k < splits; ++k)
      if (graph.in(static_cast<int>(k)).split == split) given_.push_back(static_cast<int>(k));
  if (splits == 1) return;
  clean_.assign(static_cast<std::size_t>(states.size()) * splits, true);
  const std::vector<int>& blockOf = problems[0].blockOf;
  for (int i = 0; i < states.size(); ++i)
    for (std::size_t k = 0; k < splits; ++k)
      for (const CostTensor& tensor : graph.in(static_cast<int>(k)).tensors)
        if (!isCleanBorder(tensor, [&](std::int64_t node) {
              return states.set(i).contains(static_cast<std::size_t>(blockOf[static_cast<std::size_t>(node)]));
            }))
          clean_[static_cast<std::size_t>(i) * splits + k] = false;
}
