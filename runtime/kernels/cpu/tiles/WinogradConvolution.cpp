// See WinogradConvolution.h. Filters, and inputs of some squares of 4x4 outputs at a time, are taken to the 36 points;
// there a convolution is a product of matrices for each, in tiles (ConvolutionTiles.h); its results are taken back.
#include "WinogradConvolution.h"

#if defined(__x86_64__)
#include "WinogradValues.h"
#include "device/cpu/Parts.h"

#include <algorithm>

namespace pdcrt {

using namespace winograd;

namespace {

Sizes sizesOf(const Conv2d::Options& o) {
  const Shape y = Conv2d::outputShape(o);
  return {.samples = o.input.dims[0],
          .inputs = o.input.dims[1] / block,
          .outputs = o.filter.dims[0] / block,
          .height = o.input.dims[2],
          .width = o.input.dims[3],
          .rows = y.dims[2],
          .columns = y.dims[3],
          .top = o.pads.top,
          .left = o.pads.left};
}

/// dx is dy, with other pads, convolved with the filter turned around.
Sizes backwardSizes(const Sizes& s) {
  return {.samples = s.samples,
          .inputs = s.outputs,
          .outputs = s.inputs,
          .height = s.rows,
          .width = s.columns,
          .rows = s.height,
          .columns = s.width,
          .top = 2 - s.top,
          .left = 2 - s.left};
}

/// A filter at the points: [36][outputs][inputs][16 of inputs][16 of outputs].
Values filterAt(const Sizes& s, float* data) {
  return {data, s.outputs * s.inputs, block};
}
std::int64_t filterFloats(const Sizes& s) {
  return Values::floatsOf(s.inputs * s.outputs, block);
}

/// Whether a filter at the points, four times as large as it is otherwise, would go through memory. It is computed in
/// portions then, which stay in the second-level cache until they have been multiplied by the values of many squares.
bool takesPortions(const Sizes& s) {
  return filterFloats(s) > 3 << 19;
}

/// Some outputs and some inputs of a filter.
struct Portion {
  static constexpr std::int64_t most = 8; ///< blocks: 288 KiB at the points
  std::int64_t output, outputs, input, inputs;

  static std::int64_t floats() { return Values::floatsOf(most, block); }
  /// The outputs of a portion, where there are enough.
  static std::int64_t mostOutputs() { return tiles().outputs; }
};

/// Calls f(portion) for all portions of some outputs, at most Portion::mostOutputs().
template <class F>
void forEachPortion(const Sizes& s, std::int64_t output, std::int64_t outputs, const F& f) {
  const std::int64_t most = Portion::most / outputs;
  for (std::int64_t input = 0; input < s.inputs; input += most)
    f(Portion{output, outputs, input, std::min(most, s.inputs - input)});
}

/// Calls f(first, count) for the outputs of the range, as many at a time as portions have.
template <class F>
void forEachOutputs(const parts::Range& range, const F& f) {
  for (std::int64_t output = range.begin; output < range.end; output += Portion::mostOutputs())
    f(output, std::min(Portion::mostOutputs(), range.end - output));
}

/// Squares of outputs that are computed at a time: so many that their values at the points stay in a cache. That is the
/// second-level cache beside a filter that fits in there as well. Otherwise it is one that processors share, of which
/// filters in portions get more, since they are computed again for each time, and gradients, which are added up in
/// memory each time.
std::int64_t squaresAtOnce(const Sizes& s, bool filterGradient) {
  constexpr std::int64_t kib = 1 << 10;
  const auto bytesOf = [](std::int64_t floats) { return floats * static_cast<std::int64_t>(sizeof(float)); };
  const bool smallFilter = bytesOf(filterFloats(s)) <= 640 * kib;
  std::int64_t cacheBytes = (smallFilter ? 512 : 2048) * kib;
  if (filterGradient) cacheBytes = 4096 * kib;
  if (takesPortions(s)) cacheBytes = 10240 * kib;
  const std::int64_t bytes = bytesOf(allPoints * (s.inputs + s.outputs) * block), rows = tiles().rows,
                     fit = std::max<std::int64_t>(cacheBytes / bytes, 24) / rows * rows,
                     groups = (s.squares() + fit - 1) / fit, each = (s.squares() + groups - 1) / groups;
  return (each + rows - 1) / rows * rows;
}

/// m = v · u at all points, for `count` squares, or added to m after the first inputs. `u` is of the portion only, `m`
/// of its outputs.
void multiply(const Portion& p, std::int64_t count, const Values& v, const Values& u, const Values& m) {
  const convolution::Tiles& tiles = convolution::tiles();
  const std::int64_t parts = (count + tiles.rows - 1) / tiles.rows;
  for (std::int64_t point = 0; point < allPoints; ++point)
    for (std::int64_t k = 0; k < p.outputs; k += tiles.outputs) {
      convolution::ForwardTile t = {.x = nullptr,
                                    .w = u.at(point, k * p.inputs, 0),
                                    .before = nullptr,
                                    .start = nullptr,
                                    .y = nullptr,
                                    .inputs = p.inputs,
                                    .plane = v.count * block,
                                    .kernelHeight = 1,
                                    .rowFloats = 0,
                                    .kernelWidth = 1,
                                    .relu = false,
                                    .outputOfW = p.inputs * blockFloats,
                                    .outputOfY = m.count * block};
      for (std::int64_t tile = 0; tile < parts; ++tile) {
        const std::int64_t first = tile * count / parts, end = (tile + 1) * count / parts;
        t.x = v.at(point, p.input, first), t.y = m.at(point, k, first);
        t.before = p.input == 0 ? nullptr : t.y;
        tiles.forward(end - first, 1, std::min(tiles.outputs, p.outputs - k), t);
      }
    }
}

/// du = transposed v · m at one point, or added to it. `du` is of the portion only.
void multiplyToFilter(const Portion& p, std::int64_t point, std::int64_t count, const Values& v, const Values& m,
                      bool fresh, const Values& du) {
  for (std::int64_t k = 0; k < p.outputs; k += 2)
    for (std::int64_t c = 0; c < p.inputs; ++c)
      tiles().weights(std::min<std::int64_t>(2, p.outputs - k), 1,
                      {.x = v.at(point, p.input + c, 0),
                       .dy = m.at(point, p.output + k, 0),
                       .dw = du.at(point, k * p.inputs + c, 0),
                       .rows = 1,
                       .columns = count,
                       .rowOfX = 0,
                       .rowOfDy = 0,
                       .step = block,
                       .outputOfDy = m.count * block,
                       .outputOfDw = p.inputs * du.count * block,
                       .fresh = fresh});
}

/// Calls f(first square, count) for the squares of each time, in their order.
template <class F>
void forEachTime(const Sizes& s, std::int64_t atOnce, const F& f) {
  for (std::int64_t square = 0; square < s.squares(); square += atOnce)
    f(square, std::min(atOnce, s.squares() - square));
}

/// Of the filter at the points as a whole, and of values of inputs and outputs for each thread.
std::int64_t floatsWithAll(const Sizes& s, int threads) {
  const std::int64_t atOnce = squaresAtOnce(s, /*filterGradient=*/false);
  return filterFloats(s) + threads * (Values::floatsOf(s.inputs, atOnce) + Values::floatsOf(s.outputs, atOnce));
}

/// With the filter at the points as a whole. Threads share the squares.
void convolveWithAll(const Sizes& s, int threads, const Filter& filter, float* room, const float* x,
                     const Finish& finish, float* y) {
  const Values u = filterAt(s, room);
  parts::runRanges(threads, u.blocks, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) filter.transform(s, i / s.inputs, i % s.inputs, u, i);
  });
  const std::int64_t atOnce = squaresAtOnce(s, /*filterGradient=*/false), groups = (s.squares() + atOnce - 1) / atOnce;
  const std::int64_t inputFloats = Values::floatsOf(s.inputs, atOnce),
                     outputFloats = Values::floatsOf(s.outputs, atOnce);
  parts::run(threads, [&](int part) {
    float* const mine = room + filterFloats(s) + part * (inputFloats + outputFloats);
    const Values v = {mine, s.inputs, atOnce}, m = {mine + inputFloats, s.outputs, atOnce};
    const parts::Range range = parts::rangeOf(part, threads, groups);
    for (std::int64_t square = range.begin * atOnce; square < std::min(range.end * atOnce, s.squares());
         square += atOnce) {
      const std::int64_t count = std::min(atOnce, s.squares() - square);
      for (std::int64_t i = 0; i < count; ++i) transformInputs(s, x, square + i, v, i);
      multiply({0, s.outputs, 0, s.inputs}, count, v, u, m);
      for (std::int64_t i = 0; i < count; ++i) transformOutputs(s, 0, s.outputs, m, i, finish, square + i, y);
    }
  });
}

/// Of values of inputs, and of a portion and values of its outputs for each thread.
std::int64_t floatsInPortions(const Sizes& s, int threads) {
  const std::int64_t atOnce = squaresAtOnce(s, /*filterGradient=*/false);
  return Values::floatsOf(s.inputs, atOnce) +
         threads * (Portion::floats() + Values::floatsOf(Portion::mostOutputs(), atOnce));
}

/// With portions of the filter, one after the other. Threads share the outputs.
void convolveInPortions(const Sizes& s, int threads, const Filter& filter, float* room, const float* x,
                        const Finish& finish, float* y) {
  const std::int64_t atOnce = squaresAtOnce(s, /*filterGradient=*/false),
                     outputFloats = Values::floatsOf(Portion::mostOutputs(), atOnce);
  const Values v = {room, s.inputs, atOnce};
  forEachTime(s, atOnce, [&](std::int64_t square, std::int64_t count) {
    parts::runRanges(threads, count, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) transformInputs(s, x, square + i, v, i);
    });
    parts::run(threads, [&](int part) {
      float* const mine = room + Values::floatsOf(s.inputs, atOnce) + part * (outputFloats + Portion::floats());
      forEachOutputs(parts::rangeOf(part, threads, s.outputs), [&](std::int64_t output, std::int64_t outputs) {
        const Values m = {mine, outputs, atOnce};
        forEachPortion(s, output, outputs, [&](const Portion& p) {
          const Values u = {mine + outputFloats, p.outputs * p.inputs, block};
          for (std::int64_t k = 0; k < p.outputs; ++k)
            for (std::int64_t i = 0; i < p.inputs; ++i)
              filter.transform(s, output + k, p.input + i, u, k * p.inputs + i);
          multiply(p, count, v, u, m);
        });
        for (std::int64_t i = 0; i < count; ++i) transformOutputs(s, output, outputs, m, i, finish, square + i, y);
      });
    });
  });
}

std::size_t bytesToConvolve(const Sizes& s, int threads) {
  const std::int64_t floats = takesPortions(s) ? floatsInPortions(s, threads) : floatsWithAll(s, threads);
  return static_cast<std::size_t>(floats) * sizeof(float);
}

void convolve(const Sizes& s, int threads, const Filter& filter, std::byte* workspace, const float* x,
              const Finish& finish, float* y) {
  (takesPortions(s) ? convolveInPortions : convolveWithAll)(s, threads, filter, reinterpret_cast<float*>(workspace), x,
                                                            finish, y);
}

} // namespace

WinogradConvolution::WinogradConvolution(const Conv2d::Options& o)
    : sizes_(sizesOf(o)), backward_(backwardSizes(sizes_)), relu_(o.relu) {
  threads_ = parts::countOf(std::min(sizes_.squares(), sizes_.inputs * sizes_.outputs),
                            Conv2d::outputShape(o).elements() * sizes_.inputs);
}

std::size_t WinogradConvolution::forwardWorkspace() const {
  return bytesToConvolve(sizes_, threads_);
}

std::size_t WinogradConvolution::inputGradientWorkspace() const {
  return bytesToConvolve(backward_, threads_);
}

std::size_t WinogradConvolution::weightGradientWorkspace() const {
  const std::int64_t atOnce = squaresAtOnce(sizes_, /*filterGradient=*/true),
                     values = Values::floatsOf(sizes_.inputs, atOnce) + Values::floatsOf(sizes_.outputs, atOnce),
                     filter = takesPortions(sizes_) ? threads_ * Portion::floats() : filterFloats(sizes_);
  return static_cast<std::size_t>(values + filter) * sizeof(float);
}

void WinogradConvolution::forward(std::byte* workspace, const float* x, const float* w, const float* b,
                                  float* y) const {
  convolve(sizes_, threads_, {w, false}, workspace, x, {.bias = b, .relu = relu_}, y);
}

void WinogradConvolution::forwardPooled(std::byte* workspace, const float* x, const float* w, const float* b,
                                        float* maxima, std::int32_t* index) const {
  convolve(sizes_, threads_, {w, false}, workspace, x, {.bias = b, .relu = relu_, .pooled = true, .index = index},
           maxima);
}

void WinogradConvolution::inputGradient(std::byte* workspace, const float* dy, const float* w, const float* added,
                                        float* dx) const {
  convolve(backward_, threads_, {w, true}, workspace, dy, {.added = added}, dx);
}

void WinogradConvolution::weightGradient(std::byte* workspace, const float* x, const float* dy, float* dw,
                                         float* db) const {
  const Sizes& s = sizes_;
  const std::int64_t atOnce = squaresAtOnce(s, /*filterGradient=*/true);
  const Values v = {reinterpret_cast<float*>(workspace), s.inputs, atOnce},
               m = {v.data + Values::floatsOf(s.inputs, atOnce), s.outputs, atOnce};
  float* const room = m.data + Values::floatsOf(s.outputs, atOnce); // for the filter, or for portions of it
  const auto gradientOf = [&](std::int64_t output, std::int64_t input) {
    return dw + (output * s.inputs + input) * allTaps * blockFloats;
  };
  forEachTime(s, atOnce, [&](std::int64_t square, std::int64_t count) {
    const bool fresh = square == 0;
    parts::runRanges(threads_, count, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        transformInputs(s, x, square + i, v, i);
        transformOutputGradients(s, dy, square + i, m, i);
      }
    });
    if (!takesPortions(s))
      return parts::runRanges(threads_, allPoints, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t point = begin; point < end; ++point)
          multiplyToFilter({0, s.outputs, 0, s.inputs}, point, count, v, m, fresh, filterAt(s, room));
      });
    parts::run(threads_, [&](int part) {
      forEachOutputs(parts::rangeOf(part, threads_, s.outputs), [&](std::int64_t output, std::int64_t outputs) {
        forEachPortion(s, output, outputs, [&](const Portion& p) {
          const Values du = {room + part * Portion::floats(), p.outputs * p.inputs, block};
          for (std::int64_t point = 0; point < allPoints; ++point) multiplyToFilter(p, point, count, v, m, true, du);
          for (std::int64_t k = 0; k < p.outputs; ++k)
            for (std::int64_t i = 0; i < p.inputs; ++i)
              transformFilterGradient(du, k * p.inputs + i, fresh, gradientOf(output + k, p.input + i));
        });
      });
    });
  });
  if (!takesPortions(s))
    parts::runRanges(threads_, s.outputs * s.inputs, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i)
        transformFilterGradient(filterAt(s, room), i, true, gradientOf(i / s.inputs, i % s.inputs));
    });
  if (db) convolution::sumOverPositions(s.samples, s.outputs, s.rows * s.columns, dy, db);
}

} // namespace pdcrt
#else
namespace pdcrt {

WinogradConvolution::WinogradConvolution(const Conv2d::Options&) : sizes_(), backward_(), threads_(1) {}
std::size_t WinogradConvolution::forwardWorkspace() const {
  return 0;
}
std::size_t WinogradConvolution::inputGradientWorkspace() const {
  return 0;
}
std::size_t WinogradConvolution::weightGradientWorkspace() const {
  return 0;
}
void WinogradConvolution::forward(std::byte*, const float*, const float*, const float*, float*) const {}
void WinogradConvolution::forwardPooled(std::byte*, const float*, const float*, const float*, float*,
                                        std::int32_t*) const {}
void WinogradConvolution::inputGradient(std::byte*, const float*, const float*, const float*, float*) const {}
void WinogradConvolution::weightGradient(std::byte*, const float*, const float*, float*, float*) const {}

} // namespace pdcrt
#endif
