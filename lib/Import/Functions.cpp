// A depth-first walk over calls. The messages of the installed onnx package may be older than the file's: what they
// lack (overloads, defaults of attributes) is in their unknown fields.
#include "Functions.h"

#include "Metadata.h"
#include "Operators.h"
#include "ProgramOrder.h"

#include <algorithm>
#include <map>
#include <set>

using namespace pdc;

namespace {

// Field numbers of onnx.proto, IR version 9 and 10.
constexpr int nodeOverload = 8, functionDefaults = 11, functionOverload = 13;
/// Functions that call functions twice grow exponentially; no model has this many nodes and calls.
constexpr int mostSteps = 200'000;
constexpr std::size_t deepestCall = 500;

/// "domain::name", with ":overload" where there is one.
std::string keyOf(const std::string& domain, const std::string& name, const std::vector<std::string>& overload) {
  return (isDefaultDomain(domain) ? "" : domain + "::") + name +
         (overload.empty() || overload.back().empty() ? "" : ":" + overload.back());
}

using Names = std::map<std::string, std::string>;
using AttributeMap = std::map<std::string, onnx::AttributeProto>;

/// What the names and the referenced attributes of a function's body stand for in one call.
struct Scope {
  Names names;
  AttributeMap attributes;
  std::vector<std::pair<std::string, std::string>> copies; ///< outputs of the call that are other values again
};

void bind(onnx::NodeProto& node, const Scope& scope);

/// A graph in an attribute: it reads values from outside, and has names of its own.
void bind(onnx::GraphProto& graph, Scope scope) {
  const auto hide = [&](const std::string& name) { scope.names.erase(name); };
  for (const onnx::ValueInfoProto& input : graph.input()) hide(input.name());
  for (const onnx::TensorProto& tensor : graph.initializer()) hide(tensor.name());
  for (const onnx::NodeProto& node : graph.node())
    for (const std::string& output : node.output()) hide(output);
  for (onnx::NodeProto& node : *graph.mutable_node()) bind(node, scope);
  for (onnx::ValueInfoProto& output : *graph.mutable_output())
    if (auto found = scope.names.find(output.name()); found != scope.names.end()) output.set_name(found->second);
}

void bind(onnx::NodeProto& node, const Scope& scope) {
  const auto rename = [&](std::string& name) {
    if (auto found = scope.names.find(name); found != scope.names.end()) name = found->second;
  };
  std::for_each(node.mutable_input()->begin(), node.mutable_input()->end(), rename);
  std::for_each(node.mutable_output()->begin(), node.mutable_output()->end(), rename);
  google::protobuf::RepeatedPtrField<onnx::AttributeProto> attributes;
  for (const onnx::AttributeProto& attribute : node.attribute()) {
    const bool refers = !attribute.ref_attr_name().empty();
    const auto found = scope.attributes.find(attribute.ref_attr_name());
    if (refers && found == scope.attributes.end()) continue; // the operator's own default
    onnx::AttributeProto& bound = *attributes.Add();
    bound = refers ? found->second : attribute;
    bound.set_name(attribute.name());
    if (bound.has_g()) bind(*bound.mutable_g(), scope);
    for (onnx::GraphProto& graph : *bound.mutable_graphs()) bind(graph, scope);
  }
  node.mutable_attribute()->Swap(&attributes);
}

class FunctionExpansion {
public:
  FunctionExpansion(OnnxFile& file, const OpRegistry& registry, Diagnostics& diags)
      : file_(file), registry_(registry), diags_(diags) {}

  Status run() {
    for (const onnx::FunctionProto& function : file_.model().functions())
      functions_[keyOf(function.domain(), function.name(), unknownTexts(function, functionOverload))] = &function;
    if (functions_.empty()) return success;
    takeNames();
    for (const onnx::NodeProto& node : file_.graph().node())
      if (!add(node, file_.opset())) return failure;
    file_.replaceNodes(std::move(nodes_), opsets_);
    return success;
  }

private:
  Location at(const onnx::NodeProto& node) const { return {.file = file_.path(), .node = nameOfNode(node)}; }

  void takeNames() {
    const onnx::GraphProto& graph = file_.graph();
    for (const onnx::ValueInfoProto& input : graph.input()) taken_.insert(input.name());
    for (const onnx::TensorProto& tensor : graph.initializer()) taken_.insert(tensor.name());
    for (const onnx::NodeProto& node : graph.node()) taken_.insert(node.output().begin(), node.output().end());
  }

  std::string unique(const std::string& name) {
    std::string made = name;
    int& last = lastNumbers_[name];
    while (!taken_.insert(made).second) made = name + "_" + std::to_string(++last);
    return made;
  }

  const onnx::FunctionProto* calledBy(const onnx::NodeProto& node, std::int64_t opset) const {
    if (isDefaultDomain(node.domain()) && registry_.findOnnx(node.op_type(), opset)) return nullptr;
    const auto found = functions_.find(keyOf(node.domain(), node.op_type(), unknownTexts(node, nodeOverload)));
    return found == functions_.end() ? nullptr : found->second;
  }

  /// Appends `node`, or what it calls.
  Status add(const onnx::NodeProto& node, std::int64_t opset) {
    if (++steps_ > mostSteps || active_.size() > deepestCall)
      return diags_.error(at(node)).exit(ExitCode::unsupported)
             << "the model's functions expand to more than " << mostSteps << " nodes, or call each other more than "
             << deepestCall << " deep";
    if (const onnx::FunctionProto* function = calledBy(node, opset)) return expand(node, *function);
    *nodes_.Add() = node;
    opsets_.push_back(opset);
    return success;
  }

  Expected<std::int64_t> opsetOf(const onnx::FunctionProto& function, const onnx::NodeProto& call) {
    for (const onnx::OperatorSetIdProto& import : function.opset_import()) {
      if (!isDefaultDomain(import.domain())) continue;
      if (import.version() >= oldestOpset && import.version() <= newestOpset) return import.version();
      return diags_.error(at(call)).exit(ExitCode::unsupported)
             << "calls function '" << function.name() << "' of opset " << import.version() << ", pdc reads "
             << oldestOpset << " to " << newestOpset;
    }
    return file_.opset();
  }

  /// The functions from the one that is called again to the last call.
  Failure reportRecursion(const onnx::NodeProto& call, const onnx::FunctionProto& function) {
    std::string path;
    for (auto it = std::find(active_.begin(), active_.end(), &function); it != active_.end(); ++it)
      path += "'" + (*it)->name() + "' calls ";
    return diags_.error(at(call)).note(path + "'" + function.name() + "'")
           << "calls function '" << function.name() << "', which calls itself; ONNX allows no recursion";
  }

  Expected<Scope> scopeOf(const onnx::NodeProto& call, const onnx::FunctionProto& function) {
    if (call.input_size() > function.input_size() || call.output_size() > function.output_size())
      return diags_.error(at(call)) << "calls function '" << function.name() << "' with " << call.input_size()
                                    << " inputs and " << call.output_size() << " outputs, it has "
                                    << function.input_size() << " and " << function.output_size();
    Scope scope;
    for (int i = 0; i < function.input_size(); ++i)
      scope.names[function.input(i)] = i < call.input_size() ? call.input(i) : "";
    for (int i = 0; i < call.output_size(); ++i)
      if (!call.output(i).empty() && !scope.names.emplace(function.output(i), call.output(i)).second)
        scope.copies.emplace_back(scope.names[function.output(i)], call.output(i));
    const std::string prefix = nameOfNode(call) + "/";
    for (const onnx::NodeProto& node : function.node())
      for (const std::string& output : node.output())
        if (!output.empty() && !scope.names.contains(output)) scope.names[output] = unique(prefix + output);
    for (const std::string& bytes : unknownTexts(function, functionDefaults))
      if (onnx::AttributeProto standard; standard.ParseFromString(bytes)) scope.attributes[standard.name()] = standard;
    for (const onnx::AttributeProto& attribute : call.attribute()) scope.attributes[attribute.name()] = attribute;
    return scope;
  }

  Status expand(const onnx::NodeProto& call, const onnx::FunctionProto& function) {
    if (std::find(active_.begin(), active_.end(), &function) != active_.end()) return reportRecursion(call, function);
    const Expected<std::int64_t> opset = opsetOf(function, call);
    if (!opset) return failure;
    const Expected<Scope> scope = scopeOf(call, function);
    if (!scope) return failure;
    const std::string prefix = nameOfNode(call) + "/";
    active_.push_back(&function);
    for (const onnx::NodeProto& original : function.node()) {
      onnx::NodeProto node = original;
      bind(node, *scope);
      if (!original.name().empty()) node.set_name(prefix + original.name());
      if (!add(node, *opset)) return failure;
    }
    for (const auto& [value, output] : scope->copies) {
      onnx::NodeProto node;
      node.set_op_type("Identity");
      node.add_input(value);
      node.add_output(output);
      if (!add(node, *opset)) return failure;
    }
    active_.pop_back();
    return success;
  }

  OnnxFile& file_;
  const OpRegistry& registry_;
  Diagnostics& diags_;
  std::map<std::string, const onnx::FunctionProto*> functions_;
  std::vector<const onnx::FunctionProto*> active_; ///< the calls that the walk is in
  std::set<std::string> taken_;                    ///< names of values
  std::map<std::string, int> lastNumbers_;         ///< that were added to names
  int steps_ = 0;                                  ///< nodes and calls so far
  google::protobuf::RepeatedPtrField<onnx::NodeProto> nodes_;
  std::vector<std::int64_t> opsets_;
};

} // namespace

Status pdc::inlineFunctions(OnnxFile& file, const OpRegistry& registry, Diagnostics& diags) {
  return FunctionExpansion(file, registry, diags).run();
}
