// Tied parameters of a stage replica: rings, transfers, sums.
#include "TiedParameters.h"

#include "base/Index.h"
#include "transport/Channels.h"

#include <algorithm>

namespace pdcrt {
namespace {

bool movesVersions(const Action& action) {
  return kindRow(action.kind).lane == ActionLane::versions;
}

void add(Stream& q, float* sum, const float* more, std::int64_t count) {
  const float* const terms[] = {sum, more};
  device::addUp(q, sum, terms, count);
}

} // namespace

void TiedParameters::prepare(const Schedule& schedule, const Places& places, const Host& host, int member,
                             const Stage& stage, const ArenaHost& place, std::byte* memory) {
  schedule_ = &schedule;
  stage_ = &stage;
  replica_ = host.replica;
  chosen_.resize(stage.shared.size());
  arrived_.resize(stage.sharedUses.size());
  for (std::size_t i = 0; i < stage.shared.size(); ++i) {
    const SharedRow& row = stage.shared[i];
    const int shared = schedule.sharedBetween(row.owner, row.user);
    End end;
    end.edge = &schedule.shared[index(shared)];
    end.owner = row.owner == stage.index;
    end.row = static_cast<int>(i);
    owns_ = owns_ || end.owner;
    for (const SharedValueRow& value : stage.sharedValues)
      if (value.shared == end.row) end.values.push_back(&value);
    for (const SharedUseRow& use : stage.sharedUses)
      if (use.shared == end.row) end.uses.push_back(&use);

    const int owners = schedule.stages[index(row.owner)].replicas, users = schedule.stages[index(row.user)].replicas;
    auto addPeer = [&](int ownerReplica, int userReplica) {
      const int other = end.owner ? userReplica : ownerReplica;
      const Host there{end.owner ? row.user : row.owner, other};
      end.peers.push_back({.replica = other,
                           .ofVersions = places.partners(host, member, there, sends(end, /*versions=*/true)),
                           .ofParts = places.partners(host, member, there, sends(end, /*versions=*/false)),
                           .versionChannel = sharedChannel(schedule, shared, false, userReplica),
                           .partChannel = sharedChannel(schedule, shared, true, userReplica)});
    };
    if (end.owner)
      for (int q = host.replica; q < users; q += owners) addPeer(host.replica, q);
    else
      addPeer(host.replica % owners, host.replica);

    end.valueMemory = memory + place.shared[i].values;
    end.valueStride = arenaBytes(row.valueBytes);
    end.partMemory = memory + place.shared[i].parts;
    end.partStride = arenaBytes(row.partBytes);
    if (!end.owner) {
      end.versions.resize(index(end.edge->versionReceive));
      end.parts.resize(index(end.edge->partSend));
    }
    std::size_t ofVersions = 0, ofParts = 0;
    for (const Peer& peer : end.peers) {
      ofVersions += std::max<std::size_t>(1, peer.ofVersions.size());
      ofParts += std::max<std::size_t>(1, peer.ofParts.size());
    }
    auto makeRing = [](std::vector<TransferGroup>& ring, int count, std::size_t most) {
      ring = std::vector<TransferGroup>(index(count));
      for (TransferGroup& transfers : ring) transfers.resize(most);
    };
    makeRing(end.versionTransfers, end.owner ? end.edge->versionSend : end.edge->versionReceive,
             end.values.size() * ofVersions);
    makeRing(end.partTransfers, end.owner ? end.edge->partReceive : end.edge->partSend, end.uses.size() * ofParts);
    ends_.push_back(std::move(end));
  }
  for (End& end : ends_)
    for (auto* ring : {&end.versionTransfers, &end.partTransfers})
      for (TransferGroup& transfers : *ring) transfers_.push_back(&transfers);
  restart();
}

void TiedParameters::restart() {
  for (End& end : ends_) {
    end.partsAwaited = 0;
    if (end.owner) continue;
    std::fill(end.versions.begin(), end.versions.end(), Held{});
    std::fill(end.parts.begin(), end.parts.end(), Held{});
    end.versionCount = end.partCount = 0;
    end.versions[take(end.versions, end.versionCount, 0)].arrived = true;
  }
}

void TiedParameters::refresh(const Versions& versions, std::vector<Refresh>& refreshes) {
  for (const End& end : ends_)
    for (const Peer& peer : end.peers) {
      auto group = std::make_unique<TransferGroup>();
      group->resize(end.values.size() * peer.ofVersions.size());
      addVersions(end, peer, end.owner ? versions.at(versions.newest()) : end.valueMemory, Traffic::control, *group);
      if (group->used > 0)
        refreshes.push_back({schedule_->sharedBetween(end.edge->owner, end.edge->user),
                             end.owner ? peer.replica : replica_, std::move(group)});
    }
  restart();
}

TiedParameters::End* TiedParameters::endOf(const Action& action) {
  for (End& end : ends_)
    if ((end.owner ? end.edge->user : end.edge->owner) == action.peer) return &end;
  return nullptr;
}

/// The buffer that holds `version`: one that does already, or the next in turn.
std::size_t TiedParameters::take(std::vector<Held>& ring, std::int64_t& count, std::int64_t version) {
  for (std::size_t i = 0; i < ring.size(); ++i)
    if (ring[i].version == version) return i;
  const std::size_t next = index(count++) % ring.size();
  ring[next] = {.version = version};
  return next;
}

TransferGroup* TiedParameters::transfersOf(const Action& action) {
  End* end = endOf(action);
  if (!end || end->peers.empty()) return nullptr;
  const bool versions = movesVersions(action);
  std::vector<TransferGroup>& ring = versions ? end->versionTransfers : end->partTransfers;
  if (end->owner) {
    if (!versions && action.wait) end->partsAwaited = action.index;
    return &ring[index(action.index) % ring.size()];
  }
  if (!versions) return &ring[take(end->parts, end->partCount, action.index)];
  const std::size_t buffer = take(end->versions, end->versionCount, action.index);
  if (action.wait) end->versions[buffer].arrived = true;
  return &ring[buffer];
}

/// Transfers of the values of one version from or to `block`, which is the owner's weights or a buffer of the user.
void TiedParameters::addVersions(const End& end, const Peer& peer, std::byte* block, Traffic traffic,
                                 TransferGroup& transfers) const {
  for (const int process : peer.ofVersions)
    for (const SharedValueRow* row : end.values) {
      Transfer& part = transfers.parts[transfers.used++];
      part.outgoing = end.owner;
      part.peer = process;
      part.channel = peer.versionChannel;
      part.data = block + row->offset;
      part.bytes = bytesOf(*row);
      part.traffic = traffic;
      part.inBlocks = true;
    }
}

std::byte* TiedParameters::partOf(const End& end, std::int64_t version, std::size_t peer) const {
  return end.partMemory + (index(version) % end.partTransfers.size() * end.peers.size() + peer) * end.partStride;
}

void TiedParameters::fill(const Action& action, const Versions& versions, const StartOrder* order,
                          TransferGroup& transfers) {
  End& end = *endOf(action);
  transfers.used = 0;
  for (std::size_t i = 0; i < end.peers.size(); ++i) {
    const Peer& peer = end.peers[i];
    const int userReplica = end.owner ? peer.replica : replica_;
    const std::int64_t turn = order ? order->turn(action, end.owner ? peer.replica : 0) : -1;
    const std::size_t before = transfers.used;
    auto setTurns = [&] {
      if (transfers.used == before) transfers.passTurn(turn);
      for (std::size_t part = before; part < transfers.used; ++part) transfers.parts[part].turn = turn;
    };
    if (movesVersions(action)) {
      if (!schedule_->takesVersion(*end.edge, userReplica, action.index)) continue;
      std::byte* block = end.owner
                             ? versions.at(action.index)
                             : end.valueMemory + take(end.versions, end.versionCount, action.index) * end.valueStride;
      addVersions(end, peer, block, Traffic::shared, transfers);
      setTurns();
      continue;
    }
    if (!schedule_->hasPart(*end.edge, userReplica, action.index)) continue;
    std::byte* block = end.owner ? partOf(end, action.index, i)
                                 : end.partMemory + take(end.parts, end.partCount, action.index) * end.partStride;
    for (const int process : peer.ofParts)
      for (const SharedUseRow* use : end.uses) {
        Transfer& part = transfers.parts[transfers.used++];
        part.outgoing = !end.owner;
        part.peer = process;
        part.channel = peer.partChannel;
        part.data = block + use->part;
        part.bytes = bytesOf(stage_->sharedValues[index(use->value)]);
        part.traffic = Traffic::shared;
        part.inBlocks = true;
      }
    setTurns();
  }
}

Status TiedParameters::choose(std::int64_t minibatch, const Action& action) {
  for (const End& end : ends_) {
    if (end.owner) continue;
    const std::int64_t version = schedule_->versionUsed(end.edge->owner, minibatch);
    auto found = std::find_if(end.versions.begin(), end.versions.end(),
                              [&](const Held& held) { return held.version == version && held.arrived; });
    if (found == end.versions.end())
      return {Exit::invalid, "action " + toString(action) + " needs version " + std::to_string(version) +
                                 " of the parameters that stage " + std::to_string(end.edge->owner) +
                                 " shares, which is not here"};
    chosen_[index(end.row)] = end.valueMemory + index(found - end.versions.begin()) * end.valueStride;
  }
  return {};
}

void TiedParameters::chooseFirst() {
  for (const End& end : ends_)
    if (!end.owner) chosen_[index(end.row)] = end.valueMemory;
}

Status TiedParameters::addToPart(Stream& q, std::int64_t minibatch, const std::byte* gradients, bool withInput,
                                 const Action& action) {
  for (End& end : ends_) {
    if (end.owner) continue;
    const std::int64_t version = minibatch / schedule_->minibatchesOfUpdate(end.edge->owner) + 1;
    const std::size_t buffer = take(end.parts, end.partCount, version);
    if (end.partTransfers[buffer].pending())
      return {Exit::invalid,
              "action " + toString(action) + " needs a buffer of gradients that is being sent to stage " +
                  std::to_string(end.edge->owner),
              "await it earlier in schedule.txt"};
    std::byte* part = end.partMemory + buffer * end.partStride;
    const bool first = end.parts[buffer].minibatches[withInput]++ == 0;
    for (const SharedUseRow* use : end.uses) {
      if (use->withInput != withInput) continue;
      const SharedValueRow& row = stage_->sharedValues[index(use->value)];
      if (first)
        device::copy(q, part + use->part, gradients + use->gradient, bytesOf(row));
      else
        add(q, reinterpret_cast<float*>(part + use->part), reinterpret_cast<const float*>(gradients + use->gradient),
            row.shape.elements());
    }
  }
  return {};
}

/// Whether a replica of the user has a minibatch in the owner's update `version`, in a run of `minibatches`.
bool TiedParameters::hasMinibatch(const End& end, int replica, std::int64_t version, std::int64_t minibatches) const {
  const std::int64_t from = schedule_->updateFirst(end.edge->owner, version);
  const std::int64_t to = std::min(schedule_->updateLast(end.edge->owner, version), minibatches);
  return schedule_->routing(end.edge->user).hasOneOf(from, to, replica);
}

Status TiedParameters::collect(Stream& q, std::int64_t version, std::int64_t minibatches, const Action& action) {
  std::fill(arrived_.begin(), arrived_.end(), nullptr);
  for (const End& end : ends_) {
    if (!end.owner) continue;
    std::byte* sum = nullptr;
    for (std::size_t i = 0; i < end.peers.size(); ++i) {
      if (!hasMinibatch(end, end.peers[i].replica, version, minibatches)) continue;
      if (end.partsAwaited < version)
        return {Exit::invalid,
                "action " + toString(action) + " needs the gradients that stage " + std::to_string(end.edge->user) +
                    " has of shared parameters",
                "await them earlier in schedule.txt"};
      std::byte* part = partOf(end, version, i);
      if (sum)
        for (const SharedUseRow* use : end.uses)
          add(q, reinterpret_cast<float*>(sum + use->part), reinterpret_cast<const float*>(part + use->part),
              stage_->sharedValues[index(use->value)].shape.elements());
      else
        sum = part;
    }
    for (const SharedUseRow* use : end.uses)
      if (sum) arrived_[index(use - stage_->sharedUses.data())] = sum + use->part;
  }
  return {};
}

} // namespace pdcrt
