// The forward, with the largest absolute value of each input of a weight as its outputs. What is kept depends on data,
// so it is decided once, and a profile remembers it.
#include "Calibration.h"

#include "ForwardOnData.h"
#include "pdc/IR/Builder.h"
#include "pdc/Transforms/Precision.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>

using namespace pdc;

namespace {

constexpr double leastShare = 0.25; ///< of the minibatches in which a kept input is an outlier

class Calibration {
public:
  Calibration(const Module& module, const OpRegistry& registry, const BatchAxes& batch, const CompileOptions& options,
              Diagnostics& diags)
      : registry_(registry), options_(options), diags_(diags),
        forward_(module, registry, batch, "--calibrate=DATA", options.calibrate, options.calibrateBatches, diags) {}

  Expected<KeptInputs> run() {
    if (!readAlpha() || !makeGraph()) return failure;
    if (!forward_.run([&](const InterpreterResult& result) { countOutliers(result); })) return failure;
    return kept();
  }

private:
  Status readAlpha() {
    const auto given = options_.quantize.find("alpha");
    if (given != options_.quantize.end()) alpha_ = std::strtod(given->second.c_str(), nullptr);
    if (alpha_ > 0) return success;
    return diags_.error({}).exit(ExitCode::usage).help("leave --calibrate out, or write a larger alpha")
           << "--calibrate: with alpha 0 every input is an outlier, and would be kept";
  }

  /// A copy of the module whose outputs are the largest values.
  Status makeGraph() {
    Module* const module = forward_.copy();
    if (!module) return failure;
    Graph& graph = *module->findGraph("main");
    const auto given = [&](const char* key) {
      const auto found = options_.quantize.find(key);
      return found == options_.quantize.end() ? std::string() : found->second;
    };
    QuantizeOptions chosen;
    chosen.match = given("match");
    chosen.keep = given("keep");
    Builder b(*module, graph, registry_, diags_);
    for (const RoundedInput& input : roundedInputs(graph, chosen)) {
      Value* largest = b.value("abs", {input.value});
      std::vector<std::int64_t> axes(static_cast<std::size_t>(input.value->type().rank() - 1));
      std::iota(axes.begin(), axes.end(), 0);
      if (largest && !axes.empty()) largest = b.value("reduce_max", {largest}, {{"axes", axes}, {"keep_dims", false}});
      if (!largest) return failure;
      const std::string name = "input" + std::to_string(matrices_.size());
      graph.outputs.push_back({.kind = OutputKind::result, .value = largest, .name = name, .parameter = nullptr});
      matrices_.push_back(input.matrix);
    }
    return success;
  }

  /// An input of a matrix that is used several times counts once.
  void countOutliers(const InterpreterResult& result) {
    std::map<std::string, std::vector<bool>> outliers;
    for (std::size_t i = 0; i < matrices_.size(); ++i) {
      const Tensor& largest = result.outputs.at("input" + std::to_string(i));
      std::vector<bool>& found = outliers[matrices_[i]];
      found.resize(static_cast<std::size_t>(largest.elements()));
      for (std::size_t j = 0; j < found.size(); ++j)
        found[j] = found[j] || !(largest.data<float>()[j] < static_cast<float>(alpha_));
    }
    for (const auto& [matrix, found] : outliers) {
      std::vector<std::int64_t>& counts = counts_[matrix];
      counts.resize(found.size());
      for (std::size_t j = 0; j < found.size(); ++j) counts[j] += found[j];
    }
  }

  KeptInputs kept() const {
    KeptInputs kept;
    for (const auto& [matrix, counts] : counts_)
      for (std::size_t j = 0; j < counts.size(); ++j)
        if (static_cast<double>(counts[j]) >= leastShare * static_cast<double>(options_.calibrateBatches))
          kept[matrix].push_back(static_cast<std::int64_t>(j));
    return kept;
  }

  const OpRegistry& registry_;
  const CompileOptions& options_;
  Diagnostics& diags_;
  ForwardOnData forward_;
  double alpha_ = 6;
  std::vector<std::string> matrices_;                       ///< of each output
  std::map<std::string, std::vector<std::int64_t>> counts_; ///< minibatches in which each input was an outlier
};

} // namespace

Expected<KeptInputs> pdc::calibrate(const Module& module, const OpRegistry& registry, const BatchAxes& batch,
                                    const CompileOptions& options, Diagnostics& diags) {
  return Calibration(module, registry, batch, options, diags).run();
}
