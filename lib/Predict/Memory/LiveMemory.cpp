// What of an arena is in use, from what is computed and transferred.
#include "MemoryParts.h"
#include "pdcrt/Arena.h"

#include <algorithm>
#include <cmath>

using namespace pdc;
using pdcrt::ActionKind;

LiveMemory::LiveMemory(const Plan& plan, const pdcrt::Schedule& schedule, std::vector<MemorySplit> arenas,
                       std::int64_t minibatches, int ranks, Sink sink)
    : plan_(plan), schedule_(schedule), arenas_(std::move(arenas)), minibatches_(minibatches),
      traffic_(schedule.edges.size()), slotBytes_(plan.stages.size()), receivedBytes_(plan.stages.size()),
      returnedBytes_(plan.stages.size()), sentBackBytes_(plan.stages.size()), sink_(std::move(sink)) {
  for (const EdgeTraffic& edge : trafficOf(plan)) {
    int index = schedule.edgeBetween(edge.edge.from, edge.edge.to);
    if (index < 0) continue;
    traffic_[index] = edge;
    receivedBytes_[edge.edge.to] += edge.forwardBytes;
    returnedBytes_[edge.edge.from] += edge.backwardBytes;
    sentBackBytes_[edge.edge.to] += edge.backwardBytes;
  }
  for (std::size_t s = 0; s < plan.stages.size(); ++s) slotBytes_[s] = slotBytesOf(plan, static_cast<int>(s));
  for (std::size_t r = 0; r < std::min(schedule.ranks.size(), static_cast<std::size_t>(ranks)); ++r) {
    Rank rank;
    rank.inUse = arenas_[r];
    rank.inUse.versions = rank.inUse.stash = rank.inUse.gradients = rank.inUse.buffers = 0;
    for (const pdcrt::Host& host : schedule.ranks[r].hosts)
      rank.hosts.push_back(
          {.stage = host.stage, .unfinished = schedule.routing(host.stage).minibatch(0, host.replica)});
    ranks_.push_back(std::move(rank));
    tell(static_cast<int>(r), 0);
  }
}

LiveMemory::Host& LiveMemory::hostOf(int rank, int stage) {
  std::vector<Host>& hosts = ranks_[rank].hosts;
  return *std::find_if(hosts.begin(), hosts.end(), [&](const Host& host) { return host.stage == stage; });
}

void LiveMemory::see(const pdcrt::TracedAction& traced) {
  if (traced.action.wait) return;
  if (pdcrt::isComputation(traced.action.kind)) return compute(traced);
  if (pdcrt::isTransfer(traced.action.kind)) transfer(traced);
}

void LiveMemory::compute(const pdcrt::TracedAction& traced) {
  if (traced.rank >= static_cast<int>(ranks_.size()) || traced.action.kind == ActionKind::evaluate ||
      traced.action.kind == ActionKind::reshard)
    return;
  Rank& rank = ranks_[traced.rank];
  Host& host = hostOf(traced.rank, traced.action.stage);
  arrive(traced.rank, traced.startMs);
  begin(rank, host, traced.action);
  tell(traced.rank, traced.startMs);
  arrive(traced.rank, traced.endMs);
  end(rank, host, traced.action);
  tell(traced.rank, traced.endMs);
}

/// A plan whose parts exceed its total has smaller ones in its arena.
void LiveMemory::tell(int rank, double ms) const {
  MemorySplit inUse = ranks_[rank].inUse;
  for (const MemoryPart& part : memoryParts) inUse.*part.bytes = std::min(inUse.*part.bytes, arenas_[rank].*part.bytes);
  sink_(rank, ms, inUse);
}

void LiveMemory::begin(Rank& rank, Host& host, const pdcrt::Action& action) {
  if (action.kind == ActionKind::forward) {
    rank.inUse.stash += slotBytes_[host.stage];
    return;
  }
  if (action.kind == ActionKind::update) return;
  if (action.kind != ActionKind::backwardWeight) rank.inUse.buffers += sentBackBytes_[host.stage];
  if (action.kind == ActionKind::backwardInput) return;
  std::int64_t update = action.index / std::max<std::int64_t>(1, schedule_.minibatchesOfUpdate(host.stage)) + 1;
  if (!host.updates.empty() && host.updates.back() == update) return;
  host.updates.push_back(update);
  countSets(rank, host);
}

void LiveMemory::end(Rank& rank, Host& host, const pdcrt::Action& action) {
  if (action.kind == ActionKind::update) {
    host.newest = action.index;
    std::erase_if(host.updates, [&](std::int64_t update) { return update <= host.newest; });
    countSets(rank, host);
    countVersions(rank, host);
  } else if (action.kind == ActionKind::backward || action.kind == ActionKind::backwardWeight) {
    rank.inUse.stash -= slotBytes_[host.stage];
    rank.inUse.buffers -= receivedBytes_[host.stage] + returnedBytes_[host.stage];
    host.unfinished = schedule_.routing(host.stage).next(action.index);
    countVersions(rank, host);
  }
}

void LiveMemory::countVersions(Rank& rank, Host& host) const {
  bool newestOnly = schedule_.weights == pdcrt::WeightPolicy::latest && schedule_.minibatchesPerUpdate == 0;
  std::int64_t needed = host.newest;
  if (!newestOnly && host.unfinished < minibatches_)
    needed = std::min(needed, schedule_.versionUsed(host.stage, host.unfinished));
  std::int64_t alive = host.newest - needed + 1;
  rank.inUse.versions += (alive - host.alive) * plan_.stages[host.stage].parameterBytes;
  host.alive = alive;
}

void LiveMemory::countSets(Rank& rank, Host& host) const {
  auto sets = static_cast<std::int64_t>(host.updates.size());
  if (sets > 0 && pdcrt::gradientSets(schedule_, host.stage).spare) ++sets;
  rank.inUse.gradients += (sets - host.sets) * plan_.stages[host.stage].gradientBytes;
  host.sets = sets;
}

void LiveMemory::transfer(const pdcrt::TracedAction& traced) {
  const pdcrt::Action& action = traced.action;
  auto known = static_cast<int>(ranks_.size());
  if (traced.peerRank >= known && traced.rank >= known) return;
  const EdgeTraffic& edge = traffic_[schedule_.edgeBetween(action.stage, action.peer)];
  bool forward = pdcrt::isForwardTransfer(action.kind);
  std::int64_t bytes = forward ? edge.forwardBytes : edge.backwardBytes;
  if (traced.peerRank < known) ranks_[traced.peerRank].arrivals.push_back({traced.endMs, bytes});
  if (!forward && traced.rank < known) ranks_[traced.rank].arrivals.push_back({traced.endMs, -bytes});
}

void LiveMemory::arrive(int r, double ms) {
  Rank& rank = ranks_[r];
  std::size_t taken = 0;
  for (; taken < rank.arrivals.size() && rank.arrivals[taken].ms <= ms; ++taken) {
    rank.inUse.buffers += rank.arrivals[taken].bytes;
    tell(r, rank.arrivals[taken].ms);
  }
  rank.arrivals.erase(rank.arrivals.begin(), rank.arrivals.begin() + static_cast<std::ptrdiff_t>(taken));
}

void LiveMemory::finish() {
  for (std::size_t r = 0; r < ranks_.size(); ++r) arrive(static_cast<int>(r), INFINITY);
}
