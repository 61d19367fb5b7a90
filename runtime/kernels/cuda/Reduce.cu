// Reduce. Axes are merged until kept and reduced ones alternate. Each result's elements are cut into parts (SumParts);
// a block folds one part of one result where the innermost axis is reduced, else one part of 32 neighbouring results.
// A second kernel combines the parts in order.
#include "pdcrt/kernels/Reduce.h"

#include "Divider.h"
#include "pdcrt/CudaWorkspace.h"

#include <limits>

namespace pdcrt {
namespace {

/// What a result's elements are combined in: sums and products of floats in double precision, those of integers in 64
/// bits that wrap around; extremes of what is small in float or int.
template <class T, Reduction kind>
struct Fold {
  static constexpr bool sums = kind != Reduction::max && kind != Reduction::min;
  static constexpr bool isFloat = !std::is_integral_v<T>;
  using Sum = std::conditional_t<isFloat, double, unsigned long long>;
  using Small = std::conditional_t<isFloat, float, int>;
  using Value = std::conditional_t<sums, Sum, std::conditional_t<sizeof(T) < 4, Small, T>>;

  __device__ static Value start() {
    using Limits = std::numeric_limits<std::conditional_t<isFloat && sizeof(T) < 4, float, T>>;
    if constexpr (kind == Reduction::max)
      return static_cast<Value>(Limits::has_infinity ? -Limits::infinity() : Limits::lowest());
    if constexpr (kind == Reduction::min)
      return static_cast<Value>(Limits::has_infinity ? Limits::infinity() : Limits::max());
    return kind == Reduction::product ? Value(1) : Value(0);
  }
  __device__ Value operator()(Value a, Value b) const {
    if constexpr (kind == Reduction::max) return maximum(a, b);
    if constexpr (kind == Reduction::min) return minimum(a, b);
    return kind == Reduction::product ? a * b : a + b;
  }
  __device__ static T finish(Value value, std::int64_t count) {
    if constexpr (kind == Reduction::mean) {
      if (count == 0) return static_cast<T>(value);
      if constexpr (isFloat)
        return static_cast<T>(value / static_cast<double>(count));
      else
        return static_cast<T>(static_cast<T>(value) / static_cast<T>(count));
    }
    return static_cast<T>(value);
  }
};

struct Loops {
  int keptRank, reducedRank;
  std::int64_t kept[maxRank], keptStrides[maxRank], reduced[maxRank], reducedStrides[maxRank];
  cuda::Divider byReduced[maxRank];
  std::int64_t results, terms;
  cuda::SumParts parts;
};

__device__ std::int64_t resultOffset(const Loops& l, std::int64_t i) {
  std::int64_t offset = 0;
  for (int axis = l.keptRank - 1; axis >= 0; --axis) {
    offset += i % l.kept[axis] * l.keptStrides[axis];
    i /= l.kept[axis];
  }
  return offset;
}
__device__ std::int64_t termOffset(const Loops& l, std::int64_t i) {
  std::int64_t offset = 0;
  for (int axis = l.reducedRank - 1; axis > 0; --axis) {
    const std::int64_t outer = l.byReduced[axis].quotient(i);
    offset += (i - outer * l.reduced[axis]) * l.reducedStrides[axis];
    i = outer;
  }
  return l.reducedRank > 0 ? offset + i * l.reducedStrides[0] : 0;
}

__device__ std::int64_t endOfPart(const Loops& l, std::int64_t part) {
  const std::int64_t end = (part + 1) * l.parts.size;
  return end < l.terms ? end : l.terms;
}

template <class F, class T>
__device__ void store(const Loops& l, std::int64_t result, std::int64_t part, typename F::Value value,
                      typename F::Value* partial, T* y) {
  if (l.parts.parts == 1)
    y[result] = F::finish(value, l.terms);
  else
    partial[part * l.results + result] = value;
}

template <class T, class F>
__global__ void foldRows(Loops l, const T* x, typename F::Value* partial, T* y) {
  for (std::int64_t block = blockIdx.x; block < l.results * l.parts.parts; block += gridDim.x) {
    const std::int64_t result = block / l.parts.parts, part = block % l.parts.parts;
    const T* const row = x + resultOffset(l, result);
    typename F::Value value = F::start();
    for (std::int64_t i = part * l.parts.size + threadIdx.x; i < endOfPart(l, part); i += blockDim.x)
      value = F()(value, static_cast<typename F::Value>(row[termOffset(l, i)]));
    value = cuda::blockCombine(value, F::start(), F());
    if (threadIdx.x == 0) store<F>(l, result, part, value, partial, y);
  }
}

constexpr int tileColumns = static_cast<int>(cuda::columnsPerBlock),
              tileRows = static_cast<int>(threadsPerBlock) / tileColumns;

template <class T, class F>
__global__ void foldColumns(Loops l, const T* x, typename F::Value* partial, T* y) {
  __shared__ typename F::Value values[tileRows][tileColumns];
  const int column = static_cast<int>(threadIdx.x) % tileColumns, row = static_cast<int>(threadIdx.x) / tileColumns;
  const std::int64_t tiles = (l.results + tileColumns - 1) / tileColumns;
  for (std::int64_t block = blockIdx.x; block < tiles * l.parts.parts; block += gridDim.x) {
    const std::int64_t result = block % tiles * tileColumns + column, part = block / tiles;
    typename F::Value value = F::start();
    if (result < l.results) {
      const T* const from = x + resultOffset(l, result);
      for (std::int64_t i = part * l.parts.size + row; i < endOfPart(l, part); i += tileRows)
        value = F()(value, static_cast<typename F::Value>(from[termOffset(l, i)]));
    }
    values[row][column] = value;
    __syncthreads();
    if (row == 0 && result < l.results) {
      for (int other = 1; other < tileRows; ++other) value = F()(value, values[other][column]);
      store<F>(l, result, part, value, partial, y);
    }
    __syncthreads();
  }
}

template <class T, class F>
__global__ void combineParts(Loops l, const typename F::Value* partial, T* y) {
  for (std::int64_t result = thread(); result < l.results; result += threads()) {
    typename F::Value value = partial[result];
    for (std::int64_t part = 1; part < l.parts.parts; ++part) value = F()(value, partial[part * l.results + result]);
    y[result] = F::finish(value, l.terms);
  }
}

template <class T, Reduction kind>
void fold(Stream& q, Loops l, const T* x, T* y) {
  using F = Fold<T, kind>;
  auto* const partial = reinterpret_cast<typename F::Value*>(q.workspace());
  const bool rows = l.reducedRank > 0 && l.reducedStrides[l.reducedRank - 1] == 1;
  l.parts = rows ? cuda::partsOf(l.results, l.terms) : cuda::partsOfColumns(l.results, l.terms);
  if (rows)
    cuda::launchBlocks(q, "reduction", foldRows<T, F>, l.results * l.parts.parts, l, x, partial, y);
  else
    cuda::launchBlocks(q, "reduction", foldColumns<T, F>, (l.results + tileColumns - 1) / tileColumns * l.parts.parts,
                       l, x, partial, y);
  if (l.parts.parts > 1) launchLoop(q, "reduction, parts", combineParts<T, F>, l.results, l, partial, y);
}

template <class T>
void foldAs(Stream& q, Reduction kind, const Shape& kept, const std::int64_t* keptStrides, const Shape& reduced,
            const std::int64_t* reducedStrides, const T* x, T* y) {
  Loops l{.keptRank = kept.rank,
          .reducedRank = reduced.rank,
          .kept = {},
          .keptStrides = {},
          .reduced = {},
          .reducedStrides = {},
          .byReduced = {},
          .results = kept.elements(),
          .terms = reduced.elements(),
          .parts = {}};
  std::copy_n(kept.dims, maxRank, l.kept);
  std::copy_n(keptStrides, maxRank, l.keptStrides);
  std::copy_n(reduced.dims, maxRank, l.reduced);
  std::copy_n(reducedStrides, maxRank, l.reducedStrides);
  for (int axis = 0; axis < reduced.rank; ++axis) l.byReduced[axis] = {reduced.dims[axis], l.terms};
  switch (kind) {
  case Reduction::sum: return fold<T, Reduction::sum>(q, l, x, y);
  case Reduction::mean: return fold<T, Reduction::mean>(q, l, x, y);
  case Reduction::max: return fold<T, Reduction::max>(q, l, x, y);
  case Reduction::min: return fold<T, Reduction::min>(q, l, x, y);
  case Reduction::product: return fold<T, Reduction::product>(q, l, x, y);
  }
}

} // namespace

std::size_t Reduce::workspaceBytes(const Options& o) {
  return cuda::workspaceOf(o);
}

void Reduce::forward(Stream& q, View<const float> x, View<float> y) const {
  foldAs(q, kind_, kept_, keptStrides_, reduced_, reducedStrides_, x.data, y.data);
}
template <class T>
void Reduce::forward(Stream& q, std::type_identity_t<View<const T>> x, View<T> y) const {
  foldAs(q, kind_, kept_, keptStrides_, reduced_, reducedStrides_, x.data, y.data);
}

template void Reduce::forward(Stream&, View<const double>, View<double>) const;
template void Reduce::forward(Stream&, View<const bfloat16>, View<bfloat16>) const;
template void Reduce::forward(Stream&, View<const float16>, View<float16>) const;
template void Reduce::forward(Stream&, View<const std::int64_t>, View<std::int64_t>) const;
template void Reduce::forward(Stream&, View<const std::int32_t>, View<std::int32_t>) const;
template void Reduce::forward(Stream&, View<const std::int16_t>, View<std::int16_t>) const;
template void Reduce::forward(Stream&, View<const std::int8_t>, View<std::int8_t>) const;
template void Reduce::forward(Stream&, View<const std::uint64_t>, View<std::uint64_t>) const;
template void Reduce::forward(Stream&, View<const std::uint32_t>, View<std::uint32_t>) const;
template void Reduce::forward(Stream&, View<const std::uint16_t>, View<std::uint16_t>) const;
template void Reduce::forward(Stream&, View<const std::uint8_t>, View<std::uint8_t>) const;

} // namespace pdcrt
