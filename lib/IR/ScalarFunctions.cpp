// The table of functions that expressions may call. At kinks of max and min the second argument counts as taken; powers
// at base or exponent 0 are PyTorch's.
#include "ScalarFunctions.h"

#include <cassert>
#include <map>

using namespace pdc;

const std::vector<ScalarFunction>& pdc::scalarFunctions() {
  // name, arity, derivatives, C++, flops, summary, whether of integers only; in the order of ScalarCode.
  static const std::vector<ScalarFunction> table = {
      {"select", 3, "0; select(a, 1, 0); select(a, 0, 1)", "pdcrt::select", 1, "b where a is true, else c"},
      {"exp", 1, "exp(a)", "pdcrt::exp", 10, "e^a"},
      {"expm1", 1, "exp(a)", "std::expm1", 10, "e^a - 1, exact near 0"},
      {"log", 1, "1 / a", "std::log", 10, "natural logarithm"},
      {"log1p", 1, "1 / (1 + a)", "std::log1p", 10, "log(1 + a), exact near 0"},
      {"sqrt", 1, "0.5 / sqrt(a)", "std::sqrt", 4, "square root"},
      {"rsqrt", 1, "-0.5 * rsqrt(a) / a", "(1.0f / std::sqrt($0))", 5, "1 / sqrt(a)"},
      {"reciprocal", 1, "-reciprocal(a) * reciprocal(a)", "(1.0f / ($0))", 1, "1 / a"},
      {"sin", 1, "cos(a)", "std::sin", 10, "sine"},
      {"cos", 1, "-sin(a)", "std::cos", 10, "cosine"},
      {"atan", 1, "1 / (1 + a * a)", "std::atan", 10, "arc tangent"},
      {"tanh", 1, "1 - tanh(a) * tanh(a)", "pdcrt::tanh", 10, "hyperbolic tangent"},
      {"sigmoid", 1, "sigmoid(a) * (1 - sigmoid(a))", "pdcrt::sigmoid", 10, "1 / (1 + e^-a)"},
      {"softplus", 1, "sigmoid(a)", "pdcrt::softplus", 20, "log(1 + e^a), without overflow"},
      {"erf", 1, "1.1283791670955126 * exp(-(a * a))", "pdcrt::erf", 10, "error function"},
      {"gelu", 1, "geluDerivative(a)", "pdcrt::gelu", 14, "a times the normal distribution function of a"},
      {"geluDerivative", 1, "0.3989422804014327 * exp(-0.5 * a * a) * (2 - a * a)", "pdcrt::geluDerivative", 26,
       "derivative of gelu"},
      {"abs", 1, "sign(a)", "std::fabs", 1, "absolute value"},
      {"sign", 1, "0", "pdcrt::sign", 2, "-1, 0 or 1"},
      {"floor", 1, "0", "std::floor", 1, "next integer below"},
      {"ceil", 1, "0", "std::ceil", 1, "next integer above"},
      {"round", 1, "0", "std::nearbyint", 1, "nearest integer, halves to even"},
      {"relu", 1, "select(a > 0, 1, 0)", "pdcrt::relu", 1, "a, but 0 where a is negative"},
      {"max", 2, "select(a > b, 1, 0); select(a > b, 0, 1)", "pdcrt::maximum", 1, "the larger; NaN if either is"},
      {"min", 2, "select(a < b, 1, 0); select(a < b, 0, 1)", "pdcrt::minimum", 1, "the smaller; NaN if either is"},
      {"pow", 2, "select(b == 0, 0, b * pow(a, b - 1)); select(a == 0 && b >= 0, 0, pow(a, b) * log(a))", "std::pow",
       20, "a to the power of b"},
      {"bitAnd", 2, "0; 0", "($0 & $1)", 1, "bits that a and b have", true},
      {"bitOr", 2, "0; 0", "($0 | $1)", 1, "bits that a or b has", true},
      {"bitXor", 2, "0; 0", "($0 ^ $1)", 1, "bits that one of a and b has", true},
      {"bitNot", 1, "0", "(~$0)", 1, "bits that a does not have", true},
      {"shiftLeft", 2, "0; 0", "pdcrt::shiftLeft", 1, "bits moved b places up", true},
      {"shiftRight", 2, "0; 0", "pdcrt::shiftRight", 1, "bits moved b places down", true},
      {"f32", 1, "1", "float", 0, "a as f32"},
      {"bf16", 1, "1", "float(pdcrt::bfloat16($0))", 1, "a rounded to bf16"},
      {"f16", 1, "1", "float(pdcrt::float16($0))", 1, "a rounded to f16"}};
  assert(table.size() ==
         static_cast<std::size_t>(ScalarCode::toF16) - static_cast<std::size_t>(ScalarCode::select) + 1);
  return table;
}

static int positionOf(const std::string& function) {
  static const std::map<std::string, int> positions = [] {
    std::map<std::string, int> map;
    for (const ScalarFunction& entry : scalarFunctions()) map.emplace(entry.name, static_cast<int>(map.size()));
    return map;
  }();
  auto it = positions.find(function);
  return it == positions.end() ? -1 : it->second;
}

const ScalarFunction* pdc::findScalarFunction(const std::string& name) {
  const int position = positionOf(name);
  return position < 0 ? nullptr : &scalarFunctions()[static_cast<std::size_t>(position)];
}

ScalarCode pdc::codeOf(const Expression& e) {
  static const std::map<std::string, ScalarCode> operators = {
      {"neg", ScalarCode::negate},      {"!", ScalarCode::logicalNot}, {"+", ScalarCode::add},
      {"-", ScalarCode::subtract},      {"*", ScalarCode::multiply},   {"/", ScalarCode::divide},
      {"<", ScalarCode::less},          {"<=", ScalarCode::lessEqual}, {">", ScalarCode::greater},
      {">=", ScalarCode::greaterEqual}, {"==", ScalarCode::equal},     {"!=", ScalarCode::notEqual},
      {"&&", ScalarCode::logicalAnd},   {"||", ScalarCode::logicalOr}};
  switch (e.kind) {
  case Expression::Kind::number: return ScalarCode::number;
  case Expression::Kind::name: return ScalarCode::name;
  case Expression::Kind::unary:
  case Expression::Kind::binary: return operators.at(e.symbol);
  case Expression::Kind::call: break;
  }
  return static_cast<ScalarCode>(static_cast<int>(ScalarCode::select) + positionOf(e.symbol));
}
