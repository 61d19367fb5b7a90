// Conv2d over oneDNN's convolution and, where that has nothing good, kernels of our own.
#include "pdcrt/kernels/Conv2d.h"

#include "common/ConvolutionOptions.h"
#include "cpu/support/Onednn.h"
#include "cpu/tiles/TiledConvolution.h"
#include "cpu/tiles/WinogradConvolution.h"
#include "device/cpu/Parts.h"
#include "device/cpu/Sums.h"
#include "pdcrt/FilterBlocks.h"
#include "pdcrt/kernels/MaxPool2d.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

namespace pdcrt {
namespace {

using dnnl::memory;
using onednn::Operation;

void check(const Conv2d::Options& o) {
  checkConvolution(o);
  if (o.filterLanes != 1 && (o.filterLanes != filterBlock || o.groups != 1 || !fitsFilterBlocks(o.filter)))
    refuseConvolution(o, "the filter's lanes must be 1, or 16 where they divide inputs and outputs of one group");
  for (Conv2d::Algorithm algorithm : {o.algorithms.forward, o.algorithms.inputGradient, o.algorithms.weightGradient})
    if (algorithm > Conv2d::Algorithm::tiledWinograd)
      refuseConvolution(o, std::string(Conv2d::algorithmNames[static_cast<int>(algorithm)]) + " is for CUDA");
}

/// Winograd's algorithm F(4x4, 3x3) multiplies 2.25 to 4 times less, but transforms the whole filter in every call, and
/// rounds four times as much. What the transform costs must be saved in enough tiles of 4x4 outputs.
/// bin/ConvolutionBench compares; against the direct algorithm, all directions together, it was (AMD EPYC) 2.2 times as
/// fast at 8x64x56x56, 1.8 at 8x256x14x14, 1.3 at 2x128x14x14, 1.2 at 2x192x13x13, all of 32 tiles or more, and 0.9 at
/// 4x256x7x7, 0.5 at 1x512x7x7. 1.4 at 8x512x7x7 is not taken, because it needs 94 MiB of workspace: filters with more
/// channels than there are positions are large beside the values. What is fast anyway is left to the direct algorithm,
/// which is more accurate.
bool winogradPays(const Conv2d::Options& o) {
  const Shape y = Conv2d::outputShape(o);
  const std::int64_t positions = y.dims[0] * y.dims[2] * y.dims[3],
                     tiles = y.dims[0] * ((y.dims[2] + 3) / 4) * ((y.dims[3] + 3) / 4);
  const auto [fewer, more] = std::minmax(o.input.dims[1], o.filter.dims[0]);
  return Conv2d::takesWinograd(o) && fewer >= 64 && tiles >= 32 && positions >= more && positions * fewer >= 1 << 17;
}

memory::dims dimsOf(const Shape& shape) {
  return {shape.dims, shape.dims + shape.rank};
}

/// A tensor [N, C, H, W] at the interface.
memory::desc given(const memory::dims& dims, std::int64_t lanes) {
  if (lanes == 1) return onednn::plain(dims);
  return {dims, memory::data_type::f32, memory::format_tag::nChw16c};
}

/// The filter at the interface.
memory::desc givenFilter(const memory::dims& dims, std::int64_t lanes) {
  if (lanes == 1) return onednn::plain(dims);
  return {dims, memory::data_type::f32, memory::format_tag::OIhw16i16o};
}

/// The tensors as the library sees them: groups are an axis of the filter.
struct Sizes {
  memory::dims x, w, b, y;

  explicit Sizes(const Conv2d::Options& o)
      : x(dimsOf(o.input)), w(dimsOf(o.filter)), b{o.filter.dims[0]}, y(dimsOf(Conv2d::outputShape(o))) {
    if (o.groups == 1) return;
    w.front() /= o.groups;
    w.insert(w.begin(), o.groups);
  }
};

/// Makes the primitives, in the layouts that suit them best. Throws dnnl::error where there are none.
class Descriptors {
  dnnl::convolution_forward::primitive_desc forward(dnnl::algorithm algorithm) const {
    return {{dnnl::prop_kind::forward_training, algorithm, x_, w_, b_, y_, strides_, gaps_, before_, after_},
            onednn::attributes(),
            onednn::engine()};
  }
  template <class Make>
  auto by(Conv2d::Algorithm algorithm, Make make) const {
    if (algorithm == Conv2d::Algorithm::winograd || (algorithm == Conv2d::Algorithm::automatic && winogradPays(o_))) {
      try {
        return make(dnnl::algorithm::convolution_winograd);
      } catch (const dnnl::error&) {
        // Not on this processor.
      }
    }
    return make(dnnl::algorithm::convolution_direct);
  }

public:
  explicit Descriptors(const Conv2d::Options& o)
      : o_(o), sizes_(o), b_(o.bias ? onednn::plain(sizes_.b) : memory::desc()) {}

  dnnl::convolution_forward::primitive_desc forward() const {
    return by(o_.algorithms.forward, [this](dnnl::algorithm algorithm) { return forward(algorithm); });
  }
  dnnl::convolution_backward_data::primitive_desc inputGradient() const {
    return by(o_.algorithms.inputGradient, [this](dnnl::algorithm algorithm) {
      return dnnl::convolution_backward_data::primitive_desc({algorithm, x_, w_, y_, strides_, gaps_, before_, after_},
                                                             onednn::attributes(), onednn::engine(),
                                                             forward(algorithm));
    });
  }
  dnnl::convolution_backward_weights::primitive_desc weightGradient() const {
    return by(o_.algorithms.weightGradient, [this](dnnl::algorithm algorithm) {
      return dnnl::convolution_backward_weights::primitive_desc(
          {algorithm, x_, w_, b_, y_, strides_, gaps_, before_, after_}, onednn::attributes(), onednn::engine(),
          forward(algorithm));
    });
  }

private:
  const Conv2d::Options& o_;
  const Sizes sizes_;
  const memory::desc x_ = onednn::anyLayout(sizes_.x), w_ = onednn::anyLayout(sizes_.w),
                     y_ = onednn::anyLayout(sizes_.y), b_;
  const memory::dims strides_ = {o_.strides.height, o_.strides.width};
  const memory::dims gaps_ = {o_.dilations.height - 1, o_.dilations.width - 1};
  const memory::dims before_ = {o_.pads.top, o_.pads.left}, after_ = {o_.pads.bottom, o_.pads.right};
};

/// dw [outputs, inputs, taps] of dw in blocks of 16 x 16 channels, outputs fastest. The library's copy takes four times
/// as long.
void copyFromBlocks(const float* blocks, std::int64_t outputs, std::int64_t inputs, std::int64_t taps, float* dw) {
  constexpr std::int64_t block = 16;
  for (std::int64_t o = 0; o < outputs; o += block)
    for (std::int64_t i = 0; i < inputs; i += block, blocks += block * block * taps)
      for (std::int64_t output = 0; output < block; ++output) {
        float* row = dw + ((o + output) * inputs + i) * taps;
        for (std::int64_t input = 0; input < block; ++input)
          for (std::int64_t tap = 0; tap < taps; ++tap) *row++ = blocks[(tap * block + input) * block + output];
      }
}

/// The gradients of the filter and the bias.
class WeightGradient {
public:
  WeightGradient() = default;
  WeightGradient(Setup& setup, const Conv2d::Options& o,
                 const dnnl::convolution_backward_weights::primitive_desc& descriptor,
                 const Operation::Argument& source, const Operation::Argument& result) {
    const Sizes sizes(o);
    const memory::desc made = descriptor.diff_weights_desc();
    const bool copies =
        o.filterLanes == 1 && o.groups == 1 && fitsFilterBlocks(o.filter) && made == givenFilter(sizes.w, filterBlock);
    const Operation::Argument filter = {DNNL_ARG_DIFF_WEIGHTS, copies ? made : givenFilter(sizes.w, o.filterLanes)},
                              bias = {DNNL_ARG_DIFF_BIAS, onednn::plain(sizes.b)};
    primitive_ = o.bias ? Operation(setup, descriptor, {source, result}, {filter, bias})
                        : Operation(setup, descriptor, {source, result}, {filter});
    if (!copies) return;
    outputs_ = o.filter.dims[0], inputs_ = o.filter.dims[1], taps_ = o.filter.dims[2] * o.filter.dims[3];
    blocks_ = primitive_.workspaceBytes();
    setup.needWorkspace(blocks_ + made.get_size());
  }

  /// `db` is null where there is no bias.
  void run(Stream& q, const float* x, const float* dy, float* dw, float* db) const {
    float* const made = taps_ > 0 ? reinterpret_cast<float*>(q.workspace() + blocks_) : dw;
    if (db)
      primitive_.run(q, {x, dy}, {made, db});
    else
      primitive_.run(q, {x, dy}, {made});
    if (taps_ > 0) copyFromBlocks(made, outputs_, inputs_, taps_, dw);
  }

private:
  Operation primitive_;
  std::int64_t outputs_ = 0, inputs_ = 0, taps_ = 0; ///< of a filter that is copied out of blocks; else no taps
  std::size_t blocks_ = 0;                           ///< where they are in the workspace
};

/// The gradient of the input. Throws dnnl::error where there is none.
Operation inputGradientOf(Setup& setup, const Conv2d::Options& o) {
  const Sizes sizes(o);
  return {setup,
          Descriptors(o).inputGradient(),
          {{DNNL_ARG_DIFF_DST, given(sizes.y, o.outputLanes)}, {DNNL_ARG_WEIGHTS, givenFilter(sizes.w, o.filterLanes)}},
          {{DNNL_ARG_DIFF_SRC, given(sizes.x, o.inputLanes)}}};
}

/// In how many portions, of as many samples each, an input gradient is computed that is added to another: so many that
/// a portion is still in a cache when it is added.
std::int64_t portionsOf(const Conv2d::Options& o) {
  constexpr std::int64_t most = 1 << 20; // floats
  const std::int64_t samples = o.input.dims[0];
  for (std::int64_t portions = 1; portions < samples; ++portions)
    if (samples % portions == 0 && o.input.elements() / portions <= most) return portions;
  return std::max<std::int64_t>(samples, 1);
}

PDCRT_VECTORIZED void add(std::int64_t count, const float* a, const float* b, float* sum) {
  for (std::int64_t i = 0; i < count; ++i) sum[i] = a[i] + b[i];
}

PDCRT_VECTORIZED void rectify(std::int64_t count, float* y) {
  for (std::int64_t i = 0; i < count; ++i) y[i] = y[i] < 0 ? 0.0f : y[i];
}

/// What follows `bytes` in a workspace begins where a cache line does.
std::size_t inLines(std::size_t bytes) {
  constexpr std::size_t line = 64;
  return (bytes + line - 1) / line * line;
}

enum class By { library, tiles, winograd };

/// Who computes a direction; `takesTiles`: whether tiles can.
By whoComputes(const Conv2d::Options& o, Conv2d::Algorithm algorithm, bool takesTiles) {
  using Algorithm = Conv2d::Algorithm;
  const bool available = TiledConvolution::available();
  switch (algorithm) {
  case Algorithm::automatic:
    if (available && Conv2d::takesTiledWinograd(o) && winogradPays(o)) return By::winograd;
    return takesTiles && TiledConvolution::preferred() ? By::tiles : By::library;
  case Algorithm::tiled: return available ? By::tiles : By::library;
  case Algorithm::tiledWinograd: return available ? By::winograd : By::library;
  default: return By::library;
  }
}

} // namespace

struct Conv2d::Impl {
  bool bias;
  std::int64_t rectified;       ///< elements of y of which the negative ones become 0, where the library leaves them
  std::int64_t portions = 1;    ///< of the minibatch, in which the library's input gradients are added to others
  std::int64_t inputs, outputs; ///< elements of x and of y in a portion
  By forwardBy, inputGradientBy, weightGradientBy;
  std::optional<TiledConvolution> tiles;
  std::optional<WinogradConvolution> winograd;
  Operation forward, inputGradient, inputGradientOfPortion;
  std::optional<MaxPool2d> pool; ///< where it is a pass of its own
  std::size_t pooledFrom = 0;    ///< where, in the workspace, that pass reads
  std::size_t apart = 0; ///< where, in the workspace, the library's input gradient is before it is added to something
  WeightGradient weightGradient;
  std::vector<float> unwantedBiasGradient; ///< the primitive writes one in any case
};

Conv2d::Conv2d(Setup& setup, const Options& o) : impl_(std::make_unique<Impl>()) {
  check(o);
  impl_->bias = o.bias;
  impl_->rectified = o.relu && !o.pooled ? outputShape(o).elements() : 0;
  if (o.bias) impl_->unwantedBiasGradient.resize(static_cast<std::size_t>(o.filter.dims[0]));
  const Sizes sizes(o);
  const memory::desc x = given(sizes.x, o.inputLanes), w = givenFilter(sizes.w, o.filterLanes),
                     b = onednn::plain(sizes.b), y = given(sizes.y, o.outputLanes);
  const Operation::Argument source = {DNNL_ARG_SRC, x}, filter = {DNNL_ARG_WEIGHTS, w}, bias = {DNNL_ARG_BIAS, b},
                            result = {DNNL_ARG_DST, y}, dResult = {DNNL_ARG_DIFF_DST, y};
  const By forward = impl_->forwardBy = whoComputes(o, o.algorithms.forward, takesTiles(o)),
           inputGradient = impl_->inputGradientBy = whoComputes(o, o.algorithms.inputGradient, takesTilesBackward(o)),
           weightGradient = impl_->weightGradientBy = whoComputes(o, o.algorithms.weightGradient, takesTiles(o));
  if (takesTiles(o)) impl_->tiles.emplace(o);
  if (takesTiledWinograd(o)) impl_->winograd.emplace(o);
  try {
    const Descriptors d(o);
    {
      const Setup::Method called(setup, "forward");
      switch (forward) {
      case By::tiles: setup.needWorkspace(impl_->tiles->forwardWorkspace()); break;
      case By::winograd: setup.needWorkspace(impl_->winograd->forwardWorkspace()); break;
      case By::library:
        impl_->forward = o.bias ? Operation(setup, d.forward(), {source, filter, bias}, {result})
                                : Operation(setup, d.forward(), {source, filter}, {result});
      }
    }
    if (o.pooled) {
      const Setup::Method called(setup, "forwardPooled");
      switch (forward) {
      case By::winograd: setup.needWorkspace(impl_->winograd->forwardWorkspace()); break;
      case By::tiles:
      case By::library:
        impl_->pool.emplace(setup, MaxPool2d::Options{.input = outputShape(o),
                                                      .output = pooledShape(o),
                                                      .kernel = {2, 2},
                                                      .strides = {2, 2},
                                                      .relu = o.relu,
                                                      .lanes = o.outputLanes});
        impl_->pooledFrom =
            inLines(forward == By::tiles ? impl_->tiles->forwardWorkspace() : impl_->forward.workspaceBytes());
        setup.needWorkspace(impl_->pooledFrom + static_cast<std::size_t>(outputShape(o).elements()) * sizeof(float));
      }
    }
    {
      const Setup::Method called(setup, "inputGradient");
      switch (inputGradient) {
      case By::tiles: setup.needWorkspace(impl_->tiles->inputGradientWorkspace()); break;
      case By::winograd: setup.needWorkspace(impl_->winograd->inputGradientWorkspace()); break;
      case By::library: impl_->inputGradient = inputGradientOf(setup, o);
      }
    }
    {
      const Setup::Method called(setup, "addedInputGradient");
      switch (inputGradient) {
      case By::tiles: setup.needWorkspace(impl_->tiles->inputGradientWorkspace()); break;
      case By::winograd: setup.needWorkspace(impl_->winograd->inputGradientWorkspace()); break;
      case By::library:
        Options portion = o;
        impl_->portions = portionsOf(o);
        portion.input.dims[0] /= impl_->portions;
        impl_->inputs = portion.input.elements(), impl_->outputs = outputShape(portion).elements();
        impl_->inputGradientOfPortion = inputGradientOf(setup, portion);
        impl_->apart = inLines(impl_->inputGradientOfPortion.workspaceBytes());
        setup.needWorkspace(impl_->apart + static_cast<std::size_t>(impl_->inputs) * sizeof(float));
      }
    }
    {
      const Setup::Method called(setup, "weightGradient");
      switch (weightGradient) {
      case By::tiles: setup.needWorkspace(impl_->tiles->weightGradientWorkspace()); break;
      case By::winograd: setup.needWorkspace(impl_->winograd->weightGradientWorkspace()); break;
      case By::library: impl_->weightGradient = WeightGradient(setup, o, d.weightGradient(), source, dResult);
      }
    }
  } catch (const dnnl::error& error) {
    refuseConvolution(o, std::string("oneDNN ") + error.what());
  }
}

Conv2d::~Conv2d() = default;
Conv2d::Conv2d(Conv2d&&) noexcept = default;
Conv2d& Conv2d::operator=(Conv2d&&) noexcept = default;

void Conv2d::forward(Stream& q, View<const float> x, View<const float> w, View<const float> b, View<float> y) const {
  switch (impl_->forwardBy) {
  case By::tiles: return impl_->tiles->forward(q.workspace(), x.data, w.data, b.data, y.data);
  case By::winograd: return impl_->winograd->forward(q.workspace(), x.data, w.data, b.data, y.data);
  case By::library:
    if (impl_->bias)
      impl_->forward.run(q, {x.data, w.data, b.data}, {y.data});
    else
      impl_->forward.run(q, {x.data, w.data}, {y.data});
    // The library's own ReLU makes 0 of NaN.
    parts::runRanges(parts::countOf(impl_->rectified, impl_->rectified), impl_->rectified,
                     [&](std::int64_t begin, std::int64_t end) { rectify(end - begin, y.data + begin); });
  }
}

void Conv2d::forwardPooled(Stream& q, View<const float> x, View<const float> w, View<const float> b, View<float> maxima,
                           View<std::int32_t> index) const {
  if (impl_->forwardBy == By::winograd)
    return impl_->winograd->forwardPooled(q.workspace(), x.data, w.data, b.data, maxima.data, index.data);
  const View<float> y(reinterpret_cast<float*>(q.workspace() + impl_->pooledFrom));
  forward(q, x, w, b, y);
  impl_->pool->forward(q, View<const float>(y.data), maxima, index);
}

void Conv2d::inputGradient(Stream& q, View<const float> dy, View<const float> w, View<float> dx) const {
  switch (impl_->inputGradientBy) {
  case By::tiles: return impl_->tiles->inputGradient(q.workspace(), dy.data, w.data, nullptr, dx.data);
  case By::winograd: return impl_->winograd->inputGradient(q.workspace(), dy.data, w.data, nullptr, dx.data);
  case By::library: impl_->inputGradient.run(q, {dy.data, w.data}, {dx.data});
  }
}

void Conv2d::addedInputGradient(Stream& q, View<const float> dy, View<const float> w, View<const float> added,
                                View<float> dx) const {
  switch (impl_->inputGradientBy) {
  case By::tiles: return impl_->tiles->inputGradient(q.workspace(), dy.data, w.data, added.data, dx.data);
  case By::winograd: return impl_->winograd->inputGradient(q.workspace(), dy.data, w.data, added.data, dx.data);
  case By::library:
    // Its convolutions backward take no post-op.
    float* const made = reinterpret_cast<float*>(q.workspace() + impl_->apart);
    for (std::int64_t portion = 0; portion < impl_->portions; ++portion) {
      const std::int64_t at = portion * impl_->inputs;
      impl_->inputGradientOfPortion.run(q, {dy.data + portion * impl_->outputs, w.data}, {made});
      parts::runRanges(parts::countOf(impl_->inputs, impl_->inputs), impl_->inputs,
                       [&](std::int64_t begin, std::int64_t end) {
                         add(end - begin, added.data + at + begin, made + begin, dx.data + at + begin);
                       });
    }
  }
}

void Conv2d::weightGradient(Stream& q, View<const float> x, View<const float> dy, View<float> dw,
                            View<float> db) const {
  float* const wanted = impl_->bias ? db.data : nullptr;
  switch (impl_->weightGradientBy) {
  case By::tiles: return impl_->tiles->weightGradient(q.workspace(), x.data, dy.data, dw.data, wanted);
  case By::winograd: return impl_->winograd->weightGradient(q.workspace(), x.data, dy.data, dw.data, wanted);
  case By::library:
    float* const bias = db ? db.data : impl_->unwantedBiasGradient.data();
    impl_->weightGradient.run(q, x.data, dy.data, dw.data, impl_->bias ? bias : nullptr);
  }
}

} // namespace pdcrt
