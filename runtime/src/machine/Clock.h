// Time: what is under way, how fast it progresses, and what is done next.
//
// Computations share the cores, if these are fewer, equally: they progress on a common clock that runs at the rate
// cores / cores that they keep busy when they have them all. Flows (transfers and all-reduces) share links: whoever
// uses a link gets an equal part of it, and the link that gives a flow least decides. When the users of a link change,
// only the flows on this link change their rate, so an event costs the logarithm of what is under way, times the users
// of its links.
#pragma once

#include "pdcrt/Simulate.h"

#include <cstdint>
#include <limits>
#include <vector>

namespace pdcrt {

class Clock {
public:
  struct Done {
    std::uint64_t sequence;
    bool computation;
    int id; ///< rank, or what flow() returned
    friend bool operator<(const Done& a, const Done& b) { return a.sequence < b.sequence; }
  };

  /// What is under way: a computation, or a flow, whose latency is over if it is on links.
  struct UnderWay {
    std::uint64_t sequence;
    bool computation;
    int id;
    bool onLinks;
    double left; ///< time on a core of its own, time of latency, or the part that is left of the flow
  };

  explicit Clock(const Times& times, int links);

  double now() const { return now_; }

  /// A computation on `rank` that takes `ms` > 0 on a core of its own.
  void compute(int rank, double ms);

  /// A flow with a load that is not empty. After the pass that finds it done, the number is given to another one.
  int flow(const Load& load);

  /// Lets time pass until something is done; returns what, in the order of starting. Empty if nothing is under way.
  const std::vector<Done>& pass();

  /// In the order of starting.
  std::vector<UnderWay> underWay() const;

  /// Says that it is `ms` later, and that everything under way has begun so much later.
  void skip(double ms);

private:
  struct Computation {
    double end; ///< on the common clock
    std::uint64_t sequence;
    int rank;
    friend bool operator>(const Computation& a, const Computation& b) {
      return a.end != b.end ? a.end > b.end : a.sequence > b.sequence;
    }
  };
  struct Flow {
    std::vector<LinkUse> links;
    double aloneMs = 0;
    bool onLinks = false;          ///< the latency is over
    double left = 1;               ///< part of it, at `since`
    double since = 0, wholeMs = 0; ///< how long the whole would take at the present rate
    double end = 0;
    std::uint64_t sequence = 0;
    std::size_t place = 0; ///< in heap_
  };

  /// Ranks that share cores, and the common clock on which their computations progress.
  struct Group {
    int cores = 0;                                         ///< 0: as many as there are ranks
    double common = 0, since = 0;                          ///< the common clock, and the time at which it was looked at
    double next = std::numeric_limits<double>::infinity(); ///< when the first computation is done
    std::vector<Computation> computations;                 ///< a heap: the one that ends first is first
    int busy = 0;                                          ///< cores that these would keep busy
  };

  double rateOf(const Group& group) const;
  int busyCores(int rank) const { return busyCores_.empty() ? 1 : busyCores_[static_cast<std::size_t>(rank)]; }
  void bringUp(Group& group) const;
  void findNext(Group& group) const;
  void startOnLinks(int id);
  void leaveLinks(int id);
  void changed(int link);
  bool refresh(Flow& flow);
  /// A flow in the heap, with what orders it.
  struct Entry {
    double end;
    std::uint64_t sequence;
    int id;
    friend bool operator<(const Entry& a, const Entry& b) {
      return a.end != b.end ? a.end < b.end : a.sequence < b.sequence;
    }
  };

  void moveUp(std::size_t place);
  void moveDown(std::size_t place);
  void put(std::size_t place, const Entry& entry);
  void push(int id);
  void popFirst();

  std::vector<int> busyCores_; ///< by rank
  std::vector<int> groupOf_;   ///< by rank
  std::vector<Group> groups_;
  std::size_t computing_ = 0;
  double now_ = 0;
  std::uint64_t sequence_ = 0;
  std::vector<Flow> flows_;
  std::vector<int> unused_; ///< of flows_
  std::vector<Entry> heap_; ///< the flow that ends first is first
  std::vector<std::vector<int>> users_;
  std::vector<Done> done_;
};

} // namespace pdcrt
