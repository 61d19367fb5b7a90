// Tied parameters, those that several stages use (SharedEdge in Schedule.h): their buffers and transfers at one stage
// replica.
//
// A user keeps a ring of the versions that its owner sends, and a ring of the sums of its gradients, by update of the
// owner; each gradient of a use is a transfer of its own. An owner sends from its weights, and keeps, for each replica
// of the user that it serves, a ring of what arrives.
#pragma once

#include "Weights.h"
#include "pdcrt/Arena.h"
#include "pdcrt/Places.h"
#include "pdcrt/Schedule.h"
#include "pdcrt/Stage.h"
#include "pdcrt/Status.h"
#include "transport/Transport.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace pdcrt {

class TiedParameters {
public:
  void prepare(const Schedule& schedule, const Places& places, const Host& host, int member, const Stage& stage,
               const ArenaHost& place, std::byte* memory);

  /// Whether the stage uses, or owns, parameters that are used elsewhere too.
  bool any() const { return !ends_.empty(); }
  bool owns() const { return owns_; }

  /// Fills in version 0 of what other stages own: read(row, block) writes a parameter's values into the block.
  template <class Read>
  Status readValues(const Read& read) {
    for (const End& end : ends_)
      if (!end.owner)
        for (const SharedValueRow* row : end.values)
          if (Status status = read(*row, end.valueMemory); !status) return status;
    return {};
  }

  /// Forgets all but the newest version, which becomes version 0. A pipeline that has been drained goes on with it.
  void restart();
  /// Transfers that bring the owner's newest version, as version 0, to a replica of a user.
  struct Refresh {
    int shared = 0, userReplica = 0; ///< which: of Schedule::shared
    std::unique_ptr<TransferGroup> transfers;
  };
  /// Appends those that this replica takes part in.
  void refresh(const Versions& versions, std::vector<Refresh>& refreshes);

  /// The transfers of `action`, a send or receive of shared parameters, which may be under way; null if the replica has
  /// none then.
  TransferGroup* transfersOf(const Action& action);
  /// Says what these transfers move, and their turns, if there is an order.
  void fill(const Action& action, const Versions& versions, const StartOrder* order, TransferGroup& transfers);

  /// The version of each owner's parameters that `minibatch` uses, as Frame::shared has them. Fails where a schedule
  /// has not made it arrive.
  Status choose(std::int64_t minibatch, const Action& action);
  /// Those of version 0.
  void chooseFirst();
  const std::byte* const* chosen() const { return chosen_.data(); }

  /// Adds what one half of a minibatch's backward has written to the gradients block, of shared parameters, to the sums
  /// for the owner's update. Fails where that buffer is still being sent.
  Status addToPart(Stream& q, std::int64_t minibatch, const std::byte* gradients, bool withInput, const Action& action);
  /// Collects what arrived for update `version` in a run of `minibatches`. Fails where it has not been awaited.
  Status collect(Stream& q, std::int64_t version, std::int64_t minibatches, const Action& action);
  /// What was collected, by row of Stage::sharedUses: the sum over the user's replicas in their order; null if none of
  /// those that are served here had a minibatch.
  std::span<const std::byte* const> arrived() const { return arrived_; }

  /// All of its transfers.
  std::span<TransferGroup* const> transfers() const { return transfers_; }

private:
  /// A replica of the stage at the other end: a user's has one, an owner's those that it serves.
  struct Peer {
    int replica;
    /// Processes. Values come from one, and so do gradients; they go to any number (Places::partners).
    std::vector<int> ofVersions, ofParts;
    int versionChannel, partChannel;
  };
  /// What a buffer of a ring holds.
  struct Held {
    std::int64_t version = -1;
    bool arrived = false;                 ///< of a received version: it has been awaited
    std::int64_t minibatches[2] = {0, 0}; ///< of a user's gradients: summed so far, by withInput
  };
  /// This stage's end of one row of Stage::shared.
  struct End {
    const SharedEdge* edge = nullptr;
    bool owner = false;
    int row = 0; ///< of Stage::shared
    std::vector<Peer> peers;
    std::vector<const SharedValueRow*> values;
    std::vector<const SharedUseRow*> uses;
    std::byte *valueMemory = nullptr, *partMemory = nullptr;
    std::size_t valueStride = 0, partStride = 0;
    std::vector<Held> versions, parts; ///< of a user
    std::int64_t partsAwaited = 0;     ///< of an owner: the newest
    std::int64_t versionCount = 0, partCount = 0;
    std::vector<TransferGroup> versionTransfers, partTransfers; ///< rings
  };

  static std::size_t bytesOf(const SharedValueRow& row) {
    return static_cast<std::size_t>(row.shape.elements()) * pdcrt::bytesOf(row.element);
  }
  End* endOf(const Action& action);
  static std::size_t take(std::vector<Held>& ring, std::int64_t& count, std::int64_t version);
  std::byte* partOf(const End& end, std::int64_t version, std::size_t peer) const;
  void addVersions(const End& end, const Peer& peer, std::byte* block, Traffic traffic, TransferGroup& transfers) const;
  static bool sends(const End& end, bool versions) { return end.owner == versions; }
  bool hasMinibatch(const End& end, int replica, std::int64_t version, std::int64_t minibatches) const;

  const Schedule* schedule_ = nullptr;
  const Stage* stage_ = nullptr;
  int replica_ = 0;
  bool owns_ = false;
  std::vector<End> ends_;
  std::vector<TransferGroup*> transfers_;
  std::vector<const std::byte*> chosen_;  ///< by row of Stage::shared
  std::vector<const std::byte*> arrived_; ///< by row of Stage::sharedUses
};

} // namespace pdcrt
