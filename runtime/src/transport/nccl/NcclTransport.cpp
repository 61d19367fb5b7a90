// A transfer is complete for the host once it has been put into its lane's stream: `done` is recorded behind it. NCCL
// is called by the communication thread only, but for the beginning, the end, and a team's collectives.
#include "NcclTransport.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#ifdef PDCRT_NCCL
#include "NcclTeam.h"

#include <nccl.h>
#endif

namespace pdcrt {

std::string gpuOf(int rank) {
  char name[64] = {};
  int count = 1;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count < 1) return "no GPU";
  if (cudaDeviceGetPCIBusId(name, sizeof name, rank % count) != cudaSuccess) return "GPU " + std::to_string(rank);
  return name;
}

#ifndef PDCRT_NCCL

Status ncclAvailable() {
  return {Exit::usage, "this program was built without NCCL",
          "install NCCL beside the CUDA toolkit and build it again, or leave out --transport=nccl"};
}

Status makeNcclTransport(const std::vector<NcclLane>&, std::unique_ptr<Transport>&) {
  return ncclAvailable();
}

#else

Status ncclAvailable() {
  return {};
}

namespace {

/// One order of issue over all communicators: NCCL 2.26 and later keep it on the device too.
constexpr int ordersLaunches = NCCL_VERSION(2, 26, 0);

class NcclTransport : public Transport {
public:
  NcclTransport(std::unique_ptr<Transport> host, const std::vector<NcclLane>& lanes) : host_(std::move(host)) {
    for (const NcclLane& lane : lanes)
      if (std::binary_search(lane.ranks.begin(), lane.ranks.end(), host_->rank())) lanes_.push_back({.lane = lane});
    for (Lane& lane : lanes_)
      if (lane.lane.isTeam) {
        lane.team = std::make_unique<NcclMembers>();
        lane.team->self = lane.member(rank());
        lane.team->count = static_cast<int>(lane.lane.ranks.size());
        lane.team->failed = [this, &lane](int code) {
          fail(lane, static_cast<ncclResult_t>(code));
          host_->wake(); // who else calls NCCL ends everything
        };
      }
    for (Lane& lane : lanes_)
      for (const NcclLane::Link& link : lane.lane.links) laneOf_[link.channel] = &lane;
    group_.reserve(256);
    pairs_.reserve(256);
    waiting_.reserve(256);
  }
  ~NcclTransport() override {
    if (!closed_ && host_->aborted()) closeAll();
    for (Lane& lane : lanes_)
      if (lane.communicator) ncclCommDestroy(lane.communicator);
    for (Stream& stream : streams_) device::close(stream);
  }

  /// Makes the communicators, one after the other, and connects who will talk.
  Status connect() {
    device::use(rank());
    int version = 0;
    if (ncclResult_t code = ncclGetVersion(&version); code != ncclSuccess) return failed("ncclGetVersion", code);
    setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", /*overwrite=*/0);
    const bool oneStream = version < ordersLaunches;
    std::byte* scratch = device::allocate(scratchBytes);
    if (!scratch) return {Exit::noDevice, "the GPU has no " + std::to_string(scratchBytes) + " bytes left for NCCL"};
    Status status;
    for (Lane& lane : lanes_) {
      if (!oneStream || streams_.empty()) streams_.push_back(device::openStream());
      lane.stream = streams_.back();
      if (status = makeCommunicator(lane); !status) break;
      if (status = lane.team ? connectTeam(lane, scratch) : connectPairs(lane, scratch); !status) break;
    }
    if (!status) closeAll();
    device::release(scratch, scratchBytes);
    return status;
  }

  int rank() const override { return host_->rank(); }
  int ranks() const override { return host_->ranks(); }
  bool ordered() const override { return true; }

  void poll() override {
    host_->poll();
    if (aborted()) return closeAll();
    const double time = now();
    if (closed_ || time - lookedAt_ < secondsBetweenLooks) return;
    lookedAt_ = time;
    for (Lane& lane : lanes_) {
      ncclResult_t error = ncclSuccess;
      const ncclResult_t code = ncclCommGetAsyncError(lane.communicator, &error);
      if (code != ncclSuccess || (error != ncclSuccess && error != ncclInProgress))
        return giveUp(lane, code != ncclSuccess ? code : error);
    }
  }

  void start(Transfer& transfer) override {
    if (!transfer.inBlocks) return host_->start(transfer);
    transfer.handle = underWay;
    if (transfer.peer == rank())
      startOwn(transfer);
    else
      group_.push_back(&transfer);
  }

  void endGroup() override {
    if (group_.empty() && pairs_.empty()) return;
    if (!closed_) issue();
    group_.clear();
    pairs_.clear();
  }

  bool test(Transfer& transfer) override {
    return transfer.inBlocks ? transfer.handle == issued : host_->test(transfer);
  }

  void cancel(Transfer& transfer) override {
    if (!transfer.inBlocks) return host_->cancel(transfer);
    std::erase(waiting_, &transfer);
  }

  /// The other transport does not know whom to wake.
  std::chrono::nanoseconds patience(int idle, bool awaited) override {
    using namespace std::chrono_literals;
    const std::chrono::nanoseconds limit = host_->patience(idle, awaited), most = 200us;
    return limit < 0ns ? most : std::min(limit, most);
  }
  void sleep(std::chrono::nanoseconds limit) override { host_->sleep(limit); }
  void wake() override { host_->wake(); }
  /// Somebody may wait for the device for ever.
  std::chrono::nanoseconds vigil() const override { return std::chrono::milliseconds(100); }

  bool aborted() const override { return failed_ || host_->aborted(); }
  Status failure() const override { return failed_ ? failure_ : host_->failure(); }
  void abort(int exitCode) override { host_->abort(exitCode); }

  Status makeTeam(std::span<const Collective> collectives, std::unique_ptr<Team>& team) override {
    for (Lane& lane : lanes_) {
      if (!lane.team) continue;
      if (Status status = NcclTeam::check(collectives); !status) return status;
      team = std::make_unique<NcclTeam>(*lane.team, collectives, bytesSent[static_cast<std::size_t>(Traffic::team)]);
    }
    return {};
  }

protected:
  /// A rank that has ended waits until others, who may be computing still, have received what it sent them. Of a run
  /// that has failed, receives may be left for which nobody sends.
  void settle() override {
    std::vector<Event> ends(streams_.size());
    for (std::size_t i = 0; i < ends.size(); ++i) ends[i].record(streams_[i]);
    const double begin = now();
    while (!std::all_of(ends.begin(), ends.end(), [](const Event& end) { return end.passed(); })) {
      if (aborted() || now() - begin > secondsToSettle) return closeAll();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

private:
  static constexpr double secondsToSettle = 600;
  static constexpr std::size_t scratchBytes = 256;
  static constexpr double secondsBetweenLooks = 0.01;
  static constexpr int underWay = 0, issued = 1; ///< Transfer::handle

  struct Lane {
    NcclLane lane;
    ncclComm_t communicator = nullptr;
    Stream stream = {};
    std::unique_ptr<NcclMembers> team = {}; ///< for whom the lane is; else null

    int member(int rank) const {
      return static_cast<int>(std::lower_bound(lane.ranks.begin(), lane.ranks.end(), rank) - lane.ranks.begin());
    }
    cudaStream_t queue() const { return static_cast<cudaStream_t>(stream.native()); }
  };

  Status failed(const std::string& what, ncclResult_t code) const {
    return {Exit::noDevice, "NCCL: " + what + ": " + ncclGetErrorString(code),
            "NCCL_DEBUG=INFO says more; --transport=host does without NCCL"};
  }

  /// The lowest member makes the name and tells the others.
  Status makeCommunicator(Lane& lane) {
    const std::vector<int>& ranks = lane.lane.ranks;
    ncclUniqueId id{};
    if (rank() == ranks[0])
      if (ncclResult_t code = ncclGetUniqueId(&id); code != ncclSuccess) return failed(lane.lane.name, code);
    for (int other : ranks) {
      if (other == ranks[0] || (rank() != ranks[0] && rank() != other)) continue;
      Transfer message;
      message.outgoing = rank() == ranks[0];
      message.peer = message.outgoing ? other : ranks[0];
      message.channel = lane.lane.channel;
      message.data = reinterpret_cast<std::byte*>(&id);
      message.bytes = sizeof id;
      if (Status status = finishAlone(*host_, message, "rank " + std::to_string(message.peer)); !status) return status;
    }
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    const ncclResult_t code =
        ncclCommInitRankConfig(&lane.communicator, static_cast<int>(ranks.size()), id, lane.member(rank()), &config);
    if (code == ncclSuccess) return {};
    lane.communicator = nullptr;
    return failed(lane.lane.name, code);
  }

  /// A byte over every link: NCCL connects two ranks when they first talk, and would make the host wait then.
  Status connectPairs(Lane& lane, std::byte* scratch) {
    if (ncclResult_t code = ncclGroupStart(); code != ncclSuccess) return failed(lane.lane.name, code);
    for (const NcclLane::Link& link : lane.lane.links) {
      if (link.from == rank())
        note(ncclSend(scratch, 1, ncclUint8, lane.member(link.to), lane.communicator, lane.queue()));
      if (link.to == rank())
        note(ncclRecv(scratch + 1, 1, ncclUint8, lane.member(link.from), lane.communicator, lane.queue()));
    }
    note(ncclGroupEnd());
    if (result_ != ncclSuccess) return failed(lane.lane.name, result_);
    return device::wait(lane.stream);
  }

  /// One sum: NCCL connects members, and takes memory, for the first.
  Status connectTeam(Lane& lane, std::byte* scratch) {
    lane.team->stream = lane.stream;
    lane.team->communicator = lane.communicator;
    const ncclResult_t code =
        ncclAllReduce(scratch, scratch + 1, 1, ncclUint8, ncclSum, lane.communicator, lane.queue());
    return code == ncclSuccess ? device::wait(lane.stream) : failed(lane.lane.name, code);
  }

  /// Send and receive of a rank to itself belong into one group.
  void startOwn(Transfer& transfer) {
    const auto other = std::find_if(waiting_.begin(), waiting_.end(), [&](const Transfer* half) {
      return half->channel == transfer.channel && half->outgoing != transfer.outgoing;
    });
    if (other == waiting_.end()) {
      waiting_.push_back(&transfer);
      return;
    }
    pairs_.push_back(*other);
    pairs_.push_back(&transfer);
    waiting_.erase(other);
  }

  void issue() {
    for (std::vector<Transfer*>* transfers : {&pairs_, &group_})
      for (Transfer* transfer : *transfers)
        if (transfer->after) transfer->after->precede(laneOf_.at(transfer->channel)->stream);
    note(ncclGroupStart());
    for (std::vector<Transfer*>* transfers : {&pairs_, &group_})
      for (Transfer* transfer : *transfers) {
        const Lane& lane = *laneOf_.at(transfer->channel);
        const int peer = lane.member(transfer->peer);
        if (transfer->outgoing)
          note(ncclSend(transfer->data, transfer->bytes, ncclUint8, peer, lane.communicator, lane.queue()));
        else
          note(ncclRecv(transfer->data, transfer->bytes, ncclUint8, peer, lane.communicator, lane.queue()));
      }
    note(ncclGroupEnd());
    if (result_ != ncclSuccess) return giveUp(*laneOf_.at((group_.empty() ? pairs_ : group_)[0]->channel), result_);
    for (std::vector<Transfer*>* transfers : {&pairs_, &group_})
      for (Transfer* transfer : *transfers) {
        transfer->done.record(laneOf_.at(transfer->channel)->stream);
        transfer->handle = issued;
      }
  }

  void note(ncclResult_t code) {
    if (result_ == ncclSuccess) result_ = code;
  }

  void giveUp(const Lane& lane, ncclResult_t code) {
    fail(lane, code);
    closeAll();
  }

  /// By any thread. What fails first is told.
  void fail(const Lane& lane, ncclResult_t code) {
    const std::lock_guard lock(failing_);
    if (failed_) return;
    std::string others;
    for (int other : lane.lane.ranks)
      if (other != rank()) others += (others.empty() ? "" : ", ") + std::to_string(other);
    const char* more = ncclGetLastError(lane.communicator);
    failure_ = {Exit::again,
                "NCCL has failed on rank " + std::to_string(rank()) + ", " + lane.lane.name +
                    (others.empty() ? "" : ", with rank " + others) + ": " + ncclGetErrorString(code) +
                    (more && *more ? std::string(", ") + more : ""),
                "look at what the other ranks say; NCCL_DEBUG=INFO says more"};
    failed_ = true;
  }

  /// Ends what NCCL does on the device, so that nobody waits for it. All at once: a communicator that is aborted waits
  /// for the device, where kernels of the others may run.
  void closeAll() {
    if (closed_) return;
    closed_ = true;
    std::vector<std::jthread> aborts;
    for (Lane& lane : lanes_)
      if (lane.team) lane.team->takeAway();
    for (Lane& lane : lanes_)
      if (lane.communicator)
        aborts.emplace_back([this, communicator = std::exchange(lane.communicator, nullptr)] {
          device::use(rank());
          ncclCommAbort(communicator);
        });
  }

  std::unique_ptr<Transport> host_;
  std::vector<Lane> lanes_;        ///< that this rank takes part in, in the order in which all make them
  std::map<int, Lane*> laneOf_;    ///< by Transfer::channel
  std::vector<Stream> streams_;    ///< one, or one for each lane
  std::vector<Transfer*> group_;   ///< that is being started, to other ranks
  std::vector<Transfer*> pairs_;   ///< the same to this rank: one half after the other
  std::vector<Transfer*> waiting_; ///< halves of transfers to this rank
  double lookedAt_ = 0;
  ncclResult_t result_ = ncclSuccess; ///< the first that was none
  bool closed_ = false;               ///< communicators have been aborted
  std::atomic<bool> failed_{false};   ///< and failure_ says why
  std::mutex failing_;                ///< held while failure_ is written
  Status failure_;
};

} // namespace

Status makeNcclTransport(const std::vector<NcclLane>& lanes, std::unique_ptr<Transport>& transport) {
  auto nccl = std::make_unique<NcclTransport>(std::move(transport), lanes);
  const Status status = nccl->connect();
  transport = std::move(nccl);
  return status;
}

#endif

} // namespace pdcrt
