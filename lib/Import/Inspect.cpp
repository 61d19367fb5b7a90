// What `pdc inspect` prints: two columns, a heading and its lines.
#include "BatchAxes.h"
#include "Buffers.h"
#include "Functions.h"
#include "Initializers.h"
#include "Inputs.h"
#include "Operators.h"
#include "ProgramOrder.h"
#include "TensorReader.h"
#include "Weights/OwnInitializers.h"

#include <algorithm>
#include <iomanip>
#include <map>
#include <ostream>
#include <set>
#include <sstream>

using namespace pdc;

namespace {

/// Prints `heading` beside the first of `lines`; without lines, "none".
void printLines(std::ostream& out, const char* heading, std::vector<std::string> lines) {
  if (lines.empty()) lines.push_back("none");
  for (const std::string& line : lines) {
    out << std::left << std::setw(12) << heading << line << "\n";
    heading = "";
  }
}

std::string typeOfOutput(const onnx::ValueInfoProto& output) {
  const onnx::TypeProto::Tensor& tensor = output.type().tensor_type();
  std::optional<ElementType> element = elementTypeFromOnnx(tensor.elem_type());
  std::string text = element ? nameOf(*element) : onnxTypeName(tensor.elem_type());
  if (!tensor.has_shape()) return text;
  DataInput shape{output.name(), element.value_or(ElementType::f32), {}};
  for (const onnx::TensorShapeProto::Dimension& dim : tensor.shape().dim())
    shape.dims.push_back({dim.dim_value(), dim.has_dim_value() ? "" : dim.dim_param().empty() ? "?" : dim.dim_param()});
  return element ? toString(shape) : text;
}

/// "  buffers of the module: inv_freq, table, tmp and 4 more".
std::string reasonLine(const std::string& reason, const std::vector<std::string>& names) {
  constexpr std::size_t most = 5;
  std::string line = "  " + reason + ":";
  for (std::size_t i = 0; i < std::min(names.size(), most); ++i) line += (i == 0 ? " " : ", ") + names[i];
  return names.size() > most ? line + " and " + std::to_string(names.size() - most) + " more" : line;
}

/// What learns and what does not, and why where that is no matter of course.
std::vector<std::string> parameterLines(const OnnxFile& file, const std::vector<Initializer>& initializers) {
  std::vector<std::string> lines;
  for (auto [role, what] :
       {std::pair(InitializerRole::trained, "trained"), std::pair(InitializerRole::state, "running statistics"),
        std::pair(InitializerRole::frozen, "frozen"), std::pair(InitializerRole::constant, "constant"),
        std::pair(InitializerRole::triangle, "triangular, computed")}) {
    int count = 0;
    double elements = 0, bytes = 0; // sums of sizes that a hostile file may choose
    std::map<std::string, std::vector<std::string>> reasons;
    for (std::size_t i = 0; i < initializers.size(); ++i) {
      const Initializer& initializer = initializers[i];
      if (initializer.role != role) continue;
      ++count;
      elements += static_cast<double>(initializer.tensor.type.elements());
      bytes += static_cast<double>(initializer.tensor.type.bytes());
      if (!initializer.reason.empty())
        reasons[initializer.reason].push_back(file.graph().initializer(static_cast<int>(i)).name());
    }
    std::ostringstream line;
    line << std::fixed << std::setprecision(0) << count << " " << what << ", " << elements << " elements, " << bytes
         << " bytes";
    if (count > 0) lines.push_back(line.str());
    for (const auto& [reason, names] : reasons) lines.push_back(reasonLine(reason, names));
  }
  return lines;
}

/// Whether the model has what --loss looks for when it is not given: an output that is a loss.
bool hasLoss(const OnnxFile& file) {
  return std::any_of(file.graph().output().begin(), file.graph().output().end(), [](const auto& output) {
    const onnx::TypeProto::Tensor& tensor = output.type().tensor_type();
    std::optional<ElementType> element = elementTypeFromOnnx(tensor.elem_type());
    return element && isFloat(*element) && tensor.has_shape() && tensor.shape().dim_size() == 0;
  });
}

class Inspector {
public:
  Inspector(OnnxFile& file, const OpRegistry& registry, std::ostream& out)
      : file_(file), registry_(registry), out_(out) {}

  void run() {
    const onnx::ModelProto& model = file_.model();
    std::string producer = model.producer_name().empty() ? "unknown producer" : model.producer_name();
    if (!model.producer_version().empty()) producer += " " + model.producer_version();
    printLines(out_, "model",
               {file_.path() + ": " + producer + ", IR " + std::to_string(model.ir_version()) + ", opset " +
                std::to_string(file_.opset())});
    static_cast<void>(checkVersions(file_, quiet_)); // what they find is printed at the end
    giveOwnInitializers(file_, ImportOptions{}, quiet_);
    static_cast<void>(inlineFunctions(file_, registry_, quiet_));
    static_cast<void>(programOrder(file_, quiet_));
    printInputs();
    std::vector<std::string> outputs;
    for (const onnx::ValueInfoProto& output : file_.graph().output())
      outputs.push_back(output.name() + ": " + typeOfOutput(output));
    printLines(out_, "outputs", outputs);
    TensorReader reader(file_, quiet_, /*elementsMayLack=*/true);
    Expected<std::vector<Initializer>> initializers = readInitializers(file_, {}, reader, quiet_);
    printLines(out_, "parameters",
               initializers ? parameterLines(file_, *initializers) : std::vector<std::string>{"not readable"});
    printOperators();
    findLackingWeights(reader);
    if (!hasLoss(file_))
      missing_.push_back("no output is a loss: give --loss=softmax-cross-entropy, mse or bce-with-logits");
    std::vector<std::string> warnings;
    for (const Diagnostic& diagnostic : quiet_.all()) {
      if (diagnostic.severity == Severity::remark) continue;
      const std::string where = diagnostic.location.node;
      (diagnostic.severity == Severity::warning ? warnings : missing_)
          .push_back((where.empty() ? "" : where + ": ") + diagnostic.message);
    }
    if (!warnings.empty()) printLines(out_, "warnings", warnings);
    printLines(out_, "missing", missing_);
  }

private:
  /// As importOnnx takes them without --batch-axis. An input whose axis it would not know counts as one of the first.
  std::vector<int> likelyBatchAxes(const std::vector<DataInput>& inputs) {
    const std::vector<DataInput> outputs = statedOutputs(file_);
    const Expected<std::vector<BatchAxis>> found = chooseBatchAxes({inputs, outputs, {}, {}, {}, file_.path(), quiet_});
    std::vector<int> axes;
    for (const BatchAxis& axis : found ? *found : std::vector<BatchAxis>(inputs.size()))
      axes.push_back(std::max(axis.axis, 0));
    return axes;
  }

  void printInputs() {
    Expected<std::vector<DataInput>> inputs = dataInputs(file_, quiet_);
    std::vector<std::string> lines;
    std::set<std::string> symbols;
    const std::vector<int> batchAxes = inputs ? likelyBatchAxes(*inputs) : std::vector<int>{};
    for (std::size_t i = 0; i < batchAxes.size(); ++i) {
      const DataInput& input = (*inputs)[i];
      lines.push_back(input.name + ": " + toString(input) +
                      (batchAxes[i] > 0 ? ", the batch is axis " + std::to_string(batchAxes[i]) : ""));
      for (std::size_t axis = 0; axis < input.dims.size(); ++axis)
        if (const std::string& symbol = input.dims[axis].symbol; !symbol.empty() && symbols.insert(symbol).second)
          missing_.push_back("dimension '" + symbol + "' has no size: give " +
                             (static_cast<int>(axis) == batchAxes[i] ? "--batch=B" : dimFlag(symbol)));
    }
    printLines(out_, "inputs", lines);
  }

  void printOperators() {
    std::vector<std::string> lines;
    for (const OperatorUse& use : operatorsOf(file_, registry_)) {
      lines.push_back(std::to_string(use.count) + " " + use.name);
      if (!use.problem.empty()) missing_.push_back("operator '" + use.name + "' is " + use.problem);
    }
    printLines(out_, "operators", lines);
  }

  /// Weights that a model was exported or copied without: --init starts it all the same.
  void findLackingWeights(const TensorReader& reader) {
    const auto& inputs = file_.graph().input();
    const auto count = std::count_if(inputs.begin(), inputs.end(), [](const onnx::ValueInfoProto& input) {
      return isNamedLikeParameter(input.name()) && isTypedLikeParameter(input);
    });
    if (count > 0 && file_.graph().initializer_size() == 0)
      missing_.push_back(std::to_string(count) +
                         " inputs are called like weights, which have no values: give --init=SEED");
    if (const auto [location, lacking] = reader.lackingData(); lacking > 0)
      missing_.push_back("external data '" + location + "' is not there, with " + std::to_string(lacking) +
                         " initializers: give --init=SEED");
  }

  OnnxFile& file_;
  const OpRegistry& registry_;
  std::ostream& out_;
  Diagnostics quiet_{nullptr}; ///< of the checks that the importer would make
  std::vector<std::string> missing_;
};

} // namespace

Status pdc::inspectOnnx(const std::string& path, const OpRegistry& registry, std::ostream& out, Diagnostics& diags) {
  Expected<OnnxFile> file = OnnxFile::open(path, diags);
  if (!file) return failure;
  Inspector(*file, registry, out).run();
  return success;
}
