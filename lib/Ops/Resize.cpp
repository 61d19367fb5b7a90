// ONNX Resize and Upsample. Along each axis the result is a sum over a few taps: elements of the input picked by
// gather, times a weight per position. Nearest has one tap, linear two, cubic four; with antialias there are more.
//
// Positions and weights are those of ONNX's reference implementation (onnx/reference/ops/op_resize.py), which pdc's
// tests compare with by ONNX's own vectors.
#include "Convert/Onnx.h"
#include "Shared/Define.h"

#include <algorithm>
#include <cmath>

namespace pdc::ops::Resize {

namespace {

/// What all axes have in common.
struct Mode {
  std::string interpolation, coordinates, nearest;
  double cubic = -0.75, extrapolation = 0;
  bool excludeOutside = false, antialias = false;
};

struct Axis {
  std::int64_t in = 0, out = 0;
  double scale = 1;
  double begin = 0, end = 1; ///< the part of the axis that tf_crop_and_resize takes
};

/// The position in the input that element `at` of the result stands for.
double coordinate(const Mode& mode, const Axis& a, std::int64_t at) {
  const double x = static_cast<double>(at), in = static_cast<double>(a.in), out = a.scale * in;
  if (mode.coordinates == "asymmetric") return x / a.scale;
  if (mode.coordinates == "align_corners") return out == 1 ? 0 : x * (in - 1) / (out - 1);
  if (mode.coordinates == "tf_half_pixel_for_nn") return (x + 0.5) / a.scale;
  if (mode.coordinates == "pytorch_half_pixel" && a.out == 1) return 0; // as specified; the reference has -0.5
  if (mode.coordinates == "tf_crop_and_resize")
    return a.begin * (in - 1) + (a.out == 1 ? (a.end - a.begin) * (in - 1) / 2
                                            : x * (a.end - a.begin) * (in - 1) / static_cast<double>(a.out - 1));
  const double halfPixel = (x + 0.5) / a.scale - 0.5;
  if (mode.coordinates == "half_pixel_symmetric") return in / 2 * (1 - static_cast<double>(a.out) / out) + halfPixel;
  return halfPixel;
}

/// Keys's cubic (1981) with parameter a.
double cubicWeight(double distance, double a) {
  const double x = std::abs(distance);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? ((x - 5) * x + 8) * x * a - 4 * a : 0;
}

/// Weights of the neighbours base - n/2 + 1 … base + n/2 of a position between base and base + 1, of which it is
/// `ratio` (0 < ratio <= 1) away from base.
std::vector<double> weightsAt(const Mode& mode, const Axis& a, double ratio) {
  if (mode.interpolation == "nearest") {
    const bool left = ratio < 1 && (mode.nearest == "floor" || (mode.nearest == "round_prefer_floor" && ratio <= 0.5) ||
                                    (mode.nearest == "round_prefer_ceil" && ratio < 0.5));
    return {left ? 1.0 : 0.0, left ? 0.0 : 1.0};
  }
  const bool linear = mode.interpolation == "linear";
  // Shrinking with antialias, a filter of the width of the result's elements.
  const double scale = mode.antialias ? std::min(a.scale, 1.0) : 1;
  const std::int64_t half = -static_cast<std::int64_t>(std::floor((linear ? -1 : -2) / scale));
  std::vector<double> weights;
  double sum = 0;
  for (std::int64_t i = 1 - half; i <= half; ++i) {
    const double distance = (static_cast<double>(i) - ratio) * scale;
    weights.push_back(linear ? std::max(0.0, 1 - std::abs(distance)) : cubicWeight(distance, mode.cubic));
    sum += weights.back();
  }
  for (double& weight : weights) weight /= mode.antialias ? sum : 1;
  return weights;
}

/// What one axis does: tap t of element i is element indices[t][i] of the input times weights[t][i].
struct Taps {
  std::vector<std::vector<std::int64_t>> indices;
  std::vector<std::vector<double>> weights;
};

/// Whether element `at` of the result is beyond the input, where it is the extrapolation value.
bool isOutside(const Mode& mode, const Axis& a, std::int64_t at) {
  const double x = coordinate(mode, a, at);
  return mode.coordinates == "tf_crop_and_resize" && !(x >= 0 && x <= static_cast<double>(a.in - 1));
}

Taps tapsOf(const Mode& mode, const Axis& a) {
  Taps taps;
  for (std::int64_t at = 0; at < a.out; ++at) {
    const double x = isOutside(mode, a, at) ? 0 : coordinate(mode, a, at), base = std::ceil(x) - 1;
    std::vector<double> weights = weightsAt(mode, a, x - base);
    const std::int64_t first = static_cast<std::int64_t>(base) - static_cast<std::int64_t>(weights.size()) / 2 + 1;
    double sum = 0;
    for (std::size_t t = 0; t < weights.size(); ++t) {
      const std::int64_t index = first + static_cast<std::int64_t>(t);
      if (mode.excludeOutside && (index < 0 || index >= a.in)) weights[t] = 0;
      sum += weights[t];
    }
    taps.indices.resize(weights.size());
    taps.weights.resize(weights.size());
    for (std::size_t t = 0; t < weights.size(); ++t) {
      const std::int64_t index = first + static_cast<std::int64_t>(t);
      taps.indices[t].push_back(std::clamp<std::int64_t>(index, 0, a.in - 1));
      taps.weights[t].push_back(mode.excludeOutside && sum != 0 ? weights[t] / sum : weights[t]);
    }
  }
  return taps;
}

/// Nearest picks, so that nothing is multiplied: all taps become one.
void pickOne(Taps& taps) {
  std::vector<std::int64_t> picked = taps.indices[0];
  for (std::size_t i = 0; i < picked.size(); ++i)
    if (taps.weights[1][i] == 1) picked[i] = taps.indices[1][i];
  taps.indices = {picked};
  taps.weights = {std::vector<double>(picked.size(), 1)};
}

/// `count` elements on `axis`, which broadcast over the axes behind.
Shape shapeAlong(const Type& x, std::size_t axis, std::int64_t count) {
  Shape shape(x.shape.size() - axis, 1);
  shape[0] = count;
  return shape;
}

/// Puts the extrapolation value where an axis is left. (All axes are interpolated before: nothing is multiplied with
/// it.)
Value* extrapolated(OnnxReader& n, Value* x, std::size_t axis, const Mode& mode, const Axis& a) {
  Tensor outside(Type{ElementType::boolean, shapeAlong(x->type(), axis, a.out)});
  bool any = false;
  for (std::int64_t at = 0; at < a.out; ++at) {
    outside.set(at, isOutside(mode, a, at));
    any |= isOutside(mode, a, at);
  }
  if (!any) return x;
  return n.value("where", {n.b.constant(outside), n.b.constant(mode.extrapolation, x->type().element), x});
}

Value* resizeAxis(OnnxReader& n, Value* x, std::size_t axis, const Mode& mode, const Axis& a) {
  Taps taps = tapsOf(mode, a);
  if (mode.interpolation == "nearest") pickOne(taps);
  const Shape along = shapeAlong(x->type(), axis, a.out);
  const auto vector = [&](const std::vector<double>& values) {
    Tensor tensor(Type{x->type().element, along});
    for (std::int64_t i = 0; i < a.out; ++i) tensor.set(i, values[static_cast<std::size_t>(i)]);
    return n.b.constant(tensor);
  };
  Value* total = nullptr;
  for (std::size_t t = 0; t < taps.indices.size(); ++t) {
    const std::vector<double>& weights = taps.weights[t];
    if (std::all_of(weights.begin(), weights.end(), [](double weight) { return weight == 0; })) continue;
    Value* indices = n.b.constant(Tensor::ofInts({a.out}, taps.indices[t]));
    Value* term = n.value("gather", {x, indices}, {{"axis", static_cast<std::int64_t>(axis)}});
    const bool scales = std::any_of(weights.begin(), weights.end(), [](double weight) { return weight != 1; });
    if (term && scales) term = n.value("mul", {term, vector(weights)});
    total = total && term ? n.value("add", {total, term}) : term;
    if (!total) return nullptr;
  }
  return total;
}

/// An optional input that is absent, or there without elements.
std::optional<Tensor> given(OnnxReader& n, std::size_t i, const char* what, bool& valid) {
  if (!n.input(i)) return std::nullopt;
  std::optional<Tensor> tensor = n.constant(i, what);
  valid &= tensor.has_value();
  return tensor && tensor->elements() > 0 ? tensor : std::nullopt;
}

std::vector<double> numbersOf(const Tensor& tensor) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < tensor.elements(); ++i) values.push_back(tensor.asDouble(i));
  return values;
}

constexpr double largest = 1e6; ///< a scale or a size beyond is a mistake

/// Sizes of the result from scales or sizes of the axes `axes`.
bool measure(OnnxReader& n, std::vector<Axis>& all, const std::vector<std::size_t>& axes,
             const std::vector<double>& scales, const std::vector<double>& sizes) {
  const std::vector<double>& stated = scales.empty() ? sizes : scales;
  const bool fits = stated.size() == axes.size() && (scales.empty() || sizes.empty()) &&
                    std::all_of(stated.begin(), stated.end(), [](double s) { return s > 0 && s <= largest; });
  if (!fits) {
    static_cast<void>(n.error() << "has " << scales.size() << " scales and " << sizes.size() << " sizes for "
                                << axes.size() << " axes, it needs one of them, positive numbers all");
    return false;
  }
  const std::string policy = n.version() >= 18 ? n.text("keep_aspect_ratio_policy", "stretch") : "stretch";
  double common = 0;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    Axis& a = all[axes[i]];
    a.scale = scales.empty() ? sizes[i] / static_cast<double>(a.in) : scales[i];
    a.out = static_cast<std::int64_t>(scales.empty() ? sizes[i] : std::floor(a.scale * static_cast<double>(a.in)));
    const bool better = policy == "not_larger" ? a.scale < common : a.scale > common;
    if (i == 0 || better) common = a.scale;
  }
  if (!sizes.empty() && policy != "stretch")
    for (std::size_t axis : axes) {
      all[axis].scale = common;
      all[axis].out = static_cast<std::int64_t>(std::floor(common * static_cast<double>(all[axis].in) + 0.5));
    }
  return true;
}

Value* resize(OnnxReader& n, const Mode& mode, const std::vector<Axis>& axes) {
  static const std::vector<std::string> known = {"nearest", "linear", "cubic"};
  if (std::find(known.begin(), known.end(), mode.interpolation) == known.end()) {
    static_cast<void>(n.unsupported() << "has mode = '" << mode.interpolation
                                      << "', pdc has nearest, linear and cubic");
    return nullptr;
  }
  Value* x = n.input(0);
  for (std::size_t axis = 0; x && axis < axes.size(); ++axis) {
    const Axis& a = axes[axis];
    if (a.in < 1 || a.out < 1) {
      static_cast<void>(n.error() << "makes " << a.out << " of " << a.in << " elements on axis " << axis);
      return nullptr;
    }
    if (a.in != a.out || a.scale != 1 || a.begin != 0 || a.end != 1) x = resizeAxis(n, x, axis, mode, a);
  }
  for (std::size_t axis = 0; x && axis < axes.size(); ++axis) x = extrapolated(n, x, axis, mode, axes[axis]);
  return x;
}

std::vector<Axis> axesOf(const Type& x) {
  std::vector<Axis> axes;
  for (std::int64_t size : x.shape) axes.push_back({.in = size, .out = size});
  return axes;
}

std::vector<std::size_t> allAxes(std::size_t rank) {
  std::vector<std::size_t> axes(rank);
  for (std::size_t i = 0; i < rank; ++i) axes[i] = i;
  return axes;
}

/// Upsample (opsets 7 to 9) and Resize of opset 10.
Value* convertUpsample(OnnxReader& n) {
  std::string mode = n.text("mode", "nearest");
  if (mode == "bilinear" || mode == "trilinear") mode = "linear";
  bool valid = true;
  std::vector<double> scales =
      n.node.opType == "Upsample" && n.version() < 9 ? n.numbers("scales") : std::vector<double>{};
  if (scales.empty())
    if (const auto tensor = given(n, 1, "scales", valid)) scales = numbersOf(*tensor);
  std::vector<Axis> axes = axesOf(n.type(0));
  if (!valid || !measure(n, axes, allAxes(axes.size()), scales, {})) return nullptr;
  return resize(n, {.interpolation = mode, .coordinates = "asymmetric", .nearest = "floor"}, axes);
}

Value* convertResize(OnnxReader& n) {
  Mode mode{.interpolation = n.text("mode", "nearest"),
            .coordinates = n.text("coordinate_transformation_mode", "half_pixel"),
            .nearest = n.text("nearest_mode", "round_prefer_floor"),
            .cubic = n.number("cubic_coeff_a", -0.75),
            .extrapolation = n.number("extrapolation_value", 0),
            .excludeOutside = n.integer("exclude_outside", 0) != 0,
            .antialias = n.version() >= 18 && n.integer("antialias", 0) != 0};
  static const std::vector<std::string> known = {"half_pixel",        "half_pixel_symmetric", "pytorch_half_pixel",
                                                 "align_corners",     "asymmetric",           "tf_half_pixel_for_nn",
                                                 "tf_crop_and_resize"};
  if (std::find(known.begin(), known.end(), mode.coordinates) == known.end()) {
    static_cast<void>(n.unsupported() << "has coordinate_transformation_mode = '" << mode.coordinates << "'");
    return nullptr;
  }
  if (mode.interpolation == "bilinear") mode.interpolation = "linear";
  bool valid = true;
  const bool crops = mode.coordinates == "tf_crop_and_resize";
  const auto roi = crops ? given(n, 1, "roi", valid) : std::nullopt;
  const auto scales = given(n, 2, "scales", valid), sizes = given(n, 3, "sizes", valid);
  std::vector<Axis> all = axesOf(n.type(0));
  std::vector<std::size_t> axes = allAxes(all.size());
  if (n.version() >= 18 && n.has("axes")) {
    axes.clear();
    for (std::int64_t stated : n.integers("axes")) {
      const auto axis = n.axis(stated, n.type(0).rank());
      if (!axis) return nullptr;
      axes.push_back(static_cast<std::size_t>(*axis));
    }
  }
  if (!valid || !measure(n, all, axes, scales ? numbersOf(*scales) : std::vector<double>{},
                         sizes ? numbersOf(*sizes) : std::vector<double>{}))
    return nullptr;
  if (crops && (!roi || roi->elements() != 2 * static_cast<std::int64_t>(axes.size()))) {
    static_cast<void>(n.error() << "needs two numbers of roi for each of its " << axes.size() << " axes");
    return nullptr;
  }
  for (std::size_t i = 0; crops && i < axes.size(); ++i) {
    all[axes[i]].begin = roi->asDouble(static_cast<std::int64_t>(i));
    all[axes[i]].end = roi->asDouble(static_cast<std::int64_t>(i + axes.size()));
  }
  return resize(n, mode, all);
}

} // namespace

std::vector<OpDef> define() {
  return {
      composed("resize", "X with other sizes, interpolated: gather, mul and add along each axis",
               {onnx("Resize", 1, convertUpsample, 10, 10), onnx("Resize", 1, convertResize, 11)}),
      composed("upsample", "X enlarged, interpolated: gather, mul and add along each axis",
               {onnx("Upsample", 1, convertUpsample, 7, 9)}),
  };
}

} // namespace pdc::ops::Resize
