#include "Network.h"

#include <algorithm>
#include <map>
#include <numeric>

using namespace pdc;

Network::Network(const Plan& plan)
    : replicas_(plan.stages.size()), traffic_(plan.stages.size()), shared_(plan.sharedParameters) {
  std::int64_t inside = 1;
  for (const ClusterLevel& level : plan.cluster.levels) {
    levels_.push_back({inside, links_, level.bandwidthBytesPerS / 1e3, 1e3 * level.latencyS});
    std::int64_t parts = std::max<std::int64_t>(1, plan.cluster.deviceCount() / inside);
    links_ += static_cast<int>(2 * parts);
    inside *= std::max<std::int64_t>(1, level.count);
  }
  for (std::size_t s = 0; s < plan.stages.size(); ++s) replicas_[s].resize(plan.stages[s].replicas);
  for (const PlanStage& stage : plan.stages) teams_.push_back(stage.split.members);
  for (const PlanRank& rank : plan.ranks) {
    leaf_.push_back(rank.devices.empty() ? rank.rank : rank.devices[0]);
    for (const PlanRank::Host& host : rank.hosts) replicas_[host.stage][host.replica] = leaf_.back();
  }
  for (const EdgeTraffic& edge : trafficOf(plan)) traffic_[edge.edge.from].push_back(edge);
  for (std::size_t s = 0; s < plan.stages.size(); ++s) exchanges_.push_back(exchangesOf(plan, static_cast<int>(s)));
}

void Network::exchange(pdcrt::ActionKind kind, int stage, int group, pdcrt::Load& load) const {
  const Exchanges& of = exchanges_[static_cast<std::size_t>(stage)];
  const bool isGather = kind == pdcrt::ActionKind::allGather || kind == pdcrt::ActionKind::unshard;
  load = isGather ? of.gathers[static_cast<std::size_t>(group)] : of.sum;
}

double Network::bytes(int from, int to, bool forward) const {
  for (const EdgeTraffic& edge : traffic_[from])
    if (edge.edge.to == to) return static_cast<double>(forward ? edge.forwardBytes : edge.backwardBytes);
  return 0;
}

double Network::sharedBytes(int owner, int user, bool version) const {
  double bytes = 0;
  for (const PlanSharedParameter& parameter : shared_)
    for (std::size_t i = 1; i < parameter.stages.size(); ++i)
      if (parameter.stages[0] == owner && parameter.stages[i] == user)
        bytes += static_cast<double>(parameter.bytes) * (version ? 1 : parameter.uses[i]);
  return bytes;
}

template <class Visit>
void Network::forEachLink(std::int64_t from, std::int64_t to, Visit visit) const {
  for (const Level& level : levels_) {
    std::int64_t a = from / level.inside, b = to / level.inside;
    if (a == b) return;
    visit(level, level.firstLink + static_cast<int>(2 * a));
    visit(level, level.firstLink + static_cast<int>(2 * b) + 1);
  }
}

void Network::route(int from, int to, std::int64_t fromLeaf, std::int64_t toLeaf, double bytes,
                    pdcrt::Load& load) const {
  const int senders = teams_[static_cast<std::size_t>(from)], receivers = teams_[static_cast<std::size_t>(to)];
  for (int member = 0; member < receivers; ++member)
    forEachLink(fromLeaf + member % senders, toLeaf + member, [&](const Level& level, int link) {
      load.latencyMs = std::max(load.latencyMs, level.latencyMs);
      if (level.bandwidth <= 0 || bytes <= 0) return;
      const auto same = std::ranges::find(load.links, link, &pdcrt::LinkUse::link);
      if (same == load.links.end())
        load.links.push_back({link, bytes / level.bandwidth});
      else
        same->ms += bytes / level.bandwidth;
    });
}

/// Alone on its links.
double Network::transferMs(const pdcrt::Load& load) const {
  double ms = 0;
  for (const pdcrt::LinkUse& use : load.links) ms = std::max(ms, use.ms);
  return load.latencyMs + ms;
}

double Network::meanTransferMs(int from, int to, bool forward) const {
  const int sender = forward ? from : to, receiver = forward ? to : from;
  const std::vector<std::int64_t>&senders = replicas_[sender], &receivers = replicas_[receiver];
  auto routes = static_cast<std::size_t>(
      std::lcm(static_cast<std::int64_t>(senders.size()), static_cast<std::int64_t>(receivers.size())));
  routes = std::min<std::size_t>(routes, 4096);
  double load = bytes(from, to, forward), sum = 0;
  for (std::size_t b = 0; b < routes; ++b) {
    pdcrt::Load one;
    route(sender, receiver, senders[b % senders.size()], receivers[b % receivers.size()], load, one);
    sum += transferMs(one);
  }
  return sum / static_cast<double>(routes);
}

/// An all-reduce of so many bytes among members of replicas whose first ones are on these leaves. Links of a machine
/// carry those of all members.
pdcrt::Load Network::allReduceOf(const Plan& plan, int team, std::span<const std::int64_t> leaves,
                                 double weights) const {
  pdcrt::Load load;
  if (leaves.size() < 2) return load;
  auto r = static_cast<double>(leaves.size());
  std::map<int, double> bytes; // of each link
  double latency = 0;
  std::map<int, double> bandwidth;
  auto cross = [&](const Level& level, int link, double more) {
    latency = std::max(latency, level.latencyMs);
    bytes[link] += level.inside == 1 ? more : more * team;
    bandwidth[link] = level.bandwidth;
  };
  if (plan.cluster.deviceAt(leaves[0]).name == "cpu") {
    for (const Level& level : levels_) {
      std::map<std::int64_t, double> held; // replicas by part of this level
      for (std::int64_t leaf : leaves) ++held[leaf / level.inside];
      if (held.size() < 2) break;
      for (const auto& [part, q] : held)
        for (int direction : {0, 1})
          cross(level, level.firstLink + static_cast<int>(2 * part) + direction, 2 * q * (r - q) / r * weights);
    }
  } else {
    for (std::size_t i = 0; i < leaves.size(); ++i)
      forEachLink(leaves[i], leaves[(i + 1) % leaves.size()],
                  [&](const Level& level, int link) { cross(level, link, 2 * (r - 1) / r * weights); });
  }
  load.latencyMs = 2 * (r - 1) * latency;
  for (const auto& [link, volume] : bytes)
    if (bandwidth[link] > 0 && volume > 0) load.links.push_back({link, volume / bandwidth[link]});
  return load;
}

/// That of a stage: not shorter than the plan states.
pdcrt::Load Network::allReduceOf(const Plan& plan, int stage) const {
  const PlanStage& planned = plan.stages[static_cast<std::size_t>(stage)];
  pdcrt::Load load = allReduceOf(plan, planned.split.members, replicas_[static_cast<std::size_t>(stage)],
                                 static_cast<double>(planned.parameterBytes));
  if (planned.replicas > 1) load.aloneMs = std::max(0.0, planned.allReduceMs - load.latencyMs);
  return load;
}

/// Adds what is moved after it, or at the same time over other links.
static void append(pdcrt::Load& load, const pdcrt::Load& more, bool after) {
  if (after) load.aloneMs += more.aloneMs;
  load.latencyMs = after ? load.latencyMs + more.latencyMs : std::max(load.latencyMs, more.latencyMs);
  for (const pdcrt::LinkUse& use : more.links) {
    const auto same = std::ranges::find(load.links, use.link, &pdcrt::LinkUse::link);
    if (same == load.links.end())
      load.links.push_back(use);
    else
      same->ms += use.ms;
  }
}

/// A part of a load, as if so much less were moved.
static pdcrt::Load scaled(pdcrt::Load load, double part) {
  load.latencyMs *= part;
  load.aloneMs *= part;
  for (pdcrt::LinkUse& use : load.links) use.ms *= part;
  return load;
}

Network::Exchanges Network::exchangesOf(const Plan& plan, int stage) const {
  const PlanStage& planned = plan.stages[static_cast<std::size_t>(stage)];
  const pdcrt::Load whole = allReduceOf(plan, stage);
  if (!planned.isSharded()) {
    // With buckets only the part that the backward does not hide comes after it.
    const double sumMs = planned.allReduceMs, unhiddenMs = planned.unhiddenSyncMs();
    const bool hides = planned.syncDelay == 0 && unhiddenMs < sumMs;
    return {.sum = hides ? scaled(whole, std::max(0.0, unhiddenMs) / sumMs) : whole};
  }
  Exchanges exchanges{.sum = scaled(whole, 0.5)};
  const std::vector<std::int64_t>& leaves = replicas_[static_cast<std::size_t>(stage)];
  const int owners = planned.owners(), groups = planned.replicas / owners;
  const auto bytes = static_cast<double>(planned.parameterBytes);
  if (groups == 1) {
    exchanges.gathers = {scaled(whole, 0.5)};
  } else {
    for (int group = 0; group < groups; ++group)
      exchanges.gathers.push_back(scaled(allReduceOf(plan, planned.split.members,
                                                     std::span(leaves).subspan(static_cast<std::size_t>(group * owners),
                                                                               static_cast<std::size_t>(owners)),
                                                     bytes),
                                         0.5));
    pdcrt::Load among; // those who have the same shard, of all shards at the same time
    for (int shard = 0; shard < owners; ++shard) {
      std::vector<std::int64_t> sharers;
      for (int group = 0; group < groups; ++group)
        sharers.push_back(leaves[static_cast<std::size_t>(group * owners + shard)]);
      append(among, scaled(allReduceOf(plan, planned.split.members, sharers, bytes / owners), 0.5), /*after=*/false);
    }
    append(exchanges.sum, among, /*after=*/true);
  }
  // The sum of gradients whose weights are given up before begins behind the backward.
  if (planned.sharding == pdcrt::Sharding::weights) return exchanges;
  const double sumMs = planned.allReduceMs / 2, unhiddenMs = planned.unhiddenSyncMs() - planned.gatherMs();
  if (planned.syncDelay == 0 && unhiddenMs < sumMs)
    exchanges.sum = scaled(exchanges.sum, std::max(0.0, unhiddenMs) / sumMs);
  return exchanges;
}
