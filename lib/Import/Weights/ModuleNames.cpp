#include "Weights/ModuleNames.h"

#include "ProgramOrder.h"
#include "Weights/ExporterWarnings.h"

#include <algorithm>
#include <array>

using namespace pdc;

namespace {

std::string inModule(const std::string& module, const std::string& leaf) {
  return module.empty() ? leaf : module + "." + leaf;
}

bool isRecurrent(const onnx::NodeProto& node) {
  return isDefaultDomain(node.domain()) &&
         (node.op_type() == "LSTM" || node.op_type() == "GRU" || node.op_type() == "RNN");
}

/// Where ONNX has PyTorch's gate k. LSTM: i, f, g, o of PyTorch are i, o, f, c of ONNX; GRU: r, z, n are z, r, h.
std::vector<std::int64_t> gatesOf(const std::string& op) {
  if (op == "LSTM") return {0, 2, 3, 1};
  if (op == "GRU") return {1, 0, 2};
  return {0};
}

std::vector<std::int64_t> shapeOf(const onnx::TensorProto& tensor) {
  return {tensor.dims().begin(), tensor.dims().end()};
}

ModuleTensor asStored(const std::string& name, const onnx::TensorProto& tensor) {
  return {.name = name, .shape = shapeOf(tensor), .pieces = {}};
}

ModuleTensor transposeOf(const std::string& name, const onnx::TensorProto& tensor) {
  return {.name = name, .shape = {tensor.dims(1), tensor.dims(0)}, .transposed = true, .pieces = {}};
}

/// The parameters that a recurrent layer has packed into `tensor`, input `input` of a node `op`. `prefix` and `layer`:
/// "rnn." and "_l0". Empty: it has another shape.
std::vector<ModuleTensor> unpacked(const onnx::TensorProto& tensor, const std::string& op, int input,
                                   const std::string& prefix, const std::string& layer) {
  const std::vector<std::int64_t> gates = gatesOf(op);
  const auto count = static_cast<std::int64_t>(gates.size());
  const bool isBias = input == 3;
  const std::int64_t kinds = isBias ? 2 : 1;
  if (tensor.dims_size() != (isBias ? 2 : 3) || tensor.dims(0) < 1 || tensor.dims(0) > 2 ||
      tensor.dims(1) % (kinds * count) != 0)
    return {};
  const std::int64_t states = tensor.dims(1) / (kinds * count), columns = isBias ? 1 : tensor.dims(2);
  std::vector<ModuleTensor> tensors;
  for (std::int64_t direction = 0; direction < tensor.dims(0); ++direction)
    for (std::int64_t kind = 0; kind < kinds; ++kind) {
      const bool isInput = isBias ? kind == 0 : input == 1;
      ModuleTensor& one = tensors.emplace_back();
      one.name = prefix + (isBias ? "bias" : "weight") + (isInput ? "_ih" : "_hh") + layer +
                 (direction == 1 ? "_reverse" : "");
      one.shape = {count * states};
      if (!isBias) one.shape.push_back(columns);
      one.pieceElements = states * columns;
      for (std::int64_t gate : gates) one.pieces.push_back((direction * kinds + kind) * count + gate);
    }
  return tensors;
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < std::min<std::size_t>(names.size(), 3); ++i)
    text += (i == 0 ? "'" : ", '") + names[i] + "'";
  return text + (names.size() > 3 ? ", …" : "");
}

/// Whether `use` multiplies by a linear layer's weight, transposed.
bool isProduct(const InitializerUse& use) {
  return isDefaultDomain(use.node->domain()) && use.node->op_type() == "MatMul" && use.input == 1;
}

/// Whether `use` reads a parameter as layers do that share theirs: a table, or the weight of a linear layer.
bool isSharedUse(const InitializerUse& use) {
  const std::string& op = use.node->op_type();
  return isDefaultDomain(use.node->domain()) && (((op == "Gather" || op == "Transpose") && use.input == 0) ||
                                                 ((op == "Gemm" || op == "MatMul") && use.input == 1));
}

} // namespace

ModuleNames::ModuleNames(const OnnxFile& file) : file_(file), program_(file), uses_(file.graph()) {
  // The older exporter calls layers of one module /rnn/LSTM, /rnn/LSTM_1, …; the same weights are the same layer.
  std::map<std::string, std::map<std::string, int>> layers;
  for (const onnx::NodeProto& node : file.graph().node())
    if (isRecurrent(node) && node.input_size() > 1) {
      std::map<std::string, int>& known = layers[modulePathOf(node)];
      layers_[&node] = known.emplace(node.input(1), static_cast<int>(known.size())).first->second;
    }
}

const char* ModuleNames::remedy() const {
  return program_.isKnown() ? keepNamesWithoutOptimizer : keepNamesInTraining;
}

/// "/block2/shortcut/shortcut.0/Conv" is of module block2.shortcut.0: what has a number for a name follows its parent's
/// name, which the path has before it where the parent is called.
std::string ModuleNames::modulePathOf(const onnx::NodeProto& node) const {
  if (program_.isKnown()) return scopeOf(node).path;
  if (!node.name().starts_with('/')) return "";
  std::vector<std::string> path;
  for (std::size_t begin = 1, end = 0; (end = node.name().find('/', begin)) != std::string::npos; begin = end + 1) {
    const std::string part = node.name().substr(begin, end - begin);
    if (!path.empty() && part.starts_with(path.back() + ".") &&
        part.find_first_not_of("0123456789.", path.back().size()) == std::string::npos)
      path.pop_back();
    path.push_back(part);
  }
  std::string joined;
  for (const std::string& part : path) joined += (joined.empty() ? "" : ".") + part;
  return joined;
}

ModuleForm ModuleNames::formOf(int i) const {
  const onnx::TensorProto& tensor = file_.graph().initializer(i);
  for (const InitializerUse& use : uses_.of(tensor.name()))
    if ((use.input == 1 || use.input == 2) && hasFoldedBatchNorm(*use.node, program_.isKnown()))
      return {.tensors = {}, .problem = "has a BatchNormalization folded into it"};
  if (program_.isKnown()) return statedForm(tensor);
  if (file_.model().producer_name() == "pytorch") return ruledForm(tensor);
  return {.tensors = {asStored(tensor.name(), tensor)}, .problem = ""};
}

ModuleForm ModuleNames::statedForm(const onnx::TensorProto& tensor) const {
  using Origin = ExportedProgram::Origin;
  const std::string& name = tensor.name();
  const Origin origin = program_.originOf(name);
  if (origin == Origin::parameter || origin == Origin::buffer) {
    if (!program_.isInStateDict(name)) return {};
    return withOtherNames({.tensors = {asStored(name, tensor)}, .problem = ""}, name);
  }
  if (origin != Origin::folded)
    return {.tensors = {}, .problem = "is made of parameters of which the file says nothing"};
  const std::vector<std::string> sources = program_.sourcesOf(name);
  const ModuleForm unknown = {.tensors = {}, .problem = "was computed from " + joined(sources)};
  const InitializerUses& uses = uses_.of(name);
  if (isPackedForRecurrence(uses)) {
    // "rnn.weight_ih_l0" and its like, all of one layer.
    const std::string leaf = leafOf(sources.front());
    const std::size_t at = leaf.find("_l");
    if (at == std::string::npos) return unknown;
    std::string layer = leaf.substr(at);
    if (layer.ends_with("_reverse")) layer.resize(layer.size() - std::string("_reverse").size());
    ModuleForm form;
    form.tensors = unpacked(tensor, uses.front().node->op_type(), uses.front().input,
                            inModule(moduleOf(sources.front()), ""), layer);
    std::set<std::string> made;
    for (const ModuleTensor& one : form.tensors) made.insert(one.name);
    return made == std::set<std::string>(sources.begin(), sources.end()) ? form : unknown;
  }
  if (sources.size() != 1 || tensor.dims_size() != 2) return unknown;
  // "val_12" is a step of an operator that the exporter takes apart: of a linear layer, its transposition.
  const std::string step = name.substr(0, name.find('_'));
  const bool isStep =
      step == "val" && !uses.empty() && std::all_of(uses.begin(), uses.end(), [](const InitializerUse& use) {
        return isProduct(use) && scopeOf(*use.node).operatorName.starts_with("aten.linear");
      });
  if (!isStep && step != "t" && step != "transpose" && step != "permute") return unknown;
  return withOtherNames({.tensors = {transposeOf(sources.front(), tensor)}, .problem = ""}, name);
}

ModuleForm ModuleNames::ruledForm(const onnx::TensorProto& tensor) const {
  const std::string& name = tensor.name();
  if (!isNamedByExporter(name)) return withOtherNames({.tensors = {asStored(name, tensor)}, .problem = ""}, name);
  const InitializerUses& uses = uses_.of(name);
  if (!uses.empty() && isPackedForRecurrence(uses)) {
    const onnx::NodeProto& node = *uses.front().node;
    const std::string module = modulePathOf(node);
    const auto layer = layers_.find(&node);
    if (!module.empty() && layer != layers_.end())
      if (std::vector<ModuleTensor> tensors =
              unpacked(tensor, node.op_type(), uses.front().input, module + ".", "_l" + std::to_string(layer->second));
          !tensors.empty())
        return {.tensors = std::move(tensors), .problem = ""};
  }
  if (tensor.dims_size() == 2 && !uses.empty() && std::all_of(uses.begin(), uses.end(), isProduct))
    if (const std::string weight = ruledWeightOf(uses); !weight.empty())
      return withOtherNames({.tensors = {transposeOf(weight, tensor)}, .problem = ""}, name);
  return {.tensors = {}, .problem = "has a name that the exporter made, and no node says of which parameter"};
}

/// The weight beside the bias that is added to the product ("attn.in_proj_bias"), else that of the node's module.
std::string ModuleNames::ruledWeightOf(const InitializerUses& uses) const {
  const onnx::NodeProto& product = *uses.front().node;
  const std::string module = modulePathOf(product);
  for (const InitializerUse& use : uses_.of(product.output(0))) {
    if (use.node->op_type() != "Add" || use.node->input_size() != 2) continue;
    const std::string& bias = use.node->input(1 - use.input);
    if (bias.ends_with("bias") && (module.empty() || moduleOf(bias) == module))
      return bias.substr(0, bias.size() - std::string("bias").size()) + "weight";
  }
  return module.empty() ? "" : module + ".weight";
}

/// Tied parameters are in the state_dict under the name of each module that has them.
ModuleForm ModuleNames::withOtherNames(ModuleForm form, const std::string& initializer) const {
  const ModuleTensor first = form.tensors.front();
  std::set<std::string> names = {first.name};
  for (const InitializerUse& use : uses_.of(initializer)) {
    const std::string module = modulePathOf(*use.node), other = inModule(module, leafOf(first.name));
    if (program_.isKnown()) {
      if (!program_.isInStateDict(other) || program_.isInFile(other)) continue;
    } else {
      // No module whose call is counted ("emb_1"), and none that has the owner inside, whose parameter it may use.
      const std::string owner = moduleOf(first.name);
      if (!isSharedUse(use) || module.empty() || owner.starts_with(module + ".") ||
          (module.starts_with(owner + "_") &&
           module.find_first_not_of("0123456789", owner.size() + 1) == std::string::npos))
        continue;
    }
    if (!names.insert(other).second) continue;
    form.tensors.push_back(first);
    form.tensors.back().name = other;
  }
  return form;
}

void pdc::tellModuleNames(const OnnxFile& file, Module& module) {
  const ModuleNames names(file);
  for (int i = 0; i < file.graph().initializer_size(); ++i) {
    Parameter* const parameter = module.findParameter(file.graph().initializer(i).name());
    if (!parameter) continue;
    const ModuleForm form = names.formOf(i);
    const auto isItself = [&](const ModuleTensor& tensor) {
      return tensor.name == parameter->name && tensor.isAsStored();
    };
    if (form.tensors.empty() || !form.tensors.front().pieces.empty() ||
        (form.tensors.size() == 1 && isItself(form.tensors.front())))
      continue;
    for (const ModuleTensor& tensor : form.tensors) parameter->moduleNames.push_back(tensor.name);
    parameter->isTransposeOfModule = form.tensors.front().transposed;
  }
  for (const onnx::NodeProto& node : file.graph().node())
    if (const std::string path = names.modulePathOf(node); !path.empty())
      module.callers.emplace(nameOfNode(node), path);
}
