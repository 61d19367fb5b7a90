// Integers that stand for floats: ONNX's quantized operators, made of the others. Without gradients, as rounding has
// none. Products are computed in 32-bit integers, exactly.
#include "Helpers/Define.h"
#include "Helpers/Indices.h"

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
      composed("qlinear_matmul", "Product of matrices of bytes that stand for floats, as such bytes",
               {onnx("QLinearMatMul", 8, convertQLinearMatMul, 10)}),
  };
}
