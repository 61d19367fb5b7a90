// The order of PipeDream's released code, for comparison.
#pragma once

#include "pdcrt/Schedule.h"

#include <algorithm>
#include <cstdlib>

namespace pdc {

/// PipeDream's released code waits for a blocking all-reduce before the input gradient leaves: moves each send of a
/// gradient behind the update that follows it.
inline void sendGradientAfterUpdate(pdcrt::Schedule& schedule) {
  using pdcrt::ActionKind;
  for (pdcrt::RankList& rank : schedule.ranks)
    for (std::vector<pdcrt::Action>* list : {&rank.start, &rank.repeat})
      for (auto send = list->begin(); send != list->end(); ++send) {
        if (send->kind != ActionKind::sendBackward || send->wait) continue;
        auto update =
            std::find_if(send, list->end(), [](const pdcrt::Action& a) { return a.kind == ActionKind::update; });
        if (update == list->end()) std::abort();
        std::rotate(send, send + 1, update + 1);
        send = update; // where it is now
      }
}

} // namespace pdc
