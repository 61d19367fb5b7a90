// Split, plan memory, schedule, emit.
#include "Generate.h"

#include "StageMessages.h"
#include "pdc/CodeGen/BuildFiles.h"
#include "pdc/Report/Report.h"
#include "pdc/Schedule/PlanSchedule.h"
#include "pdc/Transforms/Precision.h"
#include "pdcrt/Arena.h"
#include "pdcrt/Optimizer.h"

#include <algorithm>
#include <limits>
#include <set>

using namespace pdc;

namespace {

/// Each fusion group's stage. Every group must be in one stage.
Expected<std::vector<int>> stageOfGroup(const Plan& plan, int groups, Diagnostics& diags) {
  std::vector<int> stages(static_cast<std::size_t>(groups), -1);
  for (std::size_t s = 0; s < plan.stages.size(); ++s)
    for (std::int64_t node : plan.stages[s].nodes) {
      if (node < 0 || node >= groups)
        return diags.error({}).help("compile without --plan to see the groups of this model")
               << "stage " << s << " of the plan holds node " << node << ", the model has " << groups;
      if (int& stage = stages[static_cast<std::size_t>(node)]; stage < 0)
        stage = static_cast<int>(s);
      else
        return diags.error({}) << "node " << node << " is in stages " << stage << " and " << s << " of the plan";
    }
  for (std::size_t g = 0; g < stages.size(); ++g)
    if (stages[g] < 0) return diags.error({}) << "node " << g << " of the model is in no stage of the plan";
  return stages;
}

/// Parameters of several stages, as their programs have them.
std::vector<PlanSharedParameter> sharedOf(const std::vector<SharedParameter>& shared) {
  std::vector<PlanSharedParameter> result;
  for (const SharedParameter& parameter : shared) {
    PlanSharedParameter& planned = result.emplace_back(PlanSharedParameter{
        .name = parameter.parameter->name, .bytes = parameter.parameter->type.bytes(), .stages = {}, .uses = {}});
    for (int stage : std::set<int>(parameter.useStages.begin(), parameter.useStages.end())) {
      planned.stages.push_back(stage);
      planned.uses.push_back(parameter.usesIn(stage));
    }
  }
  return result;
}

/// What is alive of the temporary memory of a rank at the worst moment: all its slots and handovers are full, and one
/// of its stages is in the middle of a phase. Or it evaluates.
std::int64_t liveBytesOf(const PlanRank& rank, const pdcrt::Schedule& schedule,
                         const std::vector<StageMemory>& memories) {
  std::int64_t kept = 0, phase = 0, evaluation = 0;
  for (const PlanRank::Host& host : rank.hosts) {
    const LiveBytes& live = memories[static_cast<std::size_t>(host.stage)].live;
    const pdcrt::ScheduleStage& shape = schedule.stages[static_cast<std::size_t>(host.stage)];
    kept += live.stashed * shape.slots;
    phase = std::max(phase, live.peak - live.stashed);
    evaluation = std::max(evaluation, live.evaluation);
  }
  return std::max(kept + phase, evaluation);
}

/// What Checkpointer takes for a rank: of replica 0 weights, optimizer and state, of others the state.
std::int64_t checkpointCopyOf(const PlanRank& rank, const std::vector<StageMemory>& memories,
                              const pdcrt::Training& training) {
  std::size_t bytes = 0;
  for (const PlanRank::Host& host : rank.hosts) {
    const pdcrt::BlockBytes& blocks = memories[static_cast<std::size_t>(host.stage)].bytes;
    bytes += blocks.state;
    if (host.replica == 0)
      bytes += blocks.weights + pdcrt::arenaBytes(blocks.weights) * pdcrt::optimizerBlocks(training);
  }
  return static_cast<std::int64_t>(bytes);
}

/// Bytes that a rank may take on its devices.
std::int64_t limitOf(const Plan& plan, const PlanRank& rank) {
  std::int64_t limit = std::numeric_limits<std::int64_t>::max();
  for (std::int64_t leaf : rank.devices) {
    const DeviceKind& device = plan.cluster.deviceAt(leaf);
    limit = std::min(limit, device.memoryBytes - device.reservedBytes);
  }
  return limit;
}

/// The arena of each rank, which is the larger of those that host a stage; the number that the program will print.
Status fillInMemory(Plan& plan, const pdcrt::Schedule& schedule, const std::vector<StageMemory>& memories,
                    const pdcrt::Training& training, Target target, std::vector<std::int64_t>& live,
                    Diagnostics& diags) {
  for (PlanStage& stage : plan.stages) stage.memoryBytes = 0;
  live.assign(plan.stages.size(), 0);
  for (const PlanRank& rank : plan.ranks) {
    std::vector<pdcrt::ArenaStage> hosted;
    for (const PlanRank::Host& host : rank.hosts) {
      const StageMemory& memory = memories[static_cast<std::size_t>(host.stage)];
      hosted.push_back({.stage = host.stage,
                        .bytes = memory.bytes,
                        .edges = memory.edges,
                        .shared = memory.shared,
                        .trainedBytes = static_cast<std::size_t>(memory.trainedBytes),
                        .optimizerBlocks = pdcrt::optimizerBlocks(training)});
    }
    const auto bytes = static_cast<std::int64_t>(pdcrt::layoutArena(schedule, hosted).bytes);
    for (pdcrt::ArenaStage& stage : hosted) stage.bytes.slot = stage.bytes.handover = stage.bytes.scratch = 0;
    const std::int64_t least =
        static_cast<std::int64_t>(pdcrt::layoutArena(schedule, hosted).bytes) + liveBytesOf(rank, schedule, memories);
    for (const PlanRank::Host& host : rank.hosts) {
      PlanStage& stage = plan.stages[static_cast<std::size_t>(host.stage)];
      stage.memoryBytes = std::max(stage.memoryBytes, bytes);
      std::int64_t& bound = live[static_cast<std::size_t>(host.stage)];
      bound = std::max(bound, least);
      const StageMemory& memory = memories[static_cast<std::size_t>(host.stage)];
      stage.reducedBytes = memory.trainedBytes;
      stage.handoverBytes = static_cast<std::int64_t>(memory.bytes.handover);
      if (!memory.earlyUpdates.empty()) stage.gradientBytes = static_cast<std::int64_t>(memory.bytes.gradients);
      stage.optimizerBytes = static_cast<std::int64_t>(pdcrt::arenaBytes(
          memories[static_cast<std::size_t>(host.stage)].bytes.weights, pdcrt::optimizerBlocks(training)));
    }
    const std::int64_t limit = limitOf(plan, rank);
    if (bytes > limit)
      return diags.error({}).exit(ExitCode::noPlan).help("allow more devices, or a smaller --batch")
             << "rank " << rank.rank << " needs " << bytes << " bytes, the device has " << limit;
    // The copy is in the memory of the host.
    const std::int64_t copy = target == Target::cpu ? checkpointCopyOf(rank, memories, training) : 0;
    if (copy > limit - bytes)
      diags.warning({}).help("allow more devices, or run without --checkpoint-dir")
          << "rank " << rank.rank << " needs " << bytes << " bytes, and " << copy
          << " more for the copy that a checkpoint is written from, the device has " << limit;
  }
  return success;
}

/// Whether other minibatches come between the halves of a backward.
bool splits(const pdcrt::Schedule& schedule) {
  auto isHalf = [](const pdcrt::Action& action) { return action.kind == pdcrt::ActionKind::backwardInput; };
  return std::any_of(schedule.ranks.begin(), schedule.ranks.end(), [&](const pdcrt::RankList& rank) {
    return std::any_of(rank.start.begin(), rank.start.end(), isHalf) ||
           std::any_of(rank.repeat.begin(), rank.repeat.end(), isHalf);
  });
}

/// Whether every minibatch of a replica of `stage` is followed by the update with its gradients, before the replica
/// computes anything else of the stage.
bool updatesFollowBackwards(const pdcrt::Schedule& schedule, int stage) {
  const pdcrt::ScheduleStage& shape = schedule.stages[static_cast<std::size_t>(stage)];
  if (shape.syncDelay > 0 || schedule.minibatchesOfUpdate(stage) != 1) return false;
  for (const pdcrt::RankList& rank : schedule.ranks) {
    std::int64_t awaited = -1; // the minibatch whose update must come next; -1: none
    auto follows = [&](const std::vector<pdcrt::Action>& list, std::int64_t later) {
      for (const pdcrt::Action& action : list) {
        if (action.stage != stage || action.wait || !pdcrt::isComputation(action.kind)) continue;
        const bool update = action.kind == pdcrt::ActionKind::update;
        if (update != (awaited >= 0) || (update && action.index + later != awaited + 1)) return false;
        awaited = -1;
        if (action.kind == pdcrt::ActionKind::backward) awaited = action.index + later;
      }
      return true;
    };
    if (!follows(rank.start, 0) || !follows(rank.repeat, 0) || !follows(rank.repeat, rank.step)) return false;
  }
  return true;
}

/// Whether replicas of `stage` have one slot, and their ranks no other stage.
bool hasOneSlot(const Plan& plan, const pdcrt::Schedule& schedule, int stage) {
  return schedule.stages[static_cast<std::size_t>(stage)].slots == 1 &&
         std::none_of(plan.ranks.begin(), plan.ranks.end(), [&](const PlanRank& rank) {
           auto isStage = [&](const PlanRank::Host& host) { return host.stage == stage; };
           return rank.hosts.size() > 1 && std::any_of(rank.hosts.begin(), rank.hosts.end(), isStage);
         });
}

/// Whether the backward of a stage may read the weights that its forward has converted: it would get the same version
/// anyway, one minibatch is in flight, and there is room for them beside what was planned.
bool keepsConversions(const Plan& plan, const pdcrt::Schedule& schedule, const StageGraphs& stage) {
  const PlanStage& planned = plan.stages[static_cast<std::size_t>(stage.stage)];
  if (planned.recompute || schedule.weights == pdcrt::WeightPolicy::latest || !hasOneSlot(plan, schedule, stage.stage))
    return false;
  const std::int64_t bytes = planned.memoryBytes + keptBytes(*stage.training);
  return std::all_of(plan.ranks.begin(), plan.ranks.end(), [&](const PlanRank& rank) {
    auto isStage = [&](const PlanRank::Host& host) { return host.stage == stage.stage; };
    return std::none_of(rank.hosts.begin(), rank.hosts.end(), isStage) || bytes <= limitOf(plan, rank);
  });
}

/// The bucket of each fusion group.
std::vector<int> bucketsOf(const Graph& training, int groups, std::int64_t bucketBytes) {
  std::vector<std::int64_t> bytes(static_cast<std::size_t>(groups));
  for (const ParameterGroups& parameter : parameterGroups(training))
    if (const auto first = parameter.groups.lower_bound(0); first != parameter.groups.end())
      bytes[static_cast<std::size_t>(*first)] += parameter.parameter->type.bytes();
  return gradientBuckets(bytes, bucketBytes);
}

} // namespace

Expected<GeneratedProgram> pdc::generate(PassContext& context, Plan plan, const pdcrt::Training& training,
                                         const Provenance& provenance, const GenerateOptions& options) {
  Module& module = context.module;
  std::erase_if(module.graphs, [](const auto& g) { return g->name() != "main" && g->name() != "evaluate"; });
  const Graph& main = *module.findGraph("main");
  int groups = 0;
  for (const auto& operation : main.operations()) groups = std::max(groups, operation->group + 1);
  const std::vector<int> buckets = bucketsOf(main, groups, options.bucketBytes);
  Expected<std::vector<int>> cut = stageOfGroup(plan, groups, context.diags);
  if (!cut) return failure;
  Expected<std::vector<StageGraphs>> stages = splitStages(context, *cut);
  if (!stages) return failure;
  for (std::size_t s = 0; s < stages->size(); ++s) {
    if (plan.stages[s].recompute) recomputeForward(*(*stages)[s].training);
    computeWeightGradientsEarly(*(*stages)[s].training,
                                /*inParts=*/options.target == Target::cpu && !options.lateUpdates);
  }
  const std::vector<SharedParameter> shared = sharedParameters(main, *cut);
  describeMessages(*stages, plan);
  plan.sharedParameters = sharedOf(shared);
  const ScheduleFile* const file = options.scheduleFile;
  Expected<pdcrt::Schedule> schedule =
      file ? scheduleFor(plan, *file, context.diags) : scheduleFor(plan, context.diags);
  if (!schedule) return failure;
  if (file) adopt(plan, *file);
  const bool splitBackward = options.splitBackward || splits(*schedule);

  std::vector<StageMemory> memories;
  for (const StageGraphs& stage : *stages) {
    // On GPUs an update is work of its own: a phase is recorded once, the learning rate of an update changes.
    const bool early = options.target == Target::cpu && !options.lateUpdates && !training.checksGradients() &&
                       updatesFollowBackwards(*schedule, stage.stage);
    const bool inParts = early && !splitBackward && !provenance.debugNan;
    if (inParts && !computeGradientsTogether(context, *stage.training)) return failure;
    // With the newest weights a backward would not get the values that its forward had.
    if (options.computeAgain && schedule->weights != pdcrt::WeightPolicy::latest &&
        !computeAgain(context, *stage.training, {.splitBackward = splitBackward}))
      return failure;
    if (keepsConversions(plan, *schedule, stage)) keepConversions(*stage.training);
    Expected<StageMemory> memory = planMemory(*stage.training, stage.evaluation,
                                              {.stage = stage.stage,
                                               .shared = shared,
                                               .splitBackward = splitBackward,
                                               .earlyUpdates = early,
                                               .gradientsInParts = inParts,
                                               .oneSlot = hasOneSlot(plan, *schedule, stage.stage),
                                               .target = options.target},
                                              context.diags);
    if (!memory) return failure;
    memories.push_back(std::move(*memory));
  }
  if (!verifyMessages(memories, *schedule, context.diags)) return failure;

  GeneratedProgram program;
  if (!fillInMemory(plan, *schedule, memories, training, options.target, program.liveBytes, context.diags))
    return failure;
  for (std::size_t s = 0; s < memories.size(); ++s) {
    Expected<std::string> source = emitStage({.index = static_cast<int>(s),
                                              .count = static_cast<int>(memories.size()),
                                              .replicas = plan.stages[s].replicas,
                                              .training = (*stages)[s].training,
                                              .evaluation = (*stages)[s].evaluation,
                                              .memory = &memories[s],
                                              .debugNan = provenance.debugNan,
                                              .target = options.target,
                                              .buckets = buckets},
                                             provenance, context.diags);
    if (!source) return failure;
    const std::string name = "stage" + std::to_string(s);
    program.files.emplace_back(name + sourceSuffix(options.target), std::move(*source));
    WeightsFile& weights = program.weights.emplace_back(WeightsFile{"weights/" + name + ".safetensors", {}});
    for (const auto* list : {&memories[s].parameters, &memories[s].states})
      for (const PlacedParameter& placed : *list) weights.parameters.push_back(placed.parameter);
  }
  program.files.emplace_back("pipeline.cpp", pipelineSource(plan, provenance));
  program.files.emplace_back("CMakeLists.txt", cmakeLists(plan, provenance, options.target));
  if (options.target == Target::cpu) program.files.emplace_back("ranks.conf", ranksFile(plan, provenance));
  program.files.emplace_back("README.txt",
                             readmeText(plan, provenance, options.target, *context.module.findGraph("main"), training));
  program.files.emplace_back("plan.json", toJson(plan));
  program.files.emplace_back("schedule.txt", pdcrt::toString(*schedule));
  program.files.emplace_back("report.html", reportHtml(plan, *schedule));
  program.files.emplace_back("training.json", pdcrt::toJson(training));
  program.plan = std::move(plan);
  program.schedule = std::move(*schedule);
  return program;
}
