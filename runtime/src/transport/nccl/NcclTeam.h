// Collectives of a team (pdcrt/Team.h) by NCCL: its all-reduce, reduce-scatter and all-gather, and sends and receives
// for an all-to-all. They go into a stream of their own, one behind the other, as soon as the phase has come to them;
// so what the phase computes meanwhile goes on. The thread that computes starts them, in the turn of the computation
// (machine/StartOrder.h).
//
// A sum adds the members' terms in an order that NCCL chooses, by the size of the value and how the GPUs are connected,
// and rounds 16 bits after each addition. Of two members that is the sum of all other transports.
#pragma once

#include "pdcrt/Device.h"
#include "pdcrt/Status.h"
#include "pdcrt/Team.h"

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

struct ncclComm;

namespace pdcrt {

/// What two threads have of a team's communicator: the one that computes starts collectives, the communication thread
/// takes the communicator away when the run ends early.
struct NcclMembers {
  int self = 0, count = 1;
  Stream stream; ///< of the collectives
  std::atomic<ncclComm*> communicator{nullptr};
  std::timed_mutex calls;               ///< held while the communicator is being called
  std::function<void(int code)> failed; ///< is told what a call has returned instead of ncclSuccess

  /// From now on no collective is started. Waits a moment for a call that goes on; the abort ends one that does not
  /// return by itself.
  ncclComm* takeAway();
};

class NcclTeam : public Team {
public:
  /// For one stage that the rank hosts; all outlive the object. `bytesSent` counts what TeamWork would send.
  NcclTeam(NcclMembers& of, std::span<const Collective> collectives, std::uint64_t& bytesSent);
  ~NcclTeam() override;

  /// Fails where NCCL cannot add the elements of a collective.
  static Status check(std::span<const Collective> collectives);

  int member() const override { return of_.self; }
  int members() const override { return of_.count; }
  void start(int collective, Stream& q, const std::byte* data, std::byte* arrived) override;
  void finish(int collective, Stream& q) override;
  /// Nobody has seen recorded graphs with NCCL inside keep an order with other streams.
  bool records() const override { return false; }

private:
  struct Started;

  NcclMembers& of_;
  std::uint64_t& bytesSent_;
  Event ready_;
  std::vector<Started> started_; ///< by collective
};

} // namespace pdcrt
