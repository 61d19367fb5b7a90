// Linear over cuBLASLt of all rows; then those that nobody reads become zeros. The product takes no longer for them.
#include "pdcrt/kernels/LinearOfRows.h"

#include "cuda/support/Product.h"

namespace pdcrt {
namespace {

__global__ void clearRows(std::int64_t elements, std::int64_t outputs, const float* live, float* y) {
  for (std::int64_t i = thread(); i < elements; i += threads())
    if (live[i / outputs] == 0) y[i] = 0;
}

} // namespace

struct LinearOfRows::Impl {
  Options options;
  cuda::Product product;
};

LinearOfRows::LinearOfRows(Setup& setup, const Options& o) : impl_(std::make_unique<Impl>()) {
  if (o.rows < 1 || o.inputs < 1 || o.outputs < 1)
    throw std::runtime_error("linear layer of some of " + std::to_string(o.rows) + " rows, " +
                             std::to_string(o.inputs) + " inputs, " + std::to_string(o.outputs) +
                             " outputs: sizes must be positive");
  impl_->options = o;
  setup.needWorkspace(cuda::workspaceOf(o));
  impl_->product =
      cuda::Product({.m = o.rows, .k = o.inputs, .n = o.outputs, .transposeB = o.transposed, .bias = o.bias});
}

LinearOfRows::~LinearOfRows() = default;
LinearOfRows::LinearOfRows(LinearOfRows&&) noexcept = default;
LinearOfRows& LinearOfRows::operator=(LinearOfRows&&) noexcept = default;

void LinearOfRows::forward(Stream& q, View<const float> x, View<const float> w, View<const float> live,
                           View<const float> b, View<float> y) const {
  const Options& o = impl_->options;
  impl_->product.run(q, x.data, w.data, o.bias ? b.data : nullptr, y.data);
  launchLoop(q, "linear of some rows", clearRows, o.rows * o.outputs, o.rows * o.outputs, o.outputs, live.data, y.data);
}

} // namespace pdcrt
