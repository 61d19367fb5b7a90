#include "Input.h"

#include "pdc/Planner/OptionText.h"
#include "pdc/Published/PipedreamProfile.h"
#include "pdc/Support/Diagnostics.h"
#include "pdcrt/MappedFile.h"

using namespace pdc;

Expected<std::string> pdc::readInput(const std::string& path, Diagnostics& diags) {
  std::string text;
  const pdcrt::Status status = pdcrt::readText(path, text);
  if (status) return text;
  std::string message = status.message();
  if (message.starts_with(path + ": ")) message.erase(0, path.size() + 2);
  return diags.error({path}) << message;
}

std::string pdc::guessFormat(const std::string& text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos || text[first] != '{') return "pipedream";
  auto has = [&](const char* key) { return text.find(key) != std::string::npos; };
  if (has("\"TMPCs\"") || has("\"mbsInBatch\"")) return "piper";
  if (has("\"fpgaLatency\"") || has("\"maxFPGAs\"")) return "dnn-partitioning";
  return "pdc";
}

Expected<PlanInput> pdc::parseInput(const std::string& text, const std::string& format, const std::string& file,
                                    Diagnostics& diags) {
  auto asInput = [](auto parsed) -> Expected<PlanInput> {
    if (!parsed) return failure;
    return PlanInput(*std::move(parsed));
  };
  if (format == "pipedream") return asInput(pipedreamProfileFromText(text, file, diags));
  if (format == "dnn-partitioning") return asInput(dnnPartitioningFromJson(text, file, diags));
  if (format == "piper") return asInput(piperFromJson(text, file, diags));
  return asInput(costGraphFromJson(text, file, diags));
}

Expected<std::string> pdc::costModelFor(const std::string& format, const std::string& asked, Diagnostics& diags) {
  const bool ownModel = format == "dnn-partitioning" || format == "piper";
  const std::string usual = ownModel ? format : "pdc";
  if (asked.empty() || asked == usual) return usual;
  if (format == "piper" && asked == "pdc") return asked; // with menus as splits
  const bool askedForOwn = asked == "dnn-partitioning" || asked == "piper";
  if (!ownModel && !askedForOwn) return asked;
  std::string reason = "parameters, replicas and a cluster, of which a " + format + " problem says nothing";
  if (format == "piper") reason = "one cost of each node, without tensor-parallel choices";
  if (asked == "dnn-partitioning") reason = "times on CPUs and accelerators, and costs of transfers";
  if (asked == "piper") reason = "tensor-parallel choices of every node";
  return diags.error({}).exit(ExitCode::usage).help("leave --cost-model out, or take --cost-model=" + usual)
         << "the cost model '" << asked << "' does not fit the format '" << format << "': it needs " << reason;
}

static Status parseMemory(const PlaceFlags& flags, std::int64_t& bytes, Diagnostics& diags) {
  if (flags.memory.empty()) return success;
  Expected<std::int64_t> parsed = parseBytes("--memory", flags.memory, diags);
  if (!parsed) return failure;
  bytes = *parsed;
  return success;
}

Expected<Cluster> pdc::clusterFor(const PlaceFlags& flags, PlannerOptions& options, Diagnostics& diags) {
  if (!parseMemory(flags, options.memoryBytes, diags)) return failure;
  const int given = !flags.levels.empty() + !flags.cluster.empty() + (flags.devices > 0);
  if (given != 1)
    return diags.error({})
               .exit(ExitCode::usage)
               .help("give --levels=4x10e9,4x1.25e9 (COUNTxBYTES_PER_SECOND, innermost first), --devices=N "
                     "--bandwidth=B, or --cluster=FILE")
           << (given == 0 ? "there is no cluster to plan for" : "the cluster is given twice");
  if (!flags.cluster.empty()) {
    Expected<std::string> text = readInput(flags.cluster, diags);
    if (!text) return failure;
    return clusterFromJson(*text, flags.cluster, diags);
  }
  if (!flags.levels.empty()) return parseLevels(flags.levels, diags);
  if (flags.devices > 1 && flags.bandwidthBytesPerS == 0)
    return diags.error({}).exit(ExitCode::usage).help("give --bandwidth=BYTES_PER_SECOND")
           << "there is no bandwidth between " << flags.devices << " devices";
  Cluster cluster;
  cluster.levels = {{"machine", flags.devices, flags.bandwidthBytesPerS, 0}};
  cluster.device.memoryBytes = unlimitedMemoryBytes;
  return cluster;
}

/// Problems that bring their devices along have no place for a cluster.
static Status refuseCluster(const PlaceFlags& flags, const std::string& format, Diagnostics& diags) {
  if (flags.levels.empty() && flags.cluster.empty()) return success;
  return diags.error({}).exit(ExitCode::usage).help("give --devices=N and --memory=BYTES to plan for other ones")
         << (flags.levels.empty() ? "--cluster" : "--levels") << " does not fit the format '" << format
         << "', whose file says which devices there are";
}

Status pdc::applyTo(DnnPartitioningProblem& problem, const PlaceFlags& flags, Diagnostics& diags) {
  if (!refuseCluster(flags, "dnn-partitioning", diags)) return failure;
  if (flags.bandwidthBytesPerS > 0)
    return diags.error({}).exit(ExitCode::usage).help("leave --bandwidth out")
           << "--bandwidth does not fit the format 'dnn-partitioning', whose edges have costs";
  if (flags.devices > 0) problem.accelerators = flags.devices;
  std::int64_t memory = 0;
  if (!parseMemory(flags, memory, diags)) return failure;
  if (memory > 0) problem.acceleratorMemory = static_cast<double>(memory);
  return success;
}

Status pdc::applyTo(PiperProblem& problem, const PlaceFlags& flags, std::int64_t microbatches, Diagnostics& diags) {
  if (!refuseCluster(flags, "piper", diags)) return failure;
  if (flags.devices > 0) problem.devices = flags.devices;
  if (flags.bandwidthBytesPerS > 0) problem.bandwidth = flags.bandwidthBytesPerS;
  if (microbatches > 0) problem.microbatches = microbatches;
  std::int64_t memory = 0;
  if (!parseMemory(flags, memory, diags)) return failure;
  if (memory > 0) problem.memoryBytes = static_cast<double>(memory);
  return success;
}
