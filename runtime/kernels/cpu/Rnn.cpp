// See Rnn.h. Per step one product with the recurrent weights, then one loop.
#include "pdcrt/kernels/Rnn.h"

#include "cpu/support/Recurrent.h"
#include "device/cpu/Sums.h"
#include "pdcrt/Math.h"

namespace pdcrt {
namespace {

PDCRT_VECTORIZED void tanhOf(std::int64_t count, float* y) {
  for (std::int64_t i = 0; i < count; ++i) y[i] = pdcrt::tanh(y[i]);
}
PDCRT_VECTORIZED void reluOf(std::int64_t count, float* y) {
  for (std::int64_t i = 0; i < count; ++i) y[i] = pdcrt::relu(y[i]);
}

PDCRT_VECTORIZED void tanhGradient(std::int64_t count, const float* y, const float* dh, float* da) {
  for (std::int64_t i = 0; i < count; ++i) da[i] = dh[i] * (1 - y[i] * y[i]);
}
PDCRT_VECTORIZED void reluGradient(std::int64_t count, const float* y, const float* dh, float* da) {
  for (std::int64_t i = 0; i < count; ++i) da[i] = y[i] > 0 ? dh[i] : 0.0f;
}

} // namespace

struct Rnn::Impl {
  Options options;
  recurrent::RowParts parts;
  recurrent::StepProduct recurrence; ///< a += h · transposed r
  recurrent::StepProduct backward;   ///< dh += da · r
  recurrent::Workspace workspace;
};

Rnn::Rnn(Setup& setup, const Options& o) : impl_(std::make_unique<Impl>()) {
  impl_->options = o;
  recurrent::construct("recurrent layer", o, [&] {
    impl_->parts = recurrent::RowParts(o);
    impl_->recurrence = {setup, o.steps, impl_->parts, o.hidden, o.hidden, true};
    impl_->backward = {setup, o.steps, impl_->parts, o.hidden, o.hidden, false};
  });
  impl_->workspace = {setup,
                      impl_->parts,
                      {&impl_->recurrence, &impl_->backward},
                      static_cast<std::size_t>(o.batch * o.hidden) * sizeof(float)};
}

Rnn::~Rnn() = default;
Rnn::Rnn(Rnn&&) noexcept = default;
Rnn& Rnn::operator=(Rnn&&) noexcept = default;

void Rnn::forward(Stream& q, View<const float> x, View<const float> r, View<const float> h0,
                  View<const std::int32_t> lengths, View<float> y) const {
  const Options& o = impl_->options;
  const std::int64_t state = o.batch * o.hidden;
  const float* const weights = impl_->recurrence.prepare(q, r.data, q.workspace() + impl_->workspace.packed);
  impl_->workspace.forEachPart(q, impl_->parts, [&](Stream& mine, int part, std::int64_t first, std::int64_t end) {
    const std::int64_t begin = first * o.hidden, count = (end - first) * o.hidden;
    const float* before = h0.data;
    for (std::int64_t n = 0; n < o.steps; ++n) {
      const std::int64_t t = recurrent::position(n, o.steps, o.reverse);
      float* const now = y.data + t * state;
      std::copy_n(x.data + t * state + begin, count, now + begin);
      if (before) impl_->recurrence.run(mine, part, before + begin, weights, now + begin);
      (o.relu ? reluOf : tanhOf)(count, now + begin);
      for (std::int64_t b = first; b < end; ++b)
        if (recurrent::isOver(lengths, b, t))
          recurrent::copyOrZero(before ? before + b * o.hidden : nullptr, o.hidden, now + b * o.hidden);
      before = now;
    }
  });
}

void Rnn::gradient(Stream& q, View<const float> dy, View<const float> r, View<const float> y,
                   View<const std::int32_t> lengths, View<float> dx, View<float> dh0) const {
  const Options& o = impl_->options;
  const std::int64_t state = o.batch * o.hidden;
  float* const dh = reinterpret_cast<float*>(q.workspace() + impl_->workspace.own);
  std::fill_n(dh, state, 0.0f);
  const float* const weights = impl_->backward.prepare(q, r.data, q.workspace() + impl_->workspace.packed);
  impl_->workspace.forEachPart(q, impl_->parts, [&](Stream& mine, int part, std::int64_t first, std::int64_t end) {
    const std::int64_t begin = first * o.hidden;
    for (std::int64_t n = o.steps - 1; n >= 0; --n) {
      const std::int64_t t = recurrent::position(n, o.steps, o.reverse);
      recurrent::add(dy.data + t * state + begin, (end - first) * o.hidden, dh + begin);
      float* const da = dx.data + t * state;
      for (std::int64_t b = first; b < end; ++b) {
        const std::int64_t row = b * o.hidden;
        if (recurrent::isOver(lengths, b, t)) { // what comes before the step is what comes after it
          std::fill_n(da + row, o.hidden, 0.0f);
          continue;
        }
        (o.relu ? reluGradient : tanhGradient)(o.hidden, y.data + t * state + row, dh + row, da + row);
        std::fill_n(dh + row, o.hidden, 0.0f);
      }
      if (n > 0 || dh0) impl_->backward.run(mine, part, da + begin, weights, dh + begin);
    }
  });
  if (dh0) std::copy_n(dh, state, dh0.data);
}

} // namespace pdcrt
