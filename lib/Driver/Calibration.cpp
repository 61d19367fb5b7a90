// The forward, with the largest absolute value of each input of a weight as its outputs. What is kept depends on data,
// so it is decided once, and a profile remembers it.
#include "Calibration.h"

#include "OutputFolder.h"
#include "pdc/Driver/CpuEngine.h"
#include "pdc/Driver/Toolchain.h"
#include "pdc/IR/Builder.h"
#include "pdc/IR/Text.h"
#include "pdc/Transforms/GraphUtilities.h"
#include "pdc/Transforms/Precision.h"
#include "pdcrt/DataFile.h"
#include "pdcrt/Npy.h"
#include "pdcrt/Safetensors.h"

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
      : original_(module), registry_(registry), batch_(batch), options_(options), diags_(diags) {}

  Expected<KeptInputs> run() {
    if (!readAlpha() || !makeGraph() || !readParameters() || !openInputs()) return failure;
    Expected<std::unique_ptr<CpuEngine>> engine = CpuEngine::build({module_.get()}, diags_);
    if (!engine) return failure;
    for (std::int64_t minibatch = 0; minibatch < options_.calibrateBatches; ++minibatch) {
      Expected<InterpreterResult> result =
          (*engine)->run(0, inputsOf(minibatch), parameters_, diags_, 0, static_cast<std::uint64_t>(minibatch));
      if (!result) return failure;
      countOutliers(*result);
    }
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

  Graph& graph() { return *module_->findGraph("main"); }

  /// A copy of the module whose outputs are the largest values.
  Status makeGraph() {
    Expected<std::unique_ptr<Module>> copied = parseModule(print(original_), original_.file, registry_, diags_);
    if (!copied) return failure;
    module_ = std::move(*copied);
    graph().outputs.clear();
    const auto given = [&](const char* key) {
      const auto found = options_.quantize.find(key);
      return found == options_.quantize.end() ? std::string() : found->second;
    };
    QuantizeOptions chosen;
    chosen.match = given("match");
    chosen.keep = given("keep");
    Builder b(*module_, graph(), registry_, diags_);
    for (const RoundedInput& input : roundedInputs(graph(), chosen)) {
      Value* largest = b.value("abs", {input.value});
      std::vector<std::int64_t> axes(static_cast<std::size_t>(input.value->type().rank() - 1));
      std::iota(axes.begin(), axes.end(), 0);
      if (largest && !axes.empty()) largest = b.value("reduce_max", {largest}, {{"axes", axes}, {"keep_dims", false}});
      if (!largest) return failure;
      const std::string name = "input" + std::to_string(matrices_.size());
      graph().outputs.push_back({.kind = OutputKind::result, .value = largest, .name = name, .parameter = nullptr});
      matrices_.push_back(input.matrix);
    }
    eraseDeadOperations(graph());
    return success;
  }

  Status readParameters() {
    Expected<TemporaryFolder> folder = TemporaryFolder::create(diags_);
    if (!folder) return failure;
    const std::string path = folder->path() + "/weights.safetensors";
    std::vector<const Parameter*> used;
    for (const Value* value : graph().parameterValues()) used.push_back(original_.findParameter(value->name()));
    if (!writeWeights(path, used, diags_)) return failure;
    pdcrt::SafetensorsFile file;
    if (pdcrt::Status status = file.open(path); !status) return reportFile(status, path, diags_);
    for (const auto& [name, record] : file.tensors())
      parameters_[name] = Tensor({record.element, record.shape}, record.values);
    return success;
  }

  Status openInputs() {
    for (const GraphInput& input : graph().inputs) {
      const Value& value = *input.value;
      if (value.users().empty()) continue;
      const std::string path = pdcrt::dataFile(options_.calibrate, value.name());
      pdcrt::NpyFile& file = files_[value.name()];
      if (pdcrt::Status status = file.open(path); !status) return reportFile(status, path, diags_);
      Shape expected = value.type().shape;
      const int axis = axisOf(value);
      const std::int64_t samples = options_.calibrateBatches * batch_.size;
      if (axis >= 0 && file.shape().size() == expected.size()) {
        const std::int64_t there = file.shape()[static_cast<std::size_t>(axis)];
        if (there < samples)
          return diags_.error({.file = path}).help("write --calibrate=DATA,batches=N with a smaller N")
                 << "has " << there << " samples, " << options_.calibrateBatches << " batches of " << batch_.size
                 << " need " << samples;
        expected[static_cast<std::size_t>(axis)] = there;
      }
      if (file.shape() != expected || isFloat(file.element()) != isFloat(value.type().element))
        return diags_.error({.file = path}) << "has " << nameOf(file.element()) << toString(file.shape()) << ", input '"
                                            << value.name() << "' is " << toString(value.type());
    }
    return success;
  }

  /// -1: the input is the same for all samples.
  int axisOf(const Value& input) const {
    const auto found = batch_.axes.find(input.name());
    return found == batch_.axes.end() || found->second == pdcrt::noBatchAxis ? -1 : found->second;
  }

  std::map<std::string, Tensor> inputsOf(std::int64_t minibatch) {
    std::map<std::string, Tensor> inputs;
    for (const GraphInput& input : graph().inputs) {
      const Value& value = *input.value;
      const auto file = files_.find(value.name());
      if (file == files_.end()) {
        inputs[value.name()] = Tensor(value.type());
        continue;
      }
      const int axis = axisOf(value);
      std::int64_t outer = 1, inner = static_cast<std::int64_t>(pdcrt::bytesOf(file->second.element()));
      for (int i = 0; i < value.type().rank(); ++i)
        if (i != axis) (i < axis ? outer : inner) *= value.type().shape[static_cast<std::size_t>(i)];
      const std::int64_t there = axis < 0 ? 1 : file->second.shape()[static_cast<std::size_t>(axis)];
      const std::int64_t taken = axis < 0 ? 1 : batch_.size, first = axis < 0 ? 0 : minibatch * batch_.size;
      std::vector<std::byte> samples;
      for (std::int64_t o = 0; o < outer; ++o) {
        const auto from = file->second.values().subspan(static_cast<std::size_t>((o * there + first) * inner),
                                                        static_cast<std::size_t>(taken * inner));
        samples.insert(samples.end(), from.begin(), from.end());
      }
      inputs[value.name()] =
          Tensor({file->second.element(), value.type().shape}, samples).convertedTo(value.type().element);
    }
    return inputs;
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

  const Module& original_;
  const OpRegistry& registry_;
  const BatchAxes& batch_;
  const CompileOptions& options_;
  Diagnostics& diags_;
  double alpha_ = 6;
  std::unique_ptr<Module> module_;
  std::vector<std::string> matrices_; ///< of each output
  std::map<std::string, Tensor> parameters_;
  std::map<std::string, pdcrt::NpyFile> files_;
  std::map<std::string, std::vector<std::int64_t>> counts_; ///< minibatches in which each input was an outlier
};

} // namespace

Expected<KeptInputs> pdc::calibrate(const Module& module, const OpRegistry& registry, const BatchAxes& batch,
                                    const CompileOptions& options, Diagnostics& diags) {
  return Calibration(module, registry, batch, options, diags).run();
}
