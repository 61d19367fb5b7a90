// What the stand-in's parts share: work in streams that waits for other devices.
#pragma once

#include <cuda_runtime.h>

#include <functional>
#include <memory>
#include <mutex>

namespace stand_in {

/// Work that takes several steps, some of which wait for others.
class Kernel {
public:
  virtual ~Kernel() = default;
  /// Whether a step can be done now. At the head of its stream.
  virtual bool ready() const = 0;
  /// Does a step; true: it was the last.
  virtual bool advance() = 0;
};

void enqueue(cudaStream_t stream, std::shared_ptr<Kernel> kernel);
/// Held by whoever looks at streams or kernels.
std::recursive_mutex& mutex();
/// Waits on the device until `done`; other threads go on meanwhile.
void waitUntil(const std::function<bool()>& done);
/// Called with the mutex held, where something has changed that others may wait for.
void changed();
/// Called once where everybody waits and nothing has moved for long.
extern void (*whenStuck)();
/// Ends the program.
[[noreturn]] void misuse(const char* what);

/// The piece of work that runs takes so many microseconds more than one.
void elapse(std::uint64_t microseconds);
/// Drawn by the seed: so many kernels of NCCL run on a device at once, at most.
int mostKernels();
int currentDevice();

} // namespace stand_in
