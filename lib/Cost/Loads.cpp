// Replicas meet by b mod R: of the minibatches of one period, lcm(R_s, R_t), every pair of replicas (p, q) with
// p ≡ q (mod gcd) exchanges exactly one. So traffic follows from counting such pairs, which is closed form for runs of
// neighbouring replicas.
#include "pdc/Cost/Loads.h"

#include <algorithm>
#include <cmath>
#include <numeric>

using namespace pdc;

std::vector<Run> pdc::runsOf(const Pipeline& pipeline, int stage, const Machine& machine, int level) {
  std::vector<Run> runs;
  const PipelineStage& s = pipeline.stages[stage];
  for (std::int64_t q = 0; q < s.replicas; ++q) {
    std::int64_t component = machine.componentOf(pipeline.leaves[s.firstRank + static_cast<std::size_t>(q)], level);
    if (!runs.empty() && runs.back().component == component)
      ++runs.back().count;
    else
      runs.push_back({component, q, 1});
  }
  return runs;
}

std::vector<AllReduceUse> pdc::allReduceUses(const std::vector<Run>& runs, int replicas, bool directly) {
  std::vector<AllReduceUse> uses;
  if (runs.size() < 2) return uses;
  double r = replicas;
  if (!directly) {
    // A ring in rank order leaves and enters each run once; the last run is followed by the first.
    for (const Run& run : runs) uses.push_back({run.component, 2 * (r - 1) / r, 2 * (r - 1) / r});
    if (runs.front().component == runs.back().component) uses.front().down = uses.back().up = 0;
    return uses;
  }
  std::vector<Run> merged = runs;
  std::sort(merged.begin(), merged.end(), [](const Run& a, const Run& b) { return a.component < b.component; });
  for (std::size_t i = 0; i < merged.size();) {
    double q = 0;
    std::size_t end = i;
    for (; end < merged.size() && merged[end].component == merged[i].component; ++end)
      q += static_cast<double>(merged[end].count);
    uses.push_back({merged[i].component, 2 * q * (r - q) / r, 2 * q * (r - q) / r});
    i = end;
  }
  return uses;
}

std::vector<AllReduceUse> pdc::shardUses(const Pipeline& pipeline, int s, const Machine& machine, int level) {
  const PipelineStage& stage = pipeline.stages[s];
  const int R = stage.replicas, D = stage.owners(), groups = R / D;
  std::vector<std::int64_t> at;
  for (int q = 0; q < R; ++q)
    at.push_back(machine.componentOf(pipeline.leaves[stage.firstRank + static_cast<std::size_t>(q)], level));
  std::vector<AllReduceUse> uses;
  // `first` and every step-th replica exchange `share` with each other, or with the next one around a ring.
  const auto exchange = [&](int first, int step, int count, double share) {
    const auto where = [&](int i) { return at[static_cast<std::size_t>(first + i % count * step)]; };
    const auto send = [&](int i, int j, double amount) {
      if (where(i) == where(j)) return;
      uses.push_back({where(i), amount, 0});
      uses.push_back({where(j), 0, amount});
    };
    for (int i = 0; i < count; ++i)
      if (machine.exchangesDirectly())
        for (int j = 0; j < count; ++j) send(i, j, share);
      else
        send(i, i + 1, share * (count - 1));
  };
  exchange(0, 1, R, 1.0 / R);
  for (int shard = 0; groups > 1 && shard < D; ++shard) exchange(shard, D, groups, 1.0 / R);
  for (int group = 0; group < groups; ++group) exchange(group * D, 1, D, gathersOf(pipeline, s) * 1.0 / D);
  return uses;
}

double pdc::allReduceMsOf(const Pipeline& pipeline, int s, const Machine& machine) {
  const PipelineStage& stage = pipeline.stages[s];
  auto bytes = static_cast<double>(stage.bytes.parameters);
  double slowest = 0, latency = 0;
  for (int level = 0; level < machine.levels(); ++level) {
    std::vector<Run> runs = runsOf(pipeline, s, machine, level);
    if (runs.size() < 2) break;
    latency = machine.routeLatencyMs(level);
    std::vector<AllReduceUse> uses = allReduceUses(runs, stage.replicas, machine.exchangesDirectly());
    std::sort(uses.begin(), uses.end(),
              [](const AllReduceUse& a, const AllReduceUse& b) { return a.component < b.component; });
    const double teamBytes = level > 0 ? bytes * stage.team : bytes; // links of a machine carry those of all members
    for (std::size_t i = 0; i < uses.size();) {
      double up = 0, down = 0;
      std::int64_t component = uses[i].component;
      for (; i < uses.size() && uses[i].component == component; ++i) up += uses[i].up, down += uses[i].down;
      slowest = std::max(slowest, std::max(up, down) * teamBytes / machine.bytesPerMs(level));
    }
  }
  return slowest + 2 * (stage.replicas - 1) * latency;
}

/// Pairs (p, q), p of run a and q of run b, with p ≡ q (mod g).
static std::int64_t pairsOf(const Run& a, const Run& b, std::int64_t g) {
  std::int64_t arc = b.count % g, whole = b.count / g;
  // p is in the arc if (p - b.first) mod g < arc; of 0 … x-1 so many are:
  auto below = [&](std::int64_t x) { return x / g * arc + std::min(x % g, arc); };
  std::int64_t from = (a.first - b.first) % g;
  if (from < 0) from += g;
  return a.count * whole + below(from + a.count) - below(from);
}

namespace {

class LoadSum {
public:
  LoadSum(const Pipeline& pipeline, const Machine& machine, std::vector<ResourceLoad>* all)
      : pipeline_(pipeline), machine_(machine), all_(all) {
    std::size_t n = pipeline.stages.size();
    deviceOut_.assign(n, 0);
    deviceIn_.assign(n, 0);
    runs_.resize(static_cast<std::size_t>(std::max(machine.levels(), 1)));
    up_.resize(runs_.size());
    down_.resize(runs_.size());
    for (int level = 1; level < machine.levels(); ++level) {
      for (std::size_t s = 0; s < n; ++s) runs_[level].push_back(runsOf(pipeline, static_cast<int>(s), machine, level));
      up_[level].assign(machine.components(level), 0);
      down_[level].assign(machine.components(level), 0);
    }
  }

  Loads sum() {
    addStages();
    for (const PipelineEdge& edge : pipeline_.edges) addEdge(edge);
    for (const SharedUse& use : pipeline_.shared) addShared(use);
    if (machine_.levels() > 0)
      for (std::size_t s = 0; s < deviceOut_.size(); ++s)
        for (bool up : {true, false})
          offer({ResourceKind::link, (up ? deviceOut_ : deviceIn_)[s] / machine_.bytesPerMs(0), 0, 0, 0,
                 pipeline_.leaves[pipeline_.stages[s].firstRank], up});
    for (int level = 1; level < machine_.levels(); ++level)
      for (std::int64_t c = 0; c < machine_.components(level); ++c)
        for (bool up : {true, false})
          offer({ResourceKind::link, (up ? up_ : down_)[level][c] / machine_.bytesPerMs(level), 0, 0, level, c, up});
    addLanes();
    addCores();
    return std::move(loads_);
  }

private:
  void offer(const ResourceLoad& load) {
    if (load.ms > loads_.largest.ms) loads_.largest = load;
    if (all_) all_->push_back(load);
  }

  void addStages() {
    for (std::size_t s = 0; s < pipeline_.stages.size(); ++s) {
      const PipelineStage& stage = pipeline_.stages[s];
      offer({ResourceKind::device, (stage.computeMs() + stage.exposedSyncMs + stage.updateMs) / stage.replicas,
             static_cast<int>(s)});
    }
    for (std::size_t s = 0; s < pipeline_.stages.size(); ++s) {
      const PipelineStage& stage = pipeline_.stages[s];
      if (stage.replicas < 2) continue;
      offer({ResourceKind::allReduce, stage.allReduceMs / stage.replicas, static_cast<int>(s)});
      const double sums = allReducesOf(pipeline_, static_cast<int>(s));
      double r = stage.replicas, bytes = sums * static_cast<double>(stage.bytes.parameters) / r;
      deviceOut_[s] += 2 * (r - 1) / r * bytes;
      deviceIn_[s] += 2 * (r - 1) / r * bytes;
      const bool hasGroups = stage.isInShards() && stage.owners() < stage.replicas;
      const double unit = stage.team * (hasGroups ? static_cast<double>(stage.bytes.parameters) / r : bytes);
      for (int level = 1; level < machine_.levels(); ++level)
        for (const AllReduceUse& use :
             hasGroups ? shardUses(pipeline_, static_cast<int>(s), machine_, level)
                       : allReduceUses(runs_[level][s], stage.replicas, machine_.exchangesDirectly())) {
          up_[level][use.component] += use.up * unit;
          down_[level][use.component] += use.down * unit;
        }
      // One update per R minibatches.
      loads_.bytesMoved +=
          stage.team *
          static_cast<std::int64_t>(std::floor(sums * 2 * (r - 1) * static_cast<double>(stage.bytes.parameters) / r));
    }
  }

  /// `out` bytes per minibatch go from stage s to stage t, `back` bytes return.
  void addEdge(const PipelineEdge& edge) {
    const PipelineStage &from = pipeline_.stages[edge.from], &to = pipeline_.stages[edge.to];
    auto out = static_cast<double>(edge.forwardBytes), back = static_cast<double>(edge.backwardBytes);
    loads_.bytesMoved += edge.forwardBytes * to.team + edge.backwardBytes * from.team;
    const double sent = out * mostReceivers(from.team, to.team), returned = back * mostReceivers(to.team, from.team);
    deviceOut_[edge.from] += sent / from.replicas;
    deviceIn_[edge.from] += back / from.replicas;
    deviceOut_[edge.to] += returned / to.replicas;
    deviceIn_[edge.to] += out / to.replicas;
    double forwardMs = 0, backwardMs = 0, apart = 1; // the share of the minibatches whose leaves do not meet below
    for (int level = 0; level < machine_.levels(); ++level) {
      double further = level + 1 < machine_.levels() ? crossing(edge, level + 1, out * to.team, back * from.team) : 0;
      double here = apart - further;
      if (here > 0) {
        forwardMs += here * machine_.transferMs(level, sent, out * to.team);
        backwardMs += here * machine_.transferMs(level, returned, back * from.team);
      }
      apart = further;
    }
    loads_.forwardMs.push_back(edge.forward ? forwardMs : 0);
    loads_.backwardMs.push_back(edge.backward ? backwardMs : 0);
  }

  /// Adds the edge's bytes, of all members, to the links of a level and returns the share of minibatches that cross it.
  double crossing(const PipelineEdge& edge, int level, double out, double back) {
    std::int64_t Rs = pipeline_.stages[edge.from].replicas, Rt = pipeline_.stages[edge.to].replicas;
    std::int64_t g = std::gcd(Rs, Rt), inside = 0;
    double period = static_cast<double>(Rs / g * Rt);
    auto addSide = [&](const std::vector<Run>& own, const std::vector<Run>& others, std::int64_t partners, double sent,
                       double received) {
      inside = 0;
      for (const Run& run : own) {
        std::int64_t same = 0;
        for (const Run& other : others)
          if (other.component == run.component) same += pairsOf(run, other, g);
        double share = static_cast<double>(run.count * partners - same) / period;
        up_[level][run.component] += share * sent;
        down_[level][run.component] += share * received;
        inside += same;
      }
    };
    const std::vector<Run>&own = runs_[level][edge.from], &others = runs_[level][edge.to];
    addSide(own, others, Rt / g, out, back);
    addSide(others, own, Rs / g, back, out);
    return (period - static_cast<double>(inside)) / period;
  }

  void addShared(const SharedUse& use) {
    std::int64_t Ro = pipeline_.stages[use.owner].replicas, Rt = pipeline_.stages[use.user].replicas;
    double times = 1 / static_cast<double>(std::max(Ro, Rt)); // per minibatch, of one replica of the user
    const int owners = pipeline_.stages[use.owner].team, users = pipeline_.stages[use.user].team;
    auto version = static_cast<double>(use.bytes), gradients = version * use.uses;
    // Replica 0 of the owner has the most partners.
    double partners = static_cast<double>((Rt + Ro - 1) / Ro);
    deviceOut_[use.owner] += partners * times * version * mostReceivers(owners, users);
    deviceIn_[use.owner] += partners * times * gradients;
    deviceOut_[use.user] += times * gradients * mostReceivers(users, owners);
    deviceIn_[use.user] += times * version;
    loads_.bytesMoved += use.bytes * (users + owners * use.uses) * Rt / std::max(Ro, Rt);
    version *= users;
    gradients *= owners;
    for (int level = 1; level < machine_.levels(); ++level)
      for (std::int64_t q = 0; q < Rt; ++q) {
        std::int64_t a = component(use.owner, q % Ro, level), b = component(use.user, q, level);
        if (a == b) continue;
        up_[level][a] += times * version;
        down_[level][b] += times * version;
        up_[level][b] += times * gradients;
        down_[level][a] += times * gradients;
      }
  }

  std::int64_t leaf(int stage, std::int64_t replica) const {
    return pipeline_.leaves[pipeline_.stages[stage].firstRank + static_cast<std::size_t>(replica)];
  }
  std::int64_t component(int stage, std::int64_t replica, int level) const {
    return machine_.componentOf(leaf(stage, replica), level);
  }

  /// A lane is busy for the mean of its routes, with their latency. Most are not: only those are looked at whose
  /// slowest route is longer than what is the largest load anyway.
  void addLanes() {
    if (machine_.levels() == 0) return;
    for (std::size_t i = 0; i < pipeline_.edges.size(); ++i) {
      const PipelineEdge& edge = pipeline_.edges[i];
      int Rs = pipeline_.stages[edge.from].replicas, Rt = pipeline_.stages[edge.to].replicas;
      for (bool forward : {true, false}) {
        if (!(forward ? edge.forward : edge.backward)) continue;
        auto bytes = static_cast<double>(forward ? edge.forwardBytes : edge.backwardBytes);
        int sender = forward ? edge.from : edge.to, receiver = forward ? edge.to : edge.from;
        const int senders = pipeline_.stages[sender].team, receivers = pipeline_.stages[receiver].team;
        const double sent = bytes * mostReceivers(senders, receivers), ofAll = bytes * receivers;
        if (machine_.transferMs(machine_.levels() - 1, sent, ofAll) / std::min(Rs, Rt) <= loads_.largest.ms) continue;
        offer({ResourceKind::lane, busiestLane(edge.from, edge.to, sent, ofAll), sender, receiver});
        offer({ResourceKind::lane, busiestLane(edge.to, edge.from, sent, ofAll), sender, receiver});
      }
    }
  }

  /// The largest over the replicas of `stage` of Σ over their partners of one transfer, per minibatch.
  double busiestLane(int stage, int other, double sent, double ofAll) const {
    std::int64_t R = pipeline_.stages[stage].replicas, Rt = pipeline_.stages[other].replicas, g = std::gcd(R, Rt);
    double busiest = 0;
    for (std::int64_t p = 0; p < R; ++p) {
      double ms = 0;
      for (std::int64_t q = p % g; q < Rt; q += g)
        ms += machine_.transferMs(machine_.meet(leaf(stage, p), leaf(other, q)), sent, ofAll);
      busiest = std::max(busiest, ms);
      if (machine_.levels() == 1) break;
    }
    return busiest / static_cast<double>(R / g * Rt);
  }

  void addCores() {
    if (!machine_.sharesCores()) return;
    std::vector<double> busy;
    for (std::size_t s = 0; s < pipeline_.stages.size(); ++s) {
      const PipelineStage& stage = pipeline_.stages[s];
      for (std::int64_t q = 0; q < stage.replicas; ++q) {
        auto at = static_cast<std::size_t>(machine_.machineOf(leaf(static_cast<int>(s), q)));
        if (busy.size() <= at) busy.resize(at + 1, 0);
        busy[at] += stage.team * (stage.computeMs() + stage.updateMs) / stage.replicas;
      }
    }
    for (std::size_t m = 0; m < busy.size(); ++m) {
      auto at = static_cast<std::int64_t>(m);
      if (machine_.coresOf(at) == 0) continue;
      double ms = busy[m] / static_cast<double>(machine_.coresOf(at));
      // Replicas of the only stage wait for their all-reduce all at once.
      if (pipeline_.stages.size() == 1) ms += pipeline_.stages[0].exposedSyncMs / pipeline_.stages[0].replicas;
      if (ms > loads_.cores.ms) loads_.cores = {ResourceKind::cores, ms, 0, 0, 0, at};
    }
  }

  const Pipeline& pipeline_;
  const Machine& machine_;
  std::vector<ResourceLoad>* all_;
  Loads loads_;
  std::vector<double> deviceOut_, deviceIn_;        ///< of replica 0 of each stage, bytes per minibatch
  std::vector<std::vector<std::vector<Run>>> runs_; ///< by level and stage
  std::vector<std::vector<double>> up_, down_;      ///< by level and component
};

} // namespace

Loads pdc::loadsOf(const Pipeline& pipeline, const Machine& machine, std::vector<ResourceLoad>* all) {
  return LoadSum(pipeline, machine, all).sum();
}
