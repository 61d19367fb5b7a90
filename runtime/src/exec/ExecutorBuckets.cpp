// Gradients on their way from a backward to the sum over the replicas.
//
// In the last minibatch that a replica contributes to an update, the backward says of one bucket after the other that
// its gradients are final (Stream::bucket), and its all-reduce begins at once, beside what is left of the backward. The
// schedule's all-reduce begins those that are left. Each replica of a stage begins them in the order of the buckets,
// which is that of the messages, whether it has a minibatch or not.
#include "Executor.h"

#include "pdcrt/Replay.h"

#include "transport/Channels.h"

#include <algorithm>
#include <map>

namespace pdcrt {

// ---- Setting up ----

void Executor::prepareBuckets(HostedStage& hosted, const ArenaHost& place) {
  const Schedule& schedule = *setup_.schedule;
  const Stage& stage = *hosted.stage;
  // A transport that needs turns has one for a stage's all-reduce, and a recorded phase tells nobody anything.
  const bool several = hosted.replicas > 1 && !isOrdered() && !device::records();
  std::map<int, HostedStage::Bucket> buckets;
  if (hosted.optimizer->parameters().empty()) buckets[0]; // its all-reduce is one of nothing
  for (const TrainedParameter& parameter : hosted.optimizer->parameters()) {
    HostedStage::Bucket& bucket = buckets[several ? parameter.row->bucket : 0];
    bucket.id = parameter.row->bucket;
    bucket.parameters.push_back(&parameter);
    for (const GradientRow& row : stage.gradients)
      if (&stage.parameters[static_cast<std::size_t>(row.parameter)] == parameter.row) bucket.gradients.push_back(&row);
  }
  // What other stages have of a gradient comes after the backward; and later buckets keep their order.
  auto isShared = [](const TrainedParameter* parameter) {
    return std::any_of(parameter->uses.begin(), parameter->uses.end(),
                       [](const TrainedParameter::Use& use) { return use.shared >= 0; });
  };
  bool early = several;
  for (auto& [id, bucket] : buckets) {
    early = early && std::none_of(bucket.parameters.begin(), bucket.parameters.end(), isShared);
    bucket.early = early;
    hosted.buckets.push_back(std::move(bucket));
  }

  const std::size_t most = setup_.floatsOfReduction;
  ReduceGroup all{
      .self = hosted.host.replica, .channel = allReduceChannel(stage.index), .staging = memory_ + place.staging};
  for (int replica = 0; replica < hosted.replicas; ++replica)
    all.ranks.push_back(places_.process({stage.index, replica}));
  std::vector<std::shared_ptr<const ReduceGroup>> pieces;
  for (HostedStage::Bucket& bucket : hosted.buckets) {
    std::vector<Segment> segments;
    std::size_t floats = 0;
    for (const TrainedParameter* parameter : bucket.parameters) {
      segments.push_back({parameter->gradient, static_cast<std::size_t>(parameter->row->shape.elements())});
      floats += segments.back().count;
    }
    bucket.firstReduction = pieces.size();
    // A turn is that of one reduction.
    bucket.reductions = isOrdered() ? 1 : std::max<std::size_t>(1, (floats + most - 1) / most);
    for (std::size_t i = 0; i < bucket.reductions; ++i) {
      all.segments = cut(segments, floats * i / bucket.reductions, floats * (i + 1) / bucket.reductions);
      pieces.push_back(std::make_shared<const ReduceGroup>(all));
      all.before += all.floats();
      all.staging += pieces.back()->share() * (all.ranks.size() - 1) * sizeof(float);
    }
  }
  auto lane = std::make_shared<ReduceLane>();
  const GradientSets sets = gradientSets(schedule, stage.index);
  for (int i = 0; i < sets.ring; ++i) {
    HostedStage::GradientSet set;
    set.memory = memory_ + place.gradients + arenaBytes(stage.bytes.gradients, static_cast<std::size_t>(i));
    if (hosted.replicas > 1)
      for (const auto& piece : pieces) set.allReduces.push_back(std::make_unique<AllReduce>(piece, lane));
    hosted.gradients.push_back(std::move(set));
  }
  if (sets.spare)
    hosted.spareGradients =
        memory_ + place.gradients + arenaBytes(stage.bytes.gradients, static_cast<std::size_t>(sets.ring));
}

// ---- The backward ----

/// Begins the all-reduce of each early bucket when it is final.
struct Executor::EarlyBuckets : BucketTaker {
  EarlyBuckets(Executor& executor, HostedStage& hosted, HostedStage::GradientSet& set, bool addsSpare, bool withInput)
      : executor_(executor), hosted_(hosted), set_(set), addsSpare_(addsSpare), withInput_(withInput) {
    executor_.stream_.giveBucketsTo(this);
  }
  ~EarlyBuckets() override { executor_.stream_.giveBucketsTo(nullptr); }

  void take(int id) override {
    // One that comes out of turn is left to the schedule's all-reduce.
    if (set_.posted == hosted_.buckets.size()) return;
    const HostedStage::Bucket& bucket = hosted_.buckets[set_.posted];
    if (bucket.id != id || !bucket.early) return;
    if (addsSpare_) executor_.addSpare(hosted_, set_, bucket, withInput_);
    for (const TrainedParameter* parameter : bucket.parameters)
      hosted_.optimizer->addUses(executor_.stream_, *parameter, set_.memory);
    executor_.postBucket(hosted_, set_, /*turn=*/-1);
  }

private:
  Executor& executor_;
  HostedStage& hosted_;
  HostedStage::GradientSet& set_;
  bool addsSpare_, withInput_;
};

/// Minibatches that this replica contributes to an update.
std::int64_t Executor::minibatchesOf(const HostedStage& hosted, std::int64_t update) const {
  const std::int64_t from = setup_.schedule->updateFirst(hosted.host.stage, update);
  const std::int64_t to = std::min(setup_.schedule->updateLast(hosted.host.stage, update), minibatches_);
  return hosted.routing.localCount(to, hosted.host.replica) - hosted.routing.localCount(from, hosted.host.replica);
}

// Minibatches of an update are summed from the first to the last. Kernels overwrite, so a later one writes the spare
// set, which is added: what backward_input has written there before another phase writes it again.
void Executor::runHalf(HostedStage& hosted, HostedStage::GradientSet& set, const Call& call, bool withInput) {
  std::int64_t& done = withInput ? set.inputs : set.minibatches;
  const bool addsSpare = done > 0;
  {
    // In the last minibatch what is final stays so. Of two updates, the first begins all of its all-reduces first.
    std::optional<EarlyBuckets> taker;
    if (hosted.buckets[0].early && hosted.reduced + 1 == set.update && done + 1 == minibatchesOf(hosted, set.update))
      taker.emplace(*this, hosted, set, addsSpare, withInput);
    if (!withInput)
      run("backward_weight", hosted.stage->backwardWeight, hosted, call);
    else if (hosted.optimizer->hasEarly())
      backwardWithUpdates(hosted, call, set.update);
    else
      run("backward_input", hosted.stage->backwardInput, hosted, call);
  }
  if (done++ == 0) return;
  for (std::size_t i = set.posted; i < hosted.buckets.size(); ++i) addSpare(hosted, set, hosted.buckets[i], withInput);
}

void Executor::addSpare(const HostedStage& hosted, const HostedStage::GradientSet& set,
                        const HostedStage::Bucket& bucket, bool withInput) {
  for (const GradientRow* row : bucket.gradients) {
    if (row->withInput != withInput) continue;
    auto* sum = reinterpret_cast<float*>(set.memory + row->offset);
    const float* const terms[] = {sum, reinterpret_cast<const float*>(hosted.spareGradients + row->offset)};
    device::addUp(stream_, sum, terms,
                  hosted.stage->parameters[static_cast<std::size_t>(row->parameter)].shape.elements());
  }
}

// ---- The all-reduce ----

/// Adds the uses of each parameter, here and in other stages, of the buckets whose all-reduce has not begun.
Status Executor::addUses(HostedStage& hosted, const HostedStage::GradientSet& set, const Action& action) {
  if (Status status = hosted.tied.collect(stream_, action.index, minibatches_, action); !status) return status;
  for (std::size_t i = set.posted; i < hosted.buckets.size(); ++i)
    for (const TrainedParameter* parameter : hosted.buckets[i].parameters)
      hosted.optimizer->addUses(stream_, *parameter, set.memory, hosted.tied.arrived());
  return {};
}

/// Begins the all-reduce of the next bucket.
void Executor::postBucket(HostedStage& hosted, HostedStage::GradientSet& set, std::int64_t turn) {
  const std::int64_t from = setup_.schedule->updateFirst(hosted.host.stage, set.update);
  const std::int64_t to = std::min(setup_.schedule->updateLast(hosted.host.stage, set.update), minibatches_);
  // The gradients of uses elsewhere arrive at any replica, also at one that has no minibatch in the run's last update.
  const bool all = hosted.tied.owns();
  for (int replica = 0; replica < hosted.replicas; ++replica)
    hosted.contributes[static_cast<std::size_t>(replica)] = all || hosted.routing.hasOneOf(from, to, replica);
  const HostedStage::Bucket& bucket = hosted.buckets[set.posted++];
  for (std::size_t i = 0; i < bucket.reductions; ++i) {
    AllReduce& reduction = *set.allReduces[bucket.firstReduction + i];
    reduction.prepare(set.memory, hosted.contributes);
    reduction.turn = turn;
    post(reduction);
  }
}

Status Executor::allReduce(HostedStage& hosted, const Action& action) {
  HostedStage::GradientSet& set = gradientsOf(hosted, action.index);
  if (set.allReduces.empty()) return {}; // no other replica
  if (set.update != action.index && (action.wait || set.minibatches > 0))
    return {Exit::invalid,
            "action " + toString(action) + " finds the gradients of update " + std::to_string(set.update)};
  if (action.wait) {
    if (hosted.reduced < action.index)
      return {Exit::invalid, "action " + toString(action) + " comes before the all-reduce that it awaits"};
    set.reduced = true;
    const double begin = now();
    for (const std::unique_ptr<AllReduce>& reduction : set.allReduces)
      if (!await(*reduction)) return setup_.communicator->transport().failure();
    tellWait(action, begin, set.allReduces.front()->postedAt, set.allReduces.back()->completedAt);
    return {};
  }
  if (hosted.reduced >= action.index || (set.posted == 0 && set.allReduces.front()->pending()))
    return {Exit::invalid, "action " + toString(action) + " needs gradients whose last all-reduce is not complete",
            "await it earlier in schedule.txt"};
  set.update = hosted.reduced = action.index;
  const bool all = hosted.tied.owns();
  if (set.minibatches == 0 && all) device::zero(stream_, set.memory, hosted.stage->bytes.gradients);
  if (set.minibatches > 0 || all)
    if (Status status = addUses(hosted, set, action); !status) return status;
  set.usesAdded = true;
  const std::int64_t turn = followed_ ? followed_->turn(action) : -1;
  while (set.posted < hosted.buckets.size()) postBucket(hosted, set, turn);
  return {};
}

} // namespace pdcrt
