// What --help says of the plan, and how the texts of its flags are read.
#include "PlanFlags.h"

#include "../StandardFlags.h"

#include "pdc/Driver/CommandLine.h"
#include "pdc/Plan/PolicyText.h"
#include "pdc/Planner/OptionText.h"
#include "pdc/Schedule/ScheduleFile.h"
#include "pdc/Support/DiagnosticsBuilder.h"

#include <algorithm>
#include <numeric>

using namespace pdc;

void PlanFlags::addTo(CLI::App& app, CompileOptions& options) {
  app.option_defaults()->group("Plan");
  addMachinesTo(app, options);
  addScheduleTo(app, options);
  addReplicasTo(app, options);
  app.option_defaults()->group("Options");
}

void PlanFlags::addMachinesTo(CLI::App& app, CompileOptions& options) {
  auto* devices = app.add_option("--devices", options.devices, "number of equal devices on this machine")
                      ->check(wholeNumber(1))
                      ->type_name("N")
                      ->capture_default_str();
  app.add_option("--cluster", options.clusterFile,
                 "the machines and their links\nThe file is described in docs/Planning.md.")
      ->type_name("FILE")
      ->excludes(devices);
  app.add_option("--split", split_,
                 "divide every stage over teams of devices\nauto: the fastest of none and these, for all stages or "
                 "each; without the flag so, too, but only where measured times gain by it. tp:N: tensor "
                 "parallelism over N devices, where it pays; "
                 "tp:N,all: wherever it can be. tps:N: the same, with positions divided between layers. sp:N: sequence "
                 "parallelism, each has some of the positions. ep:N: expert parallelism, each has some of the samples, "
                 "and of the experts. none,tp:2,… gives each stage a split of its own; with --plan and without --split "
                 "the plan has them. docs/Splitting.md says how.")
      ->check([](const std::string& text) {
        return text == "auto" || teamSplitsFromText(text)
                   ? std::string()
                   : "'" + text + "' is none of none, auto, tp:N, tps:N, sp:N and ep:N with N from 2 to 1024";
      })
      ->type_name("none|auto|tp:N|tps:N|sp:N|ep:N[,...]")
      ->capture_default_str();
  app.add_option("--split-degrees", options.splitDegrees,
                 "sizes of the teams that --split=auto chooses among\nWithout it: those from 2 to 8 that divide the "
                 "devices, and 2 and 4.")
      ->delimiter(',')
      ->check(CLI::Range(2, 1024))
      ->type_name("N[,...]");
  app.add_option("--expert-loads", options.expertLoads,
                 "with ep:N, give members experts that together take as many tokens as others'\n"
                 "The metrics of a run with evaluations, or its folder. --explain tells what that brings.")
      ->type_name("METRICS.jsonl|DIR");
  app.add_option("--edge-codec", edgeCodec_,
                 "send what crosses between stages in a quarter of the bytes\nint8: all that can be; auto: where the "
                 "plan gets faster. alpha: the least magnitude of a column that stays exact (6); columns: how many may "
                 "(4). Where the model is cut then changes what is trained. docs/Planning.md says how.")
      ->check([](const std::string& text) {
        return edgeCodecChoiceFromText(text) ? std::string()
                                             : "'" + text +
                                                   "' is not none, auto or int8, with alpha=A and columns=K "
                                                   "behind commas, A at least 0 and K from 0 to 65536";
      })
      ->type_name("none|auto|int8[,alpha=A][,columns=K]")
      ->capture_default_str();
  app.add_option("--threads-per-stage", threads_,
                 "OpenMP threads of each rank's kernels\nauto: the cores of the machine, divided by the devices.")
      ->check([](const std::string& text) {
        return text == "auto" || CLI::Range(1, 1024)(text).empty()
                   ? std::string()
                   : "'" + text + "' is neither a number from 1 to 1024 nor auto";
      })
      ->type_name("N|auto")
      ->capture_default_str();
  app.add_option(
         "--profile", options.profile,
         "where costs come from: auto, measure, analytic, or a file\n"
         "auto measures on the CPU, once for a model, and estimates for CUDA. A file is what pdc-profile writes.")
      ->type_name("auto|measure|analytic|FILE")
      ->capture_default_str();
  app.add_option("--plan", options.planFile,
                 "use this plan.json instead of solving\nmodel: take the stages and the split of ONNX's annotations in "
                 "the model, those of one configuration of devices if there are several. docs/Annotations.md says how.")
      ->type_name("FILE|model[:CONFIGURATION]");
}

void PlanFlags::addScheduleTo(CLI::App& app, CompileOptions& options) {
  schedule_ = options.planner.schedule.name();
  weights_ = nameOf(options.planner.weights);
  recompute_ = nameOf(options.planner.recompute);
  app.add_option("--schedule", schedule_,
                 "order of forwards and backwards\nOne of " + scheduleNamesText() +
                     ", or a file (docs/FileFormats.md). docs/Semantics.md states what each trains.")
      ->type_name("1f1b|1f1b-flush|gpipe|2bw|zb-h1|zb-v|interleaved:V|bfs:V|FILE")
      ->capture_default_str();
  app.add_option("--microbatches", options.planner.microbatches, "minibatches per update, where the schedule flushes")
      ->check(wholeNumber(1))
      ->type_name("N");
  app.add_option("--warmup", warmup_,
                 "forwards before the first backward, per stage\n"
                 "hide: as many as hide the transfers; paper: PipeDream's; or a number for each stage.")
      ->type_name("hide|paper|N,N,...")
      ->capture_default_str();
  app.add_option("--weights", weights_, "version of the weights that a minibatch uses")
      ->check(CLI::IsMember(namesOf(weightPolicies)))
      ->type_name("stash|vertical-sync|latest")
      ->capture_default_str();
  app.add_option("--recompute", recompute_,
                 "compute results again instead of keeping them\n"
                 "none: nothing. auto: what one pass over memory gives (not for CUDA), and whole forwards where the "
                 "planner gains by it. all: whole forwards.")
      ->check(CLI::IsMember(namesOf(recomputePolicies)))
      ->capture_default_str()
      ->type_name("none|auto|all");
  app.add_option(
         "--updates", updates_,
         "when parameters are updated\n"
         "early: each as soon as its gradient is there, where the schedule allows it, which saves the memory of "
         "gradients. late: all after the backward.")
      ->check(CLI::IsMember({"early", "late"}))
      ->type_name("early|late")
      ->capture_default_str();
}

void PlanFlags::addReplicasTo(CLI::App& app, CompileOptions& options) {
  app.add_flag("--straight", options.planner.straight, "no replicated stages");
  app.add_option("--replicas", options.planner.stageReplicas,
                 "exactly these replicas of each stage: 2,1\n0: as many as the planner chooses.")
      ->delimiter(',')
      ->type_name("N,N,...");
  sync_ = nameOf(options.planner.sync);
  app.add_option("--sync", sync_,
                 "how a replicated stage reduces its gradients\n"
                 "overlap: it goes on while they are reduced. barrier: it waits.")
      ->check(CLI::IsMember(namesOf(syncPolicies)))
      ->type_name("overlap|barrier")
      ->capture_default_str();
  shard_ = nameOf(options.planner.shard);
  app.add_option("--shard", shard_,
                 "what the replicas of a stage divide\n"
                 "none: each has all of the optimizer's state. optimizer: each keeps and updates a part (ZeRO). "
                 "weights: the same of weights and gradients, under the schedule bfs:V (FSDP); weights:D: among D "
                 "replicas at a time (hybrid). auto: none or optimizer for each stage, whichever makes the best plan. "
                 "optimizer,none,… says which each stage has.")
      ->type_name("none|optimizer|weights[:D]|auto|...,...")
      ->capture_default_str();
  app.add_option("--bucket", bucket_,
                 "gradients that are reduced in one all-reduce, at most\n"
                 "Buckets are reduced while the backward goes on. Default: 8MiB.")
      ->type_name("BYTES");
  app.add_flag("--explain", options.explain, "print why this plan, and why not the others");
}

/// --schedule: a name, or a file, which leaves nothing to the flags that shape a schedule.
Status PlanFlags::applySchedule(const CLI::App& app, CompileOptions& options, Diagnostics& diags) const {
  Expected<bool> isFile = isScheduleFile(schedule_, diags);
  if (!isFile) return failure;
  if (!*isFile) {
    options.planner.schedule = schedule_;
    return success;
  }
  options.scheduleFile = schedule_;
  for (const char* flag : {"--weights", "--microbatches", "--sync", "--warmup", "--straight", "--replicas", "--shard"})
    if (app.count(flag) > 0)
      return diags.error({}).exit(ExitCode::usage).help(std::string("leave out ") + flag)
             << "the schedule in '" << schedule_ << "' decides what " << flag << " would";
  return success;
}

/// --split: of all stages, of each, or as the planner or a plan says.
void PlanFlags::applySplit(const CLI::App& app, CompileOptions& options) const {
  const bool isSaid = app.count("--split") > 0;
  options.choosesSplit = isSaid ? split_ == "auto" : !options.planFromModel;
  options.splitIsDefault = options.choosesSplit && !isSaid && options.splitDegrees.empty();
  if (options.choosesSplit || !isSaid) return;
  const std::vector<TeamSplit> splits = *teamSplitsFromText(split_); // CLI11 has checked it
  if (splits.size() == 1)
    options.split = splits.front();
  else
    options.stageSplits = splits;
}

Status PlanFlags::apply(const CLI::App& app, CompileOptions& options, Diagnostics& diags) const {
  options.lateUpdates = updates_ == "late";
  if (const std::string plan = options.planFile; plan == "model" || plan.starts_with("model:")) {
    options.planFromModel = true;
    options.planConfiguration = plan.substr(std::min(plan.size(), std::string("model:").size()));
    options.planFile.clear();
  }
  options.planner.weights = *policyNamed(weightPolicies, weights_); // CLI11 has checked the names
  options.planner.recompute = *policyNamed(recomputePolicies, recompute_);
  options.planner.sync = *policyNamed(syncPolicies, sync_);
  options.threadsPerStage = threads_ == "auto" ? 0 : std::stoi(threads_);
  applySplit(app, options);
  if (split_ != "auto" && !options.splitDegrees.empty())
    return diags.error({}).exit(ExitCode::usage).help("add --split=auto") << "--split-degrees is for --split=auto";
  options.planner.edgeCodec = *edgeCodecChoiceFromText(edgeCodec_);
  const bool isCounted = app.count("--devices") > 0 || !options.clusterFile.empty();
  const auto& replicas = options.planner.stageReplicas;
  if (!applySchedule(app, options, diags)) return failure;
  if (!isCounted && !replicas.empty())
    options.devices = std::accumulate(replicas.begin(), replicas.end(), 0,
                                      [](int sum, int stage) { return sum + std::max(stage, 1); }) /
                      options.planner.schedule->stagesPerRank * options.split.members;
  if (!isCounted && replicas.empty()) options.devices = options.split.members;
  if (!isCounted && !options.stageSplits.empty()) {
    options.devices = 0;
    for (std::size_t s = 0; s < options.stageSplits.size(); ++s)
      options.devices += options.stageSplits[s].members * (s < replicas.size() ? std::max(replicas[s], 1) : 1);
  }
  // As many as the file has ranks, or the model's configuration has devices.
  if (!isCounted && (!options.scheduleFile.empty() || options.planFromModel)) options.devices = 0;
  if (!parseShard(shard_, options.planner, diags)) return failure;
  if (!parseBucket(bucket_, options.planner, diags)) return failure;
  return parseWarmup(warmup_, options.planner, diags);
}
