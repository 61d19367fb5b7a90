// Transport `threads`: the ranks are threads of one process. Sends and receives meet in a mailbox per (from, to,
// channel); the communication thread that posts the second of a pair copies the bytes, on a GPU as work of its stream.
// A link may be emulated: the bytes of a channel then go one transfer after the other, at its bandwidth, and arrive
// after its latency.
#include "Transport.h"
#include "pdcrt/Cores.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

namespace pdcrt {
namespace {

/// The transfers of one channel that wait for their other half; all of them sends, or all receives.
struct Mailbox {
  Transfer *first = nullptr, *last = nullptr;
  double freeAt = 0; ///< when the emulated link has carried what it took

  void push(Transfer& transfer) {
    transfer.nextWaiting = nullptr;
    (last ? last->nextWaiting : first) = &transfer;
    last = &transfer;
  }
  Transfer* popOther(const Transfer& transfer) {
    if (!first || first->outgoing == transfer.outgoing) return nullptr;
    Transfer* other = first;
    first = other->nextWaiting;
    if (!first) last = nullptr;
    return other;
  }
  bool remove(const Transfer& transfer) {
    Transfer* previous = nullptr;
    for (Transfer* at = first; at; previous = at, at = at->nextWaiting) {
      if (at != &transfer) continue;
      (previous ? previous->nextWaiting : first) = at->nextWaiting;
      if (last == at) last = previous;
      return true;
    }
    return false;
  }
};

struct Hub {
  explicit Hub(EmulatedLink emulated) : link(emulated) {}

  EmulatedLink link;
  const int cores = ownCores().count;
  std::mutex mutex;
  std::map<std::array<int, 3>, Mailbox> mailboxes; ///< nodes are made when a channel is first used
  std::vector<Transport*> transports;
  std::atomic<bool> aborted{false};
};

class ThreadTransport : public Transport {
public:
  ThreadTransport(std::shared_ptr<Hub> hub, int rank) : hub_(std::move(hub)), rank_(rank) {}

  int rank() const override { return rank_; }
  int ranks() const override { return static_cast<int>(hub_->transports.size()); }
  int crowd() const override { return ranksPerCore(ranks(), hub_->cores); }

  void start(Transfer& transfer) override {
    Transfer* other = nullptr;
    double arrivesAt = 0;
    {
      std::lock_guard lock(hub_->mutex);
      transfer.matched = false;
      Mailbox& mailbox = mailboxOf(transfer);
      other = mailbox.popOther(transfer);
      if (!other) {
        mailbox.push(transfer);
        return;
      }
      const bool crosses = transfer.peer != rank_; // what a rank sends itself takes no link
      if (crosses && (hub_->link.bytesPerSecond > 0 || hub_->link.latency > 0)) {
        double carried =
            hub_->link.bytesPerSecond > 0 ? static_cast<double>(transfer.bytes) / hub_->link.bytesPerSecond : 0;
        mailbox.freeAt = std::max(mailbox.freeAt, now()) + carried;
        arrivesAt = mailbox.freeAt + hub_->link.latency;
      }
    }
    const Transfer& from = transfer.outgoing ? transfer : *other;
    const Transfer& to = transfer.outgoing ? *other : transfer;
    if (!transfer.inBlocks) {
      std::memcpy(to.data, from.data, std::min(from.bytes, to.bytes));
    } else {
      for (Transfer* half : {&transfer, other})
        if (half->after) half->after->precede(stream());
      device::copy(stream(), to.data, from.data, std::min(from.bytes, to.bytes));
      for (Transfer* half : {&transfer, other}) half->done.record(stream());
    }
    {
      std::lock_guard lock(hub_->mutex);
      for (Transfer* half : {&transfer, other}) {
        half->arrivesAt = arrivesAt;
        half->matched.store(true, std::memory_order_release);
      }
    }
    hub_->transports[static_cast<std::size_t>(transfer.peer)]->wake();
  }

  bool test(Transfer& transfer) override {
    if (!transfer.matched.load(std::memory_order_acquire)) return false;
    const double arrivesAt = transfer.arrivesAt;
    if (arrivesAt == 0 || arrivesAt <= now()) return true;
    nextArrival_ = nextArrival_ > 0 ? std::min(nextArrival_, arrivesAt) : arrivesAt;
    return false;
  }

  void cancel(Transfer& transfer) override {
    std::unique_lock lock(hub_->mutex);
    // Neither waiting nor matched: the other rank is copying, and will be done in a moment.
    while (!transfer.matched && !mailboxOf(transfer).remove(transfer)) {
      lock.unlock();
      std::this_thread::yield();
      lock.lock();
    }
  }

  std::chrono::nanoseconds patience(int, bool) override {
    double arrival = std::exchange(nextArrival_, 0);
    if (arrival == 0) return std::chrono::nanoseconds(-1); // the rank that posts the other half wakes this one
    return std::chrono::nanoseconds(std::max<std::int64_t>(0, static_cast<std::int64_t>((arrival - now()) * 1e9)));
  }

  bool aborted() const override { return hub_->aborted; }

  void abort(int) override {
    hub_->aborted = true;
    for (Transport* transport : hub_->transports) transport->wake();
  }

private:
  friend std::vector<std::unique_ptr<Transport>> pdcrt::makeThreadTransports(int, EmulatedLink);

  Mailbox& mailboxOf(const Transfer& transfer) {
    return hub_->mailboxes[{transfer.outgoing ? rank_ : transfer.peer, transfer.outgoing ? transfer.peer : rank_,
                            transfer.channel}];
  }

  std::shared_ptr<Hub> hub_;
  int rank_;
  double nextArrival_ = 0; ///< of an emulated link, among the transfers tested since the last sleep
};

} // namespace

std::vector<std::unique_ptr<Transport>> makeThreadTransports(int ranks, EmulatedLink link) {
  auto hub = std::make_shared<Hub>(link);
  std::vector<std::unique_ptr<Transport>> transports;
  for (int rank = 0; rank < ranks; ++rank) {
    transports.push_back(std::make_unique<ThreadTransport>(hub, rank));
    hub->transports.push_back(transports.back().get());
  }
  return transports;
}

} // namespace pdcrt
