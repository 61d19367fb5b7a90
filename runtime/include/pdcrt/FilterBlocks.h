// Filters of convolutions in the layout that the CPU's convolutions compute with.
//
// A filter [O, I, H, W] in blocks is row-major [O / 16, I / 16, H, W, 16 of I, 16 of O]: oneDNN's OIhw16i16o. The
// compiler decides which parameters lie so in memory (ParameterRow::inBlocks), with their gradients and the optimizer's
// state; files hold the row-major order always (runtime/src/files/WeightFile.h converts).
#pragma once

#include "pdcrt/Shape.h"
#include "pdcrt/Status.h"

#include <cstddef>
#include <cstdint>
#include <span>

namespace pdcrt {

inline constexpr std::int64_t filterBlock = 16;

/// Whether a filter of this shape can lie in blocks: four dimensions, whole blocks of outputs and of inputs.
bool fitsFilterBlocks(const Shape& filter);

/// Puts an f32 filter that is row-major in blocks, in its place; takes memory for 16 outputs meanwhile. Fails with
/// Exit::invalid where the shape has no whole blocks or `bytes` are not its size.
Status toFilterBlocks(const Shape& filter, std::span<std::byte> bytes);
/// The way back.
Status fromFilterBlocks(const Shape& filter, std::span<std::byte> bytes);

} // namespace pdcrt
