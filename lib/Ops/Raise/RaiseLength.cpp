#include "Raise/RaiseLength.h"

#include "Raise/Match.h"

using namespace pdc;
using namespace pdc::ops;

/// p where `value` is |x|^p element by element, as conversions of ONNX write it; else 0.
static double orderOfPower(const Value* value) {
  const auto isEven = [](double p) { return std::fmod(p, 2) == 0; };
  if (squareRootOf(value)) return 2;
  if (const Operation* power = definedBy(value, "pow")) {
    const double p = numberOf(power->operand(1)).value_or(0);
    return p > 0 && (isEven(p) || definedBy(power->operand(0), "abs")) ? p : 0;
  }
  const Operation* cube = definedBy(value, "mul"); // (|x| · |x|) · |x|
  const bool ofSize = cube && definedBy(cube->operand(1), "abs") && squareRootOf(cube->operand(0)) == cube->operand(1);
  return ofSize ? 3 : 0;
}

static bool isSumOfSquares(const Value* value) {
  const Operation* sum = definedBy(value, "reduce_sum");
  return sum && squareRootOf(sum->operand(0));
}

/// Mean or sum of (x - mean of x)², times or over numbers.
static bool isVariance(const Value* value) {
  for (const Operation* scaled = value->definer(); scaled; scaled = value->definer()) {
    const bool byNumber = (scaled->def().name == "mul" || scaled->def().name == "div") && numberOf(scaled->operand(1));
    if (!byNumber) break;
    value = scaled->operand(0);
  }
  const Operation *mean = definedBy(value, "reduce_mean"), *sum = definedBy(value, "reduce_sum");
  const Operation* reduced = mean ? mean : sum;
  const Operation* deviation = reduced ? definedBy(squareRootOf(reduced->operand(0)), "sub") : nullptr;
  const Operation* center = deviation ? definedBy(deviation->operand(1), "reduce_mean") : nullptr;
  return center && center->operand(0) == deviation->operand(0);
}

std::string pdc::ops::lengthOf(const std::string& expression) {
  return "select(a0 == 0, 0, " + expression + ")";
}

Value* pdc::ops::raiseLength(Operation& root, Builder& b) {
  const auto made = [&](const std::string& expression) {
    return b.value("elementwise", {root.operand(0)}, {{"expressions", std::vector{lengthOf(expression)}}});
  };
  if (root.def().name == "sqrt") {
    const Operation* product = definedBy(root.operand(0), "mul");
    const bool ofTwo = product && isSumOfSquares(product->operand(0)) && isSumOfSquares(product->operand(1));
    return ofTwo || isVariance(root.operand(0)) ? made("sqrt(a0)") : nullptr;
  }
  const Operation* sum = root.def().name == "pow" ? definedBy(root.operand(0), "reduce_sum") : nullptr;
  const std::optional<double> exponent = sum ? numberOf(root.operand(1)) : std::nullopt;
  if (!exponent || sum->result()->type() != root.result()->type()) return nullptr;
  const bool isRoot = std::abs(*exponent * orderOfPower(sum->operand(0)) - 1) < 1e-5; // cdist's is off by 5e-7
  return isRoot ? made("pow(a0, " + toString(*numberExpression(*exponent)) + ")") : nullptr;
}
