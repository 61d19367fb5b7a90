// The parts of a rank's time, as they are shown everywhere.
#pragma once

#include "pdc/Predict/Prediction.h"

#include <array>

namespace pdc {

struct TimePart {
  const char* name;  ///< for people
  const char* brief; ///< as the head of a column
  const char* key;   ///< in JSON
  int width;         ///< of the column
  double pdcrt::RankUse::*ms;
};
/// In the order in which they are shown. They add up to the time until the end of the run; all but the first are lost.
inline constexpr std::array<TimePart, 7> timeParts = {
    {{"computing", "computing", "compute", 11, &pdcrt::RankUse::computeMs},
     {"slower, because ranks share cores", "sharing", "shared_cores", 9, &pdcrt::RankUse::sharedMs},
     {"waiting for transfers under way", "transfers", "exposed_transfers", 11, &pdcrt::RankUse::transferMs},
     {"waiting for all-reduces under way", "all-reduce", "exposed_all_reduce", 12, &pdcrt::RankUse::allReduceMs},
     {"waiting for the first minibatch (fill)", "fill", "fill", 7, &pdcrt::RankUse::fillMs},
     {"waiting for other ranks to start (bubble, unequal stages)", "waiting", "waiting", 9, &pdcrt::RankUse::waitingMs},
     {"after the last action (drain)", "drain", "drain", 8, &pdcrt::RankUse::endedMs}}};

/// Each part in hundredths of a percent of their sum, rounded so that they add up to 10,000 exactly (largest remainders
/// first); all zero if the sum is.
std::array<std::int64_t, timeParts.size()> hundredthsOf(const pdcrt::RankUse& use);

} // namespace pdc
