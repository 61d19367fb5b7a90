// What is the same for convolutions on every target: shapes, and what profiles call them.
#include "pdcrt/kernels/Conv2d.h"

#include "ConvolutionOptions.h"
#include "Shapes.h"

#include <stdexcept>

namespace pdcrt {
namespace {

/// Output size of one axis; 0 or less: the filter does not fit.
std::int64_t outputSize(std::int64_t input, std::int64_t pads, std::int64_t kernel, std::int64_t stride,
                        std::int64_t dilation) {
  const std::int64_t room = input + pads - dilation * (kernel - 1) - 1;
  return room < 0 ? 0 : room / stride + 1;
}

/// "{2, 64, 56, 56}"
std::string listOf(std::initializer_list<std::int64_t> values) {
  std::string text = "{";
  for (std::int64_t value : values) text += (text.size() > 1 ? ", " : "") + std::to_string(value);
  return text + "}";
}
std::string listOf(const Shape& s) {
  return listOf({s.dims[0], s.dims[1], s.dims[2], s.dims[3]});
}

} // namespace

Shape Conv2d::outputShape(const Options& o) {
  return {
      o.input.dims[0], o.filter.dims[0],
      outputSize(o.input.dims[2], o.pads.top + o.pads.bottom, o.filter.dims[2], o.strides.height, o.dilations.height),
      outputSize(o.input.dims[3], o.pads.left + o.pads.right, o.filter.dims[3], o.strides.width, o.dilations.width)};
}

std::string Conv2d::profileName(const Options& o) {
  std::string text = "Conv2d{.input = " + listOf(o.input) + ", .filter = " + listOf(o.filter);
  if (o.strides != Dims2{1, 1}) text += ", .strides = " + listOf({o.strides.height, o.strides.width});
  if (o.pads != Pads2{}) text += ", .pads = " + listOf({o.pads.top, o.pads.left, o.pads.bottom, o.pads.right});
  if (o.dilations != Dims2{1, 1}) text += ", .dilations = " + listOf({o.dilations.height, o.dilations.width});
  if (o.groups != 1) text += ", .groups = " + std::to_string(o.groups);
  if (o.inputLanes != 1) text += ", .inputLanes = " + std::to_string(o.inputLanes);
  if (o.outputLanes != 1) text += ", .outputLanes = " + std::to_string(o.outputLanes);
  if (o.element != Element::f32)
    text += std::string(", .element = pdcrt::Element::") + (o.element == Element::bf16 ? "bf16" : "f16");
  return text + "}";
}

void refuseConvolution(const Conv2d::Options& o, const std::string& why) {
  throw std::runtime_error("convolution of " + toString(o.input) + " with filter " + toString(o.filter) + ": " + why);
}

void checkConvolution(const Conv2d::Options& o) {
  if (o.input.rank != 4 || o.filter.rank != 4) refuseConvolution(o, "both need 4 dimensions");
  if (o.strides.height < 1 || o.strides.width < 1 || o.dilations.height < 1 || o.dilations.width < 1)
    refuseConvolution(o, "strides and dilations must be positive");
  if (!lanesFit(o.inputLanes, o.input.dims[1]) || !lanesFit(o.outputLanes, o.filter.dims[0]))
    refuseConvolution(o, "lanes must be 1, or 16 where they divide the channels");
  if (o.groups < 1 || o.filter.dims[1] * o.groups != o.input.dims[1])
    refuseConvolution(o, "the input has " + std::to_string(o.input.dims[1]) + " channels, the filter takes " +
                             std::to_string(o.filter.dims[1]) + " in each of " + std::to_string(o.groups) + " groups");
  if (o.filter.dims[0] % o.groups)
    refuseConvolution(o,
                      std::to_string(o.filter.dims[0]) + " output channels in " + std::to_string(o.groups) + " groups");
  for (Conv2d::Algorithm algorithm : {o.algorithms.forward, o.algorithms.inputGradient, o.algorithms.weightGradient})
    if ((algorithm == Conv2d::Algorithm::winograd || algorithm == Conv2d::Algorithm::tiledWinograd) &&
        !Conv2d::takesWinograd(o))
      refuseConvolution(o, "Winograd's algorithm is for filters of 3x3 with strides and dilations of 1, in one group");
  constexpr Conv2d::Algorithm tiled = Conv2d::Algorithm::tiled;
  const bool forwardInTiles = o.algorithms.forward == tiled || o.algorithms.weightGradient == tiled;
  if ((forwardInTiles && !Conv2d::takesTiles(o)) ||
      (o.algorithms.inputGradient == tiled && !Conv2d::takesTilesBackward(o)))
    refuseConvolution(
        o, "tiles are for channels and filters in blocks, in one group, dilations of 1, strides of 1 or 2; "
           "of the input's gradient for pads smaller than the filter, those before the input by a stride or none");
  for (Conv2d::Algorithm algorithm : {o.algorithms.forward, o.algorithms.inputGradient, o.algorithms.weightGradient})
    if (algorithm == Conv2d::Algorithm::tiledWinograd && !Conv2d::takesTiledWinograd(o))
      refuseConvolution(
          o, "Winograd's algorithm in tiles is for channels and filters in blocks, and pads smaller than the filter");
  const Shape output = Conv2d::outputShape(o);
  if (output.dims[2] < 1 || output.dims[3] < 1) refuseConvolution(o, "the filter is larger than the padded input");
}

} // namespace pdcrt
