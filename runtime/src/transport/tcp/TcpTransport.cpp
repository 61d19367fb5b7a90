// A frame is a header and, where it carries data, their bytes. Like Open MPI's progress, this one happens in poll():
// the communication thread looks after all connections. Where nothing is under way it sleeps until something comes.
// While bytes come and go it sleeps for a time, because every packet would wake it.
#include "TcpTransport.h"

#include "Sockets.h"
#include "TcpMesh.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <poll.h>
#include <ratio>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

namespace pdcrt {
namespace {

enum class Kind : std::int32_t {
  ready = 1, ///< a receive of so many bytes is posted on the channel
  data,      ///< so many bytes of the transfer that is the channel's next
  bye,       ///< nothing else follows
};

struct Header {
  Kind kind = Kind::ready;
  std::int32_t channel = 0;
  std::uint64_t bytes = 0;
};

/// Between pieces of a transfer, others and what is posted on the other side have their turn.
constexpr std::uint64_t piece = 256 << 10;

/// Transfers in the order in which they were posted.
struct Queue {
  Transfer *first = nullptr, *last = nullptr;
  std::size_t moved = 0; ///< bytes of the first

  void push(Transfer& transfer) {
    transfer.nextWaiting = nullptr;
    (last ? last->nextWaiting : first) = &transfer;
    last = &transfer;
  }
  void pop() {
    first = first->nextWaiting;
    if (!first) last = nullptr;
    moved = 0;
  }
  bool remove(const Transfer& transfer) {
    Transfer* previous = nullptr;
    for (Transfer* at = first; at; previous = at, at = at->nextWaiting) {
      if (at != &transfer) continue;
      (previous ? previous->nextWaiting : first) = at->nextWaiting;
      if (last == at) last = previous;
      if (!previous) moved = 0;
      return true;
    }
    return false;
  }
};

/// The transfers between two ranks that have one number.
struct Channel {
  std::int32_t number = 0;
  Queue sends, receives;
  std::vector<std::uint64_t> ready; ///< bytes of the receives that the other side has posted
  std::size_t nextReady = 0;
};

constexpr int pending = 0, complete = 1; // Transfer::handle

struct Peer {
  int socket = -1;
  std::string name;
  bool saidBye = false;
  std::vector<Channel> channels; ///< grows when a channel is first used

  // What arrives.
  Header in;
  std::size_t inHeader = 0;    ///< bytes of it
  std::uint64_t inPayload = 0; ///< bytes of data still to come
  // What leaves.
  std::vector<Header> announcements;
  std::size_t nextAnnouncement = 0;
  Header out;
  std::size_t outHeader = sizeof(Header); ///< bytes of it that have gone
  std::uint64_t outPayload = 0;           ///< bytes of data still to go
  std::size_t turn = 0;                   ///< channel that sends next

  Channel& channel(std::int32_t number) {
    for (Channel& at : channels)
      if (at.number == number) return at;
    channels.push_back({.number = number, .sends = {}, .receives = {}, .ready = {}});
    channels.back().ready.reserve(64);
    return channels.back();
  }
};

class TcpTransport : public Transport {
public:
  /// `bell`: an eventfd, which it closes in the end.
  TcpTransport(int rank, std::unique_ptr<TcpMesh> mesh, int bell) : rank_(rank), mesh_(std::move(mesh)), bell_(bell) {
    peers_.resize(mesh_->sockets.size());
    for (std::size_t i = 0; i < peers_.size(); ++i) {
      Peer& peer = peers_[i];
      peer.socket = mesh_->sockets[i];
      peer.name = mesh_->names[i];
      peer.channels.reserve(256);
      peer.announcements.reserve(1024);
      polled_.push_back({.fd = peer.socket, .events = POLLIN, .revents = 0});
    }
    polled_.push_back({.fd = bell_, .events = POLLIN, .revents = 0});
    int sharing = 1;
    for (std::size_t i = 0; i < peers_.size(); ++i)
      sharing += mesh_->coreSets[i] == mesh_->cores.set && staysHere(mesh_->sockets[i]);
    crowd_ = ranksPerCore(sharing, mesh_->cores.count);
  }

  ~TcpTransport() override {
    if (!failed_ && !ended_) sayBye();
    ::close(bell_);
  }

  int rank() const override { return rank_; }
  int ranks() const override { return static_cast<int>(peers_.size()); }
  int crowd() const override { return crowd_; }

  void poll() override {
    if (failed_ || ended_) return;
    for (std::size_t i = 0; i < peers_.size(); ++i)
      polled_[i].events = static_cast<short>(POLLIN | (hasOutput(peers_[i]) ? POLLOUT : 0));
    if (::poll(polled_.data(), peers_.size(), 0) <= 0) return;
    for (std::size_t i = 0; i < peers_.size() && !failed_; ++i) {
      if (polled_[i].revents & POLLOUT) write(peers_[i]);
      if (polled_[i].revents & (POLLIN | POLLHUP | POLLERR)) read(peers_[i]);
    }
  }

  void start(Transfer& transfer) override {
    transfer.handle = pending;
    Peer& peer = peers_[static_cast<std::size_t>(transfer.peer)];
    Channel& channel = peer.channel(transfer.channel);
    (transfer.outgoing ? channel.sends : channel.receives).push(transfer);
    if (transfer.peer == rank_) return copyToItself(channel);
    if (transfer.outgoing && peer.saidBye) dropSends(peer);
    if (transfer.outgoing) return;
    peer.announcements.push_back({Kind::ready, transfer.channel, transfer.bytes});
  }

  bool test(Transfer& transfer) override { return transfer.handle == complete; }

  void cancel(Transfer& transfer) override {
    if (transfer.handle == complete) return;
    Peer& peer = peers_[static_cast<std::size_t>(transfer.peer)];
    Channel& channel = peer.channel(transfer.channel);
    Queue& queue = transfer.outgoing ? channel.sends : channel.receives;
    const bool begun = queue.first == &transfer && queue.moved > 0;
    if (queue.remove(transfer) && begun) end(); // half of it cannot be taken back
  }

  std::chrono::nanoseconds patience(int idle, bool awaited) override {
    const bool sends = std::any_of(peers_.begin(), peers_.end(), hasOutput),
               receives = std::any_of(peers_.begin(), peers_.end(), hasHalfOfSomething);
    const std::chrono::nanoseconds limit = pollingPatience(idle, awaited, sends, crowd_), none(-1);
    untilSomethingComes_ = !sends && !receives && limit > std::chrono::nanoseconds::zero();
    return untilSomethingComes_ ? none : limit;
  }

  void sleep(std::chrono::nanoseconds limit) override {
    for (pollfd& socket : polled_) socket.events = POLLIN;
    const std::size_t skipped = std::exchange(untilSomethingComes_, false) ? 0 : peers_.size();
    const timespec duration = {.tv_sec = limit.count() / std::nano::den, .tv_nsec = limit.count() % std::nano::den};
    ::ppoll(polled_.data() + skipped, polled_.size() - skipped, limit.count() < 0 ? nullptr : &duration, nullptr);
    std::uint64_t wakes = 0;
    [[maybe_unused]] const ssize_t taken = ::read(bell_, &wakes, sizeof wakes);
  }
  void wake() override {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t given = ::write(bell_, &one, sizeof one);
  }

  bool aborted() const override { return failed_ || ended_; }
  Status failure() const override { return failed_ ? failure_ : Transport::failure(); }
  void abort(int) override { end(); }

private:
  /// By any thread. The others see that the connections have ended without a word.
  void end() {
    ended_ = true;
    for (const Peer& peer : peers_)
      if (peer.socket >= 0) ::shutdown(peer.socket, SHUT_RDWR);
  }

  void fail(const Peer& peer, const std::string& what) {
    if (failed_ || ended_) return;
    failure_ = {Exit::again, "rank " + std::to_string(&peer - peers_.data()) + " at " + peer.name + " " + what,
                "look what its machine says"};
    failed_ = true;
  }

  /// Of what nobody will receive: a rank may end while rank 0 tells all of something that it need not know any more.
  void dropSends(Peer& peer) {
    for (Channel& channel : peer.channels)
      for (Queue& sends = channel.sends; sends.first; sends.pop()) {
        if (sends.first->traffic != Traffic::control) return fail(peer, "has ended before this rank");
        sends.first->handle = complete;
      }
  }

  void copyToItself(Channel& channel) {
    while (channel.sends.first && channel.receives.first) {
      const Transfer &from = *channel.sends.first, &to = *channel.receives.first;
      if (const std::size_t bytes = std::min(from.bytes, to.bytes)) std::memcpy(to.data, from.data, bytes);
      for (Queue* queue : {&channel.sends, &channel.receives}) {
        queue->first->handle = complete;
        queue->pop();
      }
    }
  }

  // ---- What leaves ----

  static bool maySend(const Channel& channel) {
    return channel.sends.first && channel.nextReady < channel.ready.size();
  }
  static bool hasOutput(const Peer& peer) {
    return peer.outHeader < sizeof(Header) || peer.outPayload > 0 ||
           peer.nextAnnouncement < peer.announcements.size() ||
           std::any_of(peer.channels.begin(), peer.channels.end(), maySend);
  }

  /// Chooses what goes next: announcements, then a piece of each channel in turn. False: nothing.
  bool nextFrame(Peer& peer) {
    if (peer.nextAnnouncement < peer.announcements.size()) {
      peer.out = peer.announcements[peer.nextAnnouncement++];
      if (peer.nextAnnouncement == peer.announcements.size()) {
        peer.announcements.clear();
        peer.nextAnnouncement = 0;
      }
      peer.outHeader = 0;
      return true;
    }
    for (std::size_t i = 0; i < peer.channels.size(); ++i) {
      peer.turn = (peer.turn + 1) % peer.channels.size();
      Channel& channel = peer.channels[peer.turn];
      if (!maySend(channel)) continue;
      const Transfer& transfer = *channel.sends.first;
      if (channel.ready[channel.nextReady] != transfer.bytes) {
        fail(peer, "expects " + std::to_string(channel.ready[channel.nextReady]) + " bytes where this rank sends " +
                       std::to_string(transfer.bytes));
        return false;
      }
      peer.out = {Kind::data, channel.number, std::min<std::uint64_t>(piece, transfer.bytes - channel.sends.moved)};
      peer.outHeader = 0;
      peer.outPayload = peer.out.bytes;
      return true;
    }
    return false;
  }

  void write(Peer& peer) {
    while (!failed_) {
      if (peer.outHeader == sizeof(Header) && peer.outPayload == 0 && !nextFrame(peer)) return;
      if (peer.outHeader < sizeof(Header)) {
        const auto* header = reinterpret_cast<const char*>(&peer.out);
        const int more = peer.outPayload > 0 ? MSG_MORE : 0;
        if (!send(peer, header + peer.outHeader, sizeof(Header) - peer.outHeader, more, peer.outHeader)) return;
        if (peer.outHeader < sizeof(Header)) continue;
      }
      if (peer.out.kind != Kind::data) continue;
      Channel& channel = peer.channel(peer.out.channel);
      Queue& queue = channel.sends;
      std::size_t gone = 0;
      const bool open = peer.outPayload == 0 || send(peer, queue.first->data + queue.moved, peer.outPayload, 0, gone);
      peer.outPayload -= gone;
      queue.moved += gone;
      if (queue.moved == queue.first->bytes && peer.outPayload == 0) {
        queue.first->handle = complete;
        queue.pop();
        if (++channel.nextReady == channel.ready.size()) {
          channel.ready.clear();
          channel.nextReady = 0;
        }
      }
      if (!open) return;
    }
  }

  /// Adds to `count` what has gone. False: no more goes now.
  bool send(Peer& peer, const void* data, std::size_t bytes, int flags, std::size_t& count) {
    const ssize_t sent = ::send(peer.socket, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT | flags);
    if (sent >= 0) {
      count += static_cast<std::size_t>(sent);
      return true;
    }
    if (errno == EINTR) return true;
    if (errno != EAGAIN && errno != EWOULDBLOCK) fail(peer, std::string("is gone: ") + std::strerror(errno));
    return false;
  }

  // ---- What arrives ----

  static bool isHalfReceived(const Channel& channel) { return channel.receives.moved > 0; }
  static bool hasHalfOfSomething(const Peer& peer) {
    return peer.inHeader > 0 || std::any_of(peer.channels.begin(), peer.channels.end(), isHalfReceived);
  }

  void read(Peer& peer) {
    while (!failed_) {
      std::size_t count = 0;
      if (peer.inHeader < sizeof(Header)) {
        auto* header = reinterpret_cast<char*>(&peer.in);
        if (!receive(peer, header + peer.inHeader, sizeof(Header) - peer.inHeader, peer.inHeader)) return;
        if (peer.inHeader < sizeof(Header)) continue;
        if (!begin(peer)) return;
      }
      if (peer.in.kind == Kind::data) {
        if (!take(peer, count)) return;
        if (peer.inPayload > 0) continue;
      }
      peer.inHeader = 0;
    }
  }

  /// A whole header has come. False: nothing may follow.
  bool begin(Peer& peer) {
    Channel& channel = peer.channel(peer.in.channel);
    switch (peer.in.kind) {
    case Kind::ready: channel.ready.push_back(peer.in.bytes); return true;
    case Kind::data: {
      const Transfer* next = channel.receives.first;
      peer.inPayload = peer.in.bytes;
      // A receive that was cancelled has nowhere to put them; this rank is ending.
      if (next && peer.in.bytes > next->bytes - channel.receives.moved) break;
      return true;
    }
    case Kind::bye:
      peer.saidBye = true;
      dropSends(peer);
      return false;
    }
    fail(peer, "sends what is no frame: it is another build, or the network changes bytes");
    return false;
  }

  /// Of the data of a frame what is there. False: no more comes now.
  bool take(Peer& peer, std::size_t& count) {
    Queue& queue = peer.channel(peer.in.channel).receives;
    char nowhere[4096];
    const bool wanted = queue.first;
    void* to = wanted ? static_cast<void*>(queue.first->data + queue.moved) : nowhere;
    const std::size_t most = wanted ? peer.inPayload : std::min<std::uint64_t>(peer.inPayload, sizeof nowhere);
    const bool open = most == 0 || receive(peer, to, most, count);
    peer.inPayload -= count;
    if (wanted) queue.moved += count;
    if (wanted && queue.moved == queue.first->bytes && peer.inPayload == 0) {
      queue.first->handle = complete;
      queue.pop();
    }
    return open;
  }

  /// Adds to `count` what has come. False: no more comes now.
  bool receive(Peer& peer, void* data, std::size_t bytes, std::size_t& count) {
    const ssize_t received = ::recv(peer.socket, data, bytes, MSG_DONTWAIT);
    if (received > 0) {
      count += static_cast<std::size_t>(received);
      return true;
    }
    if (received < 0 && errno == EINTR) return true;
    if (received < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
    if (!peer.saidBye)
      fail(peer, received == 0 ? "has ended without a word" : std::string("is gone: ") + std::strerror(errno));
    polled_[static_cast<std::size_t>(&peer - peers_.data())].fd = -1;
    return false;
  }

  /// Ends in order: tells all, and waits until all have told it, because a connection that is closed with unread bytes
  /// takes those under way in the other direction with it.
  void sayBye() {
    const Header bye = {Kind::bye, 0, 0};
    for (Peer& peer : peers_) {
      if (peer.socket < 0) continue;
      const std::size_t left = sizeof(Header) - peer.outHeader; // of an announcement
      sendAll(peer.socket, reinterpret_cast<const char*>(&peer.out) + peer.outHeader, left);
      sendAll(peer.socket, &bye, sizeof bye);
      ::shutdown(peer.socket, SHUT_WR);
    }
    for (char nowhere; const Peer& peer : peers_)
      while (peer.socket >= 0 && receiveAll(peer.socket, &nowhere, 1)) {
      }
  }

  int rank_;
  int crowd_ = 1; ///< of the ranks on this host
  std::unique_ptr<TcpMesh> mesh_;
  std::vector<Peer> peers_;          ///< by rank
  int bell_;                         ///< wakes the thread
  std::vector<pollfd> polled_;       ///< by rank, and the bell
  bool untilSomethingComes_ = false; ///< for as long the next sleep lasts
  Status failure_;
  std::atomic<bool> failed_{false}, ended_{false};
};

} // namespace

Status openTcp(int ranks, const TcpOptions& options, std::unique_ptr<Transport>& transport) {
  auto mesh = std::make_unique<TcpMesh>();
  if (Status status = mesh->connect(ranks, options); !status) return status;
  const int bell = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (bell < 0)
    return {Exit::again, std::string("no eventfd: ") + std::strerror(errno), "raise the limit of open files"};
  transport = std::make_unique<TcpTransport>(options.rank, std::move(mesh), bell);
  return {};
}

} // namespace pdcrt
