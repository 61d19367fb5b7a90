// Rank 0 listens at the meeting point. The others say hello there, with the port on which they listen themselves, and
// get a table of all. Then each connects to those of lower rank, but 0. Strangers who do not know the greeting, or
// later the run's token, are hung up on.
#include "TcpMesh.h"

#include "Sockets.h"

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <poll.h>
#include <random>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>
#include <utility>

namespace pdcrt {
namespace {

// Both ends run the same build of this file, or the greeting differs; later the ranks compare their builds' hashes.
constexpr std::uint64_t greeting = 0x7064637274637002;

struct MeshHello {
  std::uint64_t greeting = 0, token = 0; ///< token: none yet where rank 0 is greeted
  std::int32_t rank = 0, ranks = 0, port = 0;
  std::uint32_t cores = 0; ///< Cores::set
};

/// Rank 0's answer: why not, or a row of the table per rank.
struct Answer {
  std::uint64_t token = 0;
  char refusal[240] = {}; ///< empty: all are there
};
struct PeerRow {
  char address[64] = {};
  std::int32_t port = 0;
  std::uint32_t cores = 0;
};

class File {
public:
  explicit File(int file) : file_(file) {}
  ~File() {
    if (file_ >= 0) ::close(file_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  operator int() const { return file_; }
  int release() { return std::exchange(file_, -1); }

private:
  int file_;
};

std::uint64_t drawToken() {
  std::random_device device;
  return (static_cast<std::uint64_t>(device()) << 32 | device()) | 1;
}

/// The next connection to `listener` that greets, or -1 after `deadline`. What says nothing for two seconds is a
/// stranger's.
int acceptHello(int listener, double deadline, MeshHello& hello) {
  while (true) {
    const double left = deadline - now();
    pollfd ready = {.fd = listener, .events = POLLIN, .revents = 0};
    if (left <= 0 || ::poll(&ready, 1, static_cast<int>(left * 1e3) + 1) == 0) return -1;
    File socket(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
    if (socket < 0) continue;
    const timeval brief = {.tv_sec = 2, .tv_usec = 0}, none = {};
    ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &brief, sizeof brief);
    if (!receiveAll(socket, &hello, sizeof hello) || hello.greeting != greeting) continue;
    ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof none);
    return socket.release();
  }
}

/// Tries until `deadline`: who is met may start later.
int connectUntil(const std::string& address, double deadline) {
  while (true) {
    const int socket = connectTo(address);
    if (socket >= 0 || now() >= deadline) return socket;
    ::usleep(50'000);
  }
}

std::string endpoint(const std::string& address, int port) {
  return address + ":" + std::to_string(port); // the last colon is the port's, whatever the address has
}

} // namespace

TcpMesh::~TcpMesh() {
  for (const int socket : sockets)
    if (socket >= 0) ::close(socket);
}

Status TcpMesh::connect(int ranks, const TcpOptions& options) {
  sockets.assign(static_cast<std::size_t>(ranks), -1);
  names.assign(static_cast<std::size_t>(ranks), "");
  coreSets.assign(static_cast<std::size_t>(ranks), 0);
  if (options.rank < 0 || options.rank >= ranks)
    return {Exit::usage,
            "this process has rank " + std::to_string(options.rank) + ", the plan has " + std::to_string(ranks) +
                " ranks",
            "start as many processes as the plan has ranks"};
  const std::size_t colon = options.meeting.rfind(':');
  const int port = colon == std::string::npos ? 0 : std::atoi(options.meeting.c_str() + colon + 1);
  if (colon == 0 || port <= 0 || port > 65535)
    return {Exit::usage, "the ranks cannot meet at '" + options.meeting + "', which is not HOST:PORT",
            "name the machine of rank 0 and a free port with PDC_MASTER=HOST:PORT"};
  Status status = options.rank == 0 ? meetAll(ranks, port, options) : meetRank0(ranks, options);
  if (status)
    for (const int socket : sockets)
      if (socket >= 0) setUp(socket, options.patience);
  return status;
}

Status TcpMesh::meetAll(int ranks, int port, const TcpOptions& options) {
  const File listener(listenOn(port));
  if (listener < 0)
    return {Exit::usage, "rank 0 cannot listen at " + options.meeting + ": " + std::strerror(errno),
            "name a port that is free on its machine with PDC_MASTER=HOST:PORT"};
  std::vector<PeerRow> table(static_cast<std::size_t>(ranks));
  table[0].cores = cores.set;
  const double deadline = now() + options.patience;
  int missing = ranks - 1;
  Exit code = Exit::usage;
  std::string refusal, help = "start each rank of the plan once";
  while (missing > 0 && refusal.empty()) {
    MeshHello hello;
    const int socket = acceptHello(listener, deadline, hello);
    if (socket < 0) {
      std::string who;
      for (std::size_t rank = 1; rank < sockets.size(); ++rank)
        if (sockets[rank] < 0) who += (who.empty() ? "" : ", ") + std::to_string(rank);
      code = Exit::again;
      refusal = "rank " + who + " did not come to " + options.meeting + " within " +
                std::to_string(static_cast<int>(options.patience)) + " s";
      help = "look why it did not start, or cannot reach the address; PDC_PATIENCE=SECONDS waits longer";
      break;
    }
    const auto rank = static_cast<std::size_t>(hello.rank);
    if (hello.ranks != ranks)
      refusal = "the plan of rank 0 has " + std::to_string(ranks) + " ranks, that of rank " +
                std::to_string(hello.rank) + " has " + std::to_string(hello.ranks);
    else if (hello.rank <= 0 || hello.rank >= ranks || sockets[rank] >= 0)
      refusal = "two processes say that they are rank " + std::to_string(hello.rank);
    if (!refusal.empty()) {
      Answer answer;
      std::snprintf(answer.refusal, sizeof answer.refusal, "%s", refusal.c_str());
      sendAll(socket, &answer, sizeof answer);
      ::close(socket);
      break;
    }
    sockets[rank] = socket;
    names[rank] = peerOf(socket);
    table[rank].cores = coreSets[rank] = hello.cores;
    std::snprintf(table[rank].address, sizeof table[rank].address, "%s", names[rank].c_str());
    table[rank].port = hello.port;
    --missing;
  }
  Answer answer;
  answer.token = drawToken();
  std::snprintf(answer.refusal, sizeof answer.refusal, "%s", refusal.c_str());
  for (const int socket : sockets)
    if (socket >= 0 && sendAll(socket, &answer, sizeof answer) && refusal.empty())
      sendAll(socket, table.data(), table.size() * sizeof(PeerRow));
  return refusal.empty() ? Status() : Status(code, refusal, help);
}

Status TcpMesh::meetRank0(int ranks, const TcpOptions& options) {
  const double deadline = now() + options.patience;
  const File listener(listenOn(0));
  if (listener < 0)
    return {Exit::again, "rank " + std::to_string(options.rank) + " cannot listen: " + std::strerror(errno)};
  File first(connectUntil(options.meeting, deadline));
  if (first < 0)
    return {Exit::again,
            "rank " + std::to_string(options.rank) + " cannot reach rank 0 at " + options.meeting + ": " +
                std::strerror(errno),
            "start rank 0 there, and let the machines connect to each other; PDC_PATIENCE=SECONDS waits longer"};
  MeshHello hello = {.greeting = greeting,
                     .token = 0,
                     .rank = options.rank,
                     .ranks = ranks,
                     .port = portOf(listener),
                     .cores = cores.set};
  Answer answer;
  std::vector<PeerRow> table(static_cast<std::size_t>(ranks));
  if (!sendAll(first, &hello, sizeof hello) || !receiveAll(first, &answer, sizeof answer))
    return {Exit::again, "rank 0 at " + options.meeting + " has hung up", "look what its machine says"};
  answer.refusal[sizeof answer.refusal - 1] = 0;
  if (answer.refusal[0]) return {Exit::usage, ""}; // rank 0 says why
  if (!receiveAll(first, table.data(), table.size() * sizeof(PeerRow)))
    return {Exit::again, "rank 0 at " + options.meeting + " has hung up", "look what its machine says"};
  sockets[0] = first.release();
  names[0] = peerOf(sockets[0]);
  coreSets[0] = table[0].cores;
  hello.token = answer.token;
  for (int rank = 1; rank < options.rank; ++rank) {
    PeerRow& row = table[static_cast<std::size_t>(rank)];
    row.address[sizeof row.address - 1] = 0;
    const std::string address = endpoint(row.address, row.port);
    File socket(connectUntil(address, deadline));
    if (socket < 0 || !sendAll(socket, &hello, sizeof hello))
      return {Exit::again,
              "rank " + std::to_string(options.rank) + " cannot reach rank " + std::to_string(rank) + " at " + address +
                  ": " + std::strerror(errno),
              "let the machines connect to each other on all ports"};
    names[static_cast<std::size_t>(rank)] = row.address;
    coreSets[static_cast<std::size_t>(rank)] = row.cores;
    sockets[static_cast<std::size_t>(rank)] = socket.release();
  }
  for (int missing = ranks - 1 - options.rank; missing > 0;) {
    MeshHello other;
    File socket(acceptHello(listener, deadline, other));
    if (socket < 0)
      return {Exit::again,
              std::to_string(missing) + " ranks did not come to rank " + std::to_string(options.rank) + " within " +
                  std::to_string(static_cast<int>(options.patience)) + " s",
              "let the machines connect to each other on all ports"};
    const bool known = other.token == answer.token && other.rank > options.rank && other.rank < ranks;
    if (!known || sockets[static_cast<std::size_t>(other.rank)] >= 0) continue;
    const auto rank = static_cast<std::size_t>(other.rank);
    names[rank] = peerOf(socket);
    coreSets[rank] = other.cores;
    sockets[rank] = socket.release();
    --missing;
  }
  return {};
}

} // namespace pdcrt
