// ExpressionParser of scalar expressions: recursive descent, one function for all binary operators (precedence
// climbing).
//
// Texts come from files, so the depth of a tree is limited: everything that walks a tree recurses.
#include "ScalarFunctions.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <string_view>

using namespace pdc;
using Kind = Expression::Kind;

namespace {
constexpr int maxDepth = 1000;

struct Operator {
  std::string_view symbol;
  int binding; ///< higher binds tighter
};
/// Two-character symbols first, so that "<=" is not read as "<".
constexpr std::array<Operator, 12> operators = {{{"||", 1},
                                                 {"&&", 2},
                                                 {"==", 3},
                                                 {"!=", 3},
                                                 {"<=", 4},
                                                 {">=", 4},
                                                 {"<", 4},
                                                 {">", 4},
                                                 {"+", 5},
                                                 {"-", 5},
                                                 {"*", 6},
                                                 {"/", 6}}};

/// A tree and its height.
struct Tree {
  ExpressionPtr expression;
  int height = 0;
  explicit operator bool() const { return expression != nullptr; }
};

class ExpressionParser {
public:
  ExpressionParser(const std::string& text, std::string& error) : text_(text), error_(error) {}

  ExpressionPtr parse() {
    Tree tree = parseBinary(1, 0);
    if (tree && skipSpace() < text_.size()) tree = fail("expected an operator");
    return tree.expression;
  }

private:
  Tree fail(const std::string& message) {
    if (error_.empty()) error_ = message + " at column " + std::to_string(position_ + 1);
    return {};
  }
  std::size_t skipSpace() {
    while (position_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[position_]))) ++position_;
    return position_;
  }
  bool accept(char c) {
    if (skipSpace() >= text_.size() || text_[position_] != c) return false;
    ++position_;
    return true;
  }
  /// The identifier at `begin`, or "".
  std::string wordAt(std::size_t begin) const {
    std::size_t end = begin;
    auto isPart = [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '.'; };
    while (end < text_.size() && isPart(static_cast<unsigned char>(text_[end]))) ++end;
    return text_.substr(begin, end - begin);
  }
  const Operator* peekOperator() {
    skipSpace();
    for (const Operator& op : operators)
      if (std::string_view(text_).substr(position_).starts_with(op.symbol)) return &op;
    return nullptr;
  }
  Tree make(Kind kind, std::string symbol, std::vector<Tree> children) {
    Expression e{.kind = kind, .symbol = std::move(symbol)};
    int height = 0;
    for (Tree& child : children) {
      height = std::max(height, child.height);
      e.arguments.push_back(std::move(child.expression));
    }
    if (height >= maxDepth) return fail("the expression is deeper than " + std::to_string(maxDepth));
    return {std::make_shared<const Expression>(std::move(e)), height + 1};
  }

  Tree parseBinary(int binding, int depth);
  Tree parseUnary(int depth);
  Tree parseNumber(bool negative);
  Tree parseName(int depth);

  const std::string& text_;
  std::string& error_;
  std::size_t position_ = 0;
};
} // namespace

/// A chain of operators that bind at least as tightly as `binding`, from left to right.
Tree ExpressionParser::parseBinary(int binding, int depth) {
  Tree left = parseUnary(depth);
  while (left) {
    const Operator* op = peekOperator();
    if (!op || op->binding < binding) break;
    position_ += op->symbol.size();
    Tree right = parseBinary(op->binding + 1, depth);
    if (!right) return {};
    left = make(Kind::binary, std::string(op->symbol), {std::move(left), std::move(right)});
  }
  return left;
}

Tree ExpressionParser::parseUnary(int depth) {
  if (depth > maxDepth) return fail("the expression is deeper than " + std::to_string(maxDepth));
  if (skipSpace() >= text_.size()) return fail("expected an operand");
  const char c = text_[position_];
  auto isDigit = [&](std::size_t i) {
    return i < text_.size() && (std::isdigit(static_cast<unsigned char>(text_[i])) || text_[i] == '.');
  };
  if (accept('-')) {
    // A minus sign right before a number belongs to it.
    if (isDigit(skipSpace())) return parseNumber(true);
    const bool beforeInfinity = wordAt(position_) == "inf";
    Tree argument = parseUnary(depth + 1);
    if (!argument) return {};
    if (beforeInfinity) return {numberExpression(-argument.expression->number), 1};
    return make(Kind::unary, "neg", {std::move(argument)});
  }
  if (c == '!' && accept('!')) {
    Tree argument = parseUnary(depth + 1);
    return argument ? make(Kind::unary, "!", {std::move(argument)}) : Tree{};
  }
  if (accept('(')) {
    Tree inner = parseBinary(1, depth + 1);
    if (inner && !accept(')')) return fail("expected ')'");
    return inner;
  }
  if (isDigit(position_)) return parseNumber(false);
  if (std::isalpha(static_cast<unsigned char>(c)) || c == '_') return parseName(depth);
  return fail("expected an operand");
}

Tree ExpressionParser::parseNumber(bool negative) {
  double value = 0;
  const char *begin = text_.data() + position_, *end = text_.data() + text_.size();
  const auto [stop, error] = std::from_chars(begin, end, value);
  if (error != std::errc()) return fail("expected a number");
  position_ += static_cast<std::size_t>(stop - begin);
  return {numberExpression(negative ? -value : value), 1};
}

Tree ExpressionParser::parseName(int depth) {
  std::string name = wordAt(position_);
  position_ += name.size();
  if (name == "inf") return {numberExpression(std::numeric_limits<double>::infinity()), 1};
  if (name == "nan") return {numberExpression(std::numeric_limits<double>::quiet_NaN()), 1};
  if (!accept('(')) return {nameExpression(name), 1};

  const ScalarFunction* function = findScalarFunction(name);
  if (!function) return fail("there is no function '" + name + "'");
  std::vector<Tree> arguments;
  do {
    Tree argument = parseBinary(1, depth + 1);
    if (!argument) return {};
    arguments.push_back(std::move(argument));
  } while (accept(','));
  if (!accept(')')) return fail("expected ',' or ')'");
  if (arguments.size() != static_cast<std::size_t>(function->arity))
    return fail("'" + name + "' takes " + std::to_string(function->arity) + " arguments, here are " +
                std::to_string(arguments.size()));
  return make(Kind::call, std::move(name), std::move(arguments));
}

ExpressionPtr pdc::parseExpression(const std::string& text, std::string& error) {
  error.clear();
  return ExpressionParser(text, error).parse();
}
