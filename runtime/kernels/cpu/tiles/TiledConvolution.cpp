// See TiledConvolution.h.
#include "TiledConvolution.h"

#if defined(__x86_64__)
#include "ConvolutionTiles.h"
#include "device/cpu/Parts.h"

#include <algorithm>

namespace pdcrt {

using namespace convolution;

namespace {

constexpr std::int64_t floatBytes = sizeof(float), blockBytes = block * block * floatBytes;
constexpr std::int64_t firstLevel = 20 << 10, secondLevel = 256 << 10; ///< bytes of operands that a cache keeps

std::size_t imageBytes(const Sizes& s, std::int64_t planes) {
  return s.copiesImages() ? static_cast<std::size_t>(planes * s.paddedHeight() * s.paddedWidth() * block * floatBytes)
                          : 0;
}

/// `count` in parts of at most `most`, as equal as can be: the size of all but the last.
std::int64_t evenly(std::int64_t count, std::int64_t most) {
  const std::int64_t parts = (count + most - 1) / most;
  return (count + parts - 1) / parts;
}

/// How much is computed at a time: blocks of inputs, so that their part of the filter stays in the first-level cache
/// from sample to sample, samples, so that these inputs stay in the second from one block of outputs to the next, and
/// blocks of outputs, so that results which are computed apart stay there as well.
struct Portion {
  std::int64_t inputs, samples, outputs;

  explicit Portion(const Sizes& s)
      : inputs(evenly(s.inputs, std::clamp<std::int64_t>(firstLevel / 2 / (s.taps() * blockBytes), 1, s.inputs))),
        samples(std::clamp<std::int64_t>(
            secondLevel / (inputs * s.paddedHeight() * s.paddedWidth() * block * floatBytes), 1, s.samples)),
        outputs(s.outputs) {
    if (s.scattersResults())
      outputs =
          std::clamp<std::int64_t>(secondLevel / 2 / (samples * s.rows * s.columns * block * floatBytes), 1, s.outputs);
  }
};

std::size_t imageBytes(const Sizes& s, const Portion& portion) {
  return imageBytes(s, portion.inputs * portion.samples);
}

/// What a thread needs: a copy of images, then results that are computed apart.
std::size_t roomBytes(const Sizes& s) {
  const Portion portion(s);
  const std::int64_t results =
      s.scattersResults() ? portion.outputs * portion.samples * s.rows * s.columns * block * floatBytes : 0;
  return imageBytes(s, portion) + static_cast<std::size_t>(results);
}

/// Planes of x as windows read them.
struct Images {
  const float* data;
  std::int64_t width, plane, sample; ///< positions of a row; floats of a plane and from one sample to the next
};

/// `to` with the pads of one plane around it.
void copyImage(const Sizes& s, const float* plane, float* to) {
  const std::int64_t height = s.paddedHeight(), width = s.paddedWidth(), count = std::min(s.width, width - s.left);
  for (std::int64_t row = -s.top; row < height - s.top; ++row, to += width * block) {
    if (row < 0 || row >= s.height) {
      std::fill_n(to, width * block, 0.0f);
      continue;
    }
    const float* from = plane + s.source.first + row * s.source.row;
    std::fill_n(to, s.left * block, 0.0f);
    if (s.source.position == block)
      std::copy_n(from, count * block, to + s.left * block);
    else
      for (std::int64_t i = 0; i < count; ++i, from += s.source.position)
        std::copy_n(from, block, to + (s.left + i) * block);
    std::fill_n(to + (s.left + count) * block, (width - s.left - count) * block, 0.0f);
  }
}

/// The first `inputs` blocks of `samples` samples from x on: where they are, or copied to `room`.
Images imagesOf(const Sizes& s, const float* x, std::int64_t samples, std::int64_t inputs, float* room) {
  if (!s.copiesImages()) return {x, s.width, s.source.plane, s.inputs * s.source.plane};
  const std::int64_t plane = s.paddedHeight() * s.paddedWidth() * block;
  for (std::int64_t n = 0; n < samples; ++n)
    for (std::int64_t c = 0; c < inputs; ++c)
      copyImage(s, x + (n * s.inputs + c) * s.source.plane, room + (n * inputs + c) * plane);
  return {room, s.paddedWidth(), plane, inputs * plane};
}

/// A plane of results, added to those of `added`, where there are some, to its places among others.
void scatter(const Sizes& s, const float* from, const float* added, float* plane) {
  for (std::int64_t row = 0; row < s.rows; ++row) {
    std::int64_t at = s.results.first + row * s.results.row;
    for (std::int64_t column = 0; column < s.columns; ++column, from += block, at += s.results.position)
      for (std::int64_t i = 0; i < block; ++i) plane[at + i] = added ? added[at + i] + from[i] : from[i];
  }
}

/// Calls f(row, first column, column behind the last) for the elements of a matrix of so many columns that a part has.
template <class F>
void forEachRow(parts::Range range, std::int64_t columns, const F& f) {
  for (std::int64_t row = range.begin / columns; row * columns < range.end; ++row)
    f(row, std::max(range.begin - row * columns, std::int64_t{0}), std::min(range.end - row * columns, columns));
}

/// Planes of y, of one or two blocks of outputs: what was there before, or the bias, or 0, and the products of some
/// blocks of inputs of one sample.
void addPlanes(const Sizes& s, const Images& images, std::int64_t sample, std::int64_t inputs, std::int64_t outputs,
               const float* w, const float* before, const float* bias, bool relu, float* y, std::int64_t outputOfY) {
  const Tiles& tiles = convolution::tiles();
  const std::int64_t inRow = (s.columns + tiles.rows - 1) / tiles.rows;
  ForwardTile t = {.x = nullptr,
                   .w = w,
                   .before = nullptr,
                   .start = bias,
                   .y = nullptr,
                   .inputs = inputs,
                   .plane = images.plane,
                   .kernelHeight = s.kernelHeight,
                   .rowFloats = images.width * block,
                   .kernelWidth = s.kernelWidth,
                   .relu = relu,
                   .outputOfW = s.inputs * s.taps() * block * block,
                   .outputOfY = outputOfY};
  for (std::int64_t row = 0; row < s.rows; ++row)
    for (std::int64_t tile = 0; tile < inRow; ++tile) { // of sizes that differ by 1 at most
      const std::int64_t first = tile * s.columns / inRow, end = (tile + 1) * s.columns / inRow;
      t.x =
          images.data + sample * images.sample + (row * s.strideHeight * images.width + first * s.strideWidth) * block;
      t.y = y + (row * s.columns + first) * block;
      if (before) t.before = before + (t.y - y);
      // With one tap there is little to do for what is read, and of each plane it is only a piece.
      if (s.taps() == 1) t.nextX = (end - first) * s.strideWidth * block;
      tiles.forward(end - first, s.strideWidth, outputs, t);
    }
}

/// Results of groups of samples for some blocks of outputs, each group by one thread with a room of roomBytes().
class Convolution {
public:
  Convolution(const Sizes& s, const float* x, const float* w, const Finish& finish, float* y)
      : given_(s), s_(flat(s)), portion_(s), x_(x), w_(w), finish_(finish), y_(y) {}

  std::int64_t groups() const { return (s_.samples + portion_.samples - 1) / portion_.samples; }

  /// Blocks of outputs [first, end) of a group.
  void compute(std::int64_t group, std::int64_t first, std::int64_t end, std::byte* room) const {
    for (std::int64_t k = first; k < end; k += portion_.outputs)
      computeSome(group * portion_.samples, k, std::min(k + portion_.outputs, end), room);
  }

private:
  void computeSome(std::int64_t n0, std::int64_t first, std::int64_t end, std::byte* room) const {
    const bool apart = given_.scattersResults();
    float* const images = reinterpret_cast<float*>(room);
    float* const results = reinterpret_cast<float*>(room + imageBytes(given_, portion_));
    const std::int64_t samples = std::min(portion_.samples, s_.samples - n0), filter = s_.taps() * block * block,
                       plane = s_.rows * s_.columns * block;
    const auto place = [&](std::int64_t n, std::int64_t k) { return ((n0 + n) * s_.outputs + k) * s_.results.plane; };
    const auto computed = [&](std::int64_t n, std::int64_t k) {
      return apart ? results + ((k - first) * portion_.samples + n) * plane : y_ + place(n, k);
    };
    const auto added = [&](std::int64_t n, std::int64_t k) {
      return finish_.added ? finish_.added + place(n, k) : nullptr;
    };
    for (std::int64_t c = 0; c < s_.inputs; c += portion_.inputs) {
      const std::int64_t inputs = std::min(portion_.inputs, s_.inputs - c);
      const Images read = imagesOf(given_, x_ + (n0 * s_.inputs + c) * s_.source.plane, samples, inputs, images);
      for (std::int64_t k = first; k < end; k += tiles().outputs)
        for (std::int64_t n = 0; n < samples; ++n)
          addPlanes(s_, read, n, inputs, std::min(tiles().outputs, end - k), w_ + (k * s_.inputs + c) * filter,
                    c > 0   ? computed(n, k)
                    : apart ? nullptr
                            : added(n, k),
                    finish_.biasOf(k), finish_.relu && c + inputs == s_.inputs, computed(n, k),
                    computed(n, k + 1) - computed(n, k));
    }
    if (!apart) return;
    for (std::int64_t n = 0; n < samples; ++n)
      for (std::int64_t k = first; k < end; ++k) scatter(given_, computed(n, k), added(n, k), y_ + place(n, k));
  }

  Sizes given_, s_;
  Portion portion_;
  const float *x_, *w_;
  Finish finish_;
  float* y_;
};

/// The positions of dx that no tap meets become 0, or what is `added` to.
void clear(const Sizes& s, int threads, const float* added, float* dx) {
  if (added == dx) return;
  parts::runRanges(threads, s.samples * s.outputs, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t plane = begin; plane < end; ++plane)
      for (std::int64_t row = 0; row < s.rows; ++row) {
        std::int64_t at = plane * s.results.plane + s.results.first + row * s.results.row;
        for (std::int64_t column = 0; column < s.columns; ++column, at += s.results.position)
          if (added)
            std::copy_n(added + at, block, dx + at);
          else
            std::fill_n(dx + at, block, 0.0f);
      }
  });
}

void convolve(const Sizes& s, int threads, std::byte* workspace, const float* x, const float* w, const Finish& finish,
              float* y) {
  const Convolution convolution(s, x, w, finish, y);
  parts::run(threads, [&](int part) {
    std::byte* const room = workspace + static_cast<std::size_t>(part) * roomBytes(s);
    forEachRow(parts::rangeOf(part, threads, convolution.groups() * s.outputs), s.outputs,
               [&](std::int64_t group, std::int64_t first, std::int64_t end) {
                 convolution.compute(group, first, end, room);
               });
  });
}

/// Positions of y, from (row, column) on; of a plane that is one row a row for each of some samples.
struct Patch {
  std::int64_t row, column, rows, columns;
};

/// What of x and dy is fetched while a patch is added, as WeightTile has it.
struct Next {
  std::int64_t x, dy;
};

/// Adds what a patch contributes to dw of a block of inputs and one or two blocks of outputs.
void addWeights(const Sizes& s, const Patch& p, const Images& images, std::int64_t outputs, const float* x,
                const float* dy, const Next& next, bool fresh, float* dw) {
  const bool isOneRow = s.rows == 1 && s.taps() == 1;
  const std::int64_t width = images.width;
  for (std::int64_t i = 0; i < s.kernelHeight; ++i)
    for (std::int64_t j = 0; j < s.kernelWidth; j += 3)
      tiles().weights(outputs, std::min<std::int64_t>(3, s.kernelWidth - j),
                      {.x = x + ((p.row * s.strideHeight + i) * width + p.column * s.strideWidth + j) * block,
                       .dy = dy + (p.row * s.columns + p.column) * block,
                       .dw = dw + (i * s.kernelWidth + j) * block * block,
                       .rows = p.rows,
                       .columns = p.columns,
                       .rowOfX = isOneRow ? images.sample : s.strideHeight * width * block,
                       .rowOfDy = isOneRow ? s.outputs * s.results.plane : s.columns * block,
                       .step = s.strideWidth * block,
                       .outputOfDy = s.results.plane,
                       .outputOfDw = s.inputs * s.taps() * block * block,
                       .fresh = fresh,
                       .nextX = i == 0 && j == 0 ? next.x : 0,
                       .nextDy = i == 0 && j == 0 ? next.dy : 0});
}

/// Blocks of inputs that stay in the second-level cache while blocks of outputs meet them. With one tap there is little
/// to do for each position, and inputs are read again and again.
std::int64_t inputsOfWeights(const Sizes& s) {
  return std::min<std::int64_t>(s.inputs, s.taps() == 1 ? 16 : 1);
}

constexpr std::int64_t positionsOfWeights = 200; ///< that stay in the first-level cache, of x and of dy

/// Samples that are added up before dw, which is large where planes are small.
std::int64_t samplesOfWeights(const Sizes& s) {
  const Sizes f = flat(s);
  return f.rows > 1 || f.taps() > 1 ? 1 : std::clamp<std::int64_t>(positionsOfWeights / f.columns, 1, s.samples);
}

/// Calls f(patch) for all of y, in patches whose inputs, and outputs of one block, stay in the first-level cache.
template <class F>
void forEachPatch(const Sizes& s, std::int64_t samples, const F& f) {
  if (s.rows == 1 && s.taps() == 1) {
    const std::int64_t columns = evenly(s.columns, positionsOfWeights);
    for (std::int64_t column = 0; column < s.columns; column += columns)
      f(Patch{0, column, samples, std::min(columns, s.columns - column)});
    return;
  }
  const std::int64_t columns = std::min<std::int64_t>(s.columns, 64),
                     rowOfX = ((columns - 1) * s.strideWidth + s.kernelWidth) * block * floatBytes,
                     rowOfY = columns * block * floatBytes, rowsOfX = std::min(s.strideHeight, s.kernelHeight),
                     rows = std::clamp<std::int64_t>(
                         (firstLevel - rowOfX * (s.kernelHeight - rowsOfX)) / (rowOfX * rowsOfX + rowOfY), 1, s.rows);
  for (std::int64_t row = 0; row < s.rows; row += rows)
    for (std::int64_t column = 0; column < s.columns; column += columns)
      f(Patch{row, column, std::min(rows, s.rows - row), std::min(columns, s.columns - column)});
}

/// The taps of a residue in the filter [outputs][inputs][taps][16 of inputs][16 of outputs] as a convolution of dy
/// reads them: inputs and outputs have changed places, taps are in the opposite order.
void turnAround(const Sizes& s, const Residue& residue, std::int64_t input, const float* w, float* turned) {
  const std::int64_t rows = residue.sizes.kernelHeight, columns = residue.sizes.kernelWidth;
  float* to = turned + input * s.outputs * rows * columns * block * block;
  for (std::int64_t output = 0; output < s.outputs; ++output) {
    const float* const filter = w + (output * s.inputs + input) * s.taps() * block * block;
    for (std::int64_t i = rows - 1; i >= 0; --i)
      for (std::int64_t j = columns - 1; j >= 0; --j, to += block * block) {
        const std::int64_t row = residue.firstTap.height + i * s.strideHeight,
                           column = residue.firstTap.width + j * s.strideWidth;
        exchangeBlock(filter + (row * s.kernelWidth + column) * block * block, to);
      }
  }
}

/// Bytes of the taps of a residue, turned around.
std::size_t turnedBytes(const Sizes& s, const Residue& residue) {
  return static_cast<std::size_t>(s.inputs * s.outputs * residue.sizes.taps() * blockBytes);
}

} // namespace

bool TiledConvolution::available() {
  return avx2::available();
}
bool TiledConvolution::preferred() {
  return avx2::preferred();
}
TiledConvolution::TiledConvolution(const Conv2d::Options& o)
    : sizes_(forwardSizes(o)), backward_(residuesOf(o)), relu_(o.relu) {
  const std::int64_t products = Conv2d::outputShape(o).elements() * sizes_.inputs * sizes_.taps();
  // Of 16 multiply-adds each; so many in a part take longer than waking a thread.
  threads_ = parts::countOf(sizes_.samples * std::min(sizes_.inputs, sizes_.outputs), products);
}

std::size_t TiledConvolution::forwardWorkspace() const {
  return static_cast<std::size_t>(threads_) * roomBytes(sizes_);
}

std::size_t TiledConvolution::inputGradientWorkspace() const {
  std::size_t most = 0;
  for (const Residue& residue : backward_)
    if (residue.sizes.taps() > 0)
      most =
          std::max(most, turnedBytes(sizes_, residue) + static_cast<std::size_t>(threads_) * roomBytes(residue.sizes));
  return most;
}

std::size_t TiledConvolution::weightGradientWorkspace() const {
  return static_cast<std::size_t>(threads_) * imageBytes(sizes_, inputsOfWeights(sizes_) * samplesOfWeights(sizes_));
}

void TiledConvolution::forward(std::byte* workspace, const float* x, const float* w, const float* b, float* y) const {
  convolve(sizes_, threads_, workspace, x, w, {.bias = b, .relu = relu_}, y);
}

void TiledConvolution::inputGradient(std::byte* workspace, const float* dy, const float* w, const float* added,
                                     float* dx) const {
  float* const turned = reinterpret_cast<float*>(workspace);
  for (const Residue& residue : backward_) {
    if (residue.sizes.taps() == 0) {
      clear(residue.sizes, threads_, added, dx);
      continue;
    }
    parts::runRanges(threads_, sizes_.inputs, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t input = begin; input < end; ++input) turnAround(sizes_, residue, input, w, turned);
    });
    convolve(residue.sizes, threads_, workspace + turnedBytes(sizes_, residue), dy, turned, {.added = added}, dx);
  }
}

void TiledConvolution::weightGradient(std::byte* workspace, const float* x, const float* dy, float* dw,
                                      float* db) const {
  const Sizes s = flat(sizes_);
  const std::int64_t planeOfY = s.results.plane, filter = s.taps() * block * block, atOnce = inputsOfWeights(s),
                     groups = (s.inputs + atOnce - 1) / atOnce, samplesAtOnce = samplesOfWeights(s);
  parts::run(threads_, [&](int part) {
    float* const room = reinterpret_cast<float*>(workspace + static_cast<std::size_t>(part) *
                                                                 imageBytes(sizes_, atOnce * samplesAtOnce));
    const auto some = [&](std::int64_t group, std::int64_t first, std::int64_t end) {
      const std::int64_t c0 = group * atOnce, inputs = std::min(atOnce, s.inputs - c0);
      for (std::int64_t n = 0; n < s.samples; n += samplesAtOnce) {
        const std::int64_t samples = std::min(samplesAtOnce, s.samples - n);
        const Images images = imagesOf(sizes_, x + (n * s.inputs + c0) * s.source.plane, samples, inputs, room);
        forEachPatch(s, samples, [&](const Patch& patch) {
          const bool fresh = n == 0 && patch.row == 0 && patch.column == 0;
          for (std::int64_t k = first; k < end; k += 2)
            for (std::int64_t c = 0; c < inputs; ++c) {
              // A plane further, which processors do not see coming. Copied images are in a cache.
              const Next next = {k == first && c + 1 < inputs && !sizes_.copiesImages() ? images.plane : 0,
                                 c == 0 && k + 2 < end ? 2 * planeOfY : 0};
              addWeights(s, patch, images, std::min<std::int64_t>(2, end - k), images.data + c * images.plane,
                         dy + (n * s.outputs + k) * planeOfY, next, fresh, dw + (k * s.inputs + c0 + c) * filter);
            }
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
TiledConvolution::TiledConvolution(const Conv2d::Options&) : sizes_(), threads_(1) {}
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
void TiledConvolution::inputGradient(std::byte*, const float*, const float*, const float*, float*) const {}
void TiledConvolution::weightGradient(std::byte*, const float*, const float*, float*, float*) const {}

} // namespace pdcrt
#endif
