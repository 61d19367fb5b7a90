// See Attention.h. Products of cuBLASLt over all heads at once, with one kernel over rows between them: here the scores
// are in memory, but in the workspace, not from the forward pass to the backward pass. Or, where the options say so,
// the fused attention of cuDNN.
//
// Of 16 bits are only the operands of products: scores and sums are floats, and what becomes an operand, weights and
// the gradients of scores, is rounded where the floats of its row were. So such a row begins where the next row of
// floats would, and no more workspace is needed.
#include "pdcrt/kernels/Attention.h"

#include "FusedAttention.h"
#include "common/AttentionShapes.h"
#include "cuda/support/DropoutMask.h"
#include "cuda/support/Product.h"
#include "cuda/support/RowTeam.h"
#include "cuda/trial/AttentionTimes.h"
#include "device/cuda/Recorded.h"
#include "pdcrt/kernels/StridedCopy.h"

#include <cmath>
#include <limits>

namespace pdcrt {
namespace {

struct Sizes {
  std::int64_t heads, queries, keys, rows;
  BiasStrides bias;
  float scale, kept;
  bool causal, hides;
};

/// What a row of scores is scaled by and added, and how many keys it has.
struct Row {
  std::int64_t begin, seen;
  const float* bias;

  __device__ Row(const Sizes& s, std::int64_t row, const float* all) : begin(row * s.keys), seen(s.keys), bias(all) {
    const std::int64_t query = row % s.queries, head = row / s.queries;
    if (s.causal) seen = query + 1 + s.keys - s.queries;
    if (all) bias += head / s.heads * s.bias.batch + head % s.heads * s.bias.head + query * s.bias.query;
  }
  /// The scores of a piece, from products.
  template <class Team>
  __device__ void scores(const Sizes& s, const float* products, std::int64_t at, float (&to)[Team::count]) const {
    float added[Team::count];
    Team::load(products + begin + at, seen - at, to);
    if (bias) Team::load(bias + at, seen - at, added);
    Team::elements(seen - at, [&](int e) { to[e] = to[e] * s.scale + (bias ? added[e] : 0.0f); });
  }
  /// Of a piece, what dropout leaves.
  template <class Team>
  __device__ void drop(const Sizes& s, const std::uint8_t* mask, std::int64_t at, float (&values)[Team::count]) const {
    std::uint8_t stays[Team::count];
    Team::load(mask + begin + at, seen - at, stays);
    Team::elements(seen - at, [&](int e) { values[e] = stays[e] ? values[e] * s.kept : 0.0f; });
  }
  /// Of a piece, what is for keys that the bias does not hide.
  template <class Team>
  __device__ void hide(std::int64_t at, float (&values)[Team::count]) const {
    float added[Team::count];
    Team::load(bias + at, seen - at, added);
    Team::elements(seen - at, [&](int e) { values[e] = added[e] <= Attention::hidden ? 0.0f : values[e]; });
  }
};

/// As many T as there are from one row of weights to the next.
template <class T>
constexpr std::int64_t strideOf(std::int64_t keys) {
  return keys * static_cast<std::int64_t>(sizeof(float) / sizeof(T));
}

/// Threads write a row of T over floats that others read: between reading and writing a piece of it all of them wait.
/// What is written after that lies before what is still to be read.
template <class T, class Team>
__device__ void haveRead() {
  if constexpr (sizeof(T) < sizeof(float)) Team::wait();
}

/// Products become weights, and the two numbers by which they are found again.
template <class T, class Team>
__global__ void softmax(Sizes s, const float* bias, float* p, float* largest, float* inverse) {
  for (std::int64_t row = Team::first(); row < s.rows; row += Team::step()) {
    const Row r(s, row, bias);
    float values[Team::count];
    float max = -std::numeric_limits<float>::infinity();
    Team::pieces(r.seen, [&](std::int64_t at) {
      r.scores<Team>(s, p, at, values);
      Team::elements(r.seen - at, [&](int e) { max = maximum(max, values[e]); });
    });
    max = Team::combine(max, -std::numeric_limits<float>::infinity(), cuda::Larger());
    double sum = 0;
    const auto raise = [&](std::int64_t at) {
      if (!Team::whole) r.scores<Team>(s, p, at, values);
      Team::elements(r.seen - at, [&](int e) { values[e] = pdcrt::exp(values[e] - max); });
    };
    Team::pieces(r.seen, [&](std::int64_t at) {
      raise(at);
      Team::elements(r.seen - at, [&](int e) { sum += values[e]; });
    });
    sum = Team::sum(sum);
    const float factor = static_cast<float>(1 / sum);
    Team::pieces(s.keys, [&](std::int64_t at) {
      if (!Team::whole) raise(at);
      T weights[Team::count] = {};
      Team::elements(r.seen - at, [&](int e) { weights[e] = static_cast<T>(values[e] * factor); });
      haveRead<T, Team>();
      Team::store(weights, reinterpret_cast<T*>(p + r.begin) + at, s.keys - at);
    });
    if (Team::lane() == 0) {
      if (largest) largest[row] = max;
      if (inverse) inverse[row] = factor;
    }
  }
}

/// As pdcrt::Dropout.
template <class T, bool ofMember>
__global__ void drop(Sizes s, cuda::Mask m, Draw draw, const std::uint64_t* recorded, T* p, std::uint8_t* mask) {
  cuda::forEachDrawn<ofMember>(m, draw, recorded, [&](std::int64_t at, bool stays) {
    T& weight = p[at / s.keys * strideOf<T>(s.keys) + at % s.keys];
    mask[at] = stays;
    weight = static_cast<T>(stays ? static_cast<float>(weight) * s.kept : 0.0f);
  });
}

/// Products become weights again, in p, and the gradient of weights, in dp, that of the products. With dropout p is
/// then what was left of the weights.
template <class T, class Team>
__global__ void gradient(Sizes s, const float* bias, const float* largest, const float* inverse,
                         const std::uint8_t* mask, float* p, float* dp) {
  for (std::int64_t row = Team::first(); row < s.rows; row += Team::step()) {
    const Row r(s, row, bias);
    const float max = largest[row], factor = inverse[row];
    float weights[Team::count], gradients[Team::count];
    const auto read = [&](std::int64_t at) {
      r.scores<Team>(s, p, at, weights);
      Team::load(dp + r.begin + at, r.seen - at, gradients);
      Team::elements(r.seen - at, [&](int e) { weights[e] = pdcrt::exp(weights[e] - max) * factor; });
      if (mask) r.drop<Team>(s, mask, at, gradients);
    };
    double partial = 0;
    Team::pieces(r.seen, [&](std::int64_t at) {
      read(at);
      Team::elements(r.seen - at, [&](int e) { partial += double(gradients[e]) * weights[e]; });
    });
    const float sum = static_cast<float>(Team::sum(partial));
    Team::pieces(s.keys, [&](std::int64_t at) {
      if (!Team::whole) read(at);
      Team::elements(r.seen - at, [&](int e) { gradients[e] = (gradients[e] - sum) * weights[e] * s.scale; });
      if (s.hides && r.bias) r.hide<Team>(at, gradients);
      if (mask) r.drop<Team>(s, mask, at, weights);
      T left[Team::count] = {}, results[Team::count] = {};
      Team::elements(r.seen - at, [&](int e) {
        left[e] = static_cast<T>(weights[e]);
        results[e] = static_cast<T>(gradients[e]);
      });
      haveRead<T, Team>();
      Team::store(left, reinterpret_cast<T*>(p + r.begin) + at, s.keys - at);
      Team::store(results, reinterpret_cast<T*>(dp + r.begin) + at, s.keys - at);
    });
  }
}

template <class T>
void launchSoftmax(Stream& q, const Sizes& s, const float* bias, float* p, float* largest, float* inverse) {
  const bool aligned = cuda::allAligned(4 * sizeof(float), {bias, p});
  cuda::withRowTeam<32>(s.rows, s.keys, aligned, [&](auto team, std::int64_t blocks) {
    cuda::launchBlocks(q, "attention", softmax<T, decltype(team)>, blocks, s, bias, p, largest, inverse);
  });
}

template <class T>
void launchGradient(Stream& q, const Sizes& s, const float* bias, const float* largest, const float* inverse,
                    const std::uint8_t* mask, float* p, float* dp) {
  const bool aligned = cuda::allAligned(4 * sizeof(float), {bias, p, dp}) && cuda::allAligned(4, {mask});
  cuda::withRowTeam<16>(s.rows, s.keys, aligned, [&](auto team, std::int64_t blocks) {
    cuda::launchBlocks(q, "attention, gradient", gradient<T, decltype(team)>, blocks, s, bias, largest, inverse, mask,
                       p, dp);
  });
}

Sizes sizesOf(const Attention::Options& o) {
  return {.heads = o.heads,
          .queries = o.queries,
          .keys = o.keys,
          .rows = o.batch * o.heads * o.queries,
          .bias = BiasStrides(o.bias),
          .scale = static_cast<float>(o.scale),
          .kept = static_cast<float>(1 / (1 - o.ratio)),
          .causal = o.causal,
          .hides = o.hides};
}

/// Refuses what the device does not have, or not in the workspace that was planned.
std::shared_ptr<const cuda::FusedAttention> fusedOf(const Attention::Options& o, bool forward, bool gradient) {
  std::shared_ptr<const cuda::FusedAttention> fused = cuda::fusedFor(o, nullptr, gradient);
  const std::size_t needed = std::max(forward ? fused->forwardBytes() : 0, gradient ? fused->gradientBytes() : 0);
  if (needed > cuda::roundedUp(static_cast<std::size_t>(o.algorithms.workspace)))
    refuseAttention(o, "the fused algorithm needs " + std::to_string(needed) +
                           " bytes of workspace on this device, the program was planned with " +
                           std::to_string(o.algorithms.workspace) + "; measure on it: pdc-profile");
  return fused;
}

} // namespace

/// The query heads that share keys and values are rows of one product.
struct Attention::Impl {
  Sizes sizes;
  cuda::Product scores;  ///< queries · transposed keys
  cuda::Product results; ///< weights · values
  cuda::Product dweights, dqueries, dkeys, dvalues;
  std::shared_ptr<const cuda::FusedAttention> fused;
  bool fusedForward, fusedGradient;
  double ratio; ///< of dropout, and what else its mask depends on
  std::uint32_t op;
  std::int64_t run, members;

  float* weights(Stream& q) const {
    return reinterpret_cast<float*>(q.workspace() + cuda::roundedUp(cuda::productBytes));
  }
  float* weightsGradient(Stream& q) const {
    return weights(q) + cuda::roundedUp(cuda::bytesOfFloats(sizes.rows * sizes.keys)) / sizeof(float);
  }
};

Attention::Attention(Setup& setup, const Options& asked) : impl_(std::make_unique<Impl>()) {
  checkSizes(asked);
  Options o = asked;
  if (setup.times() && o.algorithms == Algorithms{}) o.algorithms = cuda::fastest(o, *setup.times());
  setup.needWorkspace(cuda::workspaceOf(o));
  impl_->sizes = sizesOf(o);
  impl_->ratio = o.ratio;
  impl_->op = o.op;
  impl_->run = o.run;
  impl_->members = o.members;
  impl_->fusedForward = o.algorithms.forward == Algorithm::fused;
  impl_->fusedGradient = o.algorithms.inputGradient == Algorithm::fused;
  if (impl_->fusedForward || impl_->fusedGradient) impl_->fused = fusedOf(o, impl_->fusedForward, impl_->fusedGradient);
  const std::int64_t rows = o.heads / o.groups * o.queries;
  const auto product = [&](cuda::Product::Options sizes) {
    sizes.batch = o.batch * o.groups;
    sizes.element = o.element;
    return cuda::Product(sizes);
  };
  const auto stride = o.keys * static_cast<std::int64_t>(sizeof(float) / bytesOf(o.element));
  impl_->scores = product({.m = rows, .k = o.size, .n = o.keys, .transposeB = true, .wideResult = true});
  impl_->results = product({.m = rows, .k = o.keys, .n = o.valueSize, .rowStride = stride});
  impl_->dweights = product({.m = rows, .k = o.valueSize, .n = o.keys, .transposeB = true, .wideResult = true});
  impl_->dqueries = product({.m = rows, .k = o.keys, .n = o.size, .rowStride = stride});
  impl_->dkeys = product({.m = o.keys, .k = rows, .n = o.size, .transposeA = true, .rowStride = stride});
  impl_->dvalues = product({.m = o.keys, .k = rows, .n = o.valueSize, .transposeA = true, .rowStride = stride});
}

Attention::~Attention() = default;
Attention::Attention(Attention&&) noexcept = default;
Attention& Attention::operator=(Attention&&) noexcept = default;

template <class T>
void Attention::forward(Stream& q, OperandView<T> query, OperandView<T> key, OperandView<T> value,
                        View<const float> bias, View<T> y, View<float> largest, View<float> inverse) const {
  if (impl_->fusedForward) {
    impl_->fused->forward(q, query.data, key.data, value.data, bias.data, y.data, largest.data,
                          cuda::alignedWorkspace(q));
    // With the logarithm of the sum of exp(score) in place of the largest score, exp(score - that) is the weight.
    if (inverse) fill(q, inverse.data, impl_->sizes.rows, 1.0f);
    return;
  }
  float* const p = impl_->weights(q);
  impl_->scores.run(q, query.data, key.data, nullptr, p);
  launchSoftmax<T>(q, impl_->sizes, bias.data, p, largest.data, inverse.data);
  impl_->results.run(q, p, value.data, nullptr, y.data);
}
void Attention::forward(Stream& q, View<const float> query, View<const float> key, View<const float> value,
                        View<const float> bias, View<float> y, View<float> largest, View<float> inverse) const {
  forward<float>(q, query, key, value, bias, y, largest, inverse);
}

template <class T>
void Attention::forwardDropped(Stream& q, Draw draw, OperandView<T> query, OperandView<T> key, OperandView<T> value,
                               View<const float> bias, View<T> y, View<float> largest, View<float> inverse,
                               View<std::uint8_t> mask) const {
  const Sizes& s = impl_->sizes;
  float* const p = impl_->weights(q);
  impl_->scores.run(q, query.data, key.data, nullptr, p);
  launchSoftmax<T>(q, s, bias.data, p, largest.data, inverse.data);
  const cuda::Mask drawn(s.rows * s.keys, impl_->op, impl_->ratio, {impl_->run, impl_->members, q.member()});
  launchLoop(q, "attention, dropout", impl_->run > 0 ? drop<T, true> : drop<T, false>, cuda::drawersOf(drawn), s, drawn,
             draw, cuda::recordedMinibatch(), reinterpret_cast<T*>(p), mask.data);
  impl_->results.run(q, p, value.data, nullptr, y.data);
}
void Attention::forwardDropped(Stream& q, Draw draw, View<const float> query, View<const float> key,
                               View<const float> value, View<const float> bias, View<float> y, View<float> largest,
                               View<float> inverse, View<std::uint8_t> mask) const {
  forwardDropped<float>(q, draw, query, key, value, bias, y, largest, inverse, mask);
}

template <class T>
void Attention::inputGradient(Stream& q, OperandView<T> dy, OperandView<T> query, OperandView<T> key,
                              OperandView<T> value, View<const float> bias, View<const float> largest,
                              View<const float> inverse, View<const std::uint8_t> mask, View<T> dquery, View<T> dkey,
                              View<T> dvalue) const {
  if (impl_->fusedGradient)
    return impl_->fused->inputGradient(q, dy.data, query.data, key.data, value.data, bias.data, nullptr, nullptr,
                                       dquery.data, dkey.data, dvalue.data, cuda::alignedWorkspace(q));
  const Sizes& s = impl_->sizes;
  float* const p = impl_->weights(q);
  float* const dp = impl_->weightsGradient(q);
  impl_->scores.run(q, query.data, key.data, nullptr, p);
  impl_->dweights.run(q, dy.data, value.data, nullptr, dp);
  launchGradient<T>(q, s, bias.data, largest.data, inverse.data, mask.data, p, dp);
  if (dquery) impl_->dqueries.run(q, dp, key.data, nullptr, dquery.data);
  if (dkey) impl_->dkeys.run(q, dp, query.data, nullptr, dkey.data);
  if (dvalue) impl_->dvalues.run(q, p, dy.data, nullptr, dvalue.data);
}
void Attention::inputGradient(Stream& q, View<const float> dy, View<const float> query, View<const float> key,
                              View<const float> value, View<const float> bias, View<const float> largest,
                              View<const float> inverse, View<const std::uint8_t> mask, View<float> dquery,
                              View<float> dkey, View<float> dvalue) const {
  inputGradient<float>(q, dy, query, key, value, bias, largest, inverse, mask, dquery, dkey, dvalue);
}

#define PDCRT_ATTENTION(T)                                                                                             \
  template void Attention::forward(Stream&, View<const T>, View<const T>, View<const T>, View<const float>, View<T>,   \
                                   View<float>, View<float>) const;                                                    \
  template void Attention::forwardDropped(Stream&, Draw, View<const T>, View<const T>, View<const T>,                  \
                                          View<const float>, View<T>, View<float>, View<float>, View<std::uint8_t>)    \
      const;                                                                                                           \
  template void Attention::inputGradient(Stream&, View<const T>, View<const T>, View<const T>, View<const T>,          \
                                         View<const float>, View<const float>, View<const float>,                      \
                                         View<const std::uint8_t>, View<T>, View<T>, View<T>) const;
PDCRT_ATTENTION(bfloat16)
PDCRT_ATTENTION(float16)
#undef PDCRT_ATTENTION

} // namespace pdcrt
