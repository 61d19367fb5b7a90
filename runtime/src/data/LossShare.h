// How much of the loss of its update a minibatch makes up, where some positions of the labels do not count.
//
// A loss is the mean over the positions of a minibatch that count, an update averages its P minibatches. With the
// factor
//
//   share(b) = P · n(b) / Σ n(b')   over the minibatches b' of the update of b,
//
// n(b) the sum of the weights of the labels of b that count, that is the mean over all positions of the update that
// count. Where all minibatches have as many, shares are exactly 1; where no position counts, they are 0.
//
// Labels are known before: each replica of the stage with the loss reads those of the whole update. So it needs no
// transfers, and other stages need not know of it.
#pragma once

#include "BatchSource.h"
#include "pdcrt/Schedule.h"
#include "pdcrt/Stage.h"
#include "pdcrt/Status.h"

#include <cstdint>
#include <map>
#include <vector>

namespace pdcrt {

class LossShares {
public:
  /// The share of `minibatch`, which counts from the beginning of the run, like the `minibatches` that the run has. 1
  /// where not all stages update with the same minibatches. `first` is the run's first one in the training. Labels have
  /// been checked.
  Status of(const DataRow& row, std::span<const DataRow> data, const Schedule& schedule, std::int64_t minibatch,
            std::int64_t minibatches, std::int64_t first, BatchSource& source, float& share);

private:
  /// Of the update whose minibatches are [first, last), counted in the training.
  struct Update {
    std::int64_t first = 0, last = 0;
    std::vector<double> counts;
    double sum = 0;
  };
  std::map<const DataRow*, Update> updates_; ///< the newest of each share
  std::vector<std::byte> labels_;
};

/// The sum of the weights of those of `labels`, values of `row`, that count.
double countOf(const LossShare& share, const DataRow& row, const std::byte* labels);

/// Whether all stages update with the same minibatches.
bool updatesTogether(const Schedule& schedule);

} // namespace pdcrt
