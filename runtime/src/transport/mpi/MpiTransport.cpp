// Open MPI moves nothing while nobody is inside it, and wakes nobody, so the communication thread polls; where all
// ranks are on one host they ring for each other instead (MpiBells.h). One call per round looks after all requests: a
// call for each would look into the queues of every other process each time. The channel of a transfer is its tag.
#include "MpiTransport.h"

#include "MpiBells.h"
#include "pdcrt/Cores.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <mpi.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
extern "C" const char* __lsan_default_suppressions() {
  return "leak:libpmix.so\n"; // its own thread loses memory later
}
extern "C" const char* __lsan_default_options() {
  return "print_suppressions=0";
}
#endif

namespace pdcrt {
namespace {

// Open MPI leaves memory to the end of its process, and unloads before it what points there: what it allocates at the
// start is no leak, and leaks are looked for while it is still there.
int initializeMpi(int& provided) {
#ifdef __SANITIZE_ADDRESS__
  const __lsan::ScopedDisabler notItsOwn;
#endif
  return MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
}

void finalizeMpi() {
#ifdef __SANITIZE_ADDRESS__
  __lsan_do_leak_check();
#endif
  MPI_Finalize();
}

class MpiTransport : public Transport {
public:
  MpiTransport(MPI_Comm communicator, bool synchronous) : communicator_(communicator), synchronous_(synchronous) {
    MPI_Comm_rank(communicator_, &rank_);
    MPI_Comm_size(communicator_, &ranks_);
    MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN);
    MPI_Comm host;
    MPI_Comm_split_type(communicator_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &host);
    int ranksHere = 1;
    MPI_Comm_size(host, &ranksHere);
    const Cores own = ownCores(); // mpirun may have bound ranks to different ones
    std::vector<std::uint32_t> sets(static_cast<std::size_t>(ranksHere), own.set);
    MPI_Allgather(&own.set, 1, MPI_UINT32_T, sets.data(), 1, MPI_UINT32_T, host);
    crowd_ = ranksPerCore(static_cast<int>(std::count(sets.begin(), sets.end(), own.set)), own.count);
    if (ranksHere == ranks_) {
      MPI_Comm_set_errhandler(host, MPI_ERRORS_RETURN);
      bells_ = MpiBells::open(host);
    }
    MPI_Comm_free(&host);
    requests_.reserve(most);
    transfers_.reserve(most);
    finished_.reserve(most);
    free_.reserve(most);
  }
  ~MpiTransport() override {
    bells_ = nullptr;
    MPI_Comm_free(&communicator_);
    finalizeMpi();
  }

  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }
  int crowd() const override { return crowd_; }

  void poll() override {
    int count = 0;
    check(MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count, finished_.data(),
                       MPI_STATUSES_IGNORE));
    for (int i = 0; i < count; ++i) {
      UnderWay& transfer = transfers_[static_cast<std::size_t>(finished_[static_cast<std::size_t>(i)])];
      transfer.state = UnderWay::State::complete;
      sends_ -= transfer.outgoing;
      if (bells_ && !transfer.outgoing) bells_->received(transfer.peer, transfer.channel);
    }
    if (bells_) lookAfterArrivals();
  }

  void start(Transfer& transfer) override {
    if (free_.empty()) {
      free_.push_back(static_cast<int>(requests_.size()));
      requests_.push_back(MPI_REQUEST_NULL);
      transfers_.emplace_back();
      finished_.push_back(0);
    }
    transfer.handle = free_.back();
    free_.pop_back();
    transfers_[static_cast<std::size_t>(transfer.handle)] = {transfer.outgoing, transfer.peer, transfer.channel,
                                                             UnderWay::State::moving};
    sends_ += transfer.outgoing;
    sendOrReceive(transfer);
    if (bells_ && transfer.outgoing) bells_->sent(transfer.peer, transfer.channel);
  }

  bool test(Transfer& transfer) override {
    UnderWay& underWay = transfers_[static_cast<std::size_t>(transfer.handle)];
    if (underWay.state != UnderWay::State::complete) return false;
    underWay.state = UnderWay::State::unused;
    free_.push_back(transfer.handle);
    return true;
  }

  void cancel(Transfer& transfer) override {
    MPI_Request& request = requests_[static_cast<std::size_t>(transfer.handle)];
    if (request == MPI_REQUEST_NULL) return; // it has completed
    if (!transfer.outgoing) MPI_Cancel(&request);
    MPI_Request_free(&request);
    transfers_[static_cast<std::size_t>(transfer.handle)].state = UnderWay::State::unused;
  }

  std::chrono::nanoseconds patience(int idle, bool awaited) override {
    if (!bells_ || arriving_) return pollingPatience(idle, awaited, sends_ > 0 || arriving_, crowd_);
    // Who waits spins for as long as a bell takes to wake it.
    const std::chrono::nanoseconds none{0}, first = pollingPatience(idle, awaited, false, crowd_);
    return awaited && first == none ? first : rarely;
  }

  void sleep(std::chrono::nanoseconds limit) override {
    if (!bells_) return Transport::sleep(limit);
    const double before = now();
    bells_->own().wait(limit);
    if (limit == rarely && now() - before >= std::chrono::duration<double>(rarely).count()) wakeReceivers();
  }
  void wake() override { bells_ ? bells_->own().notify() : Transport::wake(); }

  bool aborted() const override { return failed_; }
  void abort(int exitCode) override { MPI_Abort(communicator_, exitCode); }

private:
  /// Looks where bells tell of everything but of what MPI has put off: so few that they cost nothing.
  static constexpr std::chrono::nanoseconds rarely = std::chrono::milliseconds(20);
  static constexpr std::size_t most = 1024; ///< transfers at once; more take memory while the run lasts

  void sendOrReceive(Transfer& transfer) {
    // Pieces of at most 1 GiB would need more than one request; a message counts its bytes in units of 64 where an int
    // is too small for single bytes.
    constexpr std::size_t unit = 64;
    const bool large = transfer.bytes > static_cast<std::size_t>(1) << 30;
    MPI_Datatype type = MPI_BYTE;
    int count = static_cast<int>(transfer.bytes);
    if (large) {
      MPI_Type_contiguous(unit, MPI_BYTE, &type);
      MPI_Type_commit(&type);
      count = static_cast<int>((transfer.bytes + unit - 1) / unit);
    }
    MPI_Request& request = requests_[static_cast<std::size_t>(transfer.handle)];
    if (!transfer.outgoing)
      check(MPI_Irecv(transfer.data, count, type, transfer.peer, transfer.channel, communicator_, &request));
    else if (synchronous_)
      check(MPI_Issend(transfer.data, count, type, transfer.peer, transfer.channel, communicator_, &request));
    else
      check(MPI_Isend(transfer.data, count, type, transfer.peer, transfer.channel, communicator_, &request));
    if (large) MPI_Type_free(&type);
  }

  /// Whoever has answered may sleep for ever, and MPI may have put the answer off.
  void wakeReceivers() {
    for (const UnderWay& transfer : transfers_)
      if (transfer.state == UnderWay::State::moving && transfer.outgoing) bells_->ring(transfer.peer);
  }

  /// Bytes that a receive is taking, and has not yet taken whole, may need the sender's looks as well.
  void lookAfterArrivals() {
    arriving_ = false;
    for (const UnderWay& transfer : transfers_) {
      if (transfer.state != UnderWay::State::moving || transfer.outgoing) continue;
      if (!bells_->arrives(transfer.peer, transfer.channel)) continue;
      arriving_ = true;
      bells_->ring(transfer.peer);
    }
  }

  void check(int result) {
    if (result != MPI_SUCCESS) failed_ = true;
  }

  struct UnderWay {
    enum class State : char { unused, moving, complete };
    bool outgoing = false;
    int peer = 0, channel = 0;
    State state = State::unused; ///< complete: and not yet asked for
  };

  MPI_Comm communicator_;
  bool synchronous_;
  int rank_ = 0, ranks_ = 1;
  int crowd_ = 1;                   ///< of the ranks on this host
  std::unique_ptr<MpiBells> bells_; ///< where all ranks are on this host
  bool failed_ = false;
  std::vector<MPI_Request> requests_; ///< by Transfer::handle; null once complete
  std::vector<UnderWay> transfers_;   ///< by Transfer::handle
  std::vector<int> finished_;         ///< what one call found complete
  int sends_ = 0;                     ///< under way
  bool arriving_ = false;             ///< something that this rank receives was on its way at the last look
  std::vector<int> free_;
};

/// "Open MPI v4.1.4".
std::string libraryName() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  MPI_Get_library_version(text, &length);
  const std::string name(text);
  return name.substr(0, name.find_first_of(",\n"));
}

/// Whether the processes say of themselves that they are the ranks of the plan. All call it.
Status eachOnce(int rank, int ranks) {
  std::vector<int> said(static_cast<std::size_t>(ranks));
  MPI_Allgather(&rank, 1, MPI_INT, said.data(), 1, MPI_INT, MPI_COMM_WORLD);
  for (int each = 0; each < ranks; ++each)
    if (const auto count = std::count(said.begin(), said.end(), each); count != 1)
      return {Exit::usage,
              std::to_string(count) + " of the " + std::to_string(ranks) + " processes are rank " +
                  std::to_string(each) + " by --rank or by the environment",
              "start each rank once, and leave out variables that name ranks (docs/Running.md lists them)"};
  return {};
}

} // namespace

Status openMpi(int ranks, const MpiOptions& options, std::unique_ptr<Transport>& transport) {
  // Open MPI's TCP writes the rest of a large message as one piece, behind which the answer waits that lets a message
  // in the other direction begin: two ranks that send to each other would take turns. Without "put", it sends fragments
  // that need no answers. What the user has set stays.
  ::setenv("OMPI_MCA_btl_tcp_flags", "send,inplace", /*overwrite=*/0);
  // What the kernel has taken for a slow link leaves before the messages that let others begin. Left to itself it takes
  // megabytes, a tenth of a second at 20 MB/s: all-reduces of 48 MB took 2.73 s there, and 2.65 s with so much.
  ::setenv("OMPI_MCA_btl_tcp_sndbuf", "131072", /*overwrite=*/0);
  int provided = 0;
  if (initializeMpi(provided) != MPI_SUCCESS) return {Exit::again, "MPI does not start"};
  int size = 0, own = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_rank(MPI_COMM_WORLD, &own);
  Status status;
  if (provided < MPI_THREAD_SERIALIZED)
    status = {Exit::usage, "this MPI has no support for threads", "use an MPI that gives MPI_THREAD_SERIALIZED"};
  else if (size != ranks)
    status = {Exit::usage, "the plan has " + std::to_string(ranks) + " ranks, MPI knows of " + std::to_string(size),
              "start them with mpirun -n " + std::to_string(ranks) + " of " + libraryName() +
                  ", by which the program was built, or run one process with --threads"};
  else
    status = eachOnce(options.rank >= 0 ? options.rank : own, ranks);
  if (!status) {
    finalizeMpi();
    return status;
  }
  MPI_Comm communicator;
  MPI_Comm_split(MPI_COMM_WORLD, 0, options.rank >= 0 ? options.rank : own, &communicator);
  transport = std::make_unique<MpiTransport>(communicator, options.synchronousSends);
  return {};
}

} // namespace pdcrt
