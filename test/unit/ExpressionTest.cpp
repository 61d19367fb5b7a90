// LINK: pdcIR
// Scalar expressions: syntax, printing, simplification, derivatives against finite differences, C++ text.
#include "pdc/IR/Expression.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <random>

using namespace pdc;

static double valueOf(const ExpressionPtr& e, const std::map<std::string, double>& names = {}) {
  return evaluate<double>(*e, [&](const std::string& name) { return names.at(name); });
}
static std::string again(const std::string& text) {
  return toString(*expression(text));
}
static std::string errorOf(const std::string& text) {
  std::string error;
  EXPECT_EQ(parseExpression(text, error), nullptr) << text;
  return error;
}

TEST(Expression, PrecedenceIsThatOfCpp) {
  EXPECT_EQ(valueOf(expression("2 + 3 * 4")), 14);
  EXPECT_EQ(valueOf(expression("(2 + 3) * 4")), 20);
  EXPECT_EQ(valueOf(expression("10 - 4 - 3")), 3);
  EXPECT_EQ(valueOf(expression("24 / 4 / 2")), 3);
  EXPECT_EQ(valueOf(expression("-2 * -3")), 6);
  EXPECT_EQ(valueOf(expression("1 + 1 == 2 && !(3 < 2) || nan > 0")), 1);
  EXPECT_EQ(valueOf(expression("select(1 >= 2, 5, 7)")), 7);
  EXPECT_EQ(valueOf(expression("-inf < 0")), 1);
}

TEST(Expression, PrintsNoMoreParenthesesThanNeeded) {
  for (const char* text : {"a + b + c",   "a - (b - c)",
                           "a * (b + c)", "(a + b) * c",
                           "-a * b",      "-(a * b)",
                           "-(-a)",       "-(2)",
                           "-2",          "a - -2",
                           "!(a < b)",    "a < b && c < d || e != f",
                           "max(a, 0)",   "select(x > 0, x, alpha * x)",
                           "0.1 * x",     "1e+30",
                           "inf",         "-inf",
                           "nan",         "a / (b * c)",
                           "a / b / c"})
    EXPECT_EQ(again(text), text);
}

TEST(Expression, ErrorsNameTheColumn) {
  EXPECT_EQ(errorOf(""), "expected an operand at column 1");
  EXPECT_EQ(errorOf("a +"), "expected an operand at column 4");
  EXPECT_EQ(errorOf("a b"), "expected an operator at column 3");
  EXPECT_EQ(errorOf("(a"), "expected ')' at column 3");
  EXPECT_EQ(errorOf("max(a"), "expected ',' or ')' at column 6");
  EXPECT_EQ(errorOf("max(a)"), "'max' takes 2 arguments, here are 1 at column 7");
  EXPECT_EQ(errorOf("sinh(a)"), "there is no function 'sinh' at column 6");
  EXPECT_EQ(errorOf("1e999"), "expected a number at column 1");
  EXPECT_EQ(errorOf("a $ b"), "expected an operator at column 3");
}

TEST(Expression, DeepTextsAreRefused) {
  const std::size_t depth = 100000;
  EXPECT_NE(errorOf(std::string(depth, '(') + "a"), "");
  EXPECT_NE(errorOf(std::string(depth, '-') + "a"), "");
  std::string chain = "a";
  for (std::size_t i = 0; i < depth; ++i) chain += " + a";
  EXPECT_NE(errorOf(chain), "");
}

TEST(Expression, Simplifies) {
  const std::map<std::string, std::string> cases = {{"0 * x", "0"},
                                                    {"x * 1", "x"},
                                                    {"x + 0", "x"},
                                                    {"0 - x", "-x"},
                                                    {"x - 0", "x"},
                                                    {"x / 1", "x"},
                                                    {"-1 * x", "-x"},
                                                    {"x - -y", "x + y"},
                                                    {"x + -y", "x - y"},
                                                    {"2 * 3 + x", "6 + x"},
                                                    {"2 * x * 3", "2 * x * 3"},
                                                    {"-(-x)", "x"},
                                                    {"exp(0) * x", "x"},
                                                    {"select(1, x, y)", "x"},
                                                    {"select(2 < 1, x, y)", "y"},
                                                    {"pow(x, 1)", "x"},
                                                    {"x / 0", "x / 0"}};
  for (const auto& [text, simple] : cases) EXPECT_EQ(toString(*simplify(expression(text))), simple) << text;
}

TEST(Expression, SubstitutionKeepsWhatItDoesNotTouch) {
  const ExpressionPtr e = expression("x * y + 1");
  EXPECT_EQ(substitute(e, [](const std::string&) { return nullptr; }), e);
  const auto replace = [](const std::string& name) { return name == "y" ? expression("a - b") : nullptr; };
  EXPECT_EQ(toString(*substitute(e, replace)), "x * (a - b) + 1");
  EXPECT_EQ(namesIn(*e), (std::set<std::string>{"x", "y"}));
}

/// Central differences, fourth order.
static double difference(const ExpressionPtr& e, std::map<std::string, double> at, const std::string& name) {
  const double x = at.at(name), h = 1e-3;
  auto f = [&](double value) {
    at[name] = value;
    return valueOf(e, at);
  };
  return (8 * (f(x + h) - f(x - h)) - (f(x + 2 * h) - f(x - 2 * h))) / (12 * h);
}

static void expectDerivative(const std::string& text, const std::map<std::string, double>& at) {
  const ExpressionPtr e = expression(text);
  for (const std::string& name : namesIn(*e)) {
    const double exact = valueOf(derivative(e, name), at), near = difference(e, at, name);
    EXPECT_NEAR(exact, near, 1e-8 * (1 + std::fabs(near))) << "of " << text << " by " << name;
  }
}

TEST(Expression, DerivativeOfEveryFunction) {
  // Points in every function's domain and away from kinks: none is an integer, and a differs from b.
  std::mt19937 random(1);
  std::uniform_real_distribution<double> fraction(0.1, 0.4);
  for (const ScalarFunction& function : scalarFunctions()) {
    if (function.ofBits) continue;
    const bool positive = function.name == "log" || function.name == "sqrt" || function.name == "rsqrt" ||
                          function.name == "pow" || function.name == "log1p";
    for (int trial = 0; trial < 20; ++trial) {
      const int whole = trial % 5 - (positive ? 0 : 2);
      const std::map<std::string, double> at = {{"x", whole + fraction(random)}, {"y", whole + 0.5 + fraction(random)}};
      if (function.arity == 1) expectDerivative(function.name + "(x)", at);
      if (function.arity == 2) expectDerivative(function.name + "(x, y)", at);
      if (function.arity == 2) expectDerivative(function.name + "(y, x)", at);
      if (function.arity == 3) expectDerivative(function.name + "(x > y, x * y, x - y)", at);
      if (function.arity == 1)
        expectDerivative("x * " + function.name + "(0.6 + 0.02 * (x * x + y))", at); // chain rule, away from steps
    }
  }
}

TEST(Expression, DerivativeOfOperators) {
  for (const char* text : {"x + y", "x - y", "x * y", "x / y", "-x * y", "x * x * x / (y * y + 1)", "3 / x",
                           "select(x > y && !(x < 0), x * x, y)", "(x < y) * x"})
    for (double x : {-1.7, -0.3, 0.6, 2.2}) expectDerivative(text, {{"x", x}, {"y", 0.9}});
  EXPECT_EQ(toString(*derivative(expression("x * y + x"), "x")), "y + 1");
  EXPECT_EQ(toString(*derivative(expression("exp(y)"), "x")), "0");
}

TEST(Expression, DerivativeAtAKinkIsThatOfTheSecondArgument) {
  const ExpressionPtr relu = derivative(expression("max(x, 0)"), "x");
  EXPECT_EQ(valueOf(relu, {{"x", 0}}), 0);
  EXPECT_EQ(valueOf(relu, {{"x", 1e-300}}), 1);
}

TEST(Expression, DerivativeOfWhatIsNotTakenIsZero) {
  const double at[] = {-1, 0};
  for (double x : at)
    for (const char* text : {"log(max(x, 0))", "sqrt(max(x, 0)) * y", "select(x > 0, log(x), 0)",
                             "max(x, 0) / max(x, 0)", "max(log(max(x, 0)), 0)"})
      EXPECT_EQ(valueOf(derivative(expression(text), "x"), {{"x", x}, {"y", 2}}), 0) << text << " at " << x;
  EXPECT_EQ(valueOf(derivative(expression("log(max(x, 0))"), "x"), {{"x", 4}}), 0.25);
}

// As PyTorch's.
TEST(Expression, DerivativesOfPowersAtZero) {
  const auto by = [](const char* name, double x, double y) {
    return valueOf(derivative(expression("pow(x, y)"), name), {{"x", x}, {"y", y}});
  };
  EXPECT_EQ(by("x", 0, 0), 0);
  EXPECT_EQ(by("x", 0, 1), 1);
  EXPECT_TRUE(std::isinf(by("x", 0, 0.5)));
  EXPECT_EQ(by("y", 0, 0), 0);
  EXPECT_EQ(by("y", 0, 2), 0);
  EXPECT_TRUE(std::isinf(by("y", 0, -1)));
  EXPECT_TRUE(std::isnan(by("y", -2, 2)));
}

TEST(Expression, NotANumberStays) {
  for (const char* text : {"max(x, 0)", "max(0, x)", "min(x, 0)", "relu(x)", "sign(x)", "x * 0 + 1"})
    EXPECT_TRUE(std::isnan(valueOf(expression(text), {{"x", std::nan("")}}))) << text;
}

TEST(Expression, IntegersWrapAndNeverTrap) {
  const std::int64_t least = std::numeric_limits<std::int64_t>::min();
  auto valueAt = [](const char* text, std::int64_t x) {
    return evaluate<std::int64_t>(*expression(text), [&](const std::string&) { return x; });
  };
  EXPECT_EQ(valueAt("x - 1", least), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(valueAt("x / -1", least), least);
  EXPECT_EQ(valueAt("-x", least), least);
  EXPECT_EQ(valueAt("abs(x)", least), least);
  EXPECT_EQ(valueAt("x / 0", 7), 0);
  EXPECT_EQ(valueAt("x / 2", -7), -3);
  EXPECT_EQ(valueAt("exp(x)", 1000), 0);
  EXPECT_EQ(valueAt("max(x, 3) * 2", 2), 6);
}

TEST(Expression, BitsOfSignedAndUnsignedIntegers) {
  auto valueAt = [](const char* text, auto x, auto y) {
    return evaluate<decltype(x)>(*expression(text), [&](const std::string& name) { return name == "x" ? x : y; });
  };
  const std::uint64_t high = std::uint64_t{1} << 63;
  EXPECT_EQ(valueAt("bitAnd(x, y)", std::int64_t{12}, std::int64_t{10}), 8);
  EXPECT_EQ(valueAt("bitOr(x, y)", std::int64_t{12}, std::int64_t{10}), 14);
  EXPECT_EQ(valueAt("bitXor(x, y)", std::int64_t{12}, std::int64_t{-1}), -13);
  EXPECT_EQ(valueAt("bitNot(x)", std::int64_t{0}, std::int64_t{0}), -1);
  EXPECT_EQ(valueAt("shiftLeft(x, y)", std::uint64_t{3}, std::uint64_t{63}), high);
  EXPECT_EQ(valueAt("shiftLeft(x, y)", std::uint64_t{3}, std::uint64_t{64}), 0u);
  EXPECT_EQ(valueAt("shiftRight(x, y)", high, std::uint64_t{62}), 2u);
  EXPECT_EQ(valueAt("shiftRight(x, y)", high, std::uint64_t{64}), 0u);
  // What a signed integer would get wrong.
  EXPECT_EQ(valueAt("max(x, y)", high, std::uint64_t{1}), high);
  EXPECT_EQ(valueAt("x / y", high, std::uint64_t{2}), high / 2);
  EXPECT_EQ(valueAt("x / y", std::uint64_t{7}, ~std::uint64_t{0}), 0u);
  EXPECT_EQ(valueAt("x > y", high, std::uint64_t{1}), 1u);
  EXPECT_EQ(valueAt("x - y", std::uint64_t{1}, std::uint64_t{2}), ~std::uint64_t{0});
  EXPECT_EQ(valueAt("pow(x, y)", std::uint64_t{2}, std::uint64_t{63}), high);
}

TEST(Expression, ProgramAgreesWithEvaluateToTheBit) {
  const std::vector<std::string> names = {"x", "y"};
  for (const char* text : {"x", "2", "x / 3 + y * 0.1", "select(x > y, tanh(x) * sigmoid(y), erf(x) - gelu(y))",
                           "softplus(x) + log1p(y * y) - pow(abs(x), y)"}) {
    const ExpressionPtr e = expression(text);
    const ExpressionProgram<float> program(*e, names);
    for (float x : {-1.5f, 0.25f, 3.0f}) {
      const float values[] = {x, 0.7f};
      const float expected = evaluate<float>(*e, [&](const std::string& name) { return values[name == "y"]; });
      const float found = program(values);
      EXPECT_EQ(std::memcmp(&expected, &found, sizeof(float)), 0) << text;
    }
  }
}

static std::string cpp(const std::string& text) {
  return toCpp(*expression(text), [](const std::string& name) { return name + "[i]"; });
}

TEST(Expression, CppText) {
  EXPECT_EQ(cpp("max(x, 0)"), "pdcrt::maximum(x[i], 0.0f)");
  EXPECT_EQ(cpp("(x + 1) * -y"), "(x[i] + 1.0f) * -y[i]");
  EXPECT_EQ(cpp("select(x > 0, x, 0.1 * x)"), "pdcrt::select(x[i] > 0.0f, x[i], 0.1f * x[i])");
  EXPECT_EQ(cpp("max(x > 0, y)"), "pdcrt::maximum(static_cast<float>(x[i] > 0.0f), y[i])");
  EXPECT_EQ(cpp("rsqrt(x + y)"), "(1.0f / std::sqrt(x[i] + y[i]))");
  EXPECT_EQ(cpp("reciprocal(x + y)"), "(1.0f / (x[i] + y[i]))");
  EXPECT_EQ(cpp("x * -inf"), "x[i] * -std::numeric_limits<float>::infinity()");
  EXPECT_EQ(cpp("nan"), "std::numeric_limits<float>::quiet_NaN()");
  const auto inDouble = [](const std::string& text) {
    return toCpp(
        *expression(text), [](const std::string& name) { return name; }, /*inDouble=*/true);
  };
  EXPECT_EQ(inDouble("0.1 * max(x > 0, y)"), "0.1 * pdcrt::maximum(static_cast<double>(x > 0.0), y)");
  EXPECT_EQ(inDouble("x * -inf"), "x * -std::numeric_limits<double>::infinity()");
}

TEST(Expression, NumbersAreExact) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 20000; ++i) {
    const std::uint64_t bits = random();
    double value = 0;
    std::memcpy(&value, &bits, sizeof value);
    if (std::isnan(value)) continue;
    const double read = expression(toString(*numberExpression(value)))->number;
    EXPECT_EQ(std::memcmp(&value, &read, sizeof value), 0) << value;

    std::uint32_t half = static_cast<std::uint32_t>(bits);
    float single = 0;
    std::memcpy(&single, &half, sizeof single);
    if (!std::isfinite(single)) continue;
    const std::string literal = toCpp(*numberExpression(single), [](const std::string& name) { return name; });
    EXPECT_EQ(literal.back(), 'f');
    const float parsed = std::strtof(literal.c_str(), nullptr);
    EXPECT_EQ(std::memcmp(&single, &parsed, sizeof single), 0) << literal;
  }
}

TEST(Expression, FlopsCountOperationsOnce) {
  EXPECT_EQ(flopsOf(*expression("x")), 0);
  EXPECT_EQ(flopsOf(*expression("x * y + 1")), 2);
  EXPECT_EQ(flopsOf(*expression("max(exp(x), 0)")), 11);
}

/// A random tree of limited height.
static ExpressionPtr randomTree(std::mt19937& random, int height) {
  auto pick = [&](int count) { return std::uniform_int_distribution<int>(0, count - 1)(random); };
  const int kind = height == 0 ? pick(2) : pick(5);
  auto node = [&](Expression::Kind k, const std::string& symbol, int arguments) {
    Expression e{.kind = k, .symbol = symbol};
    for (int i = 0; i < arguments; ++i) e.arguments.push_back(randomTree(random, height - 1));
    return std::make_shared<const Expression>(std::move(e));
  };
  if (kind == 0) return numberExpression((pick(2001) - 1000) / 8.0);
  if (kind == 1) return nameExpression(std::string(1, static_cast<char>('a' + pick(3))));
  if (kind == 2) return node(Expression::Kind::unary, pick(2) ? "neg" : "!", 1);
  if (kind == 3) {
    const char* symbols[] = {"+", "-", "*", "/", "<", "<=", ">", ">=", "==", "!=", "&&", "||"};
    return node(Expression::Kind::binary, symbols[pick(12)], 2);
  }
  const ScalarFunction& function = scalarFunctions()[static_cast<std::size_t>(pick(25))];
  return node(Expression::Kind::call, function.name, function.arity);
}

static bool same(const Expression& a, const Expression& b) {
  if (a.kind != b.kind || a.number != b.number || a.symbol != b.symbol || a.arguments.size() != b.arguments.size())
    return false;
  for (std::size_t i = 0; i < a.arguments.size(); ++i)
    if (!same(*a.arguments[i], *b.arguments[i])) return false;
  return true;
}

TEST(Expression, RandomTreesReadBackAsTheSameTree) {
  std::mt19937 random(3);
  for (int i = 0; i < 5000; ++i) {
    const ExpressionPtr tree = randomTree(random, i % 6);
    const std::string text = toString(*tree);
    std::string error;
    const ExpressionPtr read = parseExpression(text, error);
    ASSERT_NE(read, nullptr) << text << ": " << error;
    EXPECT_TRUE(same(*tree, *read)) << text << " became " << toString(*read);
  }
}

TEST(Expression, EveryFunctionIsInTheManual) {
  std::ifstream file(PDC_SOURCE_DIR "/docs/IR.md");
  const std::string manual((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  for (const ScalarFunction& function : scalarFunctions())
    EXPECT_NE(manual.find("`" + function.name + "("), std::string::npos) << function.name;
}

TEST(ExpressionDeathTest, TextInAnOpDefThatIsNoExpressionAborts) {
  EXPECT_DEATH(expression("a +"), "'a \\+' is not an expression: expected an operand at column 4");
}
