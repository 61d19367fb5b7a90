// Tries every sequence of stages, each a subset of the nodes; gives up a sequence only when a load is no smaller than
// the best objective so far, or when it already breaks the definition.
#include "DnnPartitioning/BruteForce.h"

#include "DnnPartitioning/Model.h"

#include <algorithm>
#include <limits>

using namespace pdc;

namespace {

using Mask = unsigned;

class BruteForce {
public:
  explicit BruteForce(const DnnPartitioningProblem& problem) : problem_(problem), everything_(1) {
    everything_ = (everything_ << problem.nodes.size()) - 1;
    bool backwardForward = backwardListedForward(problem);
    before_.assign(problem.nodes.size(), 0);
    for (const DnnPartitioningEdge& edge : problem.edges) {
      auto from = static_cast<std::size_t>(edge.from), to = static_cast<std::size_t>(edge.to);
      if (problem.nodes[from].isBackward != problem.nodes[to].isBackward) continue;
      if (problem.nodes[from].isBackward && !backwardForward) std::swap(from, to);
      before_[to] |= Mask{1} << from;
    }
    for (Mask set = 0; set <= everything_; ++set) stages_.push_back(describe(set));
  }

  std::optional<double> best() {
    extend(0, problem_.accelerators, problem_.cpus, 0);
    if (best_ == std::numeric_limits<double>::infinity()) return std::nullopt;
    return best_;
  }

private:
  struct Stage {
    bool splitsColour = false, fits = true;
    double acceleratorLoad = 0, cpuLoad = 0;
    Mask before = 0; ///< what may not come later
  };

  Stage describe(Mask set) const {
    Stage stage;
    std::vector<std::int64_t> nodes;
    double size = 0;
    for (std::size_t v = 0; v < problem_.nodes.size(); ++v) {
      const DnnPartitioningNode& node = problem_.nodes[v];
      for (std::size_t u = 0; u < v; ++u)
        if (node.colour >= 0 && node.colour == problem_.nodes[u].colour && (set >> u & 1) != (set >> v & 1))
          stage.splitsColour = true;
      if (!(set >> v & 1)) continue;
      nodes.push_back(static_cast<std::int64_t>(v));
      size += node.size;
      stage.fits = stage.fits && node.onAccelerator;
      stage.before |= before_[v];
    }
    stage.fits = stage.fits && size <= problem_.acceleratorMemory;
    stage.acceleratorLoad = dnnPartitioningLoad(problem_, nodes, false);
    stage.cpuLoad = dnnPartitioningLoad(problem_, nodes, true);
    return stage;
  }

  void extend(Mask done, std::int64_t accelerators, std::int64_t cpus, double largest) {
    if (done == everything_) {
      best_ = std::min(best_, largest);
      return;
    }
    Mask left = everything_ & ~done;
    for (Mask set = left; set; set = (set - 1) & left) {
      const Stage& stage = stages_[set];
      if (stage.splitsColour || (stage.before & ~(done | set))) continue;
      if (accelerators > 0 && stage.fits && std::max(largest, stage.acceleratorLoad) < best_)
        extend(done | set, accelerators - 1, cpus, std::max(largest, stage.acceleratorLoad));
      if (cpus > 0 && std::max(largest, stage.cpuLoad) < best_)
        extend(done | set, accelerators, cpus - 1, std::max(largest, stage.cpuLoad));
    }
  }

  const DnnPartitioningProblem& problem_;
  Mask everything_;
  std::vector<Mask> before_;
  std::vector<Stage> stages_;
  double best_ = std::numeric_limits<double>::infinity();
};

} // namespace

std::optional<double> pdc::bruteForceDnnPartitioning(const DnnPartitioningProblem& problem) {
  return BruteForce(problem).best();
}
