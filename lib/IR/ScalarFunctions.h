// The operations of scalar expressions as small integers, and what they compute. Private to lib/IR.
#pragma once

#include "pdc/IR/Expression.h"

#include "pdcrt/LowPrecision.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace pdc {

enum class ScalarCode : int {
  number,
  name, // leaves
  negate,
  logicalNot, // unary
  add,
  subtract,
  multiply,
  divide, // binary
  less,
  lessEqual,
  greater,
  greaterEqual,
  equal,
  notEqual,
  logicalAnd,
  logicalOr,
  select, // functions, in the order of scalarFunctions()
  exp,
  expm1,
  log,
  log1p,
  sqrt,
  rsqrt,
  reciprocal,
  sin,
  cos,
  atan,
  tanh,
  sigmoid,
  softplus,
  erf,
  gelu,
  geluDerivative,
  abs,
  sign,
  floor,
  ceil,
  round,
  relu,
  max,
  min,
  pow,
  bitAnd,
  bitOr,
  bitXor,
  bitNot,
  shiftLeft,
  shiftRight,
  toF32, // conversions
  toBf16,
  toF16
};

/// Whether a function of a number is not folded in double, because it rounds.
inline bool isConversion(ScalarCode code) {
  return code == ScalarCode::toF32 || code == ScalarCode::toBf16 || code == ScalarCode::toF16;
}

/// The operation at the root of `e`.
ScalarCode codeOf(const Expression& e);
/// The function named `name`, or null.
const ScalarFunction* findScalarFunction(const std::string& name);

/// outer · inner, of which one is a derivative and the other one, too, or a gradient that comes from outside. A branch
/// of a `select` that is 0 stays 0, whatever the other factor is there: what is not taken has no part in the gradient,
/// though it may be infinite or NaN. (Expression.cpp)
ExpressionPtr chained(const ExpressionPtr& outer, const ExpressionPtr& inner);

/// In double nothing is rounded: that is the measure of what rounding does.
template <class Low, class T>
T rounded(T value) {
  if constexpr (std::is_same_v<T, float>)
    return static_cast<float>(Low(value));
  else
    return value;
}

/// What the functions mean, in float or double. Plain formulas over <cmath>: the kernels' faster ones are measured
/// against these.
template <class T>
T applyFunction(ScalarCode code, const T* a) {
  switch (code) {
  case ScalarCode::exp: return std::exp(a[0]);
  case ScalarCode::expm1: return std::expm1(a[0]);
  case ScalarCode::log: return std::log(a[0]);
  case ScalarCode::log1p: return std::log1p(a[0]);
  case ScalarCode::sqrt: return std::sqrt(a[0]);
  case ScalarCode::rsqrt: return T(1) / std::sqrt(a[0]);
  case ScalarCode::reciprocal: return T(1) / a[0];
  case ScalarCode::sin: return std::sin(a[0]);
  case ScalarCode::cos: return std::cos(a[0]);
  case ScalarCode::atan: return std::atan(a[0]);
  case ScalarCode::tanh: return std::tanh(a[0]);
  case ScalarCode::sigmoid: return T(1) / (T(1) + std::exp(-a[0]));
  case ScalarCode::softplus: return std::fmax(a[0], T(0)) + std::log1p(std::exp(-std::fabs(a[0])));
  case ScalarCode::erf: return std::erf(a[0]);
  case ScalarCode::gelu: return T(0.5) * a[0] * (T(1) + std::erf(a[0] * T(0.70710678118654752)));
  case ScalarCode::geluDerivative:
    return T(0.5) * (T(1) + std::erf(a[0] * T(0.70710678118654752))) +
           a[0] * T(0.39894228040143268) * std::exp(T(-0.5) * a[0] * a[0]);
  case ScalarCode::abs: return std::fabs(a[0]);
  case ScalarCode::sign: return std::isnan(a[0]) ? a[0] : T((a[0] > 0) - (a[0] < 0));
  case ScalarCode::floor: return std::floor(a[0]);
  case ScalarCode::ceil: return std::ceil(a[0]);
  case ScalarCode::round: return std::nearbyint(a[0]);
  case ScalarCode::relu: return a[0] < 0 ? T(0) : a[0];
  case ScalarCode::max: return std::isnan(a[0]) || std::isnan(a[1]) ? a[0] + a[1] : a[1] > a[0] ? a[1] : a[0];
  case ScalarCode::min: return std::isnan(a[0]) || std::isnan(a[1]) ? a[0] + a[1] : a[1] < a[0] ? a[1] : a[0];
  case ScalarCode::pow: return std::pow(a[0], a[1]);
  case ScalarCode::toF32: return a[0];
  case ScalarCode::toBf16: return rounded<pdcrt::bfloat16>(a[0]);
  case ScalarCode::toF16: return rounded<pdcrt::float16>(a[0]);
  default: return std::numeric_limits<T>::quiet_NaN();
  }
}

/// The integer of type T nearest to zero from `value`; out of range or not a number: 0.
template <class T>
T truncated(double value) {
  constexpr double end = std::is_signed_v<T> ? 9.2233720368547758e18 : 1.8446744073709552e19;
  return value < end && value > (std::is_signed_v<T> ? -end : -1.0) ? static_cast<T>(value) : 0;
}

/// Of 64 bits, signed or not. Arithmetic wraps around (through unsigned, where C++ defines that).
template <class T>
T applyInteger(ScalarCode code, const T* a) {
  auto wrap = [](T x) { return static_cast<std::uint64_t>(x); };
  auto back = [](std::uint64_t x) { return static_cast<T>(x); };
  switch (code) {
  case ScalarCode::negate: return back(0 - wrap(a[0]));
  case ScalarCode::add: return back(wrap(a[0]) + wrap(a[1]));
  case ScalarCode::subtract: return back(wrap(a[0]) - wrap(a[1]));
  case ScalarCode::multiply: return back(wrap(a[0]) * wrap(a[1]));
  case ScalarCode::divide:
    return a[1] == 0 ? 0 : std::is_signed_v<T> && a[1] == T(-1) ? back(0 - wrap(a[0])) : a[0] / a[1];
  case ScalarCode::bitAnd: return a[0] & a[1];
  case ScalarCode::bitOr: return a[0] | a[1];
  case ScalarCode::bitXor: return a[0] ^ a[1];
  case ScalarCode::bitNot: return ~a[0];
  case ScalarCode::shiftLeft: return wrap(a[1]) < 64 ? back(wrap(a[0]) << wrap(a[1])) : 0;
  case ScalarCode::shiftRight: return wrap(a[1]) < 64 ? a[0] >> a[1] : a[0] < 0 ? T(-1) : T(0);
  case ScalarCode::abs: return a[0] < 0 ? back(0 - wrap(a[0])) : a[0];
  case ScalarCode::sign: return (a[0] > 0) - (a[0] < 0);
  case ScalarCode::floor:
  case ScalarCode::ceil:
  case ScalarCode::round: return a[0];
  case ScalarCode::relu: return a[0] < 0 ? 0 : a[0];
  case ScalarCode::max: return a[1] > a[0] ? a[1] : a[0];
  case ScalarCode::min: return a[1] < a[0] ? a[1] : a[0];
  default: break;
  }
  const double asDoubles[] = {static_cast<double>(a[0]), code == ScalarCode::pow ? static_cast<double>(a[1]) : 0};
  return truncated<T>(applyFunction<double>(code, asDoubles));
}

/// The value of an operation with its arguments in a[0], a[1], a[2].
template <class T>
T apply(ScalarCode code, const T* a) {
  switch (code) {
  case ScalarCode::logicalNot: return T(a[0] == 0);
  case ScalarCode::less: return T(a[0] < a[1]);
  case ScalarCode::lessEqual: return T(a[0] <= a[1]);
  case ScalarCode::greater: return T(a[0] > a[1]);
  case ScalarCode::greaterEqual: return T(a[0] >= a[1]);
  case ScalarCode::equal: return T(a[0] == a[1]);
  case ScalarCode::notEqual: return T(a[0] != a[1]);
  case ScalarCode::logicalAnd: return T(a[0] != 0 && a[1] != 0);
  case ScalarCode::logicalOr: return T(a[0] != 0 || a[1] != 0);
  case ScalarCode::select: return a[0] != 0 ? a[1] : a[2];
  default: break;
  }
  if constexpr (std::is_integral_v<T>) {
    return applyInteger(code, a);
  } else {
    switch (code) {
    case ScalarCode::negate: return -a[0];
    case ScalarCode::add: return a[0] + a[1];
    case ScalarCode::subtract: return a[0] - a[1];
    case ScalarCode::multiply: return a[0] * a[1];
    case ScalarCode::divide: return a[0] / a[1];
    default: return applyFunction<T>(code, a);
    }
  }
}

/// A number of an expression in the type of the evaluation.
template <class T>
T numberAs(double value) {
  if constexpr (std::is_integral_v<T>)
    return truncated<T>(value);
  else
    return static_cast<T>(value);
}

} // namespace pdc
