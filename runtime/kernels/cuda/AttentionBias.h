// The bias of attention as the fused one of cuDNN takes it: in the 16 bits of its operands, and for every query.
#pragma once

#include "pdcrt/kernels/Attention.h"

#include <cstddef>

namespace pdcrt::cuda {

/// What it takes; 0 where there is no bias.
std::size_t spreadBiasBytes(const Attention::Options& o);

/// to[b, h, i, j] = bias[b, h, i, j], or bias[b, h, 0, j] where that is for all queries; b and h are as many as the
/// bias has. What 16 bits do not hold becomes the largest or the least number that they do: a score that was put to
/// -inf, or near it, has weight 0 all the same, and is no NaN where it is one of nothing else.
void spreadBias(Stream& q, const Attention::Options& o, const float* bias, void* to);

} // namespace pdcrt::cuda
