// The story of the compiler, from the ONNX file to the folder of stage programs.
#include "pdc/Driver/Compile.h"

#include "BatchProbe.h"
#include "Generate.h"
#include "InitialWeights.h"
#include "Measure.h"
#include "TrainedModel.h"
#include "pdc/CodeGen/BuildFiles.h"
#include "pdc/Driver/Launch.h"
#include "pdc/IR/Builder.h"
#include "pdc/IR/Text.h"
#include "pdc/Ops/AllOps.h"
#include "pdc/Plan/ScheduleName.h"
#include "pdc/Planner/Explain.h"
#include "pdcrt/MappedFile.h"
#include "pdcrt/Threads.h"

#include <algorithm>
#include <filesystem>
#include <iomanip>
#include <ostream>
#include <sstream>
#include <thread>

using namespace pdc;
namespace fs = std::filesystem;

/// How far the plan may be from the best one.
static std::string certificate(const Plan& plan) {
  if (plan.optimal) return "proven optimal";
  if (plan.lowerBoundMs <= 0) return "not compared with others";
  std::ostringstream text;
  text << std::fixed << std::setprecision(3) << "lower bound " << plan.lowerBoundMs << " ms, gap "
       << std::setprecision(1) << 100 * plan.gap() << " %";
  return text.str();
}

namespace {

/// What holds during one compilation.
class Compilation {
public:
  Compilation(const CompileOptions& options, std::ostream& out, Diagnostics& diags)
      : options_(options), out_(out), diags_(diags), training_(options.training) {
    registerAllOps(ops_);
    registerTransforms(passes_);
    registerStagePasses(passes_);
  }

  Status compile();
  Status measureTo(const std::string& file);

private:
  Status importModel();
  Status toTrainingGraph();
  Status run(const std::vector<PipelineStep>& steps);
  Status readSchedule();
  Expected<Cluster> cluster();
  static void useThreads(const CompileOptions& options, Cluster& machines);
  Status checkPrecision();
  Status checkTarget();
  Expected<Plan> plan(const CostGraph& costs, const Cluster& cluster);
  Status addUpNorms(Plan& plan);
  Status scaleDynamically(const Plan& plan);
  void explain(const CostGraph& costs, const Cluster& cluster, const Plan& plan);
  void describeTraining();
  void describeLoss();
  Status checkShares(const Plan& plan);
  void printSummary(const GeneratedProgram& program, const Profile& profile);
  void remarkOnUnused(const Cluster& machines, const Plan& plan);

  /// Whether the output folder is written, and not only something printed.
  bool writes() const { return options_.emit.empty() || options_.emit == "source"; }
  /// Whether what one pass gives is computed again: not on a GPU, where convolutions take so little time that passes do
  /// not.
  bool computesAgain() const { return options_.target == Target::cpu && planner_.recompute != "none"; }
  /// Whether a stage with one replica updates parameters in its backwards.
  bool updatesEarly() const {
    return options_.target == Target::cpu && !options_.lateUpdates && !training_.checksGradients() &&
           planner_.schedule == "1f1b";
  }
  Graph& main() { return *module_->findGraph("main"); }
  PassContext context() { return {*module_, ops_, diags_, {}}; }

  const CompileOptions& options_;
  std::ostream& out_;
  Diagnostics& diags_;
  pdcrt::Training training_;
  BatchAxes batch_;
  PlannerOptions planner_;
  std::optional<ScheduleFile> scheduleFile_;
  std::string evaluatedLoss_; ///< what an evaluation computes of the first loss; empty: the model has its loss inside
  Provenance provenance_;
  OpRegistry ops_;
  PassRegistry passes_;
  std::unique_ptr<Module> module_;
};

Status Compilation::compile() {
  if (writes() && !options_.output.empty() && !checkOutputFolder(options_.output, diags_)) return failure;
  if (!importModel()) return failure;
  if (options_.emit == "ir") {
    out_ << print(*module_);
    return success;
  }
  if (!toTrainingGraph() || !readSchedule()) return failure;
  if (options_.emit == "training-ir") {
    out_ << print(*module_);
    return success;
  }

  PassContext passContext = context();
  Expected<Cluster> machines = cluster();
  if (!machines) return failure;
  useThreads(options_, *machines);
  if (!checkTarget()) return failure;
  Expected<Profile> profile = chooseProfile(options_.profile, passContext, training_, provenance_, *machines,
                                            splitsBackward(planner_.schedule), options_.target);
  if (!profile) return failure;
  if (profile->link && options_.clusterFile.empty()) {
    machines->levels[0].bandwidthBytesPerS = profile->link->bandwidthBytesPerS;
    machines->levels[0].latencyS = profile->link->latencyS;
    machines->device.coreSPerByte = profile->link->coreSPerByte;
  }
  if (profile->reservedBytes > 0 && options_.clusterFile.empty())
    machines->device.reservedBytes = std::min(profile->reservedBytes, machines->device.memoryBytes);
  // On a GPU, unless the host looks at gradients before it goes on.
  const bool readsAhead = options_.target == Target::cuda && !training_.checksGradients();
  Expected<CostGraph> costs = costGraphOf(main(), provenance_.model, *profile,
                                          {.splitBackward = splitsBackward(planner_.schedule),
                                           .target = options_.target,
                                           .readsAhead = readsAhead,
                                           .earlyUpdates = updatesEarly()},
                                          diags_);
  if (!costs) return failure;
  Expected<Plan> planned = plan(*costs, *machines);
  if (!planned) return failure;
  if (!addUpNorms(*planned) || !scaleDynamically(*planned) || !checkShares(*planned)) return failure;
  if (options_.explain) explain(*costs, *machines, *planned);
  if (options_.emit.empty() && options_.output.empty()) return success; // only to be explained
  if (writes() && options_.planFile.empty())
    for (const Alternative& other : runnersUp(*costs, *machines, planner_, *planned))
      planned->alternatives.push_back({other.name, other.timeMs, other.reason});

  provenance_.debugNan = options_.debugNan; // what was measured looked at nothing
  Expected<GeneratedProgram> program = generate(passContext, std::move(*planned), training_, provenance_,
                                                {.scheduleFile = scheduleFile_ ? &*scheduleFile_ : nullptr,
                                                 .lateUpdates = options_.lateUpdates,
                                                 .computeAgain = computesAgain(),
                                                 .target = options_.target,
                                                 .bucketBytes = planner_.bucketBytes});
  if (!program) return failure;
  if (options_.emit == "plan" || options_.emit == "schedule") {
    out_ << (options_.emit == "plan" ? toJson(program->plan) : pdcrt::toString(program->schedule));
    return success;
  }
  if (options_.emit == "csv") {
    Expected<std::string> csv = torchCsv(program->schedule, diags_);
    if (!csv) return failure;
    out_ << *csv;
    return success;
  }
  program->files.emplace_back("profile.json", toJson(*profile));
  const Expected<std::string> record = modelRecord(options_.model, options_.output, diags_);
  if (!record) return failure;
  program->files.emplace_back(modelPathFile, *record);
  if (!writeOutput(options_.output, program->files, program->weights, diags_)) return failure;
  printSummary(*program, *profile);
  remarkOnUnused(*machines, program->plan);
  return success;
}

Status Compilation::measureTo(const std::string& file) {
  if (pdcrt::Status status = pdcrt::checkWritable(file); !status) return reportFile(status, file, diags_);
  if (!importModel() || !toTrainingGraph()) return failure;
  pdcrt::kernelThreads = std::max(options_.threadsPerStage, 1);
  PassContext passContext = context();
  ProfilingProgress progress(diags_);
  Expected<Profile> profile = measure(passContext, training_, provenance_, options_.busyCores,
                                      splitsBackward(planner_.schedule), options_.target, progress);
  if (!profile) return failure;
  if (pdcrt::Status status = pdcrt::writeAtomically(file, toJson(*profile)); !status)
    return reportFile(status, file, diags_);
  out_ << std::fixed << std::setprecision(3) << "  forward ms  input gradient ms  weight gradient ms  group\n";
  double sum = 0;
  for (const GroupTimes& group : profile->groups) {
    out_ << std::setw(12) << group.forwardMs << std::setw(19) << group.inputGradientMs << std::setw(20)
         << group.weightGradientMs << "  " << group.name << "\n";
    sum += group.forwardMs + group.inputGradientMs + group.weightGradientMs;
  }
  for (const KernelTime& time : profile->kernels)
    out_ << std::setw(12) << time.ms << "  " << time.method << " by " << time.algorithm << " of " << time.kernel
         << "\n";
  if (profile->reservedBytes > 0)
    out_ << "beside its arena the GPU holds " << profile->reservedBytes << " bytes, which plans will reserve\n";
  out_ << "step " << profile->stepMs << " ms, sum of the groups " << sum << " ms, update " << profile->updateMs
       << " ms, reading the samples " << profile->dataMs << " ms\n";
  return success;
}

Status Compilation::run(const std::vector<PipelineStep>& steps) {
  return runPipeline(
      steps, passes_, *module_, ops_, diags_,
      {.verifyEach = true, .timePasses = options_.timePasses, .printAfter = options_.printAfter, .out = &out_});
}

Status Compilation::importModel() {
  ImportOptions import = options_.import;
  import.values = valuesOfLosses(options_.losses);
  Expected<std::unique_ptr<Module>> module = importOnnx(options_.model, import, ops_, diags_, &batch_);
  if (!module) return failure;
  const BatchProbe probe(options_, import, ops_, passes_, *(*module)->findGraph("main"), batch_);
  if (!probe.check(diags_)) return failure;
  module_ = std::move(*module);
  if (!takeInitialWeights(*module_, options_.initFrom, diags_)) return failure;
  // Raised before differentiation, because a fused backward cannot be recovered afterwards.
  if (!run({{"canonicalize", {}}, {"raise", {}}})) return failure;
  if (!drawInitialWeights(*module_, {options_.init, options_.reset}, diags_)) return failure;
  const std::string output = pdcrt::isOutputMetric(options_.metric) ? options_.metric.substr(7) : "";
  PassContext passContext = context();
  Expected<Value*> metric = output.empty() ? nullptr : scalarOutput(passContext, output);
  if (!metric) return failure;
  std::vector<PipelineStep> steps;
  for (PipelineStep& step : lossSteps(options_.losses, true)) steps.push_back(std::move(step));
  if (!run(steps)) return failure;
  if (!probe.addLabels(*module_, batch_, diags_)) return failure;
  for (const GraphOutput& result : main().outputs)
    if (result.kind == OutputKind::prediction && evaluatedLoss_.empty()) evaluatedLoss_ = result.loss;
  if (*metric)
    main().outputs.push_back({.kind = OutputKind::prediction, .value = *metric, .name = output, .parameter = nullptr});
  return run({{"canonicalize", {}}});
}

/// From here on the graph is the whole training step, in fusion groups that no cut will change.
Status Compilation::toTrainingGraph() {
  std::ostringstream scale;
  if (training_.lossScaleInterval > 0)
    scale << "dynamic";
  else
    scale << std::setprecision(17) << training_.lossScale;
  std::map<std::string, std::string> told;
  if (options_.verbose) told["remarks"] = "";
  std::vector<PipelineStep> steps;
  const bool low = options_.precision != ElementType::f32;
  if (low) {
    steps.push_back({"lower-precision", {{"type", nameOf(options_.precision)}}});
    steps.push_back({"align-classes", {}});
    steps.push_back({"merge-heads", {}});
    steps.push_back({"canonicalize", {}});
  }
  steps.push_back({"order-branches", {}});
  steps.push_back({"differentiate", {{"loss_scale", scale.str()}}});
  if (low) steps.push_back({"widen-gradients", {}});
  steps.push_back({"fuse", told});
  if (low) steps.push_back({"convert-again", {}});
  steps.push_back({"add-evaluation", {}});
  if (!checkPrecision() || !run(steps)) return failure;
  provenance_ = {options_.version, options_.command, fs::path(options_.model).filename().string(), hashOf(main())};
  // After the hash, which is the same for all targets: channels in blocks are what the CPU's convolutions want,
  // channels last are what tensor cores want.
  if (options_.target == Target::cuda) told["last"] = "";
  if (!run({{"layout", told}})) return failure;
  describeTraining();
  planner_ = options_.planner;
  planner_.optimizerStatePerParameterByte = training_.optimizer == pdcrt::OptimizerKind::sgd        ? 0
                                            : training_.optimizer == pdcrt::OptimizerKind::momentum ? 1
                                                                                                    : 2;
  return success;
}

/// What the runtime must know to read samples and to evaluate: size and axes of a minibatch, the loss and the metric
/// that suits it.
void Compilation::describeTraining() {
  bool integerLabels = false, labels = false;
  training_.batch = batch_.size;
  for (const GraphInput& input : main().inputs) {
    if (const auto axis = batch_.axes.find(input.value->name());
        axis != batch_.axes.end() && axis->second != 0 && !input.value->users().empty())
      training_.batchAxes.insert(*axis);
    if (input.kind == InputKind::label)
      labels = true, integerLabels = integerLabels || !isFloat(input.value->type().element);
  }
  describeLoss();
  if (!evaluatedLoss_.empty())
    training_.loss = evaluatedLoss_;
  else
    training_.loss = integerLabels ? "softmax-cross-entropy" : "output";
  training_.metric = !options_.metric.empty() ? options_.metric : integerLabels ? "accuracy" : labels ? "mse" : "none";
  for (const pdcrt::ParameterGroup& group : training_.groups)
    if (std::none_of(module_->parameters.begin(), module_->parameters.end(), [&](const auto& parameter) {
          return parameter->role == ParameterRole::trained &&
                 pdcrt::matches(group, parameter->name, parameter->type.rank());
        }))
      diags_.warning({.file = options_.model}).help("'pdc " + options_.model + " --emit=ir' lists their names")
          << "--param-group='" << group.match << "' matches no trained parameter";
}

/// The options of the loss that an evaluation repeats: that of the first loss operation, or what the flag says.
void Compilation::describeLoss() {
  if (evaluatedLoss_ == "nll") {
    if (const Expected<LossOptions> options = lossOptions(options_.losses.front(), diags_)) {
      training_.ignoreIndex = options->ignoreIndex;
      training_.classWeights = options->classWeights;
    }
    return;
  }
  for (const auto& operation : main().operations()) {
    if (!operation->def().facts.lossLike) continue;
    const Attributes& attributes = operation->attributes;
    if (attributes.getOr("has_ignore_index", false))
      training_.ignoreIndex = attributes.getOr<std::int64_t>("ignore_index", -100);
    training_.labelSmoothing = attributes.getOr("label_smoothing", 0.0);
    if (const auto& operands = operation->operands(); operands.size() > 2 && operands[2])
      if (const std::optional<Tensor> weights = Builder::constantValue(operands[2]))
        for (std::int64_t i = 0; i < weights->elements(); ++i) training_.classWeights.push_back(weights->asDouble(i));
    return;
  }
}

/// What a schedule in a file asks of the plan.
Status Compilation::readSchedule() {
  if (options_.scheduleFile.empty()) return success;
  Expected<ScheduleFile> file = readScheduleFile(options_.scheduleFile, diags_);
  if (!file) return failure;
  const PipelineShape& shape = file->shape;
  planner_.schedule = shape.kind;
  planner_.weights = shape.weights == pdcrt::WeightPolicy::verticalSync ? "vertical-sync"
                     : shape.weights == pdcrt::WeightPolicy::latest     ? "latest"
                                                                        : "stash";
  planner_.microbatches = std::max<std::int64_t>(1, shape.microbatches);
  planner_.sync = "barrier";
  planner_.warmupPolicy = WarmupPolicy::given;
  for (const StageShape& stage : shape.stages) {
    planner_.stageReplicas.push_back(stage.replicas);
    planner_.warmup.push_back(stage.warmup);
    if (stage.syncDelay > 0) planner_.sync = "overlap";
  }
  scheduleFile_ = std::move(*file);
  return success;
}

/// What keeps f32 though it is a product, and what f16 needs.
Status Compilation::checkPrecision() {
  if (options_.precision == ElementType::f32) return success;
  const std::string flag = std::string("--precision=") + nameOf(options_.precision);
  if (options_.target == Target::cpu)
    return diags_.error({}).exit(ExitCode::usage).help("add --target=cuda, or leave out " + flag)
           << flag << ": the CPU target computes in f32 only";
  for (const auto& operation : main().operations())
    if (operation->def().precision == PrecisionClass::preferLow && !operation->def().facts.takesLow)
      diags_.warning(operation->location)
          << "'" << operation->def().name << "' stays in f32: it has no kernel in " << nameOf(options_.precision);
  if (options_.precision == ElementType::f16 && training_.lossScale == 1 && training_.lossScaleInterval == 0)
    diags_.warning({}).help("--loss-scale=1024, or with a schedule that flushes --loss-scale=dynamic")
        << flag << ": gradients below 6e-8 vanish";
  return success;
}

Status Compilation::checkTarget() {
  if (options_.target == Target::cuda && options_.debugNan)
    return diags_.error({}).exit(ExitCode::usage).help("leave out --debug-nan, or --target=cuda")
           << "--debug-nan looks at memory that only the GPU sees";
  return success;
}

/// --devices=N are on this machine, so that they share its cores; an estimate is the same on every machine.
Expected<Cluster> Compilation::cluster() {
  if (options_.clusterFile.empty()) {
    const std::int64_t devices = options_.devices > 0 || !scheduleFile_
                                     ? options_.devices
                                     : static_cast<std::int64_t>(scheduleFile_->hosts.size());
    Expected<Cluster> machines = flatCluster(devices, options_.target == Target::cuda ? "A100-80GB" : "cpu", diags_);
    if (options_.target == Target::cuda) return machines;
    if (machines && options_.profile != "analytic")
      machines->device.cores = std::max<std::int64_t>(std::thread::hardware_concurrency(), 1);
    if (machines && machines->device.cores > 0 && devices > machines->device.cores)
      diags_.remark({}) << devices << " devices share the " << machines->device.cores
                        << " cores of this machine, and their time";
    return machines;
  }
  Expected<std::string> text = readFile(options_.clusterFile, diags_);
  if (!text) return failure;
  return clusterFromJson(*text, options_.clusterFile, diags_);
}

/// Kernels are planned, and measured, with the threads that they will have. Those of a rank share its cores.
void Compilation::useThreads(const CompileOptions& options, Cluster& machines) {
  const auto known = static_cast<std::int64_t>(std::thread::hardware_concurrency());
  const std::int64_t cores = std::max<std::int64_t>(machines.device.cores > 0 ? machines.device.cores : known, 1);
  const std::int64_t ranks = std::max<std::int64_t>(machines.levels[0].count, 1); // of one machine
  const std::int64_t threads = options.threadsPerStage > 0 ? options.threadsPerStage : cores / ranks;
  pdcrt::kernelThreads = static_cast<int>(std::max<std::int64_t>(threads, 1));
  if (machines.device.cores > 0)
    machines.device.cores = std::max<std::int64_t>(machines.device.cores / pdcrt::kernelThreads, 1);
}

Expected<Plan> Compilation::plan(const CostGraph& costs, const Cluster& cluster) {
  if (options_.planFile.empty()) {
    Expected<Plan> plan = planPipeline(costs, cluster, planner_, diags_);
    if (plan) plan->modelHash = provenance_.modelHash;
    return plan;
  }
  Expected<std::string> text = readFile(options_.planFile, diags_);
  if (!text) return failure;
  Expected<Plan> plan = planFromJson(*text, options_.planFile, diags_);
  if (!plan) return failure;
  if (plan->modelHash != provenance_.modelHash)
    return diags_.error({options_.planFile, "", 0, 0}).help("plan again: compile without --plan")
           << "the plan is for a model with hash " << plan->modelHash << ", this one has hash "
           << provenance_.modelHash;
  if (!plan->scheduleFile.empty() && !scheduleFile_)
    return diags_.error({.file = options_.planFile}).help("add --schedule=FILE, or delete \"schedule_file\" there")
           << "the schedule of this plan is in the file '" << plan->scheduleFile << "'";
  return plan;
}

/// Where all stages update together, they can wait for the norm of all gradients, and learn whether all are finite.
Status Compilation::addUpNorms(Plan& plan) {
  plan.gradientNorm = false;
  const bool clips = training_.clipNorm && training_.clipScope == pdcrt::ClipScope::global;
  const bool skips = training_.nonFinite == pdcrt::NonFinite::skip && hasBatches(plan.schedule);
  if (plan.stages.size() == 1 || !(clips || skips || training_.lossScaleInterval > 0)) return success;
  plan.gradientNorm = hasBatches(plan.schedule);
  if (plan.gradientNorm && scheduleFile_ && !scheduleFile_->batch && !scheduleFile_->shape.gradientNorm)
    return diags_.error({.file = options_.scheduleFile}).help("print it again with the same flags and --emit=schedule")
           << (clips   ? "--clip-norm"
               : skips ? "--non-finite=skip"
                       : "--loss-scale=dynamic")
           << " needs a schedule with a line 'gradient-norm'";
  if (plan.gradientNorm || !clips) return success;
  return diags_.error({})
             .exit(ExitCode::usage)
             .help("clip each stage by itself: --clip-norm=NORM,scope=stage; or update all stages together: "
                   "--schedule=2bw or 1f1b-flush, --microbatches=M")
         << "--clip-norm: under " << plan.schedule << " each of the " << plan.stages.size()
         << " stages updates before the others know the norm of their gradients";
}

/// The scale with which losses are seeded must be the one that the update divides out.
Status Compilation::scaleDynamically(const Plan& plan) {
  if (training_.lossScaleInterval == 0 || flushes(plan.schedule)) return success;
  if (plan.stages.size() == 1 && plan.stages[0].warmup == 0 && !hasBatches(plan.schedule)) return success;
  return diags_.error({})
             .exit(ExitCode::usage)
             .help("flush after each batch: --schedule=1f1b-flush, --microbatches=M; or fix the scale: --loss-scale=S")
         << "--loss-scale=dynamic: under " << plan.schedule
         << " losses are seeded before the updates that could change the scale";
}

/// Positions that count are counted over an update where that has the same minibatches in all stages.
Status Compilation::checkShares(const Plan& plan) {
  const auto& inputs = main().inputs;
  if (std::none_of(inputs.begin(), inputs.end(), [](const GraphInput& input) { return input.share.has_value(); }))
    return success;
  if (hasBatches(plan.schedule)) return success;
  std::string replicas;
  bool equal = true;
  for (const PlanStage& stage : plan.stages) {
    equal = equal && stage.replicas == plan.stages.front().replicas;
    replicas += (replicas.empty() ? "" : ", ") + std::to_string(stage.replicas);
  }
  if (equal) return success;
  const bool asked = std::any_of(options_.losses.begin(), options_.losses.end(), [](const auto& loss) {
    const auto average = loss.find("average");
    return average != loss.end() && average->second == "update";
  });
  const std::string help = "update all stages together: --schedule=1f1b-flush or 2bw, --microbatches=M; or give all "
                           "stages as many replicas: --straight, --replicas";
  if (asked)
    return diags_.error({}).exit(ExitCode::usage).help(help)
           << "average=update: under " << plan.schedule << " stages with " << replicas
           << " replicas update with different minibatches";
  diags_.remark({}).help(help) << "the loss is a mean over each minibatch, not over the positions of an update that "
                                  "count: under "
                               << plan.schedule << " stages with " << replicas
                               << " replicas update with different minibatches";
  return success;
}

void Compilation::explain(const CostGraph& costs, const Cluster& cluster, const Plan& plan) {
  out_ << "planned " << std::fixed << std::setprecision(3) << plan.timeMs << " ms per minibatch, " << certificate(plan)
       << "\n"
       << toText(explainPlan(costs, cluster, planner_, plan), plan);
}

/// A planner that leaves devices out has a reason, which nobody sees who counts on them.
void Compilation::remarkOnUnused(const Cluster& machines, const Plan& plan) {
  const std::int64_t devices = machines.deviceCount();
  const auto used = static_cast<std::int64_t>(plan.ranks.size());
  if (used >= devices || !options_.planFile.empty() || !options_.scheduleFile.empty() ||
      !planner_.stageReplicas.empty())
    return;
  const std::string help =
      used == 1 ? "--explain says why; --replicas=1,1 makes two stages all the same" : "--explain says why";
  diags_.remark({}).help(help) << used << " of " << devices << (used == 1 ? " devices is" : " devices are")
                               << " used: the planner has found no faster plan with more";
}

void Compilation::printSummary(const GeneratedProgram& program, const Profile& profile) {
  const Plan& plan = program.plan;
  out_ << "stage  replicas  groups  forward ms  backward ms  arena MiB  alive MiB\n" << std::fixed;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const PlanStage& stage = plan.stages[s];
    out_ << std::setw(5) << s << std::setw(10) << stage.replicas << std::setw(8) << stage.nodes.size() << std::setw(12)
         << std::setprecision(3) << stage.forwardMs << std::setw(13) << stage.inputGradientMs + stage.weightGradientMs
         << std::setw(11) << static_cast<double>(stage.memoryBytes) / (1024 * 1024) << std::setw(11)
         << static_cast<double>(program.liveBytes[s]) / (1024 * 1024) << "\n";
  }
  out_ << "predicted " << std::setprecision(3) << plan.timeMs << " ms per minibatch (" << plan.schedule
       << (plan.scheduleFile.empty() ? "" : ", really " + plan.scheduleFile) << ", costs " << profile.source << "), "
       << certificate(plan) << "\nnext: pdc-run " << options_.output << " --data DATA\nDATA is a folder with\n"
       << dataFilesText(main(), training_, "  ");
}

} // namespace

Status pdc::compile(const CompileOptions& options, std::ostream& out, Diagnostics& diags) {
  return Compilation(options, out, diags).compile();
}

Status pdc::measureProfile(const CompileOptions& options, const std::string& file, std::ostream& out,
                           Diagnostics& diags) {
  return Compilation(options, out, diags).measureTo(file);
}
