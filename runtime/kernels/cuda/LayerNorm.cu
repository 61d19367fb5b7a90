// See LayerNorm.h. A warp or a block per row; the gradients of scale and bias are sums over the rows, in parts
// (SumParts).
#include "pdcrt/kernels/LayerNorm.h"

#include "cuda/support/RowTeam.h"
#include "pdcrt/CudaWorkspace.h"

namespace pdcrt {
namespace {

/// Loads a team's part of a row from element `at` on, of which `size` are left. What is of f32 is loaded before: its
/// loads are under way while these are rounded or widened.
template <class Team>
__device__ void load(AnyConstView from, std::int64_t at, std::int64_t size, float (&values)[Team::count]) {
  withFloats(from.element, [&](auto type) { Team::load(from.as<decltype(type)>().data + at, size, values); });
}
template <class Team>
__device__ void store(const float (&values)[Team::count], AnyView to, std::int64_t at, std::int64_t size) {
  withFloats(to.element, [&](auto type) { Team::store(values, to.as<decltype(type)>().data + at, size); });
}

/// Normalises x + added, which `sums` receives. `bias`, `added` and all results but y may be null.
template <class Team>
__global__ PDCRT_TWO_BLOCKS void normalise(LayerNorm::Options o, bool centred, AnyConstView x, const float* scale,
                                           const float* bias, const float* added, AnyView y, float* means,
                                           float* inverses, float* sums, AnyView low) {
  for (std::int64_t row = Team::first(); row < o.rows; row += Team::step()) {
    const std::int64_t begin = row * o.size;
    const double count = static_cast<double>(o.size);
    float values[Team::count];
    const auto read = [&](std::int64_t at) {
      float others[Team::count];
      if (added) Team::load(added + begin + at, o.size - at, others);
      load<Team>(x, begin + at, o.size - at, values);
      if (added) Team::elements(o.size - at, [&](int e) { values[e] += others[e]; });
    };
    double mean = 0;
    if (Team::whole) read(0);
    if (centred) {
      Team::pieces(o.size, [&](std::int64_t at) {
        if (!Team::whole) read(at);
        Team::elements(o.size - at, [&](int e) { mean += values[e]; });
      });
      mean = Team::sum(mean) / count;
      Team::forget(values);
    }
    double squares = 0;
    Team::pieces(o.size, [&](std::int64_t at) {
      if (!Team::whole) read(at);
      Team::elements(o.size - at, [&](int e) { squares += (values[e] - mean) * (values[e] - mean); });
    });
    const double inverse = 1 / std::sqrt(Team::sum(squares) / count + o.epsilon);
    Team::forget(values);
    if (Team::lane() == 0 && means) means[row] = static_cast<float>(mean);
    if (Team::lane() == 0 && inverses) inverses[row] = static_cast<float>(inverse);
    const float shift = static_cast<float>(mean), factor = static_cast<float>(inverse);
    Team::pieces(o.size, [&](std::int64_t at) {
      if (!Team::whole) read(at);
      if (sums) Team::store(values, sums + begin + at, o.size - at);
      float factors[Team::count], shifts[Team::count];
      if (scale) Team::load(scale + at, o.size - at, factors);
      if (bias) Team::load(bias + at, o.size - at, shifts);
      Team::elements(o.size - at, [&](int e) {
        values[e] = (values[e] - shift) * factor;
        if (scale) values[e] *= factors[e];
        if (bias) values[e] += shifts[e];
      });
      store<Team>(values, y, begin + at, o.size - at);
      if (low) store<Team>(values, low, begin + at, o.size - at);
    });
  }
}

/// dx = (g - shift - (x - mean) · slope) · inverse + added with g = dy · scale, where `shift`, the mean of g, is 0 when
/// the mean of x was not taken off (`means` is null). `added` and `low`, for dx in another type, may be null.
template <class Team>
__global__ PDCRT_TWO_BLOCKS void differentiate(LayerNorm::Options o, AnyConstView dy, const float* x,
                                               const float* scale, const float* means, const float* inverses,
                                               const float* added, float* dx, AnyView low) {
  for (std::int64_t row = Team::first(); row < o.rows; row += Team::step()) {
    const std::int64_t begin = row * o.size;
    const float mean = means ? means[row] : 0.0f, inverse = inverses[row];
    float g[Team::count], centred[Team::count];
    const auto read = [&](std::int64_t at) {
      float factors[Team::count];
      Team::load(x + begin + at, o.size - at, centred);
      if (scale) Team::load(scale + at, o.size - at, factors);
      load<Team>(dy, begin + at, o.size - at, g);
      Team::elements(o.size - at, [&](int e) {
        if (scale) g[e] *= factors[e];
        centred[e] -= mean;
      });
    };
    double sum = 0, products = 0;
    Team::pieces(o.size, [&](std::int64_t at) {
      read(at);
      Team::elements(o.size - at, [&](int e) {
        sum += g[e];
        products += double(g[e]) * centred[e];
      });
    });
    sum = Team::sum(sum);
    products = Team::sum(products);
    const double count = static_cast<double>(o.size);
    const float shift = means ? static_cast<float>(sum / count) : 0.0f;
    const float slope = static_cast<float>(products / count * inverse * inverse);
    Team::pieces(o.size, [&](std::int64_t at) {
      if (!Team::whole) read(at);
      Team::elements(o.size - at, [&](int e) { g[e] = (g[e] - shift - centred[e] * slope) * inverse; });
      if (added) {
        Team::load(added + begin + at, o.size - at, centred);
        Team::elements(o.size - at, [&](int e) { g[e] += centred[e]; });
      }
      Team::store(g, dx + begin + at, o.size - at);
      if (low) store<Team>(g, low, begin + at, o.size - at);
    });
  }
}

constexpr int tileColumns = static_cast<int>(cuda::columnsPerBlock);

/// A thread's sums, over some rows, for `width` neighbouring columns.
template <int width>
struct ColumnSums {
  double scales[width] = {}, biases[width] = {};

  template <class T>
  __device__ void add(const Pack<T, width>& dy, const Pack<float, width>& x, float mean, float inverse) {
    for (int k = 0; k < width; ++k) {
      const float gradient = static_cast<float>(dy[k]);
      scales[k] += double(gradient) * ((x[k] - mean) * inverse);
      biases[k] += gradient;
    }
  }
  /// Of the threads of a warp that are for the same columns, every `columns`-th one.
  __device__ void addOtherLanes(int columns) {
    for (int distance = columns; distance < cuda::warpSize32; distance *= 2)
      for (int k = 0; k < width; ++k) {
        scales[k] += __shfl_xor_sync(0xFFFFFFFFu, scales[k], distance);
        biases[k] += __shfl_xor_sync(0xFFFFFFFFu, biases[k], distance);
      }
  }
};

/// A thread's sums over the rows first, first + step, … before `end`. Loads do not wait for what earlier ones bring:
/// those of `atOnce` rows are under way together.
template <int width, int atOnce = 4, class T>
__device__ ColumnSums<width> sumsOfRows(const LayerNorm::Options& o, std::int64_t column, std::int64_t first, int step,
                                        std::int64_t end, const T* dy, const float* x, const float* means,
                                        const float* inverses) {
  ColumnSums<width> sums;
  for (std::int64_t row = first; row < end; row += atOnce * step) {
    Pack<T, width> d[atOnce] = {};
    Pack<float, width> values[atOnce] = {};
    float mean[atOnce] = {}, inverse[atOnce] = {};
    for (int k = 0; k < atOnce; ++k) {
      const std::int64_t other = row + k * step;
      if (other >= end) continue;
      d[k] = *reinterpret_cast<const Pack<T, width>*>(dy + other * o.size + column);
      values[k] = *reinterpret_cast<const Pack<float, width>*>(x + other * o.size + column);
      if (means) mean[k] = means[other];
      inverse[k] = inverses[other];
    }
    for (int k = 0; k < atOnce; ++k)
      if (row + k * step < end) sums.add(d[k], values[k], mean[k], inverse[k]);
  }
  return sums;
}

/// One part of 32 columns' sums per block: of dy · (x - mean) · inverse, and of dy. A warp has 32 / width threads next
/// to each other, for all of these columns, and as many rows at a time as that leaves.
template <int width, class T>
__global__ void addRows(LayerNorm::Options o, cuda::SumParts parts, const T* dy, const float* x, const float* means,
                        const float* inverses, double* scales, double* biases) {
  constexpr int across = tileColumns / width, rows = static_cast<int>(threadsPerBlock) / across;
  __shared__ double values[2][cuda::warpsPerBlock][tileColumns];
  const int thread = static_cast<int>(threadIdx.x), column = thread % across * width, lane = thread / across;
  const int warp = thread / cuda::warpSize32;
  const std::int64_t tiles = (o.size + tileColumns - 1) / tileColumns;
  for (std::int64_t block = blockIdx.x; block < tiles * parts.parts; block += gridDim.x) {
    const std::int64_t tile = block % tiles * tileColumns, part = block / tiles;
    const std::int64_t end = (part + 1) * parts.size < o.rows ? (part + 1) * parts.size : o.rows;
    ColumnSums<width> sums;
    if (tile + column < o.size)
      sums = sumsOfRows<width>(o, tile + column, part * parts.size + lane, rows, end, dy, x, means, inverses);
    sums.addOtherLanes(across);
    if (thread % cuda::warpSize32 < across)
      for (int k = 0; k < width; ++k) {
        values[0][warp][column + k] = sums.scales[k];
        values[1][warp][column + k] = sums.biases[k];
      }
    __syncthreads();
    if (thread < tileColumns && tile + thread < o.size) {
      double scale = 0, bias = 0;
      for (int other = 0; other < cuda::warpsPerBlock; ++other) {
        scale += values[0][other][thread];
        bias += values[1][other][thread];
      }
      scales[part * o.size + tile + thread] = scale;
      biases[part * o.size + tile + thread] = bias;
    }
    __syncthreads();
  }
}

__global__ void addParts(std::int64_t size, std::int64_t parts, const double* scales, const double* biases,
                         float* dscale, float* dbias) {
  constexpr int atOnce = 8; // loads under way
  for (std::int64_t i = thread(); i < size; i += threads()) {
    double scale = 0, bias = 0;
    for (std::int64_t first = 0; first < parts; first += atOnce) {
      double ofScales[atOnce] = {}, ofBiases[atOnce] = {};
      for (int k = 0; k < atOnce; ++k)
        if (first + k < parts) {
          ofScales[k] = scales[(first + k) * size + i];
          ofBiases[k] = biases[(first + k) * size + i];
        }
      for (int k = 0; k < atOnce; ++k) {
        scale += ofScales[k];
        bias += ofBiases[k];
      }
    }
    dscale[i] = static_cast<float>(scale);
    if (dbias) dbias[i] = static_cast<float>(bias);
  }
}

constexpr std::size_t widestAccess = 4 * sizeof(float);

void launchNormalise(Stream& q, const char* name, const LayerNorm::Options& o, bool centred, AnyConstView x,
                     View<const float> scale, View<const float> bias, View<const float> added, AnyView y,
                     View<float> means, View<float> inverses, View<float> sums, AnyView low) {
  const bool aligned =
      cuda::allAligned(widestAccess, {x.data, scale.data, bias.data, added.data, y.data, sums.data, low.data});
  cuda::withRowTeam<32>(o.rows, o.size, aligned, [&](auto team, std::int64_t blocks) {
    cuda::launchBlocks(q, name, normalise<decltype(team)>, blocks, o, centred, x, scale.data, bias.data, added.data, y,
                       means.data, inverses.data, sums.data, low);
  });
}

void launchDifferentiate(Stream& q, const char* name, const LayerNorm::Options& o, AnyConstView dy, View<const float> x,
                         View<const float> scale, View<const float> means, View<const float> inverses,
                         View<const float> added, View<float> dx, AnyView low) {
  const bool aligned = cuda::allAligned(widestAccess, {dy.data, x.data, scale.data, added.data, dx.data, low.data});
  cuda::withRowTeam<32>(o.rows, o.size, aligned, [&](auto team, std::int64_t blocks) {
    cuda::launchBlocks(q, name, differentiate<decltype(team)>, blocks, o, dy, x.data, scale.data, means.data,
                       inverses.data, added.data, dx.data, low);
  });
}

void launchWeightGradient(Stream& q, const LayerNorm::Options& o, AnyConstView dy, View<const float> x,
                          View<const float> means, View<const float> inverses, View<float> dscale, View<float> dbias) {
  const cuda::SumParts parts = cuda::partsOfColumns(o.size, o.rows);
  auto* const scales = reinterpret_cast<double*>(q.workspace());
  double* const biases = scales + parts.parts * o.size;
  const bool wide = o.size % 4 == 0 && cuda::allAligned(widestAccess, {dy.data, x.data});
  withFloats(dy.element, [&](auto type) {
    using T = decltype(type);
    cuda::launchBlocks(q, "layer normalisation, weight gradient", wide ? addRows<4, T> : addRows<1, T>,
                       (o.size + tileColumns - 1) / tileColumns * parts.parts, o, parts, dy.as<T>().data, x.data,
                       means.data, inverses.data, scales, biases);
  });
  launchLoop(q, "layer normalisation, weight gradient", addParts, o.size, o.size, parts.parts, scales, biases,
             dscale.data, dbias.data);
}

} // namespace

LayerNorm::LayerNorm(Setup& setup, const Options& o) : options_(o) {
  setup.needWorkspace(cuda::workspaceOf(o));
}

void LayerNorm::forward(Stream& q, AnyConstView x, View<const float> scale, View<const float> bias,
                        View<const float> added, AnyView y, View<float> means, View<float> inverses, View<float> sums,
                        AnyView low) const {
  launchNormalise(q, "layer normalisation", options_, true, x, scale, bias, added, y, means, inverses, sums, low);
}
void LayerNorm::inputGradient(Stream& q, AnyConstView dy, View<const float> x, View<const float> scale,
                              View<const float> means, View<const float> inverses, View<const float> added,
                              View<float> dx, AnyView low) const {
  launchDifferentiate(q, "layer normalisation, input gradient", options_, dy, x, scale, means, inverses, added, dx,
                      low);
}
void LayerNorm::weightGradient(Stream& q, AnyConstView dy, View<const float> x, View<const float> means,
                               View<const float> inverses, View<float> dscale, View<float> dbias) const {
  launchWeightGradient(q, options_, dy, x, means, inverses, dscale, dbias);
}

void LayerNorm::rmsForward(Stream& q, AnyConstView x, View<const float> scale, View<const float> added, AnyView y,
                           View<float> inverses, View<float> sums, AnyView low) const {
  launchNormalise(q, "RMS normalisation", options_, false, x, scale, {}, added, y, {}, inverses, sums, low);
}
void LayerNorm::rmsInputGradient(Stream& q, AnyConstView dy, View<const float> x, View<const float> scale,
                                 View<const float> inverses, View<const float> added, View<float> dx,
                                 AnyView low) const {
  launchDifferentiate(q, "RMS normalisation, input gradient", options_, dy, x, scale, {}, inverses, added, dx, low);
}
void LayerNorm::rmsWeightGradient(Stream& q, AnyConstView dy, View<const float> x, View<const float> inverses,
                                  View<float> dscale) const {
  launchWeightGradient(q, options_, dy, x, {}, inverses, dscale, {});
}

} // namespace pdcrt
