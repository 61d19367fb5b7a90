// The story of the compiler, from the ONNX file to the folder of stage programs.
#include "Compilation.h"

#include "AdapterSavings.h"
#include "Calibration.h"
#include "CapacityChoice.h"
#include "Checks.h"
#include "Costs.h"
#include "DeviceNeeds.h"
#include "Generate.h"
#include "InitialWeights.h"
#include "Measure.h"
#include "PlanFile.h"
#include "SplitTable.h"
#include "Summary.h"
#include "Teams.h"
#include "TrainedModel.h"
#include "TrainingRecord.h"
#include "pdc/CodeGen/BuildFiles.h"
#include "pdc/Driver/Launch.h"
#include "pdc/IR/Text.h"
#include "pdc/Import/Adapters.h"
#include "pdc/Planner/Explain.h"
#include "pdc/Transforms/Capacity.h"
#include "pdcrt/MappedFile.h"

#include <algorithm>
#include <filesystem>
#include <iomanip>
#include <ostream>
#include <set>
#include <sstream>

using namespace pdc;
namespace fs = std::filesystem;

Status Compilation::compile() {
  if (writes() && !options_.output.empty() && !checkOutputFolder(options_.output, diags_)) return failure;
  if (!annotated_.read(options_, diags_) || !takePlannedSplits(options_, diags_) || !importModel()) return failure;
  if (emits("ir", [&] { return print(*module_); })) return success;
  if (!toTrainingGraph()) return failure;
  if (emits("training-ir", [&] { return print(*module_); })) return success;
  std::optional<PlanRequest> request;
  std::optional<Costs> costs;
  PassContext passContext = context();
  if (!annotated_.takeSplits(passContext, options_)) return failure;
  if (offersSplits() && (options_.choosesSplit || options_.emit != "split-ir")) {
    Expected<PlanRequest> undivided = planRequest(options_, training_, diags_);
    if (!undivided || !chooseSplit(request.emplace(std::move(*undivided)), costs)) return failure;
  }
  if (!annotated_.learnParts(passContext, options_.split, options_.stageSplits) || !divideStages()) return failure;
  if (options_.emit == "split-ir" && !divideEachStage(options_.stageSplits, {})) return failure;
  if (emits("split-ir", [&] { return print(*module_); })) return success;

  if (!request || !options_.split.isNone()) {
    Diagnostics silent(nullptr); // of what is said already
    Expected<PlanRequest> divided = planRequest(options_, training_, request ? silent : diags_);
    if (!divided) return failure;
    request = std::move(*divided);
  }
  if (!checkTarget(options_, diags_)) return failure;
  if (!costs) {
    Expected<Costs> made =
        costsOf(passContext, options_, training_, provenance_, *request, profile_ ? &*profile_ : nullptr);
    if (!made || (options_.planFromModel && !annotated_.constrain(made->graph, request->planner, diags_)))
      return failure;
    costs = std::move(*made);
  }
  if (options_.planFile.empty())
    request->planner.stageSplits = options_.planFromModel ? options_.stageSplits : asked_.stageSplits;
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
  return runPipeline(steps, passes_, *module_, ops_, *said_, pipeline());
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
  if (!run(layoutSteps(choices())) || !skipPadding()) return failure;
  completeTraining(training_, options_, *module_, batch_, evaluatedLoss_, diags_);
  return success;
}

Expected<Plan> Compilation::plan(const CostGraph& costs, const PlanRequest& request) {
  if (!options_.planFile.empty()) return readPlan(asked_, options_.split, provenance_.modelHash, request, diags_);
  Expected<Plan> plan =
      chosen_ ? Expected<Plan>(std::move(*chosen_)) : planPipeline(costs, request.machines, request.planner, diags_);
  if (plan) plan->modelHash = provenance_.modelHash;
  return plan;
}

void Compilation::explain(const Costs& costs, const PlanRequest& request, const Plan& plan) {
  out_ << "planned " << std::fixed << std::setprecision(3) << plan.timeMs << " ms per minibatch, "
       << certificateOf(plan) << overText(offers_, isOverEach(plan.timeMs))
       << (asked_.planner.choosesShards() && request.planner.schedule->stagesPerRank > 1
               ? ", with shards of one kind in all stages or none"
               : "")
       << "\n"
       << toText(explainPlan(costs.graph, request.machines, request.planner, plan), plan);
  if (!undivided_.empty()) out_ << "stages are not divided: " << undivided_ << "\n";
  if (!offers_.empty()) out_ << tableOfSplits(offers_, plan, request.planner);
}

/// How many devices the model needs, where flags make it need fewer.
void Compilation::explainNeeds(const Costs& costs, const PlanRequest& request) {
  if (!options_.quantizes && options_.lora.empty()) return;
  if (request.planner.schedule->isGiven || !options_.stageSplits.empty()) return; // for their stages only
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

Status pdc::compile(const CompileOptions& options, std::ostream& out, Diagnostics& diags) {
  return Compilation(options, out, diags).compile();
}

Status pdc::measureProfile(const CompileOptions& options, const std::string& file, std::ostream& out,
                           Diagnostics& diags) {
  return Compilation(options, out, diags).measureTo(file);
}
