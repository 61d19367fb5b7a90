// See RecurrentWeights.h. States lie one step from the gates that they enter, so all steps are one product.
#include "pdcrt/kernels/RecurrentWeights.h"

#include "cuda/support/Recurrent.h"
#include "pdcrt/kernels/Reduce.h"

namespace pdcrt {

struct RecurrentWeights::Impl {
  Options options;
  cuda::Product later; ///< dr = the sum over all steps but the first
  cuda::Product first; ///< dr += that of the first step
  Reduce bias;
};

RecurrentWeights::RecurrentWeights(Setup& setup, const Options& o)
    : impl_(std::make_unique<Impl>(Impl{o, {}, {}, {setup, {.input = {o.steps * o.batch, o.gates}, .axes = {0}}}})) {
  recurrent::checkSizes("recurrent weights", o);
  setup.needWorkspace(cuda::workspaceOf(o));
  const auto over = [&](std::int64_t rows, bool accumulate) {
    return cuda::Product({.m = o.gates,
                          .k = rows,
                          .n = o.hidden,
                          .transposeA = true,
                          .accumulate = accumulate,
                          .alignment = cuda::alignmentOf({o.batch * o.gates, o.batch * o.hidden, o.gates * o.hidden})});
  };
  if (o.steps > 1) impl_->later = over((o.steps - 1) * o.batch, false);
  impl_->first = over(o.batch, true);
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
    impl_->later.run(q, da.data + (o.reverse ? 0 : gates), y.data + (o.reverse ? states : 0), nullptr, dr.data);
  else
    cuda::zero(q, dr.data, o.gates * o.hidden);
  if (h0) impl_->first.run(q, da.data + recurrent::position(0, o.steps, o.reverse) * gates, h0.data, nullptr, dr.data);
  if (db) impl_->bias.forward(q, da, db);
}

} // namespace pdcrt
