// What a kernel object is given while it is constructed, before the first minibatch.
//
// Construction is the only time when a kernel may allocate, choose algorithms and build primitives. It declares the
// workspace that its calls will use; the compiler constructs the same classes to plan the arena.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

namespace pdcrt {

/// A kernel wants more workspace than the program was planned with: the library that it calls depends on the processor.
class WorkspaceTooSmall : public std::runtime_error {
public:
  WorkspaceTooSmall(std::size_t needed, std::size_t planned)
      : std::runtime_error("a kernel needs " + std::to_string(needed) +
                           " bytes of workspace here, the program was planned with " + std::to_string(planned)) {}
};

/// What a method of a kernel took by one of its algorithms, where it was measured.
struct KernelTime {
  std::string kernel, method, algorithm; ///< the kernel with its sizes
  double ms = 0;
  std::size_t workspaceBytes = 0; ///< beside what the kernel needs by any
};

class Setup {
public:
  /// Some call of the kernel under construction uses `bytes` of Stream::workspace(). Throws WorkspaceTooSmall.
  void needWorkspace(std::size_t bytes) {
    if (bytes > limit_) throw WorkspaceTooSmall(bytes, limit_);
    workspaceBytes_ = std::max(workspaceBytes_, bytes);
  }

  /// The kernel that is constructed next was planned with so much workspace.
  Setup& within(std::size_t bytes) {
    limit_ = bytes;
    return *this;
  }

  /// Of programs that are profiled: kernels for CUDA that can compute in several ways are timed while they are
  /// constructed, compute in the fastest, and say in `times` what all of them took.
  Setup& timing(std::vector<KernelTime>* times) {
    times_ = times;
    return *this;
  }
  std::vector<KernelTime>* times() const { return times_; }

  /// Of the compiler: plans what kernels would need on a GPU; none of them is constructed.
  static Setup forCuda() {
    Setup setup;
    setup.plansCuda_ = true;
    return setup;
  }
  bool plansCuda() const { return plansCuda_; }

  /// The most that any kernel constructed so far asked for.
  std::size_t workspaceBytes() const { return workspaceBytes_; }

private:
  std::size_t workspaceBytes_ = 0;
  bool plansCuda_ = false;
  std::vector<KernelTime>* times_ = nullptr;
  std::size_t limit_ = std::numeric_limits<std::size_t>::max();
};

} // namespace pdcrt
