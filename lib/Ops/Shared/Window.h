// How a window slides over the two spatial axes of [N, C, H, W]: attributes of convolution and pooling, shapes, and
// what ONNX says about them.
#pragma once

#include "Convert/Onnx.h"
#include "Shared/Define.h"

namespace pdc::ops {

/// One window geometry. Axis 0 is height, axis 1 width.
struct Window {
  std::int64_t kernel[2] = {1, 1};
  std::int64_t strides[2] = {1, 1};
  std::int64_t before[2] = {0, 0}, after[2] = {0, 0};
  std::int64_t dilations[2] = {1, 1};

  /// Elements from the first to the last tap.
  std::int64_t extent(int axis) const { return dilations[axis] * (kernel[axis] - 1) + 1; }
  /// Windows along an axis of `size` elements: floor((size + pads - extent) / stride) + 1. With `roundUp`, one more
  /// where a rest is left, unless it would start in the padding at the end (as ONNX since opset 19, and PyTorch).
  std::int64_t count(int axis, std::int64_t size, bool roundUp = false) const;

  pdcrt::Dims2 kernelDims() const { return {kernel[0], kernel[1]}; }
  pdcrt::Dims2 stridesDims() const { return {strides[0], strides[1]}; }
  pdcrt::Dims2 dilationsDims() const { return {dilations[0], dilations[1]}; }
  pdcrt::Pads2 padsDims() const { return {before[0], before[1], after[0], after[1]}; }
};

/// Definitions of `strides`, `pads` and `dilations`.
std::vector<AttributeDef> windowAttributes(bool kernel, bool dilations);
/// The window that an operation's attributes state (`kernel` of a convolution is set by the caller).
Window windowOf(const Attributes& attributes);
/// Reports attributes of the wrong length, zero or negative sizes, and windows larger than the padded plane of
/// `height` × `width`.
Status checkWindow(const InferContext& c, const char* op, const Window& window, std::int64_t height,
                   std::int64_t width);
/// Reports unless the attributes have one entry per axis; before windowOf.
Status checkWindowAttributes(const InferContext& c, const char* op);

/// The same along one axis of an ONNX node, which may have one to three of them.
struct WindowAxis {
  std::int64_t kernel = 1, stride = 1, before = 0, after = 0, dilation = 1;

  std::int64_t extent() const { return dilation * (kernel - 1) + 1; }
  /// As Window::count.
  std::int64_t count(std::int64_t size, bool roundUp = false) const;
};

/// Reads kernel_shape (absent: `kernel`), strides, dilations, pads and auto_pad of a node over spatial axes of sizes
/// `sizes`. Nothing, with an error reported, when they do not fit.
std::optional<std::vector<WindowAxis>> readWindows(OnnxReader& n, const std::vector<std::int64_t>& sizes,
                                                   std::optional<std::vector<std::int64_t>> kernel);
/// The attributes `strides`, `pads` and, if asked for, `dilations` of an operation over a plane.
Attributes planeAttributes(const WindowAxis& height, const WindowAxis& width, bool dilations);

} // namespace pdc::ops
