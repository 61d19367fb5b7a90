// Loops for elementwise operations. Every element is computed in float, as the interpreter's f32 does; in double when
// an operand or a result is f64; in std::int64_t when neither is a float, in std::uint64_t when an operand is then u64.
#include "pdc/CodeGen/FusedKernel.h"

#include "pdc/IR/Elementwise.h"
#include "pdc/IR/Layouts.h"
#include "pdcrt/SharedLoop.h"

#include <algorithm>
#include <map>
#include <sstream>

using namespace pdc;

const char* pdc::cppTypeOf(ElementType element) {
  switch (element) {
  case ElementType::f64: return "double";
  case ElementType::f32: return "float";
  case ElementType::f16: return "pdcrt::float16";
  case ElementType::bf16: return "pdcrt::bfloat16";
  case ElementType::boolean:
  case ElementType::u8: break;
  case ElementType::i64: return "std::int64_t";
  case ElementType::i32: return "std::int32_t";
  case ElementType::i16: return "std::int16_t";
  case ElementType::i8: return "std::int8_t";
  case ElementType::u64: return "std::uint64_t";
  case ElementType::u32: return "std::uint32_t";
  case ElementType::u16: return "std::uint16_t";
  }
  return "std::uint8_t";
}

namespace {

/// One loop of the nest: how far it goes, and how many elements each operand moves per step.
struct Axis {
  std::int64_t size = 1;
  std::vector<std::int64_t> strides;
};

/// The loops over `shape` for operands of the given shapes (broadcast, aligned at the last axis), neighbours merged.
std::vector<Axis> loopNest(const Shape& shape, const std::vector<Shape>& operands) {
  const std::size_t rank = shape.size();
  std::vector<Axis> axes(rank);
  for (std::size_t d = 0; d < rank; ++d) axes[d] = {shape[d], std::vector<std::int64_t>(operands.size(), 0)};
  for (std::size_t o = 0; o < operands.size(); ++o) {
    std::int64_t stride = 1;
    for (std::size_t d = operands[o].size(); d-- > 0;) {
      if (operands[o][d] != 1) axes[d + rank - operands[o].size()].strides[o] = stride;
      stride *= operands[o][d];
    }
  }
  std::vector<Axis> merged;
  for (const Axis& axis : axes) {
    if (axis.size == 1) continue;
    const bool goesOn =
        !merged.empty() && std::equal(axis.strides.begin(), axis.strides.end(), merged.back().strides.begin(),
                                      [&](auto inner, auto outer) { return outer == inner * axis.size; });
    if (goesOn)
      merged.back() = {merged.back().size * axis.size, axis.strides};
    else
      merged.push_back(axis);
  }
  return merged;
}

/// "i0 * 3136 + i1" for the loops along which an operand moves; "0" for a scalar.
std::string indexText(const std::vector<std::int64_t>& strides) {
  std::string text;
  for (std::size_t d = 0; d < strides.size(); ++d) {
    if (strides[d] == 0) continue;
    text += text.empty() ? "" : " + ";
    text += strides.size() == 1 ? "i" : "i" + std::to_string(d);
    if (strides[d] != 1) text += " * " + std::to_string(strides[d]);
  }
  return text.empty() ? "0" : text;
}

/// `e` with its numbers as names ("#3"), so that they can be printed as integers.
ExpressionPtr withNamedNumbers(const ExpressionPtr& e) {
  Expression copy = *e;
  if (copy.kind == Expression::Kind::number) {
    std::ostringstream text;
    text << '#' << static_cast<std::int64_t>(copy.number);
    copy.kind = Expression::Kind::name;
    copy.symbol = text.str();
  }
  for (ExpressionPtr& argument : copy.arguments) argument = withNamedNumbers(argument);
  return std::make_shared<const Expression>(std::move(copy));
}

bool isCondition(const Expression& e) {
  static const std::string operators[] = {"<", "<=", ">", ">=", "==", "!=", "&&", "||", "!"};
  return (e.kind == Expression::Kind::binary || e.kind == Expression::Kind::unary) &&
         std::find(std::begin(operators), std::end(operators), e.symbol) != std::end(operators);
}

/// Writes the loop nest of one function.
class LoopWriter {
public:
  LoopWriter(std::vector<const Type*> operands, std::vector<const Type*> results)
      : operands_(std::move(operands)), results_(std::move(results)) {
    auto isFloatType = [](const Type* type) { return isFloat(type->element); };
    const bool integers = std::none_of(operands_.begin(), operands_.end(), isFloatType) &&
                          std::none_of(results_.begin(), results_.end(), isFloatType);
    const auto any = [](const std::vector<const Type*>& types, ElementType element) {
      return std::any_of(types.begin(), types.end(), [&](const Type* type) { return type->element == element; });
    };
    if (integers)
      computed_ = any(operands_, ElementType::u64) ? ElementType::u64 : ElementType::i64;
    else if (any(operands_, ElementType::f64) || any(results_, ElementType::f64))
      computed_ = ElementType::f64;
    std::vector<Shape> shapes;
    for (const Type* type : operands_) shapes.push_back(memoryShape(*type, *results_[0]));
    shapes.push_back(memoryShape(*results_[0]));
    axes_ = loopNest(shapes.back(), shapes);
  }

  /// The whole definition.
  std::string function(const std::vector<ExpressionPtr>& expressions, Target target, int threads) const {
    if (target == Target::cpu)
      return "void $name$(pdcrt::Stream&, " + parameters() + ") {\n" +
             (shared(threads) ? sharedLoops(expressions) : loops(expressions)) + "}\n";
    return "__global__ void $name$_kernel(" + parameters() + ") {\n" + threadLoop(expressions) +
           "}\nvoid $name$(pdcrt::Stream& q, " + parameters() +
           ") {\n  pdcrt::launchLoop(q, \"$name$\", $name$_kernel, " + std::to_string(elements() / width()) +
           arguments() + ");\n}\n";
  }

  /// "View<const float> a0, View<float> y"
  std::string parameters() const {
    std::string text;
    for (std::size_t o = 0; o < operands_.size(); ++o)
      text += std::string("View<const ") + cppTypeOf(operands_[o]->element) + "> a" + std::to_string(o) + ", ";
    for (std::size_t r = 0; r < results_.size(); ++r)
      text += std::string(r ? ", " : "") + "View<" + cppTypeOf(results_[r]->element) + "> " + resultName(r);
    return text;
  }

  /// `begin` and `end`: of the outermost loop, where not all of it.
  std::string loops(const std::vector<ExpressionPtr>& expressions, std::string indent = "  ",
                    const std::string& begin = "0", const std::string& end = "") const {
    std::string text;
    for (std::size_t d = 0; d < axes_.size(); ++d) {
      const std::string i = axes_.size() == 1 ? "i" : "i" + std::to_string(d);
      text += indent + "for (std::int64_t " + i + " = " + (d == 0 ? begin : "0") + "; " + i + " < " +
              (d == 0 && !end.empty() ? end : std::to_string(axes_[d].size)) + "; ++" + i + ")";
      indent += "  ";
      const bool braces = d + 1 == axes_.size() && results_.size() > 1;
      text += braces ? " {\n" : "\n";
    }
    for (std::size_t r = 0; r < results_.size(); ++r)
      text +=
          indent + resultName(r) + "[" + index(operands_.size()) + "] = " + value(expressions[r], *results_[r]) + ";\n";
    if (!axes_.empty() && results_.size() > 1) text += indent.substr(2) + "}\n";
    return text;
  }

  std::string resultName(std::size_t r) const { return results_.size() == 1 ? "y" : "y" + std::to_string(r); }

private:
  /// Whether the loops are worth sharing among so many threads.
  bool shared(int threads) const { return threads > 1 && !axes_.empty() && elements() >= 2 * pdcrt::leastShared; }

  /// The loops, the outermost one in ranges.
  std::string sharedLoops(const std::vector<ExpressionPtr>& expressions) const {
    return "  pdcrt::shareLoop(" + std::to_string(axes_[0].size) + ", " + std::to_string(elements()) +
           ", [=](std::int64_t begin, std::int64_t end) {\n" + loops(expressions, "    ", "begin", "end") + "  });\n";
  }

  /// ", a0, y"
  std::string arguments() const {
    std::string text;
    for (std::size_t o = 0; o < operands_.size(); ++o) text += ", a" + std::to_string(o);
    for (std::size_t r = 0; r < results_.size(); ++r) text += ", " + resultName(r);
    return text;
  }

  std::int64_t elements() const {
    std::int64_t product = 1;
    for (const Axis& axis : axes_) product *= axis.size;
    return product;
  }

  /// How many neighbours a thread of CUDA takes at a time: 16 bytes of 16 bits or of floats, where every operand either
  /// goes on along the innermost axis from a multiple of that, or stands still; else one.
  std::int64_t width() const {
    const auto isNarrow = [](const Type* type) { return type->bytes() <= 2 * type->elements(); };
    if (std::all_of(operands_.begin(), operands_.end(), isNarrow) &&
        std::all_of(results_.begin(), results_.end(), isNarrow) && inPacks(8))
      return 8;
    return inPacks(4) ? 4 : 1;
  }
  bool inPacks(std::int64_t width) const {
    if (axes_.empty() || axes_.back().size % width != 0) return false;
    for (std::size_t o = 0; o < operands_.size(); ++o) {
      if (axes_.back().strides[o] > 1) return false;
      for (std::size_t d = 0; axes_.back().strides[o] == 1 && d + 1 < axes_.size(); ++d)
        if (axes_[d].strides[o] % width != 0) return false;
    }
    return true;
  }

  /// The loop of one thread over all elements that are its own.
  std::string threadLoop(const std::vector<ExpressionPtr>& expressions) const {
    const bool packs = width() > 1;
    const std::string type = elements() < std::int64_t{1} << 30 ? "int" : "std::int64_t";
    const std::string pack = std::to_string(width()), times = packs ? pack + " * " : "";
    std::string text = "  for (" + type + " i = " + times + "pdcrt::thread<" + type + ">(); i < " +
                       std::to_string(elements()) + "; i += " + times + "pdcrt::threads<" + type + ">()) {\n";
    text += indices(type);
    for (std::size_t o = 0; packs && o < operands_.size(); ++o) {
      const std::string name = std::to_string(o),
                        moves = "pdcrt::loadPack<" + pack + ">(a" + name + ", " + index(o) + ")";
      text += "    const auto p" + name + " = " +
              (axes_.back().strides[o] == 1 ? moves : "a" + name + "[" + index(o) + "]") + ";\n";
    }
    for (std::size_t r = 0; packs && r < results_.size(); ++r)
      text += std::string("    pdcrt::Pack<") + cppTypeOf(results_[r]->element) + ", " + pack + "> r" +
              std::to_string(r) + ";\n";
    if (packs) text += "    for (int j = 0; j < " + pack + "; ++j) {\n";
    for (std::size_t r = 0; r < results_.size(); ++r)
      text += packs ? "      r" + std::to_string(r) + "[j] = " + value(expressions[r], *results_[r], true) + ";\n"
                    : "    " + resultName(r) + "[i] = " + value(expressions[r], *results_[r]) + ";\n";
    if (packs) text += "    }\n";
    for (std::size_t r = 0; packs && r < results_.size(); ++r)
      text += "    pdcrt::storePack(" + resultName(r) + ", i, r" + std::to_string(r) + ");\n";
    return text + "  }\n";
  }

  /// The index along each axis, of element i, where there are several axes.
  std::string indices(const std::string& type) const {
    std::string text;
    std::int64_t inner = elements();
    for (std::size_t d = 0; axes_.size() > 1 && d < axes_.size(); ++d) {
      inner /= axes_[d].size;
      text += "    const " + type + " i" + std::to_string(d) + " = i" +
              (inner > 1 ? " / " + std::to_string(inner) : "") + (d > 0 ? " % " + std::to_string(axes_[d].size) : "") +
              ";\n";
    }
    return text;
  }

  std::string index(std::size_t operand) const {
    std::vector<std::int64_t> strides;
    for (const Axis& axis : axes_) strides.push_back(axis.strides[operand]);
    return indexText(strides);
  }

  /// `packed`: operands that go on along the innermost axis are in packs, at j.
  std::string value(const ExpressionPtr& whole, const Type& type, bool packed = false) const {
    const ExpressionPtr& expression = conversionOf(*whole) == type.element ? whole->arguments[0] : whole;
    auto print = [&](const std::string& name) -> std::string {
      if (name[0] == '#') return std::string(cppTypeOf(computed_)) + "(" + name.substr(1) + ")";
      const std::size_t operand = static_cast<std::size_t>(std::stoul(name.substr(1)));
      std::string element = name + "[" + index(operand) + "]";
      if (packed) element = "p" + name.substr(1) + (axes_.back().strides[operand] == 1 ? "[j]" : "");
      if (operands_[operand]->element == computed_) return element;
      return std::string(cppTypeOf(computed_)) + "(" + element + ")";
    };
    std::string text =
        toCpp(isFloat(computed_) ? *expression : *withNamedNumbers(expression), print, computed_ == ElementType::f64);
    if (type.element == computed_ && isFloat(computed_) && !isCondition(*expression)) return text;
    if (type.element == ElementType::boolean) return isCondition(*expression) ? text : "(" + text + ") != 0";
    return std::string(cppTypeOf(type.element)) + "(" + text + ")";
  }

  std::vector<const Type*> operands_, results_;
  std::vector<Axis> axes_;
  ElementType computed_ = ElementType::f32; ///< in which every element is computed
};

} // namespace

Expected<FusedKernel> pdc::emitFusedKernel(const Operation& operation, Target target, int threads, Diagnostics& diags) {
  std::vector<const Type*> operands, results;
  std::map<std::string, ExpressionPtr> parameterNames;
  for (std::size_t i = 0; i < operation.operands().size(); ++i) {
    if (!operation.operand(i))
      return diags.error(operation.location).exit(ExitCode::internal)
             << "elementwise '" << operation.def().name << "' lacks operand " << i;
    operands.push_back(&operation.operand(i)->type());
    parameterNames[operandNameInExpressions(operation.def(), i)] = expression("a" + std::to_string(i));
  }
  std::vector<ExpressionPtr> expressions;
  const std::vector<ExpressionPtr> all = expressionsOf(operation);
  for (std::size_t r = 0; r < operation.results().size(); ++r) {
    if (!operation.result(r)) continue;
    results.push_back(&operation.result(r)->type());
    expressions.push_back(substitute(all[r], [&](const std::string& name) -> ExpressionPtr {
      auto it = parameterNames.find(name);
      return it == parameterNames.end() ? nullptr : it->second;
    }));
  }
  const LoopWriter writer(operands, results);
  FusedKernel kernel;
  for (std::size_t r = 0; r < results.size(); ++r)
    kernel.text += "// " + writer.resultName(r) + " = " + toString(*expressions[r]) + "\n";
  kernel.text += writer.function(expressions, target, threads);
  kernel.hint = operation.def().name;
  return kernel;
}

FusedKernel pdc::emitCopyKernel(const Type& type, Target target, int threads) {
  const LoopWriter writer({&type}, {&type});
  return {"// y = a0\n" + writer.function({expression("a0")}, target, threads), "copy"};
}
