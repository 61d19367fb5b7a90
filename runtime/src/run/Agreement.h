// Rank 0: what the run is, from what all ranks say of themselves.
#pragma once

#include "Options.h"
#include "RunFiles.h"
#include "transport/Control.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace pdcrt {

struct Agreement {
  std::int64_t first = 0;       ///< minibatch with which training begins: that of a checkpoint
  std::int64_t minibatches = 0; ///< at its end
  std::int64_t samples = 0;
  std::int64_t minibatchesPerEpoch = 1;
  std::int64_t evaluationSamples = 0;
  int lossStages = 0;               ///< stages that tell a loss for each minibatch
  int terms = 0;                    ///< that stages tell for each minibatch
  std::vector<std::string> sharing; ///< "4 ranks share 2 cores of HOST"
};

/// Minibatches between evaluations that are `steps` steps apart, rounded up to whole periods of the schedule, after
/// which every stage has made whole updates; 0 if `steps` is.
std::int64_t evaluationInterval(const Schedule& schedule, std::int64_t steps);

/// What a hello says: numbers = hash of the files and flags, Cores::count, build, input that a token stream fills,
/// Cores::set; values = samples, samples of the evaluation (-1: it reads none), stages with a loss, tokens of a window,
/// kind of the device (Processor.h), terms; text = host.
///
/// Fails with Exit::noDevice where members of a team compute on devices of different kinds, and with Exit::invalid or
/// Exit::badData where ranks disagree, the schedule cannot be executed, or the run does not continue that of its
/// checkpoints.
Status agreeOn(const std::map<int, Message>& hellos, const RunOptions& options, const RunFiles& files,
               Agreement& agreement);

} // namespace pdcrt
