// LinearInt8: the forward product is in integers (Int8Product.h). The gradient is a product of floats. Some outputs'
// weights at a time become floats, which stay in the caches, so that memory reads a quarter of the bytes.
#include "pdcrt/kernels/LinearInt8.h"

#include "cpu/support/Product.h"
#include "cpu/tiles/Int8Product.h"
#include "device/cpu/Parts.h"
#include "device/cpu/Sums.h"

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string>

namespace pdcrt {
namespace {

/// Outputs whose weights are floats at a time: a MiB of them, in multiples of a few tiles. Of very many inputs more:
/// the product's result is read and written once for each of these parts.
std::int64_t outputsAtOnce(const LinearInt8::Options& o) {
  constexpr std::int64_t floats = 256 << 10, tiles = 32, least = 128;
  return std::min(o.outputs, std::max(least, floats / o.inputs / tiles * tiles));
}

std::size_t linesOf(std::int64_t floats) {
  return static_cast<std::size_t>((floats + 15) / 16 * 16) * sizeof(float);
}

PDCRT_VECTORIZED void widen(std::int64_t count, const std::int8_t* w, float scale, float* to) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(w[i]) * scale;
}

} // namespace

struct LinearInt8::Impl {
  Options options;
  Int8Product forward;
  /// Of the gradient: of the first outputs, of as many others, and of those that are left.
  Product first, next;
  std::optional<Product> last;
  std::int64_t atOnce = 0;
};

LinearInt8::LinearInt8(Setup& setup, const Options& o) : impl_(std::make_unique<Impl>()) {
  const auto what = [&] {
    return "linear layer of int8 weights, of " + std::to_string(o.rows) + " rows, " + std::to_string(o.inputs) +
           " inputs, " + std::to_string(o.outputs) + " outputs: ";
  };
  if (o.rows < 1 || o.inputs < 1 || o.outputs < 1) throw std::runtime_error(what() + "sizes must be positive");
  impl_->options = o;
  impl_->forward = Int8Product(
      {.rows = o.rows, .inputs = o.inputs, .outputs = o.outputs, .kept = o.kept, .alpha = static_cast<float>(o.alpha)});
  {
    const Setup::Method called(setup, "forward");
    setup.needWorkspace(impl_->forward.workspaceBytes());
  }
  impl_->atOnce = outputsAtOnce(o);
  std::size_t most = 0;
  const auto product = [&](std::int64_t outputs, bool adds) {
    Setup own;
    Product made(own, {.m = o.rows, .k = outputs, .n = o.inputs, .adds = adds});
    most = std::max(most, own.workspaceBytes());
    return made;
  };
  try {
    impl_->first = product(impl_->atOnce, false);
    if (o.outputs > impl_->atOnce) impl_->next = product(impl_->atOnce, true);
    if (const std::int64_t left = o.outputs % impl_->atOnce; left > 0) impl_->last = product(left, true);
  } catch (const dnnl::error& error) {
    throw std::runtime_error(what() + "oneDNN " + error.what());
  }
  const Setup::Method called(setup, "inputGradient");
  setup.needWorkspace(linesOf(impl_->atOnce * o.inputs) + linesOf(impl_->atOnce * o.rows) + most);
}

LinearInt8::~LinearInt8() = default;
LinearInt8::LinearInt8(LinearInt8&&) noexcept = default;
LinearInt8& LinearInt8::operator=(LinearInt8&&) noexcept = default;

void LinearInt8::forward(Stream& q, View<const float> x, View<const std::int8_t> w, View<const float> scale,
                         View<const float> kept, View<const std::int32_t> keptInputs, View<const float> b,
                         View<float> y) const {
  const Options& o = impl_->options;
  impl_->forward.run(q.workspace(), {.x = x.data,
                                     .w = w.data,
                                     .scale = scale.data,
                                     .kept = kept.data,
                                     .keptInputs = keptInputs.data,
                                     .bias = o.bias ? b.data : nullptr,
                                     .y = y.data});
}

void LinearInt8::inputGradient(Stream& q, View<const float> dy, View<const std::int8_t> w, View<const float> scale,
                               View<const float> kept, View<const std::int32_t> keptInputs, View<float> dx) const {
  const Options& o = impl_->options;
  const std::size_t weightBytes = linesOf(impl_->atOnce * o.inputs), gradientBytes = linesOf(impl_->atOnce * o.rows);
  auto* const weights = reinterpret_cast<float*>(q.workspace());
  auto* const gradients = reinterpret_cast<float*>(q.workspace() + weightBytes);
  Stream library(q.workspace() + weightBytes + gradientBytes, q.workspaceBytes() - weightBytes - gradientBytes);
  for (std::int64_t begin = 0; begin < o.outputs; begin += impl_->atOnce) {
    const std::int64_t count = std::min(impl_->atOnce, o.outputs - begin);
    parts::runRanges(parts::countOf(count, count * o.inputs), count, [&](std::int64_t from, std::int64_t to) {
      for (std::int64_t k = from; k < to; ++k) {
        float* const row = weights + k * o.inputs;
        widen(o.inputs, w.data + (begin + k) * o.inputs, scale[begin + k], row);
        for (std::int64_t e = 0; e < o.kept; ++e) row[keptInputs[e]] = kept[e * o.outputs + begin + k];
      }
    });
    for (std::int64_t j = 0; j < o.rows; ++j)
      std::copy_n(dy.data + j * o.outputs + begin, count, gradients + j * count);
    const Product& product = begin == 0 ? impl_->first : count == impl_->atOnce ? impl_->next : *impl_->last;
    product.run(library, gradients, weights, dx.data);
  }
}

} // namespace pdcrt
