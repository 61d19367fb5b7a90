#include "Shared/Define.h"

#include <algorithm>
#include <utility>

namespace pdc::ops {

AttributeDef integer(std::string name, std::optional<std::int64_t> standard, std::string summary) {
  AttributeDef def{std::move(name), standard.value_or(1), std::nullopt, std::move(summary)};
  if (standard) def.defaultValue = *standard;
  return def;
}

AttributeDef number(std::string name, std::optional<double> standard, std::string summary) {
  AttributeDef def{std::move(name), standard.value_or(0.5), std::nullopt, std::move(summary)};
  if (standard) def.defaultValue = *standard;
  return def;
}

AttributeDef boolean(std::string name, bool standard, std::string summary) {
  return {std::move(name), standard, standard, std::move(summary)};
}

AttributeDef integers(std::string name, std::optional<std::vector<std::int64_t>> standard, std::string summary) {
  AttributeDef def{std::move(name), standard.value_or(std::vector<std::int64_t>{1, 2}), std::nullopt,
                   std::move(summary)};
  if (standard) def.defaultValue = *standard;
  return def;
}

AttributeDef lowResult() {
  return {"result", std::string("bf16"), std::string(), "bf16 or f16, where Y is in that low precision"};
}

Types withLowResult(const InferContext& c, std::vector<Type> types) {
  const auto& name = c.attributes.get<std::string>("result");
  if (name.empty()) return types;
  if (!elementTypeFromName(name, types[0].element) || !isLowPrecision(types[0].element))
    return c.error() << "result = '" << name << "' is no low precision, which are bf16 and f16";
  return types;
}

InferFn sameTypeAs(std::size_t operand, std::size_t results) {
  return [=](const InferContext& c) -> Types { return std::vector<Type>(results, c.operand(operand)); };
}

InferFn sameFloatTypes(std::size_t results) {
  return [=](const InferContext& c) -> Types {
    const Type& first = c.operand(0);
    if (!isFloat(first.element))
      return c.error() << "operands must have a float type, operand 0 has " << toString(first);
    for (std::size_t i = 1; i < c.operands.size(); ++i)
      if (has(c, i) && (c.operand(i).element != first.element || c.operand(i).shape != first.shape))
        return c.error() << "operands must have one type, operand 0 has " << toString(first) << " and operand " << i
                         << " has " << toString(c.operand(i));
    return std::vector<Type>(results, first);
  };
}

std::optional<Shape> broadcast(const Shape& a, const Shape& b) {
  Shape result(std::max(a.size(), b.size()), 1);
  for (std::size_t back = 1; back <= result.size(); ++back) {
    const std::int64_t x = back <= a.size() ? a[a.size() - back] : 1;
    const std::int64_t y = back <= b.size() ? b[b.size() - back] : 1;
    if (x != y && x != 1 && y != 1) return std::nullopt;
    result[result.size() - back] = x == 1 ? y : x;
  }
  return result;
}

Status requireRank(const InferContext& c, const char* op, std::size_t i, int least, int most) {
  const int rank = c.operand(i).rank();
  if (rank >= least && rank <= most) return success;
  if (least == most)
    return c.error() << "'" << op << "' op needs operand " << i << " of rank " << least << ", it is "
                     << toString(c.operand(i));
  return c.error() << "'" << op << "' op needs operand " << i << " of rank " << least << " to " << most << ", it is "
                   << toString(c.operand(i));
}

Status requireFloat(const InferContext& c, const char* op, std::size_t i, int least, int most) {
  if (!isFloat(c.operand(i).element))
    return c.error() << "'" << op << "' op needs a float operand " << i << ", it is " << toString(c.operand(i));
  if (c.operand(i).elements() == 0)
    return c.error() << "'" << op << "' op has an operand " << i << " without elements, " << toString(c.operand(i));
  return requireRank(c, op, i, least, most);
}

Status requireType(const InferContext& c, const char* op, std::size_t i, const Type& type, const char* what) {
  if (c.operand(i).element == type.element && c.operand(i).shape == type.shape) return success;
  return c.error().help("onnx.checker.check_model(MODEL, full_check=True) tells whether the file is right; another "
                        "setting of its exporter may write this layer right")
         << "'" << op << "' op has operand " << i << " of type " << toString(c.operand(i)) << ", " << what
         << " asks for " << toString(type);
}

Status requireAxis(const InferContext& c, const char* op, std::int64_t axis, int rank) {
  if (axis >= 0 && axis < rank) return success;
  return c.error() << "'" << op << "' op has axis " << axis << ", the operand has rank " << rank;
}

Status requireAxes(const InferContext& c, const char* op, const std::vector<std::int64_t>& axes, int rank) {
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (!requireAxis(c, op, axes[i], rank)) return failure;
    if (i > 0 && axes[i] <= axes[i - 1])
      return c.error() << "'" << op << "' op needs ascending axes, " << axes[i] << " comes after " << axes[i - 1];
  }
  return success;
}

pdcrt::Shape toRuntime(const Shape& shape) {
  assert(shape.size() <= pdcrt::maxRank);
  pdcrt::Shape result;
  result.rank = static_cast<int>(shape.size());
  std::copy(shape.begin(), shape.end(), result.dims);
  return result;
}

pdcrt::Axes axesOf(const std::vector<std::int64_t>& values) {
  assert(values.size() <= pdcrt::maxRank);
  pdcrt::Axes axes;
  for (std::int64_t value : values) axes.push_back(value);
  return axes;
}

std::int64_t product(const Shape& shape, std::size_t begin, std::size_t end) {
  std::int64_t result = 1;
  for (std::size_t i = begin; i < end; ++i) result *= shape[i];
  return result;
}

/// An operand or result with its channels in blocks or last; null: there is none.
static const Value* inBlocks(const Operation& op) {
  for (const auto* list : {&op.operands(), &op.results()})
    for (const Value* value : *list)
      if (value && pdc::lanesOf(value->type()) > 1) return value;
  return nullptr;
}

bool inChannelBlocks(const Operation& op) {
  return inBlocks(op) != nullptr;
}

std::int64_t lanesOf(const Operation& op) {
  const Value* value = inBlocks(op);
  return value ? pdc::lanesOf(value->type()) : 1;
}

Shape blockedShape(const Operation& op, const Shape& shape) {
  const Value* value = inBlocks(op);
  return value ? memoryShape({ElementType::f32, shape, value->type().layout}) : shape;
}

ChannelBlocks everyPlane(const Operation& op) {
  ChannelBlocks blocks;
  for (const auto& list : {op.operands(), op.results()})
    for (const Value* value : list)
      if (value && value->type().rank() == 4) blocks.values.push_back(value);
  return blocks;
}

double bytesMoved(const Operation& op) {
  double bytes = 0;
  for (const Value* operand : op.operands()) bytes += operand ? static_cast<double>(operand->type().bytes()) : 0;
  for (const Value* result : op.results()) bytes += result ? static_cast<double>(result->type().bytes()) : 0;
  return bytes;
}

CostFn perElement(double flops) {
  return [flops](const Operation& op) {
    return Cost{.flops = flops * static_cast<double>(operandType(op, 0).elements()), .bytes = bytesMoved(op)};
  };
}

Cost moveCost(const Operation& op) {
  double bytes = 0;
  for (const Value* result : op.results()) bytes += result ? 2 * static_cast<double>(result->type().bytes()) : 0;
  return {.flops = 0, .bytes = bytes};
}

std::string example(const std::string& inputs, const std::string& body) {
  std::string text = "(" + inputs + ") {\n  ";
  for (char c : body) text += c == '\n' ? "\n  " : std::string(1, c);
  return text + "\n}";
}

ReferenceFns moving(std::function<void(ReferenceContext&)> move) {
  return {move, std::move(move)};
}

std::vector<std::int64_t> stridesOf(const Shape& shape) {
  std::vector<std::int64_t> strides(shape.size(), 1);
  for (std::size_t axis = shape.size(); axis-- > 1;) strides[axis - 1] = strides[axis] * shape[axis];
  return strides;
}

std::int64_t dot(const std::vector<std::int64_t>& index, const std::vector<std::int64_t>& strides) {
  std::int64_t position = 0;
  for (std::size_t axis = 0; axis < index.size(); ++axis) position += index[axis] * strides[axis];
  return position;
}

} // namespace pdc::ops
