// One thread that listens, and beats once a second.
#include "Supervision.h"

#include "pdcrt/Hash.h"
#include "pdcrt/MappedFile.h"
#include "pdcrt/WriteFile.h"
#include "transport/Transport.h"
#include "transport/tcp/Sockets.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

namespace pdcrt {
namespace {

/// Seconds without the supervisor after which it counts as gone, and without progress after which a run without it
/// ends.
double patience() {
  const char* text = std::getenv("PDC_CONTROL_PATIENCE");
  const double seconds = text ? std::atof(text) : 0;
  return seconds >= 1 && seconds < 1e6 ? seconds : 60;
}

/// Reads up to the next '\n' of `socket`, without it. False: the connection has ended.
bool readLine(int socket, std::string& line) {
  line.clear();
  for (char c;;) {
    const ssize_t count = ::read(socket, &c, 1);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    if (c == '\n') return true;
    line += c;
  }
}

/// Of the connection, for those who have no time for more; -1: there is none.
std::atomic<int> connection{-1};

/// In a signal handler.
void sayBye(int code) {
  char line[] = "bye 000\n";
  for (int place = 6; place >= 4; --place, code /= 10) line[place] = static_cast<char>('0' + code % 10);
  if (const int socket = connection; socket >= 0)
    static_cast<void>(::send(socket, line, sizeof line - 1, MSG_NOSIGNAL));
}

} // namespace

Status Supervision::connect(std::uint64_t hash, std::uint64_t build, const std::string& variable) {
  const char* address = std::getenv("PDC_CONTROL");
  const char* token = std::getenv("PDC_CONTROL_TOKEN");
  if (!address || !*address) return {};
  socket_ = connectTo(address);
  if (socket_ >= 0) setUp(socket_, patience());
  if (socket_ < 0)
    return {Exit::again, std::string("the supervisor at ") + address + " cannot be reached: " + std::strerror(errno),
            "let the machines connect to each other, or start the ranks without pdc-run"};
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  std::string hello = std::string("hello ") + (token ? token : "-") + " " + std::to_string(::getpid()) + " " + host +
                      " " + hex(hash) + "." + hex(build) + (variable.empty() ? "" : "." + variable);
  for (const FlightRecorder* recorder : recorders_) {
    hello += " " + std::to_string(recorder->rank()) + ":";
    for (std::size_t i = 0; i < recorder->hosts().size(); ++i)
      hello += (i ? "," : "") + std::to_string(recorder->hosts()[i].stage) + "." +
               std::to_string(recorder->hosts()[i].replica) +
               (recorder->member() >= 0 ? "." + std::to_string(recorder->member()) : "");
  }
  std::string line;
  if (!send(hello) || !readLine(socket_, line) || line != "go") return {Exit::again, ""}; // the supervisor says why
  connection = socket_;
  lastWords = sayBye;
  if (::pipe(wake_) != 0) return {Exit::again, std::string("no pipe: ") + std::strerror(errno)};
  // Signals are for the thread that runs the stages.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return {};
}

Supervision::~Supervision() {
  connection = -1;
  if (thread_.joinable()) {
    static_cast<void>(::write(wake_[1], "", 1));
    thread_.join();
  }
  for (int file : {socket_, wake_[0], wake_[1]})
    if (file >= 0) ::close(file);
}

void Supervision::finish(const Status& status, bool failed) {
  if (failed) record(status.message());
  if (socket_ >= 0) static_cast<void>(send("bye " + std::to_string(static_cast<int>(status.code()))));
}

void Supervision::record(const std::string& why) const {
  for (const FlightRecorder* recorder : recorders_)
    if (recorder->now().count > 0)
      static_cast<void>(
          writeAtomically(recordingOf(recordings_, recorder->rank()), recorder->toJson(pdcrt::now(), why)));
}

bool Supervision::send(const std::string& line) const {
  const std::string text = line + "\n";
  return ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
}

void Supervision::beat() const {
  for (const FlightRecorder* recorder : recorders_) {
    const FlightRecorder::Now at = recorder->now();
    const std::string action = toString(at);
    const auto since = static_cast<long long>(at.count > 0 ? (pdcrt::now() - at.since) * 1e3 : 0);
    static_cast<void>(send("beat " + std::to_string(recorder->rank()) + " " + std::to_string(at.count) + " " +
                           std::to_string(static_cast<int>(at.phase)) + " " + action + " " + std::to_string(since)));
  }
}

void Supervision::obey(const std::string& line) {
  if (line.rfind("signal ", 0) == 0) onSignal_(std::atoi(line.c_str() + 7));
  if (line != "stop") return;
  record("the supervisor has stopped the run");
  ::_exit(static_cast<int>(Exit::again)); // what waits for a rank that is gone cannot be woken
}

void Supervision::run() {
  std::string line;
  while (true) {
    beat();
    pollfd files[] = {{socket_, POLLIN, 0}, {wake_[0], POLLIN, 0}};
    if (::poll(files, 2, 1000) < 0 && errno != EINTR) return;
    if (files[1].revents) return;
    if (!files[0].revents) continue;
    if (readLine(socket_, line)) {
      obey(line);
      continue;
    }
    onSignal_(SIGHUP); // the supervisor is gone
    outlive();
    return;
  }
}

/// Without a supervisor: lets the run end as a signal does, or ends this process where nothing has moved for so long,
/// because the machine is cut off from the others. It may have stood still before it was clear that nobody answers.
void Supervision::outlive() const {
  const double begin = pdcrt::now();
  pollfd wake = {wake_[0], POLLIN, 0};
  while (true) {
    double movedAt = -std::numeric_limits<double>::infinity();
    bool trains = true;
    for (const FlightRecorder* recorder : recorders_) {
      const FlightRecorder::Now at = recorder->now();
      movedAt = std::max(movedAt, at.count > 0 ? at.since : begin);
      trains = trains && at.phase == RunPhase::training;
    }
    if (pdcrt::now() - movedAt >= patience() * (trains ? 1 : 10)) break; // the last checkpoint takes its time
    if (::poll(&wake, 1, 1000) < 0 && errno != EINTR) return;
    if (wake.revents) return;
  }
  record("the supervisor cannot be reached, and nothing moves");
  ::_exit(static_cast<int>(Exit::again));
}

} // namespace pdcrt
