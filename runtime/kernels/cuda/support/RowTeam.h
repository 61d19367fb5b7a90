// Kernels over the rows of a matrix that go over each row several times. The threads that share a row, a warp or a
// block, keep it in registers from one pass to the next where it fits, since memory is what such kernels wait for.
#pragma once

#include "device/cuda/Cuda.h"

#include <algorithm>
#include <cstdint>
#include <initializer_list>

namespace pdcrt::cuda {

/// Whether all of these are multiples of `bytes`; null is.
inline bool allAligned(std::size_t bytes, std::initializer_list<const void*> addresses) {
  return std::all_of(addresses.begin(), addresses.end(),
                     [&](const void* address) { return reinterpret_cast<std::uintptr_t>(address) % bytes == 0; });
}

#if defined(__CUDACC__) || defined(PDCRT_CUDA_STAND_IN)

/// Has the compiler leave registers for two blocks of a kernel at a time.
#ifdef __CUDACC__
#define PDCRT_TWO_BLOCKS __launch_bounds__(threadsPerBlock, 2)
#else
#define PDCRT_TWO_BLOCKS
#endif

/// `threads` threads, a warp or a block, hold a piece of a row, each of them `count` elements. Of these `width` are
/// neighbours and move in one access: then rows have a multiple of `width` elements. `whole`: no row is longer than one
/// piece, so that what a pass has left in registers is there for the next one.
template <int threads, int count_, int width, bool whole_>
struct RowTeam {
  static constexpr int count = count_;
  static constexpr bool whole = whole_;
  static constexpr std::int64_t piece = threads * count;
  static constexpr int perBlock = static_cast<int>(threadsPerBlock) / threads;
  static_assert(threads == warpSize32 || threads == static_cast<int>(threadsPerBlock));

  static __device__ int lane() { return static_cast<int>(threadIdx.x) % threads; }
  /// The rows of this team: first(), first() + step(), …
  static __device__ std::int64_t first() {
    return static_cast<std::int64_t>(blockIdx.x) * perBlock + static_cast<int>(threadIdx.x) / threads;
  }
  static __device__ std::int64_t step() { return static_cast<std::int64_t>(gridDim.x) * perBlock; }

  /// Calls visit(begin) for the pieces of a row of `size` elements.
  template <class Visit>
  static __device__ void pieces(std::int64_t size, Visit visit) {
    if constexpr (whole)
      visit(std::int64_t{0});
    else
      for (std::int64_t begin = 0; begin < size; begin += piece) visit(begin);
  }
  /// Calls visit(e) for this thread's elements e of a piece, of which the row has `size`.
  template <class Visit>
  static __device__ void elements(std::int64_t size, Visit visit) {
    const int mine = ofThread(size);
    for (int e = 0; e < count; ++e)
      if (offset(e) < mine) visit(e);
  }
  /// Of a row of which `size` elements are left at `from`. What lies behind them in the same access comes too; what
  /// does not is left as it was.
  template <class T, class Value>
  static __device__ void load(const T* from, std::int64_t size, Value (&values)[count]) {
    const int mine = ofThread(size);
    from += lane() * width;
    for (int e = 0; e < count; e += width) {
      if (offset(e) >= mine) continue;
      const auto pack = *reinterpret_cast<const Pack<T, width>*>(from + offset(e));
      for (int k = 0; k < width; ++k) values[e + k] = static_cast<Value>(pack[k]);
    }
  }
  template <class T, class Value>
  static __device__ void store(const Value (&values)[count], T* to, std::int64_t size) {
    const int mine = ofThread(size);
    to += lane() * width;
    for (int e = 0; e < count; e += width) {
      if (offset(e) >= mine) continue;
      Pack<T, width> pack;
      for (int k = 0; k < width; ++k) pack[k] = static_cast<T>(values[e + k]);
      *reinterpret_cast<Pack<T, width>*>(to + offset(e)) = pack;
    }
  }

  /// Has the next pass compute anew what it needs of these values: kept from the last one, their conversions to double
  /// would take twice the registers that the values do.
  static __device__ void forget(float (&values)[count]) {
#ifdef __CUDA_ARCH__
    for (int e = 0; e < count; ++e) asm volatile("" : "+f"(values[e]));
#else
    static_cast<void>(values);
#endif
  }

  /// Combines the values of all threads, in one order; every thread gets the result.
  template <class T, class Combine>
  static __device__ T combine(T value, T neutral, Combine combine) {
    if constexpr (threads == warpSize32) {
      for (int distance = warpSize32 / 2; distance > 0; distance /= 2)
        value = combine(value, __shfl_xor_sync(0xFFFFFFFFu, value, distance));
      return value;
    } else {
      return blockCombine(value, neutral, combine);
    }
  }
  template <class T>
  static __device__ T sum(T value) {
    return combine(value, T(0), Add());
  }
  /// What any of the threads has read or written before, it has before any of them goes on.
  static __device__ void wait() {
    if constexpr (threads == warpSize32)
      __syncwarp();
    else
      __syncthreads();
  }

private:
  /// Where element e of a piece lies, behind the first element of the thread.
  static __device__ constexpr int offset(int e) {
    return e / width * threads * width + e % width;
  }
  /// As many elements of a piece lie before its end, from the first one of the thread on.
  static __device__ int ofThread(std::int64_t size) {
    return static_cast<int>(size < piece ? size : piece) - lane() * width;
  }
};

/// Calls launch(team, blocks) with the team for rows of `size` elements. `aligned`: so are all rows that are read or
/// written, for accesses of four elements, provided that four divide their size. A thread of a warp holds at most
/// `most` elements: a kernel that holds several rows has registers for fewer, else too few warps run at a time.
template <int most, class Launch>
void withRowTeam(std::int64_t rows, std::int64_t size, bool aligned, Launch launch) {
  constexpr int warp = warpSize32, block = static_cast<int>(threadsPerBlock);
  const auto call = [&](auto team) { launch(team, (rows + team.perBlock - 1) / team.perBlock); };
  if (aligned && size % 4 == 0) {
    if (size <= warp * 4) return call(RowTeam<warp, 4, 4, true>());
    if (most > 24 && size <= warp * 24) return call(RowTeam<warp, 24, 4, true>()); // 768: many transformers' rows
    if (size <= warp * most) return call(RowTeam<warp, most, 4, true>());
    if (size <= block * 4) return call(RowTeam<block, 4, 4, true>());
    if (size <= block * 16) return call(RowTeam<block, 16, 4, true>());
    return call(RowTeam<block, 8, 4, false>());
  }
  if (size <= warp * 4) return call(RowTeam<warp, 4, 1, true>());
  if (size <= warp * most) return call(RowTeam<warp, most, 1, true>());
  call(RowTeam<block, 8, 1, false>());
}

#endif

} // namespace pdcrt::cuda
