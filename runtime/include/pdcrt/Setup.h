// What a kernel object is given while it is constructed, before the first minibatch.
//
// Construction is the only time when a kernel may allocate, choose algorithms and build primitives. It declares the
// workspace that its calls will use; the compiler constructs the same classes to plan the arena.
#pragma once

#include <algorithm>
#include <cstddef>

namespace pdcrt {

class Setup {
public:
  /// Some call of the kernel under construction uses `bytes` of Stream::workspace().
  void needWorkspace(std::size_t bytes) { workspaceBytes_ = std::max(workspaceBytes_, bytes); }

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
};

} // namespace pdcrt
