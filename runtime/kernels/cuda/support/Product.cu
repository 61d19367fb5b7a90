// See Product.h.
#include "Product.h"

#include "Libraries.h"

#include <stdexcept>

namespace pdcrt::cuda {

namespace {

/// What the library is asked for: the whole product or one size of its parts.
struct Part {
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
  cublasLtMatmulAlgo_t algorithm = {};
  std::size_t workspaceBytes = 0;

  Part() = default;
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;
  ~Part() {
    for (cublasLtMatrixLayout_t layout : {a, b, c})
      if (layout) cublasLtMatrixLayoutDestroy(layout);
  }
};

} // namespace

struct Product::Impl {
  Options options;
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t operation = nullptr;
  Part whole, last;         ///< where the product is made in parts: most of them, and one that is shorter
  Part wholeRest, lastRest; ///< of these the columns of the result behind a multiple of 16 bytes

  Impl() = default;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() {
    if (operation) cublasLtMatmulDescDestroy(operation);
  }

  Element resultElement() const { return options.wideResult ? Element::f32 : options.element; }
  void choose(Part& part) const;
  void prepareParts(Part& part, Part& rest, std::int64_t size) const;
  void preparePart(Part& part, std::int64_t size, std::int64_t columns) const;
  std::int64_t restOf(std::int64_t size) const;
  void multiply(Stream& q, const Part& part, const void* a, const void* b, const void* bias, void* c) const;
  void multiplyParts(Stream& q, const void* a, const void* b, const void* bias, void* c) const;
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

using Matrix = PaddedProduct::Matrix;
using Cut = PaddedProduct::Cut;

/// What a part of the result takes of a matrix, or is of it. `size` rows or columns of the result begin at `begin`.
struct Piece {
  std::int64_t rows, columns;
  std::int64_t offset; ///< in elements of the whole matrix
};
Piece pieceOf(const Matrix& matrix, std::int64_t begin, std::int64_t size) {
  switch (matrix.cut) {
  case Cut::rows: return {size, matrix.columns, begin * matrix.columns};
  case Cut::columns: return {matrix.rows, size, begin};
  case Cut::none: break;
  }
  return {matrix.rows, matrix.columns, 0};
}

/// A thread writes four neighbours at once, at a multiple of their size, wherever the row begins.
constexpr int packElements = 4;
constexpr std::int64_t packsPerThread = 4, packsPerBlock = packsPerThread * threadsPerBlock;

/// Copies rows, each a block or several.
template <class T>
__global__ void copyRows(std::int64_t rows, std::int64_t columns, std::int64_t blocksPerRow, const T* from,
                         std::int64_t fromStride, T* to, std::int64_t toStride) {
  for (std::int64_t block = blockIdx.x; block < rows * blocksPerRow; block += gridDim.x) {
    const std::int64_t row = block / blocksPerRow, first = block % blocksPerRow * packsPerBlock + threadIdx.x;
    const T* const source = from + row * fromStride;
    T* const target = to + row * toStride;
    const auto before = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(target) / sizeof(T) % packElements);
    Pack<T, packElements> packs[packsPerThread];
    const auto columnOf = [&](std::int64_t i) { return (first + i * threadsPerBlock) * packElements - before; };
    for (std::int64_t i = 0; i < packsPerThread; ++i)
      for (int j = 0; j < packElements; ++j)
        if (const std::int64_t column = columnOf(i) + j; column >= 0 && column < columns) packs[i][j] = source[column];
    for (std::int64_t i = 0; i < packsPerThread; ++i) {
      const std::int64_t column = columnOf(i);
      if (column >= 0 && column + packElements <= columns)
        storePack(View<T>{target}, column, packs[i]);
      else
        for (int j = 0; j < packElements; ++j)
          if (column + j >= 0 && column + j < columns) target[column + j] = packs[i][j];
    }
  }
}

void copyPiece(Stream& q, Element element, const Piece& piece, const void* from, std::int64_t fromStride, void* to,
               std::int64_t toStride) {
  const std::int64_t packs = (piece.columns + packElements - 1) / packElements + 1; // a row may begin inside of one
  const std::int64_t blocksPerRow = (packs + packsPerBlock - 1) / packsPerBlock;
  const auto as = [&]<class T>(T) {
    launchBlocks(q, "copy of a product's matrix", copyRows<T>, piece.rows * blocksPerRow, piece.rows, piece.columns,
                 blocksPerRow, static_cast<const T*>(from), fromStride, static_cast<T*>(to), toStride);
  };
  bytesOf(element) == 4 ? as(std::uint32_t()) : as(std::uint16_t());
}

} // namespace

/// Lets the library choose an algorithm for the layouts.
void Product::Impl::choose(Part& part) const {
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
    set(preference, attribute, options.alignment);
  cublasLtMatmulHeuristicResult_t found[places] = {};
  int count = 0;
  if (options.place >= places) throw std::runtime_error("a product's algorithm behind those that are asked for");
  const cublasLtMatmulHeuristicResult_t& chosen = found[options.place];
  PDCRT_CUDA(cublasLtMatmulAlgoGetHeuristic(handle, operation, part.b, part.a, part.c, part.c, preference,
                                            options.place + 1, found, &count));
  if (count <= options.place || chosen.state != CUBLAS_STATUS_SUCCESS)
    fail("cublasLtMatmulAlgoGetHeuristic", options.place == 0
                                               ? "no algorithm for this product"
                                               : "this product has fewer algorithms on this device than where the "
                                                 "program was measured; measure on it: pdc-profile");
  part.algorithm = chosen.algo;
  part.workspaceBytes = chosen.workspaceSize;
}

/// Of a part of the result, so many columns are multiplied apart: with them the library would take its slow kernels for
/// all.
std::int64_t Product::Impl::restOf(std::int64_t size) const {
  const Matrix& c = options.padded.matrices[2];
  return pieceOf(c, 0, size).columns % (16 / static_cast<std::int64_t>(bytesOf(resultElement())));
}

void Product::Impl::prepareParts(Part& part, Part& rest, std::int64_t size) const {
  const std::int64_t columns = pieceOf(options.padded.matrices[2], 0, size).columns, apart = restOf(size);
  if (columns > apart) preparePart(part, size, columns - apart);
  if (apart > 0) preparePart(rest, size, apart);
}

/// For so many columns of the result.
void Product::Impl::preparePart(Part& part, std::int64_t size, std::int64_t columns) const {
  const auto layout = [&](const Matrix& matrix, const Piece& piece, Element element) {
    return layoutOf(element, piece.rows, piece.columns, 1, false, matrix.copied ? matrix.stride : matrix.columns);
  };
  const auto& [a, b, c] = options.padded.matrices;
  Piece ofB = pieceOf(b, 0, size), ofC = pieceOf(c, 0, size);
  (options.transposeB ? ofB.rows : ofB.columns) = ofC.columns = columns;
  part.a = layout(a, pieceOf(a, 0, size), options.element);
  part.b = layout(b, ofB, options.element);
  part.c = layout(c, ofC, resultElement());
  choose(part);
}

void Product::Impl::multiply(Stream& q, const Part& part, const void* a, const void* b, const void* bias,
                             void* c) const {
  const float one = 1, zero = 0;
  if (options.bias || options.sums != Sums::none) set(operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  PDCRT_CUDA(cublasLtMatmul(handle, operation, &one, b, part.b, a, part.a, options.accumulate ? &one : &zero, c, part.c,
                            c, part.c, &part.algorithm, alignedWorkspace(q), part.workspaceBytes, streamOf(q)));
}

void Product::Impl::multiplyParts(Stream& q, const void* a, const void* operandB, const void* bias, void* c) const {
  const PaddedProduct& p = options.padded;
  const auto elementBytes = static_cast<std::int64_t>(bytesOf(options.element)),
             resultBytes = static_cast<std::int64_t>(bytesOf(resultElement()));
  std::byte* const copies = alignedWorkspace(q) + productWorkspace;
  /// Where the library finds an operand's part.
  const auto operand = [&](std::size_t which, const void* data, std::int64_t begin, std::int64_t size) -> const void* {
    const Matrix& matrix = p.matrices[which];
    const Piece piece = pieceOf(matrix, begin, size);
    const std::byte* const from = static_cast<const std::byte*>(data) + piece.offset * elementBytes;
    if (!matrix.copied) return from;
    std::byte* const copy = copies + p.offsets[which];
    if (matrix.cut != Cut::none || begin == 0)
      copyPiece(q, options.element, piece, from, matrix.columns, copy, matrix.stride);
    return copy;
  };
  const Matrix& result = p.matrices[2];
  for (std::int64_t begin = 0; begin < p.extent; begin += p.part) {
    const std::int64_t size = std::min(p.part, p.extent - begin);
    const void* const partOfA = operand(0, a, begin, size);
    const void* const partOfB = operand(1, operandB, begin, size);
    const Piece piece = pieceOf(result, begin, size);
    const bool columns = result.cut == Cut::columns && bias;
    std::byte* const to = static_cast<std::byte*>(c) + piece.offset * resultBytes;
    std::byte* const made = result.copied ? copies + p.offsets[2] : to;
    const void* const ownBias = columns ? static_cast<const std::byte*>(bias) + begin * elementBytes : bias;
    const std::int64_t apart = restOf(size), aligned = piece.columns - apart;
    const bool isWhole = size == p.part;
    if (aligned > 0) multiply(q, isWhole ? whole : last, partOfA, partOfB, ownBias, made);
    if (apart > 0) {
      const Matrix& b = p.matrices[1];
      const std::int64_t step = !options.transposeB ? 1 : b.copied ? b.stride : b.columns;
      const auto behind = [&](const void* data, std::int64_t elements) {
        return data ? static_cast<const std::byte*>(data) + elements * elementBytes : nullptr;
      };
      multiply(q, isWhole ? wholeRest : lastRest, partOfA, behind(partOfB, aligned * step), behind(ownBias, aligned),
               made + aligned * resultBytes);
    }
    if (result.copied) copyPiece(q, resultElement(), piece, made, result.stride, to, result.columns);
  }
}

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
  // The library's first operand is our b here too.
  if (o.sums != Sums::none)
    set(impl->operation, CUBLASLT_MATMUL_DESC_EPILOGUE,
        static_cast<std::uint32_t>(o.sums == Sums::ofB ? CUBLASLT_EPILOGUE_BGRADA : CUBLASLT_EPILOGUE_BGRADB));
  // Other products of f32 take their rows as they are.
  if (o.element == Element::f32 && !rounds) impl->options.padded = {};
  if (const PaddedProduct& p = impl->options.padded; p.part > 0) {
    if (o.place > 0 || o.sums != Sums::none)
      throw std::runtime_error("a product in parts has no algorithms to choose from, and adds nothing up beside");
    impl->prepareParts(impl->whole, impl->wholeRest, p.part);
    if (p.extent % p.part != 0) impl->prepareParts(impl->last, impl->lastRest, p.extent % p.part);
    impl_ = std::move(impl);
    return;
  }
  const auto layout = [&](bool transposed, std::int64_t rows, std::int64_t columns, bool broadcast,
                          std::int64_t rowStride = 0) {
    if (transposed) std::swap(rows, columns);
    return layoutOf(o.element, rows, columns, o.batch, broadcast, rowStride);
  };
  impl->whole.a = layout(o.transposeA, o.m, o.k, o.broadcastA, o.rowStride);
  impl->whole.b = layout(o.transposeB, o.k, o.n, o.broadcastB);
  impl->whole.c = layoutOf(impl->resultElement(), o.m, o.n, o.batch, false);
  impl->choose(impl->whole);
  impl_ = std::move(impl);
}

void Product::run(Stream& q, const void* a, const void* b, const void* bias, void* c) const {
  if (impl_->options.padded.part > 0)
    impl_->multiplyParts(q, a, b, bias, c);
  else
    impl_->multiply(q, impl_->whole, a, b, bias, c);
}

} // namespace pdcrt::cuda
