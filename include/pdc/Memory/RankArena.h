// The memory of a rank: the stages that it hosts, laid out in one arena, and what the rank takes beside it.
#pragma once

#include "pdc/Memory/MemoryPlan.h"
#include "pdc/Plan/Plan.h"
#include "pdcrt/Schedule.h"
#include "pdcrt/Training.h"

namespace pdc {

/// Bytes that a rank may take on each of its devices: the smallest memory among them, less what is reserved.
std::int64_t memoryLimitOf(const Plan& plan, const PlanRank& rank);

/// Writes into `plan` what the memory plans of its stages (`memories`, by stage) say: each stage's memoryBytes becomes
/// the arena of the largest rank that hosts it, the number that the program prints, and its blocks become exact.
/// Returns, by stage, the bytes that such an arena takes at least, however it is laid out. Errors: an arena above a
/// device's memory (ExitCode::noPlan). Warns where the copy that a checkpoint is written from does not fit beside it.
Expected<std::vector<std::int64_t>> fillInMemory(Plan& plan, const pdcrt::Schedule& schedule,
                                                 const std::vector<MemoryPlan>& memories,
                                                 const pdcrt::Training& training, Target target, Diagnostics& diags);

} // namespace pdc
