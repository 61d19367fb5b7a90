// The parts of the check, which know nothing of each other: walking a list, the rules of one rank, and the machine that
// executes all ranks against each other.
#pragma once

#include "pdcrt/Machine.h"

#include <limits>
#include <memory>

namespace pdcrt {

constexpr std::int64_t endless = std::numeric_limits<std::int64_t>::max() / 4;

/// Walks the actions of a rank in a run: those of expand() or expandEvaluation(), one by one. A run of `endless`
/// minibatches does not end.
class ListCursor {
public:
  ListCursor(const Schedule& schedule, int rank, std::int64_t minibatches, bool evaluation = false);

  /// The next action; null at the end.
  const Action* peek() const { return found_ ? &action_ : nullptr; }
  void pop() {
    ++executed_;
    find();
  }

  /// Moves on by whole rounds of the part that repeats, to the action at the same place: as many as advance
  /// `minibatches`, all of whose actions the run has.
  void skip(std::int64_t minibatches);

  std::int64_t executed() const { return executed_; }
  std::int64_t round() const { return round_; } ///< of the part that repeats; -1 before it
  std::size_t offset() const { return position_; }

private:
  /// An action of the part that repeats, as small as possible: long runs of many ranks wait for memory.
  struct Repeated {
    std::int64_t index, advance; ///< and what each round adds to it
    int stage, peer;
    ActionKind kind;
    bool wait;
    std::uint16_t end; ///< in ends_
  };

  void find();
  std::int64_t endOf(const Action& action) const;

  const Schedule* schedule_;
  const std::vector<Action>* start_;
  std::int64_t step_ = 1;
  std::vector<Repeated> repeat_;
  std::vector<std::int64_t> ends_; ///< the run has the actions with smaller indices
  std::shared_ptr<std::vector<Action>> evaluation_;
  std::int64_t minibatches_;
  std::int64_t round_ = -1;
  std::size_t position_ = 0; ///< behind `action_`
  std::int64_t executed_ = 0;
  bool any_ = true; ///< something in this round belongs to the run
  Action action_;
  bool found_ = false;
};

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
