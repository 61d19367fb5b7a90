// Linear over cuBLASLt: the bias is the product's epilogue.
#include "pdcrt/kernels/Linear.h"

#include "Product.h"
#include "pdcrt/kernels/Reduce.h"

namespace pdcrt {

struct Linear::Impl {
  Options options;
  cuda::Product forward, inputGradient, weightGradient;
  Reduce biasGradient; ///< sums over the rows
};

Linear::Linear(Setup& setup, const Options& o)
    : impl_(std::make_unique<Impl>(Impl{o, {}, {}, {}, {setup, {.input = {o.rows, o.outputs}, .axes = {0}}}})) {
  if (o.rows < 1 || o.inputs < 1 || o.outputs < 1)
    throw std::runtime_error("linear layer of " + std::to_string(o.rows) + " rows, " + std::to_string(o.inputs) +
                             " inputs, " + std::to_string(o.outputs) + " outputs: sizes must be positive");
  setup.needWorkspace(cuda::workspaceOf(o));
  impl_->forward =
      cuda::Product({.m = o.rows, .k = o.inputs, .n = o.outputs, .transposeB = o.transposed, .bias = o.bias});
  impl_->inputGradient = cuda::Product({.m = o.rows, .k = o.outputs, .n = o.inputs, .transposeB = !o.transposed});
  // dw is [outputs, inputs], or [inputs, outputs].
  impl_->weightGradient = o.transposed
                              ? cuda::Product({.m = o.outputs, .k = o.rows, .n = o.inputs, .transposeA = true})
                              : cuda::Product({.m = o.inputs, .k = o.rows, .n = o.outputs, .transposeA = true});
}

Linear::~Linear() = default;
Linear::Linear(Linear&&) noexcept = default;
Linear& Linear::operator=(Linear&&) noexcept = default;

void Linear::forward(Stream& q, View<const float> x, View<const float> w, View<const float> b, View<float> y) const {
  impl_->forward.run(q, x.data, w.data, b.data, y.data);
}

void Linear::inputGradient(Stream& q, View<const float> dy, View<const float> w, View<float> dx) const {
  impl_->inputGradient.run(q, dy.data, w.data, nullptr, dx.data);
}

void Linear::weightGradient(Stream& q, View<const float> x, View<const float> dy, View<float> dw,
                            View<float> db) const {
  if (impl_->options.transposed)
    impl_->weightGradient.run(q, dy.data, x.data, nullptr, dw.data);
  else
    impl_->weightGradient.run(q, x.data, dy.data, nullptr, dw.data);
  if (db) impl_->biasGradient.forward(q, dy, db);
}

} // namespace pdcrt
