// What PyTorch's default exporter (torch.export) says of where the numbers of a file come from: metadata of the graph,
// of its values and of its nodes, from version 2.5 on.
#pragma once

#include "OnnxFile.h"

#include <map>
#include <set>
#include <string>
#include <vector>

namespace pdc {

/// Where in the network an exported node was called.
struct ModuleScope {
  std::string path;      ///< of the innermost module: "layers.0.norm1"
  std::string className; ///< of that module: "torch.nn.modules.normalization.LayerNorm"; empty: the file does not say
  std::string operatorName; ///< of PyTorch's ATen: "aten.layer_norm.default"
};

class ExportedProgram {
public:
  explicit ExportedProgram(const OnnxFile& file);

  /// Whether the file says which of its values are parameters.
  bool isKnown() const { return !kinds_.empty(); }

  enum class Origin {
    parameter, ///< of the module, as it is
    folded,    ///< computed from parameters, which the file does not have in their own form
    buffer,
    constant, ///< a tensor of the program, or computed from such and from buffers
    unstated  ///< the file says nothing of it
  };
  Origin originOf(const std::string& initializer) const;
  /// The parameters that a folded value was computed from, in alphabetical order.
  std::vector<std::string> sourcesOf(const std::string& initializer) const;
  /// Whether a folded value has the elements of its sources: it was transposed, reshaped or joined, no more.
  bool isLayoutOnly(const std::string& initializer) const;

  /// Parameters and buffers by their names in the module, in its order.
  const std::vector<std::string>& names() const { return names_; }
  bool isParameter(const std::string& name) const;
  bool isBuffer(const std::string& name) const;
  /// Whether the module's state_dict has `name`: a parameter, or a buffer that is not registered with persistent=False.
  bool isInStateDict(const std::string& name) const;
  /// Whether the file has `name` as it is or in another form.
  bool isInFile(const std::string& name) const { return present_.contains(name); }
  /// Place of `name` among names(); -1: it is none.
  int placeOf(const std::string& name) const;
  /// Parameters and buffers among the arguments of the PyTorch operation that `node` is exported from, in their order.
  /// Empty: it has none, or the file does not say.
  std::vector<std::string> readsOf(const onnx::NodeProto& node) const;

private:
  void readSignature(const std::string& text);

  std::map<std::string, std::string> kinds_; ///< "PARAMETER", "BUFFER", "CONSTANT_TENSOR" by name
  std::vector<std::string> names_;
  std::map<std::string, std::string> targets_; ///< names by what the program's operations call them: "p_fc_weight"
  std::map<std::string, std::set<std::string>> foldedFrom_;
  std::set<std::string> present_;
  std::set<std::string> transient_; ///< buffers with persistent=False
};

/// "layers.0.norm1" of the parameter "layers.0.norm1.weight"; empty: it is one of the whole network.
std::string moduleOf(const std::string& parameter);
/// "weight" of "layers.0.norm1.weight".
std::string leafOf(const std::string& parameter);

ModuleScope scopeOf(const onnx::NodeProto& node);

/// Rules of onnxscript's optimizer that made `node`: "FuseBatchNormIntoConv, RemoveOptionalBiasFromConv".
std::string rewriteRulesOf(const onnx::NodeProto& node);

/// Says that the initializer `name` was folded from `sources`.
void stateFoldedFrom(onnx::GraphProto& graph, const std::string& name, const std::vector<std::string>& sources);

} // namespace pdc
