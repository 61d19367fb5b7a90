// Trees of scalar expressions: printing, substitution, simplification, differentiation, evaluation. The parser is in
// ExpressionParser.cpp.
#include "ScalarFunctions.h"

#include <algorithm>
#include <cassert>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <map>

using namespace pdc;
using Kind = Expression::Kind;

static ExpressionPtr make(Kind kind, std::string symbol, std::vector<ExpressionPtr> arguments) {
  return std::make_shared<const Expression>(
      Expression{.kind = kind, .symbol = std::move(symbol), .arguments = std::move(arguments)});
}
static ExpressionPtr binary(const char* symbol, ExpressionPtr a, ExpressionPtr b) {
  return make(Kind::binary, symbol, {std::move(a), std::move(b)});
}
static ExpressionPtr negated(ExpressionPtr a) {
  return make(Kind::unary, "neg", {std::move(a)});
}

ExpressionPtr pdc::numberExpression(double value) {
  return std::make_shared<const Expression>(Expression{.kind = Kind::number, .number = value});
}
ExpressionPtr pdc::nameExpression(const std::string& name) {
  return make(Kind::name, name, {});
}

ExpressionPtr pdc::expression(const std::string& text) {
  std::string error;
  ExpressionPtr e = parseExpression(text, error);
  if (!e) {
    std::fprintf(stderr, "'%s' is not an expression: %s\n", text.c_str(), error.c_str());
    std::abort();
  }
  return e;
}

// --- printing ---

/// How tightly a node binds, as in C++: a child that binds less tightly than its place asks for gets parentheses.
static int bindingOf(const Expression& e) {
  static const std::map<std::string, int> bindings = {{"||", 1}, {"&&", 2}, {"==", 3}, {"!=", 3}, {"<", 4}, {"<=", 4},
                                                      {">", 4},  {">=", 4}, {"+", 5},  {"-", 5},  {"*", 6}, {"/", 6}};
  if (e.kind == Kind::binary) return bindings.at(e.symbol);
  return e.kind == Kind::unary ? 7 : 8;
}

namespace {
/// Prints a tree; what differs between our own syntax and C++ is in the three functions.
struct Printer {
  std::function<std::string(double)> number;
  std::function<std::string(const std::string&)> name;
  std::function<std::string(const Expression&, const Printer&)> call;

  std::string print(const Expression& e) const {
    switch (e.kind) {
    case Kind::number: return number(e.number);
    case Kind::name: return name(e.symbol);
    case Kind::call: return call(e, *this);
    case Kind::unary: {
      // -(2) is an operation on a number and -2 is a number; the parser knows them apart by the parentheses.
      const Expression& argument = *e.arguments[0];
      const bool apart = argument.kind == Kind::number || bindingOf(argument) < bindingOf(e) ||
                         (argument.kind == Kind::unary && argument.symbol == "neg" && e.symbol == "neg");
      const std::string text = print(argument);
      return (e.symbol == "neg" ? "-" : "!") + (apart ? "(" + text + ")" : text);
    }
    case Kind::binary: break;
    }
    const int binding = bindingOf(e);
    return at(*e.arguments[0], binding) + " " + e.symbol + " " + at(*e.arguments[1], binding + 1);
  }

  /// `e` where something that binds with `binding` is expected.
  std::string at(const Expression& e, int binding) const {
    return bindingOf(e) < binding ? "(" + print(e) + ")" : print(e);
  }
};

template <class T>
std::string shortest(T value) {
  char buffer[64];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof(buffer), value);
  assert(error == std::errc());
  return {buffer, end};
}
} // namespace

std::string pdc::toString(const Expression& e) {
  Printer printer;
  printer.number = [](double value) { return std::isnan(value) ? std::string("nan") : shortest(value); };
  printer.name = [](const std::string& name) { return name; };
  printer.call = [](const Expression& call, const Printer& p) {
    std::string text = call.symbol + "(";
    for (std::size_t i = 0; i < call.arguments.size(); ++i) text += (i ? ", " : "") + p.print(*call.arguments[i]);
    return text + ")";
  };
  return printer.print(e);
}

template <class T>
static std::string literal(double number) {
  const T value = static_cast<T>(number);
  const std::string limits = std::string("std::numeric_limits<") + (sizeof(T) == 4 ? "float" : "double") + ">::";
  if (std::isnan(value)) return limits + "quiet_NaN()";
  if (std::isinf(value)) return (value < 0 ? "-" : "") + limits + "infinity()";
  std::string text = shortest(value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text + (sizeof(T) == 4 ? "f" : "");
}

std::string pdc::toCpp(const Expression& e, const std::function<std::string(const std::string&)>& print,
                       bool inDouble) {
  Printer printer;
  printer.number = inDouble ? literal<double> : literal<float>;
  printer.name = print;
  printer.call = [inDouble](const Expression& call, const Printer& p) {
    const ScalarFunction* function = findScalarFunction(call.symbol);
    std::vector<std::string> arguments;
    for (std::size_t i = 0; i < call.arguments.size(); ++i) {
      const Expression& argument = *call.arguments[i];
      // Function templates want arguments of one type: a boolean becomes 0 or 1, except where a condition is asked for.
      const bool condition = call.symbol == "select" && i == 0;
      const std::string number = inDouble ? "static_cast<double>(" : "static_cast<float>(";
      arguments.push_back(isBoolean(argument) && !condition ? number + p.print(argument) + ")" : p.print(argument));
    }
    std::string text;
    if (function->cpp.find('$') == std::string::npos) {
      for (const std::string& argument : arguments) text += (text.empty() ? "" : ", ") + argument;
      return function->cpp + "(" + text + ")";
    }
    for (std::size_t i = 0; i < function->cpp.size(); ++i)
      if (function->cpp[i] == '$')
        text += arguments[static_cast<std::size_t>(function->cpp[++i] - '0')];
      else
        text += function->cpp[i];
    return text;
  };
  return printer.print(e);
}

// --- questions ---

static void collectNames(const Expression& e, std::set<std::string>& names) {
  if (e.kind == Kind::name) names.insert(e.symbol);
  for (const ExpressionPtr& argument : e.arguments) collectNames(*argument, names);
}

std::set<std::string> pdc::namesIn(const Expression& e) {
  std::set<std::string> names;
  collectNames(e, names);
  return names;
}

bool pdc::isBoolean(const Expression& e) {
  if (e.kind == Kind::call) return e.symbol == "select" && isBoolean(*e.arguments[1]) && isBoolean(*e.arguments[2]);
  if (e.kind == Kind::unary) return e.symbol == "!";
  return e.kind == Kind::binary && bindingOf(e) <= 4;
}

double pdc::flopsOf(const Expression& e) {
  double flops = 0;
  for (const ExpressionPtr& argument : e.arguments) flops += flopsOf(*argument);
  if (e.kind == Kind::unary || e.kind == Kind::binary) return flops + 1;
  return e.kind == Kind::call ? flops + findScalarFunction(e.symbol)->flops : flops;
}

ExpressionPtr pdc::substitute(const ExpressionPtr& e, const std::function<ExpressionPtr(const std::string&)>& replace) {
  if (e->kind == Kind::name) {
    ExpressionPtr replacement = replace(e->symbol);
    return replacement ? replacement : e;
  }
  bool changed = false;
  std::vector<ExpressionPtr> arguments;
  for (const ExpressionPtr& argument : e->arguments) {
    arguments.push_back(substitute(argument, replace));
    changed |= arguments.back() != argument;
  }
  return changed ? make(e->kind, e->symbol, std::move(arguments)) : e;
}

// --- simplification ---

static bool isNumber(const ExpressionPtr& e) {
  return e->kind == Kind::number;
}
static bool isNumber(const ExpressionPtr& e, double value) {
  return isNumber(e) && e->number == value;
}
static bool isNegation(const ExpressionPtr& e) {
  return e->kind == Kind::unary && e->symbol == "neg";
}

/// One step at the root of `e`, whose arguments are simple.
static ExpressionPtr simplifyRoot(const ExpressionPtr& e) {
  const auto& arguments = e->arguments;
  if (!arguments.empty() && !isConversion(codeOf(*e)) &&
      std::all_of(arguments.begin(), arguments.end(), [](const auto& a) { return isNumber(a); }))
    return numberExpression(evaluate<double>(*e, [](const std::string&) { return 0.0; }));
  if (e->kind == Kind::unary) return isNegation(e) && isNegation(arguments[0]) ? arguments[0]->arguments[0] : e;
  if (e->kind == Kind::call) {
    if (e->symbol == "select" && isNumber(arguments[0])) return arguments[isNumber(arguments[0], 0) ? 2 : 1];
    if (e->symbol == "pow" && isNumber(arguments[1], 1)) return arguments[0];
    return e;
  }
  if (e->kind != Kind::binary) return e;
  const ExpressionPtr &a = arguments[0], &b = arguments[1];
  if (e->symbol == "+") {
    if (isNumber(a, 0)) return b;
    if (isNumber(b, 0)) return a;
    if (isNegation(b)) return binary("-", a, b->arguments[0]);
  } else if (e->symbol == "-") {
    if (isNumber(b, 0)) return a;
    if (isNumber(a, 0)) return isNegation(b) ? b->arguments[0] : negated(b);
    if (isNegation(b)) return binary("+", a, b->arguments[0]);
  } else if (e->symbol == "*") {
    if (isNumber(a, 0) || isNumber(b, 0)) return numberExpression(0);
    if (isNumber(a, 1)) return b;
    if (isNumber(b, 1)) return a;
    if (isNumber(a, -1)) return isNegation(b) ? b->arguments[0] : negated(b);
    if (isNumber(b, -1)) return isNegation(a) ? a->arguments[0] : negated(a);
  } else if (e->symbol == "/") {
    if (isNumber(a, 0)) return numberExpression(0);
    if (isNumber(b, 1)) return a;
  }
  return e;
}

ExpressionPtr pdc::simplify(const ExpressionPtr& e) {
  if (e->arguments.empty()) return e;
  bool changed = false;
  std::vector<ExpressionPtr> arguments;
  for (const ExpressionPtr& argument : e->arguments) {
    arguments.push_back(simplify(argument));
    changed |= arguments.back() != argument;
  }
  return simplifyRoot(changed ? make(e->kind, e->symbol, std::move(arguments)) : e);
}

// --- differentiation ---

/// The partial derivatives of a function, in terms of a, b and c.
static const std::vector<ExpressionPtr>& partialsOf(const ScalarFunction& function) {
  static const std::map<std::string, std::vector<ExpressionPtr>> table = [] {
    std::map<std::string, std::vector<ExpressionPtr>> map;
    for (const ScalarFunction& entry : scalarFunctions())
      for (std::size_t from = 0; from < entry.derivative.size();) {
        const std::size_t end = std::min(entry.derivative.find(';', from), entry.derivative.size());
        map[entry.name].push_back(expression(entry.derivative.substr(from, end - from)));
        from = end + 1;
      }
    return map;
  }();
  return table.at(function.name);
}

static bool isSelect(const ExpressionPtr& e) {
  return e->kind == Kind::call && e->symbol == "select";
}

/// Whether some branch of `e` is 0.
static bool hasZeroBranch(const ExpressionPtr& e) {
  return isNumber(e, 0) || (isSelect(e) && (hasZeroBranch(e->arguments[1]) || hasZeroBranch(e->arguments[2])));
}

/// `change` of a derivative, or of each of its branches where one is 0: that stays 0.
static ExpressionPtr changed(const ExpressionPtr& e, const std::function<ExpressionPtr(const ExpressionPtr&)>& change) {
  if (isNumber(e, 0)) return e;
  if (!hasZeroBranch(e)) return change(e);
  return make(Kind::call, "select",
              {e->arguments[0], changed(e->arguments[1], change), changed(e->arguments[2], change)});
}

static ExpressionPtr product(const ExpressionPtr& a, const ExpressionPtr& b) {
  return simplifyRoot(binary("*", a, b));
}

ExpressionPtr pdc::chained(const ExpressionPtr& outer, const ExpressionPtr& inner) {
  if (!hasZeroBranch(inner)) return changed(outer, [&](const ExpressionPtr& part) { return product(part, inner); });
  return changed(inner, [&](const ExpressionPtr& part) {
    return changed(outer, [&](const ExpressionPtr& other) { return product(other, part); });
  });
}

static ExpressionPtr rawDerivative(const ExpressionPtr& e, const std::string& name) {
  const auto& arguments = e->arguments;
  auto d = [&](std::size_t i) { return rawDerivative(arguments[i], name); };
  auto over = [](const ExpressionPtr& a, const ExpressionPtr& b) {
    return changed(a, [&](const ExpressionPtr& part) { return simplifyRoot(binary("/", part, b)); });
  };
  auto sum = [](ExpressionPtr a, ExpressionPtr b) { return simplifyRoot(binary("+", std::move(a), std::move(b))); };
  switch (e->kind) {
  case Kind::number: return numberExpression(0);
  case Kind::name: return numberExpression(e->symbol == name ? 1 : 0);
  case Kind::unary: return e->symbol == "neg" ? simplifyRoot(negated(d(0))) : numberExpression(0);
  case Kind::binary:
    if (e->symbol == "+") return sum(d(0), d(1));
    if (e->symbol == "-") return simplifyRoot(binary("-", d(0), d(1)));
    if (e->symbol == "*")
      return sum(changed(d(0), [&](const ExpressionPtr& part) { return product(part, arguments[1]); }),
                 changed(d(1), [&](const ExpressionPtr& part) { return product(arguments[0], part); }));
    if (e->symbol == "/") {
      // (a / b)' = a' / b - a / b / b · b', where b² might be infinite or 0
      const ExpressionPtr twice = binary("/", e, arguments[1]);
      return simplifyRoot(binary("-", over(d(0), arguments[1]), chained(twice, d(1))));
    }
    return numberExpression(0); // comparisons and logic are constant between kinks
  case Kind::call: break;
  }
  if (e->symbol == "select") return simplifyRoot(make(Kind::call, "select", {arguments[0], d(1), d(2)}));
  ExpressionPtr total = numberExpression(0);
  const std::vector<ExpressionPtr>& partials = partialsOf(*findScalarFunction(e->symbol));
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    ExpressionPtr inner = d(i);
    if (isNumber(inner, 0)) continue; // not 0 · partial, which may not be finite
    ExpressionPtr partial = substitute(partials[i], [&](const std::string& argument) {
      return arguments[static_cast<std::size_t>(argument[0] - 'a')];
    });
    total = sum(std::move(total), chained(simplify(partial), inner));
  }
  return total;
}

ExpressionPtr pdc::derivative(const ExpressionPtr& e, const std::string& name) {
  return simplify(rawDerivative(e, name));
}

// --- evaluation ---

template <class T>
T pdc::evaluate(const Expression& e, const std::function<T(const std::string&)>& lookup) {
  if (e.kind == Kind::number) return numberAs<T>(e.number);
  if (e.kind == Kind::name) return lookup(e.symbol);
  T arguments[3] = {};
  for (std::size_t i = 0; i < e.arguments.size(); ++i) arguments[i] = evaluate<T>(*e.arguments[i], lookup);
  return apply<T>(codeOf(e), arguments);
}

template <class T>
pdc::ExpressionProgram<T>::ExpressionProgram(const Expression& e, const std::vector<std::string>& names) {
  compile(e, names);
  stack_.resize(instructions_.size() + 2);
}

template <class T>
void pdc::ExpressionProgram<T>::compile(const Expression& e, const std::vector<std::string>& names) {
  for (const ExpressionPtr& argument : e.arguments) compile(*argument, names);
  Instruction instruction{.code = static_cast<int>(codeOf(e)),
                          .number = numberAs<T>(e.number),
                          .arguments = static_cast<int>(e.arguments.size())};
  if (e.kind == Kind::name) {
    auto position = std::find(names.begin(), names.end(), e.symbol);
    assert(position != names.end() && "a name that has no value");
    instruction.name = static_cast<int>(position - names.begin());
  }
  instructions_.push_back(instruction);
}

template <class T>
T pdc::ExpressionProgram<T>::operator()(const T* values) const {
  T* top = stack_.data(); // one past the last value
  for (const Instruction& instruction : instructions_) {
    const auto code = static_cast<ScalarCode>(instruction.code);
    if (code == ScalarCode::number) {
      *top++ = instruction.number;
    } else if (code == ScalarCode::name) {
      *top++ = values[instruction.name];
    } else {
      top -= instruction.arguments;
      *top = apply<T>(code, top);
      ++top;
    }
  }
  return stack_[0];
}

template float pdc::evaluate(const Expression&, const std::function<float(const std::string&)>&);
template double pdc::evaluate(const Expression&, const std::function<double(const std::string&)>&);
template std::int64_t pdc::evaluate(const Expression&, const std::function<std::int64_t(const std::string&)>&);
template std::uint64_t pdc::evaluate(const Expression&, const std::function<std::uint64_t(const std::string&)>&);
template class pdc::ExpressionProgram<float>;
template class pdc::ExpressionProgram<double>;
template class pdc::ExpressionProgram<std::int64_t>;
template class pdc::ExpressionProgram<std::uint64_t>;
