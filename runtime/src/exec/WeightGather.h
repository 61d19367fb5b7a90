// Versions of a stage's weights that its replicas have updated in shards, on their way to all of them.
//
// A replica updates its shard of a version (Updates.cpp), the action AG sends it to the others and receives theirs, and
// ?AG waits until the version is whole. Versions are gathered in their blocks of the arena, so as many may be under way
// as there are blocks.
#pragma once

#include "Posting.h"
#include "Weights.h"
#include "collectives/AllGather.h"
#include "machine/StartOrder.h"
#include "pdcrt/Optimizer.h"
#include "pdcrt/Places.h"
#include "pdcrt/Schedule.h"
#include "transport/Channels.h"

#include <memory>
#include <string>
#include <vector>

namespace pdcrt {

/// The replicas that have all of a stage's weights together with this one, and what each has of a block of them.
/// `optimizer` has a shard.
inline std::shared_ptr<const ReduceGroup> ownersOfWeights(const Places& places, const Host& host, int member,
                                                          const Stage& stage, const Optimizer& optimizer) {
  auto group = std::make_shared<ReduceGroup>();
  const Shards& shards = *optimizer.shards();
  group->self = shards.shardOf(host.replica);
  group->channel = allReduceChannel(host.stage);
  for (int shard = 0; shard < shards.owners(); ++shard) {
    group->ranks.push_back(places.process({host.stage, host.replica - group->self + shard}, member));
    std::vector<Segment>& part = group->parts.emplace_back();
    for (const Shards::Range& range : shards.of(shard))
      part.push_back({stage.parameters[static_cast<std::size_t>(range.row)].offset +
                          static_cast<std::size_t>(range.begin) * sizeof(float),
                      static_cast<std::size_t>(range.count)});
  }
  return group;
}

/// The all-gathers of a stage, in turn.
class GatherRing {
public:
  std::span<const std::unique_ptr<AllGather>> ring() const { return gathers_; }
  /// Calls visit(work) for all works that may be under way, until it fails.
  template <class Visit>
  Status forEachWork(Visit visit) {
    for (const std::unique_ptr<AllGather>& gather : gathers_)
      if (Status status = visit(*gather); !status) return status;
    return {};
  }

protected:
  std::vector<std::unique_ptr<AllGather>> gathers_; ///< none where the stage gathers nothing
};

class WeightGather : public GatherRing {
public:
  /// All outlive the object. `versions`: that the stage keeps.
  void prepare(const std::shared_ptr<const ReduceGroup>& replicas, int versions, Posting& posting) {
    posting_ = &posting;
    for (int i = 0; i < versions; ++i) gathers_.push_back(std::make_unique<AllGather>(replicas));
  }
  /// Before a run: versions count from 0 again.
  void restart() { awaited_ = 0; }

  /// An action AG. `order`: of the transfers, if there is one.
  Status act(const Action& action, const Versions& versions, const StartOrder* order) {
    AllGather& gather = *gathers_[static_cast<std::size_t>(action.index) % gathers_.size()];
    if (action.wait) {
      awaited_ = action.index;
      return posting_->waitFor(action, gather);
    }
    if (gather.pending()) return busyBuffer(action);
    if (!versions.alive(action.index))
      return {Exit::invalid, "action " + toString(action) + " gathers a version that is not there, the newest is " +
                                 std::to_string(versions.newest())};
    gather.prepare(versions.at(action.index), order ? order->turn(action) : -1);
    posting_->post(gather);
    return {};
  }

  /// Whether a phase may read all weights of a version.
  bool has(std::int64_t version) const { return gathers_.empty() || version <= awaited_; }

private:
  Posting* posting_ = nullptr;
  std::int64_t awaited_ = 0;
};

} // namespace pdcrt
