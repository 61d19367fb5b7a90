// One loop over signals, connections and time.
#include "pdc/Driver/Supervisor.h"

#include "LauncherOutput.h"
#include "pdcrt/ControlLine.h"
#include "pdcrt/FlightRecorder.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <iomanip>
#include <list>
#include <map>
#include <netinet/in.h>
#include <poll.h>
#include <random>
#include <sstream>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

using namespace pdc;
namespace fs = std::filesystem;

namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

constexpr int again = 75;       ///< exit code: run it again
constexpr double beatEvery = 1; ///< seconds between the beats of a process
constexpr double silence = 5;   ///< seconds without a beat after which a process is called silent
constexpr double patience = 4;  ///< seconds that the ranks have to end by themselves, and then by a signal
constexpr std::size_t longestLine = 16 << 20, longestHello = 1 << 20; ///< bytes; of a process that is not known yet

/// What is known of a rank.
struct Rank {
  std::string stages, host; ///< "stage 1, replica 0"
  long long count = 0;
  int phase = 0;
  std::string action = "-";
  double since = 0, heardAt = 0; ///< when the action began; when it was told
  bool over = false;
};

struct Client {
  int socket = -1;
  std::string buffer;
  std::vector<int> ranks;
  pid_t process = 0;
  std::string host;
  std::string hash, build;
  std::string variable; ///< of the environment, by which it has its ranks
  bool ended = false;   ///< it has said goodbye
};

class Supervisor {
public:
  Supervisor(const SupervisorOptions& options, Diagnostics& diags) : options_(options), diags_(diags) {}
  ~Supervisor() {
    for (const Client& client : clients_) ::close(client.socket);
    for (int file : {listener_, signals_, launcherSays_})
      if (file >= 0) ::close(file);
    if (masked_) pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  Expected<RunEnding> run(Command command);

private:
  Status listen(Command& command);
  Status startLauncher(Command command);
  void hearLauncher();
  RunEnding ending();
  void onSignal();
  void onChild();
  void accept();
  /// False: the connection is over.
  bool read(Client& client);
  void take(Client& client, const std::string& line);
  void hello(Client& client, const pdcrt::HelloLine& line);
  void beat(const Client& client, const pdcrt::BeatLine& line);
  void bye(Client& client, int code);
  bool refuse(const Client& client, const Client& other);
  bool isTwice(const Client& client, const pdcrt::HelloLine& line, const Client& other);
  void gone(const Client& client);
  void watch();
  bool endsForWantOfRanks(double time);
  void lose(const std::string& what, const std::string& help);
  void tellAll(const std::string& line) const;
  std::string describe(int rank) const;
  std::string doing(const Rank& rank) const;
  std::string missing() const;
  std::vector<std::string> present() const;
  static std::string processOf(const Client& client);
  void end();

  const SupervisorOptions& options_;
  Diagnostics& diags_;
  int listener_ = -1, signals_ = -1, launcherSays_ = -1;
  LauncherOutput launcherOutput_;
  sigset_t before_{};
  bool masked_ = false;
  std::string token_;
  pid_t child_ = 0;
  bool childEnded_ = false;
  int childCode_ = 0;

  std::list<Client> clients_;
  std::map<int, Rank> ranks_;
  bool started_ = false;  ///< all ranks are there
  bool trained_ = false;  ///< one of them at least
  double progressAt_ = 0; ///< when a rank last got on
  double loopedAt_ = 0, wokeAt_ = 0;
  int signalsSeen_ = 0;
  int saidCode_ = 0; ///< with which a rank has said that it ends
  int done_ = 0;     ///< ranks that have said that all is done
  bool lost_ = false;
  double endAt_ = 0; ///< what is left is killed then; 0: nothing is to be
  bool terminated_ = false;
};

/// "rank 1 (stage 1, replica 0) on alpha".
std::string Supervisor::describe(int rank) const {
  const Rank& known = ranks_.at(rank);
  return "rank " + std::to_string(rank) + " (" + known.stages + ") on " + known.host;
}

/// To stderr, after what the diagnostics have written there.
void say(const std::string& text) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t count = ::write(STDERR_FILENO, text.data() + done, text.size() - done);
    if (count < 0 && errno != EINTR) return;
    done += count > 0 ? static_cast<std::size_t>(count) : 0;
  }
}

std::string seconds(double value) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(1) << value << " s";
  return text.str();
}

/// "in '1F3' for 0.2 s".
std::string Supervisor::doing(const Rank& rank) const {
  if (rank.action == "-") return "it had not begun to train";
  return "it was in '" + rank.action + "', begun " + seconds(now() - rank.since) + " ago";
}

/// The ranks that have not been heard of: "rank 1", "ranks 1, 3".
std::string Supervisor::missing() const {
  std::string text;
  int count = 0;
  for (int rank = 0; rank < options_.ranks; ++rank)
    if (!ranks_.contains(rank)) text += (count++ ? ", " : "") + std::to_string(rank);
  return (count == 1 ? "rank " : "ranks ") + text;
}

/// Those that have: "rank 0 (stage 0, replica 0) on alpha, process 12 (by RANK)".
std::vector<std::string> Supervisor::present() const {
  std::vector<std::string> list;
  for (const Client& client : clients_)
    if (!client.ranks.empty()) list.push_back(describe(client.ranks[0]) + ", " + processOf(client) + ", is there");
  return list;
}

std::string Supervisor::processOf(const Client& client) {
  return "process " + std::to_string(client.process) + (client.variable.empty() ? "" : " (by " + client.variable + ")");
}

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
  if (++signalsSeen_ > 1 || !started_) { // the second time it means it
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

/// Whether a second process says that it is a rank, which is told once.
bool Supervisor::isTwice(const Client& client, const pdcrt::HelloLine& line, const Client& other) {
  if (other.ended || lost_ || saidCode_ != 0) return false;
  for (const pdcrt::HelloLine::Rank& rank : line.ranks) {
    if (std::find(other.ranks.begin(), other.ranks.end(), rank.number) == other.ranks.end()) continue;
    diags_.error({}).help("leave out of the environment what names ranks, RANK and WORLD_SIZE for instance")
        << "two processes are rank " << rank.number << ": " << processOf(other) << " on " << other.host << ", and "
        << processOf(client) << " on " << client.host;
    saidCode_ = 1;
    endAt_ = now();
    return true;
  }
  return false;
}

/// Whether two processes cannot train together, which is told once.
bool Supervisor::refuse(const Client& client, const Client& other) {
  const bool builds = client.build != other.build;
  if ((!builds && client.hash == other.hash) || lost_ || saidCode_ != 0) return false;
  const std::string& ofClient = builds ? client.build : client.hash;
  const std::string& ofOther = builds ? other.build : other.hash;
  diags_.error({}).help(builds ? "build the folder on all machines with the same pdc and the same compiler"
                               : "build the folder again on all machines, and start all ranks with the same flags")
      << describe(client.ranks[0]) << (builds ? " is the build " : " has a plan, schedule or flags with the hash ")
      << ofClient << ", " << describe(other.ranks[0]) << (builds ? " is " : " has ") << ofOther;
  saidCode_ = 1;
  endAt_ = now();
  return true;
}

void Supervisor::gone(const Client& client) {
  if (client.ended || client.ranks.empty() || lost_ || saidCode_ != 0 || endAt_ > 0) return;
  std::string what = describe(client.ranks[0]);
  if (client.ranks.size() > 1)
    what = "the process of " + std::to_string(client.ranks.size()) + " ranks on " + ranks_[client.ranks[0]].host;
  // One that has not been heard of may have been the first to go, and the launcher have ended others.
  std::string others;
  for (int rank = 0; rank < options_.ranks; ++rank)
    if (!ranks_.contains(rank))
      others += (others.empty() ? "; or it was ended because of rank " : ", rank ") + std::to_string(rank) +
                " (not heard of yet)";
  lose(what + " is gone; " + doing(ranks_[client.ranks[0]]) + others,
       "look for what ended it there: memory (dmesg), a signal, a machine that went down; run again with --resume");
}

void Supervisor::watch() {
  const double time = now();
  if (time - loopedAt_ > silence) progressAt_ = wokeAt_ = time; // this process was stopped itself
  loopedAt_ = time;
  if (lost_ || saidCode_ != 0 || endsForWantOfRanks(time) || !started_) return;
  const double limit = options_.watchdogSeconds + beatEvery; // what was heard last may be a beat old
  for (const auto& [number, rank] : ranks_)
    if (const double silent = time - std::max(rank.heardAt, wokeAt_); !rank.over && silent > std::max(limit, silence))
      return lose(describe(number) + " has not been heard of for " + seconds(silent) + "; " + doing(rank),
                  "look whether its machine can be reached; if it may pause so long, raise --watchdog; else run again "
                  "with --resume");
  if (time - progressAt_ < limit) return;
  int culprit = -1;
  double worst = -1;
  for (const auto& [number, rank] : ranks_) {
    if (rank.over) continue;
    if (rank.phase != static_cast<int>(pdcrt::RunPhase::training))
      return; // weights, checkpoints and evaluations take the time they take
    const bool silent = time - rank.heardAt > silence, waits = rank.action[0] == '?';
    const double guilt = (silent ? 1e12 : waits ? 0 : 1e6) + (time - rank.since);
    if (guilt > worst) culprit = number;
    worst = std::max(worst, guilt);
  }
  if (culprit < 0) return;
  const Rank& rank = ranks_[culprit];
  const bool silent = time - rank.heardAt > silence;
  lose("nothing has moved for " + seconds(time - progressAt_) + "; " + describe(culprit) +
           (silent ? " has not been heard of for " + seconds(time - rank.heardAt) : " seems to hang") + "; " +
           doing(rank),
       "if a step may take so long, raise --watchdog; else run again with --resume");
}

/// Whether ranks do not come, or do not find each other, which is told once.
bool Supervisor::endsForWantOfRanks(double time) {
  if (time - progressAt_ < options_.startSeconds || childEnded_) return false;
  const std::string within = " within " + seconds(options_.startSeconds), help = "PDC_PATIENCE=SECONDS waits longer";
  if (!started_) {
    Diagnostic diagnostic{.message = missing() + " of " + std::to_string(options_.ranks) + " did not come" + within,
                          .notes = present(),
                          .helps = {"look at what the launcher says, and at its machines; " + help}};
    diags_.report(diagnostic);
    saidCode_ = again;
    tellAll("stop");
    endAt_ = now() + patience;
    return true;
  }
  for (const auto& [number, rank] : ranks_)
    if (!rank.over && rank.phase == static_cast<int>(pdcrt::RunPhase::joining)) {
      lose(describe(number) + " has not found the others" + within,
           "let the machines connect to each other; with several networks, name the one to use: "
           "OMPI_MCA_btl_tcp_if_include=NETWORK; " +
               help);
      return true;
    }
  return false;
}

/// Tells what was lost, once, and lets the others end.
void Supervisor::lose(const std::string& what, const std::string& help) {
  lost_ = true;
  std::string others;
  for (const auto& [number, rank] : ranks_)
    if (!rank.over) others += (others.empty() ? "" : ", ") + std::to_string(number) + " in '" + rank.action + "'";
  diags_.error({})
          .note("ranks and their actions, as last heard: " + others)
          .note("what they did before is in " + options_.recordings + "/flight-rank*.json")
          .help(help)
      << what;
  tellAll("stop");
  endAt_ = now() + patience;
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

} // namespace

Expected<RunEnding> pdc::supervise(const Command& command, const SupervisorOptions& options, Diagnostics& diags) {
  return Supervisor(options, diags).run(command);
}
