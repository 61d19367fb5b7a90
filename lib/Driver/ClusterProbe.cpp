// `pipeline --link` on two ranks: of one machine, and of two.
#include "OutputFolder.h"
#include "pdc/Analysis/Profile.h"
#include "pdc/Driver/Doctor.h"
#include "pdc/Driver/Launch.h"
#include "pdc/Plan/Cluster.h"
#include "pdc/Support/DiagnosticsBuilder.h"
#include "pdc/Support/JsonReader.h"
#include "pdcrt/WriteFile.h"

#include <algorithm>
#include <charconv>
#include <ostream>
#include <sstream>

using namespace pdc;

namespace {

struct Host {
  std::string name;
  std::int64_t slots = 1;
};

/// Lines "NAME slots=N"; what follows # is for people.
Expected<std::vector<Host>> readHosts(const std::string& path, Diagnostics& diags) {
  const Expected<std::string> text = readFile(path, diags);
  if (!text) return failure;
  std::vector<Host> hosts;
  std::istringstream lines(*text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    std::istringstream words(line.substr(0, line.find('#')));
    Host host;
    if (!(words >> host.name)) continue;
    for (std::string word; words >> word;) {
      if (!word.starts_with("slots=")) continue;
      const auto [end, problem] = std::from_chars(word.data() + 6, word.data() + word.size(), host.slots);
      if (problem != std::errc() || end != word.data() + word.size() || host.slots < 1)
        return diags.error({.file = path, .line = number}) << "'" << word << "' is not slots=N with N > 0";
    }
    hosts.push_back(host);
  }
  if (hosts.empty())
    return diags.error({.file = path}).help("write a line for each: NAME slots=N") << "names no machine";
  for (const Host& host : hosts)
    if (host.slots != hosts[0].slots)
      return diags.error({.file = path}) << "'" << host.name << "' has " << host.slots << " slots, '" << hosts[0].name
                                         << "' has " << hosts[0].slots << ": a cluster file describes equal machines";
  return hosts;
}

/// What `pipeline --link` writes with these flags on so many ranks of `hosts`.
Expected<JsonDocument> linkOf(const std::string& folder, const std::string& hosts, std::int64_t ranks,
                              const std::vector<std::string>& flags, Diagnostics& diags) {
  const std::string result = folder + "/link.json";
  Command command = mpiCommand();
  command.words.insert(command.words.end(),
                       {"--host", hosts, "-n", std::to_string(ranks), folder + "/out/pipeline", "--link", result});
  command.words.insert(command.words.end(), flags.begin(), flags.end());
  command.log = folder + "/link.log";
  const Expected<int> code = run(command, diags);
  if (!code) return failure;
  const Expected<std::string> text = *code == 0 ? readFile(result, diags) : readFile(command.log, diags);
  if (*code != 0)
    return diags.error({}).note(text ? *text : "").help("try mpirun --host " + hosts + " hostname")
           << "messages between " << hosts << " cannot be measured: mpirun ended with " << *code;
  if (!text) return failure;
  return JsonDocument::parse(*text, result, diags);
}

/// One rank on each of two hosts, or both on one. `level` gets the link's bandwidth and latency, `device` what a byte
/// takes from its core.
Status measure(const std::string& folder, const std::string& hosts, ClusterLevel& level, DeviceKind& device,
               Diagnostics& diags) {
  const Expected<JsonDocument> document = linkOf(folder, hosts, 2, {}, diags);
  if (!document) return failure;
  const LinkProfile link = readLink(document->root());
  if (!document->ok()) return failure;
  level.latencyS = link.latencyS;
  level.bandwidthBytesPerS = link.bandwidthBytesPerS;
  device.coreSPerByte = link.coreSPerByte;
  return success;
}

/// Collectives of a team of so many neighbouring ranks of one machine.
Status measureTeam(const std::string& folder, const std::string& host, std::int64_t members, ClusterLevel& level,
                   Diagnostics& diags) {
  const std::string ranks = std::to_string(members);
  const Expected<JsonDocument> document = linkOf(folder, host + ":" + ranks, members, {"--team", ranks}, diags);
  if (!document) return failure;
  for (const auto& [key, links] : {std::pair("team_sum", &level.teamSums), {"team_exchange", &level.teamExchanges}}) {
    const LinkProfile link = readLink(document->root()[key]);
    links->push_back({members, link.latencyS, link.bandwidthBytesPerS});
  }
  return document->ok() ? Status(success) : failure;
}

} // namespace

Status pdc::measureCluster(const std::string& folder, const std::string& hostfile, const std::string& out,
                           std::ostream& text, Diagnostics& diags) {
  if (const pdcrt::Status status = pdcrt::checkWritable(out); !status) return reportFile(status, out, diags);
  const Expected<std::vector<Host>> hosts = readHosts(hostfile, diags);
  if (!hosts || !buildProject(folder, "out", {"pipeline"}, diags)) return failure;
  const Host& first = hosts->front();
  Expected<Cluster> cluster = flatCluster(first.slots, "cpu", diags);
  if (!cluster) return failure;
  cluster->levels[0].name = "machine";
  std::vector<std::pair<std::string, ClusterLevel*>> links = {{first.name + ":2", &cluster->levels[0]}};
  if (hosts->size() > 1) {
    cluster->levels.push_back({.name = "network", .count = static_cast<std::int64_t>(hosts->size())});
    links[0].second = &cluster->levels[0];
    links.emplace_back(first.name + "," + (*hosts)[1].name, &cluster->levels[1]);
  }
  for (const auto& [names, level] : links) {
    // The outermost link comes last: what its bytes take from a core counts, also for those that stay in a machine.
    if (!measure(folder, names, *level, cluster->device, diags)) return failure;
    text << level->name << ": " << names << ": " << level->bandwidthBytesPerS / 1e6 << " MB/s, "
         << level->latencyS * 1e6 << " us, " << cluster->device.coreSPerByte * 1e9 << " ms of a core for each MB\n";
  }
  ClusterLevel& machine = cluster->levels[0];
  constexpr std::int64_t mostMembers = 8; // as of the teams that --split=auto tries
  for (std::int64_t members = 2; members <= std::min(mostMembers, first.slots); ++members) {
    if (first.slots % members != 0) continue;
    if (!measureTeam(folder, first.name, members, machine, diags)) return failure;
    const TeamLink &sum = machine.teamSums.back(), &exchange = machine.teamExchanges.back();
    text << machine.name << ": teams of " << members << ": sums " << sum.bandwidthBytesPerS / 1e6 << " MB/s, "
         << sum.latencyS * 1e6 << " us; exchanges " << exchange.bandwidthBytesPerS / 1e6 << " MB/s, "
         << exchange.latencyS * 1e6 << " us\n";
  }
  if (const pdcrt::Status status = pdcrt::writeAtomically(out, toJson(*cluster)); !status)
    return reportFile(status, out, diags);
  text << "wrote " << out << ": " << hosts->size() << (hosts->size() == 1 ? " machine" : " machines") << " with "
       << first.slots << (first.slots == 1 ? " device" : " devices") << " each\n";
  return success;
}
