// See ConvolutionSizes.h.
#include "ConvolutionSizes.h"

#include <algorithm>

namespace pdcrt::convolution {
namespace {

Sizes given(const Conv2d::Options& o) {
  const Shape y = Conv2d::outputShape(o);
  const std::int64_t height = o.input.dims[2], width = o.input.dims[3], rows = y.dims[2], columns = y.dims[3];
  return {.samples = o.input.dims[0],
          .inputs = o.input.dims[1] / block,
          .outputs = o.filter.dims[0] / block,
          .height = height,
          .width = width,
          .rows = rows,
          .columns = columns,
          .kernelHeight = o.filter.dims[2],
          .kernelWidth = o.filter.dims[3],
          .strideHeight = o.strides.height,
          .strideWidth = o.strides.width,
          .top = o.pads.top,
          .left = o.pads.left,
          .padded = o.pads.top > 0 || o.pads.left > 0 || o.pads.bottom > 0 || o.pads.right > 0,
          .source = {height * width * block, 0, width * block, block},
          .results = {rows * columns * block, 0, columns * block, block}};
}

Sizes thinned(Sizes s) {
  if (s.taps() > 1 || s.padded) return s;
  s.source.row *= s.strideHeight;
  s.source.position *= s.strideWidth;
  s.height = s.rows, s.width = s.columns;
  s.strideHeight = s.strideWidth = 1;
  return s;
}

/// Of the positions first, first + stride, ... of one axis of the input: how many there are, the taps that meet them,
/// and the pads before dy, where there are taps.
struct ResidueOfAxis {
  std::int64_t positions, firstTap, taps, before;

  ResidueOfAxis(std::int64_t length, std::int64_t kernel, std::int64_t stride, std::int64_t pads, std::int64_t first)
      : positions((length - first + stride - 1) / stride), firstTap((first + pads) % stride),
        taps((kernel - firstTap + stride - 1) / stride), before(taps - 1 - (first + pads) / stride) {}
};

} // namespace

Sizes forwardSizes(const Conv2d::Options& o) {
  return thinned(given(o));
}

std::vector<Residue> residuesOf(const Conv2d::Options& o) {
  const Sizes s = given(o);
  std::vector<Residue> residues;
  for (std::int64_t i = 0; i < std::min(s.strideHeight, s.height); ++i)
    for (std::int64_t j = 0; j < std::min(s.strideWidth, s.width); ++j) {
      const ResidueOfAxis rows(s.height, s.kernelHeight, s.strideHeight, s.top, i),
          columns(s.width, s.kernelWidth, s.strideWidth, s.left, j);
      Sizes back = {.samples = s.samples,
                    .inputs = s.outputs,
                    .outputs = s.inputs,
                    .height = s.rows,
                    .width = s.columns,
                    .rows = rows.positions,
                    .columns = columns.positions,
                    .kernelHeight = rows.taps,
                    .kernelWidth = columns.taps,
                    .strideHeight = 1,
                    .strideWidth = 1,
                    .top = rows.before,
                    .left = columns.before,
                    .padded = false,
                    .source = {s.rows * s.columns * block, 0, s.columns * block, block},
                    .results = {s.height * s.width * block, (i * s.width + j) * block, s.strideHeight * s.width * block,
                                s.strideWidth * block}};
      back.padded =
          back.top > 0 || back.left > 0 || back.paddedHeight() > back.height || back.paddedWidth() > back.width;
      residues.push_back({back, {rows.firstTap, columns.firstTap}});
    }
  return residues;
}

Sizes flat(Sizes s) {
  if (s.padded || s.taps() != 1 || s.strideHeight > 1 || s.strideWidth > 1) return s;
  s.width = s.columns = s.rows * s.columns;
  s.height = s.rows = 1;
  return s;
}

} // namespace pdcrt::convolution
