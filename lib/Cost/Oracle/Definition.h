// Cost model pdc from its definition, for verifier and oracle: follows every minibatch of a period along its route and
// adds up what each device, link and lane has to do. Slow and simple; shares no code with cost model and solver.
#pragma once

#include "pdc/Cost/PlanVerifier.h"

#include <map>

namespace pdc {

class Definition {
public:
  /// `plan` must hold every node of `graph` in exactly one stage, and a device for every replica. Only its stages'
  /// nodes, replicas, recompute flags, warm-up and, of ShardPolicy::automatic, shards, its ranks,
  /// schedule, weights, sync and cluster are looked at.
  Definition(const CostGraph& graph, const Plan& plan, const PlannerOptions& options);

  /// Time, memory and bytes with the plan's warm-up.
  PlanCost evaluate() const;

  /// The best warm-up of `hide` by raising it where a loop is too long, for one possible time after the other; empty
  /// if no warm-up that reaches `limitMs` fits into memory.
  std::vector<int> bestWarmup(double limitMs) const;

  /// Whether values are whole where stages of different splits meet, and parameters that such stages share.
  bool bordersAreClean() const;

  /// Of one replica of a stage.
  std::int64_t memory(int stage, const std::vector<int>& warmup) const;
  std::int64_t memoryLimit(int stage) const;

  /// ms per minibatch that the busiest device, all-reduce, link or lane needs.
  double largestLoad() const { return largestLoad_; }
  double coresLoad() const { return coresLoad_; }

private:
  struct Stage {
    const CostGraph* graph = nullptr; ///< of its split
    int replicas = 1, delay = 0;
    bool sharded = false; ///< its replicas divide the optimizer's state
    int team = 1;         ///< members of a replica; times and bytes are those of one
    double forwardMs = 0, backwardMs = 0, updateMs = 0, syncMs = 0, exposedMs = 0;
    double gradientCoreMs = 0, syncCoreMs = 0; ///< of backwardMs, with gathers, and of updateMs
    double parameters = 0;                     ///< bytes, with shared ones that it owns
    std::vector<std::int64_t> leaves;          ///< of the first member of each replica; the others follow
  };
  /// A value or gradient, or all of them together, from one stage to each member of another.
  struct Trip {
    int from = 0, to = 0;
    std::int64_t bytes = 0;
    bool gradient = false;
  };
  struct Loop {
    int from = 0, to = 0;
    double ms = 0; ///< there and back
  };
  struct Tied {
    int owner = 0, user = 0, uses = 0;
    std::int64_t bytes = 0;
  };
  struct Link {
    int level = 0;
    std::int64_t component = 0;
    bool up = false;
    friend auto operator<=>(const Link&, const Link&) = default;
  };

  bool isInShards(int stage) const;
  /// Replicas that have everything of a stage together, where they divide it.
  int ownersOf(int replicas) const {
    return options_.shardDegree > 0 && options_.shardDegree < replicas ? options_.shardDegree : replicas;
  }
  double sweepsOf(int stage) const;
  double sentPerBatch(int stage) const;
  std::int64_t placesFor(int stage) const;
  const CostGraph& graphOf(int stage) const { return *stages_[static_cast<std::size_t>(stage)].graph; }
  /// Calls `visit(member of the sender, member of the receiver)` for each that receives.
  template <class Visit>
  static void forEachReceiver(const Stage& sender, const Stage& receiver, Visit visit) {
    for (int to = 0; to < receiver.team; ++to) visit(to % sender.team, to);
  }
  static int mostSent(const Stage& sender, const Stage& receiver);
  bool isCleanAt(int border) const;
  std::int64_t sizeBetween(std::size_t tensor, int from, int to) const;
  double gatherMs(std::size_t tensor, int stage) const;
  void readStages();
  void readTrips();
  void readTied();
  void addCoreTimes();
  void loadDevices();
  double exposed(int stage) const;
  void loadAllReduces();
  void loadTrips();
  void loadTied();
  void loadCores();
  void findLoops();
  void busy(double ms) { largestLoad_ = ms > largestLoad_ ? ms : largestLoad_; }
  template <class Visit>
  void alongRoute(std::int64_t from, std::int64_t to, Visit visit) const;
  double transferMs(const std::map<Link, double>& bytes) const;
  std::vector<int> warmupFor(double timeMs) const;
  double loopTime(const Loop& loop, const std::vector<int>& warmup) const;
  bool outrunsOwner(const Tied& tied, const std::vector<int>& warmup) const;
  int versions(int stage, const std::vector<int>& warmup) const;
  std::int64_t bufferedBySchedule(int stage, const std::vector<int>& warmup, std::int64_t saved, std::int64_t sent,
                                  std::int64_t handover) const;
  bool fits(const std::vector<int>& warmup) const;
  std::vector<int> warmupOf() const;

  const CostGraph& graph_;
  const Plan& plan_;
  const PlannerOptions& options_;
  std::vector<int> stageOf_;
  std::vector<Stage> stages_;
  std::vector<Trip> values_, gradients_;                     ///< of each tensor
  std::map<std::tuple<int, int, bool>, std::int64_t> trips_; ///< from, to, gradient: bytes
  std::map<std::tuple<int, int, bool>, double> meanMs_;      ///< of one transfer
  std::vector<Tied> tied_;
  std::map<Link, double> linkBytes_; ///< per minibatch
  std::vector<Loop> loops_;
  double bytesMoved_ = 0, largestLoad_ = 0, coresLoad_ = 0;
};

} // namespace pdc
