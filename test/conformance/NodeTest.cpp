#include "NodeTest.h"

#include "pdc/IR/Verifier.h"
#include "pdc/Import/OnnxImport.h"
#include "pdc/Import/OnnxTensor.h"
#include "pdcrt/MappedFile.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <regex>
#include <unistd.h>

using namespace pdc;
using namespace pdc::conformance;
namespace fs = std::filesystem;

namespace {

template <class Message>
bool read(const fs::path& path, Message& message) {
  std::ifstream stream(path, std::ios::binary);
  return stream && message.ParseFromIstream(&stream);
}

/// Writes a model for the importer, which reads files, and removes it.
class TemporaryModel {
public:
  TemporaryModel(const std::string& name, const onnx::ModelProto& model)
      : path_(fs::temp_directory_path() / ("pdc-" + std::to_string(getpid()) + name + ".onnx")) {
    std::ofstream(path_, std::ios::binary) << model.SerializeAsString();
  }
  ~TemporaryModel() {
    std::error_code ignored;
    fs::remove(path_, ignored);
  }
  std::string path() const { return path_.string(); }

private:
  fs::path path_;
};

/// Of f16 and bf16, two units in the last place: ONNX 1.12 cut bf16 off instead of rounding, and newer ones round every
/// addition of a sum.
double toleranceOf(ElementType element) {
  return element == ElementType::bf16 ? 2.0 / 128 : element == ElementType::f16 ? 2.0 / 1024 : 1e-3;
}

bool agrees(double actual, double expected, double tolerance) {
  if (std::isnan(expected) || std::isinf(expected))
    return std::isnan(expected) ? std::isnan(actual) : actual == expected;
  return std::fabs(actual - expected) <= 1e-7 + tolerance * std::fabs(expected);
}

} // namespace

std::optional<Tensor> pdc::conformance::toTensor(onnx::TensorProto proto, int onnxType) {
  Diagnostics diags(nullptr);
  proto.set_data_type(onnxType); // NumPy had no bf16: its bits were stored as another type
  const Expected<Tensor> tensor = tensorFromOnnx(proto, {}, diags);
  return tensor ? std::optional(*tensor) : std::nullopt;
}

Verdict pdc::conformance::verdictOf(const Diagnostics& diags) {
  for (const Diagnostic& diagnostic : diags.all()) {
    if (diagnostic.severity != Severity::error) continue;
    std::string reason = diagnostic.message;
    if (!diagnostic.notes.empty() && reason.find("not supported: ") != std::string::npos) {
      reason = diagnostic.notes.front(); // "'Loop' is not an operator …: 1 node, 'name'"
      reason.erase(std::min(reason.rfind(": "), reason.size()));
    }
    const bool unsupported = diagnostic.exitCode == ExitCode::unsupported;
    return {unsupported ? Outcome::unsupported : Outcome::failed, reason};
  }
  return {Outcome::failed, "nothing was reported"};
}

NodeTest::NodeTest(const fs::path& folder) : data_(folder / "test_data_set_0"), name_(folder.filename().string()) {
  if (!read(folder / "model.onnx", model_)) return;
  if (model_.graph().node_size() == 1) opType_ = model_.graph().node(0).op_type();
}

std::unique_ptr<Module> NodeTest::import(const OpRegistry& registry, Verdict& verdict) {
  if (!readInputs(verdict)) return nullptr;
  raiseOpset();
  for (;;) {
    const TemporaryModel file(name_, withConstants());
    Diagnostics diags(nullptr);
    auto module = importOnnx(file.path(), {}, registry, diags);
    if (!module && makeConstants(diags)) continue;
    if (!module || !verify(**module, diags)) {
      verdict = verdictOf(diags);
      return nullptr;
    }
    readParameters(**module);
    for (const auto& operation : (*module)->graphs.front()->operations())
      if (operation->def().facts.random) {
        verdict.reason = "draws random numbers, ONNX states no generator for them";
        return nullptr;
      }
    return std::move(*module);
  }
}

void NodeTest::readParameters(const Module& module) {
  for (const auto& parameter : module.parameters) {
    pdcrt::MappedFile file;
    if (!file.open(parameter->reference.file)) continue;
    parameters_[parameter->name] =
        Tensor(parameter->type, file.bytes().subspan(static_cast<std::size_t>(parameter->reference.offset),
                                                     static_cast<std::size_t>(parameter->reference.length)));
  }
}

bool NodeTest::readInputs(Verdict& verdict) {
  const auto refuse = [&](Outcome outcome, std::string reason) {
    verdict = {outcome, std::move(reason)};
    return false;
  };
  for (const auto& list : {model_.graph().input(), model_.graph().output()})
    for (const onnx::ValueInfoProto& info : list)
      if (!info.type().has_tensor_type())
        return refuse(Outcome::unsupported, "sequences, optionals and maps are not supported");
  const auto isOnnx = [](const onnx::OperatorSetIdProto& set) { return set.domain().empty(); };
  if (std::none_of(model_.opset_import().begin(), model_.opset_import().end(), isOnnx))
    return refuse(Outcome::unsupported, "operators of another domain than ONNX's");
  for (int i = 0; i < model_.graph().input_size(); ++i) {
    onnx::TensorProto proto;
    const std::string& name = model_.graph().input(i).name();
    if (!read(data_ / ("input_" + std::to_string(i) + ".pb"), proto))
      return refuse(Outcome::failed, "the test lacks input " + std::to_string(i));
    const int type = model_.graph().input(i).type().tensor_type().elem_type();
    if (std::optional<Tensor> tensor = toTensor(proto, type)) inputs_[name] = *std::move(tensor);
    values_[name] = std::move(proto);
  }
  return true;
}

void NodeTest::raiseOpset() {
  for (onnx::OperatorSetIdProto& opset : *model_.mutable_opset_import())
    if (opset.domain().empty()) opset.set_version(std::max<std::int64_t>(7, opset.version()));
}

/// The model in which inputs have the shapes of their values, and some are nodes instead. (An initializer of floats
/// would be a parameter.)
onnx::ModelProto NodeTest::withConstants() const {
  onnx::ModelProto model = model_;
  onnx::GraphProto& graph = *model.mutable_graph();
  graph.clear_input();
  for (const onnx::ValueInfoProto& info : model_.graph().input()) {
    const onnx::TensorProto& value = values_.at(info.name());
    // A tensor without elements is no data of a minibatch.
    const bool empty = std::find(value.dims().begin(), value.dims().end(), 0) != value.dims().end();
    if (!empty && !constants_.contains(info.name())) {
      onnx::ValueInfoProto& input = *graph.add_input() = info;
      onnx::TensorShapeProto& shape = *input.mutable_type()->mutable_tensor_type()->mutable_shape();
      shape.clear_dim();
      for (std::int64_t dim : value.dims()) shape.add_dim()->set_dim_value(dim);
      continue;
    }
    onnx::NodeProto& node = *graph.add_node();
    node.set_op_type("Constant");
    node.add_output(info.name());
    onnx::AttributeProto& attribute = *node.add_attribute();
    attribute.set_name("value");
    attribute.set_type(onnx::AttributeProto::TENSOR);
    *attribute.mutable_t() = value;
  }
  return model;
}

/// Whether a conversion failed for want of a constant, and the inputs of the model from which that one is computed have
/// become constants.
bool NodeTest::makeConstants(const Diagnostics& diags) {
  static const std::regex wanted("needs a constant input (\\d+) ");
  for (const Diagnostic& diagnostic : diags.all()) {
    std::smatch match;
    if (!std::regex_search(diagnostic.message, match, wanted)) continue;
    const int position = std::stoi(match[1]);
    for (const onnx::NodeProto& node : model_.graph().node()) {
      const std::string& name = node.name().empty() ? node.output(0) : node.name();
      if (name != diagnostic.location.node || position >= node.input_size()) continue;
      const std::size_t before = constants_.size();
      addSources(node.input(position), constants_);
      return constants_.size() > before;
    }
  }
  return false;
}

/// Adds the inputs of the model from which `value` is computed.
void NodeTest::addSources(const std::string& value, std::set<std::string>& sources) const {
  if (values_.contains(value)) sources.insert(value);
  for (const onnx::NodeProto& node : model_.graph().node())
    if (std::find(node.output().begin(), node.output().end(), value) != node.output().end())
      for (const std::string& input : node.input()) addSources(input, sources);
}

Verdict NodeTest::compare(const Module& module, const InterpreterResult& result) const {
  for (int i = 0; i < model_.graph().output_size(); ++i) {
    const std::string& name = model_.graph().output(i).name();
    onnx::TensorProto proto;
    if (!read(data_ / ("output_" + std::to_string(i) + ".pb"), proto))
      return {Outcome::failed, "the test lacks output " + std::to_string(i)};
    const std::optional<Tensor> expected = toTensor(proto, model_.graph().output(i).type().tensor_type().elem_type());
    const auto actual = result.outputs.find(name);
    if (!expected)
      return {Outcome::unsupported, "output " + std::to_string(i) + " has an element type that pdc does not have"};
    if (actual == result.outputs.end()) return {Outcome::failed, "output " + std::to_string(i) + " was not computed"};
    // The interpreter holds every float as f32: the graph says which type it is.
    Type type = actual->second.type();
    for (const GraphOutput& output : module.graphs.front()->outputs)
      if (output.name == name && output.kind == OutputKind::result) type = output.value->type();
    if (type.element != expected->type().element || type.shape != expected->shape())
      return {Outcome::failed,
              "output " + std::to_string(i) + " is " + toString(type) + ", expected is " + toString(expected->type())};
    const bool floats = isFloat(type.element);
    const Tensor rounded = actual->second.convertedTo(type.element);
    for (std::int64_t e = 0; e < expected->elements(); ++e) {
      const bool equal = floats ? agrees(rounded.asDouble(e), expected->asDouble(e), toleranceOf(type.element))
                                : rounded.asInt(e) == expected->asInt(e);
      if (!equal)
        return {Outcome::failed, "element " + std::to_string(e) + " of output " + std::to_string(i) + " is " +
                                     std::to_string(rounded.asDouble(e)) + ", expected is " +
                                     std::to_string(expected->asDouble(e))};
    }
  }
  return {Outcome::passed, {}};
}
