#include "Search/StageLoads.h"

#include "Numbers.h"
#include "pdc/Cost/StageBuckets.h"
#include "pdc/Schedule/StageMemory.h"

#include <algorithm>
#include <cmath>

using namespace pdc;

std::vector<StageForm> pdc::formsOf(const PlannerOptions& options) {
  std::vector<StageForm> forms;
  for (const bool recompute : {false, true}) {
    if (options.recompute != RecomputePolicy::automatic && recompute != (options.recompute == RecomputePolicy::all))
      continue;
    forms.push_back({.recompute = recompute});
    if (options.shard == ShardPolicy::automatic) forms.push_back({.recompute = recompute, .shards = true});
  }
  return forms;
}

StageLoads::StageLoads(const CostGraph& graph, const SolverProblem& problem, const States& states,
                       const Machine& machine, const PlannerOptions& options, bool mixes)
    : graph_(graph), problem_(problem), states_(states), machine_(machine), options_(options),
      team_(graph.split.members), mixes_(mixes) {
  flush_ = options.schedule->hasBatches;
  drains_ = options.schedule->flushes;
  overlap_ = !flush_ && options.sync == SyncPolicy::overlap;
  hides_ = !flush_ && options.warmupPolicy == WarmupPolicy::hide;
  stashes_ = !flush_ && options.weights != pdcrt::WeightPolicy::latest;
  if (drains_ && !options.schedule->splitsBackward) { // else the stages before wait for a part of a backward only
    const auto devices = static_cast<int>(std::min<std::int64_t>(machine.components(0), 1 << 20));
    const int given = static_cast<int>(options.stageReplicas.size());
    ways_.emplace(problem, states, given > 0 ? given : devices);
  }
  forms_ = formsOf(options);
  microbatches_ = static_cast<double>(options.microbatches);
  best_ = {0, 0};
  for (const DeviceClass& deviceClass : machine.classes()) {
    best_.speed = std::max(best_.speed, deviceClass.speed);
    best_.limitBytes = std::max(best_.limitBytes, deviceClass.memoryBytes);
  }
  PartitionStage whole;
  for (std::size_t v = 0; v < graph.nodes.size(); ++v) whole.nodes.push_back(static_cast<std::int64_t>(v));
  const StageBuckets buckets(graph, options);
  const std::vector<int> first(graph.nodes.size(), 0);
  for (const bool recompute : {false, true}) {
    Reducing& reducing = reducing_[recompute ? 1 : 0];
    whole.recompute = recompute;
    reducing.buckets = buckets.of(whole, 0, first);
    const bool splits = options.schedule->splitsBackward;
    for (const CostNode& node : graph.nodes)
      reducing.ms += node.weightGradientMs + (splits ? 0 : node.inputGradientMs + (recompute ? node.forwardMs : 0));
  }
  for (const CostSharedParameter& shared : graph.sharedParameters) {
    sharedUsers_.emplace_back();
    for (std::int64_t node : shared.nodes) sharedUsers_.back().push_back(problem.blockOf[node]);
  }
  for (const CostFrozenParameter& frozen : graph.frozenParameters) {
    frozenUsers_.emplace_back();
    for (std::int64_t node : frozen.nodes) frozenUsers_.back().push_back(problem.blockOf[node]);
  }
}

/// Microbatches of a batch that the busiest replica computes; their mean, where a replica need not end with the batch.
double StageLoads::ownMicrobatches(double replicas) const {
  return drains_ ? std::ceil(microbatches_ / replicas) : microbatches_ / replicas;
}

StageLoads::Stage StageLoads::stage(int i, int j) const {
  // In the unit of the other times, which the best speed divides.
  Stage stage{states_.stage(i, j, best_.speed / machine_.bytesPerMs(0))};
  stage.from = i;
  stage.to = j;
  stage.alone = i == 0 && j == states_.last();
  stage.scratch = states_.scratchBytes(i, j);
  stage.beforeMs = ways_ ? ways_->before(i, j) : 0;
  stage.valueCoreMs = machine_.coreMs(static_cast<double>(stage.inBytes + stage.outBytes));
  stage.gradientCoreMs =
      machine_.coreMs(static_cast<double>(stage.inGradientBytes + stage.outGradientBytes + stage.passGradientBytes));
  for (std::size_t p = 0; p < sharedUsers_.size(); ++p) {
    bool owned = true, used = false;
    for (int user : sharedUsers_[p]) {
      if (states_.set(i).contains(user)) owned = false;
      used |= states_.set(j).contains(user);
    }
    if (!owned || !used) continue;
    stage.parameterBytes += graph_.sharedParameters[p].bytes;
    stage.gradientBytes += graph_.sharedParameters[p].bytes * static_cast<std::int64_t>(sharedUsers_[p].size());
  }
  for (std::size_t p = 0; p < frozenUsers_.size(); ++p)
    if (std::any_of(frozenUsers_[p].begin(), frozenUsers_[p].end(),
                    [&](int user) { return states_.set(j).contains(user) && !states_.set(i).contains(user); }))
      stage.frozenBytes += graph_.frozenParameters[p].bytes;
  return stage;
}

double StageLoads::allReduceMs(const Stage& stage, int replicas) const {
  if (replicas < 2) return 0;
  double bytes = 2.0 * (replicas - 1) / replicas * static_cast<double>(stage.parameterBytes);
  double busiestMs = 0;
  int level = 0;
  // Links of a machine carry what all members send.
  for (; level < machine_.levels() && (level == 0 || machine_.inside(level) < std::int64_t{replicas} * team_); ++level)
    busiestMs = std::max(busiestMs, (level == 0 ? 1 : team_) * bytes / machine_.bytesPerMs(level));
  return 2.0 * (replicas - 1) * machine_.routeLatencyMs(level - 1) + busiestMs;
}

/// What the backward does not hide, at least.
double StageLoads::exposedMs(const Stage& stage, int replicas, const StageForm& form, double speed,
                             double syncMs) const {
  const Reducing& reducing = reducing_[form.recompute ? 1 : 0];
  const double coreMs = allReduceCoreMs(stage, replicas, speed);
  const bool sharded = options_.shards(replicas, form.shards);
  if (stage.alone) return exposedSyncMs(reducing.buckets, reducing.ms / speed, syncMs, coreMs, sharded);
  const double wholeMs = std::max(0.0, syncMs - coreMs), gatherMs = sharded ? wholeMs / 2 : 0;
  return gatherMs + std::max(0.0, wholeMs - gatherMs - hiddenMs(stage, form, speed));
}

/// The sum without warm-up, and what one more of it adds. Left out is what other stages decide: older versions that are
/// kept whatever the warm-up is, handovers and slots beyond it, and parameters of stages before.
void StageLoads::memoryTerms(const Stage& stage, int replicas, const StageForm& form, std::int64_t& base,
                             std::int64_t& perWarmup) const {
  StageBytes bytes{.parameters = stage.parameterBytes,
                   .optimizer = options_.optimizerBytes(
                       stage.parameterBytes, options_.shards(replicas, form.shards) ? options_.owners(replicas) : 1),
                   .frozen = stage.frozenBytes,
                   .gradients = stage.gradientBytes,
                   .sent = stage.outBytes,
                   .handover = stage.handoverBytes,
                   .scratch = stage.scratch,
                   .valuesIn = stage.inBytes,
                   .gradientsOut = stage.inGradientBytes,
                   .gradientsIn = stage.outGradientBytes + stage.passGradientBytes};
  bytes.savedAs(form.recompute ? Keeping::recomputed : Keeping::kept) = stage.savedBytes;
  const StageFrame without{.gradientSets = syncDelay(stage, replicas) + 1};
  StageFrame one = without;
  one.versions += stashes_ ? 1 : 0;
  one.depths.slots += 1;
  base = stageMemory(without, bytes).total();
  perWarmup = stageMemory(one, bytes).total() - base;
}

StageLoads::Flight StageLoads::flight(const Stage& stage, int replicas, const StageForm& form) const {
  Flight flight;
  flight.computeMs = computeMs(stage, form, best_.speed);
  flight.backwardMs = hiddenMs(stage, form, best_.speed);
  flight.updateMs = updateMs(stage, replicas, form, best_.speed);
  flight.isDelayed = syncDelay(stage, replicas) > 0;
  if (replicas > 1) {
    flight.syncMs = allReduceMs(stage, replicas);
    flight.exposedMs = exposedMs(stage, replicas, form, best_.speed, flight.syncMs);
  }
  memoryTerms(stage, replicas, form, flight.baseBytes, flight.bytesPerWarmup);
  return flight;
}

StageLoads::Terms StageLoads::terms(const Stage& stage, int replicas, const StageForm& form,
                                    const StageHost& host) const {
  Terms terms{};
  int delay = syncDelay(stage, replicas);
  std::int64_t base = 0, perWarmup = 0;
  memoryTerms(stage, replicas, form, base, perWarmup);
  if (base > host.limitBytes) {
    terms[0] = infinity;
    return terms;
  }
  double r = replicas, computing = computeMs(stage, form, host.speed);
  double update = updateMs(stage, replicas, form, host.speed);
  double sync = allReduceMs(stage, replicas), reduced = 2 * (r - 1) / r * static_cast<double>(stage.parameterBytes);
  auto crossing = static_cast<double>(std::max(stage.inBytes + stage.outGradientBytes + stage.passGradientBytes,
                                               stage.outBytes + stage.inGradientBytes));
  if (flush_) {
    double own = ownMicrobatches(r) * computing;
    terms[0] = std::max(own + exposedMs(stage, replicas, form, host.speed, sync) + update,
                        drains_ ? stage.beforeMs / best_.speed + own : 0) /
               microbatches_;
    terms[1] = crossing / r / machine_.bytesPerMs(0);
    return terms;
  }
  const bool waits = delay == 0 && replicas > 1;
  double waiting =
      computing + optimizerMs(stage, replicas, form, host.speed) - hiddenMs(stage, form, host.speed) + sync;
  terms[0] = (computing + update) / r;
  if (waits) terms[waitTerm] = waiting / r;
  if (waits && stage.alone)
    terms[aloneTerm] = (computing + update + exposedMs(stage, replicas, form, host.speed, sync)) / r;
  terms[1] = sync / r;
  terms[2] = (crossing + reduced) / r / machine_.bytesPerMs(0);
  if (machine_.classes().size() == 1) terms[3] = componentMs(stage, r, reduced);
  if (hides_ && stage.afterMs > 0 && perWarmup > 0) {
    double room = static_cast<double>((host.limitBytes - base) / perWarmup + 1) * r;
    terms[loopTerm] = (computing + update + stage.afterMs / best_.speed) / room;
    if (waits) terms[waitLoopTerm] = (waiting + stage.afterMs / best_.speed) / room;
  }
  return terms;
}

/// Wherever a stage begins, 2P - 1 neighbouring leaves fill a component of P, whose link carries all of its traffic.
double StageLoads::componentMs(const Stage& stage, double replicas, double reduced) const {
  // What its members get and send for a minibatch. Others get it from one of them, if they are not divided.
  const double in = team_ * static_cast<double>(stage.inBytes + stage.outGradientBytes + stage.passGradientBytes),
               out = (mixes_ ? 1 : team_) * static_cast<double>(stage.outBytes + stage.inGradientBytes);
  const double leaves = replicas * team_;
  double ms = 0;
  for (int level = 1; level < machine_.levels(); ++level) {
    const auto inside = static_cast<double>(machine_.inside(level));
    if (machine_.inside(level) > std::int64_t{unit_} * team_ ? 2 * inside - 1 > leaves : inside > leaves) break;
    // Machines may have leaves left over.
    const std::int64_t machines = machine_.inside(level) / machine_.machineSize();
    const double teams = team_ == 1 ? inside : static_cast<double>(machines * (machine_.machineSize() / team_));
    const double ring = inside < leaves ? team_ * reduced / replicas : 0;
    ms = std::max(ms, (std::max(in, out) * teams / replicas + ring) / machine_.bytesPerMs(level));
  }
  return ms;
}

double StageLoads::withAllReduce(const Stage& stage, int replicas, const StageForm& form, double bytesPerMs,
                                 double latencyMs) const {
  double r = replicas;
  double sync = 2 * (r - 1) * (latencyMs + static_cast<double>(stage.parameterBytes) / r / bytesPerMs);
  const double exposed = exposedMs(stage, replicas, form, best_.speed, sync);
  if (flush_)
    return (ownMicrobatches(r) * computeMs(stage, form, best_.speed) + exposed +
            updateMs(stage, replicas, form, best_.speed)) /
           microbatches_;
  if (syncDelay(stage, replicas) == 1) return sync / r;
  return std::max(sync, busyMs(stage, replicas, form, best_.speed) + exposed) / r;
}

double StageLoads::largest(const Terms& terms) {
  return *std::max_element(terms.begin(), terms.end());
}

double StageLoads::bound(const Stage& stage, int replicas) const {
  double least = infinity;
  for (const StageForm& form : forms_) least = std::min(least, bound(stage, replicas, form, best_));
  return least;
}

int StageLoads::fewestReplicas(const Stage& stage, double limitMs, int most) const {
  int fewest = 0;
  for (const StageForm& form : forms_) {
    const int own = fewestReplicas(stage, limitMs, fewest > 0 ? fewest - 1 : most, form);
    if (own > 0) fewest = own;
  }
  return fewest;
}

int StageLoads::fewestReplicas(const Stage& stage, double limitMs, int most, const StageForm& form) const {
  auto roundUp = [&](int r) { return (r + unit_ - 1) / unit_ * unit_; };
  most = most / unit_ * unit_;
  if (flush_) {
    // With fewer, the busiest computes longer than a batch may take.
    const double batchMs = limitMs * microbatches_ * (1 + 1e-9), ownMs = computeMs(stage, form, best_.speed);
    double least = drains_ ? 1 : std::max(1.0, std::ceil(ownMs / limitMs * (1 - 1e-9)));
    if (drains_ && ownMs > 0) {
      const double each = std::floor(batchMs / ownMs);
      if (each < 1) return 0;
      least = std::max(least, std::ceil(microbatches_ / each * (1 - 1e-12)));
    }
    if (least > most) return 0;
    for (int r = roundUp(static_cast<int>(least)); r <= most; r += unit_) {
      const double ms = bound(stage, r, form, best_);
      if (ms <= limitMs) return r;
      if (options_.shards(2, form.shards)) continue;
      if (ms == infinity) return 0; // more would fit no better
      if (drains_) continue;
      // Updates take no less with more of them, which leaves so much for what they divide.
      const double leftMs = limitMs * (1 + 1e-9) - updateMs(stage, r, form, best_.speed) / microbatches_;
      if (leftMs <= 0 || ownMs / leftMs > most + 1.0) return 0;
      r = std::max(r, roundUp(static_cast<int>(std::ceil(ownMs / leftMs * (1 - 1e-9)))) - unit_);
    }
    return 0;
  }
  double least = (computeMs(stage, form, best_.speed) + options_.leastUpdateMs(stage.updateMs) / best_.speed) / limitMs;
  if (least > most + 1) return 0;
  int r = roundUp(std::max(1, static_cast<int>(std::ceil(least * (1 - 1e-12)))));
  while (r <= most) {
    Terms at = terms(stage, r, form, best_);
    auto tooLarge = std::find_if(at.begin(), at.end(), [&](double term) { return !(term <= limitMs); });
    if (tooLarge == at.end()) return r;
    auto which = static_cast<std::size_t>(tooLarge - at.begin());
    if (which == aloneTerm) {
      r += unit_;
      continue;
    }
    // Within the level of r, the term is too large up to some number and small enough from there.
    int end = most;
    for (int level = 0; level < machine_.levels(); ++level) {
      std::int64_t inside = machine_.inside(level);
      for (std::int64_t border : {inside, 2 * inside - 2})
        if (border >= r) end = static_cast<int>(std::min<std::int64_t>(end, border));
    }
    if (r == 1) end = 1;
    end = std::max(r, end / unit_ * unit_);
    auto suffices = [&](int replicas) { return terms(stage, replicas, form, best_)[which] <= limitMs; };
    if (!suffices(end)) {
      r = end + unit_;
      continue;
    }
    int low = r, high = end; // too large, small enough
    while (high - low > unit_) {
      int middle = roundUp(low + (high - low) / 2);
      if (middle == high) middle -= unit_;
      (suffices(middle) ? high : low) = middle;
    }
    r = high;
  }
  return 0;
}

std::int64_t StageLoads::memoryBytes(const Stage& stage, int replicas, const StageForm& form, double timeMs) const {
  std::int64_t base = 0, perWarmup = 0, warmup = 0;
  memoryTerms(stage, replicas, form, base, perWarmup);
  if (hides_ && stage.afterMs > 0 && timeMs > 0) {
    double loop =
        computeMs(stage, form, best_.speed) + (options_.leastUpdateMs(stage.updateMs) + stage.afterMs) / best_.speed;
    warmup = std::max<std::int64_t>(0, static_cast<std::int64_t>(std::ceil(loop / timeMs / replicas - 1e-6)) - 1);
  }
  return base + perWarmup * warmup;
}

double StageLoads::bytesMoved(const Stage& stage, int replicas) const {
  return static_cast<double>(stage.inBytes) * team_ +
         static_cast<double>(stage.inGradientBytes) * (mixes_ ? 1 : team_) +
         team_ * (2.0 * (replicas - 1) / replicas * static_cast<double>(stage.parameterBytes) - 1);
}
