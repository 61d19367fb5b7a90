// See Rnn.h. Per step one product with the recurrent weights, then one kernel.
#include "pdcrt/kernels/Rnn.h"

#include "cuda/support/Recurrent.h"

namespace pdcrt {
namespace {

struct Sizes {
  std::int64_t batch, hidden, t;
  bool relu;
};

__global__ void forwardStep(Sizes s, const float* before, const std::int32_t* lengths, float* y) {
  for (std::int64_t at = thread(); at < s.batch * s.hidden; at += threads())
    if (cuda::isOver(lengths, at / s.hidden, s.t))
      y[at] = before ? before[at] : 0.0f;
    else
      y[at] = s.relu ? relu(y[at]) : pdcrt::tanh(y[at]);
}

/// `dh` is the gradient of the state after the step, to which that of y is added first.
__global__ void backwardStep(Sizes s, const float* y, const float* dy, const std::int32_t* lengths, float* dh,
                             float* da) {
  for (std::int64_t at = thread(); at < s.batch * s.hidden; at += threads()) {
    const float dState = dh[at] + dy[at];
    if (cuda::isOver(lengths, at / s.hidden, s.t)) { // what comes before the step is what comes after it
      da[at] = 0;
      dh[at] = dState;
      continue;
    }
    da[at] = s.relu ? (y[at] > 0 ? dState : 0.0f) : dState * (1 - y[at] * y[at]);
    dh[at] = 0;
  }
}

} // namespace

struct Rnn::Impl {
  Options options;
  cuda::Product recurrence; ///< a += h · transposed r
  cuda::Product backward;   ///< dh += da · r
};

Rnn::Rnn(Setup& setup, const Options& o) : impl_(std::make_unique<Impl>()) {
  recurrent::checkSizes("recurrent layer", o);
  setup.needWorkspace(cuda::workspaceOf(o));
  impl_->options = o;
  impl_->recurrence = cuda::stepProduct(o.batch, o.hidden, o.hidden, true);
  impl_->backward = cuda::stepProduct(o.batch, o.hidden, o.hidden, false);
}

Rnn::~Rnn() = default;
Rnn::Rnn(Rnn&&) noexcept = default;
Rnn& Rnn::operator=(Rnn&&) noexcept = default;

void Rnn::forward(Stream& q, View<const float> x, View<const float> r, View<const float> h0,
                  View<const std::int32_t> lengths, View<float> y) const {
  const Options& o = impl_->options;
  const std::int64_t state = o.batch * o.hidden;
  const float* before = h0.data;
  for (std::int64_t n = 0; n < o.steps; ++n) {
    const std::int64_t t = recurrent::position(n, o.steps, o.reverse);
    float* const now = y.data + t * state;
    cuda::copy(q, x.data + t * state, state, now);
    if (before) impl_->recurrence.run(q, before, r.data, nullptr, now);
    launchLoop(q, "recurrent layer", forwardStep, state, Sizes{o.batch, o.hidden, t, o.relu}, before, lengths.data,
               now);
    before = now;
  }
}

void Rnn::gradient(Stream& q, View<const float> dy, View<const float> r, View<const float> y,
                   View<const std::int32_t> lengths, View<float> dx, View<float> dh0) const {
  const Options& o = impl_->options;
  const std::int64_t state = o.batch * o.hidden;
  float* const dh = cuda::ownFloats(q);
  cuda::zero(q, dh, state);
  for (std::int64_t n = o.steps - 1; n >= 0; --n) {
    const std::int64_t t = recurrent::position(n, o.steps, o.reverse);
    float* const da = dx.data + t * state;
    launchLoop(q, "recurrent layer, gradient", backwardStep, state, Sizes{o.batch, o.hidden, t, o.relu},
               y.data + t * state, dy.data + t * state, lengths.data, dh, da);
    if (n > 0 || dh0) impl_->backward.run(q, da, r.data, nullptr, dh);
  }
  if (dh0) cuda::copy(q, dh, state, dh0.data);
}

} // namespace pdcrt
