#include "Operators.h"

#include "ControlFlow.h"
#include "ProgramOrder.h"
#include "Sequences.h"

#include <algorithm>
#include <map>

using namespace pdc;

static std::string qualifiedName(const onnx::NodeProto& node) {
  return isDefaultDomain(node.domain()) ? node.op_type() : node.domain() + "::" + node.op_type();
}

/// Why `node` has no conversion, or nothing.
static std::string problemOf(const onnx::NodeProto& node, const OnnxFile& file, const OpRegistry& registry) {
  if (!isDefaultDomain(node.domain())) return "an operator of another domain than ONNX's";
  if (isControlFlow(node)) return {}; // whether it can be expanded shows when it is
  if (isSequenceOperator(node)) return {};
  if (registry.findOnnx(node.op_type(), file.opsetOf(node))) return {};
  std::int64_t since = INT64_MAX, until = 0;
  for (const OpDef* def : registry.all())
    for (const OnnxMapping& mapping : def->onnx)
      if (mapping.opType == node.op_type())
        since = std::min(since, mapping.since), until = std::max(until, mapping.until);
  if (until == 0) return "not an operator that pdc knows";
  return "known in opset " + std::to_string(since) + " to " + std::to_string(until) + ", the model has " +
         std::to_string(file.opsetOf(node));
}

std::vector<OperatorUse> pdc::operatorsOf(const OnnxFile& file, const OpRegistry& registry) {
  std::map<std::string, OperatorUse> uses;
  for (const onnx::NodeProto& node : file.graph().node()) {
    OperatorUse& use = uses[qualifiedName(node)];
    if (use.count++ == 0) use = {qualifiedName(node), 1, nameOfNode(node), problemOf(node, file, registry)};
  }
  std::vector<OperatorUse> list;
  for (auto& [name, use] : uses) list.push_back(std::move(use));
  return list;
}

Status pdc::checkVersions(const OnnxFile& file, Diagnostics& diags) {
  Location where{.file = file.path()};
  std::int64_t ir = file.model().ir_version();
  if (ir < oldestIrVersion || ir > newestIrVersion)
    return diags.error(where).exit(ExitCode::unsupported)
           << "has IR version " << ir << ", pdc reads " << oldestIrVersion << " to " << newestIrVersion;
  std::int64_t opset = file.opset();
  if (opset == 0) return diags.error(where) << "does not say which opset of ONNX's operators it uses";
  if (opset < oldestOpset || opset > newestOpset)
    return diags.error(where)
               .exit(ExitCode::unsupported)
               .help("export it with opset_version=" + std::to_string(newestOpset))
           << "uses opset " << opset << ", pdc reads " << oldestOpset << " to " << newestOpset;
  return success;
}

Status pdc::checkOperators(const OnnxFile& file, const OpRegistry& registry, Diagnostics& diags) {
  if (int count = file.graph().sparse_initializer_size(); count > 0)
    return diags.error({.file = file.path()}).exit(ExitCode::unsupported)
           << "has " << count << " sparse initializers, which are not supported";
  Diagnostic problem{.location = {.file = file.path()}, .exitCode = ExitCode::unsupported};
  std::string names;
  for (const OperatorUse& use : operatorsOf(file, registry)) {
    if (use.problem.empty()) continue;
    names += (problem.notes.empty() ? "" : ", ") + use.name;
    problem.notes.push_back("'" + use.name + "' is " + use.problem + ": " + std::to_string(use.count) +
                            (use.count == 1 ? " node, '" : " nodes, the first is '") + use.example + "'");
  }
  if (problem.notes.empty()) return success;
  problem.message = std::to_string(problem.notes.size()) +
                    (problem.notes.size() == 1 ? " operator is" : " operators are") + " not supported: " + names;
  problem.helps = {"docs/Ops.md lists the operators that are"};
  if (names.find("com.microsoft::") != std::string::npos || names.find("com.microsoft.nchwc::") != std::string::npos)
    problem.helps.insert(problem.helps.begin(),
                         "operators of com.microsoft come from ONNX Runtime's optimizer: give the model before it was "
                         "optimized");
  diags.report(std::move(problem));
  return failure;
}

bool pdc::isBatchNormalization(const onnx::NodeProto& node) {
  return node.op_type() == "BatchNormalization" && isDefaultDomain(node.domain());
}

bool pdc::isDropout(const onnx::NodeProto& node) {
  return node.op_type() == "Dropout" && isDefaultDomain(node.domain());
}

bool pdc::isListOfNumbers(const onnx::NodeProto& node, int input) {
  return (node.op_type() == "Resize" || node.op_type() == "Upsample") && isDefaultDomain(node.domain()) && input > 0;
}

bool pdc::isQuantizationParameter(const onnx::NodeProto& node, int input) {
  return isDefaultDomain(node.domain()) && (input == 1 || input == 2) &&
         (node.op_type() == "QuantizeLinear" || node.op_type() == "DequantizeLinear");
}

bool pdc::isQuantizedWeight(const onnx::NodeProto& node, int input) {
  if (!isDefaultDomain(node.domain())) return false;
  const std::string& op = node.op_type();
  return (op == "DequantizeLinear" && input == 0) || ((op == "QLinearConv" || op == "QLinearMatMul") && input == 3) ||
         ((op == "ConvInteger" || op == "MatMulInteger") && input == 1);
}

bool pdc::isInTrainingMode(const onnx::NodeProto& node, std::int64_t opset) {
  if (opset < 14) return node.output_size() > 1;
  for (const onnx::AttributeProto& attribute : node.attribute())
    if (attribute.name() == "training_mode") return attribute.i() != 0;
  return false;
}
