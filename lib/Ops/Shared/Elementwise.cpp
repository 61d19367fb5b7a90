#include "Shared/Elementwise.h"

namespace pdc::ops {

std::vector<std::string> unaryExamples(const std::string& op, const std::string& attributes, const std::string& x) {
  std::vector<std::string> texts;
  for (const char* type : {"f32[5]", "f32[2, 3]", "f32[]", "f32[1, 4, 1]", "f32[2, 3, 2, 2]"})
    texts.push_back(example("%" + x + ": " + type, "%y = " + op + " %" + x + attributes + " : " + type));
  return texts;
}

std::vector<std::string> binaryExamples(const std::string& op, const std::string& operands, const std::string& result,
                                        const std::string& a) {
  constexpr const char* shapes[][3] = {
      {"[5]", "[5]", "[5]"}, {"[2, 3]", "[3]", "[2, 3]"},          {"[2, 1]", "[1, 3]", "[2, 3]"},
      {"[]", "[4]", "[4]"},  {"[2, 3, 2]", "[3, 1]", "[2, 3, 2]"}, {"[2, 2]", "[]", "[2, 2]"}};
  std::vector<std::string> texts;
  for (const auto& [left, right, y] : shapes)
    texts.push_back(example("%" + a + ": " + operands + left + ", %b: " + operands + right,
                            "%y = " + op + " %" + a + ", %b : " + result + y));
  return texts;
}

OpDef unary(Scalar op) {
  OpDef def{.name = op.name,
            .summary = std::move(op.summary),
            .kind = OpKind::elementwise,
            .operands = {{"X"}},
            .results = {{"Y"}},
            .expressions = {std::move(op.expression)},
            .derivatives = std::move(op.derivatives),
            .examples = unaryExamples(op.name, "", op.positive ? "positive" : "x")};
  if (!op.onnx.empty()) def.onnx = {onnxSame(std::move(op.onnx), 1, op.name)};
  return def;
}

OpDef binary(Scalar op, bool boolean) {
  OpDef def{
      .name = op.name,
      .summary = std::move(op.summary),
      .kind = OpKind::elementwise,
      .operands = {{"A"}, {"B"}},
      .results = {{"Y"}},
      .expressions = {std::move(op.expression)},
      .derivatives = std::move(op.derivatives),
      .examples = binaryExamples(op.name, "f32", boolean ? "bool" : "f32", op.positive ? "positive" : "a"),
  };
  if (!op.onnx.empty()) def.onnx = {onnxSame(std::move(op.onnx), 2, op.name)};
  return def;
}

Value* foldInputs(OnnxReader& n, const std::string& op) {
  Value* result = n.input(0);
  for (std::size_t i = 1; result && i < n.node.inputs.size(); ++i) {
    if (!n.input(i)) {
      static_cast<void>(n.error() << "lacks input " << i);
      return nullptr;
    }
    result = n.value(op, {result, n.input(i)});
  }
  return result;
}

} // namespace pdc::ops
