// Sends and receives have a stream each: a copy out of a block waits for the kernels that fill it, and no copy into
// another block should wait with it. Which pinned memory a transfer gets depends only on the order of transfers.
#include "HostTransport.h"

#include <algorithm>
#include <deque>
#include <utility>

namespace pdcrt {
namespace {

class HostTransport : public Transport {
public:
  explicit HostTransport(std::unique_ptr<Transport> transport) : transport_(std::move(transport)) {}
  ~HostTransport() override {
    if (sends_.native()) device::close(sends_);
  }

  int rank() const override { return transport_->rank(); }
  int ranks() const override { return transport_->ranks(); }
  int crowd() const override { return transport_->crowd(); }

  /// Messages leave in the order in which their copies began, because those of a channel match in that order.
  void poll() override {
    auto first = leaving_.begin();
    for (; first != leaving_.end() && (*first)->done.passed(); ++first)
      if ((*first)->state == Copy::leaving) moveOn(**first);
    leaving_.erase(leaving_.begin(), first);
    transport_->poll();
  }

  void start(Transfer& transfer) override {
    if (!transfer.inBlocks) return transport_->start(transfer);
    Copy* copy = take(transfer);
    if (!copy) return;
    if (!transfer.outgoing) return moveOn(*copy);
    if (!sends_.native()) sends_ = device::openStream();
    if (transfer.after) transfer.after->precede(sends_);
    device::copy(sends_, copy->memory.data(), transfer.data, transfer.bytes);
    copy->done.record(sends_);
    transfer.done.record(sends_);
    copy->state = Copy::leaving;
    leaving_.push_back(copy);
  }

  bool test(Transfer& transfer) override {
    if (!transfer.inBlocks) return transport_->test(transfer);
    if (failed_) return false;
    Copy& copy = copies_[static_cast<std::size_t>(transfer.handle)];
    if (copy.state != Copy::moving || !transport_->test(copy.transfer)) return false;
    if (!transfer.outgoing) {
      if (transfer.after) transfer.after->precede(stream());
      device::copy(stream(), transfer.data, copy.memory.data(), transfer.bytes);
      copy.done.record(stream());
      transfer.done.record(stream());
    }
    copy.state = Copy::unused;
    return true;
  }

  void cancel(Transfer& transfer) override {
    if (!transfer.inBlocks) return transport_->cancel(transfer);
    if (failed_) return;
    Copy& copy = copies_[static_cast<std::size_t>(transfer.handle)];
    if (copy.state == Copy::moving) transport_->cancel(copy.transfer);
    copy.state = Copy::unused;
  }

  /// The device wakes nobody.
  std::chrono::nanoseconds patience(int idle, bool awaited) override {
    using namespace std::chrono_literals;
    const std::chrono::nanoseconds limit = transport_->patience(idle, awaited), most = 20us;
    return leaving_.empty() ? limit : limit < 0ns ? most : std::min(limit, most);
  }
  void sleep(std::chrono::nanoseconds limit) override { transport_->sleep(limit); }
  void wake() override { transport_->wake(); }

  bool aborted() const override { return failed_ || transport_->aborted(); }
  Status failure() const override {
    return failed_ ? Status(Exit::noDevice, "the host has no pinned memory left for what ranks send each other",
                            "start fewer ranks on this machine")
                   : transport_->failure();
  }
  void abort(int exitCode) override { transport_->abort(exitCode); }

private:
  /// Pinned memory, and the transfer that it is used for.
  struct Copy {
    HostMemory memory;
    Transfer transfer; ///< of the host
    Event done;        ///< the copy out of the block, or into it
    enum { unused, leaving, moving } state = unused;
  };

  /// The smallest that is large enough and no longer read; where there is none, another one.
  Copy* take(Transfer& transfer) {
    Copy* best = nullptr;
    for (Copy& copy : copies_)
      if (copy.state == Copy::unused && copy.memory.size() >= transfer.bytes && copy.done.passed() &&
          (!best || copy.memory.size() < best->memory.size()))
        best = &copy;
    if (!best) {
      best = &copies_.emplace_back();
      best->memory = HostMemory(transfer.bytes);
      failed_ = failed_ || !best->memory.data();
    }
    if (failed_) return nullptr;
    transfer.handle =
        static_cast<int>(std::find_if(copies_.begin(), copies_.end(), [&](const Copy& copy) { return &copy == best; }) -
                         copies_.begin());
    best->transfer.outgoing = transfer.outgoing;
    best->transfer.peer = transfer.peer;
    best->transfer.channel = transfer.channel;
    best->transfer.data = best->memory.data();
    best->transfer.bytes = transfer.bytes;
    return best;
  }

  void moveOn(Copy& copy) {
    transport_->start(copy.transfer);
    copy.state = Copy::moving;
  }

  std::unique_ptr<Transport> transport_;
  std::deque<Copy> copies_; ///< by Transfer::handle
  Stream sends_;
  std::vector<Copy*> leaving_; ///< copies out of blocks under way
  bool failed_ = false;
};

} // namespace

std::unique_ptr<Transport> makeHostTransport(std::unique_ptr<Transport> transport) {
  return std::make_unique<HostTransport>(std::move(transport));
}

} // namespace pdcrt
