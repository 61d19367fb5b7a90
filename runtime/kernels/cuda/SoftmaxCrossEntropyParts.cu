// See SoftmaxCrossEntropyParts.h. One block per position; one block makes the loss of all, in one order.
#include "pdcrt/kernels/SoftmaxCrossEntropyParts.h"

#include "ClassRows.h"
#include "pdcrt/CudaWorkspace.h"

#include <limits>

namespace pdcrt {
namespace {

using Options = SoftmaxCrossEntropyParts::Options;

constexpr float infinity = std::numeric_limits<float>::infinity();

/// Where the position's first logit is, or the first of `count` numbers; others lie `inner` behind each other.
__device__ std::int64_t placeOf(const Options& o, std::int64_t position, std::int64_t count) {
  return position / o.inner * count * o.inner + position % o.inner;
}

template <class T>
__global__ void largestOfRows(Options o, std::int64_t count, const T* logits, float* maxima) {
  for (std::int64_t position = blockIdx.x; position < o.batch * o.inner; position += gridDim.x) {
    const T* const from = logits + placeOf(o, position, o.classes);
    float largest = -infinity;
    cuda::forEach<false>(cuda::rowOf(count, o.inner, from), from,
                         [&]<int n>(std::int64_t, const Pack<float, n>& values) {
                           for (int i = 0; i < n; ++i) largest = std::fmax(largest, values[i]);
                         });
    largest = cuda::blockCombine(largest, -infinity, cuda::Larger());
    if (threadIdx.x == 0) maxima[position] = largest;
  }
}

/// Σ share · (m - x) and Σ share. A class without a share may have a logit of -infinity.
struct Shares {
  double losses = 0, all = 0;

  __device__ void add(double share, float m, float logit) {
    if (share == 0) return;
    losses += share * (static_cast<double>(m) - logit);
    all += share;
  }
};

template <class T, class Label>
__global__ void sumsOfRows(Options o, OwnClasses here, const T* logits, const Label* labels, const float* maxima,
                           const float* weights, float* sums) {
  const double perClass = o.labelSmoothing / static_cast<double>(o.total);
  for (std::int64_t position = blockIdx.x; position < o.batch * o.inner; position += gridDim.x) {
    const T* const from = logits + placeOf(o, position, o.classes);
    const float m = maxima[position];
    const std::int64_t label = labels[position], own = label - here.first;
    const bool isEmpty = m == -infinity, counted = !isEmpty && cuda::counts(o, label);
    double sum = 0;
    Shares shares;
    cuda::forEach<true>(cuda::rowOf(isEmpty ? 0 : here.count, o.inner, from), from,
                        [&]<int n>(std::int64_t c, const Pack<float, n>& values) {
                          sum += cuda::sumOfPack<n>([&](int i) { return cuda::exponential<T>(values[i] - m); });
                          if (perClass == 0 || !counted) return;
                          for (int i = 0; i < n; ++i)
                            shares.add(perClass * cuda::weightOf(weights, here.first + c + i), m, values[i]);
                        });
    if (threadIdx.x == 0 && counted && own >= 0 && own < here.count)
      shares.add((1 - o.labelSmoothing) * cuda::weightOf(weights, label), m, static_cast<float>(from[own * o.inner]));
    sum = cuda::blockSum(sum);
    shares.losses = cuda::blockSum(shares.losses);
    shares.all = cuda::blockSum(shares.all);
    if (threadIdx.x > 0) continue;
    float* const to = sums + placeOf(o, position, 3);
    to[0] = static_cast<float>(sum);
    to[o.inner] = static_cast<float>(shares.losses);
    to[2 * o.inner] = static_cast<float>(shares.all);
  }
}

template <class Label>
__global__ void lossOfSums(Options o, const float* sums, const float* maxima, const Label* labels, const float* weights,
                           float* loss, float* statistics) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  double losses = 0, labelled = 0;
  for (std::int64_t i = threadIdx.x; i < o.batch * o.inner; i += blockDim.x) {
    const float* const from = sums + placeOf(o, i, 3);
    const double sum = from[0] == 0 ? nan : from[0];
    if (statistics) {
      float* const to = statistics + placeOf(o, i, 2);
      to[0] = maxima[i];
      to[o.inner] = static_cast<float>(1 / sum);
    }
    const std::int64_t label = labels[i];
    if (!cuda::counts(o, label)) continue;
    if (label < 0 || label >= o.total) {
      losses = nan;
      continue;
    }
    labelled += cuda::weightOf(weights, label);
    losses += from[o.inner] + from[2 * o.inner] * std::log(sum);
  }
  losses = cuda::blockSum(losses);
  labelled = cuda::blockSum(labelled);
  if (threadIdx.x == 0) *loss = labelled == 0 && losses == 0 ? 0 : static_cast<float>(losses / labelled);
}

OwnClasses classesOf(const Options& o, const Stream& q) {
  return ownClasses(o.total, o.classes, q.member());
}

} // namespace

SoftmaxCrossEntropyParts::SoftmaxCrossEntropyParts(Setup& setup, const Options& o) : options_(o) {
  setup.needWorkspace(cuda::workspaceOf(o));
}

#define PDCRT_MAXIMA(T)                                                                                                \
  void SoftmaxCrossEntropyParts::maxima(Stream& q, View<const T> logits, View<float> maxima) const {                   \
    cuda::launchBlocks(q, "cross-entropy, maxima", largestOfRows<T>, options_.batch* options_.inner, options_,         \
                       classesOf(options_, q).count, logits.data, maxima.data);                                        \
  }
#define PDCRT_SUMS(T, Label)                                                                                           \
  void SoftmaxCrossEntropyParts::sums(Stream& q, View<const T> logits, View<const Label> labels,                       \
                                      View<const float> maxima, View<const float> weights, View<float> sums) const {   \
    cuda::launchBlocks(q, "cross-entropy, sums", sumsOfRows<T, Label>, options_.batch* options_.inner, options_,       \
                       classesOf(options_, q), logits.data, labels.data, maxima.data, weights.data, sums.data);        \
  }
#define PDCRT_OF_SUMS(Label)                                                                                           \
  void SoftmaxCrossEntropyParts::ofSums(Stream& q, View<const float> sums, View<const float> maxima,                   \
                                        View<const Label> labels, View<const float> weights, View<float> loss,         \
                                        View<float> statistics) const {                                                \
    cuda::launchBlocks(q, "cross-entropy, of sums", lossOfSums<Label>, 1, options_, sums.data, maxima.data,            \
                       labels.data, weights.data, loss.data, statistics.data);                                         \
  }
#define PDCRT_CROSS_ENTROPY_PARTS(T)                                                                                   \
  PDCRT_MAXIMA(T)                                                                                                      \
  PDCRT_SUMS(T, std::int64_t)                                                                                          \
  PDCRT_SUMS(T, std::int32_t)
PDCRT_CROSS_ENTROPY_PARTS(float)
PDCRT_CROSS_ENTROPY_PARTS(bfloat16)
PDCRT_CROSS_ENTROPY_PARTS(float16)
PDCRT_OF_SUMS(std::int64_t)
PDCRT_OF_SUMS(std::int32_t)
#undef PDCRT_CROSS_ENTROPY_PARTS
#undef PDCRT_OF_SUMS
#undef PDCRT_SUMS
#undef PDCRT_MAXIMA

} // namespace pdcrt
