#include "ProgramFiles.h"

#include "Teams.h"
#include "pdc/Analysis/Profile.h"
#include "pdc/CodeGen/BuildFiles.h"
#include "pdc/Report/Report.h"

using namespace pdc;

/// The bucket of each fusion group of the whole model.
static std::vector<int> bucketsOf(const Graph& main, std::int64_t bucketBytes) {
  std::vector<std::int64_t> bytes(static_cast<std::size_t>(groupCount(main)));
  for (const ParameterGroups& parameter : parameterGroups(main))
    if (const auto first = parameter.groups.lower_bound(0); first != parameter.groups.end())
      bytes[static_cast<std::size_t>(*first)] += parameter.type.bytes();
  return gradientBuckets(bytes, bucketBytes);
}

Status pdc::addStageFiles(GeneratedProgram& program, const StagedPlan& staged, const std::vector<MemoryPlan>& memories,
                          const Provenance& provenance, const GenerateOptions& options, PassContext& context) {
  for (std::size_t s = 0; s < memories.size(); ++s) {
    Expected<std::string> source =
        emitStage({.index = static_cast<int>(s),
                   .count = static_cast<int>(memories.size()),
                   .replicas = staged.plan.stages[s].replicas,
                   .training = staged.stages[s].training,
                   .evaluation = staged.stages[s].evaluation,
                   .memory = &memories[s],
                   .debugNan = options.stages.debugNan,
                   .target = options.stages.target,
                   .buckets = bucketsOf(mainOf(context.module, staged.plan, s), options.bucketBytes)},
                  provenance, context.diags);
    if (!source) return failure;
    const std::string name = "stage" + std::to_string(s);
    program.files.emplace_back(name + sourceSuffix(options.stages.target), std::move(*source));
    WeightsFile& weights = program.weights.emplace_back(WeightsFile{"weights/" + name + ".safetensors", {}});
    for (const auto* list : {&memories[s].parameters, &memories[s].states})
      for (const PlacedParameter& placed : *list) weights.parameters.push_back(placed.parameter);
  }
  return success;
}

void pdc::addCommonFiles(GeneratedProgram& program, const StagedPlan& staged, const pdcrt::Training& training,
                         const Provenance& provenance, const GenerateOptions& options, const PassContext& context) {
  const Plan& plan = staged.plan;
  const Target target = options.stages.target;
  program.files.emplace_back("pipeline.cpp", pipelineSource(plan, provenance));
  program.files.emplace_back("CMakeLists.txt", cmakeLists(plan, provenance, target));
  if (target == Target::cpu) program.files.emplace_back("ranks.conf", ranksFile(plan, provenance));
  program.files.emplace_back("README.txt",
                             readmeText(plan, provenance, target, *context.module.findGraph("main"), training));
  program.files.emplace_back("plan.json", toJson(plan));
  program.files.emplace_back("schedule.txt", pdcrt::toString(staged.schedule));
  program.files.emplace_back("report.html", reportHtml(plan, staged.schedule));
  program.files.emplace_back("training.json", pdcrt::toJson(training));
}
