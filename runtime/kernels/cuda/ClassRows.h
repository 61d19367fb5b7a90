// The logits of a position, read by a block: what the kernels of softmax cross-entropy share.
#pragma once

#include "device/cuda/Cuda.h"

#include <cstdint>

namespace pdcrt::cuda {

/// Whether a position with `label` is part of the loss.
template <class Options>
__device__ bool counts(const Options& o, std::int64_t label) {
  return !o.hasIgnoreIndex || label != o.ignoreIndex;
}
__device__ inline double weightOf(const float* weights, std::int64_t c) {
  return weights ? weights[c] : 1;
}

/// A pack moves in one access.
template <class T>
inline constexpr int packElements = 16 / static_cast<int>(sizeof(T));

/// The classes of a position, `stride` apart. Where they are neighbours packs of them move, in the middle: a row
/// begins anywhere, and from the first multiple of 16 bytes on there are `packs` of them.
struct Row {
  std::int64_t classes, stride, head, packs;
};

template <class T>
__device__ Row rowOf(std::int64_t classes, std::int64_t stride, const T* from) {
  constexpr int n = packElements<T>;
  if (stride != 1) return {classes, stride, classes, 0};
  const std::int64_t unaligned =
      static_cast<std::int64_t>(0 - reinterpret_cast<std::uintptr_t>(from) / sizeof(T)) & (n - 1);
  const std::int64_t head = unaligned < classes ? unaligned : classes;
  return {classes, 1, head, (classes - head) / n};
}

/// Calls f(c, values) for all classes, with one value or a pack from c on, as floats. Several are loaded before f sees
/// the first one, so that enough is under way also where f writes. Backwards what was read last comes first.
template <bool backwards, class T, class F>
__device__ void forEach(const Row& row, const T* from, F f) {
  constexpr int atOnce = 4, n = packElements<T>;
  for (std::int64_t i = threadIdx.x; i < row.classes - n * row.packs; i += blockDim.x) {
    const std::int64_t c = i < row.head ? i : i + n * row.packs;
    f(c, Pack<float, 1>{{static_cast<float>(from[c * row.stride])}});
  }
  for (std::int64_t first = threadIdx.x; first < row.packs; first += atOnce * blockDim.x) {
    Pack<T, n> packs[atOnce];
    const auto at = [&](int i) {
      const std::int64_t pack = first + i * static_cast<std::int64_t>(blockDim.x);
      return row.head + n * (backwards ? row.packs - 1 - pack : pack);
    };
    const auto inside = [&](int i) { return first + i * static_cast<std::int64_t>(blockDim.x) < row.packs; };
    for (int i = 0; i < atOnce; ++i)
      if (inside(i)) packs[i] = *reinterpret_cast<const Pack<T, n>*>(from + at(i));
    for (int i = 0; i < atOnce; ++i) {
      if (!inside(i)) continue;
      Pack<float, n> values;
      for (int k = 0; k < n; ++k) values[k] = static_cast<float>(packs[i][k]);
      f(at(i), values);
    }
  }
}

/// e^x. Of logits in 16 bits 2 + 1.2 |x| units in the last place do.
template <class T>
__device__ float exponential(float x) {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(T) < sizeof(float)) return quickExp(x);
#endif
  return pdcrt::exp(x);
}

/// The sum of f(i) for the elements i of a pack, none of which is negative: in single precision, which for so few does,
/// since to convert each one to double would take as long as its exponential.
template <int n, class F>
__device__ float sumOfPack(F f) {
  float sum = f(0);
  for (int i = 1; i < n; ++i) sum += f(i);
  return sum;
}

} // namespace pdcrt::cuda
