// What a kernel object is given while it is constructed, before the first minibatch.
//
// Construction is the only time when a kernel may allocate, choose algorithms and build primitives. It declares the
// workspace that its calls will use, some for each of its methods; the compiler constructs the same classes to plan the
// arena.
#pragma once

#include "pdcrt/Team.h"

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
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
  /// Bytes of workspace of the calls of a method.
  using OfMethod = std::pair<std::string_view, std::size_t>;

  /// While it lives, needWorkspace() is for calls of one method of the kernel, which has Kernel::workspaceByMethod.
  class Method {
  public:
    /// `name` is a literal.
    Method(Setup& setup, std::string_view name) : setup_(setup) { setup.method_ = name; }
    ~Method() { setup_.method_ = {}; }
    Method(const Method&) = delete;
    Method& operator=(const Method&) = delete;

  private:
    Setup& setup_;
  };

  /// Some call of the kernel under construction uses `bytes` of Stream::workspace(). Throws WorkspaceTooSmall.
  void needWorkspace(std::size_t bytes) {
    const std::size_t limit = limitOf(method_);
    if (bytes > limit) throw WorkspaceTooSmall(bytes, limit);
    needed_.emplace_back(method_, bytes);
  }

  /// The calls of the kernel that is constructed next were planned with so much workspace.
  Setup& within(std::size_t bytes) {
    limit_ = bytes;
    limits_.clear();
    return *this;
  }
  /// So were those of its methods that are called; what others would need does not matter.
  Setup& within(std::initializer_list<OfMethod> called) {
    limit_ = std::numeric_limits<std::size_t>::max();
    limits_ = called;
    return *this;
  }

  /// The kernel under construction does this with the other members of its team. Returns the number that Team knows it
  /// by.
  int collective(const Collective& collective) {
    collectives_.push_back(collective);
    return static_cast<int>(collectives_.size()) - 1;
  }
  /// All of them, by number.
  const std::vector<Collective>& collectives() const { return collectives_; }

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

  /// The most that any kernel constructed so far asked for, and the most that it asked for for calls of `method`.
  std::size_t workspaceBytes() const {
    std::size_t most = 0;
    for (const auto& [method, bytes] : needed_) most = std::max(most, bytes);
    return most;
  }
  std::size_t workspaceBytes(std::string_view method) const {
    std::size_t most = 0;
    for (const auto& [name, bytes] : needed_)
      if (name.empty() || name == method) most = std::max(most, bytes);
    return most;
  }

private:
  /// For calls of `method`, or of any if that is empty.
  std::size_t limitOf(std::string_view method) const {
    std::size_t least = limit_;
    for (const auto& [name, bytes] : limits_)
      if (method.empty() || name == method) least = std::min(least, bytes);
    return least;
  }

  std::vector<OfMethod> needed_, limits_; ///< with an empty name: of any
  std::vector<Collective> collectives_;
  std::string_view method_;
  bool plansCuda_ = false;
  std::vector<KernelTime>* times_ = nullptr;
  std::size_t limit_ = std::numeric_limits<std::size_t>::max();
};

} // namespace pdcrt
