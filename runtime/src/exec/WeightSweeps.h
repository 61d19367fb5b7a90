// Weights that lie in shards between their uses (`shard weights` in Schedule.h), and are gathered for each sweep of
// their stage.
//
// The action UN takes a place of the rank's pool, copies the replica's shard into it, sends it to the others and
// receives theirs; ?UN waits until all weights are there; RE gives the place back. Sweeps of a stage are in order. How
// many may be gathered at a time is the number of places.
#pragma once

#include "OwnRanges.h"
#include "Posting.h"
#include "WeightGather.h"
#include "collectives/AllGather.h"
#include "machine/StartOrder.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace pdcrt {

/// Places for all weights of a stage, which the stages of a rank take in turn.
class WeightPool {
public:
  void prepare(std::byte* memory, std::size_t stride, int places) {
    free_.clear();
    for (int i = places - 1; i >= 0; --i) free_.push_back(memory + static_cast<std::size_t>(i) * stride);
  }
  /// Null: all are taken.
  std::byte* take() {
    if (free_.empty()) return nullptr;
    std::byte* const place = free_.back();
    free_.pop_back();
    return place;
  }
  void give(std::byte* place) { free_.push_back(place); }

private:
  std::vector<std::byte*> free_;
};

class WeightSweeps : public GatherRing {
public:
  /// `optimizer` has a shard. All outlive the object. `places`: of the pool.
  void prepare(const Schedule& schedule, const Host& host, const Optimizer& optimizer,
               const std::shared_ptr<const ReduceGroup>& replicas, WeightPool& pool, int places, Posting& posting) {
    schedule_ = &schedule;
    host_ = host;
    optimizer_ = &optimizer;
    pool_ = &pool;
    posting_ = &posting;
    for (int i = 0; i < places; ++i) gathers_.push_back(std::make_unique<AllGather>(replicas));
    places_.resize(gathers_.size());
  }
  /// Whether the stage's weights lie in shards.
  bool isUsed() const { return !gathers_.empty(); }

  /// Before a run: sweeps count from 1 again.
  void restart() { posted_ = awaited_ = givenUp_ = 0; }

  /// An action UN. `shard`: of the newest version, whose number is `newest`; -1: whatever it is. `order`: of the
  /// transfers, if there is one.
  Status gather(const Action& action, std::byte* shard, std::int64_t newest, const StartOrder* order) {
    if (action.index != (action.wait ? awaited_ : posted_) + 1 || (action.wait && posted_ < action.index))
      return {Exit::invalid, "action " + toString(action) + " is out of order: " + std::to_string(posted_) +
                                 " sweeps have begun, " + std::to_string(awaited_) + " have been awaited"};
    AllGather& gather = gatherOf(action.index);
    if (action.wait) {
      ++awaited_;
      return posting_->waitFor(action, gather);
    }
    if (newest >= 0 && schedule_->versionOf(action) - 1 > newest)
      return {Exit::invalid, "action " + toString(action) + " gathers a version that is not there, the newest is " +
                                 std::to_string(newest)};
    std::byte*& place = placeOf(action.index);
    place = pool_->take();
    if (!place)
      return {Exit::invalid,
              "action " + toString(action) + " finds no place for the weights of stage " +
                  std::to_string(action.stage) + ", all are taken",
              "give up those of another stage earlier in schedule.txt, or write 'pool' behind the rank's step"};
    ++posted_;
    placeOwnWeights(posting_->stream(), *optimizer_, shard, place);
    gather.prepare(place, order ? order->turn(action) : -1);
    posting_->post(gather);
    return {};
  }

  /// An action RE.
  Status giveUp(const Action& action) {
    if (action.index != givenUp_ + 1 || action.index > awaited_)
      return {Exit::invalid, "action " + toString(action) +
                                 " gives up weights that are not there: " + std::to_string(awaited_) +
                                 " sweeps have been awaited, " + std::to_string(givenUp_) + " given up"};
    ++givenUp_;
    pool_->give(placeOf(action.index));
    return {};
  }

  /// All weights of a version; null: they are not here. -1: of the newest.
  std::byte* weights(std::int64_t version) const {
    if (awaited_ == givenUp_) return nullptr;
    const Action sweep{.kind = ActionKind::unshard, .stage = host_.stage, .index = awaited_};
    if (version >= 0 && schedule_->versionOf(sweep) != version + 1) return nullptr;
    return places_[numberOf(givenUp_ + 1)];
  }

  /// Whether all sweeps of an update have been given up.
  bool isDone(std::int64_t update) const {
    return !isUsed() || givenUp_ >= update * schedule_->stages[static_cast<std::size_t>(host_.stage)].sweeps;
  }

private:
  std::size_t numberOf(std::int64_t sweep) const { return static_cast<std::size_t>(sweep) % gathers_.size(); }
  AllGather& gatherOf(std::int64_t sweep) { return *gathers_[numberOf(sweep)]; }
  std::byte*& placeOf(std::int64_t sweep) { return places_[numberOf(sweep)]; }

  const Schedule* schedule_ = nullptr;
  Host host_;
  const Optimizer* optimizer_ = nullptr;
  WeightPool* pool_ = nullptr;
  Posting* posting_ = nullptr;
  std::vector<std::byte*> places_; ///< where the weights of a sweep are, beside its gather
  std::int64_t posted_ = 0, awaited_ = 0, givenUp_ = 0;
};

} // namespace pdcrt
