// What the members of a team wait for each other, where they divide a stage (--split). Profiles do not know it: they
// are those of one member alone.
//
// A collective takes steps · latency + bytes / bandwidth on the link between members, bytes being what a member sends
// (runtime/src/collectives/TeamWork.h): of n bytes over t members an all-reduce 2 (t-1)/t · n in two steps (between two
// members in one), an all-gather or reduce-scatter (t-1)/t · n, an all-to-all (t-1)/t² · n. What a member computes
// between a start and its finish hides as much of it. Where the cluster file has measured times of a team of as many
// members (ClusterLevel::teamSums, teamExchanges), these take the place of latency and bandwidth of the link; they hold
// the time of the core already, of which at least that is left where all is hidden. Besides, a byte that is sent or
// received may take time of the core that computes (DeviceKind::coreSPerByte). Collectives that are under way together
// are counted as if each had the link.
#pragma once

#include "pdc/Analysis/Profile.h"

namespace pdc {

/// Bytes that a member sends in the collective that `operation`, a finish or a collective without halves, ends; 0 of
/// other operations. Where the elements of a sum are no multiple of the members, the first sends this, and the last
/// less.
std::int64_t bytesSentOverTeam(const Operation& operation);

/// Bytes that a member sends to its team in a minibatch of `stage`, what recomputation repeats included.
std::int64_t bytesSentOverTeam(const Graph& stage);

/// The devices of a team, which are neighbours on the link.
struct TeamDevices {
  DeviceKind device;
  ClusterLevel link;
};

/// Adds the time of the collectives to the nodes of `cost`, that of costGraphOf(graph, profile): the profile says how
/// long what lies between a start and its finish takes. `splitBackward`: gradients of weights lie between none, because
/// they are computed apart.
void addTeamTimes(CostGraph& cost, const Graph& graph, const Profile& profile, const TeamDevices& team,
                  bool splitBackward);

} // namespace pdc
