// The names of schedules, as plans and flags state them. Nothing else depends on a name.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace pdc {

/// The schedules that pdc generates. 'interleaved:V' stands for every number V >= 2 of stages per rank.
std::span<const char* const> scheduleNames();

/// scheduleNames() with commas, for messages.
std::string scheduleNamesText();

/// How many stages each rank hosts under the schedule of this name: V for "interleaved:V" (2 … 1024), 2 for "zb-v", 1
/// for the others; 0 if the name is not one of a schedule.
int stagesPerRank(std::string_view schedule);

/// Which rank hosts a stage, of p ranks that host n = p·stagesPerRank stages: s mod p, of zb-v min(s, n - 1 - s).
int hostOfStage(std::string_view schedule, int stage, int stages);

inline bool isScheduleName(std::string_view text) {
  return stagesPerRank(text) > 0;
}

/// Whether all stages update at once, after each batch of microbatches, and whether the pipeline drains before.
bool hasBatches(std::string_view schedule);
bool flushes(std::string_view schedule);

/// Whether the schedule computes weight gradients apart from input gradients.
bool splitsBackward(std::string_view schedule);

/// Whether the plan's warm-up decides the order; elsewhere it follows from the schedule and the number of microbatches.
bool takesWarmup(std::string_view schedule);

} // namespace pdc
