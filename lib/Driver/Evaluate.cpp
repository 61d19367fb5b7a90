// npy files (or ONNX's tensors) in, one run, npy files out.
#include "pdc/Driver/Evaluate.h"

#include "InitialWeights.h"
#include "OutputFolder.h"
#include "pdc/Driver/CpuEngine.h"
#include "pdc/Driver/Toolchain.h"
#include "pdc/IR/Interpreter.h"
#include "pdc/Import/OnnxTensor.h"
#include "pdc/Ops/AllOps.h"
#include "pdc/Transforms/Pipeline.h"
#include "pdcrt/DataFile.h"
#include "pdcrt/Npy.h"
#include "pdcrt/Safetensors.h"

#include <filesystem>

using namespace pdc;
namespace fs = std::filesystem;

namespace {

class Evaluation {
public:
  Evaluation(const EvaluateOptions& options, Diagnostics& diags) : options_(options), diags_(diags) {
    registerAllOps(ops_);
    registerTransforms(passes_);
  }

  Status run() {
    if (!prepare() || !readInputs() || !readParameters()) return failure;
    Expected<InterpreterResult> result = compute();
    if (!result) return failure;
    return write(*result);
  }

private:
  Status prepare() {
    ImportOptions import = options_.model.import;
    if (options_.gradients) import.values = valuesOfLosses(options_.model.losses);
    Expected<std::unique_ptr<Module>> module = importOnnx(options_.model.model, import, ops_, diags_);
    if (!module) return failure;
    module_ = std::move(*module);
    if (!takeInitialWeights(*module_, options_.model.initFrom, diags_)) return failure;
    if (!runPipeline(afterImportSteps(options_.model.capacity.factor), passes_, *module_, ops_, diags_, {}))
      return failure;
    if (!drawInitialWeights(*module_, {options_.model.init, options_.model.reset}, diags_)) return failure;
    std::vector<PipelineStep> steps;
    if (options_.gradients) {
      steps = lossSteps(options_.model.losses, false);
      for (PipelineStep& step : afterLossesSteps()) steps.push_back(std::move(step));
    }
    if (!options_.model.capacity.data.empty())
      return diags_.error({}).exit(ExitCode::usage).help("write --capacity=F")
             << "--capacity=auto is for programs: an evaluation looks at no other data";
    if (!options_.model.calibrate.empty())
      return diags_.error({}).exit(ExitCode::usage).help("leave --calibrate out")
             << "--calibrate is for programs: an evaluation keeps no inputs in f32";
    if (options_.model.quantizes) steps.push_back({"quantize-frozen", options_.model.quantize});
    if (options_.gradients) {
      steps.push_back({"differentiate", {}});
      PipelineStep fusion = {"fuse", {}};
      if (options_.unfused) fusion.options["apart"] = "";
      steps.push_back(std::move(fusion));
    }
    return runPipeline(steps, passes_, *module_, ops_, diags_, {});
  }

  Status readInputs() {
    for (std::size_t i = 0; i < graph().inputs.size(); ++i) {
      const Value& value = *graph().inputs[i].value;
      Expected<Tensor> tensor = readInput(value, i);
      if (!tensor) return failure;
      inputs_[value.name()] = tensor->convertedTo(value.type().element);
    }
    return success;
  }

  /// NAME.npy, or else NAME.pb or, as in ONNX's tests, input_POSITION.pb.
  Expected<Tensor> readInput(const Value& input, std::size_t position) {
    const std::string npy = pdcrt::dataFile(options_.inputs, input.name());
    for (const std::string& pb : {pdcrt::dataFile(options_.inputs, input.name(), ".pb"),
                                  options_.inputs + "/input_" + std::to_string(position) + ".pb"})
      if (!fs::exists(npy) && fs::exists(pb)) return readOnnxTensor(pb, diags_);
    pdcrt::NpyFile file;
    if (pdcrt::Status status = file.open(npy); !status) return reportFile(status, npy, diags_);
    const Type& type = input.type();
    if (file.shape() != type.shape)
      return diags_.error({.file = npy}).help(pdcrt::reshapeHelp(npy, file.shape(), type.shape, -1))
             << "has the shape " << toString(file.shape()) << ", input '" << input.name() << "' is " << toString(type);
    if (isFloat(file.element()) && !isFloat(type.element))
      return diags_.error({.file = npy}).help(pdcrt::astypeHelp(npy, type.element))
             << "has elements of type " << nameOf(file.element()) << ", input '" << input.name() << "' is "
             << toString(type);
    return Tensor({file.element(), file.shape()}, file.values());
  }

  /// The stored values, read back from a weights file: transposed weights are handled in one place only.
  Status readParameters() {
    Expected<TemporaryFolder> folder = TemporaryFolder::create(diags_);
    if (!folder) return failure;
    const std::string path = folder->path() + "/weights.safetensors";
    std::vector<const Parameter*> all;
    for (const Value* value : graph().parameterValues()) all.push_back(value->parameter());
    if (!writeWeights(path, all, diags_)) return failure;
    pdcrt::SafetensorsFile file;
    if (pdcrt::Status status = file.open(path); !status) return reportFile(status, path, diags_);
    for (const auto& [name, record] : file.tensors())
      parameters_[name] = Tensor({record.element, record.shape}, record.values);
    return success;
  }

  Expected<InterpreterResult> compute() {
    if (options_.engine == "interpreter")
      return interpret(graph(), inputs_, parameters_, options_.inDouble ? Precision::f64 : Precision::f32, diags_,
                       options_.seed);
    Expected<std::unique_ptr<CpuEngine>> engine = CpuEngine::build({module_.get()}, diags_);
    if (!engine) return failure;
    return (*engine)->run(0, inputs_, parameters_, diags_, options_.seed);
  }

  Status write(const InterpreterResult& result) {
    std::error_code error;
    fs::create_directories(options_.outputs, error);
    auto store = [&](const std::string& name, const Tensor& tensor) -> Status {
      const std::string path = options_.outputs + "/" + pdcrt::dataFileName(name) + ".npy";
      if (pdcrt::Status status = pdcrt::writeNpy(path, tensor.type().element, tensor.shape(), tensor.bytes()); !status)
        return reportFile(status, path, diags_);
      return success;
    };
    for (const auto& [name, tensor] : result.outputs)
      if (!store(name, tensor)) return failure;
    if (!options_.gradients) return success;
    std::vector<pdcrt::TensorRecord> records;
    for (const auto& [name, tensor] : result.gradients)
      records.push_back({name, tensor.type().element, tensor.shape(), tensor.bytes()});
    const std::string path = options_.outputs + "/gradients.safetensors";
    if (pdcrt::Status status = pdcrt::writeSafetensors(path, records); !status) return reportFile(status, path, diags_);
    return store("loss", Tensor::scalar(result.loss, ElementType::f64));
  }

  const Graph& graph() const { return *module_->findGraph("main"); }

  const EvaluateOptions& options_;
  Diagnostics& diags_;
  OpRegistry ops_;
  PassRegistry passes_;
  std::unique_ptr<Module> module_;
  std::map<std::string, Tensor> inputs_, parameters_;
};

} // namespace

Status pdc::evaluate(const EvaluateOptions& options, Diagnostics& diags) {
  return Evaluation(options, diags).run();
}
