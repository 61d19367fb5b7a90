// LINK: pdcImport pdcOps
// Conversions against ONNX's own test vectors (Debian's libonnx-testdata): every model that is imported computes what
// its authors say, and what is not imported is refused as unsupported.
#include "OpsExamples.h"

#include "pdc/Import/OnnxImport.h"
#include "pdc/Import/OnnxTensor.h"
#include "pdcrt/MappedFile.h"

#include <onnx/onnx_pb.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <unistd.h>

using namespace pdc;
using namespace pdc::testing;
namespace fs = std::filesystem;

namespace {

/// Where the vectors are; those of a newer onnx package can be made with its backend-test-tools.
const fs::path vectors =
    std::getenv("PDC_ONNX_VECTORS") ? std::getenv("PDC_ONNX_VECTORS") : "/usr/share/libonnx-testdata/data";

template <class Message>
bool read(const fs::path& path, Message& message) {
  std::ifstream stream(path, std::ios::binary);
  return stream && message.ParseFromIstream(&stream);
}

std::optional<Tensor> toTensor(const onnx::TensorProto& proto) {
  Diagnostics diags(nullptr);
  const Expected<Tensor> tensor = tensorFromOnnx(proto, {}, diags);
  return tensor ? std::optional(*tensor) : std::nullopt;
}

/// ONNX 1.12 stores bits of bf16 as 16-bit integers, cut off instead of rounded: test/conformance compares those.
bool isBf16(const onnx::ValueInfoProto& value) {
  return value.type().tensor_type().elem_type() == onnx::TensorProto::BFLOAT16;
}

enum class Outcome { agrees, unsupported, failed };

/// One test case: a model, its inputs and what it must compute.
class Case {
public:
  explicit Case(fs::path folder) : folder_(std::move(folder)), data_(folder_ / "test_data_set_0") {}

  Outcome run() {
    if (!read(folder_ / "model.onnx", model_) || !readOpset() || !readInputs()) return Outcome::unsupported;
    const fs::path path =
        fs::temp_directory_path() / ("pdc-ops-" + std::to_string(getpid()) + folder_.filename().string() + ".onnx");
    std::ofstream(path, std::ios::binary) << model_.SerializeAsString();
    Diagnostics diags(nullptr);
    const auto module = importOnnx(path.string(), {}, allOps(), diags);
    const Outcome outcome = module ? compare(**module, storedParameters(**module)) : refused(diags);
    fs::remove(path);
    return outcome;
  }

  std::string problem;

private:
  /// Models of opsets before 7 are read as opset 7: where an operator changed, an attribute is left that is refused.
  bool readOpset() {
    for (onnx::OperatorSetIdProto& opset : *model_.mutable_opset_import())
      if (opset.domain().empty()) return opset.set_version(std::max<std::int64_t>(7, opset.version())), true;
    return false; // operators of other domains only
  }

  /// Integers, booleans and scalars are made part of the model: pdc wants to know shapes, axes and ratios.
  bool readInputs() {
    onnx::GraphProto& graph = *model_.mutable_graph();
    std::vector<onnx::ValueInfoProto> data;
    for (int i = 0; i < graph.input_size(); ++i) {
      onnx::TensorProto proto;
      if (!graph.input(i).type().has_tensor_type() || isBf16(graph.input(i))) return false;
      if (!read(data_ / ("input_" + std::to_string(i) + ".pb"), proto)) return false;
      const std::optional<Tensor> tensor = toTensor(proto);
      if (!tensor) return false;
      if (tensor->elements() == 0 && isFloat(tensor->type().element)) return false; // data without samples
      if (isFloat(tensor->type().element) && tensor->type().rank() > 0 && !isParameterOfResize(graph.input(i).name())) {
        inputs_[graph.input(i).name()] = *tensor;
        data.push_back(graph.input(i));
      } else {
        *graph.add_initializer() = proto;
        graph.mutable_initializer(graph.initializer_size() - 1)->set_name(graph.input(i).name());
      }
    }
    graph.clear_input();
    for (const onnx::ValueInfoProto& input : data) *graph.add_input() = input;
    return true;
  }

  /// Scales and regions of interest are floats, and must be known all the same.
  bool isParameterOfResize(const std::string& input) const {
    for (const onnx::NodeProto& node : model_.graph().node())
      for (int i = 1; (node.op_type() == "Resize" || node.op_type() == "Upsample") && i < node.input_size(); ++i)
        if (node.input(i) == input) return true;
    return false;
  }

  Outcome refused(const Diagnostics& diags) {
    problem = messages(diags);
    return diags.exitCode() == ExitCode::unsupported ? Outcome::unsupported : Outcome::failed;
  }

  /// The values of integer weights, which are parameters that do not learn.
  static std::map<std::string, Tensor> storedParameters(const Module& module) {
    std::map<std::string, Tensor> parameters;
    for (const auto& parameter : module.parameters) {
      pdcrt::MappedFile file;
      if (!file.open(parameter->reference.file)) continue;
      const std::span<const std::byte> bytes = file.bytes().subspan(
          static_cast<std::size_t>(parameter->reference.offset), static_cast<std::size_t>(parameter->reference.length));
      parameters[parameter->name] = Tensor(parameter->type, bytes);
    }
    return parameters;
  }

  Outcome compare(const Module& module, const std::map<std::string, Tensor>& parameters) {
    Diagnostics diags(nullptr);
    if (!verify(module, diags)) return problem = messages(diags), Outcome::failed;
    // Random operators give other numbers than ONNX's.
    for (const auto& operation : module.graphs.front()->operations())
      if (operation->def().facts.random) return Outcome::unsupported;
    const auto result = interpret(*module.graphs.front(), inputs_, parameters, Precision::f32, diags);
    if (!result) return problem = messages(diags), Outcome::failed;
    for (int i = 0; i < model_.graph().output_size(); ++i) {
      const std::string& name = model_.graph().output(i).name();
      onnx::TensorProto proto;
      const onnx::ValueInfoProto& output = model_.graph().output(i);
      if (!output.type().has_tensor_type() || isBf16(output)) return Outcome::unsupported;
      if (!read(data_ / ("output_" + std::to_string(i) + ".pb"), proto)) return Outcome::unsupported;
      const std::optional<Tensor> expected = toTensor(proto);
      const auto actual = result->outputs.find(name);
      if (!expected || actual == result->outputs.end()) return Outcome::unsupported;
      if (actual->second.shape() != expected->shape())
        return problem = name + " is " + toString(actual->second.type()) + ", not " + toString(expected->type()),
               Outcome::failed;
      const double error = errorOf(actual->second, *expected);
      if (!(error < (isFloat(expected->type().element) ? 1e-4 : 1e-300)))
        return problem = name + " errs by " + std::to_string(error), Outcome::failed;
    }
    return Outcome::agrees;
  }

  fs::path folder_, data_;
  onnx::ModelProto model_;
  std::map<std::string, Tensor> inputs_;
};

} // namespace

TEST(OpsOnnx, ConversionsComputeWhatOnnxSays) {
  if (!fs::exists(vectors)) GTEST_SKIP() << "needs ONNX's test vectors (apt install libonnx-testdata)";
  std::map<Outcome, int> counts;
  std::string refusals;
  for (const char* suite : {"node", "simple", "pytorch-operator", "pytorch-converted"}) {
    if (!fs::exists(vectors / suite)) continue;
    for (const fs::directory_entry& entry : fs::directory_iterator(vectors / suite)) {
      Case test(entry.path());
      const Outcome outcome = test.run();
      ++counts[outcome];
      if (outcome == Outcome::unsupported && !test.problem.empty())
        refusals += entry.path().filename().string() + ": " + test.problem;
      EXPECT_NE(outcome, Outcome::failed) << entry.path().filename() << ": " << test.problem;
    }
  }
  RecordProperty("agree", counts[Outcome::agrees]);
  RecordProperty("unsupported", counts[Outcome::unsupported]);
  std::printf("%d test vectors agree, %d are of operators that pdc does not have\n", counts[Outcome::agrees],
              counts[Outcome::unsupported]);
  if (std::getenv("PDC_SHOW_UNSUPPORTED")) std::printf("%s", refusals.c_str());
  EXPECT_GE(counts[Outcome::agrees], 600);
}
