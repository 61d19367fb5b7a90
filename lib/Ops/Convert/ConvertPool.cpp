#include "Convert/ConvertPool.h"

#include "Raise/RaiseLength.h"
#include "Shared/Window.h"

#include <algorithm>
#include <functional>

using namespace pdc;
using namespace pdc::ops;

namespace {

using PoolAxes = std::vector<WindowAxis>;
/// Pools the last two axes of x [N, C, H, W].
using PoolPlane = std::function<Value*(Value* x, const WindowAxis& height, const WindowAxis& width)>;

std::optional<PoolAxes> readAxes(OnnxReader& n) {
  const Shape& x = n.type(0).shape;
  if (x.size() >= 3 && x.size() <= 5 && isFloat(n.type(0).element))
    return readWindows(n, {x.begin() + 2, x.end()}, std::nullopt);
  static_cast<void>(n.unsupported() << "pools floats over one to three axes, its input is " << toString(n.type(0)));
  return std::nullopt;
}

/// Pools x [N, C, …] over its one to three spatial axes.
Value* pool(OnnxReader& n, Value* x, const PoolAxes& axes, const PoolPlane& plane) {
  const Shape s = x->type().shape;
  if (axes.size() == 2) return plane(x, axes[0], axes[1]);
  if (axes.size() == 1) {
    x = n.reshape(x, {s[0], s[1], 1, s[2]});
    Value* y = x ? plane(x, WindowAxis{}, axes[0]) : nullptr;
    return y ? n.reshape(y, {s[0], s[1], y->type().shape[3]}) : nullptr;
  }
  x = n.reshape(x, {s[0], s[1] * s[2], s[3], s[4]});
  Value* y = x ? plane(x, axes[1], axes[2]) : nullptr;
  if (!y) return nullptr;
  const std::int64_t height = y->type().shape[2], width = y->type().shape[3];
  y = n.reshape(y, {s[0], s[1], s[2], height * width});
  y = y ? plane(y, axes[0], WindowAxis{}) : nullptr;
  return y ? n.reshape(y, {s[0], s[1], y->type().shape[2], height, width}) : nullptr;
}

Attributes poolAttributes(const WindowAxis& height, const WindowAxis& width, bool dilations, bool roundUp) {
  Attributes attributes = planeAttributes(height, width, dilations);
  attributes.set("kernel", std::vector<std::int64_t>{height.kernel, width.kernel});
  attributes.set("ceil_mode", roundUp);
  return attributes;
}

/// The same windows, none of which is left out, with as much padding at the end as they need.
WindowAxis fitted(WindowAxis axis, std::int64_t size, bool roundUp) {
  const std::int64_t windows = axis.count(size, roundUp);
  axis.after = std::max<std::int64_t>(0, (windows - 1) * axis.stride + axis.extent() - size - axis.before);
  return axis;
}

/// Sums over the windows of x [N, C, H, W].
Value* sumPlane(OnnxReader& n, Value* x, const WindowAxis& height, const WindowAxis& width, bool roundUp) {
  const Shape s = x->type().shape;
  if (height.count(s[2], roundUp) < 1 || width.count(s[3], roundUp) < 1) {
    static_cast<void>(n.error() << "has windows of " << height.extent() << " by " << width.extent() << " elements on "
                                << toString(x->type()));
    return nullptr;
  }
  Tensor ones(Type{x->type().element, {s[1], 1, height.kernel, width.kernel}});
  for (std::int64_t i = 0; i < ones.elements(); ++i) ones.set(i, 1);
  Attributes attributes =
      planeAttributes(fitted(height, s[2], roundUp), fitted(width, s[3], roundUp), /*dilations=*/true);
  attributes.set("groups", s[1]);
  return n.value("conv2d", {x, n.b.constant(ones)}, attributes);
}

/// How many elements of an axis, of its padding too where that counts, each window meets.
std::vector<double> countsOf(const WindowAxis& axis, std::int64_t size, bool roundUp, bool withPadding) {
  std::vector<double> counts;
  for (std::int64_t window = 0; window < axis.count(size, roundUp); ++window) {
    double count = 0;
    for (std::int64_t tap = 0; tap < axis.kernel; ++tap) {
      const std::int64_t at = window * axis.stride - axis.before + tap * axis.dilation;
      count += withPadding ? at < size + axis.after : at >= 0 && at < size;
    }
    counts.push_back(count);
  }
  return counts;
}

Value* dilatedMean(OnnxReader& n, Value* x, const WindowAxis& height, const WindowAxis& width, bool roundUp,
                   bool withPadding) {
  Value* sum = sumPlane(n, x, height, width, roundUp);
  if (!sum) return nullptr;
  const auto rows = countsOf(height, x->type().shape[2], roundUp, withPadding),
             columns = countsOf(width, x->type().shape[3], roundUp, withPadding);
  Tensor counts(Type{x->type().element, {sum->type().shape[2], sum->type().shape[3]}});
  for (std::int64_t i = 0; i < counts.elements(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    counts.set(i, rows[at / columns.size()] * columns[at % columns.size()]);
  }
  return n.value("div", {sum, n.b.constant(counts)});
}

/// f(x), an expression of a0.
Value* apply(OnnxReader& n, Value* x, const std::string& function) {
  return x ? n.value("elementwise", {x}, {{"expressions", std::vector{function}}}) : nullptr;
}
std::string powerBefore(std::int64_t p) {
  return p == 1 ? "abs(a0)" : p == 2 ? "a0 * a0" : "pow(abs(a0), " + std::to_string(p) + ")";
}
/// A length of 0 has the gradient 0, as in PyTorch.
Value* rootAfter(OnnxReader& n, Value* x, std::int64_t p) {
  const std::string root = p == 2 ? "sqrt(a0)" : "pow(a0, 1 / " + std::to_string(p) + ")";
  return p == 1 ? x : apply(n, x, lengthOf(root));
}

std::optional<std::int64_t> readPower(OnnxReader& n) {
  const std::int64_t p = n.integer("p", 2);
  if (p >= 1 && p <= 64) return p;
  static_cast<void>(n.unsupported() << "has p = " << p << ", it must lie in 1 to 64");
  return std::nullopt;
}

/// max_pool's index, which counts in its plane, as ONNX's, which counts in the whole of X.
Value* indicesOf(OnnxReader& n, Value* index, std::int64_t height, std::int64_t width, bool columnMajor) {
  index = n.value("cast", {index}, {{"to", std::string("i64")}});
  if (index && columnMajor) {
    const std::string w = std::to_string(width), h = std::to_string(height);
    index = apply(n, index, "(a0 - a0 / " + w + " * " + w + ") * " + h + " + a0 / " + w);
  }
  if (!index) return nullptr;
  const Shape& shape = index->type().shape;
  Tensor planes(Type{ElementType::i64, {shape[0], shape[1], 1, 1}});
  for (std::int64_t i = 0; i < planes.elements(); ++i) planes.set(i, static_cast<double>(i * height * width));
  return n.value("add", {index, n.b.constant(planes)});
}

} // namespace

Expected<std::vector<Value*>> pdc::ops::convertMaxPool(OnnxReader& n) {
  const bool roundUp = n.integer("ceil_mode", 0) != 0, columnMajor = n.integer("storage_order", 0) != 0;
  const auto axes = readAxes(n);
  if (!axes) return failure;
  if (n.used(1) && axes->size() > 2)
    return n.unsupported() << "has a used output 1 (Indices) over " << axes->size() << " axes";
  Value* indices = nullptr;
  Value* y = pool(n, n.input(0), *axes, [&](Value* x, const WindowAxis& height, const WindowAxis& width) -> Value* {
    Operation* op = n.b.create("max_pool", {x}, poolAttributes(height, width, /*dilations=*/true, roundUp));
    if (op && n.used(1))
      indices = indicesOf(n, op->result(1), x->type().shape[2], x->type().shape[3], columnMajor && axes->size() == 2);
    return op ? op->result(0) : nullptr;
  });
  if (!y) return failure;
  return std::vector<Value*>{y, indices ? n.reshape(indices, y->type().shape) : nullptr};
}

Value* pdc::ops::convertAveragePool(OnnxReader& n) {
  const bool roundUp = n.integer("ceil_mode", 0) != 0, withPadding = n.integer("count_include_pad", 0) != 0;
  const auto axes = readAxes(n);
  if (!axes) return nullptr;
  return pool(n, n.input(0), *axes, [&](Value* x, const WindowAxis& height, const WindowAxis& width) -> Value* {
    if (height.dilation != 1 || width.dilation != 1) return dilatedMean(n, x, height, width, roundUp, withPadding);
    Attributes attributes = poolAttributes(height, width, /*dilations=*/false, roundUp);
    attributes.set("count_include_pad", withPadding);
    return n.value("average_pool", {x}, attributes);
  });
}

Value* pdc::ops::convertLpPool(OnnxReader& n) {
  const bool roundUp = n.integer("ceil_mode", 0) != 0;
  const auto p = readPower(n);
  const auto axes = p ? readAxes(n) : std::nullopt;
  Value* powers = axes ? apply(n, n.input(0), powerBefore(*p)) : nullptr;
  if (!powers) return nullptr;
  Value* sum = pool(n, powers, *axes, [&](Value* x, const WindowAxis& height, const WindowAxis& width) {
    return sumPlane(n, x, height, width, roundUp);
  });
  return rootAfter(n, sum, *p);
}

static std::optional<std::vector<std::int64_t>> spatialAxes(OnnxReader& n) {
  const int rank = n.type(0).rank();
  std::vector<std::int64_t> axes;
  for (int axis = 2; axis < rank; ++axis) axes.push_back(axis);
  if (!axes.empty()) return axes;
  static_cast<void>(n.error() << "needs an input of rank 3 or more, it is " << toString(n.type(0)));
  return std::nullopt;
}

Value* pdc::ops::convertGlobalAveragePool(OnnxReader& n) {
  const auto axes = spatialAxes(n);
  return axes ? n.value("reduce_mean", {n.input(0)}, {{"axes", *axes}, {"keep_dims", true}}) : nullptr;
}

Value* pdc::ops::convertGlobalMaxPool(OnnxReader& n) {
  if (!spatialAxes(n)) return nullptr;
  Shape x = n.type(0).shape;
  if (x.size() != 4) x = {x[0], x[1], 1, product(x, 2, x.size())};
  Shape y = n.type(0).shape;
  std::fill(y.begin() + 2, y.end(), 1);
  Value* plane = n.reshape(n.input(0), x);
  return plane ? n.reshape(n.value("max_pool", {plane}, {{"kernel", Shape{x[2], x[3]}}}), y) : nullptr;
}

Value* pdc::ops::convertGlobalLpPool(OnnxReader& n) {
  const auto p = readPower(n);
  const auto axes = p ? spatialAxes(n) : std::nullopt;
  Value* powers = axes ? apply(n, n.input(0), powerBefore(*p)) : nullptr;
  Value* sum = powers ? n.value("reduce_sum", {powers}, {{"axes", *axes}, {"keep_dims", true}}) : nullptr;
  return rootAfter(n, sum, *p);
}
