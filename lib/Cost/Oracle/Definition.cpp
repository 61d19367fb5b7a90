#include "Oracle/Definition.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

using namespace pdc;

Definition::Definition(const CostGraph& graph, const Plan& plan, const PlannerOptions& options)
    : graph_(graph), plan_(plan), options_(options), stageOf_(graph.nodes.size(), 0), stages_(plan.stages.size()) {
  readStages();
  readTrips();
  readTied();
  addCoreTimes();
  loadAllReduces();
  loadDevices();
  loadTrips();
  loadTied();
  for (const auto& [link, bytes] : linkBytes_) {
    double bandwidth = plan.cluster.levels[static_cast<std::size_t>(link.level)].bandwidthBytesPerS;
    if (bandwidth > 0) busy(1e3 * bytes / bandwidth);
  }
  loadCores();
  findLoops();
}

void Definition::readStages() {
  for (std::size_t s = 0; s < stages_.size(); ++s) {
    stages_[s].replicas = plan_.stages[s].replicas;
    stages_[s].team = plan_.stages[s].split.members;
    const bool chosen = plan_.stages[s].sharding != pdcrt::Sharding::none;
    const bool all = options_.shard == ShardPolicy::optimizer || options_.shard == ShardPolicy::weights;
    stages_[s].sharded = stages_[s].replicas > 1 && (options_.shard == ShardPolicy::automatic ? chosen : all);
    stages_[s].graph = &graph_;
    for (const CostGraph& divided : graph_.divided)
      if (divided.split == plan_.stages[s].split) stages_[s].graph = &divided;
    stages_[s].leaves.resize(static_cast<std::size_t>(plan_.stages[s].replicas));
    for (std::int64_t v : plan_.stages[s].nodes) stageOf_[static_cast<std::size_t>(v)] = static_cast<int>(s);
    bool delayed = !plan_.schedule->hasBatches && plan_.sync == SyncPolicy::overlap && stages_.size() > 1;
    stages_[s].delay = delayed && stages_[s].replicas > 1 ? 1 : 0;
  }
  for (const PlanRank& rank : plan_.ranks)
    for (const PlanRank::Host& host : rank.hosts)
      stages_[static_cast<std::size_t>(host.stage)].leaves[static_cast<std::size_t>(host.replica)] = rank.devices[0];
  for (std::size_t s = 0; s < stages_.size(); ++s) {
    Stage& stage = stages_[s];
    double speed = INFINITY; // round robin: the slowest replica counts
    for (std::int64_t leaf : stage.leaves) speed = std::min(speed, plan_.cluster.deviceAt(leaf).speed);
    for (std::int64_t v : plan_.stages[s].nodes) {
      const CostNode& node = stage.graph->nodes[static_cast<std::size_t>(v)];
      stage.forwardMs += node.forwardMs / speed;
      stage.backwardMs += (node.inputGradientMs + node.weightGradientMs) / speed;
      if (plan_.stages[s].recompute) stage.backwardMs += node.forwardMs / speed;
      const double updateMs = (node.updateMs + (stage.replicas > 1 ? node.lateUpdateMs : 0)) / speed;
      stage.updateMs += stage.sharded ? updateMs / ownersOf(stage.replicas) : updateMs;
      stage.parameters += static_cast<double>(node.parameterBytes);
    }
  }
}

void Definition::readTrips() {
  for (std::size_t t = 0; t < graph_.tensors.size(); ++t) {
    const int from = stageOf_[static_cast<std::size_t>(graph_.tensors[t].from)];
    const CostTensor& tensor = graph_.tensors[t];
    std::set<int> users;
    for (std::int64_t node : tensor.to) users.insert(stageOf_[static_cast<std::size_t>(node)]);
    users.erase(from);
    for (int user : users) values_.push_back({from, user, sizeBetween(t, from, user), false});
    // Members gather what they have parts of before others get it whole.
    if (std::any_of(users.begin(), users.end(), [&](int user) { return &graphOf(user) != &graphOf(from); }))
      stages_[static_cast<std::size_t>(from)].forwardMs += gatherMs(t, from);
    // The gradient: from the last user to the first, each sum in the earlier stage of what is added.
    std::vector<int> parts;
    for (std::int64_t node : tensor.gradientUsers()) parts.push_back(stageOf_[static_cast<std::size_t>(node)]);
    auto send = [&](int sender, int receiver) {
      if (sender <= receiver) return;
      gradients_.push_back({sender, receiver, sizeBetween(t, sender, receiver), true});
      if (&graphOf(sender) != &graphOf(receiver))
        stages_[static_cast<std::size_t>(sender)].gradientCoreMs += gatherMs(t, sender);
    };
    while (parts.size() > 1) {
      const int last = parts.back(), next = parts[parts.size() - 2];
      send(last, next);
      send(next, last);
      parts.pop_back();
      parts.back() = std::min(last, next);
    }
    if (!parts.empty()) send(parts[0], from);
  }
  for (const std::vector<Trip>* list : {&values_, &gradients_})
    for (const Trip& trip : *list) {
      trips_[{trip.from, trip.to, trip.gradient}] += trip.bytes;
      bytesMoved_ += static_cast<double>(trip.bytes * stages_[static_cast<std::size_t>(trip.to)].team);
    }
}

void Definition::readTied() {
  for (std::size_t p = 0; p < graph_.sharedParameters.size(); ++p) {
    std::map<int, int> uses;
    for (std::int64_t node : graph_.sharedParameters[p].nodes) ++uses[stageOf_[static_cast<std::size_t>(node)]];
    if (uses.empty()) continue;
    const int owner = uses.begin()->first;
    const CostSharedParameter& parameter = graphOf(owner).sharedParameters[p];
    stages_[static_cast<std::size_t>(owner)].parameters += static_cast<double>(parameter.bytes);
    for (const auto& [stage, count] : uses) tied_.push_back({owner, stage, count, parameter.bytes});
  }
}

/// What a byte sent or received takes from the core that computes.
void Definition::addCoreTimes() {
  auto speedOf = [&](const Stage& stage) {
    double speed = INFINITY;
    for (std::int64_t leaf : stage.leaves) speed = std::min(speed, plan_.cluster.deviceAt(leaf).speed);
    return speed;
  };
  const double msPerByte = 1e3 * plan_.cluster.deviceAt(0).coreSPerByte;
  for (Stage& stage : stages_) {
    // Every replica gathers its part and spreads the sum of it, and so does every other.
    const auto r = static_cast<double>(stage.replicas);
    stage.syncCoreMs = msPerByte / speedOf(stage) * (2 + 2) * stage.parameters * (r - 1) / r;
    stage.updateMs += msPerByte / speedOf(stage) * 2 * sentPerBatch(static_cast<int>(&stage - stages_.data()));
  }
  for (const auto& [key, bytes] : trips_) {
    const auto& [from, to, gradient] = key;
    if (stages_[static_cast<std::size_t>(from)].leaves == stages_[static_cast<std::size_t>(to)].leaves) continue;
    const int sent = mostSent(stages_[static_cast<std::size_t>(from)], stages_[static_cast<std::size_t>(to)]);
    for (int end : {from, to}) {
      Stage& stage = stages_[static_cast<std::size_t>(end)];
      const double ms = msPerByte * static_cast<double>(bytes) * (end == from ? sent : 1) / speedOf(stage);
      (gradient ? stage.gradientCoreMs : stage.forwardMs) += ms;
    }
  }
  for (Stage& stage : stages_) stage.backwardMs += stage.gradientCoreMs;
}

/// Up from one leaf to the component where they meet, down to the other: calls `visit(link)` for each.
template <class Visit>
void Definition::alongRoute(std::int64_t from, std::int64_t to, Visit visit) const {
  for (int level = 0; from != to; ++level) {
    visit(Link{level, from, true});
    visit(Link{level, to, false});
    const std::int64_t count = plan_.cluster.levels[static_cast<std::size_t>(level)].count;
    from /= count;
    to /= count;
  }
}

/// The time of one transfer, which puts so many bytes on each link.
double Definition::transferMs(const std::map<Link, double>& bytes) const {
  double latency = 0, slowest = 0;
  for (const auto& [link, amount] : bytes) {
    const ClusterLevel& level = plan_.cluster.levels[static_cast<std::size_t>(link.level)];
    latency = std::max(latency, level.latencyS);
    if (level.bandwidthBytesPerS > 0) slowest = std::max(slowest, amount / level.bandwidthBytesPerS);
  }
  return 1e3 * (latency + slowest);
}

int Definition::mostSent(const Stage& sender, const Stage& receiver) {
  std::vector<int> sent(static_cast<std::size_t>(sender.team), 0);
  forEachReceiver(sender, receiver, [&](int from, int) { ++sent[static_cast<std::size_t>(from)]; });
  return *std::max_element(sent.begin(), sent.end());
}

/// What is left of the all-reduce when the backward ends: bucket by bucket, from the last node on.
double Definition::exposed(int s) const {
  const Stage& stage = stages_[static_cast<std::size_t>(s)];
  if (stage.delay > 0 || stage.syncMs <= 0) return 0;
  // The whole graph's buckets. A shared parameter counts where it is used first.
  std::vector<std::int64_t> all;
  for (const CostNode& node : stage.graph->nodes) all.push_back(node.parameterBytes);
  for (const CostSharedParameter& parameter : stage.graph->sharedParameters)
    if (!parameter.nodes.empty()) all[static_cast<std::size_t>(parameter.nodes[0])] += parameter.bytes;
  std::vector<int> bucketOf(all.size());
  std::int64_t filled = 0;
  for (std::size_t v = all.size(), bucket = 0; v-- > 0; filled += all[v]) {
    if (filled > 0 && filled + all[v] > options_.bucketBytes) filled = 0, ++bucket;
    bucketOf[v] = static_cast<int>(bucket);
  }
  // The stage's part of them, and how long the backward still takes when each is final.
  const bool halves = plan_.schedule->splitsBackward;
  double speed = INFINITY;
  for (std::int64_t leaf : stage.leaves) speed = std::min(speed, plan_.cluster.deviceAt(leaf).speed);
  std::map<int, std::pair<double, double>> parts; // bytes, ms left
  auto add = [&](std::int64_t v, std::int64_t bytes, bool elsewhere) {
    if (bytes == 0) return;
    double left = 0;
    for (std::int64_t u : plan_.stages[static_cast<std::size_t>(s)].nodes) {
      const CostNode& node = stage.graph->nodes[static_cast<std::size_t>(u)];
      if (u < v && !elsewhere) left += (node.weightGradientMs + (halves ? 0 : node.inputGradientMs)) / speed;
    }
    auto [part, isNew] = parts.try_emplace(bucketOf[static_cast<std::size_t>(v)], 0, left);
    part->second.first += static_cast<double>(bytes);
    part->second.second = std::min(part->second.second, left);
  };
  for (std::int64_t v : plan_.stages[static_cast<std::size_t>(s)].nodes)
    add(v, stage.graph->nodes[static_cast<std::size_t>(v)].parameterBytes, false);
  for (const CostSharedParameter& parameter : stage.graph->sharedParameters) {
    std::set<int> users;
    std::int64_t first = std::numeric_limits<std::int64_t>::max();
    for (std::int64_t v : parameter.nodes) {
      users.insert(stageOf_[static_cast<std::size_t>(v)]);
      if (stageOf_[static_cast<std::size_t>(v)] == s) first = std::min(first, v);
    }
    if (!users.empty() && *users.begin() == s) add(first, parameter.bytes, users.size() > 1);
  }
  if (parts.empty()) return std::max(0.0, stage.syncMs - stage.syncCoreMs); // of nothing, and nothing hides it
  // What gradients of values take from the core is spread over the backward.
  const double alone = stage.backwardMs - stage.gradientCoreMs,
               longer = halves || alone <= 0 ? 1 : stage.backwardMs / alone;
  // A bucket is not reduced before those in front of it are final.
  double most = 0, behind = stage.parameters, left = INFINITY;
  double waitMs = std::max(0.0, stage.syncMs - stage.syncCoreMs), afterwards = 0;
  if (isInShards(s)) return 0;                         // another stage computes meanwhile
  if (stage.sharded) waitMs = afterwards = waitMs / 2; // the second half comes after the update
  for (const auto& [bucket, part] : parts) {
    left = std::min(left, part.second);
    most = std::max(most, waitMs * behind / stage.parameters - left * longer);
    behind -= part.first;
  }
  return most + afterwards;
}

void Definition::loadDevices() {
  for (Stage& stage : stages_) {
    stage.exposedMs = exposed(static_cast<int>(&stage - stages_.data()));
    busy((stage.forwardMs + stage.backwardMs + stage.updateMs + stage.exposedMs) / stage.replicas);
    busy(stage.syncMs / stage.replicas);
  }
}

void Definition::loadAllReduces() {
  for (Stage& stage : stages_) {
    auto r = static_cast<double>(stage.replicas);
    if (r < 2) continue;
    std::map<Link, double> bytes; // of one all-reduce
    double latency = 0;
    auto cross = [&](std::int64_t from, std::int64_t to, double amount) {
      alongRoute(from, to, [&](const Link& link) {
        bytes[link] += amount;
        latency = std::max(latency, plan_.cluster.levels[static_cast<std::size_t>(link.level)].latencyS);
      });
    };
    bool directly = plan_.cluster.deviceAt(0).name == "cpu";
    // A part of 1/n of `amount` goes from each of n leaves to each other one.
    // Members with the same number do that among themselves.
    auto exchange = [&](const std::vector<std::int64_t>& leaves, double amount) {
      const auto n = static_cast<double>(leaves.size());
      for (int m = 0; m < stage.team; ++m)
        for (std::size_t i = 0; i < leaves.size(); ++i)
          if (directly) {
            for (std::size_t j = 0; j < leaves.size(); ++j)
              if (j != i) cross(leaves[i] + m, leaves[j] + m, amount / n);
          } else {
            cross(leaves[i] + m, leaves[(i + 1) % leaves.size()] + m, (n - 1) / n * amount);
          }
    };
    exchange(stage.leaves, 2 * stage.parameters); // reduce-scatter and all-gather
    double longest = 0;
    for (const auto& [link, amount] : bytes) {
      double bandwidth = plan_.cluster.levels[static_cast<std::size_t>(link.level)].bandwidthBytesPerS;
      if (bandwidth > 0) longest = std::max(longest, amount / bandwidth);
    }
    stage.syncMs = 1e3 * (longest + 2 * (r - 1) * latency);
    // What a batch sends: the reduce-scatter, to all owners of a shard, and each all-gather, to a group of owners.
    const int s = static_cast<int>(&stage - stages_.data());
    const auto owners = static_cast<std::size_t>(isInShards(s) ? ownersOf(stage.replicas) : stage.replicas);
    const std::size_t groups = stage.leaves.size() / owners;
    bytes.clear();
    exchange(stage.leaves, stage.parameters);
    for (std::size_t shard = 0; shard < owners; ++shard) {
      std::vector<std::int64_t> same;
      for (std::size_t group = 0; group < groups; ++group) same.push_back(stage.leaves[group * owners + shard]);
      exchange(same, stage.parameters / static_cast<double>(owners));
    }
    for (std::size_t group = 0; group < groups; ++group) {
      const auto first = stage.leaves.begin() + static_cast<std::ptrdiff_t>(group * owners);
      exchange(std::vector<std::int64_t>(first, first + static_cast<std::ptrdiff_t>(owners)),
               sweepsOf(s) * stage.parameters);
    }
    for (const auto& [link, amount] : bytes) linkBytes_[link] += amount / r; // one update per r minibatches
    bytesMoved_ += stage.team * std::floor(sentPerBatch(s));
  }
}

void Definition::loadTrips() {
  for (const auto& [key, perMinibatch] : trips_) {
    const auto& [from, to, gradient] = key;
    const std::int64_t bytes = perMinibatch; // clang 14 lets no lambda take a binding
    const Stage &sender = stages_[static_cast<std::size_t>(from)], &receiver = stages_[static_cast<std::size_t>(to)];
    std::int64_t period = std::lcm(sender.replicas, receiver.replicas);
    double each = 1 / static_cast<double>(period), mean = 0;
    std::map<std::int64_t, double> sending, receiving; // ms by leaf
    for (std::int64_t b = 0; b < period; ++b) {
      std::int64_t a = sender.leaves[static_cast<std::size_t>(b % sender.replicas)];
      std::int64_t z = receiver.leaves[static_cast<std::size_t>(b % receiver.replicas)];
      std::map<Link, double> moved;
      forEachReceiver(sender, receiver, [&](int m, int n) {
        alongRoute(a + m, z + n, [&](const Link& link) { moved[link] += static_cast<double>(bytes); });
      });
      for (const auto& [link, amount] : moved) linkBytes_[link] += each * amount;
      double ms = transferMs(moved);
      sending[a] += each * ms;
      receiving[z] += each * ms;
      mean += each * ms;
    }
    for (const auto* lanes : {&sending, &receiving})
      for (const auto& [leaf, ms] : *lanes) busy(ms);
    meanMs_[key] = mean;
  }
}

void Definition::loadTied() {
  for (const Tied& tied : tied_) {
    if (tied.user == tied.owner) continue;
    const Stage &owner = stages_[static_cast<std::size_t>(tied.owner)],
                &user = stages_[static_cast<std::size_t>(tied.user)];
    std::int64_t every = std::max(owner.replicas, user.replicas);
    double bytes = static_cast<double>(tied.bytes) / static_cast<double>(every);
    for (std::size_t q = 0; q < user.leaves.size(); ++q) {
      std::int64_t at = user.leaves[q], of = owner.leaves[q % owner.leaves.size()];
      forEachReceiver(owner, user, [&](int m, int n) {
        alongRoute(of + m, at + n, [&](const Link& link) { linkBytes_[link] += bytes; });
      });
      forEachReceiver(user, owner, [&](int n, int m) {
        alongRoute(at + n, of + m, [&](const Link& link) { linkBytes_[link] += bytes * tied.uses; });
      });
    }
    bytesMoved_ += static_cast<double>(tied.bytes * (user.team + owner.team * tied.uses) * user.replicas / every);
  }
}

void Definition::loadCores() {
  if (plan_.cluster.levels.empty()) return;
  std::map<std::int64_t, double> busyMs;
  for (const Stage& stage : stages_)
    for (std::int64_t leaf : stage.leaves)
      for (int member = 0; member < stage.team; ++member)
        busyMs[(leaf + member) / plan_.cluster.levels[0].count] +=
            (stage.forwardMs + stage.backwardMs + stage.updateMs) / stage.replicas;
  for (const auto& [machine, ms] : busyMs) {
    std::int64_t cores = plan_.cluster.deviceAt(machine * plan_.cluster.levels[0].count).cores;
    // While the replicas of the only stage wait for each other, no core is used.
    double idle = stages_.size() == 1 ? stages_[0].exposedMs / stages_[0].replicas : 0;
    if (cores > 0) coresLoad_ = std::max(coresLoad_, ms / static_cast<double>(cores) + idle);
  }
}

void Definition::findLoops() {
  std::size_t n = stages_.size();
  for (std::size_t s = 0; s < n; ++s) {
    // Longest ways of values from s, and of gradients to s; later stages after earlier ones.
    std::vector<double> there(n, -INFINITY), back(n, -INFINITY);
    there[s] = stages_[s].forwardMs;
    back[s] = stages_[s].backwardMs;
    for (std::size_t u = s + 1; u < n; ++u) {
      for (std::size_t t = s; t < u; ++t) {
        if (auto trip = meanMs_.find({static_cast<int>(t), static_cast<int>(u), false}); trip != meanMs_.end())
          there[u] = std::max(there[u], there[t] + trip->second + stages_[u].forwardMs);
        if (auto trip = meanMs_.find({static_cast<int>(u), static_cast<int>(t), true}); trip != meanMs_.end())
          back[u] = std::max(back[u], back[t] + trip->second + stages_[u].backwardMs);
      }
      if (there[u] >= 0 && back[u] >= 0)
        loops_.push_back({static_cast<int>(s), static_cast<int>(u), there[u] + back[u]});
    }
  }
}

double Definition::loopTime(const Loop& loop, const std::vector<int>& warmup) const {
  const Stage &s = stages_[static_cast<std::size_t>(loop.from)], &u = stages_[static_cast<std::size_t>(loop.to)];
  std::int64_t R = s.replicas, w = warmup[static_cast<std::size_t>(loop.from)];
  std::int64_t ahead = static_cast<std::int64_t>(warmup[static_cast<std::size_t>(loop.to)]) * u.replicas;
  std::int64_t windows = ahead / R + (ahead % R != 0 ? 1 : 0);
  auto over = [](double ms, std::int64_t room) { return room > 0 ? ms / static_cast<double>(room) : INFINITY; };
  if (s.delay == 0) return over(loop.ms + s.updateMs + s.exposedMs, R * (w + 1) - R * windows);
  return std::max(over(loop.ms + s.updateMs, R * (w + 1) - ahead),
                  over(loop.ms + s.updateMs + s.syncMs, R * (w + 2) - R * windows));
}

/// Whether a user's forwards would wait for a version that comes of backwards after them in its list. Where batches end
/// in a flush, or are two with 2bw, there is none.
bool Definition::outrunsOwner(const Tied& tied, const std::vector<int>& warmup) const {
  auto ahead = [&](int s) {
    return static_cast<std::int64_t>(warmup[static_cast<std::size_t>(s)]) *
           stages_[static_cast<std::size_t>(s)].replicas;
  };
  return !plan_.schedule->hasBatches && ahead(tied.user) > ahead(tied.owner);
}

std::int64_t Definition::memoryLimit(int stage) const {
  if (options_.memoryBytes > 0) return options_.memoryBytes;
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (std::int64_t leaf : stages_[static_cast<std::size_t>(stage)].leaves) {
    const DeviceKind& device = plan_.cluster.deviceAt(leaf);
    least = std::min(least, device.memoryBytes - device.reservedBytes);
  }
  return least;
}

bool Definition::fits(const std::vector<int>& warmup) const {
  for (int s = 0; s < static_cast<int>(stages_.size()); ++s)
    if (memory(s, warmup) > memoryLimit(s)) return false;
  return true;
}

std::vector<int> Definition::warmupOf() const {
  std::vector<int> warmup;
  for (const PlanStage& stage : plan_.stages) warmup.push_back(stage.warmup);
  return warmup;
}

std::vector<int> Definition::bestWarmup(double limitMs) const {
  double least = std::max(largestLoad_, coresLoad_);
  // Any loop may be what decides, with any room.
  std::vector<double> times = {least};
  for (const Loop& loop : loops_) {
    const Stage& s = stages_[static_cast<std::size_t>(loop.from)];
    for (double ms : {loop.ms + s.updateMs, loop.ms + s.updateMs + (s.delay > 0 ? s.syncMs : s.exposedMs)})
      for (std::int64_t room = 1; ms / static_cast<double>(room) > least; ++room)
        times.push_back(ms / static_cast<double>(room));
  }
  std::sort(times.begin(), times.end());
  if (!fits(warmupFor(times.back()))) return {}; // less time takes more
  for (double timeMs : times) {
    if (timeMs > limitMs) break;
    std::vector<int> warmup = warmupFor(timeMs);
    if (fits(warmup)) return warmup;
  }
  return {};
}

/// The least with which no loop takes longer.
std::vector<int> Definition::warmupFor(double timeMs) const {
  std::vector<int> warmup(stages_.size(), 0);
  for (bool changed = true; changed;) {
    changed = false;
    for (const Loop& loop : loops_)
      if (loopTime(loop, warmup) > timeMs * (1 + 1e-10)) ++warmup[static_cast<std::size_t>(loop.from)], changed = true;
    for (const Tied& tied : tied_)
      if (outrunsOwner(tied, warmup)) ++warmup[static_cast<std::size_t>(tied.owner)], changed = true;
  }
  if (plan_.weights == pdcrt::WeightPolicy::verticalSync)
    for (std::size_t s = 1; s < stages_.size(); ++s)
      while (stages_[0].replicas * (warmup[0] + stages_[0].delay) <
             stages_[s].replicas * (warmup[s] + stages_[s].delay))
        ++warmup[0];
  return warmup;
}

PlanCost Definition::evaluate() const {
  PlanCost cost;
  cost.warmup = warmupOf();
  double loops = 0;
  for (const Loop& loop : loops_) loops = std::max(loops, loopTime(loop, cost.warmup));
  for (const Tied& tied : tied_)
    if (outrunsOwner(tied, cost.warmup)) loops = INFINITY;
  cost.loadMs = std::max(largestLoad_, loops);
  cost.timeMs = std::max(cost.loadMs, coresLoad_);
  if (coresLoad_ > 0 && coresLoad_ >= cost.loadMs * (1 - 1e-9)) cost.loadMs = largestLoad_; // not by rounding
  for (int s = 0; s < static_cast<int>(stages_.size()); ++s)
    cost.peakMemoryBytes = std::max(cost.peakMemoryBytes, memory(s, cost.warmup));
  cost.bytesMoved = static_cast<std::int64_t>(bytesMoved_);
  cost.feasible = bordersAreClean() && fits(cost.warmup) && std::isfinite(cost.timeMs);
  return cost;
}
