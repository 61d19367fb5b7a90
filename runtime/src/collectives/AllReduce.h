// The sum of gradients over the replicas of a stage, in replica order: GatherParts, AddParts and SpreadParts
// (Exchange.h) one after the other. The result does not depend on timing, and is the same in every transport. A replica
// that contributes nothing still owns its part and receives the rest. A reduce-scatter is the same without the last
// step: each replica has the sum of its own part only. Where several replicas own a shard, each makes the sum of a part
// of it, and the last step is among them.
//
// Three reductions of a replica may overlap, one in each step: while a rank adds, its links gather the next reduction
// and spread the last one.
#pragma once

#include "Exchange.h"

#include <memory>
#include <span>
#include <vector>

namespace pdcrt {

class AllReduce;

/// The reductions of one replica, which go through their steps in the order of posting. Touched by the communication
/// thread.
struct ReduceLane {
  const AllReduce *gathering = nullptr, *summing = nullptr, *spreading = nullptr;
  Event stagingRead; ///< the last sum has read what was staged
};

class AllReduce : public Work {
public:
  AllReduce(const std::shared_ptr<const ReduceGroup>& group, std::shared_ptr<ReduceLane> lane);
  /// `sharers`: who gets the own part, and from whom other parts come; null: nobody, it is a reduce-scatter.
  AllReduce(std::shared_ptr<const ReduceGroup> group, std::shared_ptr<ReduceLane> lane,
            const std::shared_ptr<const ReduceGroup>& sharers);

  /// Before posting: the block, and by replica whether it contributes.
  void prepare(std::byte* block, const std::vector<bool>& contributes);
  /// The same where every replica does.
  void prepare(std::byte* block);

  /// Where the transport is ordered(): its place in the rank's StartOrder, for all of its steps; -1: none.
  std::int64_t turn = -1;
  bool endsTurn = true; ///< it is the last one of its turn

  /// The block of the last prepare(), and the same work on another one.
  std::byte* block() const { return block_; }
  std::vector<Segment> segments() const { return parts_->all(); }
  void moveTo(std::byte* block) { prepare(block, contributes_); }

  bool advance(Transport& transport) override;
  void cancel(Transport& transport) override;
  void precede(Stream& q) const override {
    add_.precede(q);
    spread_.precede(q);
  }

private:
  enum class Step : std::uint8_t { waiting, next, gathering, gathered, summing, summed, spreading };
  bool mayGather(Transport& transport) const;
  void endTurn(Transport& transport) const;

  std::shared_ptr<const ExchangeParts> parts_;
  std::shared_ptr<ReduceLane> lane_;
  bool spreads_;
  std::byte* block_ = nullptr;
  std::vector<bool> contributes_; ///< by replica
  GatherParts gather_;
  AddParts add_;
  SpreadParts spread_;
  Step step_ = Step::waiting;
};

} // namespace pdcrt
