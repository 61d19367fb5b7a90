// The parts of the check, which know nothing of each other: the rules of one rank, and the machine that executes all
// ranks against each other. Both walk lists with a ListCursor, as the executor does.
#pragma once

#include "ListCursor.h"
#include "pdcrt/Machine.h"

#include <functional>
#include <memory>

namespace pdcrt {

/// Rules.cpp: what concerns `rank` alone, as if every wait returned. Adds the rank's hosts to `uses`; returns what
/// is wrong, or an empty text. `executed`: how many actions keep the rules, up to the first that does not.
std::string checkRules(const Schedule& schedule, int rank, std::int64_t minibatches, bool evaluation,
                       std::vector<HostUse>& uses, std::int64_t& executed);

/// Grid.cpp: who does what when, for people: one row per rank, one column per computation's time, until each rank
/// r has executed executed[r] actions, or waits for others that have. What the ranks of `marked` would do next is in
/// brackets, and so is where in its list the first of them stops. No line is longer than 110 characters; of many ranks
/// the marked ones and those around them are shown.
std::string gridOf(const Schedule& schedule, std::int64_t minibatches, bool evaluation,
                   const std::vector<std::int64_t>& executed, const std::vector<int>& marked);

/// Machine.cpp: executes all lists against each other. Fills in deadlock, problem, times, order and trace.
void execute(const Schedule& schedule, std::int64_t minibatches, const CheckOptions& options, CheckResult& result);

/// How far every rank comes.
struct Halt {
  std::vector<std::int64_t> round; ///< of the part that repeats, -1 before it
  std::vector<std::size_t> offset; ///< within it
  std::int64_t executed = 0;       ///< actions, of all ranks
};

/// EveryDrain.cpp: whether the endless run has the same halt at two gates, but for `period` minibatches.
bool isSame(const Schedule& schedule, const Halt& before, const Halt& after, std::int64_t period);

/// Machine.cpp: the endless run, without time, held by a gate. `observe` is told as in CheckOptions.
class GatedRun {
public:
  explicit GatedRun(const Schedule& schedule, std::function<void(const TracedAction&)> observe = {});
  ~GatedRun();
  /// Executes whatever can be executed without starting a forward of a minibatch >= `gate`, which must not decrease.
  Halt runTo(std::int64_t gate);

private:
  struct State;
  std::unique_ptr<State> state_;
};

} // namespace pdcrt
