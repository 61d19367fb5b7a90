// The edges of one stage replica: buffers and transfers of the values and gradients that it exchanges with other
// stages.
//
// Each edge and direction has a ring of buffers over local minibatches. Values that leave have none: they stay in the
// slot. In a team every member has its own.
#pragma once

#include "machine/StartOrder.h"
#include "pdcrt/Arena.h"
#include "pdcrt/Places.h"
#include "pdcrt/Schedule.h"
#include "pdcrt/Stage.h"
#include "transport/Transport.h"

#include <cstdint>
#include <span>
#include <vector>

namespace pdcrt {

class Edges {
public:
  /// `slots`: the memory of each slot of the replica.
  void prepare(const Schedule& schedule, const Places& places, const Host& host, int member, const Stage& stage,
               const ArenaHost& place, std::byte* memory, std::vector<std::byte*> slots);

  std::size_t count() const { return edges_.size(); }

  /// The transfers of a send or receive of a minibatch, which may be under way.
  TransferGroup& transfersOf(const Action& action);
  /// Says what they move, and their turns, if there is an order.
  void fill(const Action& action, const StartOrder* order, TransferGroup& transfers);

  /// The buffers of a minibatch, by row of Stage::edges, as Frame::edges has them; null: there is none.
  std::byte* const* buffersOf(std::int64_t minibatch);

  /// All transfers, edge by edge: a ring each.
  const std::vector<std::span<TransferGroup>>& rings() const { return rings_; }

private:
  /// One direction of an edge: a row of Stage::edges.
  struct Edge {
    EdgeBuffers buffers;
    Direction direction = Direction::forward;
    Routing peerRouting;
    std::byte* memory = nullptr; ///< null for a forward edge that leaves
    std::size_t stride = 0;
    std::vector<int> channels;           ///< by replica of the peer
    std::vector<std::vector<int>> peers; ///< processes, by replica of the peer: equally many (Places::partners)
    std::vector<const PortRow*> ports;
    std::vector<TransferGroup> transfers; ///< a ring over local minibatches
  };
  Edge& edgeOf(const Action& action);
  std::byte* bufferOf(const Edge& edge, std::int64_t local) const;

  Routing routing_;
  std::vector<std::byte*> slots_;
  std::vector<Edge> edges_;
  std::vector<std::span<TransferGroup>> rings_;
  std::vector<std::byte*> buffers_; ///< of the last buffersOf()
};

} // namespace pdcrt
