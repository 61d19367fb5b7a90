// The order in which a stage's kernels run, and what they share while they run.
//
// On the CPU a stream is a program counter: a call returns when its work is done. On a GPU it is a queue (native()). It
// carries the workspace of the call that comes next, and tells an observer which fusion group runs, for profiles and
// traces, and others which gradients are there, and how much of a result.
#pragma once

#include "pdcrt/Team.h"

#include <cstddef>
#include <cstdint>
#include <limits>

namespace pdcrt {

/// Told when the calls of a fusion group begin; the group before it has ended then.
class GroupObserver {
public:
  virtual ~GroupObserver() = default;
  virtual void beginGroup(int group) = 0;
};

/// Neighbouring elements of an array: all from `begin` on, or so many.
struct Elements {
  std::int64_t begin = 0, count = std::numeric_limits<std::int64_t>::max();
};

/// Told when the gradient of a parameter, or of some of its elements, is complete and nothing of the phase reads the
/// parameter any more. `gradient` has those of `elements` only; several threads may bring different ones at once.
class GradientTaker {
public:
  virtual ~GradientTaker() = default;
  virtual void take(int parameter, const float* gradient, Elements elements) = 0;
};

/// Told when the gradients of a bucket are final: the phase neither writes nor reads them any more. In ascending order
/// of the buckets.
class BucketTaker {
public:
  virtual ~BucketTaker() = default;
  virtual void take(int bucket) = 0;
};

/// Told while a kernel makes its result from the first element on: what lies before `end` is final.
class ResultTaker {
public:
  virtual ~ResultTaker() = default;
  virtual void take(const std::byte* end) = 0;
};

class Stream {
public:
  Stream() = default;
  Stream(std::byte* workspace, std::size_t workspaceBytes, void* native = nullptr)
      : workspace_(workspace), workspaceBytes_(workspaceBytes), native_(native) {}

  /// Memory that the running kernel may overwrite, 64-byte aligned; as many bytes as its Setup::needWorkspace.
  std::byte* workspace() const { return workspace_; }
  std::size_t workspaceBytes() const { return workspaceBytes_; }

  /// The target's own queue (cudaStream_t); null on the CPU.
  void* native() const { return native_; }

  /// The same stream, with this workspace for the next call.
  Stream& work(std::byte* workspace, std::size_t bytes) {
    workspace_ = workspace;
    workspaceBytes_ = bytes;
    return *this;
  }

  /// The calls that follow belong to fusion group `id` of the model.
  void group(int id) {
    if (observer_) observer_->beginGroup(id);
  }
  void observe(GroupObserver* observer) { observer_ = observer; }

  /// The gradient of row `parameter` of Stage::parameters is there, or that of some of its elements, which `gradient`
  /// begins with. It will be overwritten after the call.
  void update(int parameter, const float* gradient, Elements elements = {}) {
    if (taker_) taker_->take(parameter, gradient, elements);
  }
  /// The same for what makes a gradient in parts.
  auto updater(int parameter) {
    return [this, parameter](const float* part, Elements elements) { update(parameter, part, elements); };
  }
  void giveGradientsTo(GradientTaker* taker) { taker_ = taker; }

  /// The gradients of the parameters with ParameterRow::bucket = `id` are final.
  void bucket(int id) {
    if (bucketTaker_) bucketTaker_->take(id);
  }
  void giveBucketsTo(BucketTaker* taker) { bucketTaker_ = taker; }

  /// The running kernel makes its result in parts: what lies before `end` is final.
  void made(const void* end) {
    if (resultTaker_) resultTaker_->take(static_cast<const std::byte*>(end));
  }
  void giveResultTo(ResultTaker* taker) { resultTaker_ = taker; }

  /// The team whose member runs the calls; null: it is alone.
  void join(Team* team) { team_ = team; }
  Team* team() const { return team_; }
  /// Which member it is; alone, the first.
  int member() const { return team_ ? team_->member() : 0; }

private:
  std::byte* workspace_ = nullptr;
  std::size_t workspaceBytes_ = 0;
  void* native_ = nullptr;
  GroupObserver* observer_ = nullptr;
  GradientTaker* taker_ = nullptr;
  BucketTaker* bucketTaker_ = nullptr;
  ResultTaker* resultTaker_ = nullptr;
  Team* team_ = nullptr;
};

} // namespace pdcrt
