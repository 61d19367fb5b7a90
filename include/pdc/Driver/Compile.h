// From an ONNX file to a folder of stage programs: the story of the whole compiler.
#pragma once

#include "pdc/IR/Target.h"
#include "pdc/IR/Type.h"
#include "pdc/Import/OnnxImport.h"
#include "pdc/Plan/Plan.h"
#include "pdc/Planner/Planner.h"
#include "pdc/Transforms/Transforms.h"
#include "pdcrt/Training.h"

#include <iosfwd>
#include <string>
#include <vector>

namespace pdc {

/// --capacity: of experts.
struct CapacityOptions {
  double factor = 0;        ///< capacity factor; 0: that of the file
  std::string data;         ///< instead: from what the router does with this data
  double drop = 0;          ///< the share of the choices that may be dropped there
  std::int64_t batches = 8; ///< of the data
};

/// What the flags of pdc say (docs and `pdc --help` explain them).
struct CompileOptions {
  std::string model;   ///< the ONNX file
  std::string output;  ///< the folder to write, or the annotated model; may be empty where `emit` stops earlier
  std::string version; ///< of pdc
  std::string command; ///< as typed, for the generated programs' front matter
  Target target = Target::cpu;
  ElementType precision = ElementType::f32; ///< of products; bf16 and f16 keep f32 master weights

  ImportOptions import;
  CapacityOptions capacity;
  std::vector<std::string> initFrom;                      ///< safetensors files with other starting weights
  std::optional<std::uint64_t> init;                      ///< seed of parameters that start without stored values
  std::string reset;                                      ///< names of parameters that do though they have some
  std::vector<std::map<std::string, std::string>> losses; ///< options of add-loss; none: the model's own
  std::vector<std::map<std::string, std::string>> lora;   ///< options of add-lora; none: no adapters
  std::map<std::string, std::string> quantize;            ///< options of quantize-frozen
  bool quantizes = false;                                 ///< frozen weights become integers of 8 bits
  std::string calibrate;                                  ///< data that says which inputs they keep in f32
  std::int64_t calibrateBatches = 8;
  pdcrt::Training training; ///< optimizer; batch and loss are filled in
  std::string metric;       ///< accuracy, top5, perplexity, mse, none; empty: what suits the loss

  std::int64_t devices = 1; ///< 0: as many as the schedule file has ranks, or the model's configuration devices
  std::string clusterFile;  ///< instead of `devices`
  bool skipsPadding = true; ///< rows of padded positions are not computed (skip-padding)
  bool lateUpdates = true;  ///< no parameter is updated before all gradients of its stage are there
  TeamSplit split;          ///< of every stage: so many devices compute each replica of it together
  std::vector<TeamSplit> stageSplits; ///< instead: of each stage, of `planFile` or not
  bool choosesSplit = false;          ///< instead: the split with the fastest plan, or those of `planFile`
  bool splitIsDefault = false;        ///< nobody asked to choose: what is not measured to gain is not divided
  std::vector<int> splitDegrees;      ///< members of the teams to choose among; empty: those that divide the devices
  std::string expertLoads;            ///< metrics of a run, by whose loads a split by experts places them
  int threadsPerStage = 1; ///< OpenMP threads of a rank's kernels; 0: as many as there are cores for each rank
  PlannerOptions planner;
  std::string scheduleFile;      ///< the schedule, instead of one that the planner's options name
  std::string planFile;          ///< use this plan
  bool planFromModel = false;    ///< take stages and splits from the annotations of the model
  std::string planConfiguration; ///< those of this configuration of devices; empty: of the only one
  std::string profile = "auto";  ///< auto, measure, analytic, or a file
  std::int64_t busyCores = 1;    ///< of this machine, that compute while measureProfile measures

  bool explain = false;  ///< print why this plan, and stop there if there is no output folder
  std::string emit;      ///< ir, training-ir, split-ir, plan, schedule, csv, annotated-onnx, source (default)
  bool debugNan = false; ///< the programs look at every result
  bool timePasses = false;
  bool verbose = false; ///< remarks on fusion and layouts
  std::vector<std::string> printAfter;
};

/// Compiles. Results (what --emit prints, else a table of the stages) go to `out`. Nothing is written into
/// options.output before everything is known to be right, and every file there is replaced whole.
Status compile(const CompileOptions& options, std::ostream& out, Diagnostics& diags);

/// Measures every fusion group of the model in a generated one-stage program and writes the profile to `file`.
Status measureProfile(const CompileOptions& options, const std::string& file, std::ostream& out, Diagnostics& diags);

// Flags whose values have a structure. Errors (ExitCode::usage) list what is known.

/// "momentum,lr=0.1,momentum=0.9,weight_decay=1e-4"
Status parseOptimizer(const std::string& text, pdcrt::Training& training, Diagnostics& diags);
/// "mse:OUTPUT,weight=0.3": appends to `losses`.
Status parseLoss(const std::string& text, std::vector<std::map<std::string, std::string>>& losses, Diagnostics& diags);
/// "rank=8,alpha=16,targets=c_attn|c_proj,dropout=0.05": appends to `lora`.
Status parseLora(const std::string& text, std::vector<std::map<std::string, std::string>>& lora, Diagnostics& diags);
/// "int8,alpha=6,match=REGEX"; commas in the expression are its own.
Status parseQuantize(const std::string& text, CompileOptions& options, Diagnostics& diags);
/// "DATA,batches=8"
Status parseCalibrate(const std::string& text, CompileOptions& options, Diagnostics& diags);
/// "1.25" or "auto,drop=0.01,data=DATA,batches=8"
Status parseCapacity(const std::string& text, CapacityOptions& capacity, Diagnostics& diags);
/// "cosine,period=2000,warmup=100"
Status parseLearningRateSchedule(const std::string& text, pdcrt::LearningRateSchedule& schedule, Diagnostics& diags);
/// "REGEX:lr=0.1,weight_decay=0": appends to `groups`.
Status parseParameterGroup(const std::string& text, std::vector<pdcrt::ParameterGroup>& groups, Diagnostics& diags);
/// "1.0,scope=stage"
Status parseClipNorm(const std::string& text, pdcrt::Training& training, Diagnostics& diags);
/// "state:1" or "mask:none", each: adds to `axes`.
Status parseBatchAxes(const std::vector<std::string>& texts, std::map<std::string, int>& axes, Diagnostics& diags);
/// "temperature=2", "mask=mask.npy" or "h0=zeros", each: adds to `bound`.
Status parseBound(const std::vector<std::string>& texts, std::map<std::string, std::string>& bound, Diagnostics& diags);
/// "1024", or "dynamic,start=65536,interval=2000"
Status parseLossScale(const std::string& text, pdcrt::Training& training, Diagnostics& diags);

/// The steps of a pipeline that add the losses: of a training, whose `updates` may average several minibatches, or of
/// one minibatch.
std::vector<PipelineStep> lossSteps(const std::vector<std::map<std::string, std::string>>& losses, bool updates);
/// What the losses apply to by name: outputs of the model, or inner values.
std::vector<std::string> valuesOfLosses(const std::vector<std::map<std::string, std::string>>& losses);

} // namespace pdc
