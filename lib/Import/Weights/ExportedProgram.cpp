#include "Weights/ExportedProgram.h"

#include "Metadata.h"

#include <algorithm>
#include <array>
#include <sstream>

using namespace pdc;

namespace {

constexpr const char* kindKey = "pkg.torch.export.graph_signature.InputSpec.kind";
constexpr const char* persistentKey = "pkg.torch.export.graph_signature.InputSpec.persistent";
constexpr const char* signatureKey = "pkg.torch.export.ExportedProgram.graph_signature";
constexpr const char* foldedKey = "pkg.onnxscript.optimizer.folded_from";
constexpr const char* ruleKey = "pkg.onnxscript.rewriter.rule_name";
constexpr const char* scopesKey = "pkg.torch.onnx.name_scopes";
constexpr const char* classesKey = "pkg.torch.onnx.class_hierarchy";
constexpr const char* operationKey = "pkg.torch.onnx.fx_node";

/// Operators of PyTorch's ATen that give an order or a shape to elements, and compute none.
constexpr std::array layouts = {
    "alias",    "cat",       "chunk",  "clone",     "contiguous", "detach",       "flatten", "getitem", "lift",
    "permute",  "reshape",   "select", "slice",     "split",      "squeeze",      "stack",   "t",       "to",
    "_to_copy", "transpose", "unbind", "unflatten", "unsqueeze",  "_unsafe_view", "view"};

/// The strings of a list as Python prints it: "['a', "it's"]".
std::vector<std::string> stringsOf(const std::string& text) {
  std::vector<std::string> strings;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\'' && text[i] != '"') continue;
    const char quote = text[i];
    std::string& string = strings.emplace_back();
    for (++i; i < text.size() && text[i] != quote; ++i) {
      if (text[i] == '\\' && i + 1 < text.size()) ++i;
      string += text[i];
    }
  }
  return strings;
}

std::string entryOf(const Metadata& metadata, const char* key) {
  const auto found = metadata.find(key);
  return found == metadata.end() ? "" : found->second;
}

/// A name without what makes it unique: "transpose_12" is "transpose".
std::string withoutNumber(const std::string& name) {
  const std::size_t end = name.find_last_not_of("0123456789");
  return end != std::string::npos && end + 1 < name.size() && name[end] == '_' ? name.substr(0, end) : name;
}

} // namespace

ExportedProgram::ExportedProgram(const OnnxFile& file) {
  readSignature(entryOf(metadataOf(file.graph()), signatureKey));
  for (const onnx::ValueInfoProto& value : file.graph().value_info()) {
    const Metadata metadata = metadataOf(value);
    if (const std::string folded = entryOf(metadata, foldedKey); !folded.empty())
      for (const std::string& source : stringsOf(folded)) foldedFrom_[value.name()].insert(source);
    if (entryOf(metadata, persistentKey) == "False") transient_.insert(value.name());
    std::string kind = entryOf(metadata, kindKey);
    kind.erase(0, kind.rfind('.') + 1); // "InputKind.PARAMETER" in some versions
    if (!kind.empty() && kind != "USER_INPUT" && kinds_.emplace(value.name(), kind).second)
      names_.push_back(value.name());
  }
  for (const onnx::TensorProto& tensor : file.graph().initializer()) {
    present_.insert(tensor.name());
    if (originOf(tensor.name()) != Origin::folded) continue;
    for (const std::string& source : sourcesOf(tensor.name())) present_.insert(source);
  }
}

/// Lines such as "p_fc_weight: PARAMETER target='fc.weight'".
void ExportedProgram::readSignature(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    for (const char* kind : {"PARAMETER", "BUFFER", "CONSTANT_TENSOR"}) {
      const std::string mark = std::string(": ") + kind + " target=";
      const std::size_t at = line.find(mark);
      if (at == std::string::npos) continue;
      const std::vector<std::string> target = stringsOf(line.substr(at + mark.size()));
      if (target.empty()) continue;
      targets_[line.substr(line.find_first_not_of(' '), at - line.find_first_not_of(' '))] = target.front();
      if (kinds_.emplace(target.front(), kind).second) names_.push_back(target.front());
      if (line.find("persistent=False", at) != std::string::npos) transient_.insert(target.front());
    }
}

bool ExportedProgram::isParameter(const std::string& name) const {
  const auto kind = kinds_.find(name);
  return kind != kinds_.end() && kind->second == "PARAMETER";
}

bool ExportedProgram::isBuffer(const std::string& name) const {
  const auto kind = kinds_.find(name);
  return kind != kinds_.end() && kind->second == "BUFFER";
}

bool ExportedProgram::isInStateDict(const std::string& name) const {
  return isParameter(name) || (isBuffer(name) && !transient_.contains(name));
}

int ExportedProgram::placeOf(const std::string& name) const {
  const auto found = std::find(names_.begin(), names_.end(), name);
  return found == names_.end() ? -1 : static_cast<int>(found - names_.begin());
}

/// The metadata have the operation as torch.fx prints it: "%linear : [num_users=1] = call_function[…](args = (%x,
/// %p_fc_weight, %p_fc_bias), kwargs = {})".
std::vector<std::string> ExportedProgram::readsOf(const onnx::NodeProto& node) const {
  std::vector<std::string> reads;
  const std::string text = entryOf(metadataOf(node), operationKey);
  for (std::size_t at = text.find('%', 1); at != std::string::npos; at = text.find('%', at + 1)) {
    const std::size_t end = std::min(text.find_first_of(", )]}:", at), text.size());
    if (const auto target = targets_.find(text.substr(at + 1, end - at - 1)); target != targets_.end())
      reads.push_back(target->second);
  }
  return reads;
}

ExportedProgram::Origin ExportedProgram::originOf(const std::string& initializer) const {
  if (isParameter(initializer)) return Origin::parameter;
  if (isBuffer(initializer)) return Origin::buffer;
  if (kinds_.contains(initializer)) return Origin::constant;
  if (!foldedFrom_.contains(initializer)) return Origin::unstated;
  return sourcesOf(initializer).empty() ? Origin::constant : Origin::folded;
}

std::vector<std::string> ExportedProgram::sourcesOf(const std::string& initializer) const {
  std::vector<std::string> sources;
  if (const auto folded = foldedFrom_.find(initializer); folded != foldedFrom_.end())
    std::copy_if(folded->second.begin(), folded->second.end(), std::back_inserter(sources),
                 [&](const std::string& name) { return isParameter(name); });
  return sources;
}

bool ExportedProgram::isLayoutOnly(const std::string& initializer) const {
  const auto isLayout = [&](const std::string& name) {
    // "val_12" is a step of an operator that the exporter takes apart, such as the transposition in a linear layer.
    return name.starts_with("val_") || kinds_.contains(name) ||
           std::find(layouts.begin(), layouts.end(), withoutNumber(name)) != layouts.end();
  };
  const auto folded = foldedFrom_.find(initializer);
  return isLayout(initializer) &&
         (folded == foldedFrom_.end() || std::all_of(folded->second.begin(), folded->second.end(), isLayout));
}

std::string pdc::moduleOf(const std::string& parameter) {
  const std::size_t dot = parameter.rfind('.');
  return dot == std::string::npos ? "" : parameter.substr(0, dot);
}

std::string pdc::leafOf(const std::string& parameter) {
  return parameter.substr(parameter.rfind('.') + 1);
}

ModuleScope pdc::scopeOf(const onnx::NodeProto& node) {
  const Metadata metadata = metadataOf(node);
  const std::vector<std::string> paths = stringsOf(entryOf(metadata, scopesKey));
  const std::vector<std::string> classes = stringsOf(entryOf(metadata, classesKey));
  if (paths.size() < 2 || paths.size() != classes.size()) return {};
  return {paths[paths.size() - 2], classes[classes.size() - 2], classes.back()};
}

std::string pdc::rewriteRulesOf(const onnx::NodeProto& node) {
  return entryOf(metadataOf(node), ruleKey);
}

void pdc::stateFoldedFrom(onnx::GraphProto& graph, const std::string& name, const std::vector<std::string>& sources) {
  onnx::ValueInfoProto& value = *graph.add_value_info();
  value.set_name(name);
  std::string list;
  for (const std::string& source : sources) list += (list.empty() ? "'" : ", '") + source + "'";
  setMetadata(value, foldedKey, "[" + list + "]");
}
