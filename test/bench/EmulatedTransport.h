// Links of limited bandwidth between processes: delays what another transport has moved, on both sides alike, as the
// emulated links of the transport `threads` do. Bytes of a channel between two ranks go one transfer after the other.
#pragma once

#include "transport/Transport.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <tuple>
#include <utility>

class EmulatedTransport : public pdcrt::Transport {
public:
  EmulatedTransport(std::unique_ptr<pdcrt::Transport> inner, pdcrt::EmulatedLink link)
      : inner_(std::move(inner)), link_(link) {}

  int rank() const override { return inner_->rank(); }
  int ranks() const override { return inner_->ranks(); }
  void poll() override { inner_->poll(); }
  void start(pdcrt::Transfer& transfer) override { inner_->start(transfer); }

  bool test(pdcrt::Transfer& transfer) override {
    auto known = arrivals_.find(&transfer);
    if (known == arrivals_.end()) {
      if (!inner_->test(transfer)) return false;
      if (link_.bytesPerSecond <= 0 || transfer.traffic == pdcrt::Traffic::control) return true;
      double& freeAt = freeAt_[{transfer.peer, transfer.channel, transfer.outgoing}];
      freeAt = std::max(freeAt, pdcrt::now()) + static_cast<double>(transfer.bytes) / link_.bytesPerSecond;
      known = arrivals_.emplace(&transfer, freeAt + link_.latency).first;
    }
    if (pdcrt::now() < known->second) {
      nextArrival_ = std::min(nextArrival_, known->second);
      return false;
    }
    arrivals_.erase(known);
    return true;
  }

  void cancel(pdcrt::Transfer& transfer) override {
    if (arrivals_.erase(&transfer) == 0) inner_->cancel(transfer);
  }

  std::chrono::nanoseconds patience(int idle, bool) override {
    const double left = std::max(0.0, std::exchange(nextArrival_, never) - pdcrt::now());
    // A transfer begins on the emulated link when this thread sees it, so the thread must look often.
    const std::chrono::nanoseconds inner = inner_->patience(idle, true);
    if (left > 1) return inner;
    const auto arrival = std::chrono::nanoseconds(static_cast<std::int64_t>(1e9 * left));
    return inner.count() < 0 ? arrival : std::min(inner, arrival);
  }

  bool aborted() const override { return inner_->aborted(); }
  void abort(int exitCode) override { inner_->abort(exitCode); }

private:
  static constexpr double never = HUGE_VAL;

  std::unique_ptr<pdcrt::Transport> inner_;
  pdcrt::EmulatedLink link_;
  std::map<std::tuple<int, int, bool>, double> freeAt_; ///< by peer, channel, direction
  std::map<const pdcrt::Transfer*, double> arrivals_;   ///< of those that the other transport has moved
  double nextArrival_ = never;                          ///< among those tested since the last sleep
};
