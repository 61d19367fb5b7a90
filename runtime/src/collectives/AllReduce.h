// The sum of gradients over the replicas of a stage, in replica order.
//
// The values are cut into as many parts as there are replicas. Replica i owns part i: it receives that part from every
// other replica, adds the parts in the order 0, 1, 2, …, and sends the sum to all. So the result does not depend on
// timing, and is the same in every transport. A replica that contributes nothing still owns its part and receives
// the rest.
//
// So a reduction has three steps: gather, sum, spread. Of the reductions of a replica one may be in each of them, so
// that a link that gathers the next one, or spreads the last one, is busy while a rank adds.
#pragma once

#include "transport/Transport.h"

#include <memory>
#include <span>
#include <vector>

namespace pdcrt {

/// Floats to be summed, at an offset in bytes of the block that is reduced.
struct Segment {
  std::size_t offset;
  std::size_t count; ///< floats
};

/// Floats [begin, end) of the segments laid end to end.
std::vector<Segment> cut(std::span<const Segment> segments, std::size_t begin, std::size_t end);

class AllReduce;

/// The replicas of a stage, what they reduce, and where.
struct ReduceGroup {
  std::vector<int> ranks; ///< by replica
  int self = 0;           ///< this replica
  int channel = 0;        ///< of gathers; that of spreads is the next one
  std::vector<Segment> segments;
  /// (replicas - 1) · share() floats. Who reduces in several groups has one for each.
  std::byte* staging = nullptr;
  /// Floats in groups that come before this one: parts are cut so that those of all groups together differ by one at
  /// most.
  std::size_t before = 0;

  std::size_t floats() const;
  /// The first float of a replica's part; that of `ranks.size()` is the end.
  std::size_t begin(std::size_t replica) const;
  /// Floats of this replica's part.
  std::size_t share() const;
};

/// The reductions of one replica, which go through their steps in the order of posting. Touched by the communication
/// thread.
struct ReduceLane {
  const AllReduce *gathering = nullptr, *summing = nullptr, *spreading = nullptr;
  Event stagingRead; ///< the last sum has read what was staged
};

class AllReduce : public Work {
public:
  AllReduce(std::shared_ptr<const ReduceGroup> group, std::shared_ptr<ReduceLane> lane);

  /// Before posting: the block, and by replica whether it contributes.
  void prepare(std::byte* block, const std::vector<bool>& contributes);
  /// The same where every replica does.
  void prepare(std::byte* block);

  /// Where the transport is ordered(): its place in the rank's StartOrder, for all of its steps; -1: none.
  std::int64_t turn = -1;

  /// The block of the last prepare(), and the same work on another one.
  std::byte* block() const { return block_; }
  std::span<const Segment> segments() const { return group_->segments; }
  void moveTo(std::byte* block) { block_ = block; }

  bool advance(Transport& transport) override;
  void cancel(Transport& transport) override;
  void precede(Stream& q) const override {
    summed_.precede(q);
    transfers_.precede(q);
  }

private:
  enum class Step : std::uint8_t { waiting, next, gathering, gathered, summing, summed, spreading };
  bool contributes(int replica) const { return contributes_[static_cast<std::size_t>(replica)]; }
  bool mayGather(Transport& transport) const;
  void gather(Transport& transport);
  void sum(Transport& transport);
  void spread();
  /// Fills in transfers of `part` with `peer`; receives of a gather go to the staging place of `peer`.
  void add(int peer, int part, bool outgoing, bool inStaging);
  float* staged(int replica) const;

  std::shared_ptr<const ReduceGroup> group_;
  std::shared_ptr<ReduceLane> lane_;
  std::vector<std::vector<Segment>> parts_; ///< by owner
  std::size_t share_;                       ///< floats of the own part
  std::byte* block_ = nullptr;
  std::vector<bool> contributes_; ///< by replica
  Step step_ = Step::waiting;
  TransferGroup transfers_; ///< of the current step
  Event begun_, summed_;
  std::vector<const float*> terms_; ///< of the sum that is being made
};

} // namespace pdcrt
