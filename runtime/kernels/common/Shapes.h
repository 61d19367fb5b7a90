// What the kernels do with shapes.
#pragma once

#include "pdcrt/Shape.h"

#include <string>

namespace pdcrt {

/// "2x64x56x56", for messages; "scalar" for no dimensions.
inline std::string toString(const Shape& shape) {
  std::string text;
  for (int i = 0; i < shape.rank; ++i) text += (i ? "x" : "") + std::to_string(shape.dims[i]);
  return shape.rank ? text : "scalar";
}

/// Appends a dimension; the caller knows that there is room.
inline void append(Shape& shape, std::int64_t dim) {
  shape.dims[shape.rank++] = dim;
}

/// Steps `index` to the next position of `shape` in row-major order, and `offset` by the strides with it. Returns false
/// after the last.
inline bool advance(const Shape& shape, const std::int64_t* strides, std::int64_t* index, std::int64_t& offset) {
  for (int axis = shape.rank - 1; axis >= 0; --axis) {
    offset += strides[axis];
    if (++index[axis] < shape.dims[axis]) return true;
    offset -= strides[axis] * shape.dims[axis];
    index[axis] = 0;
  }
  return false;
}

/// Whether so many channels can lie together at each position of a plane.
inline bool lanesFit(std::int64_t lanes, std::int64_t channels) {
  return lanes == 1 || (lanes == 16 && channels % lanes == 0);
}

} // namespace pdcrt
