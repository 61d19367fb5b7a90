// What differs between targets beside the kernels: where the blocks of a rank lie, and who moves and adds what is in
// them. A program links one implementation: that of the CPU (device/cpu/Device.cpp) or of CUDA
// (device/cuda/Device.cu).
//
// Whatever takes a Stream is put into it, and done when the stream has come there. On the CPU that is at once, and an
// event is nothing.
#pragma once

#include "pdcrt/Status.h"
#include "pdcrt/Stream.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

namespace pdcrt {

/// A point in a stream. Recorded again, it is the later point.
class Event {
public:
  Event();
  ~Event();
  Event(Event&&) noexcept;
  Event& operator=(Event&&) noexcept;

  void record(Stream& q);
  /// Whether everything before the point has been done; true if it was never recorded.
  bool passed() const;
  /// Sleeps until it has passed.
  void wait() const;
  /// What is put into `q` from now on begins after the point.
  void precede(Stream& q) const;

private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

namespace device {

/// Finds the devices; fails where there is none (Exit::noDevice).
Status open();
/// From now on the calling thread works for `rank`: on the device whose number is `rank` modulo their count.
void use(int rank);
/// Kernels that are constructed from now on may round the operands of products and convolutions to TF32 (10 bits of
/// mantissa instead of 23). False: the device knows no such thing.
bool allowTf32();
/// Whether the host can read and write what is in blocks.
bool hostSeesBlocks();
/// "cpu", "cuda".
const char* target();

/// Memory for blocks, all zero; null: there is not so much.
std::byte* allocate(std::size_t bytes);
/// Waits for whatever the device does, and gives the memory back.
void release(std::byte* memory, std::size_t bytes);
/// What the calling thread's device holds beside blocks: context, code and libraries, and what other programs have
/// there. 0 where blocks are memory of the host.
std::size_t otherBytes();
/// Memory of the host from which copies need not wait; null: there is not so much.
std::byte* allocateHost(std::size_t bytes);
void releaseHost(std::byte* memory, std::size_t bytes);

/// A new stream of the calling thread's device. It lives until close(stream).
Stream openStream(std::byte* workspace = nullptr, std::size_t workspaceBytes = 0);
void close(Stream& q);
/// Sleeps until all that was put into the stream is done. Fails where the device has failed.
Status wait(Stream& q);

/// Between any two memories, of the host (allocateHost; others may make the caller wait) or of devices.
void copy(Stream& q, void* to, const void* from, std::size_t bytes);
void zero(Stream& q, void* to, std::size_t bytes);

/// sum[i] = terms[0][i] + terms[1][i] + …, in this order. `sum` may be one of the terms, of
/// which there is at least one.
void addUp(Stream& q, float* sum, std::span<const float* const> terms, std::int64_t count);
/// result[i] = terms[0][i] and terms[1][i] and …, combined in this order: arrays of `element`, which is no boolean;
/// those of 16 bits as float. `result` may be one of the terms, of which there is at least one.
void combine(Stream& q, Element element, Collective::Combine how, void* result, std::span<const void* const> terms,
             std::int64_t count);
/// values[i] = values[i] / divisor.
void divide(Stream& q, float* values, float divisor, std::int64_t count);
/// Floats that lie one behind the other in a block.
struct Floats {
  const float* values = nullptr;
  std::int64_t count = 0;
};
/// How many sums sumsOfSquares() has of one array.
constexpr std::size_t blocksOfSquares(std::int64_t count, std::int64_t block) {
  return static_cast<std::size_t>((count + block - 1) / block);
}
/// The sum of the squares of each `block` elements of each array, one after the other, in f64: on the CPU eight sums of
/// every eighth element, then those in order; on every target the same in every run. Waits for the stream, once. Fails
/// where the device has failed.
Status sumsOfSquares(Stream& q, std::span<const Floats> of, std::int64_t block, std::span<double> sums);

} // namespace device

/// Memory of allocateHost(), with its owner.
class HostMemory {
public:
  HostMemory() = default;
  explicit HostMemory(std::size_t bytes) : memory_(device::allocateHost(bytes)), bytes_(memory_ ? bytes : 0) {}
  HostMemory(HostMemory&& other) noexcept
      : memory_(std::exchange(other.memory_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  HostMemory& operator=(HostMemory&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~HostMemory() {
    if (memory_) device::releaseHost(memory_, bytes_);
  }
  std::byte* data() const { return memory_; }
  std::size_t size() const { return bytes_; }

private:
  std::byte* memory_ = nullptr;
  std::size_t bytes_ = 0;
};

} // namespace pdcrt
