// Flags that pdc and pdc-profile share: what to read, and what to make of it before it is planned.
#pragma once

#include "StandardFlags.h"
#include "pdc/Driver/Compile.h"
#include "pdc/Driver/Gpu.h"

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace pdc {

/// Texts of flags that have a structure; `apply` reads them.
class ModelFlags {
public:
  void addTo(CLI::App& app, CompileOptions& options) {
    app.add_option("MODEL.onnx", options.model, "the model")->required();
    addModelTo(app, options);
    addTrainingTo(app);
    app.option_defaults()->group("Options");
  }

  /// What the programs run on, and what is printed on the way. A tool that writes no programs has a --precision of its
  /// own, and takes the CPU where no target is named.
  void addProgramsTo(CLI::App& app, CompileOptions& options, bool writesPrograms) {
    writesPrograms_ = writesPrograms;
    app.option_defaults()->group("Programs");
    app.add_option(
           "--target", target_,
           "what the programs run on\n"
           "auto takes the GPUs of this machine where there are any that programs for CUDA can use, else the CPU.")
        ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
        ->type_name("auto|cpu|cuda")
        ->capture_default_str();
    if (writesPrograms)
      app.add_option("--precision", precision_,
                     "element type of matrix products and convolutions, for CUDA\n"
                     "Weights, sums, norms and losses stay f32.")
          ->check(CLI::IsMember({"f32", "bf16", "f16"}))
          ->type_name("f32|bf16|f16")
          ->capture_default_str();
    app.add_option(
           "--padding", padding_,
           "padded positions of texts, on CPUs\n"
           "skip: linear layers leave out rows that nobody reads because a mask hides them. compute: they do not.")
        ->check(CLI::IsMember({"skip", "compute"}))
        ->type_name("skip|compute")
        ->capture_default_str();
    app.option_defaults()->group("Output");
    app.add_flag("-v,--verbose", options.verbose,
                 "say more of what was decided\n"
                 "Remarks which operations were fused, which could not be and why, and where layouts change.");
    app.add_flag("--time-passes", options.timePasses, "print how long each pass takes");
    app.add_option("--print-ir-after", options.printAfter, "print the graphs after these passes, or after all")
        ->type_name("PASS|all");
    app.option_defaults()->group("Options");
  }

  Status apply(CompileOptions& options, Diagnostics& diags) {
    options.target = target_ == "cuda"                      ? Target::cuda
                     : target_ == "cpu" || !writesPrograms_ ? Target::cpu
                                                            : automaticTarget(options.debugNan, diags);
    elementTypeFromName(precision_, options.precision);
    options.skipsPadding = padding_ == "skip";
    for (const std::string& dim : dims_) {
      const std::size_t equals = dim.rfind('=');
      char* end = nullptr;
      const std::int64_t value = equals == std::string::npos ? 0 : std::strtoll(dim.c_str() + equals + 1, &end, 10);
      if (value <= 0 || *end)
        return diags.error({}).exit(ExitCode::usage).help("write --dim sequence=128")
               << "--dim: '" << dim << "' is not NAME=V with V > 0";
      options.import.dims[dim.substr(0, equals)] = value;
    }
    if (!parseBatchAxes(batchAxes_, options.import.batchAxes, diags) || !parseBound(bound_, options.import.bind, diags))
      return failure;
    for (const std::string& loss : loss_)
      if (!parseLoss(loss, options.losses, diags)) return failure;
    for (const std::string& lora : lora_)
      if (!parseLora(lora, options.lora, diags)) return failure;
    if (!quantize_.empty() && !parseQuantize(quantize_, options, diags)) return failure;
    if (!capacity_.empty() && !parseCapacity(capacity_, options.capacity, diags)) return failure;
    if (!calibrate_.empty() && !parseCalibrate(calibrate_, options, diags)) return failure;
    for (const std::string& group : groups_)
      if (!parseParameterGroup(group, options.training.groups, diags)) return failure;
    if (!parseLearningRateSchedule(learningRateSchedule_, options.training.schedule, diags)) return failure;
    if (!clipNorm_.empty() && !parseClipNorm(clipNorm_, options.training, diags)) return failure;
    if (!lossScale_.empty() && !parseLossScale(lossScale_, options.training, diags)) return failure;
    if (!nonFinite_.empty())
      options.training.nonFinite = nonFinite_ == "skip" ? pdcrt::NonFinite::skip : pdcrt::NonFinite::stop;
    if (options.training.lossScaleInterval > 0 && nonFinite_ == "stop")
      return diags.error({}).exit(ExitCode::usage).help("fix the scale: --loss-scale=S")
             << "--non-finite=stop stops at the first overflow, by which --loss-scale=dynamic learns the scale";
    if (!batchNorm_.empty())
      options.import.batchNorm = batchNorm_ == "batch"     ? BatchNormMode::batch
                                 : batchNorm_ == "pytorch" ? BatchNormMode::pytorch
                                                           : BatchNormMode::frozen;
    options.import.tie = tie_ == "auto";
    options.import.weightsMayLack = options.init || !options.initFrom.empty();
    return parseOptimizer(optimizer_, options.training, diags);
  }

private:
  void addModelTo(CLI::App& app, CompileOptions& options) {
    app.option_defaults()->group("Model");
    app.add_option("--batch", options.import.batch,
                   "samples per minibatch\n"
                   "Where the schedule flushes, samples per microbatch. It replaces a batch that the file fixes.")
        ->check(wholeNumber(1))
        ->type_name("N");
    app.add_option("--batch-axis", batchAxes_,
                   "axis of an input along which its samples lie\n"
                   "Needed where the names of dimensions do not say it; none: the input is the same for all samples. "
                   "May be repeated.")
        ->type_name("INPUT:AXIS|none")
        ->allow_extra_args(false)
        ->take_all();
    app.add_option("--dim", dims_,
                   "size of a dimension other than the batch\n"
                   "A symbolic dimension is given by its name, any dimension by INPUT.AXIS: --dim sequence=128 "
                   "--dim x.2=48.")
        ->type_name("NAME=N");
    app.add_option("--bind", bound_,
                   "an input that is the same for every minibatch\n"
                   "VALUE fills it, FILE.npy holds it. If on a bound input folds. May be repeated.")
        ->type_name("INPUT=VALUE|FILE.npy|zeros")
        ->allow_extra_args(false)
        ->take_all();
    app.add_option("--init-from", options.initFrom,
                   "starting weights from safetensors, by the names of the parameters\n"
                   "A file, the index of several, or their folder. strip takes a prefix off the names in the file, add "
                   "puts one before them. May be repeated; later files win.")
        ->type_name("F.safetensors|INDEX.json|DIR[,strip=P][,add=P]")
        ->take_all();
    app.add_option("--init", options.init,
                   "draw the weights that the model lacks\n"
                   "Each gets the usual initialisation of the op that uses it.")
        ->type_name("SEED");
    app.add_option("--reset", options.reset,
                   "draw these parameters anew, for a new head\n"
                   "REGEX is searched for in their names. The seed is that of --init.")
        ->type_name("REGEX");
    app.add_option("--freeze", options.import.freeze,
                   "parameters that do not train\nREGEX is searched for in their names.")
        ->type_name("REGEX");
    app.add_option("--train", options.import.train,
                   "parameters that train, also where pdc takes them for constants\n"
                   "REGEX is searched for in the names of float initializers.")
        ->type_name("REGEX");
    app.add_option(
           "--lora", lora_,
           "adapters of low rank (LoRA) for linear layers\nAll else is frozen but what --train names. "
           "REGEX is searched for in the layers' paths in the module; all-linear is all of them but the one that "
           "computes the logits. rank=8, alpha=rank, dropout=0; slices=0/2 of 3 for packed layers. May be "
           "repeated. See docs/FineTuning.md.")
        ->type_name("targets=REGEX|all-linear[,rank=N][,alpha=N][,...]")
        ->allow_extra_args(false)
        ->take_all();
    app.add_option(
           "--quantize", quantize_,
           "store frozen weights of linear layers and embeddings in 8 bits\n"
           "Sums are of integers. An input that has a value of at least alpha, 6 if not given, is multiplied in "
           "f32. match is searched for in the names of weights; default: every frozen one that can be stored "
           "so. keep is searched for in the same names: those stay f32.")
        ->type_name("int8[,alpha=A][,match=REGEX][,keep=REGEX]");
    app.add_option("--calibrate", calibrate_,
                   "data that shows which inputs weights of 8 bits keep in f32\n"
                   "Those that are outliers in a quarter of some batches, 8 if not given. DATA is a folder with .npy "
                   "files, as for training. profile.json remembers the inputs.")
        ->type_name("DATA[,batches=N]");
    app.add_option(
           "--capacity", capacity_,
           "capacity factor of experts, instead of what the file has\n"
           "Each gets ⌈F · choices · tokens / experts⌉ slots, and the same rule drops tokens. auto: the fewest slots "
           "with which no more than the share `drop` of the choices is dropped on data.")
        ->type_name("F|auto,drop=D,data=DATA[,batches=N]");
    app.add_option(
           "--bn", batchNorm_,
           "statistics of BatchNorm: the minibatch's, or the stored ones\n"
           "batch: the minibatch's, and running variances move as ONNX defines it, by the variance divided by n. "
           "pytorch: the same, but divided by n - 1, as PyTorch does. frozen: the stored ones. Default: what the "
           "file says of each.")
        ->check(CLI::IsMember({"batch", "pytorch", "frozen"}))
        ->type_name("batch|pytorch|frozen");
    app.add_option("--tie", tie_,
                   "train an embedding that was exported twice as one parameter\noff trains the two apart.")
        ->check(CLI::IsMember({"auto", "off"}))
        ->type_name("auto|off")
        ->capture_default_str();
    app.add_option("--dropout", options.import.dropout, "ratio of every Dropout\nDefault: what the file says of each.")
        ->check(CLI::Range(0.0, 1.0))
        ->type_name("RATIO");
  }

  void addTrainingTo(CLI::App& app) {
    app.option_defaults()->group("Loss and optimizer");
    app.add_option("--loss", loss_,
                   "softmax-cross-entropy, nll, mse, bce-with-logits, bce or output:NAME\n"
                   "Append :NAME to name the output, or any inner value, that the loss reads, then ,weight=…, label=…, "
                   "ignore_index=…, average=update|minibatch, label_smoothing=…, class_weights=…/…. Several losses add "
                   "up. Default: the model's own loss. See docs/Training.md.")
        ->type_name("KIND[:NAME][,...]")
        ->take_all();
    app.add_option("--optimizer", optimizer_,
                   "sgd, momentum, adam or adamw, and its options\n"
                   "lr=…, momentum=…, nesterov=true, weight_decay=…, betas=…/…, eps=….")
        ->type_name("KIND[,...]")
        ->capture_default_str();
    app.add_option(
           "--lr-schedule", learningRateSchedule_,
           "constant, step,period=N,factor=F or cosine,period=N; warmup=N\nPeriods and warm-up count minibatches.")
        ->type_name("KIND[,...]")
        ->capture_default_str();
    app.add_option("--param-group", groups_,
                   "another learning rate or weight decay for some parameters\n"
                   "REGEX is searched for in their names; @vectors are biases and norms. May be repeated.")
        ->type_name("REGEX:lr=...,weight_decay=...")
        ->take_all();
    app.add_option("--clip-norm", clipNorm_,
                   "scale gradients down to this norm\n"
                   "scope=global takes the norm over all stages, scope=stage over each stage by itself.")
        ->type_name("NORM[,scope=global|stage]");
    app.add_option("--loss-scale", lossScale_,
                   "factor on the loss that the update divides out\n"
                   "A power of two changes no bit. dynamic halves it when gradients are not finite, skips that update, "
                   "and doubles it after INTERVAL good ones.")
        ->type_name("S|dynamic[,start=S,interval=N]");
    app.add_option("--non-finite", nonFinite_,
                   "skip the update, or stop, where gradients are not finite\nDefault: updates do not look.")
        ->check(CLI::IsMember({"skip", "stop"}))
        ->type_name("skip|stop");
  }

  bool writesPrograms_ = true;
  std::string target_ = "auto", precision_ = "f32", padding_ = "skip", batchNorm_, tie_ = "auto",
              optimizer_ = "sgd,lr=0.01", learningRateSchedule_ = "constant", clipNorm_, lossScale_, nonFinite_,
              quantize_, calibrate_, capacity_;
  std::vector<std::string> batchAxes_, dims_, bound_, loss_, groups_, lora_;
};

} // namespace pdc
