// Products of matrices by their definition, with cuBLASLt's conventions: columns one after the other, workspace that is
// overwritten, promises about alignment that are checked.
#include "Numbers.h"
#include "StandIn.h"

#include <algorithm>

namespace {

using namespace stand_in;

template <class T>
T read(const void* value, std::size_t bytes) {
  if (bytes != sizeof(T)) misuse("an attribute of another size");
  T result;
  std::memcpy(&result, value, sizeof(T));
  return result;
}

} // namespace

namespace stand_in {

constexpr int algorithmsOffered = 3; ///< of products of 16 bits; all do the same
static int slowPlace = -1;
static bool sumsAreSpoilt = false;

void slowProducts(int place) {
  slowPlace = place;
}
void spoilSums(bool spoil) {
  sumsAreSpoilt = spoil;
}

} // namespace stand_in

struct cublasLtHandle {};
struct cublasLtMatmulDescOpaque_t {
  bool transposeA = false, transposeB = false, tf32 = false;
  std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* biasPointer = nullptr; ///< of the type of the result; of sums too

  bool bias() const { return epilogue == CUBLASLT_EPILOGUE_BIAS; }
  bool sums() const { return epilogue == CUBLASLT_EPILOGUE_BGRADA || epilogue == CUBLASLT_EPILOGUE_BGRADB; }
};
struct cublasLtMatrixLayoutOpaque_t {
  cudaDataType_t type = CUDA_R_32F;
  std::int64_t rows = 0, columns = 0, ld = 0, batch = 1, stride = 0;
};
struct cublasLtMatmulPreferenceOpaque_t {
  std::uint64_t workspace = 0;
  std::uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_MASK; ///< that parts of a sum may be added by
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
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t compute, cudaDataType_t scale) {
  if (scale != CUDA_R_32F) misuse("a factor that is not of f32");
  *desc = new cublasLtMatmulDescOpaque_t{.tf32 = compute == CUBLAS_COMPUTE_32F_FAST_TF32};
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
  case CUBLASLT_MATMUL_DESC_EPILOGUE: desc->epilogue = read<std::uint32_t>(value, bytes); break;
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
  else if (attribute == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK)
    preference->schemes = read<std::uint32_t>(value, bytes);
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
         a->type == b->type && (a->type == d->type || (d->type == CUDA_R_32F && !desc->bias()));
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                              cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference,
                                              int requested, cublasLtMatmulHeuristicResult_t results[], int* returned) {
  if (!fits(desc, a, b, d) || !fits(desc, a, b, c)) return CUBLAS_STATUS_INVALID_VALUE;
  if (preference->schemes & ~std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE})
    misuse("a product whose parts may be added in the type of the result, or as they come");
  *returned = std::min(requested, a->type == CUDA_R_32F ? 1 : algorithmsOffered);
  for (int place = 0; place < *returned; ++place) {
    results[place] = {};
    std::copy_n(preference->alignment, 4, results[place].algo.alignment);
    results[place].algo.place = place;
    results[place].workspaceSize = std::min<std::size_t>(usedWorkspace, preference->workspace);
    results[place].state = CUBLAS_STATUS_SUCCESS;
  }
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
  if ((desc->bias() || desc->sums()) && !desc->biasPointer) misuse("no bias");
  auto work = [desc = *desc, a = *aLayout, b = *bLayout, c = *cLayout, d = *dLayout,
               alpha = *static_cast<const float*>(alpha), beta = *static_cast<const float*>(beta),
               pa = rounding(numbers(aLayout->type, a), desc->tf32),
               pb = rounding(numbers(bLayout->type, b), desc->tf32), pc = numbers(cLayout->type, c),
               pd = numbers(dLayout->type, d), bias = numbers(dLayout->type, desc->biasPointer), workspace,
               workspaceBytes, slow = algo->place == slowPlace] {
    if (slow) elapse(1);
    scribble(workspace, workspaceBytes);
    const std::int64_t terms = desc.transposeA ? a.rows : a.columns;
    const auto sumOf = [&](const Numbers& of, bool transposed, std::int64_t ld, std::int64_t i) {
      double result = 0;
      for (std::int64_t k = 0; k < terms; ++k) result += of[transposed ? k + i * ld : i + k * ld];
      return sumsAreSpoilt ? 2 * result : result;
    };
    if (desc.epilogue == CUBLASLT_EPILOGUE_BGRADA)
      for (std::int64_t row = 0; row < d.rows; ++row) bias.set(row, sumOf(pa, desc.transposeA, a.ld, row));
    if (desc.epilogue == CUBLASLT_EPILOGUE_BGRADB)
      for (std::int64_t column = 0; column < d.columns; ++column)
        bias.set(column, sumOf(pb, !desc.transposeB, b.ld, column));
    for (std::int64_t batch = 0; batch < d.batch; ++batch)
      for (std::int64_t column = 0; column < d.columns; ++column)
        for (std::int64_t row = 0; row < d.rows; ++row) {
          double sum = 0;
          for (std::int64_t k = 0; k < terms; ++k)
            sum += pa[batch * a.stride + (desc.transposeA ? k + row * a.ld : row + k * a.ld)] *
                   pb[batch * b.stride + (desc.transposeB ? column + k * b.ld : k + column * b.ld)];
          double value = alpha * sum;
          if (beta != 0) value += beta * pc[batch * c.stride + row + column * c.ld];
          if (desc.bias()) value += bias[row];
          pd.set(batch * d.stride + row + column * d.ld, value);
        }
  };
  if (stand_in::immediate(stream))
    work();
  else
    stand_in::enqueue(stream, work);
  return CUBLAS_STATUS_SUCCESS;
}
