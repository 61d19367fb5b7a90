// Linear over products of matrices: tiles of our own, or oneDNN's matmul. The library's inner product runs as fast, but
// allocates packing buffers of megabytes in every call; its matmul takes them, for AVX-512, from the workspace.
#include "pdcrt/kernels/Linear.h"

#include "cpu/support/LiveRows.h"
#include "cpu/support/Product.h"
#include "cpu/tiles/FewRows.h"
#include "device/cpu/Parts.h"
#include "pdcrt/kernels/Reduce.h"

#include <algorithm>
#include <initializer_list>
#include <stdexcept>
#include <utility>

namespace pdcrt {
namespace {

/// Small batches, weights that fit no cache: time goes into reading and writing them. Measured against the library's
/// matmul: 32 x 4096 · 4096 x 9216 in 0.45 of the time, 4096 x 4 · 4 x 25088 in 0.4, 4096 x 32 · 32 x 9216 in 0.65,
/// 4096 x 64 · 64 x 25088 in 1.
bool hasFewRows(const Linear::Options& o, std::int64_t most) {
  constexpr std::int64_t fewestWeights = 2 << 20;
  return o.rows <= most && o.inputs * o.outputs >= fewestWeights;
}

bool ownsWeightGradient(const Linear::Options& o) {
  return hasFewRows(o, fewrows::available() ? fewrows::mostSteps : fewrows::mostRows);
}

/// Rows and columns of the weights.
std::pair<std::int64_t, std::int64_t> weightSizes(const Linear::Options& o) {
  return o.transposed ? std::pair(o.outputs, o.inputs) : std::pair(o.inputs, o.outputs);
}

/// Rows of a part that one thread makes, and of those that lie in memory at once: for two threads.
std::pair<std::int64_t, std::int64_t> rowsOfParts(const Linear::Options& o) {
  constexpr std::int64_t elements = 256 << 10; // smaller ones would read the other factor from its cache too often
  const auto [m, n] = weightSizes(o);
  const std::int64_t rows = std::clamp<std::int64_t>(elements / n, 1, m);
  return {rows, std::min(m, 2 * rows)};
}

} // namespace

struct Linear::Impl {
  Options options;
  bool ownForward, ownInputGradient, ownWeightGradient; ///< not the library's
  Product forward, inputGradient, weightGradient;
  LiveRows live;       ///< of the library's gradients
  Reduce biasGradient; ///< sums over the rows

  /// y or dx, `columns` wide, from a, `depth` wide.
  void runInParts(const Product& product, Stream& q, const float* a, std::int64_t depth, const float* w, float* c,
                  std::int64_t columns, const float* bias = nullptr) const {
    const std::int64_t rows = options.rows / options.parts;
    for (int part = 0; part < options.parts; ++part) {
      float* const result = c + part * rows * columns;
      product.run(q, a + part * rows * depth, w, result, bias);
      q.made(result + rows * columns);
    }
  }
};

Linear::Linear(Setup& setup, const Options& o)
    : impl_(std::make_unique<Impl>(Impl{o,
                                        fewrows::available() && o.transposed && hasFewRows(o, fewrows::mostRows),
                                        fewrows::available() && o.transposed && hasFewRows(o, 64),
                                        ownsWeightGradient(o),
                                        {},
                                        {},
                                        {},
                                        {},
                                        {setup, {.input = {o.rows, o.outputs}, .axes = {0}}}})) {
  const auto what = [&] {
    return "linear layer of " + std::to_string(o.rows) + " rows, " + std::to_string(o.inputs) + " inputs, " +
           std::to_string(o.outputs) + " outputs: ";
  };
  if (o.rows < 1 || o.inputs < 1 || o.outputs < 1) throw std::runtime_error(what() + "sizes must be positive");
  if (o.parts < 1 || o.rows % o.parts != 0)
    throw std::runtime_error(what() + "its rows cannot be made in " + std::to_string(o.parts) + " equal parts");
  const std::int64_t rowsOfPart = o.rows / o.parts;
  const auto need = [&](std::initializer_list<const char*> methods, std::size_t bytes) {
    for (const char* method : methods) {
      const Setup::Method called(setup, method);
      setup.needWorkspace(bytes);
    }
  };
  try {
    // The workspace is for the calls of all methods that run the product.
    const auto product = [&](std::initializer_list<const char*> methods, const TiledProduct::Options& sizes,
                             bool bias = false) {
      Setup own;
      Product made(own, sizes, bias);
      need(methods, own.workspaceBytes());
      return made;
    };
    if (!impl_->ownForward)
      impl_->forward =
          product({"forward"}, {.m = rowsOfPart, .k = o.inputs, .n = o.outputs, .transposeB = o.transposed}, o.bias);
    if (!impl_->ownInputGradient)
      impl_->inputGradient = product({"inputGradient", "gradients", "gradientsInParts"},
                                     {.m = rowsOfPart, .k = o.outputs, .n = o.inputs, .transposeB = !o.transposed});
    if (!impl_->ownWeightGradient) {
      const auto [m, n] = weightSizes(o);
      impl_->weightGradient =
          product({"weightGradient", "gradients"}, {.m = m, .k = o.rows, .n = n, .transposeA = true});
    }
    if (!impl_->ownInputGradient && !impl_->ownWeightGradient) impl_->live = LiveRows(o);
    need({"inputGradient", "gradients"}, impl_->live.inputGradientBytes());
    need({"weightGradient", "gradients"}, impl_->live.weightGradientBytes());
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
    impl_->runInParts(impl_->forward, q, x.data, o.inputs, w.data, y.data, o.outputs, bias);
}

void Linear::inputGradient(Stream& q, View<const float> dy, View<const float> w, View<float> dx) const {
  const Options& o = impl_->options;
  if (impl_->ownInputGradient)
    fewrows::multiply(o.rows, o.outputs, o.inputs, dy.data, o.outputs, w.data, dx.data);
  else if (!impl_->live.inputGradient(q, dy.data, w.data, dx.data))
    impl_->runInParts(impl_->inputGradient, q, dy.data, o.outputs, w.data, dx.data, o.inputs);
}

void Linear::weightGradient(Stream& q, View<const float> x, View<const float> dy, View<float> dw,
                            View<float> db) const {
  const Options& o = impl_->options;
  const auto [m, n] = weightSizes(o);
  const float *const left = o.transposed ? dy.data : x.data, *const right = o.transposed ? x.data : dy.data;
  if (impl_->ownWeightGradient)
    fewrows::multiplyTransposed(m, o.rows, n, left, m, right, dw.data, /*past=*/true);
  else if (!impl_->live.weightGradient(q, x.data, dy.data, dw.data))
    impl_->weightGradient.run(q, left, right, dw.data);
  if (db) impl_->biasGradient.forward(q, dy, db);
}

std::int64_t Linear::partSize(const Options& o) {
  return ownsWeightGradient(o) ? weightSizes(o).second * rowsOfParts(o).second : 0;
}

void Linear::gradientsInParts(Stream& q, View<const float> x, View<const float> dy, View<const float> w,
                              View<float> part, View<float> db, View<float> dx, const PartTaker& taken) const {
  const Options& o = impl_->options;
  const auto [most, places] = rowsOfParts(o);
  if (!impl_->ownInputGradient || parts::countOf(places, o.inputs * o.outputs) > 1) {
    inputGradient(q, dy, w, dx);
    return weightGradientInParts(q, x, dy, part, db, taken);
  }
  // Parts of one size: a short last one would read x as often as a long one.
  const std::int64_t count = (fewrows::steps + most - 1) / most, rows = (fewrows::steps + count - 1) / count;
  for (std::int64_t begin = 0; begin < o.outputs; begin += fewrows::steps) {
    const std::int64_t end = std::min(begin + fewrows::steps, o.outputs);
    fewrows::multiply(o.rows, end - begin, o.inputs, dy.data + begin, o.outputs, w.data + begin * o.inputs, dx.data,
                      /*adds=*/begin > 0);
    for (std::int64_t row = begin; row < end; row += rows) {
      const std::int64_t here = std::min(rows, end - row);
      fewrows::multiplyTransposed(here, o.rows, o.inputs, dy.data + row, o.outputs, x.data, part.data, /*past=*/false);
      taken(part.data, {row * o.inputs, here * o.inputs});
    }
  }
  if (db) impl_->biasGradient.forward(q, dy, db);
}

void Linear::weightGradientInParts(Stream& q, View<const float> x, View<const float> dy, View<float> part,
                                   View<float> db, const PartTaker& taken) const {
  const Options& o = impl_->options;
  const auto [m, n] = weightSizes(o);
  const float *const left = o.transposed ? dy.data : x.data, *const right = o.transposed ? x.data : dy.data;
  const auto [most, places] = rowsOfParts(o);
  const int threads = parts::countOf(places, m * n);
  const std::int64_t rows = std::min(most, places / threads);
  parts::run(threads, [&, m = m, n = n](int thread) {
    const auto [begin, end] = parts::rangeOf(thread, threads, m);
    float* const own = part.data + thread * rows * n;
    for (std::int64_t row = begin; row < end; row += rows) {
      const std::int64_t here = std::min(rows, end - row);
      fewrows::multiplyTransposed(here, o.rows, n, left + row, m, right, own, /*past=*/false);
      taken(own, {row * n, here * n});
    }
  });
  if (db) impl_->biasGradient.forward(q, dy, db);
}

} // namespace pdcrt
