// Scalar expressions: what an elementwise op computes for one element, as a tree of plain data.
//
// The same tree is evaluated by the interpreter (f32 and f64), differentiated symbolically, and printed for C++ and
// CUDA. Syntax: numbers, names, + - * /, unary -, comparisons (< <= > >= == !=, which yield booleans), && || !,
// `select(c, a, b)`, and the named functions that `scalarFunctions()` lists (exp, log, sqrt, tanh, erf, max, min, pow,
// …). Precedence is that of C++. `inf` and `nan` are numbers.
//
//   max(X, 0)        select(X > 0, X, alpha * X)        dY * Y * (1 - Y)
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace pdc {

struct Expression;
using ExpressionPtr = std::shared_ptr<const Expression>;

struct Expression {
  enum class Kind { number, name, unary, binary, call };
  Kind kind = Kind::number;
  double number = 0;
  std::string symbol; ///< of the name, the operator ("+", "<", "neg", "!"), or the function
  std::vector<ExpressionPtr> arguments;
};

/// Parses `text`; null, with the reason in `error`, when it is not an expression.
ExpressionPtr parseExpression(const std::string& text, std::string& error);
/// Parses text that is known to be right (in an OpDef); aborts with the reason otherwise.
ExpressionPtr expression(const std::string& text);
/// A number, and a name, as trees.
ExpressionPtr numberExpression(double value);
ExpressionPtr nameExpression(const std::string& name);
/// Text that parses back to the same tree, with no more parentheses than needed.
std::string toString(const Expression& e);

/// The names that occur, in alphabetical order.
std::set<std::string> namesIn(const Expression& e);
/// Whether e is a comparison or a logical operation, or a `select` between such.
bool isBoolean(const Expression& e);
/// e with each name replaced by what `replace` returns (null keeps it).
ExpressionPtr substitute(const ExpressionPtr& e, const std::function<ExpressionPtr(const std::string&)>& replace);
/// ∂e/∂name, simplified (0·x, 1·x, x+0, constant folding). At kinks, the derivative of the branch that is taken; where
/// the two arguments of max or min are equal, the second is (so that max(X, 0) has the derivative 0 at 0).
ExpressionPtr derivative(const ExpressionPtr& e, const std::string& name);
/// Removes what arithmetic with numbers alone decides; does not reassociate. 0·x is 0 also where x might be infinite.
ExpressionPtr simplify(const ExpressionPtr& e);

/// Value with `lookup` for names, every operation rounded to T (float, double, std::int64_t or std::uint64_t). Booleans
/// are 0 and 1. Integers wrap around; an integer division by zero yields 0; functions of integers are rounded towards
/// zero; functions of bits have no value as floats (NaN).
template <class T>
T evaluate(const Expression& e, const std::function<T(const std::string&)>& lookup);

/// An expression made ready to be evaluated often: names are positions in an array of values. Same results as
/// evaluate().
template <class T>
class ExpressionProgram {
public:
  /// `names[i]` is the name of values[i]; every name of `e` must be among them.
  ExpressionProgram(const Expression& e, const std::vector<std::string>& names);
  T operator()(const T* values) const;

private:
  struct Instruction {
    int code = 0; ///< of the operation, or that of a number or a name
    int name = 0; ///< position of the name
    T number = 0;
    int arguments = 0; ///< taken from the stack
  };
  void compile(const Expression& e, const std::vector<std::string>& names);
  std::vector<Instruction> instructions_;
  mutable std::vector<T> stack_;
};

/// C++ text for elements of type float, or `inDouble`: names through `print`, functions of pdcrt/Math.h and <cmath>,
/// numbers as literals that read back to the same bits.
std::string toCpp(const Expression& e, const std::function<std::string(const std::string&)>& print,
                  bool inDouble = false);

/// Floating-point operations per element, for the analytic cost model (a transcendental function counts as 10).
double flopsOf(const Expression& e);

/// A function that expressions may call.
struct ScalarFunction {
  std::string name;
  int arity = 1;
  std::string derivative; ///< per argument, separated by ';', in terms of a (and b, c)
  std::string cpp;        ///< the C++ function to call, or an expression of $0, $1, …
  double flops = 1;       ///< counted by flopsOf
  std::string summary;    ///< for docs/IR.md
  bool ofBits = false;    ///< defined for integers only
};
const std::vector<ScalarFunction>& scalarFunctions();

} // namespace pdc
