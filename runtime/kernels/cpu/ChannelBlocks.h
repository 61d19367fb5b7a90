// Arithmetic on the 16 channels that lie together at each position of a plane: vectors of the compiler's, which are
// registers in code for AVX-512 and pieces of them elsewhere, with the same bits. Only for functions that are
// PDCRT_VECTORIZED, and not as arguments: how those are passed depends on the instruction set.
#pragma once

#include <cstdint>

namespace pdcrt::blocks {

inline constexpr std::int64_t lanes = 16;

using Floats = float __attribute__((vector_size(64), aligned(4), may_alias));
using Ints = std::int32_t __attribute__((vector_size(64), aligned(4), may_alias));
using HalfFloats = float __attribute__((vector_size(32), aligned(4), may_alias));
using Doubles = double __attribute__((vector_size(64)));

} // namespace pdcrt::blocks
