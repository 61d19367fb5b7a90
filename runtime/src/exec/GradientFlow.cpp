#include "GradientFlow.h"

#include "OwnRanges.h"
#include "pdcrt/Replay.h"
#include "transport/Channels.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

namespace pdcrt {

// ---- Setting up ----

void GradientFlow::prepare(const GradientFlowSetup& setup, const ArenaHost& place, std::byte* memory) {
  setup_ = setup;
  const Schedule& schedule = *setup.schedule;
  const std::size_t bytes = setup.stage->bytes.gradients;
  routing_ = schedule.routing(setup.host.stage);
  replicas_.reserve(static_cast<std::size_t>(routing_.replicas()));
  terms_.reserve(static_cast<std::size_t>(routing_.replicas() * setup.members));
  prepareBuckets();
  const std::vector<Piece> reduced = pieces(memory + place.staging);
  for (const Piece& piece : reduced) ofMembers_.push_back(piece.ofMembers);
  auto lane = std::make_shared<ReduceLane>();
  const GradientSets sets = gradientSets(schedule, setup.host.stage);
  for (int i = 0; i < sets.ring; ++i) {
    Set set;
    set.memory = memory + place.gradients + arenaBytes(bytes, static_cast<std::size_t>(i));
    if (shape().sums())
      for (const Piece& piece : reduced)
        set.allReduces.push_back(std::make_unique<AllReduce>(piece.replicas, lane, piece.sharers));
    sets_.push_back(std::move(set));
  }
  if (sets.spare) spare_ = memory + place.spare;
  if (setup.sumPlace) sum_ = memory + place.sum;
  prepareNorms();
}

void GradientFlow::prepareBuckets() {
  const Stage& stage = *setup_.stage;
  // A transport that needs turns has one for a stage's all-reduce, and a recorded phase tells nobody anything.
  const bool several = shape().sums() && !setup_.posting->transport().ordered() && !device::records();
  std::map<int, Bucket> buckets;
  if (setup_.optimizer->parameters().empty()) buckets[0]; // its all-reduce is one of nothing
  for (const TrainedParameter& parameter : setup_.optimizer->parameters()) {
    Bucket& bucket = buckets[several ? parameter.row->bucket : 0];
    bucket.id = parameter.row->bucket;
    bucket.parameters.push_back(&parameter);
    for (const GradientRow& row : stage.gradients)
      if (&stage.parameters[static_cast<std::size_t>(row.parameter)] == parameter.row) bucket.gradients.push_back(&row);
  }
  // What other stages have of a gradient comes after the backward; and later buckets keep their order.
  auto isTied = [](const TrainedParameter* parameter) {
    return std::any_of(parameter->uses.begin(), parameter->uses.end(),
                       [](const TrainedParameter::Use& use) { return use.shared >= 0; });
  };
  bool early = several;
  for (auto& [id, bucket] : buckets) {
    early = early && std::none_of(bucket.parameters.begin(), bucket.parameters.end(), isTied);
    bucket.early = early;
    buckets_.push_back(std::move(bucket));
  }
}

/// What is reduced at a time, bucket by bucket.
std::vector<GradientFlow::Piece> GradientFlow::pieces(std::byte* staging) {
  if (isSharded()) return shardedPieces(staging);
  const bool ofMembers = shape().teamSums;
  ReduceGroup all = everyone(ofMembers), replicas = everyone(false);
  all.staging = staging;
  std::vector<Piece> pieces;
  for (Bucket& bucket : buckets_) {
    // Of a parameter of which members have parts, only the replicas have terms.
    std::vector<Segment> ofAll, ofReplicas;
    for (const TrainedParameter* parameter : bucket.parameters)
      (ofMembers && !parameter->row->part.isWhole() ? ofReplicas : ofAll)
          .push_back({parameter->gradient, static_cast<std::size_t>(parameter->row->shape.elements())});
    bucket.firstReduction = pieces.size();
    addPieces(pieces, all, ofAll, ofMembers);
    replicas.staging = all.staging;
    if (!ofReplicas.empty() && routing_.replicas() > 1) addPieces(pieces, replicas, ofReplicas, false);
    all.staging = replicas.staging;
    bucket.reductions = pieces.size() - bucket.firstReduction;
  }
  return pieces;
}

/// Who has terms of a gradient: replicas, or all of their members.
ReduceGroup GradientFlow::everyone(bool ofMembers) const {
  ReduceGroup group{.self = setup_.host.replica, .channel = allReduceChannel(setup_.host.stage)};
  for (int replica = 0; replica < routing_.replicas(); ++replica)
    for (int member = ofMembers ? 0 : setup_.member; member < (ofMembers ? setup_.members : setup_.member + 1);
         ++member)
      group.ranks.push_back(setup_.places->process({setup_.host.stage, replica}, member));
  if (ofMembers) group.self = setup_.host.replica * setup_.members + setup_.member;
  return group;
}

/// Adds pieces of what lies at `segments`; at least one, of nothing if there is nothing. `all` goes on behind them.
void GradientFlow::addPieces(std::vector<Piece>& pieces, ReduceGroup& all, const std::vector<Segment>& segments,
                             bool ofMembers) const {
  const std::size_t most = setup_.floatsOfReduction;
  std::size_t floats = 0;
  for (const Segment& segment : segments) floats += segment.count;
  const bool ordered = setup_.posting->transport().ordered(); // few messages
  const std::size_t count = ordered ? 1 : std::max<std::size_t>(1, (floats + most - 1) / most);
  for (std::size_t i = 0; i < count; ++i) {
    all.segments = cut(segments, floats * i / count, floats * (i + 1) / count);
    const auto group = std::make_shared<const ReduceGroup>(all);
    pieces.push_back({group, group, ofMembers});
    all.before += all.floats();
    all.staging += group->share() * (all.ranks.size() - 1) * sizeof(float);
  }
}

/// Who has the shard of this replica besides this process: owners of the same one, and, of what all members have terms,
/// the members of each. Null: nobody.
std::shared_ptr<const ReduceGroup> GradientFlow::sharersOf(const ReduceGroup& group, bool ofMembers) const {
  const Shards& shards = *setup_.optimizer->shards();
  const int members = ofMembers ? setup_.members : 1;
  if (shards.owners() == routing_.replicas() && members == 1) return nullptr;
  auto sharers = std::make_shared<ReduceGroup>();
  sharers->channel = group.channel;
  for (int replica = shards.shardOf(setup_.host.replica); replica < routing_.replicas(); replica += shards.owners())
    for (int member = 0; member < members; ++member) {
      const int of = replica * members + member;
      if (of == group.self) sharers->self = static_cast<int>(sharers->ranks.size());
      sharers->ranks.push_back(group.ranks[static_cast<std::size_t>(of)]);
      sharers->parts.push_back(group.parts[static_cast<std::size_t>(of)]);
    }
  return sharers;
}

/// The same, where each replica sums its shard. Of what all members have terms, each sums a share of the ranges.
std::vector<GradientFlow::Piece> GradientFlow::shardedPieces(std::byte* staging) {
  std::vector<Piece> pieces;
  for (Bucket& bucket : buckets_) {
    bucket.firstReduction = pieces.size();
    for (const bool ofMembers : {false, true}) {
      std::vector<const TrainedParameter*> parameters;
      for (const TrainedParameter* parameter : bucket.parameters)
        if (ofMembers == (shape().teamSums && parameter->row->part.isWhole())) parameters.push_back(parameter);
      // Of nothing there is one sum, too.
      const bool isOfNothing = bucket.parameters.empty() && ofMembers == shape().teamSums;
      if (!parameters.empty() || isOfNothing) addShardedPieces(pieces, staging, parameters, ofMembers);
    }
    bucket.reductions = pieces.size() - bucket.firstReduction;
  }
  return pieces;
}

/// Chunks of these parameters, as many together as are reduced at a time. `staging` goes on behind them.
void GradientFlow::addShardedPieces(std::vector<Piece>& pieces, std::byte*& staging,
                                    std::span<const TrainedParameter* const> parameters, bool ofMembers) const {
  const bool ordered = setup_.posting->transport().ordered();
  const std::int64_t members = ofMembers ? setup_.members : 1;
  const ReduceGroup all = everyone(ofMembers);
  ReduceGroup piece = all;
  std::size_t floats = 0;
  piece.parts.resize(all.ranks.size());
  const auto close = [&] {
    piece.staging = staging;
    const auto group = std::make_shared<const ReduceGroup>(piece);
    pieces.push_back({group, sharersOf(piece, ofMembers), ofMembers});
    staging += group->share() * (all.ranks.size() - 1) * sizeof(float);
    piece = all;
    piece.parts.resize(all.ranks.size());
    floats = 0;
  };
  for (const TrainedParameter* parameter : parameters)
    for (const Shards::Chunk& chunk : setup_.optimizer->shards()->chunks()) {
      if (&setup_.stage->parameters[static_cast<std::size_t>(chunk.row)] != parameter->row) continue;
      std::size_t more = 0;
      for (const Shards::Range& range : chunk.of) more += static_cast<std::size_t>(range.count);
      if (!ordered && floats > 0 && floats + more > setup_.floatsOfReduction) close();
      auto part = piece.parts.begin();
      for (const Shards::Range& range : chunk.of)
        for (std::int64_t member = 0; member < members; ++member, ++part) {
          const std::int64_t begin = range.count * member / members, end = range.count * (member + 1) / members;
          if (begin < end)
            part->push_back({parameter->gradient + static_cast<std::size_t>(range.begin + begin) * sizeof(float),
                             static_cast<std::size_t>(end - begin)});
        }
      floats += more;
    }
  close();
}

void GradientFlow::prepareNorms() {
  const Schedule& schedule = *setup_.schedule;
  const bool together = schedule.minibatchesPerUpdate > 0;
  NormGroup everyone{.ranks = {}, .counts = {}, .channel = normChannel(schedule)};
  for (int stage = 0; stage < static_cast<int>(schedule.stages.size()); ++stage)
    for (int replica = 0; replica < schedule.routing(stage).replicas(); ++replica)
      for (int member = 0; member < schedule.stages[static_cast<std::size_t>(stage)].team; ++member) {
        const Host host{stage, replica};
        if (!together && stage != setup_.host.stage) {
          everyone.channel += stage < setup_.host.stage ? 2 : 0;
          continue;
        }
        if (setup_.host == host && setup_.member == member) everyone.self = everyone.ranks.size();
        everyone.ranks.push_back(setup_.places->process(host, member));
        everyone.counts.push_back(replica < schedule.stages[static_cast<std::size_t>(stage)].owners());
        if (setup_.training->clipScope == ClipScope::stage) everyone.stages.push_back(stage);
      }
  const auto sharded = [](const ScheduleStage& stage) { return stage.isSharded(); };
  if (std::none_of(schedule.stages.begin(), schedule.stages.end(), sharded)) everyone.stages.clear();
  if (schedule.hasNorm(setup_.host.stage)) norm_ = std::make_unique<GradientNorm>(std::move(everyone));
  if (setup_.members == 1) return;
  NormGroup team{.ranks = {},
                 .counts = std::vector<bool>(static_cast<std::size_t>(setup_.members), true),
                 .self = static_cast<std::size_t>(setup_.member),
                 .channel = teamNormChannel(schedule)};
  for (int member = 0; member < setup_.members; ++member)
    team.ranks.push_back(setup_.places->process(setup_.host, member));
  teamNorm_ = std::make_unique<GradientNorm>(std::move(team));
}

// ---- The minibatches of an update ----

std::int64_t GradientFlow::firstOf(std::int64_t update) const {
  return setup_.schedule->updateFirst(setup_.host.stage, update);
}

/// The last update of a run averages fewer.
std::int64_t GradientFlow::endOf(std::int64_t update) const {
  return std::min(setup_.schedule->updateLast(setup_.host.stage, update), setup_.run->minibatches);
}

/// Minibatches that this replica contributes to an update.
std::int64_t GradientFlow::minibatchesOf(std::int64_t update) const {
  const int replica = setup_.host.replica;
  return routing_.localCount(endOf(update), replica) - routing_.localCount(firstOf(update), replica);
}

// ---- The backward ----

Status GradientFlow::claim(const Action& action, std::int64_t update) {
  Set& set = setOf(update);
  if ((set.inputs > 0 || set.minibatches > 0) && set.update != update)
    return {Exit::invalid, "action " + toString(action) + " overwrites the gradients of update " +
                               std::to_string(set.update) + ", which is not made"};
  if (Status status = takePlace(action); !status) return status;
  set.update = update;
  return {};
}

/// Where stages have their gradients in one place in turn: it is this one's until these are summed.
Status GradientFlow::takePlace(const Action& action) {
  SumPlace* const place = setup_.sumPlace;
  if (!place) return {};
  if (place->stage >= 0 && place->stage != setup_.host.stage)
    return {Exit::invalid,
            "action " + toString(action) + " overwrites the gradients of stage " + std::to_string(place->stage),
            "await their sum earlier in schedule.txt"};
  place->stage = setup_.host.stage;
  return {};
}

GradientFlow::Half::Half(GradientFlow& flow, std::int64_t update, bool withInput)
    : flow_(flow), set_(flow.setOf(update)), withInput_(withInput) {
  const std::int64_t done = withInput ? set_.inputs : set_.minibatches;
  addsSpare_ = done > 0;
  // In the last minibatch what is final stays so. Of two updates, the first begins all of its all-reduces first.
  takes_ = flow.buckets_[0].early && flow.reduced_ + 1 == update && done + 1 == flow.minibatchesOf(update);
  if (takes_) flow.setup_.posting->stream().giveBucketsTo(this);
}

GradientFlow::Half::~Half() {
  if (takes_) flow_.setup_.posting->stream().giveBucketsTo(nullptr);
}

/// Begins the all-reduce of an early bucket, which is final.
void GradientFlow::Half::take(int id) {
  // One that comes out of turn is left to the schedule's all-reduce.
  if (set_.posted == flow_.buckets_.size()) return;
  const Bucket& bucket = flow_.buckets_[set_.posted];
  if (bucket.id != id || !bucket.early) return;
  if (addsSpare_) flow_.addSpare(set_, bucket, withInput_);
  for (const TrainedParameter* parameter : bucket.parameters)
    flow_.setup_.optimizer->addUses(flow_.setup_.posting->stream(), *parameter, set_.memory);
  flow_.postBucket(set_, /*turn=*/-1);
}

void GradientFlow::Half::finish() {
  if (takes_) flow_.setup_.posting->stream().giveBucketsTo(nullptr);
  takes_ = false;
  ++(withInput_ ? set_.inputs : set_.minibatches);
  if (!withInput_) set_.usesAdded = false;
  if (!addsSpare_) return;
  for (std::size_t i = set_.posted; i < flow_.buckets_.size(); ++i) flow_.addSpare(set_, flow_.buckets_[i], withInput_);
}

/// What backward_input has written into the spare set is added before another phase writes it again.
void GradientFlow::addSpare(const Set& set, const Bucket& bucket, bool withInput) {
  for (const GradientRow* row : bucket.gradients) {
    if (row->withInput != withInput) continue;
    auto* sum = reinterpret_cast<float*>(set.memory + row->offset);
    const float* const terms[] = {sum, reinterpret_cast<const float*>(spare_ + row->offset)};
    device::addUp(setup_.posting->stream(), sum, terms,
                  setup_.stage->parameters[static_cast<std::size_t>(row->parameter)].shape.elements());
  }
}

// ---- The sums over uses and replicas ----

/// Adds the uses of each parameter, here and in other stages, of the buckets whose all-reduce has not begun.
Status GradientFlow::addUses(Set& set, const Action& action) {
  Stream& q = setup_.posting->stream();
  if (Status status = setup_.tied->collect(q, action.index, setup_.run->minibatches, action); !status) return status;
  for (std::size_t i = set.posted; i < buckets_.size(); ++i)
    for (const TrainedParameter* parameter : buckets_[i].parameters)
      setup_.optimizer->addUses(q, *parameter, set.memory, setup_.tied->arrived());
  set.usesAdded = true;
  return {};
}

/// Begins the all-reduce of the next bucket.
void GradientFlow::postBucket(Set& set, std::int64_t turn) {
  // The gradients of uses elsewhere arrive at any replica, also at one that has no minibatch in the run's last update.
  const bool all = setup_.tied->owns();
  replicas_.clear();
  terms_.clear();
  for (int replica = 0; replica < routing_.replicas(); ++replica) {
    const bool contributes = all || routing_.hasOneOf(firstOf(set.update), endOf(set.update), replica);
    replicas_.push_back(contributes);
    terms_.insert(terms_.end(), static_cast<std::size_t>(setup_.members), contributes);
  }
  const Bucket& bucket = buckets_[set.posted++];
  for (std::size_t i = 0; i < bucket.reductions; ++i) {
    AllReduce& reduction = *set.allReduces[bucket.firstReduction + i];
    reduction.prepare(set.memory, ofMembers_[bucket.firstReduction + i] ? terms_ : replicas_);
    reduction.turn = turn;
    reduction.endsTurn = i + 1 == bucket.reductions;
    setup_.posting->post(reduction);
  }
}

Status GradientFlow::allReduce(const Action& action, const StartOrder* order) {
  Set& set = setOf(action.index);
  if (set.allReduces.empty()) return {}; // there is one term
  if (set.update != action.index && (action.wait || set.minibatches > 0))
    return {Exit::invalid,
            "action " + toString(action) + " finds the gradients of update " + std::to_string(set.update)};
  if (action.wait) {
    if (reduced_ < action.index)
      return {Exit::invalid, "action " + toString(action) + " comes before the all-reduce that it awaits"};
    set.reduced = true;
    const double begin = now();
    for (const std::unique_ptr<AllReduce>& reduction : set.allReduces)
      if (!setup_.posting->await(*reduction)) return setup_.posting->failure();
    setup_.posting->tellWait(action, begin, set.allReduces.front()->postedAt, set.allReduces.back()->completedAt);
    if (!sum_) return {};
    takeOwnGradients(setup_.posting->stream(), *setup_.optimizer, set.memory, sum_);
    setup_.sumPlace->stage = -1;
    return {};
  }
  if (reduced_ >= action.index || (set.posted == 0 && set.allReduces.front()->pending()))
    return {Exit::invalid, "action " + toString(action) + " needs gradients whose last all-reduce is not complete",
            "await it earlier in schedule.txt"};
  if (Status status = takePlace(action); !status) return status;
  set.update = reduced_ = action.index;
  const bool all = setup_.tied->owns();
  if (set.minibatches == 0 && all) device::zero(setup_.posting->stream(), set.memory, setup_.stage->bytes.gradients);
  if (set.minibatches > 0 || all)
    if (Status status = addUses(set, action); !status) return status;
  set.usesAdded = true;
  const std::int64_t turn = order ? order->turn(action) : -1;
  while (set.posted < buckets_.size()) postBucket(set, turn);
  return {};
}

// ---- The norm ----

/// The squares of a stage's gradients, added up: of what this member, and of what this replica, counts.
Status GradientFlow::squaresOf(const Set& set, ExactSum& sum) {
  sum.clear();
  squared_.clear();
  std::size_t blocks = 0;
  const auto add = [&](const TrainedParameter& parameter, std::int64_t begin, std::int64_t count) {
    if (!countsInNorm(parameter.row->part, setup_.member)) return;
    squared_.push_back({reinterpret_cast<const float*>(set.memory + parameter.gradient) + begin, count});
    blocks += device::blocksOfSquares(count, squaresBlock);
  };
  for (const Optimizer::Own& own : setup_.optimizer->own())
    if (!sum_) {
      add(*own.parameter, own.range.begin, own.range.count);
    } else if (countsInNorm(own.parameter->row->part, setup_.member)) {
      squared_.push_back({reinterpret_cast<const float*>(sum_) + own.range.at, own.range.count});
      blocks += device::blocksOfSquares(own.range.count, squaresBlock);
    }
  if (!isSharded())
    for (const TrainedParameter& parameter : setup_.optimizer->parameters())
      add(parameter, 0, parameter.row->shape.elements());
  squares_.resize(blocks);
  if (Status status = device::sumsOfSquares(setup_.posting->stream(), squared_, squaresBlock, squares_); !status)
    return status;
  for (double squares : squares_) sum.add(squares);
  return {};
}

/// The squares of all of the stage's gradients. The members of a team tell each other theirs.
Status GradientFlow::squaresOfTeam(const Set& set, ExactSum& sum) {
  if (!teamNorm_) return squaresOf(set, sum);
  if (Status status = squaresOf(set, teamNorm_->sum); !status) return status;
  teamNorm_->prepare();
  setup_.posting->post(*teamNorm_);
  if (Status status = setup_.posting->waitFor(*teamNorm_); !status) return status;
  sum = teamNorm_->sum;
  return {};
}

Status GradientFlow::norm(const Action& action) {
  if (action.wait) {
    normOf_ = action.index;
    return setup_.posting->waitFor(action, *norm_);
  }
  Set& set = setOf(action.index);
  if (norm_->pending() || (!set.allReduces.empty() && !set.reduced))
    return {Exit::invalid, "action " + toString(action) + " needs the last norm, and the sum over the replicas",
            "await them earlier in schedule.txt"};
  if (!set.usesAdded)
    if (Status status = addUses(set, action); !status) return status;
  if (Status status = squaresOf(set, norm_->sum); !status) return status;
  norm_->prepare();
  setup_.posting->post(*norm_);
  return {};
}

Status GradientFlow::scale(std::int64_t update, std::int64_t minibatches, double lossScale,
                           std::optional<double>& scale) {
  const Training& training = *setup_.training;
  const double unscaled = 1 / lossScale;
  scale = unscaled;
  if (!training.checksGradients()) return {};
  const bool own = !norm_ || (training.clipNorm && training.clipScope == ClipScope::stage);
  ExactSum squares;
  if (!own)
    squares = norm_->sum;
  else if (isSharded())
    squares = norm_->ofStage();
  else if (Status status = squaresOfTeam(setOf(update), squares); !status)
    return status;
  if (!squares.finite() || (norm_ && !norm_->sum.finite())) {
    scale.reset();
  } else if (training.clipNorm) {
    const double norm = std::sqrt(squares.value()) / static_cast<double>(minibatches) * unscaled;
    scale = std::min(1.0, *training.clipNorm / (norm + 1e-6)) * unscaled;
  }
  return {};
}

// ---- The update ----

Status GradientFlow::finishFor(const Action& update) {
  Set& set = setOf(update.index);
  if (!set.allReduces.empty() && !set.reduced)
    return {Exit::invalid, "action " + toString(update) + " needs the sum over the replicas",
            "await it earlier in schedule.txt"};
  if (!set.usesAdded)
    if (Status status = addUses(set, update); !status) return status;
  if (norm_ && normOf_ != update.index)
    return {Exit::invalid, "action " + toString(update) + " needs the norm of its gradients",
            "await it earlier in schedule.txt"};
  return {};
}

void GradientFlow::updated(std::int64_t update) {
  Set& set = setOf(update);
  set.inputs = set.minibatches = 0;
  set.posted = 0;
  set.usesAdded = set.reduced = false;
}

} // namespace pdcrt
