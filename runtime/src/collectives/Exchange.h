// The three steps of a sum over replicas, each a work of its own.
//
// The values are cut into as many parts as there are replicas; replica i owns part i. GatherParts brings every
// replica's part i to its owner, AddParts sums them there in the order of the replicas, SpreadParts sends what an owner
// has to all. GatherParts and AddParts are a reduce-scatter, SpreadParts is an all-gather, all three are an all-reduce
// (AllReduce.h). Where replicas divide what they hold, parts are given; else they are equally large.
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

/// The replicas of a stage, what they exchange, and where.
struct ReduceGroup {
  std::vector<int> ranks; ///< processes, by replica
  int self = 0;           ///< this replica
  int channel = 0;        ///< of gathers; the next one is of spreads, which replicas may begin before the next gather
  std::vector<Segment> segments;
  std::vector<std::vector<Segment>> parts = {}; ///< by owner, instead of `segments`
  /// (replicas - 1) · share() floats. Who reduces in several groups has one for each.
  std::byte* staging = nullptr;
  /// Number of floats in preceding groups; keeps the shares of all groups together balanced to one float.
  std::size_t before = 0;

  std::size_t floats() const;
  /// The first float of a replica's part of `segments`; that of `ranks.size()` is the end.
  std::size_t begin(std::size_t replica) const;
  /// Floats of this replica's part.
  std::size_t share() const;
};

/// The parts of a group, by owner.
class ExchangeParts {
public:
  explicit ExchangeParts(std::shared_ptr<const ReduceGroup> group);
  const ReduceGroup& group() const { return *group_; }
  /// All parts, owner by owner.
  std::vector<Segment> all() const;
  int replicas() const { return static_cast<int>(group_->ranks.size()); }
  int self() const { return group_->self; }
  const std::vector<Segment>& of(int owner) const { return parts_[static_cast<std::size_t>(owner)]; }
  const std::vector<Segment>& own() const { return of(self()); }
  /// Where the own part of another replica is gathered.
  float* staged(int replica) const;
  /// Most transfers of one step: one direction moves all other parts, the other one the own part once per other
  /// replica.
  std::size_t transfers() const;

private:
  std::shared_ptr<const ReduceGroup> group_;
  std::vector<std::vector<Segment>> parts_;
  std::size_t share_; ///< floats of the own part
};

/// Brings the parts that this replica owns, of the replicas that contribute, into its staging.
class GatherParts : public Work {
public:
  explicit GatherParts(std::shared_ptr<const ExchangeParts> parts);
  /// Before posting: the block, and by replica whether it contributes. Nothing is sent before `after`; null: before
  /// `ready`.
  void prepare(std::byte* block, const std::vector<bool>& contributes, const Event* after = nullptr);
  /// Before it what was staged last has not been read; null: it has.
  const Event* stagingRead = nullptr;

  bool advance(Transport& transport) override;
  void cancel(Transport& transport) override { transfers_.cancel(transport); }
  void precede(Stream& q) const override { transfers_.precede(q); }

private:
  void begin(Transport& transport);

  std::shared_ptr<const ExchangeParts> parts_;
  std::byte* block_ = nullptr;
  std::vector<bool> contributes_;
  const Event* after_ = &ready;
  bool begun_ = false;
  TransferGroup transfers_;
  Event mayBegin_;
};

/// Sums the own part of the block and what is staged, in the order of the replicas, into the block. On the host a large
/// part takes several rounds.
class AddParts : public Work {
public:
  explicit AddParts(std::shared_ptr<const ExchangeParts> parts);
  /// Before posting: the block, and by replica whether it contributes.
  void prepare(std::byte* block, const std::vector<bool>& contributes);

  bool advance(Transport& transport) override;
  void precede(Stream& q) const override { summed_.precede(q); }
  /// The sum is in the block.
  const Event& done() const { return summed_; }

private:
  std::shared_ptr<const ExchangeParts> parts_;
  std::byte* block_ = nullptr;
  std::vector<bool> contributes_;
  std::size_t piece_ = 0, done_ = 0,
              staged_ = 0; ///< what comes next: of the own pieces, of this one, of what is staged
  std::vector<const float*> terms_;
  Event summed_;
};

/// Sends the own part of the block to all others, and receives theirs into it.
class SpreadParts : public Work {
public:
  explicit SpreadParts(std::shared_ptr<const ExchangeParts> parts);
  /// Before posting. Nothing is sent before `after`; null: before `ready`.
  void prepare(std::byte* block, const Event* after = nullptr);

  bool advance(Transport& transport) override;
  void cancel(Transport& transport) override { transfers_.cancel(transport); }
  void precede(Stream& q) const override { transfers_.precede(q); }

private:
  std::shared_ptr<const ExchangeParts> parts_;
  std::byte* block_ = nullptr;
  bool begun_ = false;
  TransferGroup transfers_;
};

} // namespace pdcrt
