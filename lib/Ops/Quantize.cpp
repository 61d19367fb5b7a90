// Integers that stand for floats: ONNX's quantized operators, made of the others. Without gradients, as rounding has
// none. Products are computed in 32-bit integers, exactly.
#include "Helpers/Define.h"
#include "Helpers/Indices.h"
#include "Helpers/Window.h"

using namespace pdc;
using namespace pdc::ops;

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

/// A scale or zero point of `x`: one for all, or one per element of `axis`, in a shape that broadcasts.
Value* alongAxis(OnnxReader& n, Value* parameter, const Shape& x, std::int64_t axis) {
  if (!parameter || parameter->type().elements() == 1) return n.reshape(parameter, {});
  Shape shape(x.size(), 1);
  shape[static_cast<std::size_t>(axis)] = x[static_cast<std::size_t>(axis)];
  if (parameter->type().elements() == shape[static_cast<std::size_t>(axis)] && parameter->type().rank() == 1)
    return n.reshape(parameter, shape);
  static_cast<void>(n.unsupported() << "has a scale or zero point of " << toString(parameter->type()) << " for axis "
                                    << axis << " of " << toString(x));
  return nullptr;
}

/// round(x / scale) + zero, saturated.
Value* quantize(OnnxReader& n, Value* x, Value* scale, Value* zero, ElementType to) {
  const bool isSigned = to == ElementType::i8;
  return cast(n,
              compute(n, {x, scale, cast(n, zero, ElementType::f32)},
                      std::string("min(max(round(a0 / a1) + a2, ") + (isSigned ? "-128), 127)" : "0), 255)")),
              to);
}

std::optional<std::int64_t> axisOf(OnnxReader& n) {
  const int rank = n.type(0).rank();
  const std::int64_t stated = n.integer("axis", 1);
  if (rank < 2 && stated == 1) return 0; // the default, where it means nothing
  return n.axis(stated, rank);
}

/// What opset 21 and later add, which changes nothing at its default.
bool plainOptions(OnnxReader& n) {
  n.ignore("saturate"); // about 8-bit floats
  const std::int64_t block = n.integer("block_size", 0), precision = n.integer("precision", 0);
  if (block == 0 && precision == 0) return true;
  static_cast<void>(n.unsupported() << "has block_size " << block << " and precision " << precision);
  return false;
}

Value* convertQuantize(OnnxReader& n) {
  const auto axis = axisOf(n);
  const std::int64_t number = n.integer("output_dtype", 0);
  const std::optional<ElementType> stated = number ? elementTypeFromOnnx(number) : std::nullopt;
  const ElementType to = n.input(2) ? n.type(2).element : stated.value_or(number ? ElementType::f64 : ElementType::u8);
  if (!axis || !plainOptions(n) || !requireByte(n, to)) return nullptr;
  if (n.type(0).element != ElementType::f32 || n.type(1).element != ElementType::f32) {
    static_cast<void>(n.unsupported() << "quantizes " << toString(n.type(0)) << " by " << toString(n.type(1))
                                      << ", pdc takes f32");
    return nullptr;
  }
  Value* zero = n.input(2) ? n.input(2) : n.b.constant(0, to);
  return quantize(n, n.input(0), alongAxis(n, n.input(1), n.type(0).shape, *axis),
                  alongAxis(n, zero, n.type(0).shape, *axis), to);
}

Value* convertDequantize(OnnxReader& n) {
  const auto axis = axisOf(n);
  const std::int64_t number = n.integer("output_dtype", 0);
  const ElementType to = n.type(1).element;
  if (!axis || !plainOptions(n)) return nullptr;
  if (to != ElementType::f32 || (number != 0 && number != 1)) {
    static_cast<void>(n.unsupported() << "makes other floats than f32");
    return nullptr;
  }
  Value* scale = alongAxis(n, n.input(1), n.type(0).shape, *axis);
  Value* zero = alongAxis(n, n.input(2) ? n.input(2) : n.b.constant(0, n.type(0).element), n.type(0).shape, *axis);
  return compute(n, {cast(n, n.input(0), to), scale, cast(n, zero, to)}, "(a0 - a2) * a1");
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

PDC_OPS(Quantize) {
  return {
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
