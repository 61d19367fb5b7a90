#include "PlanRequest.h"

#include "OutputFolder.h"
#include "Teams.h"
#include "pdc/Schedule/PipelineShape.h"
#include "pdc/Schedule/TorchCsv.h"
#include "pdc/Support/DiagnosticsBuilder.h"
#include "pdcrt/Cores.h"
#include "pdcrt/OptimizerLayout.h"

#include <algorithm>

using namespace pdc;

/// What a schedule in a file asks of the plan.
static void adoptFile(const ScheduleFile& file, PlannerOptions& planner) {
  const PipelineShape& shape = file.shape;
  planner.schedule = shape.kind;
  planner.weights = shape.weights;
  planner.microbatches = std::max<std::int64_t>(1, shape.microbatches);
  planner.sync = SyncPolicy::barrier;
  // Where ranks host several stages, the lists decide how far each is ahead.
  planner.warmupPolicy = shape.kind->stagesPerRank > 1 ? WarmupPolicy::hide : WarmupPolicy::given;
  for (const StageShape& stage : shape.stages) {
    planner.stageReplicas.push_back(stage.replicas);
    planner.warmup.push_back(stage.warmup);
    if (stage.syncDelay > 0) planner.sync = SyncPolicy::overlap;
    planner.stageShards.push_back(stage.sharding == pdcrt::Sharding::optimizer);
    if (stage.sharding == pdcrt::Sharding::weights) planner.shard = ShardPolicy::weights;
    if (stage.shardDegree > 0) planner.shardDegree = stage.shardDegree;
  }
  const bool divides = std::ranges::count(planner.stageShards, true) > 0;
  if (planner.shard == ShardPolicy::none && divides) planner.shard = ShardPolicy::automatic;
  if (planner.shard != ShardPolicy::automatic) planner.stageShards.clear();
}

/// --devices=N are on this machine, so they share its cores; an estimate is the same on every machine.
static Expected<Cluster> clusterOf(const CompileOptions& options, const ScheduleFile* file, Diagnostics& diags) {
  if (!options.clusterFile.empty()) {
    Expected<std::string> text = readFile(options.clusterFile, diags);
    if (!text) return failure;
    return clusterFromJson(*text, options.clusterFile, diags);
  }
  const std::int64_t devices =
      options.devices > 0 || !file ? options.devices : static_cast<std::int64_t>(file->hosts.size());
  Expected<Cluster> machines = flatCluster(devices, options.target == Target::cuda ? "A100-80GB" : "cpu", diags);
  if (options.target == Target::cuda || !machines) return machines;
  if (options.profile != "analytic") machines->device.cores = pdcrt::ownCores().count;
  if (machines->device.cores > 0 && devices > machines->device.cores)
    diags.remark({}) << devices << " devices share the " << machines->device.cores
                     << " cores of this machine, and their time";
  return machines;
}

/// The threads of a rank's kernels: as many as there are cores for each rank of a machine, unless a flag says how many.
static int threadsOf(const CompileOptions& options, const Cluster& machines) {
  const std::int64_t known = pdcrt::ownCores().count;
  const std::int64_t cores = std::max<std::int64_t>(machines.device.cores > 0 ? machines.device.cores : known, 1);
  const std::int64_t ranks = std::max<std::int64_t>(machines.levels[0].count, 1); // of one machine
  const std::int64_t threads = options.threadsPerStage > 0 ? options.threadsPerStage : cores / ranks;
  return static_cast<int>(std::max<std::int64_t>(threads, 1));
}

pdcrt::Schedule PlanRequest::expectedSchedule() const {
  if (scheduleFile) return scheduleFile->batch ? scheduleOfBatch(*scheduleFile->batch, {}) : scheduleFile->schedule;
  PipelineShape shape =
      straightShape(std::vector<StageShape>(static_cast<std::size_t>(planner.schedule->stagesPerRank)));
  shape.kind = planner.schedule;
  shape.microbatches = planner.schedule->hasBatches ? planner.microbatches : 0;
  for (StageShape& stage : shape.stages) stage.teamSums = teamSums;
  return buildSchedule(shape);
}

Expected<PlanRequest> pdc::planRequest(const CompileOptions& options, const pdcrt::Training& training,
                                       Diagnostics& diags) {
  PlanRequest request;
  request.planner = options.planner;
  request.planner.optimizerStatePerParameterByte = static_cast<double>(pdcrt::optimizerPieces(training).size());
  if (!options.scheduleFile.empty()) {
    Expected<ScheduleFile> file = readScheduleFile(options.scheduleFile, diags);
    if (!file) return failure;
    adoptFile(*file, request.planner);
    request.scheduleFile = std::move(*file);
  }
  Expected<Cluster> machines = clusterOf(options, request.file(), diags);
  if (!machines) return failure;
  request.devices = std::move(*machines);
  request.threads = threadsOf(options, request.devices);
  Expected<Cluster> teams = teamsOf(request.devices, options.split, diags);
  if (!teams) return failure;
  request.machines = std::move(*teams);
  request.teamSums = options.split.tokens;
  // The threads of a rank share its cores.
  if (request.machines.device.cores > 0)
    request.machines.device.cores = std::max<std::int64_t>(request.machines.device.cores / request.threads, 1);
  request.stages = {.target = options.target,
                    .lateUpdates = options.lateUpdates,
                    .checksGradients = training.checksGradients(),
                    // Off for CUDA: there, a pass over memory is a visible share of the step.
                    .computeAgain = options.target == Target::cpu && request.planner.recompute != RecomputePolicy::none,
                    .debugNan = options.debugNan};
  return request;
}
