// Conv2d over cuDNN. Algorithms are chosen when the kernel is constructed, among those that give the same bits in every
// run and need no more workspace than was planned. Sums are in f32; without TF32. cuDNN pads both sides alike: where
// the model does not, a padded copy of the input goes through the workspace.
#include "pdcrt/kernels/Conv2d.h"

#include "Libraries.h"
#include "Product.h"
#include "Shapes.h"
#include "pdcrt/kernels/Pad.h"
#include "pdcrt/kernels/Reduce.h"

namespace pdcrt {
namespace {

/// Output size of one axis; 0 or less: the filter does not fit.
std::int64_t outputSize(std::int64_t input, std::int64_t pads, std::int64_t kernel, std::int64_t stride,
                        std::int64_t dilation) {
  const std::int64_t room = input + pads - dilation * (kernel - 1) - 1;
  return room < 0 ? 0 : room / stride + 1;
}

void checkOptions(const Conv2d::Options& o) {
  const auto refuse = [&](const std::string& why) {
    throw std::runtime_error("convolution of " + toString(o.input) + " with filter " + toString(o.filter) + ": " + why);
  };
  if (o.input.rank != 4 || o.filter.rank != 4) refuse("both need 4 dimensions");
  if (o.strides.height < 1 || o.strides.width < 1 || o.dilations.height < 1 || o.dilations.width < 1)
    refuse("strides and dilations must be positive");
  if (o.groups < 1 || o.filter.dims[1] * o.groups != o.input.dims[1])
    refuse("the input has " + std::to_string(o.input.dims[1]) + " channels, the filter takes " +
           std::to_string(o.filter.dims[1]) + " in each of " + std::to_string(o.groups) + " groups");
  if (o.filter.dims[0] % o.groups)
    refuse(std::to_string(o.filter.dims[0]) + " output channels in " + std::to_string(o.groups) + " groups");
  const Shape output = Conv2d::outputShape(o);
  if (output.dims[2] < 1 || output.dims[3] < 1) refuse("the filter is larger than the padded input");
}

cudnnDataType_t typeOf(Element element) {
  return element == Element::bf16 ? CUDNN_DATA_BFLOAT16 : element == Element::f16 ? CUDNN_DATA_HALF : CUDNN_DATA_FLOAT;
}

cudnnTensorDescriptor_t tensorOf(const Shape& s, Element element) {
  cudnnTensorDescriptor_t descriptor = nullptr;
  PDCRT_CUDA(cudnnCreateTensorDescriptor(&descriptor));
  PDCRT_CUDA(cudnnSetTensor4dDescriptor(descriptor, CUDNN_TENSOR_NCHW, typeOf(element), static_cast<int>(s.dims[0]),
                                        static_cast<int>(s.dims[1]), static_cast<int>(s.dims[2]),
                                        static_cast<int>(s.dims[3])));
  return descriptor;
}

/// The first algorithm that the library recommends and that keeps the rules; else `standard`, which always exists.
template <class Performance, class Algorithm>
Algorithm choose(const Performance* found, int count, std::size_t workspaceBytes, Algorithm standard) {
  for (int i = 0; i < count; ++i)
    if (found[i].status == CUDNN_STATUS_SUCCESS && found[i].determinism == CUDNN_DETERMINISTIC &&
        found[i].memory <= workspaceBytes)
      return found[i].algo;
  return standard;
}

template <class T>
__global__ void addBias(std::int64_t count, std::int64_t channels, std::int64_t inner, const T* b, T* y) {
  for (std::int64_t i = thread(); i < count; i += threads())
    y[i] = static_cast<T>(static_cast<float>(y[i]) + static_cast<float>(b[i / inner % channels]));
}

constexpr float one = 1, zero = 0;

} // namespace

Shape Conv2d::outputShape(const Options& o) {
  return {
      o.input.dims[0], o.filter.dims[0],
      outputSize(o.input.dims[2], o.pads.top + o.pads.bottom, o.filter.dims[2], o.strides.height, o.dilations.height),
      outputSize(o.input.dims[3], o.pads.left + o.pads.right, o.filter.dims[3], o.strides.width, o.dilations.width)};
}

struct Conv2d::Impl {
  Options options;
  Shape output;
  cudnnHandle_t handle = nullptr;
  cudnnTensorDescriptor_t x = nullptr, y = nullptr;
  cudnnFilterDescriptor_t w = nullptr;
  cudnnConvolutionDescriptor_t convolution = nullptr;
  cudnnConvolutionFwdAlgo_t forward = {};
  cudnnConvolutionBwdDataAlgo_t inputGradient = {};
  cudnnConvolutionBwdFilterAlgo_t weightGradient = {};
  std::size_t forwardBytes = 0, inputGradientBytes = 0, weightGradientBytes = 0;
  std::unique_ptr<Pad> pad; ///< where both sides differ
  std::size_t padded = 0;   ///< bytes of the padded copy, at the beginning of the workspace
  std::unique_ptr<Reduce> biasGradient;

  ~Impl() {
    if (x) cudnnDestroyTensorDescriptor(x);
    if (y) cudnnDestroyTensorDescriptor(y);
    if (w) cudnnDestroyFilterDescriptor(w);
    if (convolution) cudnnDestroyConvolutionDescriptor(convolution);
  }

  template <class T>
  T* copyOf(Stream& q) const {
    return reinterpret_cast<T*>(cuda::alignedWorkspace(q));
  }
  void* workspace(Stream& q) const { return cuda::alignedWorkspace(q) + padded; }
  void attach(Stream& q) const { PDCRT_CUDA(cudnnSetStream(handle, cuda::streamOf(q))); }

  /// The input as cuDNN wants it.
  template <class T>
  const T* input(Stream& q, View<const T> from) const {
    if (!pad) return from.data;
    pad->forward(q, from, View<T>(copyOf<T>(q)));
    return copyOf<T>(q);
  }

  void describe(const Options& o);
  void chooseAlgorithms();
};

void Conv2d::Impl::describe(const Options& o) {
  options = o;
  output = outputShape(o);
  handle = cuda::dnn();
  x = tensorOf(pad ? cuda::paddedInput(o) : o.input, o.element);
  y = tensorOf(output, o.element);
  PDCRT_CUDA(cudnnCreateFilterDescriptor(&w));
  PDCRT_CUDA(cudnnSetFilter4dDescriptor(w, typeOf(o.element), CUDNN_TENSOR_NCHW, static_cast<int>(o.filter.dims[0]),
                                        static_cast<int>(o.filter.dims[1]), static_cast<int>(o.filter.dims[2]),
                                        static_cast<int>(o.filter.dims[3])));
  PDCRT_CUDA(cudnnCreateConvolutionDescriptor(&convolution));
  PDCRT_CUDA(cudnnSetConvolution2dDescriptor(
      convolution, pad ? 0 : static_cast<int>(o.pads.top), pad ? 0 : static_cast<int>(o.pads.left),
      static_cast<int>(o.strides.height), static_cast<int>(o.strides.width), static_cast<int>(o.dilations.height),
      static_cast<int>(o.dilations.width), CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
  PDCRT_CUDA(cudnnSetConvolutionGroupCount(convolution, static_cast<int>(o.groups)));
  // cuDNN's standard is TF32, which FMA_MATH rules out. What is of 16 bits anyway loses nothing.
  const bool tensorCores = cuda::tf32 || o.element != Element::f32;
  PDCRT_CUDA(cudnnSetConvolutionMathType(convolution, tensorCores ? CUDNN_TENSOR_OP_MATH : CUDNN_FMA_MATH));
}

void Conv2d::Impl::chooseAlgorithms() {
  const std::size_t limit = cuda::convolutionBytes(options);
  int count = 0;
  cudnnConvolutionFwdAlgoPerf_t forwards[CUDNN_CONVOLUTION_FWD_ALGO_COUNT];
  PDCRT_CUDA(cudnnGetConvolutionForwardAlgorithm_v7(handle, x, w, convolution, y, CUDNN_CONVOLUTION_FWD_ALGO_COUNT,
                                                    &count, forwards));
  forward = choose(forwards, count, limit, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM);
  PDCRT_CUDA(cudnnGetConvolutionForwardWorkspaceSize(handle, x, w, convolution, y, forward, &forwardBytes));
  cudnnConvolutionBwdDataAlgoPerf_t inputs[CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT];
  PDCRT_CUDA(cudnnGetConvolutionBackwardDataAlgorithm_v7(handle, w, y, convolution, x,
                                                         CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT, &count, inputs));
  inputGradient = choose(inputs, count, limit, CUDNN_CONVOLUTION_BWD_DATA_ALGO_1);
  PDCRT_CUDA(
      cudnnGetConvolutionBackwardDataWorkspaceSize(handle, w, y, convolution, x, inputGradient, &inputGradientBytes));
  cudnnConvolutionBwdFilterAlgoPerf_t weights[CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT];
  PDCRT_CUDA(cudnnGetConvolutionBackwardFilterAlgorithm_v7(handle, x, y, convolution, w,
                                                           CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT, &count, weights));
  weightGradient = choose(weights, count, limit, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1);
  PDCRT_CUDA(cudnnGetConvolutionBackwardFilterWorkspaceSize(handle, x, y, convolution, w, weightGradient,
                                                            &weightGradientBytes));
  if (const std::size_t most = std::max({forwardBytes, inputGradientBytes, weightGradientBytes}); most > limit)
    cuda::fail("convolution", "no algorithm that gives the same bits in every run takes so little workspace");
}

Conv2d::Conv2d(Setup& setup, const Options& o) : impl_(std::make_unique<Impl>()) {
  checkOptions(o);
  if (o.inputLanes != 1 || o.outputLanes != 1 || o.filterLanes != 1)
    throw std::runtime_error("convolution of " + toString(o.input) + ": blocks of channels are for the CPU");
  setup.needWorkspace(cuda::workspaceOf(o));
  if (cuda::padsDiffer(o)) {
    impl_->pad = std::make_unique<Pad>(setup, Pad::Options{.input = o.input,
                                                           .before = {0, 0, o.pads.top, o.pads.left},
                                                           .after = {0, 0, o.pads.bottom, o.pads.right}});
    impl_->padded = cuda::roundedUp(cuda::bytesOfFloats(cuda::paddedInput(o).elements()));
  }
  if (o.bias)
    impl_->biasGradient = std::make_unique<Reduce>(setup, Reduce::Options{.input = outputShape(o), .axes = {0, 2, 3}});
  impl_->describe(o);
  impl_->chooseAlgorithms();
}

Conv2d::~Conv2d() = default;
Conv2d::Conv2d(Conv2d&&) noexcept = default;
Conv2d& Conv2d::operator=(Conv2d&&) noexcept = default;

template <class T>
void Conv2d::forward(Stream& q, OperandView<T> x, OperandView<T> w, OperandView<T> b, View<T> y) const {
  const Impl& i = *impl_;
  i.attach(q);
  PDCRT_CUDA(cudnnConvolutionForward(i.handle, &one, i.x, i.input<T>(q, x), i.w, w.data, i.convolution, i.forward,
                                     i.workspace(q), i.forwardBytes, &zero, i.y, y.data));
  if (i.options.bias)
    launchLoop(q, "convolution, bias", addBias<T>, i.output.elements(), i.output.elements(), i.output.dims[1],
               i.output.dims[2] * i.output.dims[3], b.data, y.data);
}
void Conv2d::forward(Stream& q, View<const float> x, View<const float> w, View<const float> b, View<float> y) const {
  forward<float>(q, x, w, b, y);
}

template <class T>
void Conv2d::inputGradient(Stream& q, OperandView<T> dy, OperandView<T> w, View<T> dx) const {
  const Impl& i = *impl_;
  i.attach(q);
  T* const to = i.pad ? i.copyOf<T>(q) : dx.data;
  PDCRT_CUDA(cudnnConvolutionBackwardData(i.handle, &one, i.w, w.data, i.y, dy.data, i.convolution, i.inputGradient,
                                          i.workspace(q), i.inputGradientBytes, &zero, i.x, to));
  if (i.pad) i.pad->inputGradient(q, View<const T>(to), dx);
}
void Conv2d::inputGradient(Stream& q, View<const float> dy, View<const float> w, View<float> dx) const {
  inputGradient<float>(q, dy, w, dx);
}

template <class T>
void Conv2d::weightGradient(Stream& q, OperandView<T> x, OperandView<T> dy, View<T> dw, View<T> db) const {
  const Impl& i = *impl_;
  i.attach(q);
  PDCRT_CUDA(cudnnConvolutionBackwardFilter(i.handle, &one, i.x, i.input<T>(q, x), i.y, dy.data, i.convolution,
                                            i.weightGradient, i.workspace(q), i.weightGradientBytes, &zero, i.w,
                                            dw.data));
  if (i.options.bias && db) i.biasGradient->forward(q, dy, db);
}
void Conv2d::weightGradient(Stream& q, View<const float> x, View<const float> dy, View<float> dw,
                            View<float> db) const {
  weightGradient<float>(q, x, dy, dw, db);
}

#define PDCRT_CONV2D(T)                                                                                                \
  template void Conv2d::forward(Stream&, View<const T>, View<const T>, View<const T>, View<T>) const;                  \
  template void Conv2d::inputGradient(Stream&, View<const T>, View<const T>, View<T>) const;                           \
  template void Conv2d::weightGradient(Stream&, View<const T>, View<const T>, View<T>, View<T>) const;
PDCRT_CONV2D(bfloat16)
PDCRT_CONV2D(float16)
#undef PDCRT_CONV2D

} // namespace pdcrt
