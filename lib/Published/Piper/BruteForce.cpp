#include "Piper/BruteForce.h"

#include <algorithm>
#include <cassert>
#include <functional>
#include <limits>
#include <map>
#include <tuple>

using namespace pdc;

static constexpr double infinity = std::numeric_limits<double>::infinity();

namespace {

using Set = unsigned; ///< of nodes, as bits

/// Sums over the nodes of a stage for one vector of choices.
struct Sums {
  double compute = 0, edgeBytes = 0, weights = 0, memoryA = 0, memoryB = 0;
};

class BruteForce {
public:
  BruteForce(const PiperProblem& problem, bool replicate)
      : problem_(problem), replicate_(replicate), all_((Set{1} << problem.nodes.size()) - 1) {
    assert(problem.nodes.size() < 20);
  }

  std::optional<PiperOptimum> run() {
    PiperOptimum optimum;
    stageValue_ = [this](const Sums& sums, const Degrees& at) -> Value {
      return {memory(sums, at) <= problem_.memoryBytes ? tps(sums, at) : infinity, 0};
    };
    optimum.tps = search().first;
    if (optimum.tps == infinity) return std::nullopt;
    double most = optimum.tps * (1 + 1e-12);
    stageValue_ = [this, most](const Sums& sums, const Degrees& at) -> Value {
      return {memory(sums, at) <= problem_.memoryBytes && tps(sums, at) <= most ? memory(sums, at) : infinity, 0};
    };
    optimum.memoryBytes = search().first;
    // Times N, whole numbers stay whole.
    auto n = static_cast<double>(problem_.microbatches);
    stageValue_ = [&](const Sums& sums, const Degrees& at) -> Value {
      if (memory(sums, at) > optimum.memoryBytes || tps(sums, at) > most) return {infinity, 0};
      auto d = static_cast<double>(at.d);
      return {sums.edgeBytes * n + 4 * (d - 1) * sums.weights, d * static_cast<double>(at.t)};
    };
    addsUp_ = true;
    Value moved = search();
    optimum.movedBytes = moved.first / n;
    optimum.devices = moved.second;
    return optimum;
  }

private:
  struct Degrees {
    std::int64_t t, d, y;
  };
  using Value = std::pair<double, double>; ///< compared in this order; infinite: not feasible

  double memory(const Sums& sums, const Degrees& at) const {
    return sums.memoryA * static_cast<double>(at.y) + sums.memoryB;
  }

  double tps(const Sums& sums, const Degrees& at) const {
    auto d = static_cast<double>(at.d);
    double resync = 4 * (d - 1) * sums.weights / (d * static_cast<double>(problem_.microbatches));
    return (sums.edgeBytes / d + resync) / problem_.bandwidth + sums.compute / d;
  }

  bool isDownSet(Set set) const {
    return std::all_of(problem_.edges.begin(), problem_.edges.end(),
                       [&](const PiperEdge& e) { return !(set >> e.to & 1) || (set >> e.from & 1); });
  }

  Value search() {
    bestOf_.clear();
    return best(all_, 0, 0);
  }

  /// The smallest value of stages for the nodes of `set` (their largest, or their sum), when the stages behind have
  /// `replicas` and `devices`.
  Value best(Set set, std::int64_t replicas, std::int64_t devices) {
    if (set == 0) return {0, 0};
    auto [entry, isNew] = bestOf_.try_emplace({set, replicas, devices}, infinity, 0);
    if (!isNew) return entry->second;
    Value least = {infinity, 0};
    for (Set before = set; before > 0;) {
      before = (before - 1) & set; // every proper subset
      if (!isDownSet(before)) continue;
      for (std::int64_t t = 1; devices + t <= problem_.devices; ++t)
        for (std::int64_t d = 1; devices + d * t <= problem_.devices; ++d) {
          if (d > 1 && !replicate_) break;
          if (replicas + d > problem_.microbatches) break;
          if (problem_.degreesDivideMicrobatches && problem_.microbatches % d) continue;
          Degrees at{t, d, (replicas + d + d - 1) / d};
          Value here = {infinity, 0};
          for (const Sums& sums : vectors(set & ~before, t)) here = std::min(here, stageValue_(sums, at));
          if (here >= least) continue;
          Value rest = best(before, replicas + d, devices + d * t);
          least = std::min(least,
                           addsUp_ ? Value{here.first + rest.first, here.second + rest.second} : std::max(here, rest));
        }
    }
    return bestOf_[{set, replicas, devices}] = least;
  }

  /// Of all vectors of choices of a stage.
  const std::vector<Sums>& vectors(Set stage, std::int64_t t) {
    auto [entry, isNew] = vectorsOf_.try_emplace({stage, t});
    if (!isNew) return entry->second;
    std::vector<Sums> sums = {{}};
    for (std::size_t v = 0; v < problem_.nodes.size(); ++v) {
      if (!(stage >> v & 1)) continue;
      std::vector<Sums> longer;
      auto choices = problem_.nodes[v].choices.find(t);
      if (choices != problem_.nodes[v].choices.end())
        for (const PiperChoice& choice : choices->second)
          for (Sums sum : sums) {
            sum.compute += choice.time;
            sum.edgeBytes += edgeBytes(stage, v, choice);
            sum.weights += choice.parameterBytes;
            sum.memoryA += choice.memoryA;
            sum.memoryB += choice.memoryB;
            longer.push_back(sum);
          }
      sums = std::move(longer);
    }
    return entry->second = std::move(sums);
  }

  double edgeBytes(Set stage, std::size_t v, const PiperChoice& choice) const {
    double bytes = 0;
    auto add = [&](const std::map<std::int64_t, double>& sync, std::int64_t other, double edge) {
      if (stage >> other & 1) return;
      auto entry = sync.find(problem_.nodes[static_cast<std::size_t>(other)].id);
      bytes += 2 * (edge + (entry == sync.end() ? 0 : entry->second));
    };
    for (const PiperEdge& edge : problem_.edges) {
      if (edge.to == static_cast<std::int64_t>(v)) add(choice.syncForward, edge.from, edge.bytes);
      if (edge.from == static_cast<std::int64_t>(v)) add(choice.syncBackward, edge.to, edge.bytes);
    }
    return bytes;
  }

  const PiperProblem& problem_;
  bool replicate_;
  Set all_;
  std::function<Value(const Sums&, const Degrees&)> stageValue_;
  bool addsUp_ = false;
  std::map<std::tuple<Set, std::int64_t, std::int64_t>, Value> bestOf_;
  std::map<std::pair<Set, std::int64_t>, std::vector<Sums>> vectorsOf_;
};

} // namespace

std::optional<PiperOptimum> pdc::bruteForcePiper(const PiperProblem& problem, bool replicate) {
  return BruteForce(problem, replicate).run();
}
