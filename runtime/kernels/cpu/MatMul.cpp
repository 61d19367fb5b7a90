// MatMul over oneDNN's matmul.
#include "pdcrt/kernels/MatMul.h"

#include "Onednn.h"

#include <stdexcept>

namespace pdcrt {

using dnnl::memory;

struct MatMul::Impl {
  onednn::Operation product;
};

MatMul::MatMul(Setup& setup, const Options& o) : impl_(std::make_unique<Impl>()) {
  const auto what = [&] {
    return "matrix product of batch " + std::to_string(o.batch) + ", m " + std::to_string(o.m) + ", k " +
           std::to_string(o.k) + ", n " + std::to_string(o.n) + ": ";
  };
  if (o.batch < 1 || o.m < 1 || o.k < 1 || o.n < 1) throw std::runtime_error(what() + "sizes must be positive");
  const auto matrix = [](std::int64_t batch, std::int64_t rows, std::int64_t columns, bool transposed) {
    return memory::desc({batch, rows, columns}, memory::data_type::f32,
                        transposed ? memory::format_tag::acb : memory::format_tag::abc);
  };
  const memory::desc a = matrix(o.broadcastA ? 1 : o.batch, o.m, o.k, o.transposeA),
                     b = matrix(o.broadcastB ? 1 : o.batch, o.k, o.n, o.transposeB),
                     c = matrix(o.batch, o.m, o.n, false);
  try {
    const dnnl::matmul::primitive_desc product({a, b, c}, onednn::attributes(), onednn::engine());
    impl_->product = onednn::Operation(setup, product, {{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}}, {{DNNL_ARG_DST, c}});
  } catch (const dnnl::error& error) {
    throw std::runtime_error(what() + "oneDNN " + error.what());
  }
}

MatMul::~MatMul() = default;
MatMul::MatMul(MatMul&&) noexcept = default;
MatMul& MatMul::operator=(MatMul&&) noexcept = default;

void MatMul::forward(Stream& q, View<const float> a, View<const float> b, View<float> c) const {
  impl_->product.run(q, {a.data, b.data}, {c.data});
}

} // namespace pdcrt
