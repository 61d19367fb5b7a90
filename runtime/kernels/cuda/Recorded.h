// What a kernel may ask while the calls of its phase are recorded (pdcrt/Replay.h).
#pragma once

#include <cstdint>

namespace pdcrt::cuda {

/// Where the device will find the number of the minibatch whenever the recording is launched; null: nothing is
/// recorded by the calling thread.
const std::uint64_t* recordedMinibatch();

} // namespace pdcrt::cuda
