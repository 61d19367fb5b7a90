// Linear over oneDNN's matmul. The library's inner product runs as fast, but allocates packing buffers of megabytes in
// every call; its matmul takes them from the workspace.
#include "pdcrt/kernels/Linear.h"

#include "Onednn.h"
#include "pdcrt/kernels/Reduce.h"

#include <stdexcept>

namespace pdcrt {
namespace {

using dnnl::memory;
using onednn::Operation;

memory::desc matrix(std::int64_t rows, std::int64_t columns, bool transposed) {
  return {{rows, columns}, memory::data_type::f32, transposed ? memory::format_tag::ba : memory::format_tag::ab};
}

/// c = a · b.
Operation product(Setup& setup, const memory::desc& a, const memory::desc& b, const memory::desc& c) {
  const dnnl::matmul::primitive_desc descriptor({a, b, c}, onednn::attributes(), onednn::engine());
  return {setup, descriptor, {{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}}, {{DNNL_ARG_DST, c}}};
}

} // namespace

struct Linear::Impl {
  Options options;
  Operation forward, inputGradient, weightGradient;
  Reduce biasGradient; ///< sums over the rows
};

Linear::Linear(Setup& setup, const Options& o)
    : impl_(std::make_unique<Impl>(Impl{o, {}, {}, {}, {setup, {.input = {o.rows, o.outputs}, .axes = {0}}}})) {
  const auto what = [&] {
    return "linear layer of " + std::to_string(o.rows) + " rows, " + std::to_string(o.inputs) + " inputs, " +
           std::to_string(o.outputs) + " outputs: ";
  };
  if (o.rows < 1 || o.inputs < 1 || o.outputs < 1) throw std::runtime_error(what() + "sizes must be positive");
  const memory::desc x = matrix(o.rows, o.inputs, false), y = matrix(o.rows, o.outputs, false),
                     w = matrix(o.inputs, o.outputs, o.transposed), b = matrix(1, o.outputs, false),
                     xTransposed = matrix(o.inputs, o.rows, true), yTransposed = matrix(o.outputs, o.rows, true),
                     wTransposed = matrix(o.outputs, o.inputs, !o.transposed);
  try {
    if (o.bias) {
      const dnnl::matmul::primitive_desc forward({x, w, b, y}, onednn::attributes(), onednn::engine());
      impl_->forward = Operation(setup, forward, {{DNNL_ARG_SRC, x}, {DNNL_ARG_WEIGHTS, w}, {DNNL_ARG_BIAS, b}},
                                 {{DNNL_ARG_DST, y}});
    } else {
      impl_->forward = product(setup, x, w, y);
    }
    impl_->inputGradient = product(setup, y, wTransposed, x);
    impl_->weightGradient = o.transposed ? product(setup, yTransposed, x, matrix(o.outputs, o.inputs, false))
                                         : product(setup, xTransposed, y, matrix(o.inputs, o.outputs, false));
  } catch (const dnnl::error& error) {
    throw std::runtime_error(what() + "oneDNN " + error.what());
  }
}

Linear::~Linear() = default;
Linear::Linear(Linear&&) noexcept = default;
Linear& Linear::operator=(Linear&&) noexcept = default;

void Linear::forward(Stream& q, View<const float> x, View<const float> w, View<const float> b, View<float> y) const {
  if (impl_->options.bias)
    impl_->forward.run(q, {x.data, w.data, b.data}, {y.data});
  else
    impl_->forward.run(q, {x.data, w.data}, {y.data});
}

void Linear::inputGradient(Stream& q, View<const float> dy, View<const float> w, View<float> dx) const {
  impl_->inputGradient.run(q, {dy.data, w.data}, {dx.data});
}

void Linear::weightGradient(Stream& q, View<const float> x, View<const float> dy, View<float> dw,
                            View<float> db) const {
  const Options& o = impl_->options;
  if (o.transposed)
    impl_->weightGradient.run(q, {dy.data, x.data}, {dw.data});
  else
    impl_->weightGradient.run(q, {x.data, dy.data}, {dw.data});
  if (db) impl_->biasGradient.forward(q, dy, db);
}

} // namespace pdcrt
