// Linear over products of matrices: tiles of our own, or oneDNN's matmul. The library's inner product runs as fast, but
// allocates packing buffers of megabytes in every call; its matmul takes them, for AVX-512, from the workspace.
#include "pdcrt/kernels/Linear.h"

#include "FewRows.h"
#include "Product.h"
#include "pdcrt/kernels/Reduce.h"

#include <stdexcept>
#include <utility>

namespace pdcrt {
namespace {

/// Small batches, weights that fit no cache: time goes into reading and writing them. Measured against the library's
/// matmul: 32 x 4096 · 4096 x 9216 in 0.45 of the time, 4096 x 4 · 4 x 25088 in 0.4, but 4096 x 32 · 32 x 9216 in 1.3.
bool hasFewRows(const Linear::Options& o, std::int64_t most) {
  constexpr std::int64_t fewestWeights = 2 << 20;
  return fewrows::available() && o.rows <= most && o.inputs * o.outputs >= fewestWeights;
}

} // namespace

struct Linear::Impl {
  Options options;
  bool ownForward, ownInputGradient, ownWeightGradient; ///< not the library's
  Product forward, inputGradient, weightGradient;
  Reduce biasGradient; ///< sums over the rows
};

Linear::Linear(Setup& setup, const Options& o)
    : impl_(std::make_unique<Impl>(Impl{o,
                                        o.transposed && hasFewRows(o, fewrows::mostRows),
                                        o.transposed && hasFewRows(o, 64),
                                        hasFewRows(o, 8),
                                        {},
                                        {},
                                        {},
                                        {setup, {.input = {o.rows, o.outputs}, .axes = {0}}}})) {
  const auto what = [&] {
    return "linear layer of " + std::to_string(o.rows) + " rows, " + std::to_string(o.inputs) + " inputs, " +
           std::to_string(o.outputs) + " outputs: ";
  };
  if (o.rows < 1 || o.inputs < 1 || o.outputs < 1) throw std::runtime_error(what() + "sizes must be positive");
  try {
    const auto product = [&](const char* method, const TiledProduct::Options& sizes, bool bias = false) {
      const Setup::Method called(setup, method);
      return Product(setup, sizes, bias);
    };
    if (!impl_->ownForward)
      impl_->forward =
          product("forward", {.m = o.rows, .k = o.inputs, .n = o.outputs, .transposeB = o.transposed}, o.bias);
    if (!impl_->ownInputGradient)
      impl_->inputGradient =
          product("inputGradient", {.m = o.rows, .k = o.outputs, .n = o.inputs, .transposeB = !o.transposed});
    if (!impl_->ownWeightGradient) {
      const auto [m, n] = o.transposed ? std::pair{o.outputs, o.inputs} : std::pair{o.inputs, o.outputs};
      impl_->weightGradient = product("weightGradient", {.m = m, .k = o.rows, .n = n, .transposeA = true});
    }
  } catch (const dnnl::error& error) {
    throw std::runtime_error(what() + "oneDNN " + error.what());
  }
}

Linear::~Linear() = default;
Linear::Linear(Linear&&) noexcept = default;
Linear& Linear::operator=(Linear&&) noexcept = default;

void Linear::forward(Stream& q, View<const float> x, View<const float> w, View<const float> b, View<float> y) const {
  const Options& o = impl_->options;
  const float* const bias = o.bias ? b.data : nullptr;
  if (impl_->ownForward)
    fewrows::multiplyByTransposed(o.rows, o.inputs, o.outputs, x.data, w.data, bias, y.data);
  else
    impl_->forward.run(q, x.data, w.data, y.data, bias);
}

void Linear::inputGradient(Stream& q, View<const float> dy, View<const float> w, View<float> dx) const {
  const Options& o = impl_->options;
  if (impl_->ownInputGradient)
    fewrows::multiply(o.rows, o.outputs, o.inputs, dy.data, w.data, dx.data);
  else
    impl_->inputGradient.run(q, dy.data, w.data, dx.data);
}

void Linear::weightGradient(Stream& q, View<const float> x, View<const float> dy, View<float> dw,
                            View<float> db) const {
  const Options& o = impl_->options;
  if (impl_->ownWeightGradient && o.transposed)
    fewrows::multiplyTransposed(o.outputs, o.rows, o.inputs, dy.data, x.data, dw.data);
  else if (impl_->ownWeightGradient)
    fewrows::multiplyTransposed(o.inputs, o.rows, o.outputs, x.data, dy.data, dw.data);
  else if (o.transposed)
    impl_->weightGradient.run(q, dy.data, x.data, dw.data);
  else
    impl_->weightGradient.run(q, x.data, dy.data, dw.data);
  if (db) impl_->biasGradient.forward(q, dy, db);
}

} // namespace pdcrt
