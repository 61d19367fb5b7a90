// An all-reduce of two members: each sends the other all that it has, and both add, in member order.
//
// A large one goes in pieces. They are sent as soon as they are made (Stream::made), and added while the next ones
// arrive. Both members cut alike, and the pieces of a channel arrive in order.
#pragma once

#include "TeamGroup.h"
#include "pdcrt/Stream.h"

#include <vector>

namespace pdcrt {

class PairSum : public ResultTaker {
public:
  /// `channel` is of this collective alone while it is under way. The communicator outlives the object.
  PairSum(const TeamGroup& group, const Collective& collective, int channel, Communicator& communicator);

  bool isUnderWay() const { return data_ != nullptr; }
  /// Begins, and sends nothing yet: what lies before `end` is sent when take() says that it is made, the rest by
  /// sendRest().
  void begin(Stream& q, const std::byte* data, std::byte* arrived);
  void take(const std::byte* end) override;
  void sendRest();
  /// Waits, and adds into `arrived`. False: another rank has given up.
  bool finish(Stream& q);

private:
  std::size_t beginOf(std::size_t piece) const;

  const TeamGroup& group_;
  const Collective collective_;
  const std::size_t bytes_; ///< of all
  const int channel_;
  Communicator& communicator_;
  std::vector<TransferGroup> pieces_;
  std::size_t sent_ = 0; ///< pieces
  Stream* stream_ = nullptr;
  const std::byte* data_ = nullptr;
  std::byte* arrived_ = nullptr;
  std::vector<const void*> terms_;
};

} // namespace pdcrt
