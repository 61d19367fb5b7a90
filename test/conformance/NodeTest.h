// One of ONNX's backend tests: a folder with model.onnx and test_data_set_0/{input,output}_N.pb.
#pragma once

#include "pdc/IR/Interpreter.h"
#include "pdc/IR/OpDef.h"

#include <onnx/onnx_pb.h>

#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace pdc::conformance {

enum class Outcome { passed, failed, unsupported };

struct Verdict {
  Outcome outcome = Outcome::unsupported;
  std::string reason; ///< why it did not pass; no paths and no names of nodes
};

/// The values of `proto` as elements of `onnxType`, or nothing when the IR has no such type.
std::optional<Tensor> toTensor(onnx::TensorProto proto, int onnxType);
/// What was reported first, without its place.
Verdict verdictOf(const Diagnostics& diags);

class NodeTest {
public:
  explicit NodeTest(const std::filesystem::path& folder);

  const std::string& name() const { return name_; }
  /// The operator under test: that of the only node; of a function's body, that of the function.
  const std::string& opType() const { return opType_; }
  void setOpType(std::string opType) { opType_ = std::move(opType); }
  std::size_t nodes() const { return static_cast<std::size_t>(model_.graph().node_size()); }

  /// Imports the model, to be run by either engine. Inputs that the conversion of an OpDef needs at compile time
  /// (shapes, axes, sizes) become constants of the model; opsets before 7 become 7 (where an operator changed, an
  /// attribute is left that is refused). Returns null, with `verdict` set, where that is not possible.
  std::unique_ptr<Module> import(const OpRegistry& registry, Verdict& verdict);
  /// Inputs and parameters of the module that import() made. Parameters are weights in bodies of control flow.
  const std::map<std::string, Tensor>& inputs() const { return inputs_; }
  const std::map<std::string, Tensor>& parameters() const { return parameters_; }

  /// Compares with what the test expects, as ONNX's own runner does: integers exactly, floats within 1e-7 and 1e-3 of
  /// the value.
  Verdict compare(const Module& module, const InterpreterResult& result) const;

private:
  bool readInputs(Verdict& verdict);
  void readParameters(const Module& module);
  void raiseOpset();
  onnx::ModelProto withConstants() const;
  bool makeConstants(const Diagnostics& diags);
  void addSources(const std::string& value, std::set<std::string>& sources) const;

  std::filesystem::path data_;
  std::string name_, opType_;
  onnx::ModelProto model_;
  std::map<std::string, Tensor> inputs_, parameters_;
  std::map<std::string, onnx::TensorProto> values_; ///< of the model's inputs
  std::set<std::string> constants_;                 ///< inputs that are made constants
};

} // namespace pdc::conformance
