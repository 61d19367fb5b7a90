// Positions at which a spatial transformer reads an image (Jaderberg et al. 2015): a grid of constants times a matrix
// per sample.
#include "Convert/Onnx.h"
#include "Shared/Define.h"

#include <algorithm>

namespace pdc::ops::AffineGrid {

namespace {

/// Place i of n along an axis that goes from -1 to 1: of the first and last element, or of the outer edges of both.
double placeOf(std::int64_t i, std::int64_t n, bool corners) {
  if (corners) return n == 1 ? 0 : 2.0 * static_cast<double>(i) / static_cast<double>(n - 1) - 1;
  return (2.0 * static_cast<double>(i) + 1) / static_cast<double>(n) - 1;
}

/// [axes + 1, points]: the places of every point, the last axis first, and 1.
Tensor gridOf(const Shape& sizes, ElementType element, bool corners) {
  const std::int64_t points = elementsOf(sizes), axes = static_cast<std::int64_t>(sizes.size());
  Tensor grid({element, {axes + 1, points}});
  for (std::int64_t point = 0; point < points; ++point) {
    std::int64_t rest = point;
    for (std::int64_t row = 0; row < axes; ++row) {
      const std::int64_t size = sizes[static_cast<std::size_t>(axes - 1 - row)];
      grid.set(row * points + point, placeOf(rest % size, size, corners));
      rest /= size;
    }
    grid.set(axes * points + point, 1);
  }
  return grid;
}

Value* convert(OnnxReader& n) {
  const auto size = n.constantIntegers(1, "size");
  const bool corners = n.integer("align_corners", 0) != 0;
  if (!size) return nullptr;
  const Type theta = n.type(0);
  const auto axes = static_cast<std::int64_t>(size->size()) - 2;
  const bool sane = axes >= 1 && std::all_of(size->begin(), size->end(), [](std::int64_t d) { return d > 0; }) &&
                    elementsOf(*size) > 0;
  if (!isFloat(theta.element) || !sane || theta.shape != Shape{size->front(), axes, axes + 1}) {
    static_cast<void>(n.error() << "has matrices " << toString(theta) << " for a size of " << toString(*size));
    return nullptr;
  }
  const Shape sizes(size->begin() + 2, size->end());
  const std::int64_t points = elementsOf(sizes);
  if (points > (1 << 20)) {
    static_cast<void>(n.unsupported() << "has a grid of " << points << " points, pdc stores " << (1 << 20));
    return nullptr;
  }
  Value* rows = n.reshape(n.input(0), {size->front() * axes, axes + 1});
  Value* places = rows ? n.value("matmul", {rows, n.b.constant(gridOf(sizes, theta.element, corners))}) : nullptr;
  places = n.reshape(places, {size->front(), axes, points});
  Shape shape{size->front()};
  shape.insert(shape.end(), sizes.begin(), sizes.end());
  shape.push_back(axes);
  return places ? n.reshape(n.transpose(places, {0, 2, 1}), shape) : nullptr;
}

} // namespace

std::vector<OpDef> define() {
  return {composed("affine_grid", "Positions on a plane or in a volume under an affine map: a matrix times constants",
                   {onnx("AffineGrid", 2, convert, 20)})};
}

} // namespace pdc::ops::AffineGrid
