// What a forward reads besides the values of other stages: the data set's rows of a minibatch, the loss scale, and the
// shares of the loss.
//
// Where the host sees blocks, everything is written into the slot. Elsewhere it goes through pinned memory of the host.
// Data of the data set has a place of its own beside the slot, because the minibatch before may read the slot until its
// backward is over: it comes there in a stream of its own, while the device computes, and the compute stream only
// copies it on the device.
#pragma once

#include "HostStaging.h"
#include "data/BatchSource.h"
#include "data/LossShare.h"
#include "pdcrt/Schedule.h"
#include "pdcrt/Stage.h"

#include <cstdint>

namespace pdcrt {

/// Whether a stage's data waits in memory of the device until its slot is free.
bool stagesData(const Stage& stage);

/// Where data of a minibatch arrives before its slot is free: memory of the device, of BlockBytes::dataStaging.
struct DataPlace {
  std::byte* memory = nullptr; ///< null: there is none, data goes into the slot at once
  Event taken;                 ///< what was there before is in its slot
};

/// The minibatches of a run of the executor.
struct RunSpan {
  std::int64_t first = 0;       ///< the run's first minibatch in the training
  std::int64_t minibatches = 0; ///< of the run
};

class DataIn {
public:
  DataIn() = default;
  ~DataIn();
  DataIn(const DataIn&) = delete;
  DataIn& operator=(const DataIn&) = delete;

  /// Opens the stream for data; before the first read of a stage that stages them.
  void open();

  struct Minibatch {
    const Stage& stage;
    DataPlace& place;
    std::byte* slot;
    std::int64_t minibatch; ///< in the run
    double lossScale;
    BatchSource* source; ///< null: only what is not of the data set
    bool trains;         ///< shares of the loss count
  };
  /// Puts everything into `q`, the compute stream.
  Status read(Stream& q, const Schedule& schedule, const RunSpan& run, const Minibatch& of);

  /// For others who send tensors in the compute stream.
  HostStaging& staging() { return staging_; }

private:
  Status stage(Stream& q, const RunSpan& run, const Minibatch& of);

  LossShares shares_;
  HostStaging staging_;     ///< in the compute stream
  HostStaging dataStaging_; ///< of minibatches, in the stream for data
  Stream stream_;           ///< copies data while the compute stream computes
};

} // namespace pdcrt
