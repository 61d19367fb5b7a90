// Convolutions by their definition, with cuDNN's conventions: algorithms that differ in time and workspace, of which
// some must not be taken.
#include "Numbers.h"
#include "StandIn.h"

#include <sys/mman.h>
#include <vector>

using namespace stand_in;

struct cudnnContext {
  cudaStream_t stream = nullptr;
};
/// Four dimensions, in one of two layouts.
struct Dimensions {
  cudnnDataType_t type;
  cudnnTensorFormat_t format;
  int n, c, h, w;
  long elements() const { return static_cast<long>(n) * c * h * w; }
  long at(int i, int channel, int row, int column) const {
    if (format == CUDNN_TENSOR_NCHW) return ((static_cast<long>(i) * c + channel) * h + row) * w + column;
    return ((static_cast<long>(i) * h + row) * w + column) * c + channel;
  }
};
struct cudnnTensorStruct : Dimensions {};
struct cudnnFilterStruct : Dimensions {}; ///< n: outputs
struct cudnnActivationStruct {
  cudnnActivationMode_t mode;
};
struct cudnnConvolutionStruct {
  int padH, padW, strideH, strideW, dilationH, dilationW, groups = 1;
  cudnnMathType_t math = CUDNN_DEFAULT_MATH; ///< which is TF32
};

const char* cudnnGetErrorString(cudnnStatus_t status) {
  return status == CUDNN_STATUS_SUCCESS ? "success" : "a bad parameter";
}
cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  *handle = new cudnnContext;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  delete handle;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* tensor) {
  *tensor = new cudnnTensorStruct{};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t tensor) {
  delete tensor;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t tensor, cudnnTensorFormat_t format,
                                         cudnnDataType_t type, int n, int c, int h, int w) {
  *tensor = {{type, format, n, c, h, w}};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t* filter) {
  *filter = new cudnnFilterStruct{};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t filter) {
  delete filter;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t filter, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int k, int c, int h, int w) {
  *filter = {{type, format, k, c, h, w}};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnCreateActivationDescriptor(cudnnActivationDescriptor_t* activation) {
  *activation = new cudnnActivationStruct{};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroyActivationDescriptor(cudnnActivationDescriptor_t activation) {
  delete activation;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetActivationDescriptor(cudnnActivationDescriptor_t activation, cudnnActivationMode_t mode,
                                           cudnnNanPropagation_t nan, double) {
  if (nan != CUDNN_PROPAGATE_NAN) misuse("an activation that hides what is no number");
  *activation = {mode};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t* convolution) {
  *convolution = new cudnnConvolutionStruct{};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t convolution) {
  delete convolution;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t convolution, int padHeight, int padWidth,
                                              int strideHeight, int strideWidth, int dilationHeight, int dilationWidth,
                                              cudnnConvolutionMode_t mode, cudnnDataType_t compute) {
  if (compute != CUDNN_DATA_FLOAT) misuse("a convolution whose sums are not in f32");
  if (mode != CUDNN_CROSS_CORRELATION) misuse("a convolution that turns its filter");
  *convolution = {padHeight, padWidth, strideHeight, strideWidth, dilationHeight, dilationWidth, 1};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t convolution, int groups) {
  convolution->groups = groups;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t convolution, cudnnMathType_t math) {
  convolution->math = math;
  return CUDNN_STATUS_SUCCESS;
}

namespace {

/// What the stand-in's library can do with an algorithm: microseconds and workspace, in both layouts. The numbers are
/// such that each direction has another fastest one, and that a filter of 3x3 has another than a strided one.
struct Ability {
  int algorithm;
  bool sameBits;
  int microseconds, microsecondsLast; ///< 0: not in this layout
  std::size_t bytes;
  bool onlyWinograds = false; ///< filters of 3x3 with strides and dilations of 1
};
constexpr std::size_t tooMuch = std::size_t{1} << 30; ///< workspace

// The recommended first; the very first must not be taken, because its sums have another order in every run.
const std::vector<Ability> forwardAbilities = {
    {CUDNN_CONVOLUTION_FWD_ALGO_DIRECT, false, 1, 0, 0},
    {CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, true, 5, 4, usedWorkspace},
    {CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, true, 8, 7, 0},
    {CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD, true, 3, 0, 2 * usedWorkspace, true},
    {CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED, true, 6, 0, 16 * usedWorkspace, true},
    {CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING, true, 2, 0, tooMuch},
};
const std::vector<Ability> inputGradientAbilities = {
    {CUDNN_CONVOLUTION_BWD_DATA_ALGO_0, false, 1, 0, 0},
    {CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, true, 6, 9, usedWorkspace},
    {CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD, true, 8, 0, 2 * usedWorkspace, true},
    {CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED, true, 5, 0, 16 * usedWorkspace, true},
    {CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT_TILING, true, 2, 0, tooMuch},
};
const std::vector<Ability> weightGradientAbilities = {
    {CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0, false, 1, 0, 0},
    {CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, true, 6, 1, usedWorkspace},
    {CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3, false, 1, 0, usedWorkspace},
    {CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD_NONFUSED, true, 8, 0, 16 * usedWorkspace, true},
};

int outputSize(int input, int pad, int kernel, int stride, int dilation) {
  return (input + 2 * pad - dilation * (kernel - 1) - 1) / stride + 1;
}

struct Shapes {
  cudnnTensorStruct x, y;
  cudnnFilterStruct w;
  cudnnConvolutionStruct c;

  Shapes(cudnnTensorDescriptor_t xDesc, cudnnFilterDescriptor_t wDesc, cudnnConvolutionDescriptor_t convolution,
         cudnnTensorDescriptor_t yDesc)
      : x(*xDesc), y(*yDesc), w(*wDesc), c(*convolution) {
    if (x.type != w.type || x.type != y.type) misuse("a convolution of two types");
    if (x.format != w.format || x.format != y.format) misuse("a convolution of two layouts");
    if (y.n != x.n || y.c != w.n || x.c != w.c * c.groups ||
        y.h != outputSize(x.h, c.padH, w.h, c.strideH, c.dilationH) ||
        y.w != outputSize(x.w, c.padW, w.w, c.strideW, c.dilationW))
      misuse("shapes of a convolution that do not fit");
  }

  Numbers result(const void* data) const { return numbers(x.type, data); }
  Numbers operand(const void* data) const { return rounding(result(data), c.math != CUDNN_FMA_MATH); }

  int microsecondsOf(const Ability& ability) const {
    const bool winograds = w.h == 3 && w.w == 3 && c.strideH == 1 && c.strideW == 1 && c.dilationH == 1 &&
                           c.dilationW == 1 && c.groups == 1;
    if (ability.onlyWinograds && !winograds) return 0;
    return x.format == CUDNN_TENSOR_NCHW ? ability.microseconds : ability.microsecondsLast;
  }
  /// Null: the library does not have it for these shapes in this layout.
  const Ability* find(const std::vector<Ability>& abilities, int algorithm) const {
    for (const Ability& ability : abilities)
      if (ability.algorithm == algorithm && microsecondsOf(ability) > 0) return &ability;
    return nullptr;
  }

  template <class Algorithm>
  cudnnStatus_t recommend(const std::vector<Ability>& abilities, int most, int* returned,
                          CudnnPerformance<Algorithm>* results) const {
    *returned = 0;
    for (const Ability& ability : abilities) {
      if (*returned == most) break;
      const int microseconds = microsecondsOf(ability);
      results[(*returned)++] = {static_cast<Algorithm>(ability.algorithm),
                                microseconds > 0 ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED,
                                1e-3f * static_cast<float>(microseconds),
                                ability.bytes,
                                ability.sameBits ? CUDNN_DETERMINISTIC : CUDNN_NON_DETERMINISTIC,
                                CUDNN_FMA_MATH};
    }
    return CUDNN_STATUS_SUCCESS;
  }
  cudnnStatus_t bytesOf(const std::vector<Ability>& abilities, int algorithm, std::size_t* bytes) const {
    const Ability* ability = find(abilities, algorithm);
    if (!ability) return CUDNN_STATUS_NOT_SUPPORTED;
    *bytes = ability->bytes;
    return CUDNN_STATUS_SUCCESS;
  }
  /// What a call takes.
  std::uint64_t checked(const std::vector<Ability>& abilities, int algorithm, std::size_t workspaceBytes) const {
    const Ability* ability = find(abilities, algorithm);
    if (!ability) misuse("an algorithm that cannot compute this convolution");
    if (!ability->sameBits) misuse("an algorithm with another order in every run");
    if (workspaceBytes < ability->bytes) misuse("an algorithm with too little workspace");
    return static_cast<std::uint64_t>(microsecondsOf(*ability));
  }

  /// Calls visit(element of x, of w, of y) for all products.
  template <class Visit>
  void forEach(Visit visit) const {
    const int perGroup = y.c / c.groups;
    for (int n = 0; n < y.n; ++n)
      for (int k = 0; k < y.c; ++k)
        for (int i = 0; i < y.h; ++i)
          for (int j = 0; j < y.w; ++j)
            for (int channel = 0; channel < w.c; ++channel)
              for (int r = 0; r < w.h; ++r)
                for (int s = 0; s < w.w; ++s) {
                  const int row = i * c.strideH - c.padH + r * c.dilationH,
                            column = j * c.strideW - c.padW + s * c.dilationW;
                  if (row < 0 || row >= x.h || column < 0 || column >= x.w) continue;
                  visit(x.at(n, k / perGroup * w.c + channel, row, column), w.at(k, channel, r, s), y.at(n, k, i, j));
                }
  }
};

/// What becomes of a sum before it is a result: nothing.
struct AsIs {
  double operator()(long, double sum) const { return sum; }
};

/// result = finish(alpha · sums + beta · result); `add` fills in the sums.
template <class Add, class Finish = AsIs>
cudnnStatus_t convolve(cudnnHandle_t handle, const void* alpha, const void* beta, long elements, void* workspace,
                       std::size_t workspaceBytes, std::uint64_t microseconds, Numbers to, Add add,
                       Finish finish = {}) {
  auto work = [=, alpha = *static_cast<const float*>(alpha), beta = *static_cast<const float*>(beta)] {
    scribble(workspace, workspaceBytes);
    // Not from malloc: tests watch it.
    const std::size_t bytes = static_cast<std::size_t>(elements) * sizeof(double);
    void* room = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED) misuse("no memory");
    auto* sums = static_cast<double*>(room);
    add(sums);
    for (long i = 0; i < elements; ++i) to.set(i, finish(i, alpha * sums[i] + (beta == 0 ? 0 : beta * to[i])));
    ::munmap(room, bytes);
  };
  if (stand_in::immediate(handle->stream))
    work();
  else
    stand_in::enqueue(handle->stream, [=] {
      work();
      stand_in::elapse(microseconds - 1);
    });
  return CUDNN_STATUS_SUCCESS;
}

int failing = -1;
bool finishes = true;
int finished = 0;

} // namespace

void stand_in::failForward(int algorithm) {
  failing = algorithm;
}
void stand_in::refuseFinishing(bool refuse) {
  finishes = !refuse;
}
int stand_in::finishedForwards() {
  return finished;
}

cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(cudnnHandle_t, cudnnTensorDescriptor_t x,
                                                     cudnnFilterDescriptor_t w,
                                                     cudnnConvolutionDescriptor_t convolution,
                                                     cudnnTensorDescriptor_t y, int most, int* returned,
                                                     cudnnConvolutionFwdAlgoPerf_t* results) {
  return Shapes(x, w, convolution, y).recommend(forwardAbilities, most, returned, results);
}
cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(cudnnHandle_t, cudnnFilterDescriptor_t w,
                                                          cudnnTensorDescriptor_t dy,
                                                          cudnnConvolutionDescriptor_t convolution,
                                                          cudnnTensorDescriptor_t dx, int most, int* returned,
                                                          cudnnConvolutionBwdDataAlgoPerf_t* results) {
  return Shapes(dx, w, convolution, dy).recommend(inputGradientAbilities, most, returned, results);
}
cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(cudnnHandle_t, cudnnTensorDescriptor_t x,
                                                            cudnnTensorDescriptor_t dy,
                                                            cudnnConvolutionDescriptor_t convolution,
                                                            cudnnFilterDescriptor_t dw, int most, int* returned,
                                                            cudnnConvolutionBwdFilterAlgoPerf_t* results) {
  return Shapes(x, dw, convolution, dy).recommend(weightGradientAbilities, most, returned, results);
}
cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(cudnnHandle_t, cudnnTensorDescriptor_t x,
                                                      cudnnFilterDescriptor_t w,
                                                      cudnnConvolutionDescriptor_t convolution,
                                                      cudnnTensorDescriptor_t y, cudnnConvolutionFwdAlgo_t algorithm,
                                                      std::size_t* bytes) {
  return Shapes(x, w, convolution, y).bytesOf(forwardAbilities, algorithm, bytes);
}
cudnnStatus_t
cudnnGetConvolutionBackwardDataWorkspaceSize(cudnnHandle_t, cudnnFilterDescriptor_t w, cudnnTensorDescriptor_t dy,
                                             cudnnConvolutionDescriptor_t convolution, cudnnTensorDescriptor_t dx,
                                             cudnnConvolutionBwdDataAlgo_t algorithm, std::size_t* bytes) {
  return Shapes(dx, w, convolution, dy).bytesOf(inputGradientAbilities, algorithm, bytes);
}
cudnnStatus_t
cudnnGetConvolutionBackwardFilterWorkspaceSize(cudnnHandle_t, cudnnTensorDescriptor_t x, cudnnTensorDescriptor_t dy,
                                               cudnnConvolutionDescriptor_t convolution, cudnnFilterDescriptor_t dw,
                                               cudnnConvolutionBwdFilterAlgo_t algorithm, std::size_t* bytes) {
  return Shapes(x, dw, convolution, dy).bytesOf(weightGradientAbilities, algorithm, bytes);
}

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void* alpha, cudnnTensorDescriptor_t xDesc,
                                      const void* x, cudnnFilterDescriptor_t wDesc, const void* w,
                                      cudnnConvolutionDescriptor_t convolution, cudnnConvolutionFwdAlgo_t algorithm,
                                      void* workspace, std::size_t workspaceBytes, const void* beta,
                                      cudnnTensorDescriptor_t yDesc, void* y) {
  if (algorithm == failing) return CUDNN_STATUS_NOT_SUPPORTED;
  const Shapes shapes(xDesc, wDesc, convolution, yDesc);
  return convolve(handle, alpha, beta, yDesc->elements(), workspace, workspaceBytes,
                  shapes.checked(forwardAbilities, algorithm, workspaceBytes), shapes.result(y),
                  [=, px = shapes.operand(x), pw = shapes.operand(w)](double* sums) {
                    shapes.forEach([&](long i, long j, long o) { sums[o] += px[i] * pw[j]; });
                  });
}
cudnnStatus_t cudnnConvolutionBiasActivationForward(
    cudnnHandle_t handle, const void* alpha1, cudnnTensorDescriptor_t xDesc, const void* x,
    cudnnFilterDescriptor_t wDesc, const void* w, cudnnConvolutionDescriptor_t convolution,
    cudnnConvolutionFwdAlgo_t algorithm, void* workspace, std::size_t workspaceBytes, const void* alpha2,
    cudnnTensorDescriptor_t zDesc, const void* z, cudnnTensorDescriptor_t biasDesc, const void* bias,
    cudnnActivationDescriptor_t activation, cudnnTensorDescriptor_t yDesc, void* y) {
  if (!finishes) return CUDNN_STATUS_NOT_SUPPORTED;
  const Shapes shapes(xDesc, wDesc, convolution, yDesc);
  const cudnnTensorStruct b = *biasDesc;
  if (b.type != shapes.y.type || b.n != 1 || b.c != shapes.y.c || b.h != 1 || b.w != 1) misuse("a bias of other sizes");
  if (zDesc != yDesc || z != y || *static_cast<const float*>(alpha2) != 0) misuse("a convolution that is added");
  if (activation->mode == CUDNN_ACTIVATION_IDENTITY && algorithm != CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM)
    misuse("an algorithm that has no finish without an activation");
  ++finished;
  const float zero = 0;
  const auto finish = [ofBias = shapes.result(bias), y = shapes.y,
                       relu = activation->mode == CUDNN_ACTIVATION_RELU](long i, double sum) {
    const long channel = y.format == CUDNN_TENSOR_NCHW ? i / (static_cast<long>(y.h) * y.w) % y.c : i % y.c;
    const double value = sum + ofBias[channel];
    return relu && value < 0 ? 0 : value;
  };
  return convolve(
      handle, alpha1, &zero, yDesc->elements(), workspace, workspaceBytes,
      shapes.checked(forwardAbilities, algorithm, workspaceBytes), shapes.result(y),
      [=, px = shapes.operand(x), pw = shapes.operand(w)](double* sums) {
        shapes.forEach([&](long i, long j, long o) { sums[o] += px[i] * pw[j]; });
      },
      finish);
}
cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void* alpha, cudnnFilterDescriptor_t wDesc,
                                           const void* w, cudnnTensorDescriptor_t dyDesc, const void* dy,
                                           cudnnConvolutionDescriptor_t convolution,
                                           cudnnConvolutionBwdDataAlgo_t algorithm, void* workspace,
                                           std::size_t workspaceBytes, const void* beta, cudnnTensorDescriptor_t dxDesc,
                                           void* dx) {
  const Shapes shapes(dxDesc, wDesc, convolution, dyDesc);
  return convolve(handle, alpha, beta, dxDesc->elements(), workspace, workspaceBytes,
                  shapes.checked(inputGradientAbilities, algorithm, workspaceBytes), shapes.result(dx),
                  [=, py = shapes.operand(dy), pw = shapes.operand(w)](double* sums) {
                    shapes.forEach([&](long i, long j, long o) { sums[i] += py[o] * pw[j]; });
                  });
}
cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t handle, const void* alpha, cudnnTensorDescriptor_t xDesc,
                                             const void* x, cudnnTensorDescriptor_t dyDesc, const void* dy,
                                             cudnnConvolutionDescriptor_t convolution,
                                             cudnnConvolutionBwdFilterAlgo_t algorithm, void* workspace,
                                             std::size_t workspaceBytes, const void* beta,
                                             cudnnFilterDescriptor_t dwDesc, void* dw) {
  const Shapes shapes(xDesc, dwDesc, convolution, dyDesc);
  return convolve(handle, alpha, beta, dwDesc->elements(), workspace, workspaceBytes,
                  shapes.checked(weightGradientAbilities, algorithm, workspaceBytes), shapes.result(dw),
                  [=, px = shapes.operand(x), py = shapes.operand(dy)](double* sums) {
                    shapes.forEach([&](long i, long j, long o) { sums[j] += px[i] * py[o]; });
                  });
}
