// See SoftmaxCrossEntropy.h.
#include "pdcrt/kernels/SoftmaxCrossEntropy.h"

#include "Sums.h"
#include "pdcrt/Math.h"

#include <cmath>
#include <limits>

namespace pdcrt {
namespace {

using Options = SoftmaxCrossEntropy::Options;

/// The logits of one position: `count` numbers, `stride` apart.
struct Row {
  std::int64_t count, stride;
};

/// log of the sum of the exponentials. `probabilities` may be null.
PDCRT_VECTORIZED double logSumExp(Row row, const float* logits, float* probabilities) {
  const auto at = [row](std::int64_t i) { return i * row.stride; };
  const float max = maxOf(row.count, [&](std::int64_t i) { return logits[at(i)]; }); // a NaN shows in the sum
  const double sum = sumOf(row.count, [&](std::int64_t i) { return pdcrt::exp(logits[at(i)] - max); });
  if (probabilities) {
    const float factor = static_cast<float>(1 / sum);
    for (std::int64_t i = 0; i < row.count; ++i) probabilities[at(i)] = pdcrt::exp(logits[at(i)] - max) * factor;
  }
  return max + std::log(sum);
}

PDCRT_VECTORIZED void scaleRow(Row row, const float* from, float factor, float* to) {
  for (std::int64_t i = 0; i < row.count; ++i) to[i * row.stride] = from[i * row.stride] * factor;
}

bool counts(const Options& o, std::int64_t label) {
  return !o.hasIgnoreIndex || label != o.ignoreIndex;
}

template <class Label>
void forwardLoss(const Options& o, const float* logits, const Label* labels, float* loss, float* probabilities) {
  const Row row = {o.classes, o.inner};
  double total = 0;
  std::int64_t labelled = 0;
  for (std::int64_t n = 0; n < o.batch; ++n)
    for (std::int64_t i = 0; i < o.inner; ++i) {
      const std::int64_t label = labels[n * o.inner + i], begin = n * o.classes * o.inner + i;
      const double logSum = logSumExp(row, logits + begin, probabilities ? probabilities + begin : nullptr);
      if (!counts(o, label)) continue;
      ++labelled;
      if (label < 0 || label >= o.classes)
        total = std::numeric_limits<double>::quiet_NaN();
      else
        total += logSum - logits[begin + label * o.inner];
    }
  *loss = static_cast<float>(total / static_cast<double>(labelled));
}

template <class Label>
void gradient(const Options& o, float dloss, const Label* labels, const float* probabilities, float* dlogits) {
  const Row row = {o.classes, o.inner};
  std::int64_t labelled = 0;
  for (std::int64_t i = 0; i < o.batch * o.inner; ++i) labelled += counts(o, labels[i]);
  const float share = static_cast<float>(dloss / static_cast<double>(labelled)); // unused where nothing is labelled
  for (std::int64_t n = 0; n < o.batch; ++n)
    for (std::int64_t i = 0; i < o.inner; ++i) {
      const std::int64_t label = labels[n * o.inner + i], begin = n * o.classes * o.inner + i;
      if (!counts(o, label)) {
        for (std::int64_t c = 0; c < o.classes; ++c) dlogits[begin + c * o.inner] = 0;
        continue;
      }
      const bool valid = label >= 0 && label < o.classes;
      const float atLabel = valid ? (probabilities[begin + label * o.inner] - 1) * share : 0;
      scaleRow(row, probabilities + begin, share, dlogits + begin);
      if (valid) dlogits[begin + label * o.inner] = atLabel;
    }
}

} // namespace

SoftmaxCrossEntropy::SoftmaxCrossEntropy(Setup&, const Options& o) : options_(o) {}

void SoftmaxCrossEntropy::forward(Stream&, View<const float> logits, View<const std::int64_t> labels, View<float> loss,
                                  View<float> probabilities) const {
  forwardLoss(options_, logits.data, labels.data, loss.data, probabilities.data);
}

void SoftmaxCrossEntropy::forward(Stream&, View<const float> logits, View<const std::int32_t> labels, View<float> loss,
                                  View<float> probabilities) const {
  forwardLoss(options_, logits.data, labels.data, loss.data, probabilities.data);
}

void SoftmaxCrossEntropy::inputGradient(Stream&, View<const float> dloss, View<const std::int64_t> labels,
                                        View<const float> probabilities, View<float> dlogits) const {
  gradient(options_, *dloss.data, labels.data, probabilities.data, dlogits.data);
}

void SoftmaxCrossEntropy::inputGradient(Stream&, View<const float> dloss, View<const std::int32_t> labels,
                                        View<const float> probabilities, View<float> dlogits) const {
  gradient(options_, *dloss.data, labels.data, probabilities.data, dlogits.data);
}

} // namespace pdcrt
