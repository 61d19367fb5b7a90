// See SoftmaxCrossEntropy.h.
#include "pdcrt/kernels/SoftmaxCrossEntropy.h"

#include "Parts.h"
#include "Sums.h"
#include "pdcrt/Math.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace pdcrt {
namespace {

using Options = SoftmaxCrossEntropy::Options;

/// The logits of one position: `count` numbers, `stride` apart.
struct Row {
  std::int64_t count, stride;
};

/// `at` says where the logit of a class is, `max` is the largest. A NaN shows in the sum.
template <class At>
PDCRT_INLINE double logSumExp(Row row, At at, const float* logits, float max, float* probabilities) {
  const auto exponential = [&](std::int64_t i) { return pdcrt::exp(logits[at(i)] - max); };
  if (!probabilities) return max + std::log(sumOf(row.count, exponential));
#pragma GCC ivdep // logits and probabilities are different memory
  for (std::int64_t i = 0; i < row.count; ++i) probabilities[at(i)] = exponential(i);
  const double sum = sumOf(row.count, [&](std::int64_t i) { return probabilities[at(i)]; });
  const float factor = static_cast<float>(1 / sum);
  for (std::int64_t i = 0; i < row.count; ++i) probabilities[at(i)] *= factor;
  return max + std::log(sum);
}

/// log of the sum of the exponentials. `probabilities` may be null.
PDCRT_VECTORIZED double logSumExp(Row row, const float* logits, float* probabilities) {
  if (row.stride == 1) // vector code
    return logSumExp(
        row, [](std::int64_t i) { return i; }, logits, maxOf(row.count, logits), probabilities);
  const auto at = [row](std::int64_t i) { return i * row.stride; };
  float max = -std::numeric_limits<float>::infinity();
  for (std::int64_t i = 0; i < row.count; ++i) max = std::max(max, logits[at(i)]);
  return logSumExp(row, at, logits, max, probabilities);
}

PDCRT_VECTORIZED void scaleRow(Row row, const float* from, float factor, float* to) {
  for (std::int64_t i = 0; i < row.count; ++i) to[i * row.stride] = from[i * row.stride] * factor;
}

bool counts(const Options& o, std::int64_t label) {
  return !o.hasIgnoreIndex || label != o.ignoreIndex;
}

/// The class weights, which may be absent.
class Weights {
public:
  Weights(const float* weights, std::int64_t classes) : weights_(weights), sum_(static_cast<double>(classes)) {
    if (!weights) return;
    sum_ = 0;
    for (std::int64_t c = 0; c < classes; ++c) sum_ += weights[c];
  }
  double of(std::int64_t c) const { return weights_ ? weights_[c] : 1; }
  double sum() const { return sum_; }
  explicit operator bool() const { return weights_; }

private:
  const float* weights_;
  double sum_;
};

/// Σ_c w[c] · -log p[c] of one position.
double lossOfAllClasses(Row row, const float* logits, double logSum, const Weights& weights) {
  double sum = 0;
  for (std::int64_t c = 0; c < row.count; ++c) sum += weights.of(c) * (logSum - logits[c * row.stride]);
  return sum;
}

/// How many threads share the positions.
int partsOf(const Options& o) {
  return parts::countOf(o.batch * o.inner, o.batch * o.inner * o.classes);
}

/// Calls f(position, where its logits begin) for positions first to end - 1.
template <class F>
void forEachPosition(const Options& o, std::int64_t first, std::int64_t end, const F& f) {
  for (std::int64_t at = first; at < end; ++at) f(at, at / o.inner * o.classes * o.inner + at % o.inner);
}

/// The loss is summed up in one order; what threads share before, the logarithms, they put into `logSums`, where there
/// is more than one.
template <class Label>
void forwardLoss(const Options& o, const float* logits, const Label* labels, const Weights& weights, float* loss,
                 float* probabilities, double* logSums) {
  const Row row = {o.classes, o.inner};
  const double perClass = o.labelSmoothing / static_cast<double>(o.classes);
  const auto logSumAt = [&](std::int64_t begin) {
    return logSumExp(row, logits + begin, probabilities ? probabilities + begin : nullptr);
  };
  const int threads = partsOf(o);
  if (threads > 1)
    parts::runRanges(threads, o.batch * o.inner, [&](std::int64_t first, std::int64_t end) {
      forEachPosition(o, first, end, [&](std::int64_t at, std::int64_t begin) { logSums[at] = logSumAt(begin); });
    });
  double total = 0, labelled = 0;
  forEachPosition(o, 0, o.batch * o.inner, [&](std::int64_t at, std::int64_t begin) {
    const std::int64_t label = labels[at];
    const double logSum = threads > 1 ? logSums[at] : logSumAt(begin);
    if (!counts(o, label)) return;
    if (label < 0 || label >= o.classes) {
      total = std::numeric_limits<double>::quiet_NaN();
      return;
    }
    labelled += weights.of(label);
    total += (1 - o.labelSmoothing) * weights.of(label) * (logSum - logits[begin + label * o.inner]);
    if (perClass != 0) total += perClass * lossOfAllClasses(row, logits + begin, logSum, weights);
  });
  *loss = static_cast<float>(total / labelled);
}

/// The sum of the weights of the labels that count; one that is none of the classes counts as 1.
template <class Label>
double sumOfWeights(const Options& o, const Label* labels, const Weights& weights) {
  double sum = 0;
  for (std::int64_t i = 0; i < o.batch * o.inner; ++i)
    if (counts(o, labels[i])) sum += labels[i] >= 0 && labels[i] < o.classes ? weights.of(labels[i]) : 1;
  return sum;
}

/// p[label] - 1. Of a label that is nearly certain, p rounded to float leaves few digits of that, or none: the others'
/// probabilities, which add up to it, have them all.
PDCRT_VECTORIZED double belowOne(Row row, const float* p, std::int64_t label) {
  const float own = p[label * row.stride];
  if (own < 0.5f) return static_cast<double>(own) - 1;
  const float* const later = p + (label + 1) * row.stride;
  return -sumOf(label, [&](std::int64_t i) { return p[i * row.stride]; }) -
         sumOf(row.count - label - 1, [&](std::int64_t i) { return later[i * row.stride]; });
}

/// One position: dx = share · ( (1 - e) · w[label] · (p - at label) + e / C · (p · Σ w - w) ).
void smoothedRow(const Options& o, const float* p, std::int64_t label, double share, const Weights& weights,
                 float* to) {
  const double perClass = share * o.labelSmoothing / static_cast<double>(o.classes);
  const bool valid = label >= 0 && label < o.classes;
  const double own = valid ? share * (1 - o.labelSmoothing) * weights.of(label) : 0;
  const double atLabel = valid ? belowOne({o.classes, o.inner}, p, label) : 0; // before p may be overwritten
  const double ofAll = perClass * weights.sum();
  for (std::int64_t c = 0; c < o.classes; ++c) {
    const std::int64_t at = c * o.inner;
    const double ofOwn = own * (c == label ? atLabel : p[at]);
    to[at] = static_cast<float>(ofOwn + (p[at] * ofAll - perClass * weights.of(c)));
  }
}

template <class Label>
void gradient(const Options& o, float dloss, const Label* labels, const float* probabilities, const Weights& weights,
              float* dlogits) {
  const Row row = {o.classes, o.inner};
  const double labelled = sumOfWeights(o, labels, weights);
  const double share = labelled == 0 ? 0 : dloss / labelled;
  const bool plain = !weights && o.labelSmoothing == 0;
  const auto ofPosition = [&](std::int64_t at, std::int64_t begin) {
    const std::int64_t label = labels[at];
    if (!counts(o, label)) {
      for (std::int64_t c = 0; c < o.classes; ++c) dlogits[begin + c * o.inner] = 0;
      return;
    }
    if (!plain) {
      smoothedRow(o, probabilities + begin, label, share, weights, dlogits + begin);
      return;
    }
    const bool valid = label >= 0 && label < o.classes;
    const auto factor = static_cast<float>(share);
    const double atLabel = valid ? belowOne(row, probabilities + begin, label) * share : 0;
    scaleRow(row, probabilities + begin, factor, dlogits + begin);
    if (valid) dlogits[begin + label * o.inner] = static_cast<float>(atLabel);
  };
  parts::runRanges(partsOf(o), o.batch * o.inner,
                   [&](std::int64_t first, std::int64_t end) { forEachPosition(o, first, end, ofPosition); });
}

} // namespace

SoftmaxCrossEntropy::SoftmaxCrossEntropy(Setup& setup, const Options& o) : options_(o) {
  if (partsOf(o) > 1) setup.needWorkspace(static_cast<std::size_t>(o.batch * o.inner) * sizeof(double));
}

void SoftmaxCrossEntropy::forward(Stream& q, View<const float> logits, View<const std::int64_t> labels,
                                  View<const float> weights, View<float> loss, View<float> probabilities) const {
  forwardLoss(options_, logits.data, labels.data, Weights(weights.data, options_.classes), loss.data,
              probabilities.data, reinterpret_cast<double*>(q.workspace()));
}

void SoftmaxCrossEntropy::forward(Stream& q, View<const float> logits, View<const std::int32_t> labels,
                                  View<const float> weights, View<float> loss, View<float> probabilities) const {
  forwardLoss(options_, logits.data, labels.data, Weights(weights.data, options_.classes), loss.data,
              probabilities.data, reinterpret_cast<double*>(q.workspace()));
}

void SoftmaxCrossEntropy::inputGradient(Stream&, View<const float> dloss, View<const std::int64_t> labels,
                                        View<const float> probabilities, View<const float> weights,
                                        View<float> dlogits) const {
  gradient(options_, *dloss.data, labels.data, probabilities.data, Weights(weights.data, options_.classes),
           dlogits.data);
}

void SoftmaxCrossEntropy::inputGradient(Stream&, View<const float> dloss, View<const std::int32_t> labels,
                                        View<const float> probabilities, View<const float> weights,
                                        View<float> dlogits) const {
  gradient(options_, *dloss.data, labels.data, probabilities.data, Weights(weights.data, options_.classes),
           dlogits.data);
}

} // namespace pdcrt
