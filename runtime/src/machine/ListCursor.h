// Walks the list of a rank without expanding it: for the check, and for the executor.
#pragma once

#include "pdcrt/Schedule.h"

#include <limits>
#include <memory>
#include <vector>

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

  /// Shortens the run. The action at peek() stays; those that follow it are of the shorter run.
  void limit(std::int64_t minibatches);

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
  /// Where the actions end whose indices count the same: minibatches, or updates of so many minibatches.
  struct End {
    Action like;            ///< one of them
    std::int64_t each;      ///< minibatches of an update; 0: the indices are minibatches
    std::int64_t perUpdate; ///< Schedule::perUpdate
    std::int64_t index;     ///< the run has the actions with smaller indices
  };

  std::uint16_t endLike(const Action& action);
  void find();

  const Schedule* schedule_;
  const std::vector<Action>* start_;
  std::int64_t step_ = 1;
  std::vector<Repeated> repeat_;
  std::vector<End> ends_;
  std::shared_ptr<std::vector<Action>> evaluation_;
  std::int64_t minibatches_;
  std::int64_t round_ = -1;
  std::size_t position_ = 0; ///< behind `action_`
  std::int64_t executed_ = 0;
  bool any_ = true; ///< something in this round belongs to the run
  Action action_;
  bool found_ = false;
};

} // namespace pdcrt
