// What the replicas of a stage have updated, from each to all others: SpreadParts (Exchange.h) of a block of weights.
#pragma once

#include "Exchange.h"

#include <memory>
#include <utility>

namespace pdcrt {

class AllGather : public Work {
public:
  explicit AllGather(std::shared_ptr<const ReduceGroup> group)
      : parts_(std::make_shared<const ExchangeParts>(std::move(group))), spread_(parts_) {}

  /// Before posting: the block. `turn` as AllReduce's.
  void prepare(std::byte* block, std::int64_t turn) {
    block_ = block;
    turn_ = turn;
    begun_ = false;
    spread_.prepare(block, &ready);
  }

  /// The block of the last prepare(), and the same work on another one.
  std::byte* block() const { return block_; }
  const ExchangeParts& parts() const { return *parts_; }
  void moveTo(std::byte* block) { prepare(block, turn_); }

  bool advance(Transport& transport) override {
    begun_ = begun_ || transport.gate().mayStart(turn_);
    if (!begun_ || !spread_.advance(transport)) return false;
    transport.gate().started(turn_);
    return true;
  }
  void cancel(Transport& transport) override { spread_.cancel(transport); }
  void precede(Stream& q) const override { spread_.precede(q); }

private:
  std::shared_ptr<const ExchangeParts> parts_;
  SpreadParts spread_;
  std::byte* block_ = nullptr;
  std::int64_t turn_ = -1;
  bool begun_ = false;
};

} // namespace pdcrt
