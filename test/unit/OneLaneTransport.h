// Transports between threads that can do the least: each rank has one lane for all transfers of blocks, and one for the
// collectives of its team, or one for all, in which it does one group after the other, and nothing is buffered. A
// transfer is done when both ends have it at the head of their lanes. Ranks that wait for each other in a circle are
// found at once, and all are stopped.
#pragma once

#include "transport/Transport.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace one_lane {

using namespace pdcrt;

/// The lanes of all ranks.
struct Lanes {
  using Group = std::vector<Transfer*>;

  std::mutex mutex;
  std::vector<std::deque<Group>> lanes; ///< two for each rank; of a group what is not done
  std::vector<Transport*> transports;
  bool oneForAll = false; ///< a team's collectives have no lane of their own
  bool deadlock = false;

  std::size_t laneOf(int rank, const Transfer& transfer) const {
    return 2 * static_cast<std::size_t>(rank) + (transfer.traffic == Traffic::team && !oneForAll);
  }

  /// The other half, where it is at the head too. Sends and receives of a channel match in their order.
  Transfer* otherAtHead(std::size_t lane, const Transfer& half) {
    const std::size_t peer = laneOf(half.peer, half);
    if (lanes[peer].empty()) return nullptr;
    for (Transfer* other : lanes[peer].front())
      if (other->outgoing != half.outgoing && other->channel == half.channel &&
          other->peer == static_cast<int>(lane / 2))
        return other;
    return nullptr;
  }

  void settle() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t lane = 0; lane < lanes.size(); ++lane)
        while (!lanes[lane].empty() && moveHead(lane)) moved = true;
    }
    std::vector<char> visited(lanes.size(), 0);
    for (std::size_t lane = 0; lane < lanes.size(); ++lane) deadlock = deadlock || isInCircle(lane, visited);
  }

private:
  bool moveHead(std::size_t lane) {
    Group& head = lanes[lane].front();
    for (Transfer* half : Group(head)) {
      Transfer* other = otherAtHead(lane, *half);
      if (!other) continue;
      const Transfer &from = half->outgoing ? *half : *other, &to = half->outgoing ? *other : *half;
      std::memcpy(to.data, from.data, from.bytes);
      const std::size_t peer = laneOf(half->peer, *half);
      std::erase(lanes[lane].front(), half);
      std::erase(lanes[peer].front(), other);
      half->matched = other->matched = true;
      if (lanes[lane].front().empty()) lanes[lane].pop_front();
      if (!lanes[peer].empty() && lanes[peer].front().empty()) lanes[peer].pop_front();
      for (std::size_t woken : {lane / 2, peer / 2}) transports[woken]->wake();
      return true;
    }
    return false;
  }

  /// A lane waits for those whose heads are something else than what its own head needs.
  bool isInCircle(std::size_t lane, std::vector<char>& visited) {
    if (visited[lane] == 1) return true;
    if (visited[lane] == 2 || lanes[lane].empty()) return false;
    visited[lane] = 1;
    for (const Transfer* half : lanes[lane].front())
      if (isInCircle(laneOf(half->peer, *half), visited)) return true;
    visited[lane] = 2;
    return false;
  }
};

class OneLaneTransport : public Transport {
public:
  OneLaneTransport(std::unique_ptr<Transport> threads, std::shared_ptr<Lanes> lanes, bool ordered)
      : threads_(std::move(threads)), lanes_(std::move(lanes)), ordered_(ordered) {}

  int rank() const override { return threads_->rank(); }
  int ranks() const override { return threads_->ranks(); }
  bool ordered() const override { return ordered_; }

  void start(Transfer& transfer) override {
    if (!transfer.inBlocks) return threads_->start(transfer);
    transfer.matched = false;
    (transfer.peer == rank() ? own_ : group_).push_back(&transfer);
  }
  void endGroup() override {
    std::lock_guard lock(lanes_->mutex);
    // Of a transfer to itself, a rank has both halves at the head, or none.
    Lanes::Group pairs;
    for (Transfer* half : Lanes::Group(own_)) {
      const auto other = std::find_if(own_.begin(), own_.end(), [&](const Transfer* candidate) {
        return half->outgoing && !candidate->outgoing && candidate->channel == half->channel;
      });
      if (other == own_.end()) continue;
      for (Transfer* paired : {half, *other}) pairs.push_back(paired);
      own_.erase(other);
      std::erase(own_, half);
    }
    for (Lanes::Group* group : {&group_, &pairs}) {
      if (!group->empty()) lanes_->lanes[lanes_->laneOf(rank(), *group->front())].push_back(std::move(*group));
      group->clear();
    }
    lanes_->settle();
    if (lanes_->deadlock) abort(1);
  }

  bool test(Transfer& transfer) override {
    return transfer.inBlocks ? transfer.matched.load() : threads_->test(transfer);
  }
  void cancel(Transfer& transfer) override {
    if (!transfer.inBlocks) return threads_->cancel(transfer);
    std::lock_guard lock(lanes_->mutex);
    std::erase(own_, &transfer);
    for (Lanes::Group& group : lanes_->lanes[lanes_->laneOf(rank(), transfer)]) std::erase(group, &transfer);
  }
  std::chrono::nanoseconds patience(int idle, bool awaited) override { return threads_->patience(idle, awaited); }
  void sleep(std::chrono::nanoseconds limit) override { threads_->sleep(limit); }
  void wake() override { threads_->wake(); }
  bool aborted() const override { return threads_->aborted(); }
  void abort(int exitCode) override {
    threads_->abort(exitCode);
    for (Transport* transport : lanes_->transports) transport->wake();
  }

private:
  std::unique_ptr<Transport> threads_;
  std::shared_ptr<Lanes> lanes_;
  bool ordered_;
  Lanes::Group group_, own_; ///< that is being started; halves of transfers to this rank itself
};

/// `ordered`: whether the ranks must start transfers by their turns.
inline std::vector<std::unique_ptr<Transport>> makeTransports(int ranks, bool ordered, std::shared_ptr<Lanes> lanes) {
  lanes->lanes.resize(2 * static_cast<std::size_t>(ranks));
  std::vector<std::unique_ptr<Transport>> transports;
  for (std::unique_ptr<Transport>& threads : makeThreadTransports(ranks)) {
    transports.push_back(std::make_unique<OneLaneTransport>(std::move(threads), lanes, ordered));
    lanes->transports.push_back(transports.back().get());
  }
  return transports;
}

} // namespace one_lane
