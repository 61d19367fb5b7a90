// The turn of a computation, in which the members of a team meet and nothing else of theirs starts (StartOrder.h). The
// communication thread, which alone touches the gate, lets it begin and is told of its end.
#pragma once

#include "Posting.h"
#include "machine/StartOrder.h"

#include <cstdint>
#include <utility>

namespace pdcrt {

class HeldTurn {
public:
  /// `posting` outlives the object.
  explicit HeldTurn(Posting& posting) : posting_(posting) {}

  /// Sleeps until all that comes before the action in `order` has been started. Where there is no order (null), or the
  /// action has no turn, there is nothing to wait for.
  Status take(const StartOrder* order, const Action& action) {
    held_ = order ? order->turn(action) : -1;
    if (held_ < 0) return {};
    taking_.turn = held_;
    posting_.post(taking_);
    return posting_.waitFor(taking_); // and so the giving before it is complete
  }
  /// What comes after it may start.
  void give() {
    const std::int64_t turn = std::exchange(held_, -1);
    if (turn < 0) return;
    giving_.turn = turn;
    posting_.post(giving_);
  }
  /// Work that may be under way after give().
  Work& giving() { return giving_; }

private:
  struct Taking : Work {
    Taking() { urgent = true; }
    bool advance(Transport& transport) override { return transport.gate().mayStart(turn); }
    std::int64_t turn = -1;
  };
  struct Giving : Work {
    Giving() { urgent = true; }
    bool advance(Transport& transport) override {
      transport.gate().started(turn);
      return true;
    }
    std::int64_t turn = -1;
  };

  Posting& posting_;
  Taking taking_;
  Giving giving_;
  std::int64_t held_ = -1;
};

} // namespace pdcrt
