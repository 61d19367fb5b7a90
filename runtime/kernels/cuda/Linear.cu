// Linear over cuBLASLt: the bias is the product's epilogue.
#include "pdcrt/kernels/Linear.h"

#include "cuda/support/Product.h"
#include "cuda/trial/LinearTimes.h"
#include "pdcrt/kernels/Reduce.h"

namespace pdcrt {
namespace {

using Algorithm = Linear::Algorithm;

/// Among those that the library offers.
int placeOf(Algorithm algorithm) {
  if (algorithm == Algorithm::automatic) return 0;
  return static_cast<int>(algorithm) -
         static_cast<int>(Linear::addsUp(algorithm) ? Algorithm::firstWithSums : Algorithm::first);
}

} // namespace

struct Linear::Impl {
  Options options;
  cuda::Product forward, inputGradient, weightGradient;
  Reduce biasGradient; ///< sums over the rows, where the product does not make them

  template <class T, class G>
  void runWeightGradient(Stream& q, View<const T> x, View<const T> dy, View<G> dw, View<G> db) const;
};

Linear::Linear(Setup& setup, const Options& asked)
    : impl_(std::make_unique<Impl>(
          Impl{asked, {}, {}, {}, {setup, {.input = {asked.rows, asked.outputs}, .axes = {0}}}})) {
  Options& o = impl_->options;
  if (o.rows < 1 || o.inputs < 1 || o.outputs < 1)
    throw std::runtime_error("linear layer of " + std::to_string(o.rows) + " rows, " + std::to_string(o.inputs) +
                             " inputs, " + std::to_string(o.outputs) + " outputs: sizes must be positive");
  setup.needWorkspace(cuda::workspaceOf(o));
  if (setup.times() && o.algorithms == Algorithms{}) o.algorithms = cuda::fastest(o, *setup.times());
  if (addsUp(o.algorithms.forward) || addsUp(o.algorithms.inputGradient) ||
      (addsUp(o.algorithms.weightGradient) && !o.bias))
    throw std::runtime_error("linear layer: only the gradient of the weights adds something up, and only for a bias");
  const auto product = [&](const cuda::ProductSizes& sizes, Algorithm algorithm, bool bias) {
    using Sums = cuda::Product::Sums;
    return cuda::Product({.m = sizes.m,
                          .k = sizes.k,
                          .n = sizes.n,
                          .transposeA = sizes.transposeA,
                          .transposeB = sizes.transposeB,
                          .bias = bias,
                          .element = o.element,
                          .wideResult = sizes.wideResult,
                          .padded = cuda::paddedProduct(sizes, o.element),
                          .sums = !addsUp(algorithm) ? Sums::none
                                  : o.transposed     ? Sums::ofA
                                                     : Sums::ofB,
                          .place = placeOf(algorithm)});
  };
  const auto [forward, inputGradient, weightGradient] = cuda::productsOf(o);
  impl_->forward = product(forward, o.algorithms.forward, o.bias);
  impl_->inputGradient = product(inputGradient, o.algorithms.inputGradient, false);
  impl_->weightGradient = product(weightGradient, o.algorithms.weightGradient, false);
}

Linear::~Linear() = default;
Linear::Linear(Linear&&) noexcept = default;
Linear& Linear::operator=(Linear&&) noexcept = default;

template <class T>
void Linear::forward(Stream& q, OperandView<T> x, OperandView<T> w, OperandView<T> b, View<T> y) const {
  impl_->forward.run(q, x.data, w.data, b.data, y.data);
}
void Linear::forward(Stream& q, View<const float> x, View<const float> w, View<const float> b, View<float> y) const {
  forward<float>(q, x, w, b, y);
}

template <class T>
void Linear::inputGradient(Stream& q, OperandView<T> dy, OperandView<T> w, View<T> dx) const {
  impl_->inputGradient.run(q, dy.data, w.data, nullptr, dx.data);
}
void Linear::inputGradient(Stream& q, View<const float> dy, View<const float> w, View<float> dx) const {
  inputGradient<float>(q, dy, w, dx);
}

template <class T, class G>
void Linear::Impl::runWeightGradient(Stream& q, View<const T> x, View<const T> dy, View<G> dw, View<G> db) const {
  const bool sums = addsUp(options.algorithms.weightGradient);
  if (sums && !db)
    throw std::runtime_error("linear layer: its product adds up the gradient of a bias, which nobody wants");
  if (options.transposed)
    weightGradient.run(q, dy.data, x.data, sums ? db.data : nullptr, dw.data);
  else
    weightGradient.run(q, x.data, dy.data, sums ? db.data : nullptr, dw.data);
  if (db && !sums) biasGradient.forward(q, dy, db);
}
template <class T>
void Linear::weightGradient(Stream& q, OperandView<T> x, OperandView<T> dy, View<T> dw, View<T> db) const {
  impl_->runWeightGradient<T, T>(q, x, dy, dw, db);
}
void Linear::weightGradient(Stream& q, View<const bfloat16> x, View<const bfloat16> dy, View<float> dw,
                            View<float> db) const {
  impl_->runWeightGradient<bfloat16, float>(q, x, dy, dw, db);
}
void Linear::weightGradient(Stream& q, View<const float16> x, View<const float16> dy, View<float> dw,
                            View<float> db) const {
  impl_->runWeightGradient<float16, float>(q, x, dy, dw, db);
}
void Linear::weightGradient(Stream& q, View<const float> x, View<const float> dy, View<float> dw,
                            View<float> db) const {
  weightGradient<float>(q, x, dy, dw, db);
}

#define PDCRT_LINEAR(T)                                                                                                \
  template void Linear::forward(Stream&, View<const T>, View<const T>, View<const T>, View<T>) const;                  \
  template void Linear::inputGradient(Stream&, View<const T>, View<const T>, View<T>) const;                           \
  template void Linear::weightGradient(Stream&, View<const T>, View<const T>, View<T>, View<T>) const;
PDCRT_LINEAR(bfloat16)
PDCRT_LINEAR(float16)
#undef PDCRT_LINEAR

} // namespace pdcrt
