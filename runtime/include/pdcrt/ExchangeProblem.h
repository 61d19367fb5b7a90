// Whether a stage's program and a schedule agree on who sends what to whom: asked by the compiler before it writes, and
// by the runtime before it runs.
#pragma once

#include "pdcrt/Schedule.h"
#include "pdcrt/Stage.h"

#include <span>
#include <string>

namespace pdcrt {

/// How what a stage's program exchanges with other stages differs from what `schedule` says; empty: it does not.
std::string exchangeProblem(const Schedule& schedule, int stage, std::span<const EdgeRow> edges,
                            std::span<const SharedRow> shared);

} // namespace pdcrt
