// Collectives of a team (pdcrt/Team.h) over its members' transports.
//
// Every member sends directly to every other. An all-reduce gathers the terms of part i at member i, which adds them in
// member order, and spreads the sums; two members send each other all that they have, and both add (PairSum.h): as many
// bytes and half the steps. A collective posts all the sends and receives of a step before it waits for one.
//
// Several collectives may be under way, and one may be gathering while another spreads, so these have channels of their
// own. Neighbouring collectives have different ones: members that do them in different orders wait for each other, and
// do not take one for the other.
//
// Bytes that a member sends, with t members and values of n bytes (the whole): all-reduce 2 (t - 1) / t · n,
// all-gather, reduce-scatter (t - 1) / t · n, all-to-all (t - 1) / t · n / t.
#pragma once

#include "PairSum.h"
#include "TeamGroup.h"
#include "pdcrt/Team.h"

#include <memory>
#include <span>
#include <vector>

namespace pdcrt {

/// Is told, by the thread that computes, when a kernel waits for collective `number` of its stage, and when it has it.
class TeamObserver {
public:
  virtual ~TeamObserver() = default;
  virtual void awaits(const Collective&, int /*number*/) {}
  virtual void met(const Collective&, int /*number*/, double /*begin*/, double /*end*/) {}
};

class TeamWork : public Team {
public:
  /// For one stage that a rank hosts. `observer` may be null; all outlive the object.
  TeamWork(TeamGroup group, std::span<const Collective> collectives, Communicator& communicator,
           TeamObserver* observer);
  ~TeamWork() override;

  /// So many channels follow TeamGroup::channel: those of the collectives, and one of what the runtime compares
  /// (MemberGather.h).
  static constexpr int channelsOfCollectives = 32, channels = channelsOfCollectives + 1;

  int member() const override { return group_.self; }
  int members() const override { return group_.members(); }
  void follow(int collective, Stream& q, const std::byte* data, std::byte* arrived) override;
  void start(int collective, Stream& q, const std::byte* data, std::byte* arrived) override;
  void finish(int collective, Stream& q) override;
  bool records() const override { return false; }

private:
  class Exchange;
  /// The all-reduces that share channels spread in the order in which they were started.
  struct Lane {
    std::int64_t started = 0, spread = 0;
  };

  TeamGroup group_;
  Communicator& communicator_;
  TeamObserver* observer_;
  std::vector<Lane> lanes_;
  std::vector<Collective> collectives_;
  std::vector<std::unique_ptr<Exchange>> exchanges_; ///< by collective; null where there is a pair
  std::vector<std::unique_ptr<PairSum>> pairs_;      ///< by collective; null where there is an exchange
  int followed_ = -1;                                ///< whose data is made
};

/// Plays one member of a team alone, so that a program can be profiled: the collectives move what the member has
/// itself, other parts of `arrived` stay what they were.
class LoneTeam : public Team {
public:
  LoneTeam(int member, int members, std::span<const Collective> collectives)
      : member_(member), members_(members), collectives_(collectives.begin(), collectives.end()) {}

  int member() const override { return member_; }
  int members() const override { return members_; }
  void start(int collective, Stream& q, const std::byte* data, std::byte* arrived) override;
  void finish(int, Stream&) override {}
  bool records() const override { return true; }

private:
  int member_, members_;
  std::vector<Collective> collectives_;
};

} // namespace pdcrt
