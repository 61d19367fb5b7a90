// See SoftmaxCrossEntropy.h. One block per position; what the positions add to the loss goes through the workspace, and
// one block adds it up, so that every run has the same order.
#include "pdcrt/kernels/SoftmaxCrossEntropy.h"

#include "ClassRows.h"
#include "pdcrt/CudaWorkspace.h"

#include <limits>

namespace pdcrt {
namespace {

using Options = SoftmaxCrossEntropy::Options;
using cuda::blockSum;
using cuda::counts;
using cuda::exponential;
using cuda::forEach;
using cuda::Row;
using cuda::rowOf;
using cuda::sumOfPack;
using cuda::weightOf;

/// What a position adds: to the sum of the loss, and to that of the weights.
struct Share {
  double loss, weight;
};

/// The sum of e^(x - origin), and the largest x. So that one pass over the row does, the origin follows the values, at
/// a distance: to move it costs an exponential and a conversion, and e^16 is far from every limit. Of NaN the maximum
/// takes no notice, since the sum becomes NaN.
template <class T>
struct Exponentials {
  float largest = std::numeric_limits<float>::lowest(), origin = largest;
  double sum = 0;

  template <int n>
  __device__ void add(const Pack<float, n>& values) {
    float highest = values[0];
    for (int i = 1; i < n; ++i) highest = std::fmax(highest, values[i]);
    largest = std::fmax(largest, highest);
    if (highest - origin > 16) moveOrigin(highest);
    sum += sumOfPack<n>([&](int i) { return exponential<T>(values[i] - origin); });
  }
  __device__ void moveOrigin(float to) {
    sum *= pdcrt::exp(origin - to);
    origin = to;
  }
};

/// Where the first of a position's statistics is; the other lies `inner` behind it.
__device__ std::int64_t statisticsAt(const Options& o, std::int64_t position) {
  return position / o.inner * 2 * o.inner + position % o.inner;
}
/// Where the position's first logit is.
__device__ std::int64_t logitsAt(const Options& o, std::int64_t position) {
  return position / o.inner * (o.classes + o.gap) * o.inner + position % o.inner;
}

/// A block has `warps` warps.
template <int warps, class T, class Label>
__global__ void forwardRows(Options o, const T* logits, const Label* labels, const float* weights, float* statistics,
                            Share* shares) {
  for (std::int64_t position = blockIdx.x; position < o.batch * o.inner; position += gridDim.x) {
    const T* const from = logits + logitsAt(o, position);
    const Row row = rowOf(o.classes, o.inner, from);
    Exponentials<T> own;
    forEach<false>(row, from, [&](std::int64_t, const auto& values) { own.add(values); });
    const float max = cuda::blockCombine<warps>(own.largest, std::numeric_limits<float>::lowest(), cuda::Larger());
    own.moveOrigin(max);
    const double sum = cuda::blockSum<warps>(own.sum);
    const double logSum = max + std::log(sum);
    double ofAll = 0;
    if (o.labelSmoothing != 0) {
      forEach<true>(row, from, [&]<int n>(std::int64_t c, const Pack<float, n>& values) {
        for (int i = 0; i < n; ++i) ofAll += weightOf(weights, c + i) * (logSum - values[i]);
      });
      ofAll = cuda::blockSum<warps>(ofAll);
    }
    if (threadIdx.x > 0) continue;
    if (statistics) {
      float* const to = statistics + statisticsAt(o, position);
      to[0] = max;
      to[o.inner] = static_cast<float>(1 / sum);
    }
    const std::int64_t label = labels[position];
    Share share = {0, 0};
    if (counts(o, label) && (label < 0 || label >= o.classes)) {
      share.loss = std::numeric_limits<double>::quiet_NaN();
    } else if (counts(o, label)) {
      share.weight = weightOf(weights, label);
      share.loss = (1 - o.labelSmoothing) * share.weight * (logSum - static_cast<float>(from[label * o.inner])) +
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
  if (threadIdx.x == 0) *loss = weights == 0 && losses == 0 ? 0 : static_cast<float>(losses / weights);
}

/// The sums of the weights: of the labels that count (one that is none of the classes counts as 1), and of all classes.
struct Sums {
  double labelled, classes;
};

template <class Label>
__global__ void addWeights(Options o, std::int64_t total, const Label* labels, const float* weights, Sums* sums) {
  double labelled = 0, classes = 0;
  for (std::int64_t i = threadIdx.x; i < o.batch * o.inner; i += blockDim.x)
    if (counts(o, labels[i])) labelled += labels[i] >= 0 && labels[i] < total ? weightOf(weights, labels[i]) : 1;
  for (std::int64_t c = threadIdx.x; c < total; c += blockDim.x) classes += weightOf(weights, c);
  labelled = blockSum(labelled);
  classes = blockSum(classes);
  if (threadIdx.x == 0) *sums = {labelled, classes};
}

/// dx = share · ( (1 - e) · w[label] · (p - at label) + e / C · (p · Σ w - w) ), p from the logits and what the forward
/// knew of them. Of a label that is nearly certain, p - 1 is minus the sum of the others. The label's own is written
/// last, over what it would be were it another class. dx may be the logits: what other threads write is read before a
/// barrier. Without weights and smoothing (`plain`) less is to be done. The logits of a member of a team are those of
/// o.classes of `total` classes from `firstClass` on.
template <bool plain, class T, class Label>
__global__ void gradientRows(Options o, std::int64_t firstClass, std::int64_t total, const float* dloss,
                             const Label* labels, const T* logits, const float* statistics, const float* weights,
                             const Sums* sums, T* dlogits) {
  const double share = sums->labelled == 0 ? 0 : *dloss / sums->labelled, ofClasses = sums->classes;
  const double perClass = share * o.labelSmoothing / static_cast<double>(total);
  for (std::int64_t position = blockIdx.x; position < o.batch * o.inner; position += gridDim.x) {
    const std::int64_t begin = logitsAt(o, position), label = labels[position], ownLabel = label - firstClass;
    const bool valid = label >= 0 && label < total, known = ownLabel >= 0 && ownLabel < o.classes,
               counted = counts(o, label);
    const T* const from = logits + begin;
    T* const to = dlogits + begin;
    const Row row = rowOf(o.classes, o.inner, from);
    const float largest = statistics[statisticsAt(o, position)],
                factor = statistics[statisticsAt(o, position) + o.inner];
    const auto probability = [&](float logit) { return exponential<T>(logit - largest) * factor; };
    const float ofLabel = known ? probability(static_cast<float>(from[ownLabel * o.inner])) : 0.0f;
    double belowOne = double(ofLabel) - 1;
    if (counted && known && !(ofLabel < 0.5f) && o.total == 0) {
      double others = 0;
      forEach<true>(row, from, [&]<int n>(std::int64_t c, const Pack<float, n>& values) {
        others += sumOfPack<n>([&](int i) { return c + i == ownLabel ? 0.0f : probability(values[i]); });
      });
      belowOne = -blockSum(others);
    }
    __syncthreads();
    const double own = plain ? share : valid ? share * (1 - o.labelSmoothing) * weightOf(weights, label) : 0;
    const float plainOwn = static_cast<float>(own);
    const auto smoothed = [&](std::int64_t c, float value) {
      return value * perClass * ofClasses - perClass * weightOf(weights, firstClass + c);
    };
    const auto derivative = [&](std::int64_t c, float logit) {
      const float value = probability(logit);
      if (!counted) return 0.0f;
      return plain ? plainOwn * value : static_cast<float>(own * value + smoothed(c, value));
    };
    forEach<false>(row, from, [&]<int n>(std::int64_t c, const Pack<float, n>& values) {
      Pack<T, n> results;
      for (int i = 0; i < n; ++i) results[i] = static_cast<T>(derivative(c + i, values[i]));
      T* const place = to + c * o.inner;
      if (reinterpret_cast<std::uintptr_t>(place) % sizeof results == 0)
        *reinterpret_cast<Pack<T, n>*>(place) = results;
      else
        for (int i = 0; i < n; ++i) place[i] = results[i];
    });
    __syncthreads();
    if (threadIdx.x == 0 && counted && known)
      to[ownLabel * o.inner] =
          static_cast<T>(static_cast<float>(own * belowOne + (plain ? 0.0 : smoothed(ownLabel, ofLabel))));
    for (std::int64_t c = o.classes + threadIdx.x; c < o.classes + o.gap; c += blockDim.x) to[c * o.inner] = T(0.0f);
  }
}

/// Of large rows so few at once, by large blocks, that the cache holds them all between two passes.
template <class T, class Label>
void launchForward(Stream& q, const Options& o, const T* logits, const Label* labels, const float* weights,
                   float* statistics, Share* shares) {
  constexpr std::int64_t large = 8192;
  constexpr int manyWarps = 2 * cuda::warpsPerBlock;
  if (o.classes < large) {
    cuda::launchBlocks(q, "cross-entropy", forwardRows<cuda::warpsPerBlock, T, Label>, o.batch * o.inner, o, logits,
                       labels, weights, statistics, shares);
    return;
  }
  const auto blocks = static_cast<unsigned>(std::min<std::int64_t>(o.batch * o.inner, 0x7FFFFFFF));
  if (blocks == 0) return;
  PDCRT_LAUNCH((forwardRows<manyWarps, T, Label>), blocks, manyWarps * cuda::warpSize32, cuda::streamOf(q), o, logits,
               labels, weights, statistics, shares);
  checkLaunch("cross-entropy");
}

template <class T, class Label>
void forwardLoss(Stream& q, const Options& o, const T* logits, const Label* labels, const float* weights, float* loss,
                 float* statistics) {
  auto* const shares = reinterpret_cast<Share*>(q.workspace());
  launchForward(q, o, logits, labels, weights, statistics, shares);
  cuda::launchBlocks(q, "cross-entropy, sum", addShares, 1, o.batch * o.inner, shares, loss);
}

template <class T, class Label>
void gradient(Stream& q, Options o, const float* dloss, const Label* labels, const T* logits, const float* statistics,
              const float* weights, T* dlogits) {
  auto* const sums = reinterpret_cast<Sums*>(q.workspace());
  const std::int64_t total = o.total > 0 ? o.total : o.classes;
  const OwnClasses here = ownClasses(total, o.classes, o.total > 0 ? q.member() : 0);
  o.gap += o.classes - here.count;
  o.classes = here.count;
  cuda::launchBlocks(q, "cross-entropy, weights", addWeights<Label>, 1, o, total, labels, weights, sums);
  const bool plain = !weights && o.labelSmoothing == 0;
  cuda::launchBlocks(q, "cross-entropy, gradient", plain ? gradientRows<true, T, Label> : gradientRows<false, T, Label>,
                     o.batch * o.inner, o, here.first, total, dloss, labels, logits, statistics, weights, sums,
                     dlogits);
}

} // namespace

SoftmaxCrossEntropy::SoftmaxCrossEntropy(Setup& setup, const Options& o) : options_(o) {
  setup.needWorkspace(cuda::workspaceOf(o));
}

#define PDCRT_CROSS_ENTROPY(T, Label)                                                                                  \
  void SoftmaxCrossEntropy::forward(Stream& q, View<const T> logits, View<const Label> labels,                         \
                                    View<const float> weights, View<float> loss, View<float> statistics) const {       \
    forwardLoss(q, options_, logits.data, labels.data, weights.data, loss.data, statistics.data);                      \
  }                                                                                                                    \
  void SoftmaxCrossEntropy::inputGradient(Stream& q, View<const float> dloss, View<const Label> labels,                \
                                          View<const T> logits, View<const float> statistics,                          \
                                          View<const float> weights, View<T> dlogits) const {                          \
    gradient(q, options_, dloss.data, labels.data, logits.data, statistics.data, weights.data, dlogits.data);          \
  }
#define PDCRT_CROSS_ENTROPY_OF(T)                                                                                      \
  PDCRT_CROSS_ENTROPY(T, std::int64_t)                                                                                 \
  PDCRT_CROSS_ENTROPY(T, std::int32_t)
PDCRT_CROSS_ENTROPY_OF(float)
PDCRT_CROSS_ENTROPY_OF(bfloat16)
PDCRT_CROSS_ENTROPY_OF(float16)
#undef PDCRT_CROSS_ENTROPY_OF
#undef PDCRT_CROSS_ENTROPY

} // namespace pdcrt
