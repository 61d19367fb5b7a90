// The two halves of the check, which know nothing of each other.
#pragma once

#include "pdcrt/Check.h"

namespace pdcrt {

/// The expanded list of every rank.
using Lists = std::vector<std::vector<Action>>;

/// CheckRules.cpp: what concerns `rank` alone, as if every wait returned. Adds the rank's hosts to `uses`; returns what
/// is wrong, or an empty text.
std::string checkRules(const Schedule& schedule, int rank, const std::vector<Action>& list, std::int64_t minibatches,
                       bool evaluation, std::vector<HostUse>& uses);

/// CheckMachine.cpp: executes the lists against each other. Fills in deadlock, problem, times, order and trace.
void execute(const Schedule& schedule, const Lists& lists, std::int64_t minibatches, const CheckOptions& options,
             CheckResult& result);

} // namespace pdcrt
