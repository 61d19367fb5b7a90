// One loop over signals, connections and time.
#include "pdc/Driver/Supervisor.h"

#include "RunSupervisor.h"
#include "pdcrt/FlightRecorder.h"
#include "pdcrt/Signals.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <iomanip>
#include <netinet/in.h>
#include <poll.h>
#include <random>
#include <sstream>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>

using namespace pdc;
using namespace pdc::supervision;
namespace fs = std::filesystem;

namespace {

constexpr std::size_t longestLine = 16 << 20, longestHello = 1 << 20; ///< bytes; of a process that is not known yet

/// To stderr, after what the diagnostics have written there.
void say(const std::string& text) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t count = ::write(STDERR_FILENO, text.data() + done, text.size() - done);
    if (count < 0 && errno != EINTR) return;
    done += count > 0 ? static_cast<std::size_t>(count) : 0;
  }
}

} // namespace

Status Supervisor::listen(Command& command) {
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(options_.otherHosts ? INADDR_ANY : INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* plain = reinterpret_cast<sockaddr*>(&address);
  if (listener_ < 0 || ::bind(listener_, plain, length) != 0 || ::listen(listener_, 512) != 0 ||
      ::getsockname(listener_, plain, &length) != 0)
    return diags_.error({}) << "the control channel cannot be opened: " << std::strerror(errno);
  char host[256] = "127.0.0.1";
  if (options_.otherHosts) ::gethostname(host, sizeof host - 1);
  const std::string own = options_.address.empty() ? host : options_.address;
  std::random_device random;
  std::ostringstream token;
  for (int i = 0; i < 4; ++i) token << std::hex << std::setw(8) << std::setfill('0') << random();
  token_ = token.str();
  command.environment["PDC_CONTROL"] = own + ":" + std::to_string(ntohs(address.sin_port));
  command.environment["PDC_CONTROL_TOKEN"] = token_;
  command.environment["PDC_CONTROL_PATIENCE"] = std::to_string(options_.watchdogSeconds);
  return success;
}

Expected<RunEnding> Supervisor::run(Command command) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(options_.recordings, ignored))
    if (entry.path().filename().string().rfind("flight-rank", 0) == 0) fs::remove(entry.path(), ignored);
  if (!listen(command)) return failure;
  sigset_t mask;
  sigemptyset(&mask);
  for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) sigaddset(&mask, signal);
  pthread_sigmask(SIG_BLOCK, &mask, &before_);
  masked_ = true;
  signals_ = ::signalfd(-1, &mask, SFD_CLOEXEC);
  if (!startLauncher(std::move(command))) return failure;

  loopedAt_ = progressAt_ = now();
  while (!childEnded_) {
    std::vector<pollfd> files = {{signals_, POLLIN, 0}, {listener_, POLLIN, 0}};
    for (const Client& client : clients_) files.push_back({client.socket, POLLIN, 0});
    const std::size_t known = files.size();
    if (launcherSays_ >= 0) files.push_back({launcherSays_, POLLIN, 0});
    if (::poll(files.data(), files.size(), 200) < 0 && errno != EINTR) break;
    // Lines before deaths: a rank may have said why it ends.
    auto client = clients_.begin();
    for (std::size_t i = 2; i < known; ++i) {
      const auto at = client++;
      if (!files[i].revents || read(*at)) continue;
      const Client over = *at;
      ::close(at->socket);
      clients_.erase(at);
      gone(over);
    }
    if (files[1].revents) accept();
    if (files[0].revents) onSignal();
    if (files.size() > known && files[known].revents) hearLauncher();
    watch();
    end();
  }
  // What the last ones said before they ended.
  for (auto at = clients_.begin(); at != clients_.end(); ++at)
    while (read(*at)) {
    }
  if (launcherSays_ >= 0) hearLauncher();
  return ending();
}

RunEnding Supervisor::ending() {
  // What becomes of a rank on its way out takes nothing back.
  if (!lost_ && saidCode_ == 0 && done_ == options_.ranks) return RunEnding{0, false};
  const bool saidWhy = saidCode_ != 0 || launcherOutput_.saysError();
  if (!saidWhy && !(lost_ && trained_)) say(launcherOutput_.takeMessages());
  say(launcherOutput_.rest());
  if (lost_) return RunEnding{again, true};
  if (options_.launcher && !saidWhy && !started_) {
    diags_.error({}).help("look at what it says; on this machine, without a launcher: --threads")
        << "the launcher has ended with " << childCode_ << ", " << missing() << " of " << options_.ranks
        << " did not come";
    return RunEnding{childCode_ != 0 ? childCode_ : 1, false};
  }
  return RunEnding{saidCode_ != 0 ? saidCode_ : childCode_, false};
}

Status Supervisor::startLauncher(Command command) {
  int ends[2] = {-1, -1};
  if (options_.launcher && ::pipe2(ends, O_CLOEXEC) == 0) {
    launcherSays_ = ends[0];
    ::fcntl(launcherSays_, F_SETFL, O_NONBLOCK);
    command.errors = ends[1];
  }
  // In a group of its own: what a terminal sends to this one is handed on in good order.
  const Expected<int> child = start(command, /*ownGroup=*/true, diags_);
  if (ends[1] >= 0) ::close(ends[1]);
  if (!child) return failure;
  child_ = *child;
  return success;
}

/// What is there now: a process that the launcher has left behind may hold its stderr open.
void Supervisor::hearLauncher() {
  char bytes[4096];
  while (true) {
    const ssize_t count = ::read(launcherSays_, bytes, sizeof bytes);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) break;
    if (count <= 0) {
      ::close(std::exchange(launcherSays_, -1));
      break;
    }
    say(launcherOutput_.take({bytes, static_cast<std::size_t>(count)}));
  }
  if (ranks_.empty() && !launcherOutput_.saysError()) say(launcherOutput_.takeMessages()); // what keeps them away
}

void Supervisor::onSignal() {
  signalfd_siginfo info{};
  if (::read(signals_, &info, sizeof info) != sizeof info) return;
  if (info.ssi_signo == SIGCHLD) {
    onChild();
    return;
  }
  const bool isSecond = signalledAt_ > 0;
  if (isSecond && now() - signalledAt_ < pdcrt::secondSignalSeconds) return; // the same wish
  if (!isSecond) signalledAt_ = now();
  if (isSecond || !started_) { // another wish, or too early for a clean stop
    ::kill(-child_, started_ ? SIGKILL : SIGTERM);
    saidCode_ = 128 + static_cast<int>(info.ssi_signo);
    return;
  }
  tellAll("signal " + std::to_string(info.ssi_signo));
}

void Supervisor::onChild() {
  int state = 0;
  if (::waitpid(child_, &state, WNOHANG) != child_) return;
  childEnded_ = true;
  childCode_ = WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
}

void Supervisor::accept() {
  const int socket = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (socket >= 0) clients_.push_back({.socket = socket});
}

bool Supervisor::read(Client& client) {
  char bytes[4096];
  const ssize_t count = ::read(client.socket, bytes, sizeof bytes);
  if (count < 0) return errno == EINTR || errno == EAGAIN ? !childEnded_ : false;
  if (count == 0 || client.buffer.size() > (client.ranks.empty() ? longestHello : longestLine)) return false;
  client.buffer.append(bytes, static_cast<std::size_t>(count));
  for (std::size_t end; (end = client.buffer.find('\n')) != std::string::npos;) {
    const std::string line = client.buffer.substr(0, end);
    client.buffer.erase(0, end + 1);
    take(client, line);
  }
  return true;
}

void Supervisor::take(Client& client, const std::string& line) {
  pdcrt::HelloLine helloLine;
  pdcrt::BeatLine beatLine;
  int code = 0;
  if (client.ranks.empty()) {
    if (pdcrt::parseHello(line, helloLine)) hello(client, helloLine);
  } else if (pdcrt::parseBeat(line, beatLine)) {
    beat(client, beatLine);
  } else if (pdcrt::parseBye(line, code)) {
    bye(client, code);
  }
}

void Supervisor::beat(const Client& client, const pdcrt::BeatLine& line) {
  if (std::find(client.ranks.begin(), client.ranks.end(), line.rank) == client.ranks.end()) return;
  Rank& rank = ranks_[line.rank];
  if (line.count != rank.count || line.phase != rank.phase) progressAt_ = now();
  rank.count = line.count;
  rank.phase = line.phase;
  trained_ = trained_ || line.phase == static_cast<int>(pdcrt::RunPhase::training);
  rank.action = line.action;
  rank.heardAt = now();
  rank.since = rank.heardAt - line.milliseconds / 1e3;
}

void Supervisor::bye(Client& client, int code) {
  client.ended = true;
  for (int number : client.ranks) ranks_[number].over = true;
  // That its peers are gone a rank knows less well than this one; a signal's 75 is that of the command.
  if (code != 0 && code != again && saidCode_ == 0) saidCode_ = code;
  if (code == 0) done_ += static_cast<int>(client.ranks.size());
}

void Supervisor::hello(Client& client, const pdcrt::HelloLine& line) {
  if (line.token != token_) return; // a stranger
  for (const pdcrt::HelloLine::Rank& rank : line.ranks)
    if (rank.number >= options_.ranks) return; // of another run
  client.process = line.process;
  client.host = line.host;
  client.hash = line.hash;
  client.build = line.build;
  client.variable = line.variable;
  for (const Client& other : clients_)
    if (&other != &client && isTwice(client, line, other)) return;
  for (const pdcrt::HelloLine::Rank& rank : line.ranks) {
    client.ranks.push_back(rank.number);
    ranks_[rank.number] = {.stages = rank.stages, .host = line.host, .heardAt = now()};
  }
  for (const Client& other : clients_)
    if (!other.ranks.empty() && refuse(client, other)) return;
  progressAt_ = now();
  if (started_ || static_cast<int>(ranks_.size()) < options_.ranks) return;
  started_ = true;
  tellAll("go");
}

void Supervisor::tellAll(const std::string& line) const {
  const std::string text = line + "\n";
  for (const Client& client : clients_)
    if (!client.ranks.empty()) static_cast<void>(::send(client.socket, text.data(), text.size(), MSG_NOSIGNAL));
}

/// Ends what has not ended by itself.
void Supervisor::end() {
  if (endAt_ == 0 || now() < endAt_) return;
  ::kill(-child_, terminated_ ? SIGKILL : SIGTERM);
  if (terminated_) { // the launcher cannot end its ranks any more
    char own[256] = {};
    ::gethostname(own, sizeof own - 1);
    for (const Client& client : clients_)
      if (client.process > 1 && client.host == own) ::kill(client.process, SIGKILL);
  }
  terminated_ = true;
  endAt_ = now() + patience / 2;
}

Expected<RunEnding> pdc::supervise(const Command& command, const SupervisorOptions& options, Diagnostics& diags) {
  return Supervisor(options, diags).run(command);
}
