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

template <class Label>
__global__ void forwardRows(Options o, const float* logits, const Label* labels, const float* weights,
                            float* probabilities, Share* shares) {
  for (std::int64_t position = blockIdx.x; position < o.batch * o.inner; position += gridDim.x) {
    const std::int64_t begin = position / o.inner * o.classes * o.inner + position % o.inner;
    const float* const row = logits + begin;
    float max = -std::numeric_limits<float>::infinity();
    for (std::int64_t c = threadIdx.x; c < o.classes; c += blockDim.x) max = maximum(max, row[c * o.inner]);
    max = cuda::blockCombine(max, -std::numeric_limits<float>::infinity(), cuda::Larger());
    double sum = 0;
    for (std::int64_t c = threadIdx.x; c < o.classes; c += blockDim.x) sum += pdcrt::exp(row[c * o.inner] - max);
    sum = blockSum(sum);
    const double logSum = max + std::log(sum);
    if (probabilities) {
      const float factor = static_cast<float>(1 / sum);
      for (std::int64_t c = threadIdx.x; c < o.classes; c += blockDim.x)
        probabilities[begin + c * o.inner] = pdcrt::exp(row[c * o.inner] - max) * factor;
    }
    double ofAll = 0;
    if (o.labelSmoothing != 0)
      for (std::int64_t c = threadIdx.x; c < o.classes; c += blockDim.x)
        ofAll += weightOf(weights, c) * (logSum - row[c * o.inner]);
    ofAll = blockSum(ofAll);
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
/// 1 is minus the sum of the others. dx may be p: everything is read before the block's last barrier.
template <class Label>
__global__ void gradientRows(Options o, const float* dloss, const Label* labels, const float* probabilities,
                             const float* weights, const Sums* sums, float* dlogits) {
  const double share = sums->labelled == 0 ? 0 : *dloss / sums->labelled;
  const double perClass = share * o.labelSmoothing / static_cast<double>(o.classes);
  const bool plain = !weights && o.labelSmoothing == 0;
  for (std::int64_t position = blockIdx.x; position < o.batch * o.inner; position += gridDim.x) {
    const std::int64_t begin = position / o.inner * o.classes * o.inner + position % o.inner, label = labels[position];
    const bool known = label >= 0 && label < o.classes;
    const float* const p = probabilities + begin;
    const float ofLabel = known ? p[label * o.inner] : 0.0f;
    double others = 0;
    for (std::int64_t c = threadIdx.x; known && c < o.classes; c += blockDim.x)
      if (c != label) others += p[c * o.inner];
    others = blockSum(others);
    const double belowOne = ofLabel < 0.5f ? double(ofLabel) - 1 : -others;
    const double own = known ? share * (1 - o.labelSmoothing) * weightOf(weights, label) : 0;
    for (std::int64_t c = threadIdx.x; c < o.classes; c += blockDim.x) {
      const bool atLabel = known && c == label;
      const float value = p[c * o.inner];
      double d = 0;
      if (counts(o, label))
        d = plain ? share * (atLabel ? belowOne : double(value))
                  : own * (atLabel ? belowOne : double(value)) +
                        (value * perClass * sums->classes - perClass * weightOf(weights, c));
      dlogits[begin + c * o.inner] = static_cast<float>(d);
    }
  }
}

template <class Label>
void forwardLoss(Stream& q, const Options& o, const float* logits, const Label* labels, const float* weights,
                 float* loss, float* probabilities) {
  auto* const shares = reinterpret_cast<Share*>(q.workspace());
  cuda::launchBlocks(q, "cross-entropy", forwardRows<Label>, o.batch * o.inner, o, logits, labels, weights,
                     probabilities, shares);
  cuda::launchBlocks(q, "cross-entropy, sum", addShares, 1, o.batch * o.inner, shares, loss);
}

template <class Label>
void gradient(Stream& q, const Options& o, const float* dloss, const Label* labels, const float* probabilities,
              const float* weights, float* dlogits) {
  auto* const sums = reinterpret_cast<Sums*>(q.workspace());
  cuda::launchBlocks(q, "cross-entropy, weights", addWeights<Label>, 1, o, labels, weights, sums);
  cuda::launchBlocks(q, "cross-entropy, gradient", gradientRows<Label>, o.batch * o.inner, o, dloss, labels,
                     probabilities, weights, sums, dlogits);
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
