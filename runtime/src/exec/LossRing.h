// Losses and their terms on their way from the device to the observer. They arrive in the order of the forwards, each
// when the device has computed it.
#pragma once

#include "RunObserver.h"
#include "pdcrt/Device.h"
#include "pdcrt/Stage.h"
#include "pdcrt/Status.h"

#include <cstdint>
#include <vector>

namespace pdcrt {

class LossRing {
public:
  /// Room for so many losses under way, at least one.
  void resize(std::size_t places);

  /// Copies the loss or term of `row` out of a slot, in `q`. `minibatch` counts from the beginning of the training.
  /// Where the ring is full it waits for, and tells, all losses before.
  Status begin(Stream& q, int stage, const OutputRow& row, std::int64_t minibatch, const std::byte* slot,
               RunObserver* observer);
  /// Tells the losses that have come, which must be finite; `all`: waits for the others.
  Status tell(bool all, RunObserver* observer);

private:
  struct Pending {
    int stage = 0;
    const char* term = nullptr; ///< its name; null: it is a loss
    Element element = Element::f32;
    std::int64_t minibatch = 0;
    Event copied;
  };
  std::vector<Pending> losses_; ///< a ring
  HostMemory memory_;           ///< of 8 bytes each
  std::size_t begun_ = 0, told_ = 0;
};

} // namespace pdcrt
