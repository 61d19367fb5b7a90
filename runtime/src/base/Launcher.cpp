// A variable that a launcher has set for this process is not in the launcher's own environment: /proc shows that of
// every ancestor.
#include "pdcrt/Launcher.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <limits>
#include <unistd.h>
#include <vector>

namespace pdcrt {
namespace {

struct Variables {
  const char *rank, *ranks;
};

/// In the order that decides between those that the same ancestor has set.
constexpr Variables own = {"PDC_RANK", "PDC_WORLD_SIZE"}, mpirun = {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                    pmi = {"PMI_RANK", "PMI_SIZE"}, slurm = {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},
                    olderSlurm = {"SLURM_PROCID", "SLURM_NTASKS"}, torchrun = {"RANK", "WORLD_SIZE"};

std::string text(const char* variable) {
  const char* value = std::getenv(variable);
  return value ? value : "";
}

std::optional<int> number(const char* variable) {
  const std::string value = text(variable);
  if (value.empty()) return std::nullopt;
  char* end = nullptr;
  const long parsed = std::strtol(value.c_str(), &end, 10);
  if (*end || parsed < 0 || parsed > 1 << 20) return std::nullopt;
  return static_cast<int>(parsed);
}

/// HOST:PORT; empty: nobody has named it.
std::string meetingPlace() {
  if (const std::string named = text("PDC_MASTER"); !named.empty()) return named;
  const std::string address = text("MASTER_ADDR");
  const std::optional<int> port = number("MASTER_PORT");
  return !address.empty() && port ? address + ":" + std::to_string(*port + 1) : "";
}

std::optional<LaunchedAs> read(const Variables& variables) {
  const std::optional<int> rank = number(variables.rank), ranks = number(variables.ranks);
  if (!rank || !ranks || *rank >= *ranks) return std::nullopt;
  return LaunchedAs{*rank, *ranks, variables.rank};
}

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// The parent of `process`; 0: none, or it cannot be known.
int parentOf(int process) {
  const std::string stat = contents("/proc/" + std::to_string(process) + "/stat");
  const std::size_t afterName = stat.rfind(") "); // the name may hold anything; then state and parent
  return afterName == std::string::npos || stat.size() < afterName + 5 ? 0 : std::atoi(stat.c_str() + afterName + 4);
}

/// How many ancestors further up `variable` was set to what it is: 1, the parent did not begin with it. An ancestor of
/// somebody else's, whose environment cannot be read, may have set whatever those below it have.
int distanceOfSetter(const char* variable) {
  const std::string entry = '\0' + std::string(variable) + "=" + text(variable) + '\0';
  int process = ::getppid();
  for (int distance = 1; distance < 64 && process > 0; ++distance, process = parentOf(process)) {
    const std::string environment = contents("/proc/" + std::to_string(process) + "/environ");
    if (('\0' + environment + '\0').find(entry) == std::string::npos) return distance;
  }
  return std::numeric_limits<int>::max();
}

} // namespace

bool isMpirunOfPdcRun() {
  return text("PDC_LAUNCHED_BY") == "mpirun";
}

std::optional<LaunchedAs> launchedAs() {
  if (isMpirunOfPdcRun()) return read(mpirun);
  std::vector<LaunchedAs> candidates;
  for (const Variables& variables : {own, mpirun, pmi, slurm, olderSlurm, torchrun}) {
    const std::optional<LaunchedAs> launched = read(variables);
    // A pod or a job may number itself: torchrun always says where the ranks meet, srun that it has begun a step.
    const bool isNone = (variables.rank == torchrun.rank && meetingPlace().empty()) ||
                        (variables.ranks == olderSlurm.ranks && text("SLURM_STEP_ID").empty());
    if (launched && !isNone) candidates.push_back(*launched);
  }
  if (candidates.empty()) return std::nullopt;
  if (candidates.size() == 1) return candidates[0];
  // Also where they agree: they may disagree in other ranks, and all must take the same to find each other.
  std::vector<int> distances;
  for (const LaunchedAs& candidate : candidates) distances.push_back(distanceOfSetter(candidate.by.c_str()));
  return candidates[static_cast<std::size_t>(std::min_element(distances.begin(), distances.end()) - distances.begin())];
}

std::string meetingPoint() {
  const std::optional<LaunchedAs> launched = launchedAs();
  return launched && (launched->by == own.rank || launched->by == torchrun.rank) ? meetingPlace() : "";
}

double startPatience() {
  const double seconds = std::atof(text("PDC_PATIENCE").c_str());
  return seconds >= 1 && seconds < 1e6 ? seconds : 60;
}

std::string ignoredRanks() {
  const std::optional<LaunchedAs> launched = launchedAs();
  std::string list;
  for (const Variables& variables : {own, mpirun, pmi, torchrun}) {
    if (launched && launched->by == variables.rank) continue;
    for (const char* name : {variables.rank, variables.ranks})
      if (const std::string value = text(name); !value.empty())
        list += (list.empty() ? "" : ", ") + (name + ("=" + value));
  }
  return list;
}

} // namespace pdcrt
