// See Product.h.
#include "Product.h"

#include "Libraries.h"

namespace pdcrt::cuda {

struct Product::Impl {
  Options options;
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
  cublasLtMatmulAlgo_t algorithm = {};
  std::size_t workspaceBytes = 0;

  ~Impl() {
    for (cublasLtMatrixLayout_t layout : {a, b, c})
      if (layout) cublasLtMatrixLayoutDestroy(layout);
    if (operation) cublasLtMatmulDescDestroy(operation);
  }
};

namespace {

template <class T>
void set(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute, T value) {
  PDCRT_CUDA(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof value));
}
template <class T>
void set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute, T value) {
  PDCRT_CUDA(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value));
}

cudaDataType_t typeOf(Element element) {
  return element == Element::bf16 ? CUDA_R_16BF : element == Element::f16 ? CUDA_R_16F : CUDA_R_32F;
}

/// What the library sees of a row-major [rows, columns].
cublasLtMatrixLayout_t layoutOf(Element element, std::int64_t rows, std::int64_t columns, std::int64_t batch,
                                bool broadcast, std::int64_t rowStride = 0) {
  cublasLtMatrixLayout_t layout = nullptr;
  if (rowStride == 0) rowStride = columns;
  PDCRT_CUDA(cublasLtMatrixLayoutCreate(&layout, typeOf(element), static_cast<std::uint64_t>(columns),
                                        static_cast<std::uint64_t>(rows), rowStride));
  const auto count = static_cast<std::int32_t>(batch);
  const std::int64_t stride = broadcast ? 0 : rows * rowStride;
  PDCRT_CUDA(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count));
  PDCRT_CUDA(
      cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride));
  return layout;
}

} // namespace

Product::Product(const Options& o) {
  auto impl = std::make_shared<Impl>();
  impl->options = o;
  impl->handle = blas();
  const bool rounds = tf32 && o.element == Element::f32;
  PDCRT_CUDA(cublasLtMatmulDescCreate(&impl->operation, rounds ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
                                      CUDA_R_32F));
  // The library's first operand is our b.
  set(impl->operation, CUBLASLT_MATMUL_DESC_TRANSA,
      static_cast<std::int32_t>(o.transposeB ? CUBLAS_OP_T : CUBLAS_OP_N));
  set(impl->operation, CUBLASLT_MATMUL_DESC_TRANSB,
      static_cast<std::int32_t>(o.transposeA ? CUBLAS_OP_T : CUBLAS_OP_N));
  if (o.bias) set(impl->operation, CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<std::uint32_t>(CUBLASLT_EPILOGUE_BIAS));
  const auto layout = [&](bool transposed, std::int64_t rows, std::int64_t columns, bool broadcast,
                          std::int64_t rowStride = 0) {
    if (transposed) std::swap(rows, columns);
    return layoutOf(o.element, rows, columns, o.batch, broadcast, rowStride);
  };
  impl->a = layout(o.transposeA, o.m, o.k, o.broadcastA, o.rowStride);
  impl->b = layout(o.transposeB, o.k, o.n, o.broadcastB);
  impl->c = layoutOf(o.wideResult ? Element::f32 : o.element, o.m, o.n, o.batch, false);

  cublasLtMatmulPreference_t preference = nullptr;
  PDCRT_CUDA(cublasLtMatmulPreferenceCreate(&preference));
  const std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, cublasStatus_t (*)(cublasLtMatmulPreference_t)> owner(
      preference, cublasLtMatmulPreferenceDestroy);
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(productWorkspace));
  // Parts of a long sum are added in f32 and in one order, or not made: other schemes add them in the type of the
  // result, as they come.
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  for (auto attribute : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                         CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    set(preference, attribute, o.alignment);
  cublasLtMatmulHeuristicResult_t found = {};
  int count = 0;
  PDCRT_CUDA(cublasLtMatmulAlgoGetHeuristic(impl->handle, impl->operation, impl->b, impl->a, impl->c, impl->c,
                                            preference, 1, &found, &count));
  if (count == 0 || found.state != CUBLAS_STATUS_SUCCESS)
    fail("cublasLtMatmulAlgoGetHeuristic", "no algorithm for this product");
  impl->algorithm = found.algo;
  impl->workspaceBytes = found.workspaceSize;
  impl_ = std::move(impl);
}

void Product::run(Stream& q, const void* a, const void* b, const void* bias, void* c) const {
  const float one = 1, zero = 0;
  if (impl_->options.bias) set(impl_->operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  PDCRT_CUDA(cublasLtMatmul(impl_->handle, impl_->operation, &one, b, impl_->b, a, impl_->a,
                            impl_->options.accumulate ? &one : &zero, c, impl_->c, c, impl_->c, &impl_->algorithm,
                            alignedWorkspace(q), impl_->workspaceBytes, streamOf(q)));
}

} // namespace pdcrt::cuda
