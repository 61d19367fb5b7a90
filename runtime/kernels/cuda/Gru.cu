// See Gru.h. Per step one product with the recurrent weights, then one kernel over the gates.
#include "pdcrt/kernels/Gru.h"

#include "cuda/support/Recurrent.h"

namespace pdcrt {
namespace {

struct Sizes {
  std::int64_t batch, hidden, t;
  std::int64_t z, r, n; ///< places of the gates
};

/// p starts every row with the bias, or zeros.
__global__ void startRows(Sizes s, const float* bias, float* p) {
  for (std::int64_t i = thread(); i < s.batch * 3 * s.hidden; i += threads())
    p[i] = bias ? bias[i % (3 * s.hidden)] : 0.0f;
}

/// `saved`, which may be null: z, r, n and p_h of a row.
__global__ void forwardStep(Sizes s, const float* x, const float* p, const float* before, const std::int32_t* lengths,
                            float* y, float* saved) {
  for (std::int64_t at = thread(); at < s.batch * s.hidden; at += threads()) {
    const std::int64_t b = at / s.hidden, j = at % s.hidden;
    const float *const xRow = x + b * 3 * s.hidden + j, *const pRow = p + b * 3 * s.hidden + j;
    float* const keep = saved ? saved + b * 4 * s.hidden + j : nullptr;
    float z = 0, r = 0, n = 0, product = 0;
    if (cuda::isOver(lengths, b, s.t)) {
      y[at] = before ? before[at] : 0.0f;
    } else {
      product = pRow[s.n * s.hidden];
      z = sigmoid(xRow[s.z * s.hidden] + pRow[s.z * s.hidden]);
      r = sigmoid(xRow[s.r * s.hidden] + pRow[s.r * s.hidden]);
      n = pdcrt::tanh(xRow[s.n * s.hidden] + r * product);
      y[at] = (1 - z) * n + (before ? z * before[at] : 0.0f);
    }
    if (!keep) continue;
    keep[0] = z;
    keep[s.hidden] = r;
    keep[2 * s.hidden] = n;
    keep[3 * s.hidden] = product;
  }
}

/// `dh` is the gradient of the state after the step, to which that of y is added first, and becomes what goes directly
/// to the state before it.
__global__ void backwardStep(Sizes s, const float* saved, const float* before, const float* dy,
                             const std::int32_t* lengths, float* dh, float* dx, float* da) {
  for (std::int64_t at = thread(); at < s.batch * s.hidden; at += threads()) {
    const std::int64_t b = at / s.hidden, j = at % s.hidden;
    const float* const row = saved + b * 4 * s.hidden + j;
    float *const dxRow = dx + b * 3 * s.hidden + j, *const daRow = da + b * 3 * s.hidden + j;
    const float dState = dh[at] + dy[at];
    if (cuda::isOver(lengths, b, s.t)) { // what comes before the step is what comes after it
      for (int gate = 0; gate < 3; ++gate) dxRow[gate * s.hidden] = daRow[gate * s.hidden] = 0;
      dh[at] = dState;
      continue;
    }
    const float z = row[0], r = row[s.hidden], n = row[2 * s.hidden], product = row[3 * s.hidden];
    const float dz = dState * ((before ? before[at] : 0.0f) - n) * z * (1 - z);
    const float dn = dState * (1 - z) * (1 - n * n);
    const float dr = dn * product * r * (1 - r);
    dxRow[s.z * s.hidden] = daRow[s.z * s.hidden] = dz;
    dxRow[s.r * s.hidden] = daRow[s.r * s.hidden] = dr;
    dxRow[s.n * s.hidden] = dn;
    daRow[s.n * s.hidden] = dn * r;
    dh[at] = dState * z;
  }
}

} // namespace

struct Gru::Impl {
  Options options;
  cuda::Product recurrence; ///< p += h · transposed r
  cuda::Product backward;   ///< dh += da · r
  Sizes sizes;
};

Gru::Gru(Setup& setup, const Options& o) : impl_(std::make_unique<Impl>()) {
  recurrent::checkSizes("GRU layer", o);
  setup.needWorkspace(cuda::workspaceOf(o));
  impl_->options = o;
  impl_->sizes = {.batch = o.batch,
                  .hidden = o.hidden,
                  .t = 0,
                  .z = recurrent::place(o.order, 'z', 3),
                  .r = recurrent::place(o.order, 'r', 3),
                  .n = recurrent::place(o.order, 'h', 3)};
  impl_->recurrence = cuda::stepProduct(o.batch, o.hidden, 3 * o.hidden, true);
  impl_->backward = cuda::stepProduct(o.batch, 3 * o.hidden, o.hidden, false);
}

Gru::~Gru() = default;
Gru::Gru(Gru&&) noexcept = default;
Gru& Gru::operator=(Gru&&) noexcept = default;

void Gru::forward(Stream& q, View<const float> x, View<const float> r, View<const float> b, View<const float> h0,
                  View<const std::int32_t> lengths, View<float> y, View<float> gates) const {
  const Options& o = impl_->options;
  const std::int64_t state = o.batch * o.hidden;
  float* const p = cuda::ownFloats(q);
  const float* before = h0.data;
  for (std::int64_t count = 0; count < o.steps; ++count) {
    Sizes sizes = impl_->sizes;
    const std::int64_t t = sizes.t = recurrent::position(count, o.steps, o.reverse);
    launchLoop(q, "GRU", startRows, 3 * state, sizes, b.data, p);
    if (before) impl_->recurrence.run(q, before, r.data, nullptr, p);
    launchLoop(q, "GRU", forwardStep, state, sizes, x.data + t * 3 * state, p, before, lengths.data, y.data + t * state,
               gates ? gates.data + t * 4 * state : nullptr);
    before = y.data + t * state;
  }
}

void Gru::gradient(Stream& q, View<const float> dy, View<const float> r, View<const float> y, View<const float> gates,
                   View<const float> h0, View<const std::int32_t> lengths, View<float> dx, View<float> da,
                   View<float> dh0) const {
  const Options& o = impl_->options;
  const std::int64_t state = o.batch * o.hidden;
  float* const dh = cuda::ownFloats(q);
  cuda::zero(q, dh, state);
  for (std::int64_t count = o.steps - 1; count >= 0; --count) {
    Sizes sizes = impl_->sizes;
    const std::int64_t t = sizes.t = recurrent::position(count, o.steps, o.reverse);
    const float* const before =
        count > 0 ? y.data + recurrent::position(count - 1, o.steps, o.reverse) * state : h0.data;
    launchLoop(q, "GRU, gradient", backwardStep, state, sizes, gates.data + t * 4 * state, before, dy.data + t * state,
               lengths.data, dh, dx.data + t * 3 * state, da.data + t * 3 * state);
    if (count > 0 || dh0) impl_->backward.run(q, da.data + t * 3 * state, r.data, nullptr, dh);
  }
  if (dh0) cuda::copy(q, dh, state, dh0.data);
}

} // namespace pdcrt
