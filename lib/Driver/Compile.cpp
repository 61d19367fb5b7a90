// The story of the compiler, from the ONNX file to the folder of stage programs.
#include "pdc/Driver/Compile.h"

#include "AdapterSavings.h"
#include "AnnotatedModel.h"
#include "BatchProbe.h"
#include "Calibration.h"
#include "CapacityChoice.h"
#include "Checks.h"
#include "Costs.h"
#include "DeviceNeeds.h"
#include "Division.h"
#include "Generate.h"
#include "InitialWeights.h"
#include "Measure.h"
#include "PlanFile.h"
#include "SplitChoice.h"
#include "Summary.h"
#include "Teams.h"
#include "TrainedModel.h"
#include "TrainingRecord.h"
#include "pdc/CodeGen/BuildFiles.h"
#include "pdc/Driver/Launch.h"
#include "pdc/IR/Text.h"
#include "pdc/Import/Adapters.h"
#include "pdc/Ops/AllOps.h"
#include "pdc/Planner/Explain.h"
#include "pdc/Transforms/Capacity.h"
#include "pdc/Transforms/Pipeline.h"
#include "pdcrt/MappedFile.h"

#include <algorithm>
#include <filesystem>
#include <iomanip>
#include <ostream>
#include <set>
#include <sstream>

using namespace pdc;
namespace fs = std::filesystem;

namespace {

/// What holds during one compilation.
class Compilation {
public:
  Compilation(const CompileOptions& options, std::ostream& out, Diagnostics& diags)
      : asked_(options), options_(options), out_(out), diags_(diags), training_(options.training) {
    registerAllOps(ops_);
    registerTransforms(passes_);
  }

  Status compile();
  /// The costs of what compile() would plan.
  Expected<CostGraph> costs();
  Status measureTo(const std::string& file);
  /// To the graph that splits divide, which `offer` then plans with each of them.
  Status toUndividedGraph() { return importModel() && toTrainingGraph() ? Status(success) : failure; }
  /// What `split` makes of the graph. Nothing of it is reported.
  OfferedSplit offer(const TeamSplit& split, const Profile* whole);

private:
  // From the file to the graph of a training step.
  Status importModel();
  Status readModel();
  Status takeCapacities();
  Status addLosses();
  Status addAdapters();
  Status quantize();
  Status toTrainingGraph();
  Status run(const std::vector<PipelineStep>& steps);

  Status divideStages() {
    PassContext passContext = context();
    // The graphs that are looked at before there is a plan are those of all stages, or undivided.
    return options_.stageSplits.empty() ? divideAlike(passContext, options_.split, division()) : Status(success);
  }
  Status divideEachStage(const std::vector<TeamSplit>& splits, const std::vector<KernelTime>& times) {
    PassContext passContext = context();
    return splits.empty() ? Status(success) : divideEach(passContext, splits, times, division());
  }
  Status chooseSplit();
  /// Takes a split that was not asked for. Loads of experts are for those that divide them.
  void takeSplit(const TeamSplit& split) {
    options_.split = split;
    options_.expertLoads = split.experts ? asked_.expertLoads : "";
  }
  void addOffers(Plan& plan) const;

  // From there to programs.
  Expected<Plan> plan(const CostGraph& costs, const PlanRequest& request);
  void explain(const Costs& costs, const PlanRequest& request, const Plan& plan);
  void explainNeeds(const Costs& costs, const PlanRequest& request);
  Status write(GeneratedProgram& program, const Profile& profile);

  /// Whether the output folder is written, and not only something printed.
  bool writes() const { return options_.emit.empty() || options_.emit == "source"; }
  /// Prints `what` where --emit asks for it; then the compilation is over.
  template <class Text>
  bool emits(const char* what, Text text) {
    if (options_.emit != what) return false;
    out_ << text();
    return true;
  }
  PipelineOptions pipeline() const {
    return {.verifyEach = true, .timePasses = options_.timePasses, .printAfter = options_.printAfter, .out = &out_};
  }
  DivisionRequest division() {
    return {.options = options_, .batch = batch_, .run = [this](const auto& steps) { return run(steps); }, .out = out_};
  }
  TransformChoices choices() const;
  Graph& main() { return *module_->findGraph("main"); }
  PassContext context() { return {*module_, ops_, diags_, {}}; }

  const CompileOptions& asked_;
  CompileOptions options_; ///< with the split that was chosen
  std::ostream& out_;
  Diagnostics& diags_;
  OpRegistry ops_;
  PassRegistry passes_;
  std::unique_ptr<Module> module_;
  BatchAxes batch_;
  std::optional<BatchProbe> probe_;
  std::set<std::string> trainedBefore_; ///< the parameters that trained before there were adapters
  std::string evaluatedLoss_; ///< what an evaluation computes of the first loss; empty: the model has its loss inside
  pdcrt::Training training_;  ///< complete once the training graph is there
  Provenance provenance_;
  KeptInputs keptInputs_;            ///< of weights of 8 bits
  std::vector<OfferedSplit> offers_; ///< of --split=auto
  std::optional<StagesPlan> stages_; ///< with these for each stage
  std::optional<Profile> profile_;   ///< with which the split was chosen
  AnnotatedModel annotated_;         ///< of --plan=model and --emit=annotated-onnx
};

Status Compilation::compile() {
  if (writes() && !options_.output.empty() && !checkOutputFolder(options_.output, diags_)) return failure;
  if (!annotated_.read(options_, diags_) || !chooseSplit() || !importModel()) return failure;
  if (emits("ir", [&] { return print(*module_); })) return success;
  if (!toTrainingGraph()) return failure;
  if (emits("training-ir", [&] { return print(*module_); })) return success;
  PassContext passContext = context();
  if (!annotated_.takeSplit(passContext, options_) || !divideStages()) return failure;
  if (options_.emit == "split-ir" && !divideEachStage(options_.stageSplits, {})) return failure;
  if (emits("split-ir", [&] { return print(*module_); })) return success;

  Expected<PlanRequest> request = planRequest(options_, training_, diags_);
  if (!request || !checkTarget(options_, diags_)) return failure;
  Expected<Costs> costs =
      costsOf(passContext, options_, training_, provenance_, *request, profile_ ? &*profile_ : nullptr);
  if (!costs || (options_.planFromModel && !annotated_.constrain(costs->graph, request->planner, diags_)))
    return failure;
  if (stages_ && !options_.stageSplits.empty()) costs->graph = stages_->graph;
  if (options_.planFile.empty()) request->planner.stageSplits = asked_.stageSplits;
  Expected<Plan> planned = plan(costs->graph, *request);
  if (!planned || !fitToTraining(*planned, *request, options_, training_, main(), diags_)) return failure;
  addOffers(*planned);
  if (options_.planFile.empty()) giveDevices(*planned, options_.split, request->devices);
  if (!divideEachStage(differentSplits(*planned), costs->profile.kernels)) return failure;
  if (options_.explain) explain(*costs, *request, *planned);
  const bool onlyExplains = options_.emit.empty() && options_.output.empty();
  if (writes() && !onlyExplains && options_.planFile.empty())
    for (const Alternative& other : runnersUp(costs->graph, request->machines, request->planner, *planned))
      planned->alternatives.push_back({other.name, other.timeMs, other.reason});

  const GenerateOptions generateOptions = {.scheduleFile = request->file(),
                                           .stages = request->stages,
                                           .bucketBytes = request->planner.bucketBytes,
                                           .threads = request->threads,
                                           .pipeline = pipeline()};
  Expected<StagedPlan> staged = stagePlan(passContext, std::move(*planned), generateOptions);
  if (!staged) return failure;
  if (options_.emit == "annotated-onnx") {
    if (!differentSplits(staged->plan).empty())
      return diags_.error({.file = options_.model})
                 .exit(ExitCode::unsupported)
                 .help("take the same --split for all stages")
             << "--emit=annotated-onnx writes one split for all stages, and those of this plan differ";
    if (!annotated_.write(staged->plan, costs->graph, main(), options_.output, diags_)) return failure;
    out_ << "wrote " << options_.output << "\n";
    return success;
  }
  if (options_.explain) out_ << "stages:\n" << toText(staged->policies) << int8Text(staged->stages);
  if (options_.explain && !module_->adapters.empty())
    out_ << "adapters:\n" << savingsText(*staged, trainedBefore_, training_);
  if (options_.explain) explainNeeds(*costs, *request);
  if (onlyExplains) return success;
  Expected<GeneratedProgram> program =
      generate(passContext, std::move(*staged), training_, provenance_, generateOptions);
  if (!program) return failure;
  if (emits("plan", [&] { return toJson(program->plan); })) return success;
  if (emits("schedule", [&] { return pdcrt::toString(program->schedule); })) return success;
  if (options_.emit == "csv") {
    Expected<std::string> csv = torchCsv(program->schedule, diags_);
    if (!csv) return failure;
    out_ << *csv;
    return success;
  }
  if (!write(*program, costs->profile)) return failure;
  warnOfCodecs(program->plan, diags_);
  remarkOnUnused(program->plan, request->machines, options_, !request->planner.choosesReplicas(), diags_);
  return success;
}

Expected<CostGraph> Compilation::costs() {
  if (!importModel() || !toTrainingGraph() || !divideStages()) return failure;
  Expected<PlanRequest> request = planRequest(options_, training_, diags_);
  if (!request) return failure;
  PassContext passContext = context();
  Expected<Costs> costs = costsOf(passContext, options_, training_, provenance_, *request);
  if (!costs) return failure;
  return std::move(costs->graph);
}

Status Compilation::measureTo(const std::string& file) {
  if (pdcrt::Status status = pdcrt::checkWritable(file); !status) return reportFile(status, file, diags_);
  if (!importModel() || !toTrainingGraph()) return failure;
  PassContext passContext = context();
  ProfilingProgress progress(diags_);
  Expected<Profile> profile = measure(passContext, training_, provenance_, options_.busyCores,
                                      {.splitBackward = options_.planner.schedule->splitsBackward,
                                       .target = options_.target,
                                       .threads = std::max(options_.threadsPerStage, 1)},
                                      progress);
  if (!profile) return failure;
  profile->keptInputs = keptInputs_;
  if (pdcrt::Status status = pdcrt::writeAtomically(file, toJson(*profile)); !status)
    return reportFile(status, file, diags_);
  printProfile(*profile, out_);
  return success;
}

Status Compilation::run(const std::vector<PipelineStep>& steps) {
  return runPipeline(steps, passes_, *module_, ops_, diags_, pipeline());
}

Status Compilation::importModel() {
  if (!readModel() || !run(afterImportSteps(options_.capacity.factor)) || !addLosses() || !addAdapters())
    return failure;
  // All parameters are there.
  if (!takeInitialWeights(*module_, options_.initFrom, diags_)) return failure;
  if (!drawInitialWeights(*module_, {options_.init, options_.reset}, diags_)) return failure;
  return takeCapacities() && quantize() ? Status(success) : failure;
}

/// --capacity=auto, once all values are stored or drawn.
Status Compilation::takeCapacities() {
  if (options_.capacity.data.empty()) return success;
  const Expected<std::vector<std::int64_t>> chosen = chooseCapacities(*module_, ops_, batch_, options_, diags_);
  PassContext passContext = context();
  std::vector<LayerCapacity> layers;
  if (!chosen || !setCapacity(passContext, *chosen, &layers) || !run({{"canonicalize", {}}})) return failure;
  for (const LayerCapacity& layer : layers) diags_.remark({.file = options_.model}) << toText(layer);
  return success;
}

/// --lora.
Status Compilation::addAdapters() {
  for (const auto& parameter : module_->parameters)
    if (parameter->role == ParameterRole::trained) trainedBefore_.insert(parameter->name);
  std::vector<PipelineStep> steps;
  for (const auto& options : options_.lora) {
    steps.push_back({"add-lora", options});
    steps.back().options["train"] = options_.import.train;
    steps.back().options["seed"] = std::to_string(options_.init.value_or(0));
  }
  return run(steps);
}

/// --quantize, once all values are stored or drawn. What data has said is in a profile, or is found out.
Status Compilation::quantize() {
  if (!options_.quantizes) return success;
  PipelineStep step = {"quantize-frozen", options_.quantize};
  if (!options_.calibrate.empty()) {
    Expected<KeptInputs> kept = calibrate(*module_, ops_, batch_, options_, diags_);
    if (!kept) return failure;
    keptInputs_ = std::move(*kept);
    std::size_t inputs = 0;
    for (const auto& [name, list] : keptInputs_) inputs += list.size();
    diags_.remark({.file = options_.model})
        << "of " << keptInputs_.size() << (keptInputs_.size() == 1 ? " weight, " : " weights, ") << inputs
        << (inputs == 1 ? " input is" : " inputs are") << " kept in f32";
  } else if (isProfileFile(options_.profile)) {
    const Expected<std::string> text = readFile(options_.profile, diags_);
    if (!text) return failure;
    const Expected<Profile> profile = profileFromJson(*text, options_.profile, diags_);
    if (!profile) return failure;
    keptInputs_ = profile->keptInputs;
  }
  if (!keptInputs_.empty()) step.options["kept"] = toJson(keptInputs_);
  return run({step});
}

Status Compilation::readModel() {
  ImportOptions import = options_.import;
  import.values = valuesOfLosses(options_.losses);
  Expected<std::unique_ptr<Module>> module = importOnnx(options_.model, import, ops_, diags_, &batch_);
  if (!module) return failure;
  probe_.emplace(options_, import, ops_, passes_, *(*module)->findGraph("main"), batch_);
  if (!probe_->check(diags_)) return failure;
  module_ = std::move(*module);
  return success;
}

/// Losses, the axes of their labels, and what an evaluation reports.
Status Compilation::addLosses() {
  const std::string output = pdcrt::outputOfMetric(options_.metric);
  PassContext passContext = context();
  Expected<Value*> metric = output.empty() ? nullptr : scalarOutput(passContext, output);
  if (!metric || !run(lossSteps(options_.losses, true)) || !probe_->addLabels(*module_, batch_, diags_)) return failure;
  for (const GraphOutput& result : main().outputs)
    if (result.kind == OutputKind::prediction && evaluatedLoss_.empty()) evaluatedLoss_ = result.loss;
  if (*metric)
    main().outputs.push_back({.kind = OutputKind::prediction, .value = *metric, .name = output, .parameter = nullptr});
  return run(afterLossesSteps());
}

TransformChoices Compilation::choices() const {
  std::ostringstream scale;
  if (training_.lossScaleInterval > 0)
    scale << "dynamic";
  else
    scale << std::setprecision(17) << training_.lossScale;
  return {.target = options_.target,
          .precision = options_.precision,
          .lossScale = scale.str(),
          .remarks = options_.verbose,
          .skipsPadding = options_.skipsPadding && options_.target == Target::cpu &&
                          options_.precision == ElementType::f32 && options_.split.isNone() &&
                          options_.stageSplits.empty()};
}

/// From here on the graph is the whole training step, in fusion groups that no cut will change.
Status Compilation::toTrainingGraph() {
  if (!checkPrecision(options_, main(), training_, diags_) || !run(trainingSteps(choices()))) return failure;
  provenance_ = {options_.version, options_.command, fs::path(options_.model).filename().string(), hashOf(main())};
  if (!run(layoutSteps(choices()))) return failure;
  completeTraining(training_, options_, *module_, batch_, evaluatedLoss_, diags_);
  return success;
}

OfferedSplit Compilation::offer(const TeamSplit& split, const Profile* whole) {
  OfferedSplit offer{.split = split};
  std::vector<std::unique_ptr<Graph>> undivided;
  for (const auto& graph : module_->graphs) undivided.push_back(clone(*graph, graph->name()));
  const std::size_t said = diags_.all().size();
  takeSplit(split);
  const auto planned = [&]() -> Expected<Plan> {
    Expected<PlanRequest> request = planRequest(options_, training_, diags_);
    if (!request || !checkTarget(options_, diags_)) return failure;
    const DeviceKind device = request->machines.device;
    const Profile estimateOfWhole = analyticProfile(main(), device, options_.version);
    if (!divideStages()) return failure;
    PassContext passContext = context();
    if (whole)
      offer.profile = scaledProfile(*whole, estimateOfWhole, analyticProfile(main(), device, options_.version));
    const std::size_t before = diags_.all().size();
    Expected<Costs> costs =
        costsOf(passContext, options_, training_, provenance_, *request, whole ? &offer.profile : nullptr);
    std::copy_if(diags_.all().begin() + static_cast<std::ptrdiff_t>(before), diags_.all().end(),
                 std::back_inserter(offer.warnings),
                 [](const Diagnostic& each) { return each.severity == Severity::warning; });
    if (!costs) return failure;
    offer.profile = std::move(costs->profile);
    offer.machines = request->machines;
    offer.costs = std::move(costs->graph);
    return planPipeline(*offer.costs, request->machines, request->planner, diags_);
  };
  if (Expected<Plan> plan = planned()) offer.plan = std::move(*plan);
  const auto& all = diags_.all();
  for (std::size_t i = said; i < all.size() && offer.reason.empty(); ++i)
    if (all[i].severity == Severity::error) offer.reason = all[i].message;
  module_->graphs = std::move(undivided);
  return offer;
}

/// --split=auto. A model that cannot be read is reported when it is read again.
Status Compilation::chooseSplit() {
  if (!takePlannedSplits(options_, diags_)) return failure;
  if (!options_.planFile.empty()) return success;
  if (!options_.choosesSplit || options_.emit == "ir" || options_.emit == "training-ir") return success;
  const Expected<PlanRequest> request = planRequest(options_, training_, diags_);
  if (!request) return failure;
  // Rows of padding are left out of the undivided graph only.
  CompileOptions options = options_;
  options.choosesSplit = options.explain = false;
  Diagnostics silent(nullptr);
  Compilation whole(options, out_, silent);
  options.split.members = 2;
  Compilation divided(options, out_, silent);
  if (!whole.toUndividedGraph() || !divided.toUndividedGraph()) return success;
  const bool estimates = options_.profile == "analytic" || options_.target == Target::cuda;
  const SplitTimes times = estimates                         ? SplitTimes::estimated
                           : isProfileFile(options_.profile) ? SplitTimes::scaled
                                                             : SplitTimes::measured;
  const PlanSplit plan = [&](const TeamSplit& split, const Profile* profile) {
    return (split.isNone() ? whole : divided).offer(split, profile);
  };
  offers_ = offerSplits(splitsToOffer(request->devices.levels[0].count, options_.splitDegrees), times, plan);
  // A stage without a split has the groups of those that have one.
  if (canMixSplits(*request, options_) && whole.provenance_.modelHash == divided.provenance_.modelHash)
    stages_ = planStages(offers_, times, plan, [&](const CostGraph& graph) -> std::optional<Plan> {
      Expected<Plan> made = planPipeline(graph, offers_.front().machines, request->planner, silent);
      return made ? std::optional(std::move(*made)) : std::nullopt;
    });
  const OfferedSplit* const fastest = fastestOf(offers_);
  const bool mixes = stages_ && !differentSplits(stages_->plan).empty() &&
                     (!fastest || stages_->plan.timeMs < fastest->plan->timeMs * (1 - 1e-9));
  if (options_.explain) {
    out_ << "splits of all stages:\n" << toText(offers_, mixes ? nullptr : fastest);
    if (stages_) out_ << "splits of each stage:\n" << toText(stages_->plan, mixes);
  }
  if (mixes) takeSplitsOf(stages_->plan, options_);
  if (!mixes && fastest) takeSplit(fastest->split);
  if (const OfferedSplit* const taken = mixes ? &offers_.front() : fastest) {
    profile_ = taken->profile;
    for (const Diagnostic& warning : taken->warnings) diags_.report(warning);
  }
  return success;
}

/// What is proven over all splits, and what others take.
void Compilation::addOffers(Plan& plan) const {
  if (offers_.empty()) return;
  plan.lowerBoundMs = std::min(plan.lowerBoundMs, stages_ ? stages_->plan.lowerBoundMs : lowerBoundOf(offers_));
  plan.optimal = plan.optimal && plan.lowerBoundMs >= plan.timeMs * (1 - 1e-9);
  for (const OfferedSplit& offer : offers_)
    if (!options_.stageSplits.empty() || offer.split != options_.split)
      plan.alternatives.push_back(
          {"--split=" + toText(offer.split), offer.plan ? offer.plan->timeMs : 0, offer.reason});
}

Expected<Plan> Compilation::plan(const CostGraph& costs, const PlanRequest& request) {
  if (!options_.planFile.empty()) return readPlan(asked_, options_.split, provenance_.modelHash, request, diags_);
  Expected<Plan> plan = planPipeline(costs, request.machines, request.planner, diags_);
  if (plan) plan->modelHash = provenance_.modelHash;
  return plan;
}

void Compilation::explain(const Costs& costs, const PlanRequest& request, const Plan& plan) {
  out_ << "planned " << std::fixed << std::setprecision(3) << plan.timeMs << " ms per minibatch, "
       << certificateOf(plan) << overText(offers_, stages_.has_value()) << "\n"
       << toText(explainPlan(costs.graph, request.machines, request.planner, plan), plan);
}

/// How many devices the model needs, where flags make it need fewer.
void Compilation::explainNeeds(const Costs& costs, const PlanRequest& request) {
  if (!options_.quantizes && options_.lora.empty()) return;
  if (request.planner.schedule->isGiven) return; // its lists are for their stages only
  out_ << deviceNeedsText(options_, costs.graph, request, [&](const CompileOptions& other) {
    Diagnostics ignored(nullptr);
    return Compilation(other, out_, ignored).costs();
  });
}

/// The output folder, and what to do with it.
Status Compilation::write(GeneratedProgram& program, const Profile& profile) {
  Profile remembered = profile;
  remembered.keptInputs = keptInputs_;
  program.files.emplace_back("profile.json", toJson(remembered));
  const Expected<std::string> record = modelRecord(options_.model, options_.output, diags_);
  if (!record) return failure;
  program.files.emplace_back(modelPathFile, *record);
  if (!module_->adapters.empty()) program.files.emplace_back(adaptersFile, toJson(recordOf(*module_)));
  if (!writeOutput(options_.output, program.files, program.weights, diags_)) return failure;
  printSummary(program, profile.source, options_.output, dataFilesText(main(), training_, "  "), out_);
  return success;
}

} // namespace

Status pdc::compile(const CompileOptions& options, std::ostream& out, Diagnostics& diags) {
  return Compilation(options, out, diags).compile();
}

Status pdc::measureProfile(const CompileOptions& options, const std::string& file, std::ostream& out,
                           Diagnostics& diags) {
  return Compilation(options, out, diags).measureTo(file);
}
