// MatMul over tiles of our own or oneDNN's matmul.
#include "pdcrt/kernels/MatMul.h"

#include "cpu/support/FilledRows.h"
#include "cpu/support/Onednn.h"
#include "cpu/tiles/TiledProduct.h"

#include <optional>
#include <stdexcept>

namespace pdcrt {

using dnnl::memory;

struct MatMul::Impl {
  Options options;
  std::optional<TiledProduct> tiled; ///< of one of the batch
  onednn::Operation product;         ///< of all, where there is no other
  FilledRows filled;                 ///< of one of the batch, where rows of zeros are left out
};

MatMul::MatMul(Setup& setup, const Options& o) : impl_(std::make_unique<Impl>(Impl{o, {}, {}, {}})) {
  const auto what = [&] {
    return "matrix product of batch " + std::to_string(o.batch) + ", m " + std::to_string(o.m) + ", k " +
           std::to_string(o.k) + ", n " + std::to_string(o.n) + ": ";
  };
  if (o.batch < 1 || o.m < 1 || o.k < 1 || o.n < 1) throw std::runtime_error(what() + "sizes must be positive");
  const TiledProduct::Options one = {o.m, o.k, o.n, o.transposeA, o.transposeB};
  try {
    impl_->filled = FilledRows(setup, o);
  } catch (const dnnl::error& error) {
    throw std::runtime_error(what() + "oneDNN " + error.what());
  }
  if (TiledProduct::preferred(one)) {
    impl_->tiled.emplace(one);
    setup.needWorkspace(impl_->tiled->workspaceBytes());
    return;
  }
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
  const Options& o = impl_->options;
  if (impl_->filled.run(q, a.data, b.data, c.data)) return;
  if (!impl_->tiled) return impl_->product.run(q, {a.data, b.data}, {c.data});
  for (std::int64_t i = 0; i < o.batch; ++i)
    impl_->tiled->run(q.workspace(), a.data + (o.broadcastA ? 0 : i * o.m * o.k),
                      b.data + (o.broadcastB ? 0 : i * o.k * o.n), nullptr, c.data + i * o.m * o.n);
}

} // namespace pdcrt
