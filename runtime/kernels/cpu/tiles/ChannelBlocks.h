// Arithmetic on the 16 channels that lie together at each position of a plane: vectors of the compiler's, which are
// registers in code for AVX2 and AVX-512 and pieces of them elsewhere, with the same bits. Only for functions that are
// PDCRT_VECTORIZED, and not as arguments of others: how those are passed depends on the instruction set.
#pragma once

#include <cstdint>

namespace pdcrt::blocks {

inline constexpr std::int64_t lanes = 16;

// Halves of a block: the widest vectors for which the compiler has instructions in code for AVX2. What is
// wider goes through memory there.
using Floats = float __attribute__((vector_size(32), aligned(4), may_alias));
using Ints = std::int32_t __attribute__((vector_size(32), aligned(4), may_alias));
using Doubles = double __attribute__((vector_size(32)));

} // namespace pdcrt::blocks
