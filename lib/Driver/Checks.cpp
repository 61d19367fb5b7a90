#include "Checks.h"

#include "Teams.h"
#include "pdc/Plan/PolicyText.h"
#include "pdc/Support/DiagnosticsBuilder.h"

#include <algorithm>

using namespace pdc;

Status pdc::checkPrecision(const CompileOptions& options, const Graph& main, const pdcrt::Training& training,
                           Diagnostics& diags) {
  if (options.precision == ElementType::f32) return success;
  const std::string flag = std::string("--precision=") + nameOf(options.precision);
  if (options.target == Target::cpu)
    return diags.error({}).exit(ExitCode::usage).help("add --target=cuda, or leave out " + flag)
           << flag << ": the CPU target computes in f32 only";
  for (const auto& operation : main.operations())
    if (operation->def().precision == PrecisionClass::preferLow && !operation->def().facts.takesLow)
      diags.warning(operation->location) << "'" << operation->def().name << "' stays in f32: it has no kernel in "
                                         << nameOf(options.precision);
  if (options.precision == ElementType::f16 && training.lossScale == 1 && training.lossScaleInterval == 0)
    diags.warning({}).help("--loss-scale=1024, or with a schedule that flushes --loss-scale=dynamic")
        << flag << ": gradients below 6e-8 vanish";
  return success;
}

Status pdc::checkTarget(const CompileOptions& options, Diagnostics& diags) {
  if (options.target == Target::cuda && options.debugNan)
    return diags.error({}).exit(ExitCode::usage).help("leave out --debug-nan, or --target=cuda")
           << "--debug-nan looks at memory that only the GPU sees";
  return success;
}

/// Where all stages update together, they can wait for the norm of all gradients, and learn whether all are finite.
static Status addUpNorms(Plan& plan, const PlanRequest& request, const CompileOptions& options,
                         const pdcrt::Training& training, Diagnostics& diags) {
  plan.gradientNorm = false;
  const bool clips = training.clipNorm && training.clipScope == pdcrt::ClipScope::global;
  // Who has the sum of a shard only knows neither its norm nor whether all is finite.
  const bool shards =
      training.checksGradients() &&
      std::any_of(plan.stages.begin(), plan.stages.end(), [](const PlanStage& stage) { return stage.isSharded(); });
  const bool skips = training.nonFinite == pdcrt::NonFinite::skip && plan.schedule->hasBatches;
  const bool asks = plan.stages.size() > 1 && (clips || skips || training.lossScaleInterval > 0);
  if (!asks && !shards) return success;
  plan.gradientNorm = plan.schedule->hasBatches || shards;
  if (plan.gradientNorm && request.scheduleFile && !request.scheduleFile->batch &&
      !request.scheduleFile->shape.gradientNorm)
    return diags.error({.file = options.scheduleFile}).help("print it again with the same flags and --emit=schedule")
           << (training.clipNorm                              ? "--clip-norm"
               : training.nonFinite == pdcrt::NonFinite::skip ? "--non-finite=skip"
               : training.lossScaleInterval > 0               ? "--loss-scale=dynamic"
                                                              : "--non-finite=stop")
           << " needs a schedule with a line 'gradient-norm'";
  if (plan.schedule->hasBatches || !asks || !clips) return success;
  return diags.error({})
             .exit(ExitCode::usage)
             .help("clip each stage by itself: --clip-norm=NORM,scope=stage; or update all stages together: "
                   "--schedule=2bw or 1f1b-flush, --microbatches=M")
         << "--clip-norm: under " << plan.schedule.name() << " each of the " << plan.stages.size()
         << " stages updates before the others know the norm of their gradients";
}

/// The scale with which losses are seeded must be the one that the update divides out.
static Status scaleDynamically(const Plan& plan, const pdcrt::Training& training, Diagnostics& diags) {
  if (training.lossScaleInterval == 0 || plan.schedule->flushes) return success;
  if (plan.stages.size() == 1 && plan.stages[0].warmup == 0 && !plan.schedule->hasBatches) return success;
  return diags.error({})
             .exit(ExitCode::usage)
             .help("flush after each batch: --schedule=1f1b-flush, --microbatches=M; or fix the scale: --loss-scale=S")
         << "--loss-scale=dynamic: under " << plan.schedule.name()
         << " losses are seeded before the updates that could change the scale";
}

/// Positions that count are counted over an update where that has the same minibatches in all stages.
static Status checkShares(const Plan& plan, const Graph& main, const CompileOptions& options, Diagnostics& diags) {
  const auto& inputs = main.inputs;
  if (std::none_of(inputs.begin(), inputs.end(), [](const GraphInput& input) { return input.share.has_value(); }))
    return success;
  if (plan.schedule->hasBatches) return success;
  std::string replicas;
  bool equal = true;
  for (const PlanStage& stage : plan.stages) {
    equal = equal && stage.replicas == plan.stages.front().replicas;
    replicas += (replicas.empty() ? "" : ", ") + std::to_string(stage.replicas);
  }
  if (equal) return success;
  const bool asked = std::any_of(options.losses.begin(), options.losses.end(), [](const auto& loss) {
    const auto average = loss.find("average");
    return average != loss.end() && average->second == "update";
  });
  const std::string help = "update all stages together: --schedule=1f1b-flush or 2bw, --microbatches=M; or give all "
                           "stages as many replicas: --straight, --replicas";
  if (asked)
    return diags.error({}).exit(ExitCode::usage).help(help)
           << "average=update: under " << plan.schedule.name() << " stages with " << replicas
           << " replicas update with different minibatches";
  diags.remark({}).help(help) << "the loss is a mean over each minibatch, not over the positions of an update that "
                                 "count: under "
                              << plan.schedule.name() << " stages with " << replicas
                              << " replicas update with different minibatches";
  return success;
}

/// Stages that --shard=weights leaves whole.
static void remarkOnWholeWeights(const Plan& plan, const CompileOptions& options, Diagnostics& diags) {
  if (options.planner.shard != ShardPolicy::weights) return;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    if (plan.stages[s].sharding != pdcrt::Sharding::optimizer) continue;
    const auto shared = std::ranges::find_if(plan.sharedParameters, [&](const PlanSharedParameter& parameter) {
      return parameter.stages[0] == static_cast<int>(s) && parameter.stages.size() > 1;
    });
    diags.remark({}) << "the replicas of stage " << s << " keep all of its weights"
                     << (shared == plan.sharedParameters.end()
                             ? std::string()
                             : ", because stage " + std::to_string(shared->stages[1]) + " uses '" + shared->name +
                                   "', too")
                     << "; they divide the optimizer's state";
  }
}

Status pdc::fitToTraining(Plan& plan, const PlanRequest& request, const CompileOptions& options,
                          const pdcrt::Training& training, const Graph& main, Diagnostics& diags) {
  if (!addUpNorms(plan, request, options, training, diags) || !scaleDynamically(plan, training, diags)) return failure;
  remarkOnWholeWeights(plan, options, diags);
  return checkShares(plan, main, options, diags);
}
