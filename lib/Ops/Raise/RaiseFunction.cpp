#include "Raise/RaiseFunction.h"

#include "Raise/Match.h"
#include "pdc/IR/Elementwise.h"

#include <algorithm>
#include <set>

using namespace pdc;
using namespace pdc::ops;

namespace {

/// Longer chains are not looked at: the longest known spelling of an activation has nine operations.
constexpr std::size_t longestChain = 16;
/// Values that occur several times are written out as often.
constexpr int largestExpression = 200;

bool isAnalytic(const Expression& e) {
  static const std::set<std::string> symbols = {"neg", "+",   "-",    "*",    "/",       "exp",       "expm1",
                                                "erf", "pow", "tanh", "sqrt", "sigmoid", "reciprocal"};
  const bool known =
      e.kind == Expression::Kind::number || e.kind == Expression::Kind::name || symbols.contains(e.symbol);
  return known && std::all_of(e.arguments.begin(), e.arguments.end(), [](const auto& a) { return isAnalytic(*a); });
}

int sizeOf(const Expression& e) {
  int size = 1;
  for (const ExpressionPtr& argument : e.arguments) size += sizeOf(*argument);
  return size;
}

/// The operation that computes `value` from others element by element, or null.
const Operation* elementwiseDefiner(const Value* value) {
  const Operation* definer = value->definer();
  return definer && definer->def().kind == OpKind::elementwise && definer->results().size() == 1 ? definer : nullptr;
}

/// The values of the chain that ends in `root`, nearest first; empty when it is too long.
std::vector<const Value*> chainOf(const Operation& root) {
  std::vector<const Value*> values = {root.result()};
  for (std::size_t i = 0; i < values.size(); ++i)
    if (const Operation* definer = elementwiseDefiner(values[i]); definer && values.size() <= 2 * longestChain)
      for (const Value* operand : definer->operands())
        if (operand && std::find(values.begin(), values.end(), operand) == values.end()) values.push_back(operand);
  return values;
}

/// `value` as an analytic function of `leaf`, which it calls x; null when it is none.
ExpressionPtr functionOf(const Value* value, const Value* leaf, std::size_t depth = 0) {
  if (value == leaf) return nameExpression("x");
  if (const std::optional<double> number = numberOf(value)) return numberExpression(*number);
  const Operation* definer = elementwiseDefiner(value);
  if (!definer || depth == longestChain) return nullptr;
  const ExpressionPtr own = expressionsOf(*definer).front();
  if (!isAnalytic(*own)) return nullptr;
  std::map<std::string, ExpressionPtr> operands;
  for (std::size_t i = 0; i < definer->operands().size(); ++i) {
    const ExpressionPtr operand = functionOf(definer->operand(i), leaf, depth + 1);
    if (!operand) return nullptr;
    operands.emplace(operandNameInExpressions(definer->def(), i), operand);
  }
  const ExpressionPtr whole = substitute(own, [&](const std::string& name) { return operands.at(name); });
  return sizeOf(*whole) <= largestExpression ? whole : nullptr;
}

bool agree(const Expression& a, const Expression& b) {
  std::vector<double> points = {-50, -20, -1e-3, 1e-3, 20, 50};
  for (double x = -8.05; x < 8.1; x += 0.37) points.push_back(x);
  return std::all_of(points.begin(), points.end(), [&](double x) {
    const auto lookup = [x](const std::string&) { return x; };
    return std::abs(evaluate<double>(a, lookup) - evaluate<double>(b, lookup)) <= 3e-7 * std::abs(x);
  });
}

} // namespace

std::function<Value*(Operation&, Builder&)> pdc::ops::raiseFunction(std::string op, const std::string& text,
                                                                    std::string part) {
  return
      [op = std::move(op), target = expression(text), part = std::move(part)](Operation& root, Builder& b) -> Value* {
        if (!elementwiseDefiner(root.result()) || !isAnalytic(*expressionsOf(root).front())) return nullptr;
        const std::vector<const Value*> chain = chainOf(root);
        if (std::none_of(chain.begin(), chain.end(), [&](const Value* v) { return definedBy(v, part.c_str()); }))
          return nullptr;
        for (const Value* leaf : chain) {
          if (leaf == root.result() || leaf->type() != root.result()->type() || numberOf(leaf)) continue;
          const ExpressionPtr function = functionOf(root.result(), leaf);
          if (function && agree(*function, *target)) return b.value(op, {const_cast<Value*>(leaf)});
        }
        return nullptr;
      };
}
