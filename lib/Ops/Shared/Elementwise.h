// Short forms for elementwise ops, whose OpDef is a name, a sentence and an expression.
#pragma once

#include "Convert/Onnx.h"
#include "Shared/Define.h"

namespace pdc::ops {

/// What differs from one elementwise op to the next.
struct Scalar {
  std::string name;
  std::string summary;
  std::string onnx; ///< operator of the same operands and result; "": none
  std::string expression;
  std::vector<std::string> derivatives; ///< see OpDef
  /// Whether it is defined for a positive X or A only: its examples call that "positive", which tests heed.
  bool positive = false;
};

/// y = f(x) for float x.
OpDef unary(Scalar op);
/// Y = f(A, B) with broadcasting. `boolean`: the result is one.
OpDef binary(Scalar op, bool boolean = false);

/// Examples of `op %x` for five shapes; `attributes` as printed: " {alpha = 0.1}".
std::vector<std::string> unaryExamples(const std::string& op, const std::string& attributes = "",
                                       const std::string& x = "x");
/// Examples of `op %a, %b` for six pairs of shapes.
std::vector<std::string> binaryExamples(const std::string& op, const std::string& operands = "f32",
                                        const std::string& result = "f32", const std::string& a = "a");

/// The left fold ((a op b) op c) … of a node's inputs.
Value* foldInputs(OnnxReader& n, const std::string& op);

} // namespace pdc::ops
