// MatMul over cuBLASLt.
#include "pdcrt/kernels/MatMul.h"

#include "cuda/support/Product.h"

namespace pdcrt {

struct MatMul::Impl {
  cuda::Product product;
};

MatMul::MatMul(Setup& setup, const Options& o) : impl_(std::make_unique<Impl>()) {
  if (o.batch < 1 || o.m < 1 || o.k < 1 || o.n < 1)
    throw std::runtime_error("matrix product of batch " + std::to_string(o.batch) + ", m " + std::to_string(o.m) +
                             ", k " + std::to_string(o.k) + ", n " + std::to_string(o.n) + ": sizes must be positive");
  setup.needWorkspace(cuda::workspaceOf(o));
  impl_->product = cuda::Product({.m = o.m,
                                  .k = o.k,
                                  .n = o.n,
                                  .transposeA = o.transposeA,
                                  .transposeB = o.transposeB,
                                  .batch = o.batch,
                                  .broadcastA = o.broadcastA,
                                  .broadcastB = o.broadcastB,
                                  .element = o.element,
                                  .padded = cuda::paddedProduct(o)});
}

MatMul::~MatMul() = default;
MatMul::MatMul(MatMul&&) noexcept = default;
MatMul& MatMul::operator=(MatMul&&) noexcept = default;

template <class T>
void MatMul::forward(Stream& q, OperandView<T> a, OperandView<T> b, View<T> c) const {
  impl_->product.run(q, a.data, b.data, nullptr, c.data);
}
void MatMul::forward(Stream& q, View<const float> a, View<const float> b, View<float> c) const {
  forward<float>(q, a, b, c);
}

template void MatMul::forward(Stream&, View<const bfloat16>, View<const bfloat16>, View<bfloat16>) const;
template void MatMul::forward(Stream&, View<const float16>, View<const float16>, View<float16>) const;

} // namespace pdcrt
