// See TiledConvolution.h.
#include "TiledConvolution.h"

#if defined(__x86_64__)
#include "ConvolutionTiles.h"
#include "Parts.h"

#include <algorithm>
#include <utility>

namespace pdcrt {

using namespace convolution;

namespace {

using Sizes = TiledConvolution::Sizes;

constexpr std::int64_t floatBytes = sizeof(float), blockBytes = block * block * floatBytes;
constexpr std::int64_t firstLevel = 20 << 10, secondLevel = 256 << 10; ///< bytes of operands that a cache keeps

Sizes forwardSizes(const Conv2d::Options& o) {
  const Shape y = Conv2d::outputShape(o);
  return {.samples = o.input.dims[0],
          .inputs = o.input.dims[1] / block,
          .outputs = o.filter.dims[0] / block,
          .height = o.input.dims[2],
          .width = o.input.dims[3],
          .rows = y.dims[2],
          .columns = y.dims[3],
          .kernelHeight = o.filter.dims[2],
          .kernelWidth = o.filter.dims[3],
          .strideHeight = o.strides.height,
          .strideWidth = o.strides.width,
          .top = o.pads.top,
          .left = o.pads.left,
          .padded = o.pads.top > 0 || o.pads.left > 0 || o.pads.bottom > 0 || o.pads.right > 0};
}

/// dx is dy, with other pads, convolved with the filter turned around.
Sizes backwardSizes(const Sizes& s) {
  Sizes back = s;
  std::swap(back.inputs, back.outputs);
  std::swap(back.height, back.rows);
  std::swap(back.width, back.columns);
  back.top = s.kernelHeight - 1 - s.top;
  back.left = s.kernelWidth - 1 - s.left;
  back.padded = s.taps() > 1;
  return back;
}

/// Without pads and taps a plane is one row.
Sizes flat(Sizes s) {
  if (s.padded || s.taps() > 1 || s.strideHeight > 1 || s.strideWidth > 1) return s;
  s.width = s.columns = s.rows * s.columns;
  s.height = s.rows = 1;
  return s;
}

/// How much is computed at a time: blocks of inputs, so that their part of the filter stays in the first-level cache
/// from sample to sample, and samples, so that these inputs stay in the second from one block of outputs to the next.
struct Portion {
  std::int64_t inputs, samples;

  explicit Portion(const Sizes& s)
      : inputs(std::clamp<std::int64_t>(firstLevel / 2 / (s.taps() * blockBytes), 1, s.inputs)),
        samples(std::clamp<std::int64_t>(
            secondLevel / (inputs * s.paddedHeight() * s.paddedWidth() * block * floatBytes), 1, s.samples)) {}
};

std::size_t paddedBytes(const Sizes& s, std::int64_t planes) {
  return s.padded ? static_cast<std::size_t>(planes * s.paddedHeight() * s.paddedWidth() * block * floatBytes) : 0;
}

std::size_t paddedBytes(const Sizes& s, const Portion& portion) {
  return paddedBytes(s, portion.inputs * portion.samples);
}

/// Planes of x as windows read them.
struct Images {
  const float* data;
  std::int64_t width, plane, sample; ///< positions of a row; floats of a plane and from one sample to the next
};

/// `to` with the pads of one plane around it.
void pad(const Sizes& s, const float* plane, float* to) {
  const std::int64_t height = s.paddedHeight(), width = s.paddedWidth(), count = std::min(s.width, width - s.left);
  for (std::int64_t row = -s.top; row < height - s.top; ++row, to += width * block) {
    if (row < 0 || row >= s.height) {
      std::fill_n(to, width * block, 0.0f);
      continue;
    }
    std::fill_n(to, s.left * block, 0.0f);
    std::copy_n(plane + row * s.width * block, count * block, to + s.left * block);
    std::fill_n(to + (s.left + count) * block, (width - s.left - count) * block, 0.0f);
  }
}

/// The first `inputs` blocks of `samples` samples from x on: where they are or, with pads, copied to `room`.
Images imagesOf(const Sizes& s, const float* x, std::int64_t samples, std::int64_t inputs, float* room) {
  const std::int64_t plane = s.height * s.width * block;
  if (!s.padded) return {x, s.width, plane, s.inputs * plane};
  const std::int64_t padded = s.paddedHeight() * s.paddedWidth() * block;
  for (std::int64_t n = 0; n < samples; ++n)
    for (std::int64_t c = 0; c < inputs; ++c) pad(s, x + (n * s.inputs + c) * plane, room + (n * inputs + c) * padded);
  return {room, s.paddedWidth(), padded, inputs * padded};
}

/// Calls f(row, first column, column behind the last) for the elements of a matrix of so many columns that a part has.
template <class F>
void forEachRow(parts::Range range, std::int64_t columns, const F& f) {
  for (std::int64_t row = range.begin / columns; row * columns < range.end; ++row)
    f(row, std::max(range.begin - row * columns, std::int64_t{0}), std::min(range.end - row * columns, columns));
}

/// Adds the products of some blocks of inputs of one sample to the plane y of one block of outputs.
void addPlane(const Sizes& s, const Images& images, std::int64_t sample, std::int64_t inputs, const float* w,
              const float* bias, bool fresh, float* y) {
  const std::int64_t tiles = (s.columns + tileRows - 1) / tileRows;
  ForwardTile t = {.x = nullptr,
                   .w = w,
                   .start = bias,
                   .y = nullptr,
                   .inputs = inputs,
                   .plane = images.plane,
                   .kernelHeight = s.kernelHeight,
                   .rowFloats = images.width * block,
                   .kernelWidth = s.kernelWidth,
                   .fresh = fresh};
  for (std::int64_t row = 0; row < s.rows; ++row)
    for (std::int64_t tile = 0; tile < tiles; ++tile) { // of sizes that differ by 1 at most
      const std::int64_t first = tile * s.columns / tiles, end = (tile + 1) * s.columns / tiles;
      t.x =
          images.data + sample * images.sample + (row * s.strideHeight * images.width + first * s.strideWidth) * block;
      t.y = y + (row * s.columns + first) * block;
      s.strideWidth == 1 ? runForward<1>(end - first, t) : runForward<2>(end - first, t);
    }
}

void convolve(const Sizes& given, int threads, std::byte* workspace, const float* x, const float* w, const float* bias,
              float* y) {
  const Sizes s = flat(given);
  const Portion portion(s);
  const std::int64_t planeOfX = s.height * s.width * block, planeOfY = s.rows * s.columns * block,
                     filter = s.taps() * block * block, groups = (s.samples + portion.samples - 1) / portion.samples;
  parts::run(threads, [&](int part) {
    float* const room = reinterpret_cast<float*>(workspace + static_cast<std::size_t>(part) * paddedBytes(s, portion));
    const auto some = [&](std::int64_t group, std::int64_t first, std::int64_t end) {
      const std::int64_t n0 = group * portion.samples, samples = std::min(portion.samples, s.samples - n0);
      for (std::int64_t c = 0; c < s.inputs; c += portion.inputs) {
        const std::int64_t inputs = std::min(portion.inputs, s.inputs - c);
        const Images images = imagesOf(s, x + (n0 * s.inputs + c) * planeOfX, samples, inputs, room);
        for (std::int64_t k = first; k < end; ++k)
          for (std::int64_t n = 0; n < samples; ++n)
            addPlane(s, images, n, inputs, w + (k * s.inputs + c) * filter, bias ? bias + k * block : nullptr, c == 0,
                     y + ((n0 + n) * s.outputs + k) * planeOfY);
      }
    };
    forEachRow(parts::rangeOf(part, threads, groups * s.outputs), s.outputs, some);
  });
}

/// Positions of y, from (row, column) on.
struct Patch {
  std::int64_t row, column, rows, columns;
};

/// Adds what a patch of one sample contributes to dw of a block of inputs and a block of outputs.
void addWeights(const Sizes& s, const Patch& p, std::int64_t width, const float* x, const float* dy, bool fresh,
                float* dw) {
  for (std::int64_t i = 0; i < s.kernelHeight; ++i)
    for (std::int64_t j = 0; j < s.kernelWidth; j += 3)
      runAllInputs(std::min<std::int64_t>(3, s.kernelWidth - j),
                   {.x = x + ((p.row * s.strideHeight + i) * width + p.column * s.strideWidth + j) * block,
                    .dy = dy + (p.row * s.columns + p.column) * block,
                    .dw = dw + (i * s.kernelWidth + j) * block * block,
                    .rows = p.rows,
                    .columns = p.columns,
                    .rowOfX = s.strideHeight * width * block,
                    .rowOfDy = s.columns * block,
                    .step = s.strideWidth * block,
                    .fresh = fresh});
}

/// Blocks of inputs that stay in the second-level cache while blocks of outputs meet them. With one tap there is little
/// to do for each position, and inputs are read again and again.
std::int64_t inputsOfWeights(const Sizes& s) {
  return std::min<std::int64_t>(s.inputs, s.taps() == 1 ? 16 : 1);
}

/// Calls f(patch) for all of y, in patches whose inputs, and outputs of one block, stay in the first-level cache.
template <class F>
void forEachPatch(const Sizes& s, const F& f) {
  const std::int64_t columns = std::min<std::int64_t>(s.columns, s.taps() == 1 ? 160 : 64),
                     rowOfX = ((columns - 1) * s.strideWidth + s.kernelWidth) * block * floatBytes,
                     rowOfY = columns * block * floatBytes, rowsOfX = std::min(s.strideHeight, s.kernelHeight),
                     rows = std::clamp<std::int64_t>(
                         (firstLevel - rowOfX * (s.kernelHeight - rowsOfX)) / (rowOfX * rowsOfX + rowOfY), 1, s.rows);
  for (std::int64_t row = 0; row < s.rows; row += rows)
    for (std::int64_t column = 0; column < s.columns; column += columns)
      f(Patch{row, column, std::min(rows, s.rows - row), std::min(columns, s.columns - column)});
}

/// The filter [outputs][inputs][taps][16 of inputs][16 of outputs] as a convolution of dy reads it: inputs and outputs
/// have changed places, taps are in the opposite order.
void turnAround(const Sizes& s, std::int64_t input, const float* w, float* turned) {
  const std::int64_t taps = s.taps(), filter = taps * block * block;
  for (std::int64_t output = 0; output < s.outputs; ++output)
    for (std::int64_t tap = 0; tap < taps; ++tap) {
      const float* const from = w + (output * s.inputs + input) * filter + tap * block * block;
      float* const to = turned + (input * s.outputs + output) * filter + (taps - 1 - tap) * block * block;
      exchangeBlock(from, to);
    }
}

} // namespace

bool TiledConvolution::available() {
  return avx2::available();
}
bool TiledConvolution::preferred() {
  return avx2::preferred();
}
TiledConvolution::TiledConvolution(const Conv2d::Options& o)
    : sizes_(forwardSizes(o)), backward_(backwardSizes(sizes_)) {
  const std::int64_t products = Conv2d::outputShape(o).elements() * sizes_.inputs * sizes_.taps();
  // Of 16 multiply-adds each; so many in a part take longer than waking a thread.
  threads_ = parts::countOf(sizes_.samples * std::min(sizes_.inputs, sizes_.outputs), products);
}

std::size_t TiledConvolution::forwardWorkspace() const {
  return static_cast<std::size_t>(threads_) * paddedBytes(sizes_, Portion(sizes_));
}

std::size_t TiledConvolution::inputGradientWorkspace() const {
  const auto filter = static_cast<std::size_t>(sizes_.inputs * sizes_.outputs * sizes_.taps() * block * block);
  return filter * sizeof(float) + static_cast<std::size_t>(threads_) * paddedBytes(backward_, Portion(backward_));
}

std::size_t TiledConvolution::weightGradientWorkspace() const {
  return static_cast<std::size_t>(threads_) * paddedBytes(sizes_, inputsOfWeights(sizes_));
}

void TiledConvolution::forward(std::byte* workspace, const float* x, const float* w, const float* b, float* y) const {
  convolve(sizes_, threads_, workspace, x, w, b, y);
}

void TiledConvolution::inputGradient(std::byte* workspace, const float* dy, const float* w, float* dx) const {
  float* const turned = reinterpret_cast<float*>(workspace);
  const std::int64_t count = sizes_.inputs * sizes_.outputs * sizes_.taps() * block * block;
  parts::runRanges(threads_, sizes_.inputs, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t input = begin; input < end; ++input) turnAround(sizes_, input, w, turned);
  });
  convolve(backward_, threads_, workspace + static_cast<std::size_t>(count) * sizeof(float), dy, turned, nullptr, dx);
}

void TiledConvolution::weightGradient(std::byte* workspace, const float* x, const float* dy, float* dw,
                                      float* db) const {
  const Sizes s = flat(sizes_);
  const std::int64_t planeOfX = s.height * s.width * block, planeOfY = s.rows * s.columns * block,
                     filter = s.taps() * block * block, atOnce = inputsOfWeights(s),
                     groups = (s.inputs + atOnce - 1) / atOnce;
  parts::run(threads_, [&](int part) {
    float* const room = reinterpret_cast<float*>(workspace + static_cast<std::size_t>(part) * paddedBytes(s, atOnce));
    const auto some = [&](std::int64_t group, std::int64_t first, std::int64_t end) {
      const std::int64_t c0 = group * atOnce, inputs = std::min(atOnce, s.inputs - c0);
      for (std::int64_t n = 0; n < s.samples; ++n) {
        const Images images = imagesOf(s, x + (n * s.inputs + c0) * planeOfX, 1, inputs, room);
        forEachPatch(s, [&](const Patch& patch) {
          const bool fresh = n == 0 && patch.row == 0 && patch.column == 0;
          for (std::int64_t k = first; k < end; ++k)
            for (std::int64_t c = 0; c < inputs; ++c)
              addWeights(s, patch, images.width, images.data + c * images.plane, dy + (n * s.outputs + k) * planeOfY,
                         fresh, dw + (k * s.inputs + c0 + c) * filter);
        });
      }
    };
    forEachRow(parts::rangeOf(part, threads_, groups * s.outputs), s.outputs, some);
  });
  if (db) sumOverPositions(s.samples, s.outputs, s.rows * s.columns, dy, db);
}

} // namespace pdcrt
#else
namespace pdcrt {

bool TiledConvolution::available() {
  return false;
}
bool TiledConvolution::preferred() {
  return false;
}
TiledConvolution::TiledConvolution(const Conv2d::Options&) : sizes_(), backward_(), threads_(1) {}
std::size_t TiledConvolution::forwardWorkspace() const {
  return 0;
}
std::size_t TiledConvolution::inputGradientWorkspace() const {
  return 0;
}
std::size_t TiledConvolution::weightGradientWorkspace() const {
  return 0;
}
void TiledConvolution::forward(std::byte*, const float*, const float*, const float*, float*) const {}
void TiledConvolution::inputGradient(std::byte*, const float*, const float*, float*) const {}
void TiledConvolution::weightGradient(std::byte*, const float*, const float*, float*, float*) const {}

} // namespace pdcrt
#endif
