// The sum of gradients over the replicas of a stage, in replica order.
//
// The values are cut into as many parts as there are replicas. Replica i owns part i: it receives that part from every
// other replica, adds the parts in the order 0, 1, 2, …, and sends the sum to all. So the result does not depend on
// timing, and is the same in every transport. A replica that contributes nothing still owns its part and receives
// the rest.
#pragma once

#include "pdcrt/Transport.h"

#include <memory>
#include <span>
#include <vector>

namespace pdcrt {

/// Floats to be summed, at an offset in bytes of the block that is reduced.
struct Segment {
  std::size_t offset;
  std::size_t count; ///< floats
};

/// The replicas of a stage, what they reduce, and where.
struct ReduceGroup {
  std::vector<int> ranks; ///< by replica
  int self = 0;           ///< this replica
  int channel = 0;
  std::vector<Segment> segments;
  std::byte* staging = nullptr; ///< (replicas - 1) · ceil(floats / replicas) floats
};

/// The reductions of one replica. They run one after the other, in the order of posting.
struct ReduceLane {
  const void* running = nullptr; ///< touched by the communication thread
  Event stagingRead;             ///< the last sum has read what was staged
};

class AllReduce : public Work {
public:
  AllReduce(std::shared_ptr<const ReduceGroup> group, std::shared_ptr<ReduceLane> lane);

  /// Before posting: the block, and which replicas contribute, `contributors` of them from replica `firstContributor`
  /// on (cyclic).
  void prepare(std::byte* block, int firstContributor, int contributors);

  /// Where the transport is ordered(): its place in the rank's StartOrder, for both of its phases; -1: none.
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
  enum class Phase : std::uint8_t { waiting, gathering, spreading };
  bool contributes(int replica) const;
  /// Fills in transfers of `part` with `peer`; receives of a gather go to the staging place of `peer`.
  void add(int peer, int part, bool outgoing, bool staged);
  void sum(Stream& q);
  float* staged(int replica) const;

  std::shared_ptr<const ReduceGroup> group_;
  std::shared_ptr<ReduceLane> lane_;
  std::vector<std::vector<Segment>> parts_; ///< by owner
  std::byte* block_ = nullptr;
  int firstContributor_ = 0, contributors_ = 0;
  Phase phase_ = Phase::waiting;
  TransferGroup transfers_; ///< of the current phase
  Event begun_, summed_;
  std::vector<const float*> terms_; ///< of the sum that is being made
};

} // namespace pdcrt
