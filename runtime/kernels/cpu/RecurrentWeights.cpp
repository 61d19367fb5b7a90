// See RecurrentWeights.h. States lie one step from the gates that they enter, so all steps are one product.
#include "pdcrt/kernels/RecurrentWeights.h"

#include "cpu/support/Recurrent.h"
#include "pdcrt/kernels/Reduce.h"

#include <algorithm>

namespace pdcrt {

struct RecurrentWeights::Impl {
  Options options;
  Product later; ///< dr = the sum over all steps but the first
  Product first; ///< dr += that of the first step
  Reduce bias;
};

RecurrentWeights::RecurrentWeights(Setup& setup, const Options& o)
    : impl_(std::make_unique<Impl>(Impl{o, {}, {}, {setup, {.input = {o.steps * o.batch, o.gates}, .axes = {0}}}})) {
  recurrent::construct("recurrent weights", o, [&] {
    const auto over = [&](std::int64_t rows, bool adds) {
      return Product(setup, {o.gates, rows, o.hidden, /*transposeA=*/true, /*transposeB=*/false, adds});
    };
    if (o.steps > 1) impl_->later = over((o.steps - 1) * o.batch, false);
    impl_->first = over(o.batch, true);
  });
}

RecurrentWeights::~RecurrentWeights() = default;
RecurrentWeights::RecurrentWeights(RecurrentWeights&&) noexcept = default;
RecurrentWeights& RecurrentWeights::operator=(RecurrentWeights&&) noexcept = default;

void RecurrentWeights::gradient(Stream& q, View<const float> da, View<const float> y, View<const float> h0,
                                View<float> dr, View<float> db) const {
  const Options& o = impl_->options;
  const std::int64_t gates = o.batch * o.gates, states = o.batch * o.hidden;
  // Step t reads the state of position t - 1, or t + 1 when the layer runs backwards.
  if (o.steps > 1)
    impl_->later.run(q, da.data + (o.reverse ? 0 : gates), y.data + (o.reverse ? states : 0), dr.data);
  else
    std::fill_n(dr.data, o.gates * o.hidden, 0.0f);
  if (h0) impl_->first.run(q, da.data + recurrent::position(0, o.steps, o.reverse) * gates, h0.data, dr.data);
  if (db) impl_->bias.forward(q, da, db);
}

} // namespace pdcrt
