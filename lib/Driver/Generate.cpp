// Split, plan memory, schedule, emit.
#include "Generate.h"

#include "pdc/CodeGen/BuildFiles.h"
#include "pdc/Report/Report.h"
#include "pdc/Schedule/PlanSchedule.h"
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

/// What crosses between the stages, as their programs have it.
std::vector<PlanTensor> crossingTensors(const std::vector<StageGraphs>& stages,
                                        const std::vector<PlanTensor>& planned) {
  std::vector<PlanTensor> tensors;
  for (const StageGraphs& stage : stages)
    for (const GraphOutput& output : stage.training->outputs)
      if (output.kind == OutputKind::sent && !output.isGradient) {
        // The planner knows whether the gradient of the loss reaches a tensor.
        const auto known = std::find_if(planned.begin(), planned.end(),
                                        [&](const PlanTensor& t) { return t.name == output.value->name(); });
        tensors.push_back({.name = output.value->name(),
                           .from = stage.stage,
                           .to = output.peer,
                           .bytes = output.value->type().bytes(),
                           .hasGradient = known == planned.end() || known->hasGradient});
      }
  std::stable_sort(tensors.begin(), tensors.end(), [](const PlanTensor& a, const PlanTensor& b) {
    return std::pair(a.from, a.to) < std::pair(b.from, b.to);
  });
  return tensors;
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

/// The arena of each rank, which is the larger of those that host a stage; the number that the program will print.
Status fillInMemory(Plan& plan, const pdcrt::Schedule& schedule, const std::vector<StageMemory>& memories,
                    const pdcrt::Training& training, Diagnostics& diags) {
  for (PlanStage& stage : plan.stages) stage.memoryBytes = 0;
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
    for (const PlanRank::Host& host : rank.hosts) {
      PlanStage& stage = plan.stages[static_cast<std::size_t>(host.stage)];
      stage.memoryBytes = std::max(stage.memoryBytes, bytes);
      stage.optimizerBytes = static_cast<std::int64_t>(pdcrt::arenaBytes(
          memories[static_cast<std::size_t>(host.stage)].bytes.weights, pdcrt::optimizerBlocks(training)));
    }
    std::int64_t limit = std::numeric_limits<std::int64_t>::max();
    for (std::int64_t leaf : rank.devices) {
      const DeviceKind& device = plan.cluster.deviceAt(leaf);
      limit = std::min(limit, device.memoryBytes - device.reservedBytes);
    }
    if (bytes > limit)
      return diags.error({}).exit(ExitCode::noPlan).help("allow more devices, or a smaller --batch")
             << "rank " << rank.rank << " needs " << bytes << " bytes, the device has " << limit;
  }
  return success;
}

} // namespace

Expected<GeneratedProgram> pdc::generate(PassContext& context, Plan plan, const pdcrt::Training& training,
                                         const Provenance& provenance, const ScheduleFile* scheduleFile) {
  Module& module = context.module;
  std::erase_if(module.graphs, [](const auto& g) { return g->name() != "main" && g->name() != "evaluate"; });
  const Graph& main = *module.findGraph("main");
  int groups = 0;
  for (const auto& operation : main.operations()) groups = std::max(groups, operation->group + 1);
  Expected<std::vector<int>> cut = stageOfGroup(plan, groups, context.diags);
  if (!cut) return failure;
  Expected<std::vector<StageGraphs>> stages = splitStages(context, *cut);
  if (!stages) return failure;
  for (std::size_t s = 0; s < stages->size(); ++s)
    if (plan.stages[s].recompute) recomputeForward(*(*stages)[s].training);

  const std::vector<SharedParameter> shared = sharedParameters(main, *cut);
  std::vector<StageMemory> memories;
  for (const StageGraphs& stage : *stages) {
    Expected<StageMemory> memory =
        planMemory(*stage.training, stage.evaluation, {.stage = stage.stage, .shared = shared}, context.diags);
    if (!memory) return failure;
    memories.push_back(std::move(*memory));
  }

  plan.tensors = crossingTensors(*stages, plan.tensors);
  plan.sharedParameters = sharedOf(shared);
  Expected<pdcrt::Schedule> schedule =
      scheduleFile ? scheduleFor(plan, *scheduleFile, context.diags) : scheduleFor(plan, context.diags);
  if (schedule && scheduleFile) adopt(plan, *scheduleFile);
  if (!schedule || !fillInMemory(plan, *schedule, memories, training, context.diags)) return failure;

  GeneratedProgram program;
  for (std::size_t s = 0; s < memories.size(); ++s) {
    Expected<std::string> source = emitStage({.index = static_cast<int>(s),
                                              .count = static_cast<int>(memories.size()),
                                              .replicas = plan.stages[s].replicas,
                                              .training = (*stages)[s].training,
                                              .evaluation = (*stages)[s].evaluation,
                                              .memory = &memories[s]},
                                             provenance, context.diags);
    if (!source) return failure;
    const std::string name = "stage" + std::to_string(s);
    program.files.emplace_back(name + ".cpp", std::move(*source));
    WeightsFile& weights = program.weights.emplace_back(WeightsFile{"weights/" + name + ".safetensors", {}});
    for (const auto* list : {&memories[s].parameters, &memories[s].states})
      for (const PlacedParameter& placed : *list) weights.parameters.push_back(placed.parameter);
  }
  program.files.emplace_back("pipeline.cpp", pipelineSource(plan, provenance));
  program.files.emplace_back("CMakeLists.txt", cmakeLists(plan, provenance));
  program.files.emplace_back("README.txt", readmeText(plan, provenance));
  program.files.emplace_back("plan.json", toJson(plan));
  program.files.emplace_back("schedule.txt", pdcrt::toString(*schedule));
  program.files.emplace_back("report.html", reportHtml(plan, *schedule));
  program.files.emplace_back("training.json", pdcrt::toJson(training));
  program.plan = std::move(plan);
  program.schedule = std::move(*schedule);
  return program;
}
