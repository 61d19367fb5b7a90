// The random part of Dropout, for kernels that have it inside.
#pragma once

#include "pdcrt/Random.h"
#include "pdcrt/Stage.h"

#include <cstdint>

namespace pdcrt {

/// mask[i] = 0 with probability `ratio`, else 1: element own.at(i) of operation `op`, as pdcrt::Dropout says.
void drawMask(std::int64_t count, const OwnElements& own, std::uint32_t op, double ratio, Draw draw,
              std::uint8_t* mask);

} // namespace pdcrt
