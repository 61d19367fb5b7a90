// How a run goes on from a checkpoint, of this plan or of another one for the same model.
#pragma once

#include "exec/Executor.h"
#include "pdcrt/Checkpoint.h"
#include "pdcrt/Training.h"

#include <cstdint>
#include <string>

namespace pdcrt {

/// The newest checkpoint of `directory` that is whole, every byte of it; damaged ones are told and passed over. -1 in
/// `minibatches` where there is none at all. Fails with Exit::badData where all are damaged.
Status newestWhole(const std::string& directory, std::int64_t& minibatches);

/// What a run must have in common with the one that it continues.
struct Continued {
  const Training* training = nullptr;
  bool shuffle = true;
  std::int64_t samples = 0; ///< 0: made up
  std::string modelHash;
};
/// Whether a run can continue the one that wrote `manifest`. Fails with Exit::usage or Exit::badData, and what to type.
Status checkContinues(const Manifest& manifest, const Continued& run);

/// Gives every hosted stage the weights, the optimizer's state, its own running statistics and the loss scale of a
/// checkpoint. Frozen parameters, of which it has the sums, are those of `initial`, the program's own weights. Where
/// the checkpoint has another number of replicas of the stage that a running statistic lay in, each replica gets the
/// mean over those. Fails with Exit::badData: a file is damaged or lacks something.
Status loadCheckpoint(CheckpointReader& reader, const Training& training, const StoredTensors& initial,
                      Executor& executor);

} // namespace pdcrt
