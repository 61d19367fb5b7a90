// What the shards of a stage add to the rules of Rules.cpp, at one replica: counters of versions, and of sweeps.
#pragma once

#include "pdcrt/Schedule.h"

#include <algorithm>
#include <string>

namespace pdcrt {

class ShardProgress {
public:
  /// In an evaluation the weights are those of the newest version.
  ShardProgress(const Schedule& schedule, Host host, bool evaluation)
      : schedule_(schedule), stage_(schedule.stages[static_cast<std::size_t>(host.stage)]), host_(host),
        evaluation_(evaluation) {}

  /// What forbids AG, UN or RE when `updates` have been made; else counts it. `used`: by all computations so far.
  std::string step(const Action& action, std::int64_t updates, bool used) {
    if (action.kind == ActionKind::reshard) return reshard(action, used);
    const bool isGather = action.kind == ActionKind::allGather;
    std::int64_t& done = action.wait ? awaited_ : posted_;
    if (action.index != done + 1)
      return "is out of order, " + std::string(isGather ? "version " : "sweep ") + std::to_string(done + 1) +
             " is next";
    if (action.wait && posted_ < action.index) return "waits for what is not started";
    const std::int64_t version = isGather ? action.index : schedule_.versionOf(action) - 1;
    if (!action.wait && !evaluation_ && updates < version) return "sends what is not computed yet";
    ++done;
    return {};
  }

  /// Empty if all weights of a version are here, for a computation.
  std::string missingFor(std::int64_t version) const {
    if (stage_.sharding == Sharding::optimizer && !evaluation_ && version > 0 && awaited_ < version)
      return needs(ActionKind::allGather, version);
    if (stage_.sharding != Sharding::weights) return {};
    if (evaluation_) return awaited_ == reshards_ ? needs(ActionKind::unshard, awaited_ + 1) : std::string();
    if (awaited_ == reshards_ ||
        schedule_.versionOf({.kind = ActionKind::unshard, .stage = host_.stage, .index = awaited_}) != version + 1)
      return needs(ActionKind::unshard, std::max(awaited_, version * stage_.sweeps) + 1);
    return {};
  }

  /// Empty if nobody reads or writes the weights that update `version` overwrites.
  std::string missingForUpdate(std::int64_t version) const {
    if (stage_.sharding == Sharding::optimizer && awaited_ < version - stage_.versions)
      return "overwrites a version that is being gathered; it " +
             needs(ActionKind::allGather, version - stage_.versions);
    if (stage_.sharding == Sharding::weights && reshards_ < version * stage_.sweeps)
      return needs(ActionKind::reshard, version * stage_.sweeps);
    return {};
  }

  /// What is missing after `updates`, the last.
  std::string finish(std::int64_t updates) const {
    if (!stage_.isSharded()) return {};
    const bool gathers = stage_.sharding == Sharding::optimizer;
    const std::int64_t all = evaluation_ ? posted_ : gathers ? updates : updates * stage_.sweeps;
    const ActionKind kind = gathers ? ActionKind::allGather : ActionKind::unshard;
    const auto name = [&](ActionKind of, std::int64_t done) {
      return toString(Action{of, false, host_.stage, -1, done + 1});
    };
    if (posted_ != all) return "never starts " + name(kind, posted_);
    if (awaited_ != all) return "never waits for " + name(kind, awaited_);
    if (!gathers && reshards_ != all) return "never does " + name(ActionKind::reshard, reshards_);
    return {};
  }

  /// Places of the rank's pool that it takes.
  std::int64_t inPool() const { return stage_.sharding == Sharding::weights ? posted_ - reshards_ : 0; }

private:
  std::string needs(ActionKind kind, std::int64_t index) const {
    return "needs " + toString(Action{kind, !isComputation(kind), host_.stage, -1, index}) + " before it";
  }

  std::string reshard(const Action& action, bool used) {
    if (action.index != reshards_ + 1) return "is out of order, sweep " + std::to_string(reshards_ + 1) + " is next";
    if (awaited_ < action.index) return needs(ActionKind::unshard, action.index);
    // The last sweep of an update ends with its last computation.
    if (!evaluation_ && action.index % stage_.sweeps == 0 && !used)
      return "gives up weights that a backward of that update needs";
    ++reshards_;
    return {};
  }

  const Schedule& schedule_;
  const ScheduleStage& stage_;
  Host host_;
  bool evaluation_;
  std::int64_t posted_ = 0, awaited_ = 0, reshards_ = 0; ///< of AG, or of UN and RE
};

} // namespace pdcrt
