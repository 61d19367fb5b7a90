// A run of pdc-run while it lasts: what the supervisor knows of processes and ranks. Supervisor.cpp has the loop and
// the protocol, SupervisorJudgement.cpp what follows from what is heard, or not.
#pragma once

#include "LauncherOutput.h"
#include "pdc/Driver/Supervisor.h"
#include "pdcrt/ControlLine.h"

#include <chrono>
#include <csignal>
#include <list>
#include <map>
#include <sys/types.h>
#include <unistd.h>
#include <vector>

namespace pdc::supervision {

inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

inline constexpr int again = 75;      ///< exit code: run it again
inline constexpr double patience = 4; ///< seconds that the ranks have to end by themselves, and then by a signal

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
  double signalledAt_ = 0; ///< the first signal; 0: none
  int saidCode_ = 0;       ///< with which a rank has said that it ends
  int done_ = 0;           ///< ranks that have said that all is done
  bool lost_ = false;
  double endAt_ = 0; ///< what is left is killed then; 0: nothing is to be
  bool terminated_ = false;
};

} // namespace pdc::supervision
