#include "pdc/Planner/OptionText.h"

#include "pdc/Plan/PolicyText.h"
#include "pdc/Support/Diagnostics.h"

#include <charconv>
#include <cmath>
#include <sstream>
#include <utility>

using namespace pdc;

static std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, separator);) parts.push_back(part);
  return parts;
}

/// The number that `text` begins with, and what follows it; nothing follows "" if it begins with none.
template <class Number>
static std::pair<Number, std::string> numberAndRest(const std::string& text) {
  Number number{};
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (problem != std::errc()) return {Number{-1}, text};
  return {number, text.substr(static_cast<std::size_t>(end - text.data()))};
}

Status pdc::parseWarmup(const std::string& text, PlannerOptions& planner, Diagnostics& diags) {
  planner.warmup.clear();
  if (text == "hide" || text == "paper") {
    planner.warmupPolicy = text == "hide" ? WarmupPolicy::hide : WarmupPolicy::paper;
    return success;
  }
  planner.warmupPolicy = WarmupPolicy::given;
  for (const std::string& part : split(text, ',')) {
    const auto [forwards, rest] = numberAndRest<int>(part);
    if (forwards < 0 || !rest.empty())
      return diags.error({}).exit(ExitCode::usage).help("hide, paper, or a number for each stage: --warmup=2,1,0")
             << "--warmup: '" << part << "' is not a number of forwards";
    planner.warmup.push_back(forwards);
  }
  return success;
}

Status pdc::parseShard(const std::string& text, PlannerOptions& planner, Diagnostics& diags) {
  const auto error = [&] {
    return diags.error({})
               .exit(ExitCode::usage)
               .help("one of none, optimizer, weights, weights:D and auto; or none or optimizer for each stage: "
                     "--shard=optimizer,none")
           << "--shard: expected what replicas divide, with D from 2 to 1024, got '" << text << "'";
  };
  planner.stageShards.clear();
  if (text.find(',') != std::string::npos) {
    planner.shard = ShardPolicy::automatic;
    planner.shardDegree = 0;
    for (const std::string& part : split(text, ',')) {
      const std::optional<pdcrt::Sharding> own = policyNamed(shardings, part);
      if (!own || *own == pdcrt::Sharding::weights) return error();
      planner.stageShards.push_back(*own == pdcrt::Sharding::optimizer);
    }
    return success;
  }
  const std::size_t colon = text.find(':');
  const std::optional<ShardPolicy> policy = policyNamed(shardPolicies, text.substr(0, colon));
  if (!policy) return error();
  planner.shard = *policy;
  planner.shardDegree = 0;
  if (colon == std::string::npos) return success;
  const auto [degree, rest] = numberAndRest<int>(text.substr(colon + 1));
  if (*policy != ShardPolicy::weights || degree < 2 || degree > 1024 || !rest.empty()) return error();
  planner.shardDegree = degree;
  return success;
}

Status pdc::parseBucket(const std::string& text, PlannerOptions& planner, Diagnostics& diags) {
  if (text.empty()) return success;
  const Expected<std::int64_t> bytes = parseBytes("--bucket", text, diags);
  if (!bytes) return failure;
  planner.bucketBytes = *bytes;
  return success;
}

Expected<Cluster> pdc::parseLevels(const std::string& text, Diagnostics& diags) {
  Cluster cluster;
  cluster.device.memoryBytes = unlimitedMemoryBytes;
  for (const std::string& part : split(text, ',')) {
    const auto [count, afterCount] = numberAndRest<std::int64_t>(part);
    const bool hasBandwidth = !afterCount.empty() && afterCount[0] == 'x';
    const auto [bandwidth, rest] = numberAndRest<double>(hasBandwidth ? afterCount.substr(1) : "");
    if (count < 1 || !hasBandwidth || !rest.empty() || !std::isfinite(bandwidth) || !(bandwidth > 0))
      return diags.error({}).exit(ExitCode::usage).help("innermost first: --levels=4x10e9,4x1.25e9")
             << "--levels: expected COUNTxBYTES_PER_SECOND, both above 0, got '" << part << "'";
    if (count > Cluster::mostDevices / cluster.deviceCount())
      return diags.error({}).exit(ExitCode::usage)
             << "--levels: expected at most " << Cluster::mostDevices << " devices, got more in '" << text << "'";
    cluster.levels.push_back({"level " + std::to_string(cluster.levels.size() + 1), count, bandwidth, 0});
  }
  if (cluster.levels.empty())
    return diags.error({}).exit(ExitCode::usage).help("innermost first: --levels=4x10e9,4x1.25e9")
           << "--levels: expected COUNTxBYTES_PER_SECOND, got ''";
  return cluster;
}

Expected<std::int64_t> pdc::parseBytes(const std::string& flag, const std::string& text, Diagnostics& diags) {
  static constexpr std::pair<std::string_view, double> units[] = {{"", 1},         {"kB", 1e3},     {"MB", 1e6},
                                                                  {"GB", 1e9},     {"TB", 1e12},    {"KiB", 0x1p10},
                                                                  {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};
  const auto [number, unit] = numberAndRest<double>(text);
  for (const auto& [name, factor] : units)
    if (const double bytes = number * factor; unit == name && bytes >= 1 && bytes <= 0x1p53)
      return static_cast<std::int64_t>(bytes);
  return diags.error({}).exit(ExitCode::usage).help("bytes, or with a unit: " + flag + "=16e9, " + flag + "=16GiB")
         << flag << ": expected a size of at least one byte, got '" << text << "'";
}
