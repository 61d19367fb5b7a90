// What follows from what ranks say of themselves, and from their silence.
#include "RunSupervisor.h"

#include "pdcrt/FlightRecorder.h"

#include <algorithm>
#include <iomanip>
#include <sstream>

using namespace pdc;
using namespace pdc::supervision;

namespace {

constexpr double beatEvery = 1; ///< seconds between the beats of a process
constexpr double silence = 5;   ///< seconds without a beat after which a process is called silent

std::string seconds(double value) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(1) << value << " s";
  return text.str();
}

} // namespace

/// "rank 1 (stage 1, replica 0) on alpha".
std::string Supervisor::describe(int rank) const {
  const Rank& known = ranks_.at(rank);
  return "rank " + std::to_string(rank) + " (" + known.stages + ") on " + known.host;
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
