// The names of policies, as flags and JSON state them. Elsewhere they are enums.
#pragma once

#include "pdc/Plan/PlannerOptions.h"

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pdc {

template <class Policy>
struct PolicyName {
  Policy policy;
  const char* name;
};

/// Those that can be asked for.
inline constexpr std::array<PolicyName<pdcrt::WeightPolicy>, 3> weightPolicies = {
    {{pdcrt::WeightPolicy::stash, "stash"},
     {pdcrt::WeightPolicy::verticalSync, "vertical-sync"},
     {pdcrt::WeightPolicy::latest, "latest"}}};
inline constexpr std::array<PolicyName<SyncPolicy>, 2> syncPolicies = {
    {{SyncPolicy::overlap, "overlap"}, {SyncPolicy::barrier, "barrier"}}};
inline constexpr std::array<PolicyName<RecomputePolicy>, 3> recomputePolicies = {
    {{RecomputePolicy::none, "none"}, {RecomputePolicy::automatic, "auto"}, {RecomputePolicy::all, "all"}}};
inline constexpr std::array<PolicyName<pdcrt::Sharding>, 3> shardings = {{{pdcrt::Sharding::none, "none"},
                                                                          {pdcrt::Sharding::optimizer, "optimizer"},
                                                                          {pdcrt::Sharding::weights, "weights"}}};
inline constexpr std::array<PolicyName<ShardPolicy>, 4> shardPolicies = {{{ShardPolicy::none, "none"},
                                                                          {ShardPolicy::optimizer, "optimizer"},
                                                                          {ShardPolicy::weights, "weights"},
                                                                          {ShardPolicy::automatic, "auto"}}};

/// The policy of this name; nothing if the table has none.
template <class Policy, std::size_t count>
std::optional<Policy> policyNamed(const std::array<PolicyName<Policy>, count>& table, std::string_view name) {
  for (const PolicyName<Policy>& entry : table)
    if (entry.name == name) return entry.policy;
  return std::nullopt;
}

/// The names of a table, for flags.
template <class Policy, std::size_t count>
std::vector<std::string> namesOf(const std::array<PolicyName<Policy>, count>& table) {
  std::vector<std::string> names;
  for (const PolicyName<Policy>& entry : table) names.emplace_back(entry.name);
  return names;
}

/// The name of a policy of a table; of the table's first, where it has none: two versions of the weights are kept by a
/// schedule for which plans say "stash".
template <class Policy, std::size_t count>
std::string nameIn(const std::array<PolicyName<Policy>, count>& table, Policy policy) {
  for (const PolicyName<Policy>& entry : table)
    if (entry.policy == policy) return entry.name;
  return table.front().name;
}
inline std::string nameOf(pdcrt::WeightPolicy policy) {
  return nameIn(weightPolicies, policy);
}
inline std::string nameOf(SyncPolicy policy) {
  return nameIn(syncPolicies, policy);
}
inline std::string nameOf(RecomputePolicy policy) {
  return nameIn(recomputePolicies, policy);
}
inline std::string nameOf(pdcrt::Sharding sharding) {
  return nameIn(shardings, sharding);
}
inline std::string nameOf(ShardPolicy policy) {
  return nameIn(shardPolicies, policy);
}

} // namespace pdc
