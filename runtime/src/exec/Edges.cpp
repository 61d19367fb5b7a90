#include "Edges.h"

#include "base/Index.h"
#include "transport/Channels.h"

#include <algorithm>
#include <cassert>

namespace pdcrt {

void Edges::prepare(const Schedule& schedule, const Places& places, const Host& host, int member, const Stage& stage,
                    const ArenaHost& place, std::byte* memory, std::vector<std::byte*> slots) {
  routing_ = schedule.routing(host.stage);
  slots_ = std::move(slots);
  for (std::size_t i = 0; i < stage.edges.size(); ++i) {
    const EdgeRow& row = stage.edges[i];
    Edge edge;
    edge.buffers = edgeBuffers(schedule, stage.index, row);
    edge.direction = row.direction;
    edge.peerRouting = schedule.routing(edge.buffers.peer);
    edge.stride = arenaBytes(row.bytes);
    const bool fromSlot = row.direction == Direction::forward && edge.buffers.leaves;
    edge.memory = fromSlot ? nullptr : memory + place.edges[i];
    for (int peer = 0; peer < edge.peerRouting.replicas(); ++peer) {
      const bool low = stage.index < edge.buffers.peer;
      edge.channels.push_back(edgeChannel(schedule, edge.buffers.edge, row.direction, low ? host.replica : peer,
                                          low ? peer : host.replica));
      edge.peers.push_back(places.partners(host, member, {edge.buffers.peer, peer}, edge.buffers.leaves));
    }
    for (const PortRow& port : stage.ports)
      if (port.edge == static_cast<int>(i)) edge.ports.push_back(&port);
    const EdgeRings& rings = schedule.rings[index(edge.buffers.edge)];
    edge.transfers = std::vector<TransferGroup>(index(fromSlot ? rings.forwardSend : edge.buffers.copies));
    for (TransferGroup& transfers : edge.transfers) {
      transfers.used = edge.ports.size() * edge.peers[0].size();
      transfers.resize(std::max<std::size_t>(1, transfers.used));
    }
    edges_.push_back(std::move(edge));
  }
  for (Edge& edge : edges_) rings_.emplace_back(edge.transfers);
  buffers_.resize(edges_.size());
}

Edges::Edge& Edges::edgeOf(const Action& action) {
  const Direction direction = isForwardTransfer(action.kind) ? Direction::forward : Direction::backward;
  auto found = std::find_if(edges_.begin(), edges_.end(), [&](const Edge& edge) {
    return edge.direction == direction && edge.buffers.peer == action.peer;
  });
  assert(found != edges_.end() && "stage and schedule were compared: they have the same edges");
  return *found;
}

std::byte* Edges::bufferOf(const Edge& edge, std::int64_t local) const {
  return edge.memory ? edge.memory + index(local % edge.buffers.copies) * edge.stride : nullptr;
}

TransferGroup& Edges::transfersOf(const Action& action) {
  Edge& edge = edgeOf(action);
  return edge.transfers[index(routing_.local(action.index)) % edge.transfers.size()];
}

void Edges::fill(const Action& action, const StartOrder* order, TransferGroup& transfers) {
  const Edge& edge = edgeOf(action);
  const std::int64_t local = routing_.local(action.index), turn = order ? order->turn(action) : -1;
  const std::size_t peer = index(edge.peerRouting.replica(action.index));
  std::byte* const buffer = bufferOf(edge, local);
  std::byte* const memory = buffer ? buffer : slots_[index(local) % slots_.size()];
  if (edge.peers[peer].empty()) {
    transfers.used = 0;
    return transfers.passTurn(turn);
  }
  for (std::size_t i = 0; i < transfers.used; ++i) {
    const PortRow& port = *edge.ports[i % edge.ports.size()];
    Transfer& part = transfers.parts[i];
    part.outgoing = isSend(action.kind);
    part.peer = edge.peers[peer][i / edge.ports.size()];
    part.channel = edge.channels[peer];
    part.data = memory + port.offset;
    part.bytes = port.bytes;
    part.traffic = edge.direction == Direction::forward ? Traffic::forward : Traffic::backward;
    part.inBlocks = true;
    part.turn = turn;
  }
}

std::byte* const* Edges::buffersOf(std::int64_t minibatch) {
  const std::int64_t local = routing_.local(minibatch);
  for (std::size_t i = 0; i < edges_.size(); ++i) buffers_[i] = bufferOf(edges_[i], local);
  return buffers_.data();
}

} // namespace pdcrt
