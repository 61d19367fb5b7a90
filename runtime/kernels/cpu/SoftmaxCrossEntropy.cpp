// See SoftmaxCrossEntropy.h.
#include "pdcrt/kernels/SoftmaxCrossEntropy.h"

#include "device/cpu/Parts.h"
#include "device/cpu/Sums.h"
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

/// What the gradient needs of a position: probabilities are e^(logit - largest) · factor.
struct Statistics {
  float largest, factor;
};

/// `at` says where the logit of a class is. A NaN shows in the sum.
template <class At>
PDCRT_INLINE double logSumExp(Row row, At at, const float* logits, Statistics& found) {
  const double sum = sumOf(row.count, [&](std::int64_t i) { return pdcrt::exp(logits[at(i)] - found.largest); });
  found.factor = static_cast<float>(1 / sum);
  return found.largest + std::log(sum);
}

/// log of the sum of the exponentials.
PDCRT_VECTORIZED double logSumExp(Row row, const float* logits, Statistics& found) {
  if (row.stride == 1) { // vector code
    found.largest = maxOf(row.count, logits);
    return logSumExp(
        row, [](std::int64_t i) { return i; }, logits, found);
  }
  const auto at = [row](std::int64_t i) { return i * row.stride; };
  found.largest = -std::numeric_limits<float>::infinity();
  for (std::int64_t i = 0; i < row.count; ++i) found.largest = std::max(found.largest, logits[at(i)]);
  return logSumExp(row, at, logits, found);
}

/// `p` may be `logits`.
template <class At>
PDCRT_INLINE void probabilitiesOf(Row row, At at, const float* logits, Statistics known, float* p) {
#pragma GCC ivdep // logits and probabilities are different memory, or the same
  for (std::int64_t i = 0; i < row.count; ++i) p[at(i)] = pdcrt::exp(logits[at(i)] - known.largest) * known.factor;
}
PDCRT_VECTORIZED void probabilitiesOf(Row row, const float* logits, Statistics known, float* p) {
  if (row.stride == 1)
    probabilitiesOf(
        row, [](std::int64_t i) { return i; }, logits, known, p);
  else
    probabilitiesOf(
        row, [row](std::int64_t i) { return i * row.stride; }, logits, known, p);
}

PDCRT_VECTORIZED void scaleRow(Row row, float factor, float* numbers) {
  for (std::int64_t i = 0; i < row.count; ++i) numbers[i * row.stride] *= factor;
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
  for (std::int64_t at = first; at < end; ++at) f(at, at / o.inner * (o.classes + o.gap) * o.inner + at % o.inner);
}

/// Where the first of a position's statistics is; the other lies `inner` behind it.
std::int64_t statisticsAt(const Options& o, std::int64_t position) {
  return position / o.inner * 2 * o.inner + position % o.inner;
}

/// The loss is summed up in one order; what threads share before, the logarithms, they put into `logSums`, where there
/// is more than one.
template <class Label>
void forwardLoss(const Options& o, const float* logits, const Label* labels, const Weights& weights, float* loss,
                 float* statistics, double* logSums) {
  const Row row = {o.classes, o.inner};
  const double perClass = o.labelSmoothing / static_cast<double>(o.classes);
  const auto logSumAt = [&](std::int64_t at, std::int64_t begin) {
    Statistics found;
    const double logSum = logSumExp(row, logits + begin, found);
    if (statistics) {
      float* const to = statistics + statisticsAt(o, at);
      to[0] = found.largest;
      to[o.inner] = found.factor;
    }
    return logSum;
  };
  const int threads = partsOf(o);
  if (threads > 1)
    parts::runRanges(threads, o.batch * o.inner, [&](std::int64_t first, std::int64_t end) {
      forEachPosition(o, first, end, [&](std::int64_t at, std::int64_t begin) { logSums[at] = logSumAt(at, begin); });
    });
  double total = 0, labelled = 0;
  forEachPosition(o, 0, o.batch * o.inner, [&](std::int64_t at, std::int64_t begin) {
    const std::int64_t label = labels[at];
    const double logSum = threads > 1 ? logSums[at] : logSumAt(at, begin);
    if (!counts(o, label)) return;
    if (label < 0 || label >= o.classes) {
      total = std::numeric_limits<double>::quiet_NaN();
      return;
    }
    labelled += weights.of(label);
    total += (1 - o.labelSmoothing) * weights.of(label) * (logSum - logits[begin + label * o.inner]);
    if (perClass != 0) total += perClass * lossOfAllClasses(row, logits + begin, logSum, weights);
  });
  *loss = labelled == 0 && total == 0 ? 0 : static_cast<float>(total / labelled); // no position counts: nothing
}

/// Of all members of a team.
std::int64_t allClasses(const Options& o) {
  return o.total > 0 ? o.total : o.classes;
}

/// The sum of the weights of the labels that count; one that is none of the classes counts as 1.
template <class Label>
double sumOfWeights(const Options& o, const Label* labels, const Weights& weights) {
  double sum = 0;
  for (std::int64_t i = 0; i < o.batch * o.inner; ++i)
    if (counts(o, labels[i])) sum += labels[i] >= 0 && labels[i] < allClasses(o) ? weights.of(labels[i]) : 1;
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

/// One position, in the place of the probabilities p of `here`. `below` is p[label] - 1, if the label is one of them.
/// dx = share · ( (1 - e) · w[label] · (p - at label) + e / C · (p · Σ w - w) ).
void smoothedRow(const Options& o, OwnClasses here, std::int64_t label, double below, double share,
                 const Weights& weights, float* p) {
  const double perClass = share * o.labelSmoothing / static_cast<double>(allClasses(o));
  const bool valid = label >= 0 && label < allClasses(o);
  const double own = valid ? share * (1 - o.labelSmoothing) * weights.of(label) : 0;
  const double ofAll = perClass * weights.sum();
  for (std::int64_t c = here.first; c < here.first + here.count; ++c) {
    const std::int64_t at = (c - here.first) * o.inner;
    const double ofOwn = own * (c == label ? below : p[at]);
    p[at] = static_cast<float>(ofOwn + (p[at] * ofAll - perClass * weights.of(c)));
  }
}

template <class Label>
void gradient(const Options& o, int member, float dloss, const Label* labels, const float* logits,
              const float* statistics, const Weights& weights, float* dlogits) {
  const OwnClasses here = ownClasses(allClasses(o), o.classes, o.total > 0 ? member : 0);
  const Row row = {here.count, o.inner};
  const double labelled = sumOfWeights(o, labels, weights);
  const double share = labelled == 0 ? 0 : dloss / labelled;
  const bool plain = !weights && o.labelSmoothing == 0;
  const auto ofPosition = [&](std::int64_t at, std::int64_t begin) {
    const std::int64_t label = labels[at];
    float* const to = dlogits + begin;
    const bool counted = counts(o, label);
    for (std::int64_t c = counted ? here.count : 0; c < o.classes + o.gap; ++c) to[c * o.inner] = 0;
    if (!counted) return;
    const float* const known = statistics + statisticsAt(o, at);
    probabilitiesOf(row, logits + begin, {known[0], known[o.inner]}, to);
    const std::int64_t own = label - here.first;
    const bool isHere = own >= 0 && own < here.count;
    const double below = !isHere ? 0 : o.total > 0 ? to[own * o.inner] - 1.0 : belowOne(row, to, own);
    if (!plain) {
      smoothedRow(o, here, label, below, share, weights, to);
      return;
    }
    scaleRow(row, static_cast<float>(share), to);
    if (isHere) to[own * o.inner] = static_cast<float>(below * share);
  };
  parts::runRanges(partsOf(o), o.batch * o.inner,
                   [&](std::int64_t first, std::int64_t end) { forEachPosition(o, first, end, ofPosition); });
}

} // namespace

SoftmaxCrossEntropy::SoftmaxCrossEntropy(Setup& setup, const Options& o) : options_(o) {
  if (partsOf(o) > 1) setup.needWorkspace(static_cast<std::size_t>(o.batch * o.inner) * sizeof(double));
}

void SoftmaxCrossEntropy::forward(Stream& q, View<const float> logits, View<const std::int64_t> labels,
                                  View<const float> weights, View<float> loss, View<float> statistics) const {
  forwardLoss(options_, logits.data, labels.data, Weights(weights.data, options_.classes), loss.data, statistics.data,
              reinterpret_cast<double*>(q.workspace()));
}

void SoftmaxCrossEntropy::forward(Stream& q, View<const float> logits, View<const std::int32_t> labels,
                                  View<const float> weights, View<float> loss, View<float> statistics) const {
  forwardLoss(options_, logits.data, labels.data, Weights(weights.data, options_.classes), loss.data, statistics.data,
              reinterpret_cast<double*>(q.workspace()));
}

void SoftmaxCrossEntropy::inputGradient(Stream& q, View<const float> dloss, View<const std::int64_t> labels,
                                        View<const float> logits, View<const float> statistics,
                                        View<const float> weights, View<float> dlogits) const {
  gradient(options_, q.member(), *dloss.data, labels.data, logits.data, statistics.data,
           Weights(weights.data, allClasses(options_)), dlogits.data);
}

void SoftmaxCrossEntropy::inputGradient(Stream& q, View<const float> dloss, View<const std::int32_t> labels,
                                        View<const float> logits, View<const float> statistics,
                                        View<const float> weights, View<float> dlogits) const {
  gradient(options_, q.member(), *dloss.data, labels.data, logits.data, statistics.data,
           Weights(weights.data, allClasses(options_)), dlogits.data);
}

} // namespace pdcrt
