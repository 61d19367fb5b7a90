// Matrix products that are bound by memory because one matrix is large and used for few rows only: linear layers of
// small batches. Against oneDNN's matmul, 32 x 4096 · 4096 x 9216 takes half the time.
#pragma once

#include <cstdint>

namespace pdcrt::fewrows {

/// The most rows of a batch for multiplyByTransposed: more sums do not fit in registers.
inline constexpr std::int64_t mostRows = 8;
/// For multiplyTransposed: more are as fast otherwise.
inline constexpr std::int64_t mostSteps = 32;

/// Whether this processor has the instructions (AVX-512) for the functions that do not say more.
bool available();

/// c [m, n] = a [m, k] · b [k, n], or with `adds` that is added, all row-major: b is read once, in its order; rows of a
/// are `aStride` apart. Of multiples of `steps` rows of b one after the other, c has the same bits as of all at once.
inline constexpr std::int64_t steps = 32;
void multiply(std::int64_t m, std::int64_t k, std::int64_t n, const float* a, std::int64_t aStride, const float* b,
              float* c, bool adds = false);

/// c [m, n] = transposed a [k, m] · b [k, n], all row-major, for a k of at most `mostSteps`; rows of a are
/// `aStride` apart. c is written once: `past` the caches, or to be read soon. An element has the same bits wherever it
/// lies in c. On every processor: without the instructions as portableMultiplyTransposed.
void multiplyTransposed(std::int64_t m, std::int64_t k, std::int64_t n, const float* a, std::int64_t aStride,
                        const float* b, float* c, bool past);
void portableMultiplyTransposed(std::int64_t m, std::int64_t k, std::int64_t n, const float* a, std::int64_t aStride,
                                const float* b, float* c);

/// c [m, n] = a [m, k] · transposed b [n, k], plus `bias` [n] if there is one, all row-major: b is read once, in its
/// order. m is at most `mostRows`.
void multiplyByTransposed(std::int64_t m, std::int64_t k, std::int64_t n, const float* a, const float* b,
                          const float* bias, float* c);

} // namespace pdcrt::fewrows
