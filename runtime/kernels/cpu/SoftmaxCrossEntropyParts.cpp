// See SoftmaxCrossEntropyParts.h.
#include "pdcrt/kernels/SoftmaxCrossEntropyParts.h"

#include "device/cpu/Parts.h"
#include "device/cpu/Sums.h"
#include "pdcrt/Math.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace pdcrt {
namespace {

using Options = SoftmaxCrossEntropyParts::Options;

constexpr float infinity = std::numeric_limits<float>::infinity();

/// The logits of one position: `count` numbers, `stride` apart.
struct Row {
  std::int64_t count, stride;
};

PDCRT_VECTORIZED float largestOf(Row row, const float* logits) {
  if (row.stride == 1) return maxOf(row.count, logits); // vector code
  float largest = -infinity;
  for (std::int64_t i = 0; i < row.count; ++i) largest = std::max(largest, logits[i * row.stride]);
  return largest;
}

/// Σ e^(x - m).
PDCRT_VECTORIZED double sumOfExponentials(Row row, const float* logits, float m) {
  if (row.stride == 1) return sumOf(row.count, [&](std::int64_t i) { return pdcrt::exp(logits[i] - m); });
  return sumOf(row.count, [&](std::int64_t i) { return pdcrt::exp(logits[i * row.stride] - m); });
}

bool counts(const Options& o, std::int64_t label) {
  return !o.hasIgnoreIndex || label != o.ignoreIndex;
}

double weightOf(const float* weights, std::int64_t c) {
  return weights ? weights[c] : 1;
}

/// Calls f(position, where its logits begin) for all positions, which threads share.
template <class F>
void forEachPosition(const Options& o, const F& f) {
  const std::int64_t positions = o.batch * o.inner;
  parts::runRanges(parts::countOf(positions, positions * o.classes), positions,
                   [&](std::int64_t first, std::int64_t end) {
                     for (std::int64_t at = first; at < end; ++at)
                       f(at, at / o.inner * o.classes * o.inner + at % o.inner);
                   });
}

/// Where the first of `count` numbers of a position is; others lie `inner` behind each other.
std::int64_t placeOf(const Options& o, std::int64_t position, std::int64_t count) {
  return position / o.inner * count * o.inner + position % o.inner;
}

/// Σ share · (m - x) and Σ share. A class without a share may have a logit of -infinity.
struct Shares {
  double losses = 0, all = 0;

  void add(double share, float m, float logit) {
    if (share == 0) return;
    losses += share * (static_cast<double>(m) - logit);
    all += share;
  }
};

template <class Label>
void sumsOf(const Options& o, OwnClasses here, const float* logits, const Label* labels, const float* maxima,
            const float* weights, float* sums) {
  const Row row = {here.count, o.inner};
  const double perClass = o.labelSmoothing / static_cast<double>(o.total);
  forEachPosition(o, [&](std::int64_t at, std::int64_t begin) {
    const float m = maxima[at];
    const float* const x = logits + begin;
    float* const to = sums + placeOf(o, at, 3);
    const bool isEmpty = m == -infinity;
    const std::int64_t label = labels[at], own = label - here.first;
    Shares shares;
    if (!isEmpty && counts(o, label)) {
      if (own >= 0 && own < here.count)
        shares.add((1 - o.labelSmoothing) * weightOf(weights, label), m, x[own * o.inner]);
      for (std::int64_t i = 0; perClass != 0 && i < here.count; ++i)
        shares.add(perClass * weightOf(weights, here.first + i), m, x[i * o.inner]);
    }
    to[0] = isEmpty ? 0 : static_cast<float>(sumOfExponentials(row, x, m));
    to[o.inner] = static_cast<float>(shares.losses);
    to[2 * o.inner] = static_cast<float>(shares.all);
  });
}

/// In one order.
template <class Label>
void lossOf(const Options& o, const float* sums, const float* maxima, const Label* labels, const float* weights,
            float* loss, float* statistics) {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  double total = 0, labelled = 0;
  for (std::int64_t at = 0; at < o.batch * o.inner; ++at) {
    const float* const from = sums + placeOf(o, at, 3);
    const double sum = from[0] == 0 ? nan : from[0];
    if (statistics) {
      float* const to = statistics + placeOf(o, at, 2);
      to[0] = maxima[at];
      to[o.inner] = static_cast<float>(1 / sum);
    }
    const std::int64_t label = labels[at];
    if (!counts(o, label)) continue;
    if (label < 0 || label >= o.total) {
      total = nan;
      continue;
    }
    labelled += weightOf(weights, label);
    total += from[o.inner] + from[2 * o.inner] * std::log(sum);
  }
  *loss = labelled == 0 && total == 0 ? 0 : static_cast<float>(total / labelled); // no position counts: nothing
}

} // namespace

SoftmaxCrossEntropyParts::SoftmaxCrossEntropyParts(Setup&, const Options& o) : options_(o) {}

void SoftmaxCrossEntropyParts::maxima(Stream& q, View<const float> logits, View<float> maxima) const {
  const Row row = {ownClasses(options_.total, options_.classes, q.member()).count, options_.inner};
  forEachPosition(options_,
                  [&](std::int64_t at, std::int64_t begin) { maxima[at] = largestOf(row, logits.data + begin); });
}

#define PDCRT_CROSS_ENTROPY_PARTS(Label)                                                                               \
  void SoftmaxCrossEntropyParts::sums(Stream& q, View<const float> logits, View<const Label> labels,                   \
                                      View<const float> maxima, View<const float> weights, View<float> sums) const {   \
    sumsOf(options_, ownClasses(options_.total, options_.classes, q.member()), logits.data, labels.data, maxima.data,  \
           weights.data, sums.data);                                                                                   \
  }                                                                                                                    \
  void SoftmaxCrossEntropyParts::ofSums(Stream&, View<const float> sums, View<const float> maxima,                     \
                                        View<const Label> labels, View<const float> weights, View<float> loss,         \
                                        View<float> statistics) const {                                                \
    lossOf(options_, sums.data, maxima.data, labels.data, weights.data, loss.data, statistics.data);                   \
  }
PDCRT_CROSS_ENTROPY_PARTS(std::int64_t)
PDCRT_CROSS_ENTROPY_PARTS(std::int32_t)
#undef PDCRT_CROSS_ENTROPY_PARTS

} // namespace pdcrt
