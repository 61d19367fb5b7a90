// See BatchNorm.h. Own kernels and not cuDNN's, which average the variance over count - 1 into the running one, where
// ONNX's is over count. Sums of a channel are cut into parts (SumParts), each for one block; those of the statistics
// are of x - x[0], in double precision, so that neither a large mean nor the square cancels. Where sizes and addresses
// allow it, a thread moves `widest` neighbours at once: memory is what all of this waits for. Neighbours are terms of
// one channel, or with lanes as many channels, which a thread keeps while it goes over positions.
#include "pdcrt/kernels/BatchNorm.h"

#include "common/Shapes.h"
#include "cuda/support/Channels.h"
#include "cuda/support/RowTeam.h"

#include <initializer_list>
#include <stdexcept>

namespace pdcrt {
namespace {

using cuda::blockSum, cuda::forEach, cuda::Share, cuda::Tiles;
using Sizes = cuda::ChannelSizes;

/// Two sums of a part of a channel, which move in one access.
struct alignas(2 * sizeof(double)) Pair {
  double first, second;

  __device__ void add(const Pair& other) {
    first += other.first;
    second += other.second;
  }
};

/// Elements i … i + n - 1; zeros of an operand that is absent.
template <int n>
__device__ Pack<float, n> loadPresent(const float* from, std::int64_t i) {
  Pack<float, n> loaded = {};
  if (from) loaded = loadPack<n>(View(from), i);
  return loaded;
}

/// What normalises a channel, rounded alike wherever it is computed. The mean is taken off first: folded into the bias
/// it would cancel.
struct Affine {
  float mean, factor, bias;

  __device__ float of(float x) const { return std::fma(x - mean, factor, bias); }
};

/// Summands d and d², d = x - x[0].
struct Deviations {
  static constexpr int atOnce = 4;
  static constexpr const char* name = "batch normalisation, sums";
  const float* x;

  using Origin = double;
  __device__ Origin originOf(std::int64_t, std::int64_t begin) const { return x[begin]; }
  template <int n>
  __device__ Pack<float, n> load(std::int64_t i) const {
    return loadPack<n>(View(x), i);
  }
  template <int n>
  __device__ void add(const Pack<float, n>& loaded, int k, double origin, Pair& sums) const {
    const double d = loaded[k] - origin;
    sums.first += d;
    sums.second += d * d;
  }
};

/// What the gradients of n neighbours are computed from; y is that of a ReLU, if it says what came through.
template <int n>
struct GradientTerms {
  Pack<float, n> dy, y, x;
};

/// The operands of a gradient. What came through a ReLU says its result `y`, where there is one; or else `bias`, where
/// there is one: what is positive before the ReLU, computed again.
struct Given {
  const float *dy, *y, *x, *mean, *inverse, *scale, *bias;

  template <int n>
  __device__ GradientTerms<n> load(std::int64_t i) const {
    return {loadPack<n>(View(dy), i), loadPresent<n>(y, i), loadPack<n>(View(x), i)};
  }
  /// What of dy comes through.
  template <int n>
  __device__ float masked(const GradientTerms<n>& terms, int k, const Affine& forward) const {
    if (!y && !bias) return terms.dy[k];
    const float before = y ? terms.y[k] : forward.of(terms.x[k]);
    return terms.dy[k] * (before > 0 ? 1.0f : 0.0f);
  }
};

/// Summands g and g · (x - mean), where g is dy, or what of it comes through a ReLU.
struct Gradients {
  static constexpr int atOnce = 2;
  static constexpr const char* name = "batch normalisation, sums of gradients";
  Given given;

  using Origin = Affine;
  __device__ Origin originOf(std::int64_t c, std::int64_t) const {
    if (!given.bias) return {given.mean[c], 0, 0};
    return {given.mean[c], given.scale[c] * given.inverse[c], given.bias[c]};
  }
  template <int n>
  __device__ GradientTerms<n> load(std::int64_t i) const {
    return given.load<n>(i);
  }
  template <int n>
  __device__ void add(const GradientTerms<n>& terms, int k, const Origin& origin, Pair& sums) const {
    const float g = given.masked(terms, k, origin);
    sums.first += g;
    sums.second += double(g) * (double(terms.x[k]) - origin.mean);
  }
};

/// A block for each part of each channel.
template <int n, class Summands>
__global__ void addPlanes(Sizes s, Summands of, Pair* partial) {
  for (std::int64_t block = blockIdx.x; block < s.channels * s.parts.parts; block += gridDim.x) {
    const std::int64_t c = block / s.parts.parts, part = block % s.parts.parts, begin = s.begin(c);
    const typename Summands::Origin origin = of.originOf(c, begin);
    Pair sums = {};
    forEach<Summands::atOnce>(
        part * s.parts.size + threadIdx.x * n, s.end(part), static_cast<std::int64_t>(blockDim.x) * n,
        [&](std::int64_t i) { return of.template load<n>(begin + s.offset(i)); },
        [&](std::int64_t, const auto& terms) {
          for (int k = 0; k < n; ++k) of.add(terms, k, origin, sums);
        });
    sums.first = blockSum(sums.first);
    sums.second = blockSum(sums.second);
    if (threadIdx.x == 0) partial[block] = sums;
  }
}

/// A block for each part of each tile of channels.
template <int n, bool all, class Summands>
__global__ void addLanes(Sizes s, Tiles tiles, Summands of, Pair* partial) {
  __shared__ Pair ofThreads[n][threadsPerBlock];
  const auto number = static_cast<int>(threadIdx.x);
  for (std::int64_t block = blockIdx.x; block < tiles.count * s.parts.parts; block += gridDim.x) {
    const Share<n, all> mine(s, tiles, block, number);
    Pair sums[n] = {};
    if (mine.some) {
      typename Summands::Origin origins[n];
      for (int k = 0; k < n; ++k) origins[k] = of.originOf(mine.channel + k, mine.begin + k);
      forEach<Summands::atOnce>(
          mine.first, mine.end, mine.step, [&](std::int64_t i) { return of.template load<n>(mine.at(s, i)); },
          [&](std::int64_t, const auto& terms) {
            for (int k = 0; k < n; ++k) of.add(terms, k, origins[k], sums[k]);
          });
    }
    __syncthreads(); // the room may still be read for an earlier block
    for (int k = 0; k < n; ++k) ofThreads[k][number] = sums[k];
    __syncthreads();
    // A thread per channel. Those of the same neighbour k read from different banks.
    const int k = number / tiles.width, column = number - k * tiles.width;
    const Share<n, all> result(s, tiles, block, column);
    if (k >= n || !result.some) continue;
    Pair total = {};
    for (int row = 0; row < tiles.rows; ++row) total.add(ofThreads[k][row * tiles.width + column]);
    partial[(result.channel + k) * s.parts.parts + result.part] = total;
  }
}

/// For each channel a warp: it adds up the parts.
using Team = cuda::RowTeam<cuda::warpSize32, 1, 1, true>;

__device__ Pair addParts(const Sizes& s, std::int64_t c, const Pair* partial) {
  Pair total = {};
  for (std::int64_t part = Team::lane(); part < s.parts.parts; part += cuda::warpSize32)
    total.add(partial[c * s.parts.parts + part]);
  return {Team::sum(total.first), Team::sum(total.second)};
}

struct Statistics {
  const float *runningMean, *runningVariance;
  float *mean, *inverse, *newRunningMean, *newRunningVariance;
  double epsilon, momentum, correction;
};

__global__ void finishStatistics(Sizes s, const float* x, const Pair* partial, Statistics to) {
  for (std::int64_t c = Team::first(); c < s.channels; c += Team::step()) {
    const auto [sum, squares] = addParts(s, c, partial);
    if (Team::lane() != 0) continue;
    const double count = static_cast<double>(s.terms()), offset = sum / count;
    const double average = x[s.begin(c)] + offset, spread = squares / count - offset * offset;
    const double variance = spread < 0 ? 0 : spread;
    to.mean[c] = static_cast<float>(average);
    to.inverse[c] = static_cast<float>(1 / std::sqrt(variance + to.epsilon));
    if (to.newRunningMean)
      to.newRunningMean[c] = static_cast<float>(to.runningMean[c] * to.momentum + average * (1 - to.momentum));
    if (to.newRunningVariance)
      to.newRunningVariance[c] =
          static_cast<float>(to.runningVariance[c] * to.momentum + variance * to.correction * (1 - to.momentum));
  }
}

/// What the gradient of each channel's input needs of its sums.
struct Slopes {
  float *meanDy, *slope;
};

__global__ void finishGradients(Sizes s, const Pair* partial, const float* inverse, float* dscale, float* dbias,
                                Slopes slopes) {
  for (std::int64_t c = Team::first(); c < s.channels; c += Team::step()) {
    const auto [sum, products] = addParts(s, c, partial);
    if (Team::lane() != 0) continue;
    const double count = static_cast<double>(s.terms()), scaled = products * inverse[c];
    if (dscale) dscale[c] = static_cast<float>(scaled);
    if (dbias) dbias[c] = static_cast<float>(sum);
    if (!slopes.meanDy) continue;
    slopes.meanDy[c] = static_cast<float>(sum / count);
    slopes.slope[c] = static_cast<float>(scaled * inverse[c] / count);
  }
}

/// inverse[c] = 1 / sqrt(variance[c] + epsilon).
__global__ void invert(std::int64_t channels, const float* variance, double epsilon, float* inverse) {
  for (std::int64_t c = thread(); c < channels; c += threads())
    inverse[c] = static_cast<float>(1 / std::sqrt(variance[c] + epsilon));
}

/// y = (x - mean) · (scale · inverse) + bias, plus the residual, if there is one, and with `relu` nothing below 0.
struct Normalise {
  static constexpr int atOnce = 2;
  const float *x, *mean, *inverse, *scale, *bias, *residual;
  bool relu;
  float* y;

  using Map = Affine;
  template <int n>
  struct Terms {
    Pack<float, n> x, added;
  };
  template <int n>
  __device__ void loadMaps(std::int64_t c, Map (&maps)[n]) const {
    const Pack<float, n> means = loadPack<n>(View(mean), c), scales = loadPack<n>(View(scale), c),
                         inverses = loadPack<n>(View(inverse), c), biases = loadPack<n>(View(bias), c);
    for (int k = 0; k < n; ++k) maps[k] = {means[k], scales[k] * inverses[k], biases[k]};
  }
  template <int n>
  __device__ Terms<n> load(std::int64_t i) const {
    return {loadPack<n>(View(x), i), loadPresent<n>(residual, i)};
  }
  /// `forNeighbours` calls what it gets with each neighbour's number and map.
  template <int n, class Neighbours>
  __device__ void store(std::int64_t i, const Terms<n>& from, Neighbours forNeighbours) const {
    Pack<float, n> to;
    forNeighbours([&](int k, const Map& map) {
      float value = map.of(from.x[k]);
      if (residual) value = value + from.added[k];
      to[k] = relu && 0.0f > value ? 0.0f : value; // a NaN stays one
    });
    storePack(View(y), i, to);
  }
};

/// dx = (g - meanDy - (x - mean) · slope) · (scale · inverse), g as above; dresidual = g.
struct Differentiate {
  static constexpr int atOnce = 2;
  Given given;
  Slopes slopes;
  float *dx, *dresidual;

  struct Map {
    Affine forward;
    float meanDy, slope;
  };
  template <int n>
  __device__ void loadMaps(std::int64_t c, Map (&maps)[n]) const {
    const Pack<float, n> means = loadPack<n>(View(given.mean), c), scales = loadPack<n>(View(given.scale), c),
                         inverses = loadPack<n>(View(given.inverse), c), biases = loadPresent<n>(given.bias, c),
                         ofDy = loadPack<n>(View(slopes.meanDy), c), ofX = loadPack<n>(View(slopes.slope), c);
    for (int k = 0; k < n; ++k) maps[k] = {{means[k], scales[k] * inverses[k], biases[k]}, ofDy[k], ofX[k]};
  }
  template <int n>
  __device__ GradientTerms<n> load(std::int64_t i) const {
    return given.load<n>(i);
  }
  template <int n, class Neighbours>
  __device__ void store(std::int64_t i, const GradientTerms<n>& from, Neighbours forNeighbours) const {
    Pack<float, n> g, to;
    forNeighbours([&](int k, const Map& map) {
      g[k] = given.masked(from, k, map.forward);
      to[k] = (g[k] - map.meanDy - (from.x[k] - map.forward.mean) * map.slope) * map.forward.factor;
    });
    storePack(View(dx), i, to);
    if (dresidual) storePack(View(dresidual), i, g);
  }
};

/// dx = dy · (scale · inverse).
struct ScaleBy {
  static constexpr int atOnce = 4;
  const float *dy, *scale, *inverse;
  float* dx;

  using Map = float;
  template <int n>
  __device__ void loadMaps(std::int64_t c, Map (&maps)[n]) const {
    const Pack<float, n> scales = loadPack<n>(View(scale), c), inverses = loadPack<n>(View(inverse), c);
    for (int k = 0; k < n; ++k) maps[k] = scales[k] * inverses[k];
  }
  template <int n>
  __device__ Pack<float, n> load(std::int64_t i) const {
    return loadPack<n>(View(dy), i);
  }
  template <int n, class Neighbours>
  __device__ void store(std::int64_t i, Pack<float, n> g, Neighbours forNeighbours) const {
    forNeighbours([&](int k, Map factor) { g[k] *= factor; });
    storePack(View(dx), i, g);
  }
};

/// Calls each(k, map) for elements first + k of n neighbours, with the map of the channel of each: a plane may end
/// among them.
template <int n, class Pass, class Each>
__device__ void forEachNeighbour(const Sizes& s, const Pass& pass, std::int64_t first, Each each) {
  const std::int64_t plane = s.byInner.quotient(first);
  std::int64_t c = s.byChannels.remainder(plane), end = (plane + 1) * s.inner - first;
  typename Pass::Map map[1];
  pass.loadMaps(c, map);
  for (int k = 0; k < n; ++k) {
    if (k == end) {
      c = c + 1 < s.channels ? c + 1 : 0;
      end += s.inner;
      pass.loadMaps(c, map);
    }
    each(k, map[0]);
  }
}

template <int n, class Pass>
__global__ void passOverPlanes(Sizes s, Pass pass) {
  for (std::int64_t i = thread() * n; i < s.elements(); i += threads() * n)
    pass.store(i, pass.template load<n>(i), [&](auto each) { forEachNeighbour<n>(s, pass, i, each); });
}

template <int n, bool all, class Pass>
__global__ void passOverLanes(Sizes s, Tiles tiles, Pass pass) {
  for (std::int64_t block = blockIdx.x; block < tiles.count * s.parts.parts; block += gridDim.x) {
    const Share<n, all> mine(s, tiles, block, static_cast<int>(threadIdx.x));
    if (!mine.some) continue;
    typename Pass::Map maps[n];
    pass.loadMaps(mine.channel, maps);
    forEach<Pass::atOnce>(
        mine.first, mine.end, mine.step, [&](std::int64_t i) { return pass.template load<n>(mine.at(s, i)); },
        [&](std::int64_t i, const auto& terms) {
          pass.store(mine.at(s, i), terms, [&](auto each) {
            for (int k = 0; k < n; ++k) each(k, maps[k]);
          });
        });
  }
}

/// The summands read what `addresses` has.
template <class Summands>
void launchSums(Stream& q, const Sizes& s, std::initializer_list<const float*> addresses, const Summands& of,
                Pair* partial) {
  if (s.lanes == 1)
    return cuda::withWidth(s.inner, addresses, [&]<int n>(std::integral_constant<int, n>) {
      cuda::launchBlocks(q, of.name, addPlanes<n, Summands>, s.channels * s.parts.parts, s, of, partial);
    });
  cuda::withTiles(s, addresses, {}, [&]<int n, bool all>(const Tiles& tiles, cuda::Together<n, all>) {
    cuda::launchBlocks(q, of.name, addLanes<n, all, Summands>, tiles.count * s.parts.parts, s, tiles, of, partial);
  });
}

/// The pass reads or writes elements at `elements`, and numbers of channels at `perChannel`.
template <class Pass>
void launchPass(Stream& q, const char* name, const Sizes& s, std::initializer_list<const float*> elements,
                std::initializer_list<const float*> perChannel, const Pass& pass) {
  if (s.lanes == 1)
    return cuda::withWidth(s.elements(), elements, [&]<int n>(std::integral_constant<int, n>) {
      launchLoop(q, name, passOverPlanes<n, Pass>, s.elements() / n, s, pass);
    });
  cuda::withTiles(s, elements, perChannel, [&]<int n, bool all>(const Tiles& tiles, cuda::Together<n, all>) {
    const Sizes cut = cuda::cutForPass(s, tiles, Pass::atOnce);
    cuda::launchBlocks(q, name, passOverLanes<n, all, Pass>, tiles.count * cut.parts.parts, cut, tiles, pass);
  });
}

void launchNormalise(Stream& q, const char* name, const Sizes& s, const Normalise& pass) {
  launchPass(q, name, s, {pass.x, pass.residual, pass.y}, {pass.mean, pass.inverse, pass.scale, pass.bias}, pass);
}

/// The workspace: the parts' sums, then two floats per channel.
struct Room {
  Pair* partial;
  float* perChannel;

  Room(Stream& q, const Sizes& s)
      : partial(reinterpret_cast<Pair*>(q.workspace())),
        perChannel(reinterpret_cast<float*>(partial + s.channels * s.parts.parts)) {}
};

/// Blocks in which each channel has a warp.
std::int64_t teamBlocks(const Sizes& s) {
  return (s.channels + Team::perBlock - 1) / Team::perBlock;
}

} // namespace

BatchNorm::BatchNorm(Setup& setup, const Options& o)
    : lanes_(o.lanes), epsilon_(o.epsilon), momentum_(o.momentum), relu_(o.relu) {
  const auto refuse = [&](const char* why) {
    throw std::runtime_error("batch normalisation of " + toString(o.input) + ": " + why);
  };
  if (o.input.rank < 2) refuse("it has no channel axis");
  if (lanes_ < 1 || o.input.dims[1] % lanes_ != 0) refuse("lanes must divide the channels");
  samples_ = o.input.dims[0];
  channels_ = o.input.dims[1];
  inner_ = 1;
  for (int axis = 2; axis < o.input.rank; ++axis) inner_ *= o.input.dims[axis];
  const auto count = static_cast<double>(samples_ * inner_);
  correction_ = o.unbiased && count > 1 ? count / (count - 1) : 1;
  setup.needWorkspace(cuda::workspaceOf(o));
}

void BatchNorm::forward(Stream& q, View<const float> x, View<const float> scale, View<const float> bias,
                        View<const float> runningMean, View<const float> runningVariance, View<float> y) const {
  const Sizes s = cuda::channelSizesOf(samples_, channels_, inner_, lanes_);
  float* const inverse = Room(q, s).perChannel;
  launchLoop(q, "batch normalisation, variance", invert, channels_, channels_, runningVariance.data, epsilon_, inverse);
  launchNormalise(q, "batch normalisation", s,
                  {x.data, runningMean.data, inverse, scale.data, bias.data, nullptr, false, y.data});
}

void BatchNorm::trainForward(Stream& q, View<const float> x, View<const float> scale, View<const float> bias,
                             View<const float> runningMean, View<const float> runningVariance,
                             View<const float> residual, View<float> y, View<float> mean, View<float> inverseStd,
                             View<float> newRunningMean, View<float> newRunningVariance) const {
  const Sizes s = cuda::channelSizesOf(samples_, channels_, inner_, lanes_);
  const Room room(q, s);
  const Statistics to = {.runningMean = runningMean.data,
                         .runningVariance = runningVariance.data,
                         .mean = mean.data,
                         .inverse = inverseStd.data,
                         .newRunningMean = newRunningMean.data,
                         .newRunningVariance = newRunningVariance.data,
                         .epsilon = epsilon_,
                         .momentum = momentum_,
                         .correction = correction_};
  launchSums(q, s, {x.data}, Deviations{x.data}, room.partial);
  cuda::launchBlocks(q, "batch normalisation, statistics", finishStatistics, teamBlocks(s), s, x.data, room.partial,
                     to);
  launchNormalise(q, "batch normalisation", s,
                  {x.data, mean.data, inverseStd.data, scale.data, bias.data, residual.data, relu_, y.data});
}

void BatchNorm::trainForwardAgain(Stream& q, View<const float> x, View<const float> scale, View<const float> bias,
                                  View<const float> mean, View<const float> inverseStd, View<const float> residual,
                                  View<float> y) const {
  launchNormalise(q, "batch normalisation, again", cuda::channelSizesOf(samples_, channels_, inner_, lanes_),
                  {x.data, mean.data, inverseStd.data, scale.data, bias.data, residual.data, relu_, y.data});
}

void BatchNorm::gradient(Stream& q, View<const float> dy, View<const float> x, View<const float> scale,
                         View<const float> mean, View<const float> inverseStd, View<const float> y,
                         View<const float> bias, View<float> dx, View<float> dscale, View<float> dbias,
                         View<float> dresidual) const {
  const Sizes s = cuda::channelSizesOf(samples_, channels_, inner_, lanes_);
  const float *const result = relu_ ? y.data : nullptr, *const shift = relu_ && !y ? bias.data : nullptr;
  const Given given = {dy.data, result, x.data, mean.data, inverseStd.data, scale.data, shift};
  const Room room(q, s);
  const Slopes slopes = {room.perChannel, room.perChannel + channels_};
  launchSums(q, s, {dy.data, result, x.data}, Gradients{given}, room.partial);
  cuda::launchBlocks(q, "batch normalisation, weight gradient", finishGradients, teamBlocks(s), s, room.partial,
                     inverseStd.data, dscale.data, dbias.data, slopes);
  launchPass(q, "batch normalisation, input gradient", s, {dy.data, result, x.data, dx.data, dresidual.data},
             {mean.data, inverseStd.data, scale.data, shift, slopes.meanDy, slopes.slope},
             Differentiate{given, slopes, dx.data, dresidual.data});
}

void BatchNorm::frozenGradient(Stream& q, View<const float> dy, View<const float> x, View<const float> scale,
                               View<const float> runningMean, View<const float> runningVariance, View<float> dx,
                               View<float> dscale, View<float> dbias) const {
  const Sizes s = cuda::channelSizesOf(samples_, channels_, inner_, lanes_);
  const Room room(q, s);
  float* const inverse = room.perChannel;
  launchLoop(q, "batch normalisation, variance", invert, channels_, channels_, runningVariance.data, epsilon_, inverse);
  if (dscale || dbias) { // before dx, which may be dy's memory
    const Given given = {dy.data, nullptr, x.data, runningMean.data, inverse, scale.data, nullptr};
    launchSums(q, s, {dy.data, x.data}, Gradients{given}, room.partial);
    cuda::launchBlocks(q, "batch normalisation, weight gradient", finishGradients, teamBlocks(s), s, room.partial,
                       inverse, dscale.data, dbias.data, Slopes());
  }
  if (dx)
    launchPass(q, "batch normalisation, input gradient", s, {dy.data, dx.data}, {scale.data, inverse},
               ScaleBy{dy.data, scale.data, inverse, dx.data});
}

} // namespace pdcrt
