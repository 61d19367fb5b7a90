// Runs `pipeline --profile` on a one-stage program, one on each core that the run will use, and `pipeline --link` on
// two ranks.
#include "Measure.h"

#include "Teams.h"
#include "pdc/Driver/Launch.h"
#include "pdc/Planner/Planner.h"
#include "pdc/Support/JsonReader.h"
#include "pdcrt/MappedFile.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iterator>

using namespace pdc;
namespace fs = std::filesystem;

namespace {

/// Which graph a profile is of: the model's, or what a member of a team runs of it.
std::string profiledHash(const PassContext& context, const Provenance& provenance) {
  const Graph& main = *context.module.findGraph("main");
  return main.team.members == 1 ? provenance.modelHash : provenance.modelHash + "-" + hashOf(main);
}

/// An estimate of the module's graph, whose layouts may have been chosen after the model's hash was taken.
Profile estimateOf(const PassContext& context, const Provenance& provenance, const DeviceKind& device) {
  Profile profile = estimatedTimes(*context.module.findGraph("main"), device, provenance.version);
  profile.modelHash = profiledHash(context, provenance);
  return profile;
}

Expected<Cluster> oneDevice(Target target, Diagnostics& diags) {
  return flatCluster(1, target == Target::cuda ? "A100-80GB" : "cpu", diags);
}

/// A plan that puts everything into one stage on one device of any size, or on one team of such devices.
Expected<Plan> oneStagePlan(PassContext& context, const Provenance& provenance, const Profile& estimate,
                            const MeasureOptions& options) {
  const CostOptions costOptions = {
      .splitBackward = options.splitBackward, .target = options.target, .threads = options.threads};
  Expected<CostGraph> costs =
      costGraphOf(*context.module.findGraph("main"), provenance.model, estimate, costOptions, context.diags);
  Expected<Cluster> cluster = oneDevice(options.target, context.diags);
  if (!costs || !cluster) return failure;
  cluster->device.memoryBytes = std::int64_t{1} << 50;
  Expected<Plan> plan = planPipeline(*costs, *cluster, {}, context.diags);
  if (!plan) return failure;
  plan->modelHash = provenance.modelHash;
  // One member of a team is measured. It plays alone.
  const TeamSplit split{.members = static_cast<int>(context.module.findGraph("main")->team.members)};
  cluster->levels[0].count = split.members;
  giveDevices(*plan, split, *cluster);
  return plan;
}

/// What the generated program wrote (docs/FileFormats.md), with the names of `estimate`.
Expected<Profile> readMeasurement(const std::string& path, Profile estimate, Diagnostics& diags) {
  Expected<std::string> text = readFile(path, diags);
  if (!text) return failure;
  Expected<JsonDocument> document = JsonDocument::parse(*text, path, diags);
  if (!document) return failure;
  const JsonNode root = document->root();
  Profile profile = std::move(estimate);
  profile.source = "measured";
  profile.stepMs = root["step_ms"].nonNegative();
  if (const std::optional<JsonNode> device = root.find("device")) profile.device = device->text();
  if (const std::optional<JsonNode> clock = root.find("clock_mhz")) profile.clockMhz = clock->nonNegative();
  if (const std::optional<JsonNode> reserved = root.find("reserved_bytes")) profile.reservedBytes = reserved->bytes();
  if (const std::optional<JsonNode> sum = root.find("accumulate_ms")) profile.accumulateMs = sum->nonNegative();
  readKernelTimes(root, profile.kernels);
  profile.dataMs = root["data_ms"].nonNegative();
  const double updateMs = root["update_ms"].nonNegative();
  for (const JsonNode& node : root["groups"].elements()) {
    const auto last = static_cast<std::int64_t>(profile.groups.size()) - 1;
    GroupTimes& group =
        profile.groups[static_cast<std::size_t>(node["id"].integer(0, std::max<std::int64_t>(last, 0)))];
    group.forwardMs = node["forward_ms"].nonNegative();
    group.inputGradientMs = node["input_gradient_ms"].nonNegative();
    group.weightGradientMs = node["weight_gradient_ms"].nonNegative();
    group.spread = std::max({node["forward_spread"].nonNegative(), node["input_gradient_spread"].nonNegative(),
                             node["weight_gradient_spread"].nonNegative()});
  }
  if (!document->ok()) return failure;
  // The update is a pass over all parameters: a group's share is that of its estimate.
  for (GroupTimes& group : profile.groups)
    group.updateMs = profile.updateMs > 0 ? updateMs * group.updateMs / profile.updateMs : 0;
  profile.updateMs = updateMs;
  return profile;
}

/// The mean of what several programs measured at once.
Profile meanOf(const std::vector<Profile>& profiles) {
  Profile mean = profiles.front();
  const auto count = static_cast<double>(profiles.size());
  auto average = [&](auto timeOf) {
    double sum = 0;
    for (const Profile& profile : profiles) sum += timeOf(profile);
    return sum / count;
  };
  mean.stepMs = average([](const Profile& profile) { return profile.stepMs; });
  mean.updateMs = average([](const Profile& profile) { return profile.updateMs; });
  mean.accumulateMs = average([](const Profile& profile) { return profile.accumulateMs; });
  mean.dataMs = average([](const Profile& profile) { return profile.dataMs; });
  for (std::size_t g = 0; g < mean.groups.size(); ++g) {
    for (double GroupTimes::*time :
         {&GroupTimes::forwardMs, &GroupTimes::inputGradientMs, &GroupTimes::weightGradientMs, &GroupTimes::updateMs})
      mean.groups[g].*time = average([&](const Profile& profile) { return profile.groups[g].*time; });
    for (const Profile& profile : profiles)
      mean.groups[g].spread = std::max(mean.groups[g].spread, profile.groups[g].spread);
  }
  mean.busyCores = static_cast<std::int64_t>(profiles.size());
  return mean;
}

/// Runs the program in `folder` on `busyCores` cores at once; each measures itself.
Expected<Profile> runMeasuring(const std::string& folder, std::int64_t busyCores, const Profile& estimate,
                               Diagnostics& diags) {
  auto file = [&](std::int64_t copy, const char* kind) { return folder + "/measured-" + std::to_string(copy) + kind; };
  std::vector<int> processes;
  for (std::int64_t copy = 0; copy < busyCores; ++copy) {
    const Expected<int> process = start({{folder + "/out/pipeline", "--threads", "--dir", folder, "--data", "synthetic",
                                          "--profile", file(copy, ".json")},
                                         {{"OMP_NUM_THREADS", "1"}, {"OMP_WAIT_POLICY", "passive"}},
                                         file(copy, ".log")},
                                        /*ownGroup=*/false, diags);
    if (process) processes.push_back(*process);
  }
  bool good = processes.size() == static_cast<std::size_t>(busyCores);
  for (std::size_t copy = 0; copy < processes.size(); ++copy) {
    const Expected<int> code = waitFor(processes[copy], folder + "/out/pipeline", diags);
    if (code && *code == 0) continue;
    good = false;
    if (!code) continue;
    const Expected<std::string> said = readFile(file(static_cast<std::int64_t>(copy), ".log"), diags);
    diags.error({}).note(said ? *said : "") << "the program that measures ended with code " << *code;
  }
  if (!good) return failure;
  std::vector<Profile> profiles;
  for (std::int64_t copy = 0; copy < busyCores; ++copy) {
    Expected<Profile> profile = readMeasurement(file(copy, ".json"), estimate, diags);
    if (!profile) return failure;
    profiles.push_back(std::move(*profile));
  }
  return meanOf(profiles);
}

/// A program that can measure itself, in a folder of its own.
Expected<TemporaryFolder> buildMeasuring(PassContext& context, const Plan& plan, const pdcrt::Training& training,
                                         const Provenance& provenance, const GenerateOptions& options) {
  Expected<StagedPlan> staged = stagePlan(context, plan, options);
  if (!staged) return failure;
  Expected<GeneratedProgram> program = generate(context, std::move(*staged), training, provenance, options);
  Expected<TemporaryFolder> folder = TemporaryFolder::create(context.diags);
  if (!program || !folder || !writeOutput(folder->path(), program->files, program->weights, context.diags) ||
      !buildProject(folder->path(), "out", {"pipeline"}, context.diags))
    return failure;
  return folder;
}

/// From this share of a step on it matters when updates are made.
constexpr double leastShareOfUpdates = 0.02;

/// Adds what updates take in the middle of the backwards: that much longer those of `early` are than those without.
void addEarlyUpdates(Profile& profile, const Profile& early) {
  for (std::size_t g = 0; g < profile.groups.size(); ++g) {
    const auto backwardMs = [g](const Profile& p) {
      return p.groups[g].inputGradientMs + p.groups[g].weightGradientMs;
    };
    const double longer = std::max(0.0, backwardMs(early) - backwardMs(profile));
    GroupTimes& group = profile.groups[g];
    group.earlyUpdateMs = std::min(group.updateMs, longer + early.groups[g].updateMs); // and those behind all others
  }
}

/// What the link between two ranks of this machine does, by the transport that pdc-run will use. None where that cannot
/// be measured; then the table of known devices must do.
std::optional<LinkProfile> measureLink(const std::string& folder, Diagnostics& diags) {
  const std::string result = folder + "/link.json";
  Command command = mpiCommand();
  if (findProgram(command.words[0]).empty())
    command.words = {folder + "/out/pipeline", "--threads", "--link", result};
  else
    command.words.insert(command.words.end(), {"-n", "2", folder + "/out/pipeline", "--link", result});
  command.log = folder + "/link.log";
  Diagnostics silent(nullptr);
  const Expected<int> code = run(command, silent);
  const Expected<std::string> text = readFile(result, silent);
  if (code && *code == 0 && text)
    if (Expected<JsonDocument> document = JsonDocument::parse(*text, result, silent)) {
      const LinkProfile link = readLink(document->root());
      if (document->ok() && link.bandwidthBytesPerS > 0) return link;
    }
  const Expected<std::string> said = readFile(command.log, silent);
  diags.warning({}).note(said ? *said : "")
      << "the link between two ranks of this machine cannot be measured, the built-in table's numbers are used";
  return std::nullopt;
}

/// The file in which a measurement of this model is remembered; empty without a home.
std::string cacheFile(const std::string& modelHash, const Cluster& cluster, const MeasureOptions& options) {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  std::string folder;
  if (cache && *cache)
    folder = std::string(cache) + "/pdc";
  else if (home && *home)
    folder = std::string(home) + "/.cache/pdc";
  else
    return {};
  const std::string threads = options.threads > 1 ? "-" + std::to_string(options.threads) + "-threads" : "";
  return folder + "/profile-" + cluster.device.name + "-" + std::to_string(busyCoresOf(cluster)) + threads + "-" +
         (options.splitBackward ? "halves-" : "") + modelHash + ".json";
}

} // namespace

std::int64_t pdc::busyCoresOf(const Cluster& cluster) {
  return std::max<std::int64_t>(1, std::min(cluster.deviceCount(), cluster.device.cores));
}

Expected<Profile> pdc::measure(PassContext& context, const pdcrt::Training& training, const Provenance& provenance,
                               std::int64_t busyCores, const MeasureOptions& options, ProfilingProgress& progress) {
  const Target target = options.target;
  Expected<Cluster> cluster = oneDevice(target, context.diags);
  if (!cluster) return failure;
  Profile estimate = estimateOf(context, provenance, cluster->device);
  const bool onCores = target == Target::cpu;
  // First, because groups are timed with the algorithms that they will have. For CUDA the program itself does both.
  progress.step("timing the kernels that compute in several ways");
  if (onCores) estimate.kernels = timeKernels(context.module, options.threads);
  if (!chooseAlgorithms(context.module, estimate.kernels, "", context.diags, target)) return failure;
  Expected<Plan> plan = oneStagePlan(context, provenance, estimate, options);
  if (!plan) return failure;
  GenerateOptions program = {.stages = {.target = target,
                                        .lateUpdates = true,
                                        .checksGradients = training.checksGradients(),
                                        .splitBackward = options.splitBackward},
                             .threads = options.threads};
  progress.step("building the program that measures");
  const Expected<TemporaryFolder> folder = buildMeasuring(context, *plan, training, provenance, program);
  if (!folder) return failure;
  progress.step("measuring training steps");
  Expected<Profile> profile = runMeasuring(folder->path(), onCores ? busyCores : 1, estimate, context.diags);
  if (!profile) return failure;
  profile->splitBackward = options.splitBackward;
  progress.step("measuring transfers between two ranks");
  if (onCores) profile->link = measureLink(folder->path(), context.diags);
  if (onCores && !training.checksGradients() && profile->updateMs >= leastShareOfUpdates * profile->stepMs) {
    program.stages.lateUpdates = false;
    progress.step("building and measuring the program with early updates");
    const Expected<TemporaryFolder> other = buildMeasuring(context, *plan, training, provenance, program);
    if (!other) return failure;
    const Expected<Profile> early = runMeasuring(other->path(), busyCores, estimate, context.diags);
    if (!early) return failure;
    addEarlyUpdates(*profile, *early);
  }
  if (!onCores) {
    profile->kernels = calledOnly(profile->kernels, context.module, target);
    if (!chooseAlgorithms(context.module, profile->kernels, "", context.diags, target)) return failure;
  }
  progress.done();
  return profile;
}

bool pdc::isProfileFile(const std::string& choice) {
  std::error_code ignored;
  return choice != "auto" && choice != "measure" && choice != "analytic" && fs::exists(choice, ignored);
}

Expected<Profile> pdc::chooseProfile(const std::string& choice, PassContext& context, const pdcrt::Training& training,
                                     const Provenance& provenance, const Cluster& cluster,
                                     const MeasureOptions& options) {
  const Target target = options.target;
  const Graph& main = *context.module.findGraph("main");
  const auto groups = static_cast<std::size_t>(groupCount(main));
  if (choice == "analytic" || (choice == "auto" && target == Target::cuda))
    return estimateOf(context, provenance, cluster.device);
  const bool measured = choice == "auto" || choice == "measure";
  const std::string hash = profiledHash(context, provenance);
  const std::string cache = target == Target::cpu ? cacheFile(hash, cluster, options) : "";
  if (choice == "auto" && !cache.empty() && fs::exists(cache)) {
    Diagnostics silent(nullptr); // a file that cannot be read is no file
    if (Expected<std::string> text = readFile(cache, silent))
      if (Expected<Profile> profile = profileFromJson(*text, cache, silent))
        if (profileMismatch(*profile, hash, groups, provenance.version).empty() &&
            coversChoices(profile->kernels, context.module) &&
            chooseAlgorithms(context.module, profile->kernels, cache, silent))
          return profile;
  }
  if (!measured) {
    std::error_code ignored;
    if (!fs::exists(choice, ignored))
      return context.diags.error({.file = choice}).help("type auto, measure or analytic, or name a file of pdc-profile")
             << "No such file or directory";
    Expected<std::string> text = readFile(choice, context.diags);
    if (!text) return failure;
    Expected<Profile> profile = profileFromJson(*text, choice, context.diags);
    if (!profile) return failure;
    if (const std::string wrong = profileMismatch(*profile, hash, groups, provenance.version); !wrong.empty())
      return context.diags.error({choice, "", 0, 0}).help("measure again: --profile=measure") << wrong;
    if (options.splitBackward && !profile->splitBackward)
      return context.diags.error({choice, "", 0, 0}).help("measure again: --profile=measure, or pdc-profile --schedule")
             << "the schedule separates the halves of a backward, which the profile has as a whole";
    // Those of another target's kernels decide nothing.
    const bool ofTarget = (profile->device == "cpu") == (target == Target::cpu);
    if (!ofTarget) profile->kernels.clear();
    if (!chooseAlgorithms(context.module, profile->kernels, choice, context.diags, target)) return failure;
    return profile;
  }

  Diagnostics silent(nullptr);
  PassContext quiet{context.module, context.registry, choice == "auto" ? silent : context.diags, {}};
  ProfilingProgress progress(context.diags);
  Expected<Profile> profile = measure(quiet, training, provenance, busyCoresOf(cluster), options, progress);
  if (profile && !cache.empty()) {
    std::error_code ignored;
    fs::create_directories(fs::path(cache).parent_path(), ignored);
    if (!pdcrt::writeAtomically(cache, toJson(*profile))) return profile; // it will be measured again
  }
  if (profile || choice == "measure") return profile;
  context.diags.warning({}).note(silent.all().empty() ? "" : silent.all().front().message)
      << "the model cannot be measured here, costs are estimated";
  // What is estimated is not measured.
  if (!chooseAlgorithms(context.module, {}, "", context.diags, target)) return failure;
  return estimateOf(context, provenance, cluster.device);
}
