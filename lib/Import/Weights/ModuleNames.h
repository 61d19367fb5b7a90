// Where PyTorch's module has what an initializer holds: exporters transpose, join and rename parameters.
#pragma once

#include "OnnxFile.h"
#include "Weights/ExportedProgram.h"
#include "Weights/InitializerRules.h"
#include "pdc/IR/Graph.h"

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace pdc {

/// A tensor of a module's state_dict, made of the elements of one initializer.
struct ModuleTensor {
  std::string name;
  std::vector<std::int64_t> shape; ///< in the module
  bool transposed = false;         ///< a matrix; the initializer is its transpose
  /// Which pieces of equal length of the initializer follow each other in the module (gates of recurrent layers have
  /// another order there); empty: all elements in their order.
  std::vector<std::int64_t> pieces;
  std::int64_t pieceElements = 0;

  bool isAsStored() const { return !transposed && pieces.empty(); }
};

/// What an initializer is in the module.
struct ModuleForm {
  std::vector<ModuleTensor> tensors; ///< several of a packed recurrent layer, and of a parameter with several names
  std::string problem;               ///< why there is none, as an end of "'val_3' …"; empty: there is no problem
};

/// By what the file says (PyTorch's default exporter), or by the names of nodes (the older one). Other files have the
/// names that they have. `file` has the parameters as initializers of their own.
class ModuleNames {
public:
  explicit ModuleNames(const OnnxFile& file);

  /// The form of initializer i. Without tensors and problem, the state_dict does not have it.
  ModuleForm formOf(int i) const;
  const ExportedProgram& program() const { return program_; }
  /// What to type so that the exporter keeps the names.
  const char* remedy() const;
  /// The path of the module that has called a node: "block2.shortcut.0"; empty: the file does not say.
  std::string modulePathOf(const onnx::NodeProto& node) const;

private:
  ModuleForm statedForm(const onnx::TensorProto& tensor) const;
  ModuleForm ruledForm(const onnx::TensorProto& tensor) const;
  ModuleForm withOtherNames(ModuleForm form, const std::string& initializer) const;
  std::string ruledWeightOf(const InitializerUses& uses) const;

  const OnnxFile& file_;
  const ExportedProgram program_;
  const ValueUses uses_;
  std::map<const onnx::NodeProto*, int> layers_; ///< of nodes of recurrent layers: which layer of their module
};

/// Tells `module`, which `file` was imported as, what its parameters are called in the module that was exported, and
/// who has called its nodes.
void tellModuleNames(const OnnxFile& file, Module& module);

} // namespace pdc
