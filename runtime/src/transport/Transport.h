// How bytes move between ranks while the kernels run.
//
// Each rank has one communication thread (Communicator), which alone touches the rank's Transport; the executor hands
// it work and waits for completions. Nothing here allocates once training runs: who posts work owns it and its memory,
// and reuses it round after round.
//
// Three transports implement the interface: `threads` (makeThreadTransports), `mpi` (MpiTransport.h) and `tcp`
// (TcpTransport.h). A transfer
// starts when its send and its receive are both posted; sends and receives of a channel match in the order in which
// they are posted. Everything above, the all-reduce too, is the same code for both, so both train the same bits.
#pragma once

#include "Waiting.h"
#include "machine/StartOrder.h"
#include "pdcrt/Device.h"
#include "pdcrt/Status.h"

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <utility>
#include <vector>

namespace pdcrt {

/// What a transfer is for; bytes are counted by it.
enum class Traffic : std::uint8_t { forward, backward, allReduce, shared, team, control };
inline constexpr std::size_t trafficKinds = 6;

class Transport;

/// Something that the communication thread carries out.
class Work {
public:
  virtual ~Work() = default;
  /// Called by the communication thread, again and again, until it returns true. Never blocks.
  virtual bool advance(Transport& transport) = 0;
  /// Called once instead, where the run ends before the work does.
  virtual void cancel(Transport&) {}
  /// Of complete work: what is put into `q` from now on begins after all that the work has put into streams.
  virtual void precede(Stream&) const {}
  /// Until the stream of the poster has come here, the memory of the work is not what it should be.
  Event ready;
  /// Advanced before others that were posted earlier: a kernel waits for it.
  bool urgent = false;

  bool complete() const { return complete_.load(std::memory_order_acquire); }
  /// Whether it is posted and not complete: its memory is in use.
  bool pending() const { return posted_ && !complete(); }
  double postedAt = 0, completedAt = 0; ///< now()

private:
  friend class Communicator;
  std::atomic<bool> complete_{false};
  bool posted_ = false;  ///< touched by the poster only
  Work* next_ = nullptr; ///< in the queue to the communication thread
};

/// A send or a receive. It is complete when everything that it does has been put into streams: `precede` waits for the
/// rest. `channel` tells transfers between the same two ranks apart.
class Transfer : public Work {
public:
  bool outgoing = false;
  int peer = 0; ///< rank
  int channel = 0;
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  Traffic traffic = Traffic::control;
  bool inBlocks = false; ///< `data` is memory of the device, else of the host
  /// Within a group, where the transport is ordered(): its place in the rank's StartOrder; -1: none.
  std::int64_t turn = -1;

  void start(Transport& transport);
  bool advance(Transport& transport) override;
  void cancel(Transport& transport) override;
  void precede(Stream& q) const override { done.precede(q); }

  const Event* after = nullptr; ///< before it the transfer may not touch `data`; null: none

  // The transport's own.
  Event done; ///< the bytes are there, or have gone
  int handle = -1;
  Transfer* nextWaiting = nullptr;
  bool started = false;
  std::atomic<bool> matched{false};
  double arrivesAt = 0;
};

/// Transfers that complete together: the tensors of an edge, a phase of an all-reduce. The first `used` of a fixed
/// pool. Those with one turn, which follow each other, are started together.
class TransferGroup : public Work {
public:
  /// Makes the pool; before anything is posted.
  void resize(std::size_t pool);
  bool advance(Transport& transport) override;
  void cancel(Transport& transport) override;
  void precede(Stream& q) const override {
    for (std::size_t i = 0; i < used; ++i) parts[i].precede(q);
  }

  /// Adds a part that moves nothing: in this turn others of the rank move something, and this process does not.
  void passTurn(std::int64_t turn) {
    parts[used].peer = -1;
    parts[used++].turn = turn;
  }

  /// Before it no part may touch its data; `ready`, unless another is set.
  const Event* after = &ready;

  std::vector<Transfer> parts;
  std::size_t used = 0;

private:
  void startParts(Transport& transport);

  enum class State : char { waiting, underWay, done };
  std::vector<State> states_; ///< by part
  bool started_ = false;
};

/// Point-to-point transfers of one rank. All but abort() and wake() are called by one thread.
class Transport {
public:
  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  /// How many ranks share a core of this host (ranksPerCore).
  virtual int crowd() const { return 1; }
  /// Finds out what has completed; called before a round of test(), and during long work of one.
  virtual void poll() {}
  /// Starts a transfer; test() says whether it has completed, as of the last poll() at least.
  virtual void start(Transfer& transfer) = 0;
  virtual bool test(Transfer& transfer) = 0;
  /// Forgets a receive that nobody will send, or a send that nobody will receive.
  virtual void cancel(Transfer& transfer) = 0;
  /// How long the thread may sleep when nothing has moved for `idle` polls; negative: until it is woken. `awaited`:
  /// somebody waits for a completion.
  virtual std::chrono::nanoseconds patience(int idle, bool awaited) = 0;
  /// The same where there is nothing to do.
  virtual std::chrono::nanoseconds vigil() const { return std::chrono::nanoseconds(-1); }
  /// Whether transfers of blocks must be started by their turns, one turn after the other (gate()).
  virtual bool ordered() const { return false; }
  /// Around transfers that are started together; they may complete after the end only.
  virtual void beginGroup() {}
  virtual void endGroup() {}
  /// Whether another rank has given up, or this one cannot go on.
  virtual bool aborted() const = 0;
  /// Once aborted(): why.
  virtual Status failure() const { return {Exit::again, "another rank has stopped"}; }
  /// Ends all ranks, because this one cannot go on.
  virtual void abort(int exitCode) = 0;
  /// By the thread that computes, before anything is posted: the team of this process for one of the stages that it
  /// hosts, where the transport does collectives itself, in the turns of computations; else `team` stays null, and
  /// transfers do them. Fails where the transport cannot do one.
  virtual Status makeTeam(std::span<const Collective>, std::unique_ptr<Team>& /*team*/) { return {}; }
  /// Called by the thread that calls the rest, before and after everything: opens and closes stream().
  void open() {
    device::use(rank());
    stream_ = device::openStream();
  }
  void close() {
    settle();
    device::close(stream_);
  }
  /// What transfers, and the sums of all-reduces, are put into.
  Stream& stream() { return stream_; }

  /// The thread sleeps until wake() was called since it last slept, or what others send may be there, or for `limit`;
  /// a negative limit is none.
  virtual void sleep(std::chrono::nanoseconds limit) { wakeup_.wait(limit); }
  /// By any thread.
  virtual void wake() { wakeup_.notify(); }
  /// What lets transfers and all-reduces start by their turns.
  StartGate& gate() { return gate_; }
  /// Work that has moved without being complete asks for another round at once.
  void lookAgain() { lookAgain_ = true; }
  /// Whether some has since the last call.
  bool looksAgain() { return std::exchange(lookAgain_, false); }
  /// Bytes that this rank has sent to others, by Traffic. Read it when the communication thread has stopped.
  std::array<std::uint64_t, trafficKinds> bytesSent{};

protected:
  /// Sees to it that nothing goes on in streams for ever that nobody will look after.
  virtual void settle() {}

private:
  Wakeup wakeup_;
  StartGate gate_;
  bool lookAgain_ = false;
  Stream stream_;
};

/// The communication thread of a rank.
class Communicator {
public:
  explicit Communicator(Transport& transport);
  /// Cancels what is not complete.
  virtual ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  /// Hands over `work`, which must stay where it is, and whose memory must not be touched, until it is complete.
  /// (Tests override it, and wait(), to see to that.)
  virtual void post(Work& work);
  /// Sleeps until `work`, which has been posted, is complete. False: another rank has given up. Throws what some work
  /// has thrown, after which nothing goes on.
  virtual bool wait(const Work& work);

  /// Sleeps until `done()`, which only completions make true. False: another rank has given up.
  template <class Done>
  bool waitUntil(Done done) {
    if (done()) return true;
    awaited_ = true;
    if (dozing_) transport_.wake();
    if (transport_.crowd() <= 1 && isSoon(done)) {
      awaited_ = false;
      return true;
    }
    std::unique_lock lock(mutex_);
    completion_.wait(lock, [&] { return aborted_ || done(); });
    awaited_ = false;
    if (thrown_) std::rethrow_exception(thrown_);
    return done();
  }

  /// Ends the thread; what is not complete is cancelled.
  void stop();
  Transport& transport() { return transport_; }

private:
  void run();

  Transport& transport_;
  std::mutex mutex_; ///< guards the queue, the flags below, and completions
  std::condition_variable completion_;
  Work *first_ = nullptr, *last_ = nullptr;
  bool stopping_ = false, aborted_ = false;
  std::exception_ptr thrown_;
  std::atomic<bool> awaited_{false}; ///< somebody is in waitUntil
  std::atomic<bool> dozing_{false};  ///< the communication thread sleeps, for longer than it would if awaited
  std::thread thread_;
};

/// Limits of an emulated network between ranks of one process, per channel.
struct EmulatedLink {
  double bytesPerSecond = 0; ///< 0: as fast as memory
  double latency = 0;        ///< seconds
};

/// Transports for `ranks` threads of one process.
std::vector<std::unique_ptr<Transport>> makeThreadTransports(int ranks, EmulatedLink link = {});

} // namespace pdcrt
