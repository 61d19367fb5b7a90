// Integers that stand for floats: ONNX's quantized operators, made of the others. Products are computed in 32-bit
// integers, exactly. What integers are made of has no gradient, but QuantizeLinear and DequantizeLinear in a row are
// the fake quantisation of quantisation-aware training: the gradient passes straight through, as in PyTorch.
#include "Convert/Indices.h"
#include "Raise/Match.h"
#include "Shared/Define.h"
#include "Shared/Window.h"

#include <limits>

namespace pdc::ops::Quantize {

namespace {

Value* cast(OnnxReader& n, Value* x, ElementType to) {
  if (!x || x->type().element == to) return x;
  return n.value("cast", {x}, {{"to", std::string(nameOf(to))}});
}

/// Reports unless `element` is one of the two that are quantized to.
Status requireByte(OnnxReader& n, ElementType element) {
  if (element == ElementType::u8 || element == ElementType::i8) return success;
  return n.unsupported() << "makes or takes integers of " << nameOf(element) << ", pdc quantizes to u8 and i8";
}

/// The least and the largest number of a type that is quantized to; nothing, with an error reported, for others.
std::optional<std::pair<double, double>> limitsOf(OnnxReader& n, ElementType element) {
  const auto limits = []<class T>(T) {
    return std::pair<double, double>(std::numeric_limits<T>::min(), std::numeric_limits<T>::max());
  };
  switch (element) {
  case ElementType::u8: return limits(std::uint8_t());
  case ElementType::i8: return limits(std::int8_t());
  case ElementType::u16: return limits(std::uint16_t());
  case ElementType::i16: return limits(std::int16_t());
  default:
    static_cast<void>(n.unsupported() << "makes integers of " << nameOf(element)
                                      << ", pdc quantizes to u8, i8, u16 and i16");
    return std::nullopt;
  }
}

/// Where a node's scales and zero points are: one per element of an axis, or one per `block` elements.
struct Granularity {
  std::int64_t axis = 0, block = 0;
};

/// A scale or zero point of `x`, in a shape that broadcasts: one for all, one per element of the axis, or one per block
/// of it.
Value* alongAxis(OnnxReader& n, Value* parameter, const Shape& x, const Granularity& where) {
  if (!parameter || (parameter->type().elements() == 1 && where.block == 0)) return n.reshape(parameter, {});
  const auto axis = static_cast<std::size_t>(where.axis);
  Shape shape(x.size(), 1);
  if (where.block == 0) {
    shape[axis] = x[axis];
    if (parameter->type().elements() == shape[axis] && parameter->type().rank() == 1)
      return n.reshape(parameter, shape);
  } else {
    const std::int64_t blocks = (x[axis] + where.block - 1) / where.block;
    shape = x;
    shape[axis] = blocks;
    if (parameter->type().shape == shape) {
      Shape repeated = shape;
      repeated.insert(repeated.begin() + where.axis + 1, 1);
      Value* value = n.reshape(parameter, repeated);
      repeated[axis + 1] = where.block;
      if (value) value = n.value("broadcast", {value}, {{"shape", repeated}});
      shape[axis] = blocks * where.block;
      value = n.reshape(value, shape);
      if (!value || shape == x) return value;
      const Shape starts(x.size(), 0), steps(x.size(), 1);
      return n.value("slice", {value}, {{"starts", starts}, {"sizes", x}, {"steps", steps}});
    }
  }
  const std::string blocks = where.block > 0 ? " in blocks of " + std::to_string(where.block) : "";
  static_cast<void>(n.unsupported() << "has a scale or zero point of " << toString(parameter->type()) << " for axis "
                                    << where.axis << " of " << toString(x) << blocks);
  return nullptr;
}

/// round(x / scale) + zero, saturated.
Value* quantize(OnnxReader& n, Value* x, Value* scale, Value* zero, ElementType to) {
  const auto limits = limitsOf(n, to);
  zero = cast(n, zero, ElementType::f32);
  if (!limits || !x || !scale || !zero) return nullptr;
  return cast(n, n.value("quantize", {x, scale, zero}, {{"low", limits->first}, {"high", limits->second}}), to);
}

/// Reads `axis`, `block_size`, and what else opset 21 and later add, which changes nothing at its default.
std::optional<Granularity> granularityOf(OnnxReader& n) {
  n.ignore("saturate"); // about 8-bit floats
  const int rank = n.type(0).rank();
  const std::int64_t stated = n.integer("axis", 1), block = n.integer("block_size", 0);
  if (const std::int64_t precision = n.integer("precision", 0); precision > 1) {
    static_cast<void>(n.unsupported() << "computes with precision " << precision << ", pdc with f32");
    return std::nullopt;
  }
  if (block < 0) {
    static_cast<void>(n.error() << "has block_size " << block);
    return std::nullopt;
  }
  if (rank < 2 && stated == 1 && block == 0) return Granularity{}; // the default, where it means nothing
  const std::optional<std::int64_t> axis = n.axis(stated, rank);
  return axis ? std::optional(Granularity{*axis, block}) : std::nullopt;
}

Value* convertQuantize(OnnxReader& n) {
  const auto where = granularityOf(n);
  const std::int64_t number = n.integer("output_dtype", 0);
  const std::optional<ElementType> stated = number ? elementTypeFromOnnx(number) : std::nullopt;
  const ElementType to = n.input(2) ? n.type(2).element : stated.value_or(number ? ElementType::f64 : ElementType::u8);
  if (!where || !limitsOf(n, to)) return nullptr;
  if (n.type(0).element != ElementType::f32 || n.type(1).element != ElementType::f32) {
    static_cast<void>(n.unsupported() << "quantizes " << toString(n.type(0)) << " by " << toString(n.type(1))
                                      << ", pdc takes f32");
    return nullptr;
  }
  const Shape& x = n.type(0).shape;
  Value* zero = n.input(2) ? alongAxis(n, n.input(2), x, *where) : n.b.constant(0, to);
  return quantize(n, n.input(0), alongAxis(n, n.input(1), x, *where), zero, to);
}

/// What `quantize` makes integers of, and how.
struct Quantized {
  const Operation* operation;
  double low, high;
};

/// `integers` made by `quantize`, and perhaps limited further, as exporters say that fewer bits are used.
std::optional<Quantized> quantizedBy(const Value* integers) {
  const Operation* definer = integers->definer();
  if (definedBy(integers, "cast")) {
    const Operation* operation = definedBy(definer->operand(0), "quantize");
    if (!operation) return std::nullopt;
    return Quantized{operation, operation->attributes.getFloat("low"), operation->attributes.getFloat("high")};
  }
  const bool atLeast = definedBy(integers, "maximum"), atMost = definedBy(integers, "minimum");
  if (!atLeast && !atMost) return std::nullopt;
  for (const auto& [limited, limit] : bothOrders(*definer)) {
    const std::optional<double> number = numberOf(limit);
    std::optional<Quantized> inner = number ? quantizedBy(limited) : std::nullopt;
    if (!inner || limited->type() != integers->type()) continue;
    if (atLeast) inner->low = std::max(inner->low, *number);
    if (atMost) inner->high = std::min(inner->high, *number);
    return inner->low <= inner->high ? inner : std::nullopt;
  }
  return std::nullopt;
}

Attributes limitsAsAttributes(const Quantized& quantized) {
  return {{"low", quantized.low}, {"high", quantized.high}};
}

/// The numbers of `integers` as floats, with the gradient of what was rounded: also where the integers are moved in
/// between. Null where they are not made by `quantize`.
Value* inFloats(OnnxReader& n, const Value* integers) {
  if (const auto quantized = quantizedBy(integers))
    return n.value("quantize", quantized->operation->operands(), limitsAsAttributes(*quantized));
  const Operation* moving = integers->definer();
  if (!moving || (!moving->def().facts.moves && moving->def().kind != OpKind::view) || moving->results().size() != 1)
    return nullptr;
  std::vector<Value*> operands = moving->operands();
  bool any = false;
  for (Value*& operand : operands) {
    if (!operand || operand->type().element != integers->type().element) continue;
    Value* floats = inFloats(n, operand);
    any |= floats != nullptr;
    if (!floats && Builder::constantValue(operand)) floats = cast(n, operand, ElementType::f32);
    if (!(operand = floats)) return nullptr;
  }
  return any ? n.value(moving->def().name, operands, moving->attributes) : nullptr;
}

/// Whether two values are the same because they are computed in the same way.
bool areSame(const Value* a, const Value* b) {
  if (a == b) return true;
  const Operation *first = a ? a->definer() : nullptr, *second = b ? b->definer() : nullptr;
  if (!first || !second || &first->def() != &second->def() || first->def().facts.random ||
      first->results().size() != 1 || !(first->attributes == second->attributes) ||
      first->operands().size() != second->operands().size())
    return false;
  for (std::size_t i = 0; i < first->operands().size(); ++i)
    if (!areSame(first->operand(i), second->operand(i))) return false;
  return true;
}

Value* convertDequantize(OnnxReader& n) {
  const auto where = granularityOf(n);
  const std::int64_t number = n.integer("output_dtype", 0);
  const ElementType to = n.type(1).element;
  if (!where) return nullptr;
  if (to != ElementType::f32 || (number != 0 && number != 1)) {
    static_cast<void>(n.unsupported() << "makes other floats than f32");
    return nullptr;
  }
  const Shape& x = n.type(0).shape;
  Value* scale = alongAxis(n, n.input(1), x, *where);
  Value* zero = cast(n, n.input(2) ? alongAxis(n, n.input(2), x, *where) : n.b.constant(0, n.type(0).element), to);
  if (!scale || !zero) return nullptr;
  if (const auto quantized = quantizedBy(n.input(0));
      quantized && areSame(quantized->operation->operand(1), scale) && areSame(quantized->operation->operand(2), zero))
    return n.value("fake_quantize", quantized->operation->operands(), limitsAsAttributes(*quantized));
  Value* integers = inFloats(n, n.input(0));
  return compute(n, {integers ? integers : cast(n, n.input(0), to), scale, zero}, "(a0 - a2) * a1");
}

/// The elementwise op `quantize`, or `fake_quantize`, which is the same and the way back. Their gradients are those of
/// PyTorch's fake quantisation, with a scale that learns and without: rounding counts as the identity, and outside the
/// limits X has no influence. Finite differences know nothing of that, so that no input of an example is
/// differentiated.
OpDef quantization(const char* name, const char* summary, const char* expression,
                   std::vector<std::string> derivatives) {
  std::vector<std::string> texts;
  constexpr const char* shapes[][2] = {{"[6]", "[]"}, {"[2, 3]", "[3]"}, {"[2, 3]", "[2, 1]"}, {"[2, 2]", "[2, 2]"}};
  for (const auto& [x, scale] : shapes)
    for (const char* limits : {"{high = 127.0, low = -128.0}", "{high = 2.0, low = 0.0}"})
      texts.push_back(example(
          "%constant_x: f32" + std::string(x) + ", %constant_positive: f32" + scale + ", %constant_zero: f32" + scale,
          "%y = " + std::string(name) + " %constant_x, %constant_positive, %constant_zero " + limits + " : f32" + x));
  return {.name = name,
          .summary = summary,
          .kind = OpKind::elementwise,
          .operands = {{"X"}, {"scale"}, {"zero_point"}},
          .results = {{"Y"}},
          .attributes = {number("low", std::nullopt, "the least integer"),
                         number("high", std::nullopt, "the largest integer")},
          .precision = PrecisionClass::keepHigh,
          .expressions = {expression},
          .derivatives = std::move(derivatives),
          .examples = std::move(texts)};
}

/// An expression with `$` for the integer before it is limited.
std::string ofRounded(std::string text) {
  for (std::size_t at; (at = text.find('$')) != std::string::npos;)
    text.replace(at, 1, "(round(X / scale) + zero_point)");
  return text;
}

/// To u8, with the scale and zero point that span the values and 0.
Expected<std::vector<Value*>> convertDynamic(OnnxReader& n) {
  Value* x = n.input(0);
  if (x->type().element != ElementType::f32) return n.unsupported() << "quantizes " << toString(x->type());
  std::vector<std::int64_t> axes;
  for (int axis = 0; axis < x->type().rank(); ++axis) axes.push_back(axis);
  Value* least = n.value("reduce_min", {x}, {{"axes", axes}});
  Value* most = n.value("reduce_max", {x}, {{"axes", axes}});
  Value* scale = compute(n, {least, most}, "(max(a1, 0) - min(a0, 0)) / 255");
  Value* zero = compute(n, {least, scale}, "min(max(round(0 - min(a0, 0) / a1), 0), 255)");
  Value* y = compute(n, {x, scale, zero}, "min(max(round(a0 / a1) + a2, 0), 255)");
  if (!y) return failure;
  return std::vector<Value*>{cast(n, y, ElementType::u8), scale, cast(n, zero, ElementType::u8)};
}

/// The product of matrices of i32: sums of products, for matmul computes with floats.
Value* integerProduct(OnnxReader& n, Value* a, Value* b) {
  if (!a || !b) return nullptr;
  if (a->type().rank() < 2 || b->type().rank() < 2) {
    static_cast<void>(n.unsupported() << "multiplies vectors");
    return nullptr;
  }
  Shape left = a->type().shape, right = b->type().shape;
  left.push_back(1);                // […, m, k, 1]
  right.insert(right.end() - 2, 1); // […, 1, k, n]
  Value* products = compute(n, {n.reshape(a, left), n.reshape(b, right)}, "a0 * a1");
  if (!products) return nullptr;
  return n.value("reduce_sum", {products}, {{"axes", std::vector<std::int64_t>{products->type().rank() - 2}}});
}

/// x minus its zero point, in i32. A zero point per row of A is a column.
Value* shifted(OnnxReader& n, Value* x, Value* zero, bool perRow) {
  Value* wide = cast(n, x, ElementType::i32);
  if (!zero) return wide;
  Value* offset = cast(n, zero, ElementType::i32);
  if (zero->type().elements() == 1)
    offset = n.reshape(offset, {});
  else if (perRow && zero->type().rank() == 1)
    offset = n.reshape(offset, {zero->type().shape[0], 1});
  return compute(n, {wide, offset}, "a0 - a1");
}

Value* convertMatMulInteger(OnnxReader& n) {
  if (!requireByte(n, n.type(0).element) || !requireByte(n, n.type(1).element)) return nullptr;
  return integerProduct(n, shifted(n, n.input(0), n.input(2), true), shifted(n, n.input(1), n.input(3), false));
}

/// Inputs: a, its scale and zero point, b, likewise, and scale and zero point of the result.
Value* convertQLinearMatMul(OnnxReader& n) {
  const ElementType to = n.type(7).element;
  for (std::size_t i : {1, 2, 4, 5, 6, 7})
    if (n.type(i).elements() != 1) {
      static_cast<void>(n.unsupported() << "has a scale or zero point of " << toString(n.type(i)));
      return nullptr;
    }
  for (std::size_t i : {1, 4, 6})
    if (n.type(i).element != ElementType::f32) {
      static_cast<void>(n.unsupported() << "has a scale of " << toString(n.type(i)) << ", pdc takes f32");
      return nullptr;
    }
  if (!requireByte(n, n.type(0).element) || !requireByte(n, n.type(3).element) || !requireByte(n, to)) return nullptr;
  Value* product =
      integerProduct(n, shifted(n, n.input(0), n.input(2), true), shifted(n, n.input(3), n.input(5), false));
  Value* scale =
      compute(n, {n.reshape(n.input(6), {}), n.reshape(n.input(1), {}), n.reshape(n.input(4), {})}, "a0 / (a1 * a2)");
  return quantize(n, cast(n, product, ElementType::f32), scale, n.reshape(n.input(7), {}), to);
}

/// x minus its zero point, in i32; a zero point per output channel is the filter's first axis.
Value* shiftedFilter(OnnxReader& n, Value* filter, Value* zero) {
  if (zero && zero->type().elements() != 1) zero = n.reshape(zero, {zero->type().elements(), 1, 1, 1});
  return shifted(n, filter, zero, false);
}

/// The convolution of [N, C, H, W] with filters [M, C / groups, …], of i32: for each tap of the filter the products
/// with what it meets, summed over the channels.
class IntegerConvolution {
public:
  IntegerConvolution(OnnxReader& reader, std::size_t x, std::size_t filter)
      : n(reader), xShape_(n.type(x).shape), filterShape_(n.type(filter).shape), groups_(n.integer("group", 1)) {
    if (xShape_.size() != 4 || filterShape_.size() != 4 || groups_ < 1 || filterShape_[1] * groups_ != xShape_[1] ||
        filterShape_[0] % groups_ != 0)
      static_cast<void>(n.unsupported() << "convolves " << toString(n.type(x)) << " with " << toString(n.type(filter))
                                        << " in " << groups_ << " groups, pdc takes planes, and channels that fit");
    else if (requireByte(n, n.type(x).element) && requireByte(n, n.type(filter).element))
      axes_ = readWindows(n, {xShape_[2], xShape_[3]}, Shape{filterShape_[2], filterShape_[3]});
  }

  Value* of(Value* x, Value* filter) {
    if (!axes_ || !x || !filter) return nullptr;
    const WindowAxis &height = (*axes_)[0], &width = (*axes_)[1];
    const std::int64_t rows = height.count(xShape_[2]), columns = width.count(xShape_[3]);
    const std::int64_t inputs = filterShape_[1], outputs = filterShape_[0] / groups_;
    x = n.value(
        "pad", {x},
        {{"before", Shape{0, 0, height.before, width.before}}, {"after", Shape{0, 0, height.after, width.after}}});
    Value* total = nullptr;
    for (std::int64_t tap = 0; tap < height.kernel * width.kernel; ++tap) {
      const std::int64_t row = tap / width.kernel, column = tap % width.kernel;
      Value* met = part(x, {0, 0, row * height.dilation, column * width.dilation},
                        {xShape_[0], xShape_[1], rows, columns}, {1, 1, height.stride, width.stride});
      Value* weights = part(filter, {0, 0, row, column}, {filterShape_[0], inputs, 1, 1}, {1, 1, 1, 1});
      Value* products = compute(n,
                                {n.reshape(met, {xShape_[0], groups_, 1, inputs, rows, columns}),
                                 n.reshape(weights, {1, groups_, outputs, inputs, 1, 1})},
                                "a0 * a1");
      Value* sum = products ? n.value("reduce_sum", {products}, {{"axes", Shape{3}}}) : nullptr;
      total = total ? compute(n, {total, sum}, "a0 + a1") : sum;
      if (!total) return nullptr;
    }
    return n.reshape(total, {xShape_[0], filterShape_[0], rows, columns});
  }

private:
  Value* part(Value* x, Shape starts, Shape sizes, Shape steps) {
    return x ? n.value("slice", {x}, {{"starts", starts}, {"sizes", sizes}, {"steps", steps}}) : nullptr;
  }

  OnnxReader& n;
  const Shape xShape_, filterShape_;
  const std::int64_t groups_;
  std::optional<std::vector<WindowAxis>> axes_;
};

Value* convertConvInteger(OnnxReader& n) {
  IntegerConvolution convolution(n, 0, 1);
  return convolution.of(shifted(n, n.input(0), n.input(2), false), shiftedFilter(n, n.input(1), n.input(3)));
}

/// Inputs: x, its scale and zero point, the filter, likewise, scale and zero point of the result, and perhaps a bias.
Value* convertQLinearConv(OnnxReader& n) {
  IntegerConvolution convolution(n, 0, 3);
  const ElementType to = n.type(7).element;
  for (std::size_t i : {1, 4, 6})
    if (n.type(i).element != ElementType::f32) {
      static_cast<void>(n.unsupported() << "has a scale of " << toString(n.type(i)) << ", pdc takes f32");
      return nullptr;
    }
  if (!requireByte(n, to)) return nullptr;
  Value* y = convolution.of(shifted(n, n.input(0), n.input(2), false), shiftedFilter(n, n.input(3), n.input(5)));
  const auto perChannel = [&](Value* x) {
    return x->type().elements() == 1 ? n.reshape(x, {}) : n.reshape(x, {x->type().elements(), 1, 1});
  };
  if (y && n.input(8)) y = compute(n, {y, perChannel(n.input(8))}, "a0 + a1");
  Value* scale =
      compute(n, {n.reshape(n.input(6), {}), n.reshape(n.input(1), {}), perChannel(n.input(4))}, "a0 / (a1 * a2)");
  return y && scale ? quantize(n, cast(n, y, ElementType::f32), scale, n.reshape(n.input(7), {}), to) : nullptr;
}

} // namespace

std::vector<OpDef> define() {
  return {
      quantization("quantize",
                   "X over a scale, rounded, plus a zero point, limited to [low, high]: integers, as floats; the "
                   "gradient is that without rounding",
                   "min(max(round(X / scale) + zero_point, low), high)",
                   {ofRounded("select($ >= low && $ <= high, 1 / scale, 0)"),
                    ofRounded("select($ >= low && $ <= high, -(X / scale) / scale, 0)"),
                    ofRounded("select($ >= low && $ <= high, 1, 0)")}),
      quantization(
          "fake_quantize",
          "What is left of X after it was quantized: (quantize(X) - zero_point) · scale; the gradient passes "
          "straight through where nothing is limited",
          "(min(max(round(X / scale) + zero_point, low), high) - zero_point) * scale",
          {ofRounded("select($ >= low && $ <= high, 1, 0)"),
           ofRounded("select($ < low, low - zero_point, select($ > high, high - zero_point, (Y - X) / scale))"),
           ofRounded("select($ >= low && $ <= high, 0, -scale)")}),
      composed("quantize_linear", "Floats as bytes: X over a scale, rounded, plus a zero point",
               {onnx("QuantizeLinear", 2, convertQuantize, 10)}),
      composed("dequantize_linear", "What bytes stand for: X minus a zero point, times a scale",
               {onnx("DequantizeLinear", 2, convertDequantize, 10)}),
      composed("dynamic_quantize_linear", "Floats as bytes, with the scale and zero point that span them",
               {onnxMany("DynamicQuantizeLinear", 1, convertDynamic, 11)}),
      composed("matmul_integer", "Product of matrices of bytes, in i32",
               {onnx("MatMulInteger", 2, convertMatMulInteger, 10)}),
      composed("conv_integer", "Convolution of bytes, in i32: sums of products",
               {onnx("ConvInteger", 2, convertConvInteger, 10)}),
      composed("qlinear_conv", "Convolution of bytes that stand for floats, as such bytes",
               {onnx("QLinearConv", 8, convertQLinearConv, 10)}),
      composed("qlinear_matmul", "Product of matrices of bytes that stand for floats, as such bytes",
               {onnx("QLinearMatMul", 8, convertQLinearMatMul, 10)}),
  };
}

} // namespace pdc::ops::Quantize
