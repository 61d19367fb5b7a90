// What the tests of kernels share: memory with guards, a call that checks the manners of every kernel, and the
// comparison with a naive computation in double precision.
//
// Included by one file per executable: it replaces malloc, to see allocations of libraries too.
#pragma once

#include "pdcrt/Device.h"
#include "pdcrt/Setup.h"
#include "pdcrt/Stream.h"
#include "pdcrt/View.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <memory>
#include <random>
#include <span>
#include <string_view>
#include <vector>

// Allocations while a call is watched. Not under sanitizers, whose own malloc must stay.
namespace allocations {
inline std::atomic<bool> watched = false;
inline std::atomic<std::size_t> count = 0, largest = 0;

inline void record(std::size_t bytes) {
  if (!watched) return;
  ++count;
  if (bytes > largest) largest = bytes;
}
} // namespace allocations

// Nor where a driver works on the same threads.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && !defined(PDC_TEST_ON_GPU)
extern "C" {
void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t count, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);

void* malloc(std::size_t bytes) {
  allocations::record(bytes);
  return __libc_malloc(bytes);
}
void* calloc(std::size_t count, std::size_t bytes) {
  allocations::record(count * bytes);
  return __libc_calloc(count, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  allocations::record(bytes);
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) {
  allocations::record(bytes);
  *memory = __libc_memalign(alignment, bytes);
  return *memory ? 0 : 12;
}
}
#endif

namespace pdcrt {

/// 64-byte aligned memory between guards.
class GuardedBytes {
public:
  explicit GuardedBytes(std::size_t size) : size_(size), memory_(allocate(size + 2 * guard)) {
    std::memset(memory_.get(), 0xA5, size + 2 * guard);
  }
  std::byte* data() const { return memory_.get() + guard; }
  std::size_t size() const { return size_; }
  void fill(int byte) const { std::memset(data(), byte, size_); }
  bool guardsIntact() const {
    const auto intact = [](std::byte byte) { return byte == std::byte{0xA5}; };
    return std::all_of(memory_.get(), data(), intact) && std::all_of(data() + size_, data() + size_ + guard, intact);
  }

private:
  static constexpr std::size_t guard = 128;
#ifdef PDC_TEST_ON_GPU // what both the host and the device see
  static std::byte* allocate(std::size_t bytes) {
    return device::allocateHost(bytes);
  }
  struct Delete {
    void operator()(std::byte* memory) const { device::releaseHost(memory, 0); }
  };
#else
  static std::byte* allocate(std::size_t bytes) {
    return new (std::align_val_t(64)) std::byte[bytes];
  }
  struct Delete {
    void operator()(std::byte* memory) const { ::operator delete[](memory, std::align_val_t(64)); }
  };
#endif
  std::size_t size_;
  std::unique_ptr<std::byte[], Delete> memory_;
};

/// A stream with more workspace than the small kernels of a test ask for.
class RoomyStream : private GuardedBytes, public Stream {
public:
  RoomyStream() : GuardedBytes(std::size_t{1} << 16), Stream(GuardedBytes::data(), GuardedBytes::size()) {}
};

/// A tensor of a test.
template <class T>
class Buffer {
public:
  explicit Buffer(std::int64_t count) : bytes_(static_cast<std::size_t>(count) * sizeof(T)), count_(count) {
    bytes_.fill(0);
  }
  Buffer(std::initializer_list<T> values) : Buffer(static_cast<std::int64_t>(values.size())) {
    std::copy(values.begin(), values.end(), view().data);
  }

  View<T> view() const { return reinterpret_cast<T*>(bytes_.data()); }
  operator View<T>() const { return view(); }
  operator View<const T>() const { return view(); }
  T& operator[](std::int64_t i) const { return view()[i]; }
  std::int64_t count() const { return count_; }
  std::span<T> values() const { return {view().data, static_cast<std::size_t>(count_)}; }
  const GuardedBytes& bytes() const { return bytes_; }
  operator const GuardedBytes&() const { return bytes_; }

private:
  GuardedBytes bytes_;
  std::int64_t count_;
};

/// Room for a result, as a member that braces would otherwise fill with one value.
inline Buffer<float> room(std::int64_t count) {
  return Buffer<float>(count);
}

/// Normally distributed values, the same in every run.
inline Buffer<float> randomBuffer(std::int64_t count, std::uint32_t seed) {
  Buffer<float> buffer(count);
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  for (float& value : buffer.values()) value = normal(generator);
  return buffer;
}

/// What calls of oneDNN allocate in spite of everything: the nodes of a map of a primitive's arguments.
inline constexpr std::size_t argumentMap = 256;
/// And what products of matrices do: without AVX-512 the library has only its GEMM, which packs operands in memory of
/// its own.
inline const std::size_t productMemory = __builtin_cpu_supports("avx512f") ? argumentMap : 2 << 20;

/// Makes `call` twice, with different garbage in results and workspace, and expects that it allocates no block of more
/// than `allocation` bytes, stays inside its memory, and writes the same bits to all of `results` both times. The
/// workspace is what was declared for calls of `method`, or for any.
inline void expectGoodManners(const Setup& setup,
                              std::initializer_list<std::reference_wrapper<const GuardedBytes>> results,
                              const std::function<void(Stream&)>& call, std::size_t allocation = 0,
                              std::string_view method = {}) {
  const GuardedBytes workspace(method.empty() ? setup.workspaceBytes() : setup.workspaceBytes(method));
  Stream stream(workspace.data(), workspace.size());
  std::vector<std::vector<std::byte>> first;
  for (int garbage : {0x00, 0xFF}) {
    workspace.fill(garbage);
    for (const GuardedBytes& result : results) result.fill(garbage);
    allocations::count = allocations::largest = 0;
    allocations::watched = true;
    call(stream);
    allocations::watched = false;
    EXPECT_TRUE(allocation > 0 || allocations::count == 0) << allocations::count << " allocations";
    EXPECT_LE(allocations::largest, allocation);
    EXPECT_TRUE(workspace.guardsIntact()) << "wrote outside the workspace that was declared";
    std::size_t index = 0;
    for (const GuardedBytes& result : results) {
      EXPECT_TRUE(result.guardsIntact()) << "wrote outside result " << index;
      if (garbage == 0x00) {
        first.emplace_back(result.data(), result.data() + result.size());
      } else {
        EXPECT_TRUE(std::ranges::equal(first[index], std::span(result.data(), result.size())))
            << "result " << index << " differs between two calls, or was not written whole";
      }
      ++index;
    }
  }
}

/// |actual - expected| / |expected|, in the Euclidean norm.
inline double relativeError(const Buffer<float>& actual, const std::vector<double>& expected) {
  EXPECT_EQ(static_cast<std::size_t>(actual.count()), expected.size());
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double d = actual[static_cast<std::int64_t>(i)] - expected[i];
    difference += d * d;
    norm += expected[i] * expected[i];
  }
  return norm == 0 ? std::sqrt(difference) : std::sqrt(difference / norm);
}

/// With PDC_TEST_TF32 kernels for CUDA may round the operands of products and convolutions to TF32. (Tests that compare
/// bits, or with a tolerance of their own, are not for that.)
inline const bool testsTf32 = std::getenv("PDC_TEST_TF32") && device::allowTf32();

inline void expectClose(const Buffer<float>& actual, const std::vector<double>& expected, const char* what) {
  EXPECT_LE(relativeError(actual, expected), testsTf32 ? 1e-3 : 1e-5) << what; // NaN fails too
}

} // namespace pdcrt
