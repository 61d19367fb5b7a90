// Two-dimensional convolution (cross-correlation, as ONNX Conv) and its gradients, over oneDNN or cuDNN.
#pragma once

#include "pdcrt/Setup.h"
#include "pdcrt/Shape.h"
#include "pdcrt/Stream.h"
#include "pdcrt/View.h"
#include "pdcrt/kernels/Window.h"

#include <cstdint>
#include <memory>
#include <string>

namespace pdcrt {

/// y[n,o,·] = sum over c of x[n,c,·] ⋆ w[o,c,·] (+ b[o]). Filters are plain OIHW or in blocks; the
/// layouts inside are the library's. No result may overlap an operand. One object serves one stream at a time.
/// Two things inside of oneDNN allocate in a call all the same: a map of a few hundred bytes and, where groups or
/// dilations leave it only its GEMM, packing buffers.
class Conv2d {
public:
  /// Winograd's F(4x4, 3x3) multiplies 2.25 to 4 times less than the definition and rounds four times as much.
  /// Direct and winograd are oneDNN's, tiled and tiledWinograd the CPU kernels' own; those behind them are cuDNN's:
  /// products of matrices of which one is made of the input on the way (implicit), with indices that are computed
  /// before (precomputed), or is written down (gemm); Fourier transforms, of the whole or of tiles; Winograd's with its
  /// transforms apart; and a product over copies of the operands with channels last, as tensor cores want them.
  enum class Algorithm {
    automatic,
    direct,
    winograd,
    tiled,
    tiledWinograd,
    implicitGemm,
    precomputedGemm,
    gemm,
    fft,
    tiledFft,
    winogradApart,
    channelsLast
  };
  static constexpr const char* algorithmNames[] = {"automatic",     "direct",       "winograd",        "tiled",
                                                   "tiledWinograd", "implicitGemm", "precomputedGemm", "gemm",
                                                   "fft",           "tiledFft",     "winogradApart",   "channelsLast"};
  /// How each result is computed. Automatic: on the CPU by Winograd's algorithm where a rule of thumb says that it is
  /// faster, by the CPU kernels' own where the processor has AVX2 and no AVX-512; under CUDA as the library recommends.
  struct Algorithms {
    Algorithm forward = Algorithm::automatic;
    Algorithm inputGradient = Algorithm::automatic;
    Algorithm weightGradient = Algorithm::automatic;
    std::int64_t workspace = 0; ///< bytes that they took where they were measured, under CUDA; 0: were not
    friend bool operator==(const Algorithms&, const Algorithms&) = default;
  };

  struct Options {
    Shape input;  ///< [N, C, H, W]
    Shape filter; ///< [O, C / groups, kernel height, kernel width]
    Dims2 strides = {1, 1};
    Pads2 pads = {};
    Dims2 dilations = {1, 1}; ///< 1: adjacent taps
    std::int64_t groups = 1;
    bool bias = false;
    bool relu = false;   ///< forward gives max(y, 0), forwardPooled counts values below 0 as 0
    bool pooled = false; ///< it is forwardPooled that is called, which may need more workspace
    /// Of x, dx and of y, dy: [N, C, H, W] is row-major [N, C / lanes, H, W, lanes], on the CPU with 1 or 16, under
    /// CUDA with 1 or C. What the algorithm wants otherwise is copied.
    std::int64_t inputLanes = 1, outputLanes = 1;
    /// Of w and dw: with 16, [O, I, H, W] is row-major [O / 16, I / 16, H, W, 16 of I, 16 of O] (pdcrt/FilterBlocks.h).
    std::int64_t filterLanes = 1;
    Element element = Element::f32; ///< of all operands and results; sums are in f32
    Algorithms algorithms = {};
  };

  /// A direction may need copies in other layouts that another does not: the input gradient of three channels has 8 or
  /// 16, and a first layer calls none.
  static constexpr bool workspaceByMethod = true;

  /// Whether Winograd's algorithm can compute it: filters of 3x3 with strides and dilations of 1, in one group.
  static bool takesWinograd(const Options& o) {
    return o.filter.dims[2] == 3 && o.filter.dims[3] == 3 && o.strides == Dims2{1, 1} && o.dilations == Dims2{1, 1} &&
           o.groups == 1;
  }

  /// Whether forward and weight gradient can be computed in tiles: layouts in blocks throughout, one group, adjacent
  /// taps, strides of 1 or 2; and whether the input's gradient can: pads smaller than the filter, those before the
  /// input by a stride at least, or none.
  static bool takesTiles(const Options& o) {
    return o.inputLanes == 16 && o.outputLanes == 16 && o.filterLanes == 16 && o.groups == 1 &&
           o.dilations == Dims2{1, 1} && o.strides.height <= 2 && o.strides.width <= 2;
  }
  static bool takesTilesBackward(const Options& o) {
    const std::int64_t height = o.filter.dims[2], width = o.filter.dims[3];
    const auto fits = [](std::int64_t before, std::int64_t after, std::int64_t kernel, std::int64_t stride) {
      return before <= (kernel > stride ? kernel - stride : 0) && after < kernel;
    };
    return takesTiles(o) && fits(o.pads.top, o.pads.bottom, height, o.strides.height) &&
           fits(o.pads.left, o.pads.right, width, o.strides.width);
  }

  static bool takesTiledWinograd(const Options& o) { return takesWinograd(o) && takesTilesBackward(o); }

  /// What profiles call a kernel with these sizes: "Conv2d{.input = {8, 64, 56, 56}, …}", as in a program, without
  /// bias, ReLU and algorithms.
  static std::string profileName(const Options& options);

  /// Shape of y: [N, O, H', W'], H' = floor((H + pads - dilation · (kernel - 1) - 1) / stride) + 1.
  static Shape outputShape(const Options& options);
  /// Shape of what forwardPooled gives.
  static Shape pooledShape(const Options& options) {
    const Shape y = outputShape(options);
    return {y.dims[0], y.dims[1], y.dims[2] / 2, y.dims[3] / 2};
  }

  /// Throws std::runtime_error, with the shapes, if they do not fit each other or an algorithm is asked for that cannot
  /// compute them.
  Conv2d(Setup& setup, const Options& options);
  ~Conv2d();
  Conv2d(Conv2d&&) noexcept;
  Conv2d& operator=(Conv2d&&) noexcept;

  /// `b` [O] is empty without Options::bias.
  void forward(Stream& q, View<const float> x, View<const float> w, View<const float> b, View<float> y) const;
  /// Maxima of y in windows of 2x2 that lie side by side, without a rest at the end of rows and planes, and where in
  /// its plane of y each is; both as MaxPool2d has them, with the bits that it would give. `index` may be empty.
  void forwardPooled(Stream& q, View<const float> x, View<const float> w, View<const float> b, View<float> maxima,
                     View<std::int32_t> index) const;
  void inputGradient(Stream& q, View<const float> dy, View<const float> w, View<float> dx) const;
  /// dx is `added` and the input gradient; it may be added's memory.
  void addedInputGradient(Stream& q, View<const float> dy, View<const float> w, View<const float> added,
                          View<float> dx) const;
  /// `db` [O] may be empty.
  void weightGradient(Stream& q, View<const float> x, View<const float> dy, View<float> dw, View<float> db) const;
  // In bfloat16 and float16, for CUDA.
  template <class T>
  void forward(Stream& q, OperandView<T> x, OperandView<T> w, OperandView<T> b, View<T> y) const;
  template <class T>
  void inputGradient(Stream& q, OperandView<T> dy, OperandView<T> w, View<T> dx) const;
  template <class T>
  void addedInputGradient(Stream& q, OperandView<T> dy, OperandView<T> w, OperandView<T> added, View<T> dx) const;
  template <class T>
  void weightGradient(Stream& q, OperandView<T> x, OperandView<T> dy, View<T> dw, View<T> db) const;

private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

} // namespace pdcrt
