// Cut, schedule, passes of the stages, memory, files.
#include "Generate.h"

#include "ProgramFiles.h"
#include "StageMessages.h"
#include "Teams.h"
#include "pdc/Analysis/Profile.h"
#include "pdc/Analysis/TeamTimes.h"
#include "pdc/Memory/RankArena.h"
#include "pdc/Schedule/PlanSchedule.h"

#include <algorithm>
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
        .name = parameter.parameter->name, .bytes = parameter.type.bytes(), .stages = {}, .uses = {}});
    for (int stage : std::set<int>(parameter.useStages.begin(), parameter.useStages.end())) {
      planned.stages.push_back(stage);
      planned.uses.push_back(parameter.usesIn(stage));
    }
  }
  return result;
}

/// What its stages have of a parameter: all have the same.
Type typeIn(const std::vector<StageGraphs>& stages, const SharedParameter& shared) {
  for (const Value* value : stages[static_cast<std::size_t>(shared.owner())].training->parameterValues())
    if (value->parameter() == shared.parameter) return value->type();
  return shared.type;
}

Status runSteps(const std::vector<PipelineStep>& steps, PassContext& context, const PipelineOptions& options) {
  PassRegistry passes;
  registerStagePasses(passes);
  return runPipeline(steps, passes, context.module, context.registry, context.diags, options);
}

/// The memory of every stage, once its graph is final.
Expected<std::vector<MemoryPlan>> planMemories(const StagedPlan& staged, const GenerateOptions& options,
                                               Diagnostics& diags) {
  std::vector<MemoryPlan> memories;
  for (const StagePolicy& policy : staged.policies) {
    const StageGraphs& stage = staged.stages[static_cast<std::size_t>(policy.stage)];
    Expected<MemoryPlan> memory = planMemory(*stage.training, stage.evaluation,
                                             {.stage = policy.stage,
                                              .shared = staged.shared,
                                              .splitBackward = policy.splitBackward,
                                              .earlyUpdates = policy.earlyUpdates,
                                              .gradientsInParts = policy.gradientsInParts,
                                              .oneSlot = policy.oneSlot,
                                              .target = options.stages.target,
                                              .threads = options.threads},
                                             diags);
    if (!memory) return failure;
    memories.push_back(std::move(*memory));
  }
  return memories;
}

} // namespace

Expected<StagedPlan> pdc::stagePlan(PassContext& context, Plan plan, const GenerateOptions& options) {
  Module& module = context.module;
  std::erase_if(module.graphs, [](const auto& graph) { return graph->name().starts_with("stage"); });
  const Graph& main = *module.findGraph("main");
  const Expected<std::vector<int>> cut = stageOfGroup(plan, groupCount(main), context.diags);
  const std::vector<TeamSplit> splits = differentSplits(plan);
  if (!cut || !runSteps({splitStep(*cut, splits)}, context, options.pipeline)) return failure;

  StagedPlan staged;
  staged.plan = std::move(plan);
  staged.stages = stageGraphs(module);
  staged.shared = sharedParameters(main, *cut);
  for (SharedParameter& shared : staged.shared) shared.type = typeIn(staged.stages, shared);
  const Plan planned = staged.plan;
  describeMessages(staged.stages, staged.plan);
  if (!encodeMessages(context, planned, staged.plan, options.pipeline)) return failure;
  staged.plan.sharedParameters = sharedOf(staged.shared);
  const ScheduleFile* const file = options.scheduleFile;
  Expected<pdcrt::Schedule> schedule =
      file ? scheduleFor(staged.plan, *file, context.diags) : scheduleFor(staged.plan, context.diags);
  if (!schedule) return failure;
  staged.schedule = std::move(*schedule);
  if (file) adopt(staged.plan, *file);
  staged.policies = stagePolicies(staged.plan, staged.schedule, staged.stages, options.stages);
  return staged;
}

/// A member's bytes of the trained parameters that the team divides, where it has terms of the gradients of the others.
static std::int64_t bytesOfDividedParameters(const Graph& graph) {
  std::int64_t bytes = 0;
  for (const Value* value : graph.parameterValues()) {
    const Parameter& parameter = *value->parameter();
    if (graph.team.sums && parameter.role == ParameterRole::trained && !graph.team.formOf(parameter).isWhole())
      bytes += graph.team.typeOf(parameter).bytes();
  }
  return bytes;
}

Expected<GeneratedProgram> pdc::generate(PassContext& context, StagedPlan staged, const pdcrt::Training& training,
                                         const Provenance& provenance, const GenerateOptions& options) {
  if (!runSteps(stageSteps(staged.policies), context, options.pipeline)) return failure;
  const Expected<std::vector<MemoryPlan>> memories = planMemories(staged, options, context.diags);
  if (!memories || !verifyMessages(*memories, staged.schedule, context.diags)) return failure;
  GeneratedProgram program;
  Expected<std::vector<std::int64_t>> live =
      fillInMemory(staged.plan, staged.schedule, *memories, training, options.stages.target, context.diags);
  if (!live) return failure;
  for (std::size_t s = 0; s < staged.stages.size(); ++s) {
    const Graph& graph = *staged.stages[s].training;
    staged.plan.stages[s].teamBytes = bytesSentOverTeam(graph);
    staged.plan.stages[s].dividedBytes = bytesOfDividedParameters(graph);
  }
  program.liveBytes = std::move(*live);
  if (!addStageFiles(program, staged, *memories, provenance, options, context)) return failure;
  addCommonFiles(program, staged, training, provenance, options, context);
  program.plan = std::move(staged.plan);
  program.schedule = std::move(staged.schedule);
  return program;
}
