// See SoftmaxCrossEntropy.h. One block per position; what the positions add to the loss goes through the workspace, and
// one block adds it up, so that every run has the same order.
#include "pdcrt/kernels/SoftmaxCrossEntropy.h"

#include "Cuda.h"
#include "pdcrt/CudaWorkspace.h"

#include <limits>

namespace pdcrt {
namespace {

using Options = SoftmaxCrossEntropy::Options;
using cuda::blockSum;

__device__ bool counts(const Options& o, std::int64_t label) {
  return !o.hasIgnoreIndex || label != o.ignoreIndex;
}
__device__ double weightOf(const float* weights, std::int64_t c) {
  return weights ? weights[c] : 1;
}

/// What a position adds: to the sum of the loss, and to that of the weights.
struct Share {
  double loss, weight;
};

/// The classes of a position, `stride` apart. Where they are neighbours four move at once, in the middle: a row of odd
/// size begins anywhere, and from the first multiple of 16 bytes on there are `fours` of them.
struct Row {
  std::int64_t classes, stride, head, fours;
};

/// Whether there is a float after which both addresses are multiples of 16 bytes.
__device__ bool meet(const float* a, const float* b) {
  return (reinterpret_cast<std::uintptr_t>(a) - reinterpret_cast<std::uintptr_t>(b)) % 16 == 0;
}
__device__ Row rowOf(const Options& o, const float* from, const float* to) {
  if (o.inner != 1 || !meet(from, to)) return {o.classes, o.inner, o.classes, 0};
  const std::int64_t unaligned = static_cast<std::int64_t>(0 - reinterpret_cast<std::uintptr_t>(from) / 4) & 3;
  const std::int64_t head = unaligned < o.classes ? unaligned : o.classes;
  return {o.classes, 1, head, (o.classes - head) / 4};
}

/// Calls f(c, values) for all classes, with one value or four from c on. Several are loaded before f sees the first
/// one, so that enough is under way also where f writes. Backwards what was read last comes first.
template <bool backwards, class F>
__device__ void forEach(const Row& row, const float* from, F f) {
  constexpr int atOnce = 4;
  for (std::int64_t i = threadIdx.x; i < row.classes - 4 * row.fours; i += blockDim.x) {
    const std::int64_t c = i < row.head ? i : i + 4 * row.fours;
    f(c, Pack<float, 1>{{from[c * row.stride]}});
  }
  for (std::int64_t first = threadIdx.x; first < row.fours; first += atOnce * blockDim.x) {
    Pack<float, 4> values[atOnce];
    const auto at = [&](int i) {
      const std::int64_t four = first + i * static_cast<std::int64_t>(blockDim.x);
      return row.head + 4 * (backwards ? row.fours - 1 - four : four);
    };
    const auto inside = [&](int i) { return first + i * static_cast<std::int64_t>(blockDim.x) < row.fours; };
    for (int i = 0; i < atOnce; ++i)
      if (inside(i)) values[i] = *reinterpret_cast<const Pack<float, 4>*>(from + at(i));
    for (int i = 0; i < atOnce; ++i)
      if (inside(i)) f(at(i), values[i]);
  }
}

/// The sum of e^(x - origin), and the largest x. So that one pass over the row does, the origin follows the values, at
/// a distance: to move it costs an exponential in double precision, and e^16 is far from every limit. Of NaN the
/// maximum takes no notice, since the sum becomes NaN.
struct Exponentials {
  float largest = std::numeric_limits<float>::lowest(), origin = largest;
  double sum = 0;

  template <int n>
  __device__ void add(const Pack<float, n>& values) {
    float highest = values[0];
    for (int i = 1; i < n; ++i) highest = std::fmax(highest, values[i]);
    largest = std::fmax(largest, highest);
    if (highest - origin > 16) moveOrigin(highest);
    for (int i = 0; i < n; ++i) sum += pdcrt::exp(values[i] - origin);
  }
  __device__ void moveOrigin(float to) {
    sum *= std::exp(double(origin) - double(to));
    origin = to;
  }
};

/// A block has `warps` warps. Rows are read a second time for the probabilities, in the opposite direction: what was
/// read last is still in the cache then.
template <int warps, class Label>
__global__ void forwardRows(Options o, const float* logits, const Label* labels, const float* weights,
                            float* probabilities, Share* shares) {
  for (std::int64_t position = blockIdx.x; position < o.batch * o.inner; position += gridDim.x) {
    const std::int64_t begin = position / o.inner * o.classes * o.inner + position % o.inner;
    const float* const row = logits + begin;
    Exponentials own;
    forEach<false>(rowOf(o, row, row), row, [&](std::int64_t, const auto& values) { own.add(values); });
    const float max = cuda::blockCombine<warps>(own.largest, std::numeric_limits<float>::lowest(), cuda::Larger());
    own.moveOrigin(max);
    const double sum = cuda::blockSum<warps>(own.sum);
    const double logSum = max + std::log(sum);
    if (probabilities) {
      const float factor = static_cast<float>(1 / sum);
      float* const to = probabilities + begin;
      forEach<true>(rowOf(o, row, to), row, [&]<int n>(std::int64_t c, Pack<float, n> values) {
        for (int i = 0; i < n; ++i) values[i] = pdcrt::exp(values[i] - max) * factor;
        *reinterpret_cast<Pack<float, n>*>(to + c * o.inner) = values;
      });
    }
    double ofAll = 0;
    if (o.labelSmoothing != 0) {
      forEach<false>(rowOf(o, row, row), row, [&]<int n>(std::int64_t c, const Pack<float, n>& values) {
        for (int i = 0; i < n; ++i) ofAll += weightOf(weights, c + i) * (logSum - values[i]);
      });
      ofAll = cuda::blockSum<warps>(ofAll);
    }
    if (threadIdx.x > 0) continue;
    const std::int64_t label = labels[position];
    Share share = {0, 0};
    if (counts(o, label) && (label < 0 || label >= o.classes)) {
      share.loss = std::numeric_limits<double>::quiet_NaN();
    } else if (counts(o, label)) {
      share.weight = weightOf(weights, label);
      share.loss = (1 - o.labelSmoothing) * share.weight * (logSum - row[label * o.inner]) +
                   o.labelSmoothing / static_cast<double>(o.classes) * ofAll;
    }
    shares[position] = share;
  }
}

__global__ void addShares(std::int64_t count, const Share* shares, float* loss) {
  double losses = 0, weights = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) {
    losses += shares[i].loss;
    weights += shares[i].weight;
  }
  losses = blockSum(losses);
  weights = blockSum(weights);
  if (threadIdx.x == 0) *loss = static_cast<float>(losses / weights);
}

/// The sums of the weights: of the labels that count (one that is none of the classes counts as 1), and of all classes.
struct Sums {
  double labelled, classes;
};

template <class Label>
__global__ void addWeights(Options o, const Label* labels, const float* weights, Sums* sums) {
  double labelled = 0, classes = 0;
  for (std::int64_t i = threadIdx.x; i < o.batch * o.inner; i += blockDim.x)
    if (counts(o, labels[i])) labelled += labels[i] >= 0 && labels[i] < o.classes ? weightOf(weights, labels[i]) : 1;
  for (std::int64_t c = threadIdx.x; c < o.classes; c += blockDim.x) classes += weightOf(weights, c);
  labelled = blockSum(labelled);
  classes = blockSum(classes);
  if (threadIdx.x == 0) *sums = {labelled, classes};
}

/// dx = share · ( (1 - e) · w[label] · (p - at label) + e / C · (p · Σ w - w) ). Of a label that is nearly certain, p -
/// 1 is minus the sum of the others. dx may be p: what other threads write is read before a barrier. Without weights
/// and smoothing (`plain`) less is to be done.
template <bool plain, class Label>
__global__ void gradientRows(Options o, const float* dloss, const Label* labels, const float* probabilities,
                             const float* weights, const Sums* sums, float* dlogits) {
  const double share = sums->labelled == 0 ? 0 : *dloss / sums->labelled, ofClasses = sums->classes;
  const double perClass = share * o.labelSmoothing / static_cast<double>(o.classes);
  for (std::int64_t position = blockIdx.x; position < o.batch * o.inner; position += gridDim.x) {
    const std::int64_t begin = position / o.inner * o.classes * o.inner + position % o.inner, label = labels[position];
    const bool known = label >= 0 && label < o.classes, counted = counts(o, label);
    const float* const p = probabilities + begin;
    float* const d = dlogits + begin;
    const float ofLabel = known ? p[label * o.inner] : 0.0f;
    double belowOne = double(ofLabel) - 1;
    if (counted && known && !(ofLabel < 0.5f)) {
      double others = 0;
      forEach<true>(rowOf(o, p, p), p, [&]<int n>(std::int64_t c, const Pack<float, n>& values) {
        for (int i = 0; i < n; ++i)
          if (c + i != label) others += values[i];
      });
      belowOne = -blockSum(others);
    }
    __syncthreads();
    const double own = plain ? share : known ? share * (1 - o.labelSmoothing) * weightOf(weights, label) : 0;
    forEach<false>(rowOf(o, p, d), p, [&]<int n>(std::int64_t c, Pack<float, n> values) {
      for (int i = 0; i < n; ++i) {
        const bool atLabel = known && c + i == label;
        const double value = values[i], difference = atLabel ? belowOne : value;
        double result = 0;
        if (counted)
          result = plain ? own * difference
                         : own * difference + (value * perClass * ofClasses - perClass * weightOf(weights, c + i));
        values[i] = static_cast<float>(result);
      }
      *reinterpret_cast<Pack<float, n>*>(d + c * o.inner) = values;
    });
  }
}

/// Of large rows so few at once, by large blocks, that the cache holds them all between two passes.
template <class Label>
void launchForward(Stream& q, const Options& o, const float* logits, const Label* labels, const float* weights,
                   float* probabilities, Share* shares) {
  constexpr std::int64_t large = 8192;
  constexpr int manyWarps = 2 * cuda::warpsPerBlock;
  if (o.classes < large) {
    cuda::launchBlocks(q, "cross-entropy", forwardRows<cuda::warpsPerBlock, Label>, o.batch * o.inner, o, logits,
                       labels, weights, probabilities, shares);
    return;
  }
  const auto blocks = static_cast<unsigned>(std::min<std::int64_t>(o.batch * o.inner, 0x7FFFFFFF));
  if (blocks == 0) return;
  PDCRT_LAUNCH((forwardRows<manyWarps, Label>), blocks, manyWarps * cuda::warpSize32, cuda::streamOf(q), o, logits,
               labels, weights, probabilities, shares);
  checkLaunch("cross-entropy");
}

template <class Label>
void forwardLoss(Stream& q, const Options& o, const float* logits, const Label* labels, const float* weights,
                 float* loss, float* probabilities) {
  auto* const shares = reinterpret_cast<Share*>(q.workspace());
  launchForward(q, o, logits, labels, weights, probabilities, shares);
  cuda::launchBlocks(q, "cross-entropy, sum", addShares, 1, o.batch * o.inner, shares, loss);
}

template <class Label>
void gradient(Stream& q, const Options& o, const float* dloss, const Label* labels, const float* probabilities,
              const float* weights, float* dlogits) {
  auto* const sums = reinterpret_cast<Sums*>(q.workspace());
  cuda::launchBlocks(q, "cross-entropy, weights", addWeights<Label>, 1, o, labels, weights, sums);
  const bool plain = !weights && o.labelSmoothing == 0;
  cuda::launchBlocks(q, "cross-entropy, gradient", plain ? gradientRows<true, Label> : gradientRows<false, Label>,
                     o.batch * o.inner, o, dloss, labels, probabilities, weights, sums, dlogits);
}

} // namespace

SoftmaxCrossEntropy::SoftmaxCrossEntropy(Setup& setup, const Options& o) : options_(o) {
  setup.needWorkspace(cuda::workspaceOf(o));
}

void SoftmaxCrossEntropy::forward(Stream& q, View<const float> logits, View<const std::int64_t> labels,
                                  View<const float> weights, View<float> loss, View<float> probabilities) const {
  forwardLoss(q, options_, logits.data, labels.data, weights.data, loss.data, probabilities.data);
}

void SoftmaxCrossEntropy::forward(Stream& q, View<const float> logits, View<const std::int32_t> labels,
                                  View<const float> weights, View<float> loss, View<float> probabilities) const {
  forwardLoss(q, options_, logits.data, labels.data, weights.data, loss.data, probabilities.data);
}

void SoftmaxCrossEntropy::inputGradient(Stream& q, View<const float> dloss, View<const std::int64_t> labels,
                                        View<const float> probabilities, View<const float> weights,
                                        View<float> dlogits) const {
  gradient(q, options_, dloss.data, labels.data, probabilities.data, weights.data, dlogits.data);
}

void SoftmaxCrossEntropy::inputGradient(Stream& q, View<const float> dloss, View<const std::int32_t> labels,
                                        View<const float> probabilities, View<const float> weights,
                                        View<float> dlogits) const {
  gradient(q, options_, dloss.data, labels.data, probabilities.data, weights.data, dlogits.data);
}

} // namespace pdcrt
