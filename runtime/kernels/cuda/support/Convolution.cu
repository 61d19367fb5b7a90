// See Convolution.h. Sums are in f32; without TF32, unless it is allowed. cuDNN pads both sides alike.
#include "Convolution.h"

#include "pdcrt/CudaWorkspace.h"

namespace pdcrt::cuda {
namespace {

cudnnDataType_t typeOf(Element element) {
  return element == Element::bf16 ? CUDNN_DATA_BFLOAT16 : element == Element::f16 ? CUDNN_DATA_HALF : CUDNN_DATA_FLOAT;
}

cudnnTensorDescriptor_t tensorOf(const Shape& s, Element element, cudnnTensorFormat_t format) {
  cudnnTensorDescriptor_t descriptor = nullptr;
  PDCRT_CUDA(cudnnCreateTensorDescriptor(&descriptor));
  PDCRT_CUDA(cudnnSetTensor4dDescriptor(descriptor, format, typeOf(element), static_cast<int>(s.dims[0]),
                                        static_cast<int>(s.dims[1]), static_cast<int>(s.dims[2]),
                                        static_cast<int>(s.dims[3])));
  return descriptor;
}

/// A NaN stays one.
cudnnActivationDescriptor_t activationOf(cudnnActivationMode_t mode) {
  cudnnActivationDescriptor_t descriptor = nullptr;
  PDCRT_CUDA(cudnnCreateActivationDescriptor(&descriptor));
  PDCRT_CUDA(cudnnSetActivationDescriptor(descriptor, mode, CUDNN_PROPAGATE_NAN, 0));
  return descriptor;
}

template <class Performance>
std::vector<Way> waysOf(const Performance* found, int count) {
  std::vector<Way> ways;
  for (int i = 0; i < count; ++i)
    if (found[i].status == CUDNN_STATUS_SUCCESS && found[i].determinism == CUDNN_DETERMINISTIC)
      ways.push_back({.number = found[i].algo, .bytes = found[i].memory});
  return ways;
}

using Algorithm = Conv2d::Algorithm;

/// What the library calls our algorithms; -1: it has none for the method.
struct Names {
  Algorithm algorithm;
  int numbers[3];
};
constexpr Names names[] = {
    {Algorithm::winograd, {CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD, CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD, -1}},
    {Algorithm::implicitGemm,
     {CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, CUDNN_CONVOLUTION_BWD_DATA_ALGO_1,
      CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1}},
    {Algorithm::precomputedGemm, {CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, -1, -1}},
    {Algorithm::gemm, {CUDNN_CONVOLUTION_FWD_ALGO_GEMM, -1, -1}},
    {Algorithm::fft,
     {CUDNN_CONVOLUTION_FWD_ALGO_FFT, CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT}},
    {Algorithm::tiledFft,
     {CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING, CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT_TILING,
      CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT_TILING}},
    {Algorithm::winogradApart,
     {CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED, CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED,
      CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD_NONFUSED}},
    {Algorithm::channelsLast,
     {CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, CUDNN_CONVOLUTION_BWD_DATA_ALGO_1,
      CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1}},
};

constexpr float one = 1, zero = 0;

} // namespace

std::optional<int> numberOf(const Conv2d::Options& o, Method method, Algorithm algorithm) {
  if (algorithm == Algorithm::winograd && !Conv2d::takesWinograd(o)) return std::nullopt;
  for (const Names& entry : names)
    if (entry.algorithm == algorithm && entry.numbers[static_cast<int>(method)] >= 0)
      return entry.numbers[static_cast<int>(method)];
  return std::nullopt;
}

int standardNumber(Method method) {
  return *numberOf({}, method, Algorithm::implicitGemm);
}

LibraryConvolution::LibraryConvolution(const Conv2d::Options& o, cudnnTensorFormat_t format) {
  const bool padded = padsDiffer(o);
  handle_ = dnn();
  x_ = tensorOf(padded ? paddedInput(o) : o.input, o.element, format);
  y_ = tensorOf(Conv2d::outputShape(o), o.element, format);
  PDCRT_CUDA(cudnnCreateFilterDescriptor(&w_));
  PDCRT_CUDA(cudnnSetFilter4dDescriptor(w_, typeOf(o.element), format, static_cast<int>(o.filter.dims[0]),
                                        static_cast<int>(o.filter.dims[1]), static_cast<int>(o.filter.dims[2]),
                                        static_cast<int>(o.filter.dims[3])));
  PDCRT_CUDA(cudnnCreateConvolutionDescriptor(&convolution_));
  PDCRT_CUDA(cudnnSetConvolution2dDescriptor(
      convolution_, padded ? 0 : static_cast<int>(o.pads.top), padded ? 0 : static_cast<int>(o.pads.left),
      static_cast<int>(o.strides.height), static_cast<int>(o.strides.width), static_cast<int>(o.dilations.height),
      static_cast<int>(o.dilations.width), CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
  PDCRT_CUDA(cudnnSetConvolutionGroupCount(convolution_, static_cast<int>(o.groups)));
  // cuDNN's standard is TF32, which FMA_MATH rules out. What is of 16 bits anyway loses nothing.
  const bool tensorCores = tf32 || o.element != Element::f32;
  PDCRT_CUDA(cudnnSetConvolutionMathType(convolution_, tensorCores ? CUDNN_TENSOR_OP_MATH : CUDNN_FMA_MATH));
  bias_ = tensorOf({1, o.filter.dims[0], 1, 1}, o.element, format);
  identity_ = activationOf(CUDNN_ACTIVATION_IDENTITY);
  relu_ = activationOf(CUDNN_ACTIVATION_RELU);
}

LibraryConvolution::~LibraryConvolution() {
  if (x_) cudnnDestroyTensorDescriptor(x_);
  if (y_) cudnnDestroyTensorDescriptor(y_);
  if (w_) cudnnDestroyFilterDescriptor(w_);
  if (convolution_) cudnnDestroyConvolutionDescriptor(convolution_);
  if (bias_) cudnnDestroyTensorDescriptor(bias_);
  for (cudnnActivationDescriptor_t activation : {identity_, relu_})
    if (activation) cudnnDestroyActivationDescriptor(activation);
}

void LibraryConvolution::computeExactly() {
  PDCRT_CUDA(cudnnSetConvolutionMathType(convolution_, CUDNN_FMA_MATH));
}

std::vector<Way> LibraryConvolution::recommended(Method method) const {
  // The library tells of an algorithm twice where it can also compute on tensor cores.
  int count = 0;
  switch (method) {
  case Method::forward: {
    constexpr int most = 2 * CUDNN_CONVOLUTION_FWD_ALGO_COUNT;
    cudnnConvolutionFwdAlgoPerf_t found[most];
    PDCRT_CUDA(cudnnGetConvolutionForwardAlgorithm_v7(handle_, x_, w_, convolution_, y_, most, &count, found));
    return waysOf(found, count);
  }
  case Method::inputGradient: {
    constexpr int most = 2 * CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT;
    cudnnConvolutionBwdDataAlgoPerf_t found[most];
    PDCRT_CUDA(cudnnGetConvolutionBackwardDataAlgorithm_v7(handle_, w_, y_, convolution_, x_, most, &count, found));
    return waysOf(found, count);
  }
  case Method::weightGradient: {
    constexpr int most = 2 * CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT;
    cudnnConvolutionBwdFilterAlgoPerf_t found[most];
    PDCRT_CUDA(cudnnGetConvolutionBackwardFilterAlgorithm_v7(handle_, x_, y_, convolution_, w_, most, &count, found));
    return waysOf(found, count);
  }
  }
  return {};
}

std::optional<std::size_t> LibraryConvolution::bytesOf(Method method, int number) const {
  std::size_t bytes = 0;
  cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
  switch (method) {
  case Method::forward:
    status = cudnnGetConvolutionForwardWorkspaceSize(handle_, x_, w_, convolution_, y_,
                                                     static_cast<cudnnConvolutionFwdAlgo_t>(number), &bytes);
    break;
  case Method::inputGradient:
    status = cudnnGetConvolutionBackwardDataWorkspaceSize(handle_, w_, y_, convolution_, x_,
                                                          static_cast<cudnnConvolutionBwdDataAlgo_t>(number), &bytes);
    break;
  case Method::weightGradient:
    status = cudnnGetConvolutionBackwardFilterWorkspaceSize(
        handle_, x_, y_, convolution_, w_, static_cast<cudnnConvolutionBwdFilterAlgo_t>(number), &bytes);
    break;
  }
  return status == CUDNN_STATUS_SUCCESS ? std::optional(bytes) : std::nullopt;
}

void LibraryConvolution::run(Stream& q, Method method, int number, const void* first, const void* second, bool adds,
                             void* result, std::byte* workspace, std::size_t bytes) const {
  const float* const before = adds ? &one : &zero;
  PDCRT_CUDA(cudnnSetStream(handle_, streamOf(q)));
  switch (method) {
  case Method::forward:
    PDCRT_CUDA(cudnnConvolutionForward(handle_, &one, x_, first, w_, second, convolution_,
                                       static_cast<cudnnConvolutionFwdAlgo_t>(number), workspace, bytes, before, y_,
                                       result));
    return;
  case Method::inputGradient:
    PDCRT_CUDA(cudnnConvolutionBackwardData(handle_, &one, w_, first, y_, second, convolution_,
                                            static_cast<cudnnConvolutionBwdDataAlgo_t>(number), workspace, bytes,
                                            before, x_, result));
    return;
  case Method::weightGradient:
    PDCRT_CUDA(cudnnConvolutionBackwardFilter(handle_, &one, x_, first, y_, second, convolution_,
                                              static_cast<cudnnConvolutionBwdFilterAlgo_t>(number), workspace, bytes,
                                              before, w_, result));
    return;
  }
}

bool LibraryConvolution::runFinished(Stream& q, int number, const void* x, const void* w, const void* bias, bool relu,
                                     void* y, std::byte* workspace, std::size_t bytes) const {
  // The one algorithm that does without an activation, too.
  if (number != CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM) return false;
  PDCRT_CUDA(cudnnSetStream(handle_, streamOf(q)));
  const cudnnStatus_t status = cudnnConvolutionBiasActivationForward(
      handle_, &one, x_, x, w_, w, convolution_, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, workspace, bytes,
      &zero, y_, y, bias_, bias, relu ? relu_ : identity_, y_, y);
  if (status == CUDNN_STATUS_NOT_SUPPORTED) return false;
  check(status, "cudnnConvolutionBiasActivationForward");
  return true;
}

} // namespace pdcrt::cuda
