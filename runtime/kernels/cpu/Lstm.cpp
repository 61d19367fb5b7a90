// See Lstm.h. Per step one product with the recurrent weights, then one loop over the gates of each row.
#include "pdcrt/kernels/Lstm.h"

#include "cpu/support/Recurrent.h"
#include "device/cpu/Sums.h"
#include "pdcrt/Math.h"

#include <algorithm>

namespace pdcrt {
namespace {

/// The gates of one row, each `hidden` numbers.
template <class T>
struct Gates {
  T *i, *o, *f, *g;
};

/// Replaces h · transposed r by the gates, whose other part is x. `before` is empty at the first step of a layer
/// without initial cells.
PDCRT_VECTORIZED void forwardRow(std::int64_t hidden, Gates<const float> x, Gates<float> gates, const float* before,
                                 float* c, float* y) {
#pragma GCC ivdep // element j of one depends on elements j only
  for (std::int64_t j = 0; j < hidden; ++j) {
    const float i = pdcrt::sigmoid(x.i[j] + gates.i[j]), o = pdcrt::sigmoid(x.o[j] + gates.o[j]),
                f = pdcrt::sigmoid(x.f[j] + gates.f[j]), g = pdcrt::tanh(x.g[j] + gates.g[j]);
    const float cell = (before ? f * before[j] : 0.0f) + i * g;
    c[j] = cell;
    y[j] = o * pdcrt::tanh(cell);
    gates.i[j] = i;
    gates.o[j] = o;
    gates.f[j] = f;
    gates.g[j] = g;
  }
}

/// `dh` and `dc` are the gradients of the state after the step; `dc` becomes that of the cells before it.
PDCRT_VECTORIZED void backwardRow(std::int64_t hidden, Gates<const float> gates, const float* before, const float* c,
                                  const float* dh, float* dc, Gates<float> da) {
#pragma GCC ivdep // element j of one depends on elements j only
  for (std::int64_t j = 0; j < hidden; ++j) {
    const float i = gates.i[j], o = gates.o[j], f = gates.f[j], g = gates.g[j];
    const float squashed = pdcrt::tanh(c[j]);
    const float cell = dc[j] + dh[j] * o * (1 - squashed * squashed);
    da.i[j] = cell * g * i * (1 - i);
    da.o[j] = dh[j] * squashed * o * (1 - o);
    da.f[j] = before ? cell * before[j] * f * (1 - f) : 0.0f;
    da.g[j] = cell * i * (1 - g * g);
    dc[j] = cell * f;
  }
}

} // namespace

struct Lstm::Impl {
  Options options;
  recurrent::RowParts parts;
  recurrent::StepProduct recurrence; ///< gates = h · transposed r
  recurrent::StepProduct backward;   ///< dh += da · r
  recurrent::Workspace workspace;
  std::int64_t i = 0, o = 0, f = 0, g = 0; ///< places of the gates

  template <class T>
  Gates<T> gatesOf(T* row) const {
    const std::int64_t hidden = options.hidden;
    return {row + i * hidden, row + o * hidden, row + f * hidden, row + g * hidden};
  }
  float* own(Stream& q) const { return reinterpret_cast<float*>(q.workspace() + workspace.own); }
};

Lstm::Lstm(Setup& setup, const Options& o) : impl_(std::make_unique<Impl>()) {
  impl_->options = o;
  impl_->i = recurrent::place(o.order, 'i', 4);
  impl_->o = recurrent::place(o.order, 'o', 4);
  impl_->f = recurrent::place(o.order, 'f', 4);
  impl_->g = recurrent::place(o.order, 'c', 4);
  recurrent::construct("LSTM layer", o, [&] {
    impl_->parts = recurrent::RowParts(o);
    impl_->recurrence = {setup, o.steps, impl_->parts, o.hidden, 4 * o.hidden, true, false};
    impl_->backward = {setup, o.steps, impl_->parts, 4 * o.hidden, o.hidden, false};
  });
  impl_->workspace = {setup,
                      impl_->parts,
                      {&impl_->recurrence, &impl_->backward},
                      static_cast<std::size_t>(5 * o.batch * o.hidden) * sizeof(float)};
}

Lstm::~Lstm() = default;
Lstm::Lstm(Lstm&&) noexcept = default;
Lstm& Lstm::operator=(Lstm&&) noexcept = default;

void Lstm::forward(Stream& q, View<const float> x, View<const float> r, View<const float> h0, View<const float> c0,
                   View<const std::int32_t> lengths, View<float> y, View<float> c, View<float> gates) const {
  const Options& o = impl_->options;
  const std::int64_t state = o.batch * o.hidden;
  float* const spareGates = impl_->own(q); // of a step whose gates and cells nobody keeps
  float* const spareCells = spareGates + 4 * state;
  const float* const weights = impl_->recurrence.prepare(q, r.data, q.workspace() + impl_->workspace.packed);
  impl_->workspace.forEachPart(q, impl_->parts, [&](Stream& mine, int part, std::int64_t first, std::int64_t end) {
    const float *hBefore = h0.data, *cBefore = c0.data;
    for (std::int64_t n = 0; n < o.steps; ++n) {
      const std::int64_t t = recurrent::position(n, o.steps, o.reverse);
      float* const g = gates ? gates.data + t * 4 * state : spareGates;
      float* const cNow = c ? c.data + t * state : spareCells;
      float* const yNow = y.data + t * state;
      if (hBefore)
        impl_->recurrence.run(mine, part, hBefore + first * o.hidden, weights, g + 4 * first * o.hidden);
      else
        std::fill_n(g + 4 * first * o.hidden, 4 * (end - first) * o.hidden, 0.0f);
      for (std::int64_t b = first; b < end; ++b) {
        const std::int64_t row = b * o.hidden;
        const float* const cRow = cBefore ? cBefore + row : nullptr;
        if (recurrent::isOver(lengths, b, t)) {
          recurrent::copyOrZero(hBefore ? hBefore + row : nullptr, o.hidden, yNow + row);
          if (cRow != cNow + row) recurrent::copyOrZero(cRow, o.hidden, cNow + row);
          std::fill_n(g + 4 * row, 4 * o.hidden, 0.0f);
        } else {
          forwardRow(o.hidden, impl_->gatesOf(x.data + 4 * (t * state + row)), impl_->gatesOf(g + 4 * row), cRow,
                     cNow + row, yNow + row);
        }
      }
      hBefore = yNow;
      cBefore = cNow;
    }
  });
}

void Lstm::gradient(Stream& q, View<const float> dy, View<const float> dc, View<const float> r, View<const float> c,
                    View<const float> gates, View<const float> c0, View<const std::int32_t> lengths, View<float> dx,
                    View<float> dh0, View<float> dc0) const {
  const Options& o = impl_->options;
  const std::int64_t state = o.batch * o.hidden;
  float* const dhNow = impl_->own(q); // gradients of the state after the step
  float* const dcNow = dhNow + state;
  std::fill_n(dhNow, 2 * state, 0.0f);
  const float* const weights = impl_->backward.prepare(q, r.data, q.workspace() + impl_->workspace.packed);
  impl_->workspace.forEachPart(q, impl_->parts, [&](Stream& mine, int part, std::int64_t first, std::int64_t end) {
    const std::int64_t begin = first * o.hidden, count = (end - first) * o.hidden;
    for (std::int64_t n = o.steps - 1; n >= 0; --n) {
      const std::int64_t t = recurrent::position(n, o.steps, o.reverse);
      const float* const cBefore = n > 0 ? c.data + recurrent::position(n - 1, o.steps, o.reverse) * state : c0.data;
      recurrent::add(dy ? dy.data + t * state + begin : nullptr, count, dhNow + begin);
      recurrent::add(dc ? dc.data + t * state + begin : nullptr, count, dcNow + begin);
      float* const da = dx.data + t * 4 * state;
      for (std::int64_t b = first; b < end; ++b) {
        const std::int64_t row = b * o.hidden;
        if (recurrent::isOver(lengths, b, t)) { // what comes before the step is what comes after it
          std::fill_n(da + 4 * row, 4 * o.hidden, 0.0f);
          continue;
        }
        backwardRow(o.hidden, impl_->gatesOf(gates.data + t * 4 * state + 4 * row), cBefore ? cBefore + row : nullptr,
                    c.data + t * state + row, dhNow + row, dcNow + row, impl_->gatesOf(da + 4 * row));
        std::fill_n(dhNow + row, o.hidden, 0.0f);
      }
      if (n > 0 || dh0) impl_->backward.run(mine, part, da + 4 * begin, weights, dhNow + begin);
    }
  });
  if (dh0) std::copy_n(dhNow, state, dh0.data);
  if (dc0) std::copy_n(dcNow, state, dc0.data);
}

} // namespace pdcrt
