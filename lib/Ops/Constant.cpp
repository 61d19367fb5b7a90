// Constants, and the ONNX operators that make tensors from shapes alone.
#include "Convert/Onnx.h"
#include "Shared/Define.h"

#include <cmath>

namespace pdc::ops::Constant {

/// Larger constants are weights, which belong into a file.
constexpr std::int64_t maxElements = std::int64_t{1} << 24;

static Value* convertConstant(OnnxReader& n) {
  const auto one = [&](const char* name) { return n.has(name); };
  if (one("value_float")) return n.b.constant(n.number("value_float", 0));
  if (one("value_int")) return n.b.constant(Tensor::ofInts({}, std::vector{n.integer("value_int", 0)}));
  if (one("value_ints")) {
    const std::vector<std::int64_t> values = n.integers("value_ints");
    return n.b.constant(Tensor::ofInts({static_cast<std::int64_t>(values.size())}, values));
  }
  if (one("value_floats")) {
    const std::vector<double> values = n.numbers("value_floats");
    return n.b.constant(Tensor::ofFloats({static_cast<std::int64_t>(values.size())}, values));
  }
  if (one("value")) return n.b.constant(n.tensor("value"));
  static_cast<void>(n.unsupported() << "has none of the attributes value, value_int, value_ints, value_float and "
                                       "value_floats");
  return nullptr;
}

/// The first `dims` sizes of an input, as ONNX Shape with start and end.
static Value* convertShape(OnnxReader& n) {
  const Shape& shape = n.type(0).shape;
  const auto rank = static_cast<std::int64_t>(shape.size());
  const auto clamp = [&](std::int64_t position) {
    return std::clamp<std::int64_t>(position < 0 ? position + rank : position, 0, rank);
  };
  const std::int64_t start = clamp(n.integer("start", 0)), end = std::max(start, clamp(n.integer("end", rank)));
  const Shape part(shape.begin() + start, shape.begin() + end);
  return n.b.constant(Tensor::ofInts({end - start}, part));
}

static Value* convertConstantOfShape(OnnxReader& n) {
  const std::optional<std::vector<std::int64_t>> shape = n.constantIntegers(0, "shape");
  if (!shape) return nullptr;
  const Tensor one = n.has("value") ? n.tensor("value") : Tensor::scalar(0);
  for (std::int64_t dim : *shape)
    if (dim < 0) {
      static_cast<void>(n.error() << "has a shape " << toString(*shape) << " with a negative dimension");
      return nullptr;
    }
  if (n.failed() || one.elements() != 1) {
    static_cast<void>(n.error() << "needs one element as value, it has " << one.elements());
    return nullptr;
  }
  const Value* scalar = n.b.constant(one.reshaped({}));
  return n.value("broadcast", {const_cast<Value*>(scalar)}, {{"shape", *shape}});
}

static Value* convertRange(OnnxReader& n) {
  n.ignore("stash_type"); // numbers are computed in f64
  const std::optional<Tensor> start = n.constant(0, "start"), limit = n.constant(1, "limit"),
                              delta = n.constant(2, "delta");
  if (!start || !limit || !delta) return nullptr;
  if (start->elements() != 1 || limit->elements() != 1 || delta->elements() != 1 || delta->asDouble(0) == 0) {
    static_cast<void>(n.error() << "needs three scalars, the last not 0");
    return nullptr;
  }
  const double count = std::ceil((limit->asDouble(0) - start->asDouble(0)) / delta->asDouble(0));
  if (!(count <= static_cast<double>(maxElements))) {
    static_cast<void>(n.error() << "makes " << count << " numbers, at most " << maxElements << " are possible");
    return nullptr;
  }
  Tensor range(Type{start->type().element, {std::max<std::int64_t>(0, static_cast<std::int64_t>(count))}});
  for (std::int64_t i = 0; i < range.elements(); ++i)
    range.set(i, start->asDouble(0) + static_cast<double>(i) * delta->asDouble(0));
  return n.b.constant(range);
}

/// Ones on a diagonal, in the shape of an input.
static Value* convertEyeLike(OnnxReader& n) {
  const Type& x = n.type(0);
  const std::int64_t k = n.integer("k", 0);
  const std::optional<ElementType> element = n.has("dtype") ? elementTypeFromOnnx(n.integer("dtype", 1)) : x.element;
  if (x.rank() != 2 || !element) {
    static_cast<void>(n.unsupported() << "makes a matrix of " << toString(x) << ", of element type "
                                      << n.integer("dtype", 1) << " of ONNX");
    return nullptr;
  }
  if (x.elements() > maxElements) {
    static_cast<void>(n.error() << "makes " << x.elements() << " numbers, at most " << maxElements << " are possible");
    return nullptr;
  }
  Tensor eye(Type{*element, x.shape});
  for (std::int64_t row = 0; row < x.shape[0]; ++row)
    if (row + k >= 0 && row + k < x.shape[1]) eye.set(row * x.shape[1] + row + k, 1);
  return n.b.constant(eye);
}

/// a - b cos(2πi / N) + c cos(4πi / N), N being the size or, of a window that is not periodic, one less.
static OnnxMapping onnxWindow(const char* opType, double a, double b, double c) {
  return onnx(
      opType, 1,
      [=](OnnxReader& n) -> Value* {
        const std::optional<std::vector<std::int64_t>> size = n.constantIntegers(0, "size");
        const bool periodic = n.integer("periodic", 1) != 0;
        const std::optional<ElementType> element = elementTypeFromOnnx(n.integer("output_datatype", 1));
        if (!size) return nullptr;
        if (size->size() != 1 || size->front() < 0 || size->front() > maxElements || !element) {
          static_cast<void>(n.error() << "makes a window of size " << toString(*size) << ", it must be 0 to "
                                      << maxElements);
          return nullptr;
        }
        Tensor window(Type{*element, *size});
        const double period =
            static_cast<double>(periodic ? size->front() : std::max<std::int64_t>(1, size->front() - 1));
        for (std::int64_t i = 0; i < window.elements(); ++i) {
          const double angle = 2 * M_PI * static_cast<double>(i) / period;
          window.set(i, a - b * std::cos(angle) + c * std::cos(2 * angle));
        }
        return n.b.constant(window);
      },
      17);
}

std::vector<OpDef> define() {
  return {
      {
          .name = "constant",
          .summary = "The tensor that the attribute holds",
          .kind = OpKind::constant,
          .onnx = {onnx("Constant", 0, convertConstant)},
          .results = {{"Y"}},
          .attributes = {{"value", Tensor::ofFloats({2}, std::vector<double>{1, 2}), std::nullopt, "the tensor"}},
          .infer = [](const InferContext& c) -> Types {
            return std::vector<Type>{c.attributes.get<Tensor>("value").type()};
          },
          .examples = {example("", "%y = constant {value = dense<f32[3], [1.0, 2.5, -3.0]>} : f32[3]"),
                       example("", "%y = constant {value = dense<i64[2, 1], [4, -5]>} : i64[2, 1]")},
      },
      composed("shape", "The shape of an input, as a constant", {onnx("Shape", 1, convertShape)}),
      composed(
          "size", "The number of elements of an input, as a constant",
          {onnx("Size", 1,
                [](OnnxReader& n) { return n.b.constant(Tensor::ofInts({}, std::vector{n.type(0).elements()})); })}),
      composed("constant_of_shape", "One number in a constant shape: broadcast",
               {onnx("ConstantOfShape", 1, convertConstantOfShape)}),
      composed("eye_like", "Ones on a diagonal of a matrix, as a constant", {onnx("EyeLike", 1, convertEyeLike, 9)}),
      composed("window", "A window function, as a constant",
               {onnxWindow("HannWindow", 0.5, 0.5, 0), onnxWindow("HammingWindow", 25.0 / 46, 21.0 / 46, 0),
                onnxWindow("BlackmanWindow", 0.42, 0.5, 0.08)}),
      composed("range", "Numbers from start to limit, as a constant", {onnx("Range", 3, convertRange)}),
  };
}

} // namespace pdc::ops::Constant
