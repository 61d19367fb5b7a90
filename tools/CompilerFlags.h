// Flags that pdc and pdc-profile share: what to read, and what to make of it before it is planned.
#pragma once

#include "pdc/Driver/Compile.h"

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace pdc {

/// Texts of flags that have a structure; `apply` reads them.
class ModelFlags {
public:
  void addTo(CLI::App& app, CompileOptions& options) {
    app.add_option("MODEL.onnx", options.model, "the model")->required();
    app.add_option("--target", target_, "what to generate for (auto: cpu)")
        ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
        ->type_name("auto|cpu|cuda");
    app.add_option("--batch", options.import.batch, "samples per minibatch (microbatch)")->check(CLI::PositiveNumber);
    app.add_option("--batch-axis", batchAxes_,
                   "the axis of an input along which its samples lie, where the names of dimensions do not tell; none: "
                   "it is the same for all samples; may be repeated")
        ->type_name("NAME:N|none")
        ->allow_extra_args(false)
        ->take_all();
    app.add_option("--dim", dims_,
                   "size of a dimension other than the batch: of a symbolic one by its name, of any by INPUT.AXIS")
        ->type_name("NAME=V");
    app.add_option("--bind", bound_, "an input that is always the same; may be repeated")
        ->type_name("NAME=VALUE|FILE.npy|zeros")
        ->allow_extra_args(false)
        ->take_all();
    app.add_option("--loss", loss_,
                   "softmax-cross-entropy, nll, mse, bce-with-logits, bce or output:NAME; append :NAME to name the "
                   "output, or any inner value, that it applies to, then ,weight=…, label=…, ignore_index=…, "
                   "average=update|minibatch, label_smoothing=…, class_weights=…/…; several add up (the model's own "
                   "loss; docs/Training.md)")
        ->type_name("KIND[:NAME][,…]")
        ->take_all();
    app.add_option(
           "--optimizer", optimizer_,
           "sgd, momentum, adam or adamw, then lr=…, momentum=…, nesterov=true, weight_decay=…, betas=…/…, eps=…")
        ->capture_default_str();
    app.add_option("--lr-schedule", learningRateSchedule_,
                   "constant, step,period=N,factor=F or cosine,period=N, then warmup=N, in minibatches")
        ->capture_default_str();
    app.add_option(
           "--param-group", groups_,
           "parameters that learn in a way of their own; REGEX is found in their names, @vectors are biases and "
           "norms")
        ->type_name("REGEX:lr=…,weight_decay=…")
        ->take_all();
    app.add_option("--clip-norm", clipNorm_,
                   "scale gradients down to this norm, over all stages, or with scope=stage over each by itself")
        ->type_name("NORM[,scope=global|stage]");
    app.add_option(
           "--loss-scale", lossScale_,
           "factor of the gradients until the update divides it out; a power of two changes no bit; dynamic: "
           "halved by updates with gradients that are not finite, which are skipped, doubled by INTERVAL others")
        ->type_name("S|dynamic[,start=S,interval=N]");
    app.add_option("--non-finite", nonFinite_,
                   "gradients that are not finite skip the update or stop the run; else updates do not look")
        ->check(CLI::IsMember({"skip", "stop"}))
        ->type_name("skip|stop");
    app.add_option("--init-from", options.initFrom,
                   "other starting weights, by the names of the initializers and in their layout: a file, the index of "
                   "several or their folder; takes a prefix off or puts one before the names; may be repeated")
        ->type_name("F.safetensors|INDEX.json|DIR[,strip=PREFIX][,add=PREFIX]")
        ->take_all();
    app.add_option("--init", options.init,
                   "weights that the model lacks start with the usual initialisation of the op that uses them")
        ->type_name("SEED");
    app.add_option("--reset", options.reset,
                   "parameters that start so though the model has them: a new head; REGEX is found in their names")
        ->type_name("REGEX");
    app.add_option("--freeze", options.import.freeze, "initializers that do not learn")->type_name("REGEX");
    app.add_option("--train", options.import.train, "initializers that learn")->type_name("REGEX");
    app.add_option("--bn", batchNorm_,
                   "train BatchNorm with the minibatch's statistics, or with the stored ones; pytorch: like batch, and "
                   "running variances move as PyTorch's, by n - 1")
        ->check(CLI::IsMember({"batch", "pytorch", "frozen"}))
        ->type_name("batch|pytorch|frozen");
    app.add_option("--tie", tie_, "train an embedding that the exporter stored twice as one parameter, or as two")
        ->check(CLI::IsMember({"auto", "off"}))
        ->type_name("auto|off");
    app.add_option("--dropout", options.import.dropout, "this ratio for every Dropout")->check(CLI::Range(0.0, 1.0));
    app.add_flag("-v,--verbose", options.verbose,
                 "remark which operations were fused, which could not be and why, and where layouts are changed");
    app.add_flag("--time-passes", options.timePasses, "print how long each pass takes");
    app.add_option("--print-ir-after", options.printAfter, "print the graphs after these passes, or after all")
        ->type_name("PASS|all");
  }

  /// Of generated programs (pdc-eval has a --precision of its own).
  void addPrecisionTo(CLI::App& app) {
    app.add_option("--precision", precision_,
                   "of matrix products and convolutions, for CUDA; weights, sums, norms and losses stay f32")
        ->check(CLI::IsMember({"f32", "bf16", "f16"}))
        ->type_name("f32|bf16|f16");
  }

  Status apply(CompileOptions& options, Diagnostics& diags) {
    options.target = target_ == "cuda" ? Target::cuda : Target::cpu;
    elementTypeFromName(precision_, options.precision);
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
  std::string target_ = "auto", precision_ = "f32", batchNorm_, tie_ = "auto", optimizer_ = "sgd,lr=0.01",
              learningRateSchedule_ = "constant", clipNorm_, lossScale_, nonFinite_;
  std::vector<std::string> batchAxes_, dims_, bound_, loss_, groups_;
};

} // namespace pdc
