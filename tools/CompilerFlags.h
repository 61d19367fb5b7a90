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
        ->check(CLI::IsMember({"auto", "cpu"}))
        ->type_name("auto|cpu");
    app.add_option("--batch", options.import.batch, "samples per minibatch (microbatch)")->check(CLI::PositiveNumber);
    app.add_option("--dim", dims_, "bind a symbolic dimension other than the batch")->type_name("NAME=V");
    app.add_option("--loss", loss_,
                   "softmax-cross-entropy, mse, bce-with-logits or output:NAME; append :OUTPUT to name the output it "
                   "applies to (the model's own loss)");
    app.add_option("--optimizer", optimizer_,
                   "sgd, momentum, adam or adamw, then lr=…, momentum=…, weight_decay=…, betas=…/…")
        ->capture_default_str();
    app.add_option("--freeze", options.import.freeze, "initializers that do not learn")->type_name("REGEX");
    app.add_option("--train", options.import.train, "initializers that learn")->type_name("REGEX");
    app.add_option("--bn", batchNorm_, "train BatchNorm with the minibatch's statistics, or with the stored ones")
        ->check(CLI::IsMember({"batch", "frozen"}))
        ->type_name("batch|frozen");
    app.add_option("--tie", tie_, "train an embedding that the exporter stored twice as one parameter, or as two")
        ->check(CLI::IsMember({"auto", "off"}))
        ->type_name("auto|off");
    app.add_option("--dropout", options.import.dropout, "this ratio for every Dropout")->check(CLI::Range(0.0, 1.0));
    app.add_flag("--time-passes", options.timePasses, "print how long each pass takes");
    app.add_option("--print-ir-after", options.printAfter, "print the graphs after these passes, or after all")
        ->type_name("PASS|all");
  }

  Status apply(CompileOptions& options, Diagnostics& diags) {
    for (const std::string& dim : dims_) {
      const std::size_t equals = dim.rfind('=');
      char* end = nullptr;
      const std::int64_t value = equals == std::string::npos ? 0 : std::strtoll(dim.c_str() + equals + 1, &end, 10);
      if (value <= 0 || *end)
        return diags.error({}).exit(ExitCode::usage).help("write --dim sequence=128")
               << "--dim: '" << dim << "' is not NAME=V with V > 0";
      options.import.dims[dim.substr(0, equals)] = value;
    }
    if (!loss_.empty() && !parseLoss(loss_, options.loss, diags)) return failure;
    if (!batchNorm_.empty())
      options.import.batchNorm = batchNorm_ == "batch" ? BatchNormMode::batch : BatchNormMode::frozen;
    options.import.tie = tie_ == "auto";
    return parseOptimizer(optimizer_, options.training, diags);
  }

private:
  std::string target_ = "auto", loss_, batchNorm_, tie_ = "auto", optimizer_ = "sgd,lr=0.01";
  std::vector<std::string> dims_;
};

} // namespace pdc
