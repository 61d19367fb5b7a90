// Which process does what. A rank of a schedule is a list of actions; the processes of a run carry lists out. A rank is
// a team of processes, its members, which work on the same actions together; of one where nothing is divided.
//
// Transports number processes, schedules number ranks: whoever goes from one to the other asks here. All processes
// derive the same places from the schedule.
#pragma once

#include "pdcrt/Schedule.h"

#include <string>
#include <vector>

namespace pdcrt {

/// A member of a rank.
struct Place {
  int rank = 0, member = 0;
  friend bool operator==(const Place&, const Place&) = default;
};

class Places {
public:
  /// The members of a rank are neighbours; the ranks follow in their order. The schedule is well formed, but a replica
  /// may be hosted by no rank.
  explicit Places(const Schedule& schedule);

  int ranks() const { return static_cast<int>(firstOf_.size()) - 1; }
  int processes() const { return firstOf_.back(); }
  int members(int rank) const { return process(rank + 1) - process(rank); }

  /// The rank and member that a process of the run is.
  Place at(int process) const { return places_[static_cast<std::size_t>(process)]; }
  /// The stage replicas that a process computes for.
  const std::vector<Host>& hosts(int process) const {
    return schedule_->ranks[static_cast<std::size_t>(at(process).rank)].hosts;
  }
  /// "4 ranks"; "2 ranks of 4 processes" where there are teams.
  std::string count() const;

  /// Over all processes, how many stage replicas they compute for: so many speak where each speaks for its own.
  std::size_t hostCount() const;

  int process(int rank, int member = 0) const { return firstOf_[static_cast<std::size_t>(rank)] + member; }
  /// The process that is a member of the rank which hosts a stage replica; -1 if no rank does.
  int process(const Host& host, int member = 0) const;

  /// With whom member `member` of a replica exchanges whole values, or parts that both sides have alike. It sends them
  /// to members of `other`, or receives them from one: member j of the receiver takes from member j mod s of a sender
  /// with s members. So there is one sender; of receivers there may be several, or none.
  std::vector<int> partners(const Host& own, int member, const Host& other, bool sends) const;

private:
  int team(const Host& host) const { return schedule_->stages[static_cast<std::size_t>(host.stage)].team; }

  const Schedule* schedule_;
  std::vector<int> firstOf_;             ///< by rank: its first process; then the number of processes
  std::vector<Place> places_;            ///< by process
  std::vector<std::vector<int>> rankOf_; ///< by stage and replica
};

} // namespace pdcrt
