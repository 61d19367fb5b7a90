// Which process does what. A rank of a schedule is a list of actions; the processes of a run carry lists out. A rank
// may be a team of several processes, its members, which work on the same actions together; today every rank has one.
//
// Transports number processes, schedules number ranks: whoever goes from one to the other asks here. All processes
// derive the same places from the schedule.
#pragma once

#include "pdcrt/Schedule.h"

#include <span>
#include <vector>

namespace pdcrt {

/// A member of a rank.
struct Place {
  int rank = 0, member = 0;
  friend bool operator==(const Place&, const Place&) = default;
};

class Places {
public:
  /// One process for each rank, in their order.
  explicit Places(const Schedule& schedule);
  /// `members` by rank, each at least 1. The members of a rank are neighbours.
  Places(const Schedule& schedule, std::span<const int> members);

  int ranks() const { return static_cast<int>(firstOf_.size()) - 1; }
  int processes() const { return firstOf_.back(); }
  int members(int rank) const { return process(rank + 1) - process(rank); }

  /// The rank and member that a process of the run is.
  Place at(int process) const { return places_[static_cast<std::size_t>(process)]; }
  /// The stage replicas that a process computes for.
  const std::vector<Host>& hosts(int process) const {
    return schedule_->ranks[static_cast<std::size_t>(at(process).rank)].hosts;
  }

  /// Over all processes, how many stage replicas they compute for: so many speak where each speaks for its own.
  std::size_t hostCount() const;

  int process(int rank, int member = 0) const { return firstOf_[static_cast<std::size_t>(rank)] + member; }
  /// The process that is a member of the rank which hosts a stage replica; -1 if no rank does.
  int process(const Host& host, int member = 0) const;

private:
  const Schedule* schedule_;
  std::vector<int> firstOf_;             ///< by rank: its first process; then the number of processes
  std::vector<Place> places_;            ///< by process
  std::vector<std::vector<int>> rankOf_; ///< by stage and replica
};

} // namespace pdcrt
