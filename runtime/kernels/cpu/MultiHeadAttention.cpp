// See MultiHeadAttention.h: by copies.
#include "pdcrt/kernels/MultiHeadAttention.h"

#include "common/HeadCopies.h"

namespace pdcrt {

struct MultiHeadAttention::Impl {
  Options options;
  HeadCopies copies;
  Attention attention;
};

MultiHeadAttention::MultiHeadAttention(Setup& setup, const Options& o) {
  checkSizes(o);
  Setup own;
  impl_ = std::make_unique<Impl>(Impl{o, HeadCopies(o), Attention(own, attentionOf(o))});
  setup.needWorkspace(copyBytes(o) + own.workspaceBytes());
}

MultiHeadAttention::~MultiHeadAttention() = default;
MultiHeadAttention::MultiHeadAttention(MultiHeadAttention&&) noexcept = default;
MultiHeadAttention& MultiHeadAttention::operator=(MultiHeadAttention&&) noexcept = default;

void MultiHeadAttention::forward(Stream& q, View<const float> query, View<const float> key, View<const float> value,
                                 View<const float> bias, View<float> y, View<float> largest,
                                 View<float> inverse) const {
  const auto in = headsOf<const float>(impl_->options, query.data, key.data, value.data, nullptr);
  impl_->copies.forward<float>(q, impl_->attention, in, bias, y.data, largest, inverse);
}

void MultiHeadAttention::inputGradient(Stream& q, View<const float> dy, View<const float> query, View<const float> key,
                                       View<const float> value, View<const float> bias, View<const float>,
                                       View<const float> largest, View<const float> inverse, View<float> dquery,
                                       View<float> dkey, View<float> dvalue) const {
  const auto in = headsOf<const float>(impl_->options, query.data, key.data, value.data, dy.data);
  const auto results = headsOf<float>(impl_->options, dquery.data, dkey.data, dvalue.data, nullptr);
  impl_->copies.inputGradient<float>(q, impl_->attention, in, bias, largest, inverse, results);
}

} // namespace pdcrt
