// What a kernel may ask while the calls of its phase are recorded (pdcrt/Replay.h).
#pragma once

#include <cstdint>
#include <mutex>

namespace pdcrt::cuda {

/// Where the device will find the number of the minibatch whenever the recording is launched; null: nothing is
/// recorded by the calling thread. Who asks has it written before each launch.
const std::uint64_t* recordedMinibatch();

/// Held while a thread records on its device. Who waits for the whole of a device ends every recording on it, those of
/// other threads too. (One per device: where ranks send to each other, a device may wait for the host of another.)
std::mutex& recording();

} // namespace pdcrt::cuda
