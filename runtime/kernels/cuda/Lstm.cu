// See Lstm.h. Per step one product with the recurrent weights, then one kernel over the gates. (cuDNN's LSTM multiplies
// the input itself and keeps its own layout of weights; here the input's part is one linear layer over all steps.)
#include "pdcrt/kernels/Lstm.h"

#include "cuda/support/Recurrent.h"

namespace pdcrt {
namespace {

struct Sizes {
  std::int64_t batch, hidden, t;
  std::int64_t i, o, f, g; ///< places of the gates
};

/// Replaces pre-activations by gates. `hBefore`, `cBefore` are null at the first step of a layer without initial state.
__global__ void forwardStep(Sizes s, float* gates, const float* hBefore, const float* cBefore,
                            const std::int32_t* lengths, float* c, float* y) {
  for (std::int64_t at = thread(); at < s.batch * s.hidden; at += threads()) {
    const std::int64_t b = at / s.hidden, j = at % s.hidden;
    float* const row = gates + b * 4 * s.hidden + j;
    const float before = cBefore ? cBefore[at] : 0.0f;
    if (cuda::isOver(lengths, b, s.t)) {
      y[at] = hBefore ? hBefore[at] : 0.0f;
      c[at] = before;
      for (int gate = 0; gate < 4; ++gate) row[gate * s.hidden] = 0;
      continue;
    }
    const float i = sigmoid(row[s.i * s.hidden]), o = sigmoid(row[s.o * s.hidden]), f = sigmoid(row[s.f * s.hidden]),
                g = pdcrt::tanh(row[s.g * s.hidden]);
    const float cell = (cBefore ? f * before : 0.0f) + i * g;
    c[at] = cell;
    y[at] = o * pdcrt::tanh(cell);
    row[s.i * s.hidden] = i;
    row[s.o * s.hidden] = o;
    row[s.f * s.hidden] = f;
    row[s.g * s.hidden] = g;
  }
}

/// `dh` and `dc` are the gradients of the state after the step, to which those of y and c are added first; `dc` becomes
/// that of the cells before it, `dh` what goes past the gates.
__global__ void backwardStep(Sizes s, const float* gates, const float* cBefore, const float* c, const float* dy,
                             const float* dcells, const std::int32_t* lengths, float* dh, float* dc, float* da) {
  for (std::int64_t at = thread(); at < s.batch * s.hidden; at += threads()) {
    const std::int64_t b = at / s.hidden, j = at % s.hidden;
    const float* const row = gates + b * 4 * s.hidden + j;
    float* const to = da + b * 4 * s.hidden + j;
    const float dState = dh[at] + (dy ? dy[at] : 0.0f), dCell = dc[at] + (dcells ? dcells[at] : 0.0f);
    if (cuda::isOver(lengths, b, s.t)) { // what comes before the step is what comes after it
      for (int gate = 0; gate < 4; ++gate) to[gate * s.hidden] = 0;
      dh[at] = dState;
      dc[at] = dCell;
      continue;
    }
    const float i = row[s.i * s.hidden], o = row[s.o * s.hidden], f = row[s.f * s.hidden], g = row[s.g * s.hidden];
    const float squashed = pdcrt::tanh(c[at]);
    const float cell = dCell + dState * o * (1 - squashed * squashed);
    to[s.i * s.hidden] = cell * g * i * (1 - i);
    to[s.o * s.hidden] = dState * squashed * o * (1 - o);
    to[s.f * s.hidden] = cBefore ? cell * cBefore[at] * f * (1 - f) : 0.0f;
    to[s.g * s.hidden] = cell * i * (1 - g * g);
    dc[at] = cell * f;
    dh[at] = 0;
  }
}

} // namespace

struct Lstm::Impl {
  Options options;
  cuda::Product recurrence; ///< gates += h · transposed r
  cuda::Product backward;   ///< dh += da · r
  Sizes sizes;
};

Lstm::Lstm(Setup& setup, const Options& o) : impl_(std::make_unique<Impl>()) {
  recurrent::checkSizes("LSTM layer", o);
  setup.needWorkspace(cuda::workspaceOf(o));
  impl_->options = o;
  impl_->sizes = {.batch = o.batch,
                  .hidden = o.hidden,
                  .t = 0,
                  .i = recurrent::place(o.order, 'i', 4),
                  .o = recurrent::place(o.order, 'o', 4),
                  .f = recurrent::place(o.order, 'f', 4),
                  .g = recurrent::place(o.order, 'c', 4)};
  impl_->recurrence = cuda::stepProduct(o.batch, o.hidden, 4 * o.hidden, true);
  impl_->backward = cuda::stepProduct(o.batch, 4 * o.hidden, o.hidden, false);
}

Lstm::~Lstm() = default;
Lstm::Lstm(Lstm&&) noexcept = default;
Lstm& Lstm::operator=(Lstm&&) noexcept = default;

void Lstm::forward(Stream& q, View<const float> x, View<const float> r, View<const float> h0, View<const float> c0,
                   View<const std::int32_t> lengths, View<float> y, View<float> c, View<float> gates) const {
  const Options& o = impl_->options;
  const std::int64_t state = o.batch * o.hidden;
  float* const spareGates = cuda::ownFloats(q); // of a step whose gates and cells nobody keeps
  float* const spareCells = spareGates + 4 * state;
  const float *hBefore = h0.data, *cBefore = c0.data;
  for (std::int64_t n = 0; n < o.steps; ++n) {
    Sizes sizes = impl_->sizes;
    sizes.t = recurrent::position(n, o.steps, o.reverse);
    float* const g = gates ? gates.data + sizes.t * 4 * state : spareGates;
    float* const cNow = c ? c.data + sizes.t * state : spareCells;
    float* const yNow = y.data + sizes.t * state;
    cuda::copy(q, x.data + sizes.t * 4 * state, 4 * state, g);
    if (hBefore) impl_->recurrence.run(q, hBefore, r.data, nullptr, g);
    launchLoop(q, "LSTM", forwardStep, state, sizes, g, hBefore, cBefore, lengths.data, cNow, yNow);
    hBefore = yNow;
    cBefore = cNow;
  }
}

void Lstm::gradient(Stream& q, View<const float> dy, View<const float> dc, View<const float> r, View<const float> c,
                    View<const float> gates, View<const float> c0, View<const std::int32_t> lengths, View<float> dx,
                    View<float> dh0, View<float> dc0) const {
  const Options& o = impl_->options;
  const std::int64_t state = o.batch * o.hidden;
  float* const dhNow = cuda::ownFloats(q); // gradients of the state after the step
  float* const dcNow = dhNow + state;
  cuda::zero(q, dhNow, 2 * state);
  for (std::int64_t n = o.steps - 1; n >= 0; --n) {
    Sizes sizes = impl_->sizes;
    const std::int64_t t = sizes.t = recurrent::position(n, o.steps, o.reverse);
    const float* const cBefore = n > 0 ? c.data + recurrent::position(n - 1, o.steps, o.reverse) * state : c0.data;
    float* const da = dx.data + t * 4 * state;
    launchLoop(q, "LSTM, gradient", backwardStep, state, sizes, gates.data + t * 4 * state, cBefore, c.data + t * state,
               dy ? dy.data + t * state : nullptr, dc ? dc.data + t * state : nullptr, lengths.data, dhNow, dcNow, da);
    if (n > 0 || dh0) impl_->backward.run(q, da, r.data, nullptr, dhNow);
  }
  if (dh0) cuda::copy(q, dhNow, state, dh0.data);
  if (dc0) cuda::copy(q, dcNow, state, dc0.data);
}

} // namespace pdcrt
