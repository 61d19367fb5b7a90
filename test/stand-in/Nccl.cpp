// NCCL between threads. A group of sends and receives is one kernel in its stream, and so is a collective. It begins
// when it is at the head of its stream, the communicator's kernel before it has ended, those that were launched before
// it on the device have begun (with NCCL_LAUNCH_ORDER_IMPLICIT=1; else in any order), and the device has room for one
// more; it ends when each of its halves has met the other one in a kernel that has begun too, or when all members have
// begun the same collective. So nothing is buffered, and what NCCL is allowed to wait for is waited for. Sums are in
// member order, of 16 bits as float and rounded once, as those of pdc's other transports. Misuse ends the program with
// a message.
#include "StandIn.h"
#include "Streams.h"

#include <pdcrt/LowPrecision.h>

#include <nccl.h>

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <string>
#include <thread>
#include <vector>

using namespace stand_in;

namespace {

class Operation;

/// The members of a communicator.
struct Clique {
  std::vector<ncclComm*> members;
  int joined = 0;
  bool refused = false; ///< two of them have one device
};

} // namespace

struct ncclComm {
  std::shared_ptr<Clique> clique;
  int rank = 0, device = 0;
  bool aborted = false;
  ncclResult_t error = ncclSuccess;
  std::deque<Operation*> operations; ///< that have not ended, in the order of their launch
  std::thread::id user;              ///< is putting together a group
};

namespace {

struct Device {
  std::uint64_t launched = 0, begun = 0;
  int running = 0;
  bool broken = false; ///< a communicator has been aborted: order means nothing any more
};

struct Network {
  std::map<std::string, std::shared_ptr<Clique>> cliques; ///< by unique id
  std::map<int, Device> devices;
  std::vector<ncclComm*> communicators; ///< freed with the program, so that use after abort is seen
  std::condition_variable_any joined;
  int ids = 0;
};
Network& network() {
  static Network* one = [] {
    whenStuck = [] {
      for (ncclComm* comm : network().communicators)
        if (!comm->aborted) comm->error = ncclInternalError;
    };
    return new Network;
  }();
  return *one;
}

struct Half {
  ncclComm* comm;
  bool sends;
  std::byte* data;
  std::size_t bytes;
  int peer;
  cudaStream_t stream;
  bool done = false;
};

/// What a member gives to a collective, and where its result goes.
struct Share {
  enum class Kind { none, allReduce, reduceScatter, allGather };
  Kind kind = Kind::none;
  const std::byte* data = nullptr;
  std::byte* result = nullptr;
  std::size_t count = 0;
  ncclDataType_t type = ncclUint8;
  ncclRedOp_t operation = ncclSum;
  bool done = false;

  bool isOfOne(const Share& other) const {
    return kind == other.kind && count == other.count && type == other.type && operation == other.operation;
  }
};

std::size_t bytesOf(ncclDataType_t type) {
  switch (type) {
  case ncclInt8:
  case ncclUint8: return 1;
  case ncclFloat16:
  case ncclBfloat16: return 2;
  case ncclInt64:
  case ncclUint64:
  case ncclFloat64: return 8;
  default: return 4;
  }
}

/// The elements of T from `from` on of all shares, combined as `As`.
template <class As, class T>
void combineAs(const std::vector<Share*>& shares, std::size_t from, std::byte* result) {
  for (std::size_t i = 0; i < shares[0]->count; ++i) {
    const auto at = [&](const Share* share) {
      T value;
      std::memcpy(&value, share->data + (from + i) * sizeof(T), sizeof(T));
      return static_cast<As>(value);
    };
    As total = at(shares[0]);
    for (std::size_t m = 1; m < shares.size(); ++m) {
      const As value = at(shares[m]);
      if (shares[0]->operation == ncclSum)
        total = static_cast<As>(total + value);
      else if (shares[0]->operation == ncclMax ? total < value : value < total)
        total = value;
    }
    const T rounded = static_cast<T>(total);
    std::memcpy(result + i * sizeof(T), &rounded, sizeof(T));
  }
}

void combine(const std::vector<Share*>& shares, std::size_t from, std::byte* result) {
  switch (shares[0]->type) {
  case ncclInt8: return combineAs<std::int8_t, std::int8_t>(shares, from, result);
  case ncclUint8: return combineAs<std::uint8_t, std::uint8_t>(shares, from, result);
  case ncclInt32: return combineAs<std::int32_t, std::int32_t>(shares, from, result);
  case ncclUint32: return combineAs<std::uint32_t, std::uint32_t>(shares, from, result);
  case ncclInt64: return combineAs<std::int64_t, std::int64_t>(shares, from, result);
  case ncclUint64: return combineAs<std::uint64_t, std::uint64_t>(shares, from, result);
  case ncclFloat16: return combineAs<float, pdcrt::float16>(shares, from, result);
  case ncclBfloat16: return combineAs<float, pdcrt::bfloat16>(shares, from, result);
  case ncclFloat32: return combineAs<float, float>(shares, from, result);
  case ncclFloat64: return combineAs<double, double>(shares, from, result);
  }
}

/// Does a collective of the members with these shares. Results may lie where data do.
void perform(const std::vector<Share*>& shares) {
  const Share& first = *shares[0];
  const std::size_t bytes = first.count * bytesOf(first.type);
  const bool gathers = first.kind == Share::Kind::allGather, scatters = first.kind == Share::Kind::reduceScatter;
  std::vector<std::byte> results((gathers || scatters ? shares.size() : 1) * bytes);
  for (std::size_t m = 0; m < shares.size(); ++m) {
    std::byte* const to = results.data() + m * bytes;
    if (gathers)
      std::memcpy(to, shares[m]->data, bytes);
    else if (scatters || m == 0)
      combine(shares, scatters ? m * first.count : 0, to);
  }
  for (std::size_t m = 0; m < shares.size(); ++m) {
    std::memcpy(shares[m]->result, results.data() + (scatters ? m * bytes : 0), scatters ? bytes : results.size());
    shares[m]->done = true;
  }
}

class Operation : public Kernel {
public:
  Operation(ncclComm* comm, std::vector<Half> halves, const Share& share = {})
      : comm_(comm), halves_(std::move(halves)), share_(share) {
    const char* order = std::getenv("NCCL_LAUNCH_ORDER_IMPLICIT");
    ordered_ = order && std::string(order) == "1";
    launch_ = network().devices[comm->device].launched++;
    comm->operations.push_back(this);
  }

  bool ready() const override {
    if (comm_->aborted) return true;
    if (begun_ && share_.kind != Share::Kind::none) return share_.done || !sharesOfAll().empty();
    if (begun_)
      return done() || std::any_of(halves_.begin(), halves_.end(), [&](const Half& half) { return other(half); });
    const Device& device = network().devices[comm_->device];
    return comm_->operations.front() == this && device.running < mostKernels() &&
           (!ordered_ || device.broken || device.begun == launch_);
  }

  bool advance() override {
    Device& device = network().devices[comm_->device];
    if (!begun_ && !comm_->aborted) {
      begun_ = true;
      ++device.begun;
      ++device.running;
      return false;
    }
    if (share_.kind != Share::Kind::none && !share_.done && !comm_->aborted) perform(sharesOfAll());
    for (Half& half : halves_) {
      Half* met = comm_->aborted ? nullptr : other(half);
      if (!met) continue;
      if (met->bytes != half.bytes) misuse("a send and a receive of NCCL with different numbers of bytes");
      const Half &from = half.sends ? half : *met, &to = half.sends ? *met : half;
      std::memcpy(to.data, from.data, from.bytes);
      half.done = met->done = true;
      break;
    }
    if (!comm_->aborted && !done()) return false;
    if (begun_) --device.running;
    std::erase(comm_->operations, this);
    return true;
  }

private:
  bool done() const {
    if (share_.kind != Share::Kind::none) return share_.done;
    return std::all_of(halves_.begin(), halves_.end(), [](const Half& half) { return half.done; });
  }
  /// By member, where all have begun this collective; else none.
  std::vector<Share*> sharesOfAll() const {
    std::vector<Share*> shares;
    for (const ncclComm* member : comm_->clique->members) {
      if (member->operations.empty()) return {};
      Operation& front = *member->operations.front();
      if (!front.begun_ || front.share_.done || !share_.isOfOne(front.share_)) return {};
      shares.push_back(&front.share_);
    }
    return shares;
  }
  /// The other half, where its kernel has begun. Halves of two ranks meet in their order.
  static Half* other(const Half& half) {
    if (half.done) return nullptr;
    const ncclComm* peer = half.comm->clique->members[static_cast<std::size_t>(half.peer)];
    if (peer->operations.empty() || !peer->operations.front()->begun_) return nullptr;
    for (Half& candidate : peer->operations.front()->halves_)
      if (!candidate.done && candidate.sends != half.sends && candidate.peer == half.comm->rank) return &candidate;
    return nullptr;
  }

  ncclComm* comm_;
  std::vector<Half> halves_;
  Share share_;
  std::uint64_t launch_;
  bool ordered_, begun_ = false;
};

thread_local int depth = 0;
thread_local std::vector<Half> group;

void checkUsable(const ncclComm* comm) {
  if (!comm || comm->aborted) misuse("a communicator of NCCL that has been aborted or destroyed");
}

/// With the mutex held.
void checkUser(const ncclComm* comm) {
  checkUsable(comm);
  if (currentDevice() != comm->device) misuse("a communicator of NCCL on another device than its own");
  if (comm->user != std::thread::id() && comm->user != std::this_thread::get_id())
    misuse("two threads that use a communicator of NCCL at once");
}

/// One that has an error tells it.
ncclResult_t add(ncclComm* comm, const Share& share, cudaStream_t stream) {
  if (depth > 0) misuse("a collective of NCCL in a group");
  std::lock_guard lock(mutex());
  checkUser(comm);
  if (comm->error != ncclSuccess) return comm->error;
  enqueue(stream, std::make_shared<Operation>(comm, std::vector<Half>(), share));
  return ncclSuccess;
}

ncclResult_t add(Half half) {
  {
    std::lock_guard lock(mutex());
    checkUser(half.comm);
    if (half.peer < 0 || half.peer >= static_cast<int>(half.comm->clique->members.size())) misuse("no peer of NCCL");
    half.comm->user = std::this_thread::get_id();
  }
  ncclGroupStart();
  group.push_back(half);
  return ncclGroupEnd();
}

void abort(ncclComm* comm) {
  comm->aborted = true;
  network().devices[comm->device].broken = true;
  for (ncclComm* member : comm->clique->members)
    if (member != comm && !member->aborted) member->error = ncclRemoteError;
  changed();
}

} // namespace

void stand_in::killDevice(int device) {
  std::lock_guard lock(mutex());
  for (ncclComm* comm : network().communicators)
    if (comm->device == device && !comm->aborted)
      for (ncclComm* member : comm->clique->members)
        if (member != comm && !member->aborted) member->error = ncclRemoteError;
}

ncclResult_t ncclGetVersion(int* version) {
  const char* value = std::getenv("PDC_STAND_IN_NCCL");
  *version = value ? std::atoi(value) : 22809;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::lock_guard lock(mutex());
  std::memset(id, 0, sizeof *id);
  const std::string name = "clique " + std::to_string(++network().ids);
  std::memcpy(id->internal, name.data(), name.size());
  network().cliques[name] = std::make_shared<Clique>();
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t*) {
  std::unique_lock lock(mutex());
  const auto found = network().cliques.find(id.internal);
  if (found == network().cliques.end()) misuse("a communicator of NCCL between processes");
  const std::shared_ptr<Clique> clique = found->second;
  clique->members.resize(static_cast<std::size_t>(ranks));
  if (rank < 0 || rank >= ranks || clique->members[static_cast<std::size_t>(rank)])
    misuse("a rank of NCCL that comes twice");
  // Whoever comes to a device that nobody uses any more finds it as it was.
  if (std::all_of(network().communicators.begin(), network().communicators.end(),
                  [](const ncclComm* other) { return other->aborted || other->device != currentDevice(); }))
    network().devices[currentDevice()] = {};
  *comm = new ncclComm{clique, rank, currentDevice(), false, ncclSuccess, {}, {}};
  for (const ncclComm* member : clique->members) clique->refused |= member && member->device == (*comm)->device;
  clique->members[static_cast<std::size_t>(rank)] = *comm;
  network().communicators.push_back(*comm);
  ++clique->joined;
  network().joined.notify_all();
  if (!network().joined.wait_for(lock, std::chrono::seconds(60), [&] { return clique->joined == ranks; }))
    misuse("a communicator of NCCL whose members do not all come");
  if (!clique->refused) return ncclSuccess;
  (*comm)->aborted = true;
  return ncclInvalidUsage; // two ranks on one device
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  std::lock_guard lock(mutex());
  checkUsable(comm);
  waitUntil([&] { return comm->operations.empty(); });
  comm->aborted = true;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  std::lock_guard lock(mutex());
  checkUsable(comm);
  abort(comm);
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  std::lock_guard lock(mutex());
  checkUsable(comm);
  *error = comm->error;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
  case ncclSuccess: return "no error";
  case ncclSystemError: return "unhandled system error";
  case ncclInvalidUsage: return "invalid usage";
  case ncclRemoteError: return "remote process exited or there was a network error";
  default: return "internal error";
  }
}
const char* ncclGetLastError(ncclComm_t comm) {
  return comm && comm->error == ncclInternalError ? "stand-in: a circle of waits, nothing moves any more" : "";
}

ncclResult_t ncclGroupStart() {
  ++depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (depth == 0) misuse("ncclGroupEnd without ncclGroupStart");
  if (--depth > 0) return ncclSuccess;
  std::lock_guard lock(mutex());
  while (!group.empty()) {
    ncclComm* comm = group.front().comm;
    std::vector<Half> own, rest;
    for (Half& half : group) (half.comm == comm ? own : rest).push_back(half);
    group = std::move(rest);
    comm->user = {};
    const auto toItself = [&](bool sends) {
      return std::count_if(own.begin(), own.end(),
                           [&](const Half& half) { return half.sends == sends && half.peer == comm->rank; });
    };
    if (toItself(true) != toItself(false)) misuse("a send of NCCL to itself without its receive in the group");
    for (const Half& half : own)
      if (half.stream != own[0].stream) misuse("a group of NCCL in two streams");
    const cudaStream_t stream = own[0].stream;
    enqueue(stream, std::make_shared<Operation>(comm, std::move(own)));
  }
  return ncclSuccess;
}

ncclResult_t ncclSend(const void* data, std::size_t count, ncclDataType_t, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return add({comm, true, static_cast<std::byte*>(const_cast<void*>(data)), count, peer, stream});
}
ncclResult_t ncclRecv(void* data, std::size_t count, ncclDataType_t, int peer, ncclComm_t comm, cudaStream_t stream) {
  return add({comm, false, static_cast<std::byte*>(data), count, peer, stream});
}

ncclResult_t ncclAllReduce(const void* data, void* result, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t operation, ncclComm_t comm, cudaStream_t stream) {
  return add(comm,
             {Share::Kind::allReduce, static_cast<const std::byte*>(data), static_cast<std::byte*>(result), count, type,
              operation},
             stream);
}
ncclResult_t ncclReduceScatter(const void* data, void* result, std::size_t count, ncclDataType_t type,
                               ncclRedOp_t operation, ncclComm_t comm, cudaStream_t stream) {
  return add(comm,
             {Share::Kind::reduceScatter, static_cast<const std::byte*>(data), static_cast<std::byte*>(result), count,
              type, operation},
             stream);
}
ncclResult_t ncclAllGather(const void* data, void* result, std::size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return add(
      comm, {Share::Kind::allGather, static_cast<const std::byte*>(data), static_cast<std::byte*>(result), count, type},
      stream);
}
