#include "Looped.h"

#include "Codecs.h"
#include "Search/BalancedCut.h"
#include "pdc/Cost/CostModel.h"
#include "pdc/Predict/Simulate.h"
#include "pdc/Support/Diagnostics.h"
#include "pdc/Support/Units.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

using namespace pdc;

namespace {

/// A number of ranks in one copy of the pipeline, and of copies.
struct Shape {
  int ranks = 1, copies = 1;
};

struct Candidate {
  Plan plan;
  std::int64_t peakMemoryBytes = 0; ///< of one rank
  bool fits = false;
  std::vector<bool> coded; ///< the tensors that cross encoded
};

class LoopedPlanner {
public:
  LoopedPlanner(const CostGraph& graph, const Cluster& cluster, const PlannerOptions& options, Diagnostics& diags)
      : graph_(graph), cluster_(cluster), options_(options), diags_(diags), chunks_(options.schedule->stagesPerRank),
        places_(placesToCut(graph)) {}

  Expected<Plan> run() {
    if (!check()) return failure;
    std::optional<Candidate> best;
    std::int64_t leastMemory = std::numeric_limits<std::int64_t>::max();
    int cuttable = 0, divisible = 0;
    double boundMs = std::numeric_limits<double>::infinity();
    for (const Shape& shape : shapes()) {
      if (static_cast<std::size_t>(shape.ranks * chunks_) > places_.size() + 1) continue;
      ++cuttable;
      if (!divides(shape)) continue;
      ++divisible;
      double shapeBoundMs = boundOf(shape);
      boundMs = std::min(boundMs, shapeBoundMs);
      if (best && best->plan.timeMs <= shapeBoundMs) continue;
      for (bool recompute : recomputations()) {
        std::optional<Candidate> candidate = candidateOf(shape, recompute);
        if (!candidate) return failure;
        leastMemory = std::min(leastMemory, candidate->peakMemoryBytes);
        if (!candidate->fits) continue;
        if (!best || candidate->plan.timeMs < best->plan.timeMs) best = std::move(candidate);
        break; // recomputing takes longer
      }
    }
    if (!best) {
      report(cuttable, divisible, leastMemory);
      return failure;
    }
    markCodecs(best->plan, graph_, best->coded, options_.edgeCodec.codec);
    best->plan.lowerBoundMs = std::min(boundMs, best->plan.timeMs);
    best->plan.optimal = best->plan.timeMs <= best->plan.lowerBoundMs * (1 + 1e-9);
    return std::move(best->plan);
  }

private:
  Status check() {
    if (options_.warmupPolicy == WarmupPolicy::given)
      return diags_.error({}).exit(ExitCode::unsupported).help("leave --warmup out")
             << "how far the stages of '" << options_.schedule.name() << "' run ahead follows from its order";
    if (deviceClasses(cluster_, options_).size() > 1)
      return diags_.error({}).exit(ExitCode::unsupported).help("take equal devices, or another schedule")
             << "'" << options_.schedule.name() << "' places stages in turn, on devices that are equal";
    const std::vector<int>& replicas = options_.stageReplicas;
    if (replicas.empty() && !options_.stageShards.empty())
      return diags_.error({}).exit(ExitCode::usage).help("give --replicas, too, or one --shard for all stages")
             << "--shard has an entry for each of " << options_.stageShards.size() << " stages, and '"
             << options_.schedule.name() << "' may have any number of them";
    if (replicas.empty()) return success;
    if (replicas.size() % static_cast<std::size_t>(chunks_) != 0)
      return diags_.error({}).exit(ExitCode::unsupported).help("give replicas for a multiple of that")
             << "every rank hosts " << chunks_ << " stages under '" << options_.schedule.name()
             << "', the replicas are for " << replicas.size();
    for (int r : replicas)
      if (r != replicas[0])
        return diags_.error({})
                   .exit(ExitCode::unsupported)
                   .help("replicate all stages equally, or take another schedule")
               << "the replicas of '" << options_.schedule.name() << "' are copies of the whole pipeline, got "
               << replicas[0] << " and " << r;
    return success;
  }

  std::vector<Shape> shapes() const {
    auto devices = static_cast<int>(std::min<std::int64_t>(cluster_.deviceCount(), 1 << 12));
    if (!options_.stageReplicas.empty()) {
      const int ranks = static_cast<int>(options_.stageReplicas.size()) / chunks_, given = options_.stageReplicas[0];
      if (given > 0) return {{ranks, given}};
      std::vector<Shape> copied = {{ranks, 1}};
      for (int copies = 2; !options_.straight && copies <= devices / ranks; ++copies) copied.push_back({ranks, copies});
      return copied;
    }
    std::vector<Shape> shapes = {{devices, 1}};
    // One rank alone, with copies, is of use where the copies may divide the weights of stage after stage.
    const int least = options_.schedule->sweeps(0, chunks_) > 0 ? 1 : 2;
    for (int copies = 2; !options_.straight && devices / copies >= least; ++copies)
      shapes.push_back({devices / copies, copies});
    return shapes;
  }

  bool divides(const Shape& shape) const {
    if (options_.shards(shape.copies, false) && shape.copies % options_.owners(shape.copies) != 0) return false;
    return !options_.schedule->fillsRanks || options_.microbatches % (std::int64_t{shape.ranks} * shape.copies) == 0;
  }

  std::vector<bool> recomputations() const {
    if (options_.recompute == RecomputePolicy::all) return {true};
    if (options_.recompute == RecomputePolicy::none) return {false};
    return {false, true};
  }

  /// Per microbatch, whatever the cuts are.
  double boundOf(const Shape& shape) const {
    double wholeMs = 0, wayMs = 0, leastWeightMs = std::numeric_limits<double>::infinity();
    for (const CostNode& node : graph_.nodes) {
      double backwardMs = node.inputGradientMs + node.weightGradientMs;
      wholeMs += node.forwardMs + backwardMs;
      wayMs += node.forwardMs + (options_.schedule->splitsBackward ? node.inputGradientMs : backwardMs);
      leastWeightMs = std::min(leastWeightMs, node.weightGradientMs);
    }
    if (options_.schedule->splitsBackward) wayMs += leastWeightMs;
    std::int64_t m = options_.microbatches, local = (m + shape.copies - 1) / shape.copies;
    double speed = deviceClasses(cluster_, options_)[0].speed;
    return std::max(wholeMs * static_cast<double>(local) / shape.ranks, wayMs) / speed / static_cast<double>(m);
  }

  /// The candidate with the codecs that the policy wants. Nothing, and an error, if the schedule cannot be executed.
  std::optional<Candidate> candidateOf(const Shape& shape, bool recompute) {
    int stages = shape.ranks * chunks_;
    std::vector<int> replicas(static_cast<std::size_t>(stages), shape.copies);
    Partition partition = partitionOfIntervals(balancedCut(graph_, places_, stages), replicas);
    for (PartitionStage& stage : partition.stages) stage.recompute = recompute;
    for (std::size_t s = 0; s < options_.stageShards.size(); ++s) partition.stages[s].shards = options_.stageShards[s];
    const std::vector<bool> none(graph_.tensors.size(), false);
    if (options_.edgeCodec.policy == EdgeCodecPolicy::none) return candidateWith(partition, none);
    const std::vector<bool> all = codecsBetweenRanks(graph_, describePartition(graph_, cluster_, options_, partition));
    std::optional<Candidate> best = candidateWith(partition, all);
    if (!best || options_.edgeCodec.policy == EdgeCodecPolicy::all) return best;
    return improved(partition, std::move(*best));
  }

  /// Leaves out codecs, all of them or one by one, where that is no slower. Nothing, and an error, as candidateOf.
  std::optional<Candidate> improved(const Partition& partition, Candidate best) {
    const auto isNoWorse = [&](const Candidate& other) {
      if (other.fits != best.fits) return other.fits;
      return other.plan.timeMs <= best.plan.timeMs * (1 + 1e-9);
    };
    std::optional<Candidate> exact = candidateWith(partition, std::vector<bool>(graph_.tensors.size(), false));
    if (!exact || isNoWorse(*exact)) return exact;
    for (std::size_t i = 0; i < graph_.tensors.size(); ++i) {
      if (!best.coded[i]) continue;
      std::vector<bool> fewer = best.coded;
      fewer[i] = false;
      std::optional<Candidate> other = candidateWith(partition, fewer);
      if (!other) return std::nullopt;
      if (isNoWorse(*other)) best = std::move(*other);
    }
    return best;
  }

  /// Nothing, and an error, if the schedule cannot be executed.
  std::optional<Candidate> candidateWith(const Partition& partition, const std::vector<bool>& coded) {
    const CostGraph graph = withCodecs(graph_, partition, coded);
    Candidate candidate{describePartition(graph, cluster_, options_, partition), 0, true, coded};
    Plan& plan = candidate.plan;
    const pdcrt::Schedule frame = frameOf(shapeOf(plan));
    std::vector<std::int64_t> memory = memoryOf(plan, options_), limits = memoryLimitsOf(plan, options_);
    for (std::size_t s = 0; s < plan.stages.size(); ++s) {
      plan.stages[s].warmup = frame.stages[s].warmup;
      plan.stages[s].memoryBytes = memory[s];
    }
    for (const PlanRank& rank : plan.ranks) {
      std::int64_t bytes = 0;
      for (const PlanRank::Host& host : rank.hosts) bytes += memory[host.stage];
      candidate.peakMemoryBytes = std::max(candidate.peakMemoryBytes, bytes);
      candidate.fits &= bytes <= limits[rank.hosts[0].stage];
    }
    plan.timeMs = costWithWarmup(plan, options_).timeMs;
    if (!candidate.fits) return candidate;
    Expected<pdcrt::Schedule> schedule = scheduleFor(plan, diags_);
    if (!schedule) return std::nullopt;
    plan.timeMs = std::max(plan.timeMs, simulate(plan, *schedule).timePerMinibatchMs);
    return candidate;
  }

  void report(int cuttable, int divisible, std::int64_t leastMemory) {
    std::int64_t devices = cluster_.deviceCount(), most = static_cast<std::int64_t>(places_.size()) + 1;
    if (cuttable == 0) {
      std::int64_t needed = options_.stageReplicas.empty() ? std::int64_t{shapes().back().ranks} * chunks_
                                                           : static_cast<std::int64_t>(options_.stageReplicas.size());
      diags_.error({graph_.model})
              .exit(ExitCode::noPlan)
              .help(most >= chunks_ ? "take --devices=" + std::to_string(most / chunks_) + ", or another schedule"
                                    : "take another schedule")
          << "the model can be cut into " << most << " stages at most, '" << options_.schedule.name() << "' needs "
          << needed;
      return;
    }
    if (divisible == 0) {
      Shape shape = shapes()[0];
      std::int64_t each = std::int64_t{shape.ranks} * shape.copies, m = options_.microbatches;
      diags_.error({})
              .exit(ExitCode::unsupported)
              .help("take --microbatches=" + std::to_string((m + each - 1) / each * each))
          << "the microbatches of '" << options_.schedule.name() << "' must be a multiple of its " << each
          << " ranks, got " << m;
      return;
    }
    std::int64_t limit = deviceClasses(cluster_, options_)[0].memoryBytes;
    std::int64_t reserved = options_.memoryBytes > 0 ? 0 : cluster_.deviceAt(0).reservedBytes;
    diags_.error({graph_.model})
            .exit(ExitCode::noPlan)
            .help("give devices with " + sizeText(leastMemory + reserved) + " of memory")
        << "no plan fits: the smallest for --devices=" << devices << " takes " << sizeText(leastMemory)
        << " on one device, the limit is " << sizeText(limit);
  }

  const CostGraph& graph_;
  const Cluster& cluster_;
  const PlannerOptions& options_;
  Diagnostics& diags_;
  int chunks_;
  std::vector<std::int64_t> places_;
};

} // namespace

Expected<Plan> pdc::planLooped(const CostGraph& graph, const Cluster& cluster, const PlannerOptions& options,
                               Diagnostics& diags) {
  return LoopedPlanner(graph, cluster, options, diags).run();
}
