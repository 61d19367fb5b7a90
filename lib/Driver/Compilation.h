// What holds during one compilation, and its steps (Compile.cpp; of --split, CompilationSplits.cpp).
#pragma once

#include "AnnotatedModel.h"
#include "BatchProbe.h"
#include "Costs.h"
#include "Division.h"
#include "Generate.h"
#include "SplitChoice.h"
#include "pdc/Driver/Compile.h"
#include "pdc/Ops/AllOps.h"
#include "pdc/Transforms/Pipeline.h"

#include <optional>
#include <ostream>
#include <set>

namespace pdc {

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

private:
  // From the file to the graph of a training step.
  Status importModel();
  Status readModel();
  Status takeCapacities();
  Status addLosses();
  Status addAdapters();
  Status quantize();
  Status toTrainingGraph();
  Status skipPadding();
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
  // --split=auto, and a list of splits.
  /// Whether the planner is asked for splits of stages, or for stages of given ones.
  bool offersSplits() const {
    return options_.planFile.empty() && (options_.choosesSplit || !options_.stageSplits.empty());
  }
  /// Takes the splits whose plan is the fastest. Where that is no split, the costs are those of the undivided graph.
  Status chooseSplit(PlanRequest& request, std::optional<Costs>& costs);
  Status offerNone(PlanRequest& request, std::optional<Costs>& costs);
  /// What a split makes of the graph. Nothing of it is reported.
  OfferedSplit offer(const TeamSplit& split, const Profile* whole);
  Expected<Plan> planOffer(OfferedSplit& offer, const Profile* whole);
  Status checkGivenSplits(bool mayMix);
  void takeFastest(const SplitOffers& offers, std::optional<Costs>& costs);
  /// Takes a split that was not asked for. Loads of experts are for those that divide them.
  void takeSplit(const TeamSplit& split) {
    options_.split = split;
    options_.expertLoads = split.experts ? asked_.expertLoads : "";
  }
  void addOffers(Plan& plan) const;
  /// Whether what is proven of a plan's time is over the splits of each stage. Of one split for all stages, more may be
  /// proven over the same split of all.
  bool isOverEach(double timeMs) const {
    return stages_ && (!options_.stageSplits.empty() || stages_->plan.lowerBoundMs >= timeMs * (1 - 1e-9));
  }

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
  PassContext context() { return {*module_, ops_, *said_, {}}; }

  const CompileOptions& asked_;
  CompileOptions options_; ///< with the split that was chosen
  std::ostream& out_;
  Diagnostics& diags_;
  Diagnostics* said_ = &diags_; ///< by passes
  OpRegistry ops_;
  PassRegistry passes_;
  std::unique_ptr<Module> module_;
  BatchAxes batch_;
  std::optional<BatchProbe> probe_;
  std::set<std::string> trainedBefore_; ///< the parameters that trained before there were adapters
  std::string evaluatedLoss_; ///< what an evaluation computes of the first loss; empty: the model has its loss inside
  pdcrt::Training training_;  ///< complete once the training graph is there
  Provenance provenance_;
  KeptInputs keptInputs_; ///< of weights of 8 bits

  // What --split=auto and a list of splits need.
  std::vector<std::unique_ptr<Graph>> toDivide_; ///< the graphs that splits divide, without chosen algorithms
  bool skipsRows_ = true;                        ///< if there are such graphs: the module's leave out rows of padding
  Profile estimate_;                             ///< of these graphs
  std::string undivided_;                        ///< why no splits are offered, though no flag forbids it
  std::vector<OfferedSplit> offers_;
  std::optional<StagesPlan> stages_; ///< with these for each stage
  std::optional<Plan> chosen_;       ///< with the splits that are taken
  std::optional<Profile> profile_;   ///< with which the split was chosen

  AnnotatedModel annotated_; ///< of --plan=model and --emit=annotated-onnx
};

} // namespace pdc
