// Products of matrices and convolutions by their definitions, with the libraries' conventions: columns one after the
// other, workspace that is overwritten, promises about alignment that are checked.
#include "Streams.h"
#include "pdcrt/LowPrecision.h"

#include <cublasLt.h>
#include <cudnn.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>

namespace {

using stand_in::misuse;

template <class T>
T read(const void* value, std::size_t bytes) {
  if (bytes != sizeof(T)) misuse("an attribute of another size");
  T result;
  std::memcpy(&result, value, sizeof(T));
  return result;
}

/// Libraries leave anything there.
void scribble(void* workspace, std::size_t bytes) {
  if (bytes > 0 && !workspace) misuse("no workspace");
  std::memset(workspace, 0xCD, bytes);
}

constexpr std::size_t usedWorkspace = 4096; ///< by every call

/// Numbers in memory, of 32 or of 16 bits. Both libraries name their types so.
struct Numbers {
  enum class Kind { f32, f16, bf16 };
  Kind kind;
  void* data;

  double operator[](std::int64_t i) const {
    switch (kind) {
    case Kind::f32: return static_cast<const float*>(data)[i];
    case Kind::f16: return static_cast<const pdcrt::float16*>(data)[i];
    case Kind::bf16: return static_cast<const pdcrt::bfloat16*>(data)[i];
    }
    return 0;
  }
  void set(std::int64_t i, double value) const {
    const auto rounded = static_cast<float>(value); // sums are in f32
    switch (kind) {
    case Kind::f32: static_cast<float*>(data)[i] = rounded; break;
    case Kind::f16: static_cast<pdcrt::float16*>(data)[i] = pdcrt::float16(rounded); break;
    case Kind::bf16: static_cast<pdcrt::bfloat16*>(data)[i] = pdcrt::bfloat16(rounded); break;
    }
  }
};

Numbers::Kind kindOf(cudaDataType_t type) {
  return type == CUDA_R_16F ? Numbers::Kind::f16 : type == CUDA_R_16BF ? Numbers::Kind::bf16 : Numbers::Kind::f32;
}
Numbers::Kind kindOf(cudnnDataType_t type) {
  return type == CUDNN_DATA_HALF       ? Numbers::Kind::f16
         : type == CUDNN_DATA_BFLOAT16 ? Numbers::Kind::bf16
                                       : Numbers::Kind::f32;
}
template <class Type>
Numbers numbers(Type type, const void* data) {
  return {kindOf(type), const_cast<void*>(data)};
}

} // namespace

// ---- cuBLASLt ----

struct cublasLtHandle {};
struct cublasLtMatmulDescOpaque_t {
  bool transposeA = false, transposeB = false, bias = false;
  const void* biasPointer = nullptr; ///< of the type of the result
};
struct cublasLtMatrixLayoutOpaque_t {
  cudaDataType_t type = CUDA_R_32F;
  std::int64_t rows = 0, columns = 0, ld = 0, batch = 1, stride = 0;
};
struct cublasLtMatmulPreferenceOpaque_t {
  std::uint64_t workspace = 0;
  std::uint32_t alignment[4] = {256, 256, 256, 256};
};

const char* cublasLtGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS ? "success" : "an invalid value";
}
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = new cublasLtHandle;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t, cudaDataType_t scale) {
  if (scale != CUDA_R_32F) misuse("a factor that is not of f32");
  *desc = new cublasLtMatmulDescOpaque_t;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  delete desc;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t bytes) {
  switch (attribute) {
  case CUBLASLT_MATMUL_DESC_TRANSA: desc->transposeA = read<std::int32_t>(value, bytes) == CUBLAS_OP_T; break;
  case CUBLASLT_MATMUL_DESC_TRANSB: desc->transposeB = read<std::int32_t>(value, bytes) == CUBLAS_OP_T; break;
  case CUBLASLT_MATMUL_DESC_EPILOGUE: desc->bias = read<std::uint32_t>(value, bytes) == CUBLASLT_EPILOGUE_BIAS; break;
  case CUBLASLT_MATMUL_DESC_BIAS_POINTER: desc->biasPointer = read<const void*>(value, bytes); break;
  }
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, std::uint64_t rows,
                                          std::uint64_t columns, std::int64_t ld) {
  *layout =
      new cublasLtMatrixLayoutOpaque_t{type, static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns), ld};
  return ld >= static_cast<std::int64_t>(rows) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void* value,
                                                std::size_t bytes) {
  if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT)
    layout->batch = read<std::int32_t>(value, bytes);
  else
    layout->stride = read<std::int64_t>(value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new cublasLtMatmulPreferenceOpaque_t;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    std::size_t bytes) {
  if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
    preference->workspace = read<std::uint64_t>(value, bytes);
  else
    preference->alignment[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES] = read<std::uint32_t>(value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

/// Whether op(a) [m, k] times op(b) [k, n] is d [m, n].
static bool fits(cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                 cublasLtMatrixLayout_t d) {
  const std::int64_t m = desc->transposeA ? a->columns : a->rows, k = desc->transposeA ? a->rows : a->columns,
                     inner = desc->transposeB ? b->columns : b->rows, n = desc->transposeB ? b->rows : b->columns;
  return m == d->rows && n == d->columns && k == inner && a->batch == d->batch && b->batch == d->batch &&
         a->type == b->type && a->type == d->type;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                              cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference, int,
                                              cublasLtMatmulHeuristicResult_t results[], int* returned) {
  if (!fits(desc, a, b, d) || !fits(desc, a, b, c)) return CUBLAS_STATUS_INVALID_VALUE;
  results[0] = {};
  std::copy_n(preference->alignment, 4, results[0].algo.alignment);
  results[0].workspaceSize = std::min<std::size_t>(usedWorkspace, preference->workspace);
  results[0].state = CUBLAS_STATUS_SUCCESS;
  *returned = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t aLayout, const void* b, cublasLtMatrixLayout_t bLayout,
                              const void* beta, const void* c, cublasLtMatrixLayout_t cLayout, void* d,
                              cublasLtMatrixLayout_t dLayout, const cublasLtMatmulAlgo_t* algo, void* workspace,
                              std::size_t workspaceBytes, cudaStream_t stream) {
  if (!fits(desc, aLayout, bLayout, dLayout) || !fits(desc, aLayout, bLayout, cLayout))
    return CUBLAS_STATUS_INVALID_VALUE;
  const void* operands[] = {a, b, c, d};
  for (int i = 0; i < 4; ++i)
    if (reinterpret_cast<std::uintptr_t>(operands[i]) % algo->alignment[i] != 0)
      misuse("a matrix is aligned worse than promised");
  if (reinterpret_cast<std::uintptr_t>(workspace) % 256 != 0) misuse("workspace of a product is not aligned");
  if (desc->bias && !desc->biasPointer) misuse("no bias");
  auto work = [desc = *desc, a = *aLayout, b = *bLayout, c = *cLayout, d = *dLayout,
               alpha = *static_cast<const float*>(alpha), beta = *static_cast<const float*>(beta),
               pa = numbers(aLayout->type, a), pb = numbers(bLayout->type, b), pc = numbers(cLayout->type, c),
               pd = numbers(dLayout->type, d), bias = numbers(dLayout->type, desc->biasPointer), workspace,
               workspaceBytes] {
    scribble(workspace, workspaceBytes);
    const std::int64_t terms = desc.transposeA ? a.rows : a.columns;
    for (std::int64_t batch = 0; batch < d.batch; ++batch)
      for (std::int64_t column = 0; column < d.columns; ++column)
        for (std::int64_t row = 0; row < d.rows; ++row) {
          double sum = 0;
          for (std::int64_t k = 0; k < terms; ++k)
            sum += pa[batch * a.stride + (desc.transposeA ? k + row * a.ld : row + k * a.ld)] *
                   pb[batch * b.stride + (desc.transposeB ? column + k * b.ld : k + column * b.ld)];
          double value = alpha * sum;
          if (beta != 0) value += beta * pc[batch * c.stride + row + column * c.ld];
          if (desc.bias) value += bias[row];
          pd.set(batch * d.stride + row + column * d.ld, value);
        }
  };
  if (stand_in::immediate(stream))
    work();
  else
    stand_in::enqueue(stream, work);
  return CUBLAS_STATUS_SUCCESS;
}

// ---- cuDNN ----

struct cudnnContext {
  cudaStream_t stream = nullptr;
};
struct cudnnTensorStruct {
  cudnnDataType_t type;
  int n, c, h, w;
  long elements() const { return static_cast<long>(n) * c * h * w; }
};
struct cudnnFilterStruct {
  cudnnDataType_t type;
  int k, c, h, w;
  long elements() const { return static_cast<long>(k) * c * h * w; }
};
struct cudnnConvolutionStruct {
  int padH, padW, strideH, strideW, dilationH, dilationW, groups = 1;
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
  if (format != CUDNN_TENSOR_NCHW) misuse("a layout that the stand-in does not have");
  *tensor = {type, n, c, h, w};
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
  if (format != CUDNN_TENSOR_NCHW) misuse("a layout that the stand-in does not have");
  *filter = {type, k, c, h, w};
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
cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t, cudnnMathType_t) {
  return CUDNN_STATUS_SUCCESS;
}

namespace {

/// The first is what must not be taken: its sums have another order in every run.
template <class Algorithm>
cudnnStatus_t recommend(Algorithm wrong, Algorithm right, int* returned, CudnnPerformance<Algorithm>* results) {
  results[0] = {wrong, CUDNN_STATUS_SUCCESS, 1, 0, CUDNN_NON_DETERMINISTIC, CUDNN_FMA_MATH};
  results[1] = {right, CUDNN_STATUS_SUCCESS, 2, usedWorkspace, CUDNN_DETERMINISTIC, CUDNN_FMA_MATH};
  *returned = 2;
  return CUDNN_STATUS_SUCCESS;
}

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
    if (y.n != x.n || y.c != w.k || x.c != w.c * c.groups ||
        y.h != outputSize(x.h, c.padH, w.h, c.strideH, c.dilationH) ||
        y.w != outputSize(x.w, c.padW, w.w, c.strideW, c.dilationW))
      misuse("shapes of a convolution that do not fit");
  }

  Numbers of(const void* data) const { return numbers(x.type, data); }

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
                  const long from =
                      ((static_cast<long>(n) * x.c + k / perGroup * w.c + channel) * x.h + row) * x.w + column;
                  visit(from, ((static_cast<long>(k) * w.c + channel) * w.h + r) * w.w + s,
                        ((static_cast<long>(n) * y.c + k) * y.h + i) * y.w + j);
                }
  }
};

/// result = alpha · sums + beta · result; `add` fills in the sums.
template <class Add>
cudnnStatus_t convolve(cudnnHandle_t handle, const void* alpha, const void* beta, long elements, void* workspace,
                       std::size_t workspaceBytes, Numbers to, Add add) {
  auto work = [=, alpha = *static_cast<const float*>(alpha), beta = *static_cast<const float*>(beta)] {
    scribble(workspace, workspaceBytes);
    // Not from malloc: tests watch it.
    const std::size_t bytes = static_cast<std::size_t>(elements) * sizeof(double);
    void* room = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED) misuse("no memory");
    auto* sums = static_cast<double*>(room);
    add(sums);
    for (long i = 0; i < elements; ++i) to.set(i, alpha * sums[i] + (beta == 0 ? 0 : beta * to[i]));
    ::munmap(room, bytes);
  };
  if (stand_in::immediate(handle->stream))
    work();
  else
    stand_in::enqueue(handle->stream, work);
  return CUDNN_STATUS_SUCCESS;
}

} // namespace

cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(cudnnHandle_t, cudnnTensorDescriptor_t, cudnnFilterDescriptor_t,
                                                     cudnnConvolutionDescriptor_t, cudnnTensorDescriptor_t, int,
                                                     int* returned, cudnnConvolutionFwdAlgoPerf_t* results) {
  return recommend(CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, returned,
                   results);
}
cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(cudnnHandle_t, cudnnFilterDescriptor_t,
                                                          cudnnTensorDescriptor_t, cudnnConvolutionDescriptor_t,
                                                          cudnnTensorDescriptor_t, int, int* returned,
                                                          cudnnConvolutionBwdDataAlgoPerf_t* results) {
  return recommend(CUDNN_CONVOLUTION_BWD_DATA_ALGO_0, CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, returned, results);
}
cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(cudnnHandle_t, cudnnTensorDescriptor_t,
                                                            cudnnTensorDescriptor_t, cudnnConvolutionDescriptor_t,
                                                            cudnnFilterDescriptor_t, int, int* returned,
                                                            cudnnConvolutionBwdFilterAlgoPerf_t* results) {
  return recommend(CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, returned, results);
}
cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(cudnnHandle_t, cudnnTensorDescriptor_t, cudnnFilterDescriptor_t,
                                                      cudnnConvolutionDescriptor_t, cudnnTensorDescriptor_t,
                                                      cudnnConvolutionFwdAlgo_t, std::size_t* bytes) {
  *bytes = usedWorkspace;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(cudnnHandle_t, cudnnFilterDescriptor_t,
                                                           cudnnTensorDescriptor_t, cudnnConvolutionDescriptor_t,
                                                           cudnnTensorDescriptor_t, cudnnConvolutionBwdDataAlgo_t,
                                                           std::size_t* bytes) {
  *bytes = usedWorkspace;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(cudnnHandle_t, cudnnTensorDescriptor_t,
                                                             cudnnTensorDescriptor_t, cudnnConvolutionDescriptor_t,
                                                             cudnnFilterDescriptor_t, cudnnConvolutionBwdFilterAlgo_t,
                                                             std::size_t* bytes) {
  *bytes = usedWorkspace;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void* alpha, cudnnTensorDescriptor_t xDesc,
                                      const void* x, cudnnFilterDescriptor_t wDesc, const void* w,
                                      cudnnConvolutionDescriptor_t convolution, cudnnConvolutionFwdAlgo_t,
                                      void* workspace, std::size_t workspaceBytes, const void* beta,
                                      cudnnTensorDescriptor_t yDesc, void* y) {
  const Shapes shapes(xDesc, wDesc, convolution, yDesc);
  return convolve(handle, alpha, beta, yDesc->elements(), workspace, workspaceBytes, shapes.of(y),
                  [=, px = shapes.of(x), pw = shapes.of(w)](double* sums) {
                    shapes.forEach([&](long i, long j, long o) { sums[o] += px[i] * pw[j]; });
                  });
}
cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void* alpha, cudnnFilterDescriptor_t wDesc,
                                           const void* w, cudnnTensorDescriptor_t dyDesc, const void* dy,
                                           cudnnConvolutionDescriptor_t convolution,
                                           cudnnConvolutionBwdDataAlgo_t algorithm, void* workspace,
                                           std::size_t workspaceBytes, const void* beta, cudnnTensorDescriptor_t dxDesc,
                                           void* dx) {
  if (algorithm == CUDNN_CONVOLUTION_BWD_DATA_ALGO_0) misuse("an algorithm with another order in every run");
  const Shapes shapes(dxDesc, wDesc, convolution, dyDesc);
  return convolve(handle, alpha, beta, dxDesc->elements(), workspace, workspaceBytes, shapes.of(dx),
                  [=, py = shapes.of(dy), pw = shapes.of(w)](double* sums) {
                    shapes.forEach([&](long i, long j, long o) { sums[i] += py[o] * pw[j]; });
                  });
}
cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t handle, const void* alpha, cudnnTensorDescriptor_t xDesc,
                                             const void* x, cudnnTensorDescriptor_t dyDesc, const void* dy,
                                             cudnnConvolutionDescriptor_t convolution,
                                             cudnnConvolutionBwdFilterAlgo_t algorithm, void* workspace,
                                             std::size_t workspaceBytes, const void* beta,
                                             cudnnFilterDescriptor_t dwDesc, void* dw) {
  if (algorithm == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0) misuse("an algorithm with another order in every run");
  const Shapes shapes(xDesc, dwDesc, convolution, dyDesc);
  return convolve(handle, alpha, beta, dwDesc->elements(), workspace, workspaceBytes, shapes.of(dw),
                  [=, px = shapes.of(x), py = shapes.of(dy)](double* sums) {
                    shapes.forEach([&](long i, long j, long o) { sums[j] += px[i] * py[o]; });
                  });
}
