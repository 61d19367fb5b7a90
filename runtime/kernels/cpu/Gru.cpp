// See Gru.h. Per step one product with the recurrent weights, then one loop over the gates of each row.
#include "pdcrt/kernels/Gru.h"

#include "cpu/support/Recurrent.h"
#include "device/cpu/Sums.h"
#include "pdcrt/Math.h"

namespace pdcrt {
namespace {

/// Three gates of one row, each `hidden` numbers.
template <class T>
struct Gates {
  T *z, *r, *n;
};

/// What the backward pass reads of one row, in the order in which it is saved.
template <class T>
struct Saved {
  T *z, *r, *n, *p;

  Saved(T* row, std::int64_t hidden) : z(row), r(row + hidden), n(row + 2 * hidden), p(row + 3 * hidden) {}
};

/// `before` is empty at the first step of a layer without initial state.
PDCRT_VECTORIZED void forwardRow(std::int64_t hidden, Gates<const float> x, Gates<const float> p, const float* before,
                                 float* y, Saved<float> saved) {
#pragma GCC ivdep // element j of one depends on elements j only
  for (std::int64_t j = 0; j < hidden; ++j) {
    const float z = pdcrt::sigmoid(x.z[j] + p.z[j]), r = pdcrt::sigmoid(x.r[j] + p.r[j]);
    const float n = pdcrt::tanh(x.n[j] + r * p.n[j]);
    y[j] = (1 - z) * n + (before ? z * before[j] : 0.0f);
    saved.z[j] = z;
    saved.r[j] = r;
    saved.n[j] = n;
    saved.p[j] = p.n[j];
  }
}

/// `dh` is the gradient of the state after the step, and becomes what goes directly to the state before it.
PDCRT_VECTORIZED void backwardRow(std::int64_t hidden, Saved<const float> saved, const float* before, float* dh,
                                  Gates<float> dx, Gates<float> da) {
#pragma GCC ivdep // element j of one depends on elements j only
  for (std::int64_t j = 0; j < hidden; ++j) {
    const float z = saved.z[j], r = saved.r[j], n = saved.n[j];
    const float dz = dh[j] * ((before ? before[j] : 0.0f) - n) * z * (1 - z);
    const float dn = dh[j] * (1 - z) * (1 - n * n);
    const float dr = dn * saved.p[j] * r * (1 - r);
    dx.z[j] = da.z[j] = dz;
    dx.r[j] = da.r[j] = dr;
    dx.n[j] = dn;
    da.n[j] = dn * r;
    dh[j] *= z;
  }
}

} // namespace

struct Gru::Impl {
  Options options;
  recurrent::RowParts parts;
  recurrent::StepProduct recurrence; ///< p += h · transposed r
  recurrent::StepProduct backward;   ///< dh += da · r
  recurrent::Workspace workspace;
  std::int64_t z = 0, r = 0, n = 0; ///< places of the gates

  template <class T>
  Gates<T> gatesOf(T* row) const {
    const std::int64_t hidden = options.hidden;
    return {row + z * hidden, row + r * hidden, row + n * hidden};
  }
  float* own(Stream& q) const { return reinterpret_cast<float*>(q.workspace() + workspace.own); }
};

Gru::Gru(Setup& setup, const Options& o) : impl_(std::make_unique<Impl>()) {
  impl_->options = o;
  impl_->z = recurrent::place(o.order, 'z', 3);
  impl_->r = recurrent::place(o.order, 'r', 3);
  impl_->n = recurrent::place(o.order, 'h', 3);
  recurrent::construct("GRU layer", o, [&] {
    impl_->parts = recurrent::RowParts(o);
    impl_->recurrence = {setup, o.steps, impl_->parts, o.hidden, 3 * o.hidden, true};
    impl_->backward = {setup, o.steps, impl_->parts, 3 * o.hidden, o.hidden, false};
  });
  // Forward: p, and for each part what nobody saves of one row; backward: the gradient of the state.
  impl_->workspace = {setup,
                      impl_->parts,
                      {&impl_->recurrence, &impl_->backward},
                      static_cast<std::size_t>((3 * o.batch + 4 * impl_->parts.count) * o.hidden) * sizeof(float)};
}

Gru::~Gru() = default;
Gru::Gru(Gru&&) noexcept = default;
Gru& Gru::operator=(Gru&&) noexcept = default;

void Gru::forward(Stream& q, View<const float> x, View<const float> r, View<const float> b, View<const float> h0,
                  View<const std::int32_t> lengths, View<float> y, View<float> gates) const {
  const Options& o = impl_->options;
  const std::int64_t state = o.batch * o.hidden;
  float* const p = impl_->own(q);
  const float* const weights = impl_->recurrence.prepare(q, r.data, q.workspace() + impl_->workspace.packed);
  impl_->workspace.forEachPart(q, impl_->parts, [&](Stream& mine, int part, std::int64_t first, std::int64_t end) {
    float* const spare = p + 3 * state + 4 * part * o.hidden;
    const float* before = h0.data;
    for (std::int64_t count = 0; count < o.steps; ++count) {
      const std::int64_t t = recurrent::position(count, o.steps, o.reverse);
      for (std::int64_t row = first; row < end; ++row)
        recurrent::copyOrZero(b.data, 3 * o.hidden, p + row * 3 * o.hidden);
      if (before) impl_->recurrence.run(mine, part, before + first * o.hidden, weights, p + first * 3 * o.hidden);
      for (std::int64_t row = first; row < end; ++row) {
        const std::int64_t at = (t * o.batch + row) * o.hidden;
        const float* const beforeRow = before ? before + row * o.hidden : nullptr;
        float* const saved = gates ? gates.data + 4 * at : spare;
        if (recurrent::isOver(lengths, row, t)) {
          recurrent::copyOrZero(beforeRow, o.hidden, y.data + at);
          std::fill_n(saved, 4 * o.hidden, 0.0f);
        } else {
          const float* const pRow = p + row * 3 * o.hidden;
          forwardRow(o.hidden, impl_->gatesOf(x.data + 3 * at), impl_->gatesOf(pRow), beforeRow, y.data + at,
                     Saved<float>(saved, o.hidden));
        }
      }
      before = y.data + t * state;
    }
  });
}

void Gru::gradient(Stream& q, View<const float> dy, View<const float> r, View<const float> y, View<const float> gates,
                   View<const float> h0, View<const std::int32_t> lengths, View<float> dx, View<float> da,
                   View<float> dh0) const {
  const Options& o = impl_->options;
  const std::int64_t state = o.batch * o.hidden;
  float* const dh = impl_->own(q);
  std::fill_n(dh, state, 0.0f);
  const float* const weights = impl_->backward.prepare(q, r.data, q.workspace() + impl_->workspace.packed);
  impl_->workspace.forEachPart(q, impl_->parts, [&](Stream& mine, int part, std::int64_t first, std::int64_t end) {
    const std::int64_t begin = first * o.hidden;
    for (std::int64_t count = o.steps - 1; count >= 0; --count) {
      const std::int64_t t = recurrent::position(count, o.steps, o.reverse);
      const float* const before =
          count > 0 ? y.data + recurrent::position(count - 1, o.steps, o.reverse) * state : h0.data;
      recurrent::add(dy.data + t * state + begin, (end - first) * o.hidden, dh + begin);
      for (std::int64_t row = first; row < end; ++row) {
        const std::int64_t at = (t * o.batch + row) * o.hidden;
        if (recurrent::isOver(lengths, row, t)) { // what comes before the step is what comes after it
          std::fill_n(dx.data + 3 * at, 3 * o.hidden, 0.0f);
          std::fill_n(da.data + 3 * at, 3 * o.hidden, 0.0f);
          continue;
        }
        backwardRow(o.hidden, Saved<const float>(gates.data + 4 * at, o.hidden),
                    before ? before + row * o.hidden : nullptr, dh + row * o.hidden, impl_->gatesOf(dx.data + 3 * at),
                    impl_->gatesOf(da.data + 3 * at));
      }
      if (count > 0 || dh0) impl_->backward.run(mine, part, da.data + t * 3 * state + 3 * begin, weights, dh + begin);
    }
  });
  if (dh0) std::copy_n(dh, state, dh0.data);
}

} // namespace pdcrt
