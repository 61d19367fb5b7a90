#include "pdc/Plan/ScheduleName.h"

#include <algorithm>
#include <charconv>

using namespace pdc;

static constexpr const char* names[] = {"1f1b", "1f1b-flush", "gpipe", "2bw", "interleaved:V", "zb-h1", "zb-v"};

std::span<const char* const> pdc::scheduleNames() {
  return names;
}

std::string pdc::scheduleNamesText() {
  std::string text;
  for (const char* name : names) text += (text.empty() ? "" : ", ") + std::string(name);
  return text;
}

int pdc::stagesPerRank(std::string_view schedule) {
  constexpr std::string_view looping = "interleaved:";
  constexpr int most = 1024;
  if (schedule.starts_with(looping)) {
    int chunks = 0;
    const char* end = schedule.data() + schedule.size();
    auto [next, code] = std::from_chars(schedule.data() + looping.size(), end, chunks);
    return code == std::errc() && next == end && chunks >= 2 && chunks <= most ? chunks : 0;
  }
  if (std::find(std::begin(names), std::end(names), schedule) == std::end(names)) return 0;
  return schedule == "zb-v" ? 2 : 1;
}

int pdc::hostOfStage(std::string_view schedule, int stage, int stages) {
  // NOLINTNEXTLINE(clang-analyzer-core.DivideZero): the name is one of a schedule (ScheduleName.h)
  return schedule == "zb-v" ? std::min(stage, stages - 1 - stage) : stage % (stages / stagesPerRank(schedule));
}

bool pdc::hasBatches(std::string_view schedule) {
  return schedule != "1f1b";
}

bool pdc::flushes(std::string_view schedule) {
  return hasBatches(schedule) && schedule != "2bw";
}

bool pdc::splitsBackward(std::string_view schedule) {
  return schedule == "zb-h1" || schedule == "zb-v";
}

bool pdc::takesWarmup(std::string_view schedule) {
  return schedule != "gpipe" && stagesPerRank(schedule) == 1;
}
