// ONNX operators that are an expression of existing functions, element by element: no ops of their own.
#include "Convert/Indices.h"
#include "Shared/Define.h"

namespace pdc::ops::Functions {

namespace {

/// Y is `expression` of the inputs a0, a1, ….
OpDef function(const char* name, const char* summary, const char* opType, const char* expression) {
  return composed(name, std::string(summary) + ": " + expression,
                  {onnx(opType, 1, [=](OnnxReader& n) { return compute(n, {n.input(0)}, expression); })});
}

/// The shortest text that reads back as the same number.
std::string text(double number) {
  return toString(*numberExpression(number));
}

/// With numbers: "$name" in the expression stands for ONNX's attribute.
OpDef function(const char* name, const char* summary, const char* opType, const std::string& expression,
               const std::vector<std::pair<std::string, double>>& numbers) {
  return composed(name, summary, {onnx(opType, 1, [=](OnnxReader& n) {
                    std::string filled = expression;
                    for (const auto& [attribute, standard] : numbers)
                      for (std::size_t at; (at = filled.find("$" + attribute)) != std::string::npos;)
                        filled.replace(at, attribute.size() + 1, "(" + text(n.number(attribute, standard)) + ")");
                    return compute(n, {n.input(0)}, filled);
                  })});
}

/// NaN and infinity are facts about floats only.
Value* convertIsInf(OnnxReader& n) {
  const bool negative = n.integer("detect_negative", 1) != 0, positive = n.integer("detect_positive", 1) != 0;
  const std::string expression = positive && negative ? "abs(a0) == inf"
                                 : positive           ? "a0 == inf"
                                 : negative           ? "a0 == -inf"
                                                      : "a0 != a0 && a0 == a0";
  return compute(n, {n.input(0)}, expression);
}

/// The remainder has the sign of the divisor, or with fmod that of the dividend.
Value* convertMod(OnnxReader& n) {
  const bool asInC = n.integer("fmod", 0) != 0, floats = isFloat(n.type(0).element);
  if (floats && !asInC && n.version() < 28) {
    static_cast<void>(n.error() << "of floats needs fmod = 1");
    return nullptr;
  }
  if (floats) { // what an infinite divisor leaves is all of a0, or with another sign the divisor
    const std::string whole = asInC ? "sign(a0 / a1) * floor(abs(a0 / a1))" : "floor(a0 / a1)";
    const std::string left = asInC ? "a0" : "select(a0 == 0 || (a0 < 0) == (a1 < 0), a0, a1)";
    return compute(n, {n.input(0), n.input(1)},
                   "select(abs(a1) == inf && abs(a0) < inf, " + left + ", a0 - a1 * " + whole + ")");
  }
  Value* remainder = compute(n, {n.input(0), n.input(1)}, "a0 - a1 * (a0 / a1)");
  if (asInC) return remainder;
  return compute(n, {remainder, n.input(1)}, "select(a0 != 0 && (a0 < 0) != (a1 < 0), a0 + a1, a0)");
}

Value* convertSwiGlu(OnnxReader& n) {
  const std::string alpha = text(n.number("alpha", 1));
  if (n.type(0) == n.type(1)) return compute(n, {n.input(0), n.input(1)}, "a0 * sigmoid(" + alpha + " * a0) * a1");
  static_cast<void>(n.error() << "has inputs " << toString(n.type(0)) << " and " << toString(n.type(1))
                              << ", which must be alike");
  return nullptr;
}

/// X over the norm along an axis; ONNX says nothing of a norm of 0, whose quotient is 0.
Value* convertLpNormalization(OnnxReader& n) {
  const auto axis = n.axis(n.integer("axis", -1), n.type(0).rank());
  const std::int64_t p = n.integer("p", 2);
  if (!axis) return nullptr;
  if (p != 1 && p != 2) {
    static_cast<void>(n.error() << "has p = " << p << ", it must be 1 or 2");
    return nullptr;
  }
  Value* powers = compute(n, {n.input(0)}, p == 1 ? "abs(a0)" : "a0 * a0");
  Value* sum = powers ? n.value("reduce_sum", {powers}, {{"axes", std::vector{*axis}}, {"keep_dims", true}}) : nullptr;
  return compute(n, {n.input(0), sum}, p == 1 ? "select(a1 == 0, 0, a0 / a1)" : "select(a1 == 0, 0, a0 / sqrt(a1))");
}

} // namespace

std::vector<OpDef> define() {
  return {
      function("tan", "Tangent of X", "Tan", "sin(a0) / cos(a0)"),
      function("sinh", "Hyperbolic sine of X", "Sinh", "(expm1(a0) - expm1(-a0)) / 2"),
      function("cosh", "Hyperbolic cosine of X", "Cosh", "(exp(a0) + exp(-a0)) / 2"),
      function("asin", "Arc sine of X", "Asin", "2 * atan(a0 / (1 + sqrt(1 - a0 * a0)))"),
      function("acos", "Arc cosine of X", "Acos", "1.5707963267948966 - 2 * atan(a0 / (1 + sqrt(1 - a0 * a0)))"),
      function("atan", "Arc tangent of X", "Atan", "atan(a0)"),
      // No square of it, which might be infinite.
      function("acosh", "Inverse hyperbolic cosine of X", "Acosh", "log1p(a0 - 1 + sqrt(a0 - 1) * sqrt(a0 + 1))"),
      function("atanh", "Inverse hyperbolic tangent of X", "Atanh", "0.5 * (log1p(a0) - log1p(-a0))"),
      function("is_nan", "Whether X is not a number", "IsNaN", "a0 != a0"),
      composed("is_inf", "Whether X is infinite", {onnx("IsInf", 1, convertIsInf)}),
      composed("mod", "Remainder of A / B", {onnx("Mod", 2, convertMod)}),
      function("swish", "X times the sigmoid of alpha · X", "Swish", "a0 * sigmoid($alpha * a0)", {{"alpha", 1}}),
      composed("swi_glu", "B times A times the sigmoid of alpha · A", {onnx("SwiGLU", 2, convertSwiGlu, 28)}),
      composed("lp_normalization", "X over its norm along an axis",
               {onnx("LpNormalization", 1, convertLpNormalization)}),
  };
}

} // namespace pdc::ops::Functions
