// Reduce. Axes are merged until kept and reduced ones alternate. Each result's elements are cut into parts (SumParts);
// where the innermost axis is reduced a block, or of a short row a warp, folds one part of one result, else a block one
// part of 32 or 64 neighbouring results. A second kernel combines the parts, in the same order every time. Floats are
// read by packs of 16 bytes where sizes and strides allow it.
#include "pdcrt/kernels/Reduce.h"

#include "cuda/support/Divider.h"
#include "pdcrt/CudaWorkspace.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <stdexcept>

namespace pdcrt {
namespace {

/// How floats of type T are combined: sums and products in double precision, extremes of 16 bits in float. Of 16 bits
/// a few terms are summed up in float first: to make a double of a number takes as long as many additions. The result
/// is of type R.
template <class T, Reduction kind, class R = T>
struct Fold {
  using Source = const T*;
  using Result = R*;
  static constexpr bool sums = kind != Reduction::max && kind != Reduction::min;
  static constexpr bool fewInFloat = sums && kind != Reduction::product && sizeof(T) == 2;
  static constexpr int widest = 16 / static_cast<int>(sizeof(T)), atOnce = 4;
  using Value = std::conditional_t<sums, double, std::conditional_t<sizeof(T) < 4, float, T>>;

  __device__ static Value start(Source) {
    using Limits = std::numeric_limits<Value>;
    if constexpr (kind == Reduction::max) return -Limits::infinity();
    if constexpr (kind == Reduction::min) return Limits::infinity();
    return kind == Reduction::product ? Value(1) : Value(0);
  }
  __device__ Value operator()(Value a, Value b) const {
    if constexpr (kind == Reduction::max) return maximum(a, b);
    if constexpr (kind == Reduction::min) return minimum(a, b);
    return kind == Reduction::product ? a * b : a + b;
  }
  /// As it is in memory: to take elements of 16 bits apart at once would be to wait for them.
  template <int n>
  struct alignas(sizeof(T) * n) Raw {
    std::conditional_t<sizeof(T) * n % 4 == 0, std::uint32_t, T> words[sizeof(T) * n % 4 == 0 ? sizeof(T) * n / 4 : n];
  };
  template <int n>
  __device__ static Raw<n> load(Source x) {
    return *reinterpret_cast<const Raw<n>*>(x);
  }
  template <int n>
  __device__ static Pack<T, n> elementsOf(const Raw<n>& raw) {
    return std::bit_cast<Pack<T, n>>(raw);
  }
  __device__ static void finish(Result y, Value value, std::int64_t divisor) {
    *y = static_cast<R>(kind == Reduction::sum && divisor > 0 ? value / static_cast<double>(divisor) : value);
  }
};

/// Integers of any width, so that one kernel is enough: they are few (shapes, indices, masks), and need no packs.
template <class Byte>
struct Integers {
  Byte* data;
  int bytes; ///< of each
  bool isSigned;

  __device__ Integers operator+(std::int64_t i) const { return {data + i * bytes, bytes, isSigned}; }
  /// With the sign in all upper bits, where there is one.
  __device__ std::uint64_t get() const {
    switch (bytes) {
    case 1: return isSigned ? as<std::int8_t>() : as<std::uint8_t>();
    case 2: return isSigned ? as<std::int16_t>() : as<std::uint16_t>();
    case 4: return isSigned ? as<std::int32_t>() : as<std::uint32_t>();
    default: return as<std::uint64_t>();
    }
  }
  __device__ void set(std::uint64_t value) const {
    switch (bytes) {
    case 1: *reinterpret_cast<std::uint8_t*>(data) = static_cast<std::uint8_t>(value); break;
    case 2: *reinterpret_cast<std::uint16_t*>(data) = static_cast<std::uint16_t>(value); break;
    case 4: *reinterpret_cast<std::uint32_t*>(data) = static_cast<std::uint32_t>(value); break;
    default: *reinterpret_cast<std::uint64_t*>(data) = value;
    }
  }
  /// The least and the largest number of the type, as `get` gives them.
  __device__ std::uint64_t least() const { return isSigned ? ~std::uint64_t{0} << (8 * bytes - 1) : 0; }
  __device__ std::uint64_t largest() const { return isSigned ? ~least() : ~std::uint64_t{0} >> (64 - 8 * bytes); }
  /// In an order of unsigned numbers that is that of the type; and back.
  __device__ std::uint64_t inOrder(std::uint64_t value) const {
    return isSigned ? value ^ (std::uint64_t{1} << 63) : value;
  }

private:
  template <class T>
  __device__ std::uint64_t as() const {
    return static_cast<std::uint64_t>(*reinterpret_cast<const T*>(data));
  }
};

/// How integers are combined: sums and products in 64 bits that wrap around, extremes in the order of the type.
template <Reduction kind>
struct FoldIntegers {
  using Source = Integers<const std::byte>;
  using Result = Integers<std::byte>;
  static constexpr bool sums = kind != Reduction::max && kind != Reduction::min;
  static constexpr bool fewInFloat = false;
  static constexpr int widest = 1, atOnce = 1;
  using Value = unsigned long long;

  __device__ static Value start(const Source& x) {
    if constexpr (kind == Reduction::max) return x.inOrder(x.least());
    if constexpr (kind == Reduction::min) return x.inOrder(x.largest());
    return kind == Reduction::product ? 1 : 0;
  }
  __device__ Value operator()(Value a, Value b) const {
    if constexpr (kind == Reduction::max) return a > b ? a : b;
    if constexpr (kind == Reduction::min) return a < b ? a : b;
    return kind == Reduction::product ? a * b : a + b;
  }
  template <int n>
  __device__ static Pack<Value, n> load(const Source& x) {
    return {{sums ? x.get() : x.inOrder(x.get())}};
  }
  template <int n>
  __device__ static const Pack<Value, n>& elementsOf(const Pack<Value, n>& pack) {
    return pack;
  }
  /// A mean is that of the sum as the type has it, rounded towards zero.
  __device__ static void finish(const Result& y, Value value, std::int64_t divisor) {
    y.set(sums ? value : y.inOrder(value));
    if (kind != Reduction::sum || divisor == 0) return;
    const std::uint64_t sum = y.get();
    y.set(y.isSigned ? static_cast<std::uint64_t>(static_cast<std::int64_t>(sum) / divisor)
                     : sum / static_cast<std::uint64_t>(divisor));
  }
};

struct Loops {
  int keptRank, reducedRank;
  std::int64_t kept[maxRank], keptStrides[maxRank], reduced[maxRank], reducedStrides[maxRank];
  cuda::Divider byKept[maxRank], byReduced[maxRank];
  std::int64_t results, terms;
  std::int64_t divisor; ///< of a mean, which else is a sum; 0: none
  std::int64_t reads;   ///< per result: its terms, or packs of them
  bool byWarps;         ///< a warp folds what else a block does
  cuda::SumParts parts; ///< of the reads
};

__device__ std::int64_t resultOffset(const Loops& l, std::int64_t i) {
  std::int64_t offset = 0;
  for (int axis = l.keptRank - 1; axis >= 0; --axis) {
    const std::int64_t outer = l.byKept[axis].quotient(i);
    offset += (i - outer * l.kept[axis]) * l.keptStrides[axis];
    i = outer;
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
  return end < l.reads ? end : l.reads;
}

template <class F>
__device__ void store(const Loops& l, std::int64_t result, std::int64_t part, typename F::Value value,
                      typename F::Value* partial, typename F::Result y) {
  if (l.parts.parts == 1)
    F::finish(y + result, value, l.divisor);
  else
    partial[part * l.results + result] = value;
}

/// Folds every `step`th pack from `first` on into n values, one per place in a pack. Several packs are loaded before
/// the first one is folded, so that enough is under way. `offsetOf` says where a pack is.
template <class F, int n, class OffsetOf>
__device__ void foldPacksAt(typename F::Source x, std::int64_t first, std::int64_t end, std::int64_t step,
                            typename F::Value (&values)[n], const OffsetOf& offsetOf) {
  for (std::int64_t begin = first; begin < end; begin += F::atOnce * step) {
    decltype(F::template load<n>(x)) packs[F::atOnce];
    for (int i = 0; i < F::atOnce; ++i)
      if (begin + i * step < end) packs[i] = F::template load<n>(x + offsetOf(begin + i * step));
    const auto forEachPack = [&](auto each) {
      for (int i = 0; i < F::atOnce; ++i)
        if (begin + i * step < end) each(F::template elementsOf<n>(packs[i]));
    };
    if constexpr (F::fewInFloat) {
      float few[n] = {};
      forEachPack([&](const auto& pack) {
        for (int k = 0; k < n; ++k) few[k] += static_cast<float>(pack[k]);
      });
      for (int k = 0; k < n; ++k) values[k] = F()(values[k], few[k]);
    } else {
      forEachPack([&](const auto& pack) {
        for (int k = 0; k < n; ++k) values[k] = F()(values[k], static_cast<typename F::Value>(pack[k]));
      });
    }
  }
}

/// What a thread reads of a part.
template <class F, int n>
__device__ void foldPacks(const Loops& l, typename F::Source x, std::int64_t first, std::int64_t end, std::int64_t step,
                          typename F::Value (&values)[n]) {
  for (int k = 0; k < n; ++k) values[k] = F::start(x);
  if (l.reducedRank == 1) // without a branch between loads, which would wait for each other
    foldPacksAt<F, n>(x, first, end, step, values,
                      [stride = l.reducedStrides[0]](std::int64_t i) { return i * stride; });
  else
    foldPacksAt<F, n>(x, first, end, step, values, [&](std::int64_t i) { return termOffset(l, i); });
}

template <class F>
__device__ typename F::Value combineWarp(typename F::Value value, int firstDistance = 1) {
  for (int distance = firstDistance; distance < cuda::warpSize32; distance *= 2)
    value = F()(value, __shfl_xor_sync(0xFFFFFFFFu, value, distance));
  return value;
}

template <class F, int n>
__global__ void foldRows(Loops l, typename F::Source x, typename F::Value* partial, typename F::Result y) {
  const int lanes = l.byWarps ? cuda::warpSize32 : static_cast<int>(threadsPerBlock);
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  for (std::int64_t row = thread() / lanes; row < l.results * l.parts.parts; row += threads() / lanes) {
    const std::int64_t result = row / l.parts.parts, part = row % l.parts.parts;
    typename F::Value values[n];
    foldPacks<F, n>(l, x + resultOffset(l, result), part * l.parts.size + lane, endOfPart(l, part), lanes, values);
    for (int k = 1; k < n; ++k) values[0] = F()(values[0], values[k]);
    const auto value = l.byWarps ? combineWarp<F>(values[0]) : cuda::blockCombine(values[0], F::start(x), F());
    if (lane == 0) store<F>(l, result, part, value, partial, y);
  }
}

/// Of foldColumns with packs of n: rows of 128 bytes.
template <int n>
constexpr int tileColumns = std::max(cuda::warpSize32, 8 * n);
constexpr int widestTile = tileColumns<8>;
static_assert(cuda::columnsPerBlock == cuda::warpSize32);

/// A warp reads n rows of a tile at once, or half as many of a wide one, each by packs of n columns.
template <class F, int n>
__global__ void foldColumns(Loops l, typename F::Source x, typename F::Value* partial, typename F::Result y) {
  constexpr int columns = tileColumns<n>;
  __shared__ typename F::Value ofWarps[cuda::warpsPerBlock][columns];
  constexpr int packs = columns / n, tileRows = static_cast<int>(threadsPerBlock) / packs;
  const int column = static_cast<int>(threadIdx.x) % packs * n, row = static_cast<int>(threadIdx.x) / packs;
  const int warp = static_cast<int>(threadIdx.x) / cuda::warpSize32,
            lane = static_cast<int>(threadIdx.x) % cuda::warpSize32;
  const std::int64_t tiles = (l.results + columns - 1) / columns;
  for (std::int64_t block = blockIdx.x; block < tiles * l.parts.parts; block += gridDim.x) {
    const std::int64_t tile = block % tiles * columns, part = block / tiles;
    const std::int64_t end = tile + column < l.results ? endOfPart(l, part) : 0;
    typename F::Value values[n];
    foldPacks<F, n>(l, x + resultOffset(l, tile + column), part * l.parts.size + row, end, tileRows, values);
    for (int k = 0; k < n; ++k) values[k] = combineWarp<F>(values[k], packs);
    if (lane < packs)
      for (int k = 0; k < n; ++k) ofWarps[warp][column + k] = values[k];
    __syncthreads();
    if (const int own = static_cast<int>(threadIdx.x); own < columns && tile + own < l.results) {
      typename F::Value value = ofWarps[0][own];
      for (int other = 1; other < cuda::warpsPerBlock; ++other) value = F()(value, ofWarps[other][own]);
      store<F>(l, tile + own, part, value, partial, y);
    }
    __syncthreads();
  }
}

/// A block combines the parts of 32 neighbouring results: a warp every eighth of them, several of which are loaded at
/// once.
template <class F>
__global__ void combineParts(Loops l, typename F::Source x, const typename F::Value* partial, typename F::Result y) {
  constexpr int atOnce = 4;
  __shared__ typename F::Value ofWarps[cuda::warpsPerBlock][cuda::warpSize32];
  const int warp = static_cast<int>(threadIdx.x) / cuda::warpSize32,
            lane = static_cast<int>(threadIdx.x) % cuda::warpSize32;
  for (std::int64_t tile = blockIdx.x; tile * cuda::warpSize32 < l.results; tile += gridDim.x) {
    const std::int64_t result = tile * cuda::warpSize32 + lane;
    typename F::Value value = F::start(x);
    if (result < l.results)
      for (std::int64_t first = warp; first < l.parts.parts; first += atOnce * cuda::warpsPerBlock) {
        typename F::Value loaded[atOnce];
        for (int i = 0; i < atOnce; ++i)
          if (const std::int64_t part = first + i * cuda::warpsPerBlock; part < l.parts.parts)
            loaded[i] = partial[part * l.results + result];
        for (int i = 0; i < atOnce; ++i)
          if (first + i * cuda::warpsPerBlock < l.parts.parts) value = F()(value, loaded[i]);
      }
    ofWarps[warp][lane] = value;
    __syncthreads();
    if (warp == 0 && result < l.results) {
      for (int other = 1; other < cuda::warpsPerBlock; ++other) value = F()(value, ofWarps[other][lane]);
      F::finish(y + result, value, l.divisor);
    }
    __syncthreads();
  }
}

template <class F>
void combine(Stream& q, const Loops& l, typename F::Source x, const typename F::Value* partial, typename F::Result y) {
  if (l.parts.parts > 1)
    cuda::launchBlocks(q, "reduction, parts", combineParts<F>, (l.results + cuda::warpSize32 - 1) / cuda::warpSize32, l,
                       x, partial, y);
}

/// Whether packs of n elements of so many bytes begin at multiples of their size, everywhere. Along the innermost axis,
/// of that many elements, they are neighbours.
bool inPacks(const Loops& l, std::int64_t innermost, const void* x, int n, std::size_t bytes) {
  const auto fits = [n](const std::int64_t* strides, int rank) {
    return std::all_of(strides, strides + rank, [n](std::int64_t stride) { return stride == 1 || stride % n == 0; });
  };
  return innermost % n == 0 && fits(l.keptStrides, l.keptRank) && fits(l.reducedStrides, l.reducedRank) &&
         reinterpret_cast<std::uintptr_t>(x) % (static_cast<std::size_t>(n) * bytes) == 0;
}

/// Of rows the reads are packs of n.
template <class F, int n>
void launchRows(Stream& q, Loops l, typename F::Source x, typename F::Value* partial, typename F::Result y) {
  constexpr std::int64_t fewPerThread = 4;
  const int innermost = l.reducedRank - 1;
  l.reduced[innermost] /= n;
  l.reducedStrides[innermost] = n;
  l.reads = l.terms / n;
  for (int axis = 0; axis < l.reducedRank; ++axis) l.byReduced[axis] = {l.reduced[axis], l.reads};
  l.byWarps = l.parts.parts == 1 && l.reads <= fewPerThread * cuda::warpSize32;
  l.parts.size = (l.parts.size + n - 1) / n;
  l.parts.parts = std::max<std::int64_t>(1, (l.reads + l.parts.size - 1) / l.parts.size);
  const std::int64_t folds = l.results * l.parts.parts;
  cuda::launchBlocks(q, "reduction", foldRows<F, n>,
                     l.byWarps ? (folds + cuda::warpsPerBlock - 1) / cuda::warpsPerBlock : folds, l, x, partial, y);
  combine<F>(q, l, x, partial, y);
}

template <class F, int n>
void launchColumns(Stream& q, const Loops& l, typename F::Source x, typename F::Value* partial, typename F::Result y) {
  cuda::launchBlocks(q, "reduction", foldColumns<F, n>,
                     (l.results + tileColumns<n> - 1) / tileColumns<n> * l.parts.parts, l, x, partial, y);
  combine<F>(q, l, x, partial, y);
}

/// `packs`: whether there may be any along an innermost axis of so many elements.
template <class F, class InPacks>
void fold(Stream& q, Loops l, typename F::Source x, typename F::Result y, InPacks packs) {
  constexpr int n = F::widest;
  auto* const partial = reinterpret_cast<typename F::Value*>(q.workspace());
  if (l.reducedRank > 0 && l.reducedStrides[l.reducedRank - 1] == 1) {
    l.parts = cuda::partsOf(l.results, l.terms);
    const auto launch = packs(l.reduced[l.reducedRank - 1], n) ? launchRows<F, n> : launchRows<F, 1>;
    return launch(q, l, x, partial, y);
  }
  l.parts = cuda::partsOfColumns(l.results, l.terms);
  const auto launch = l.keptRank > 0 && packs(l.kept[l.keptRank - 1], n) ? launchColumns<F, n> : launchColumns<F, 1>;
  launch(q, l, x, partial, y);
}

/// Calls f with the kind as a constant; a mean is a sum with a divisor.
template <class F>
void withKind(Reduction kind, const F& f) {
  using Kind = Reduction;
  switch (kind) {
  case Kind::sum:
  case Kind::mean: return f(std::integral_constant<Kind, Kind::sum>());
  case Kind::max: return f(std::integral_constant<Kind, Kind::max>());
  case Kind::min: return f(std::integral_constant<Kind, Kind::min>());
  case Kind::product: return f(std::integral_constant<Kind, Kind::product>());
  }
}

template <class T>
void foldAs(Stream& q, Reduction kind, Loops l, const T* x, T* y) {
  l.divisor = kind == Reduction::mean ? l.terms : 0;
  withKind(kind, [&](auto k) {
    if constexpr (std::is_integral_v<T>)
      fold<FoldIntegers<k.value>>(q, l, {reinterpret_cast<const std::byte*>(x), sizeof(T), std::is_signed_v<T>},
                                  {reinterpret_cast<std::byte*>(y), sizeof(T), std::is_signed_v<T>},
                                  [](std::int64_t, int) { return false; });
    else
      fold<Fold<T, k.value>>(q, l, x, y,
                             [&](std::int64_t innermost, int n) { return inPacks(l, innermost, x, n, sizeof(T)); });
  });
}

template <class T>
void sumInFloat(Stream& q, Reduction kind, const Loops& l, const T* x, float* y) {
  if (kind != Reduction::sum) throw std::logic_error("only sums of 16 bits are given in float");
  fold<Fold<T, Reduction::sum, float>>(
      q, l, x, y, [&](std::int64_t innermost, int n) { return inPacks(l, innermost, x, n, sizeof(T)); });
}

Loops loopsOf(const Shape& kept, const std::int64_t* keptStrides, const Shape& reduced,
              const std::int64_t* reducedStrides) {
  Loops l{.keptRank = kept.rank,
          .reducedRank = reduced.rank,
          .kept = {},
          .keptStrides = {},
          .reduced = {},
          .reducedStrides = {},
          .byKept = {},
          .byReduced = {},
          .results = kept.elements(),
          .terms = reduced.elements(),
          .divisor = 0,
          .reads = reduced.elements(),
          .byWarps = false,
          .parts = {}};
  std::copy_n(kept.dims, maxRank, l.kept);
  std::copy_n(keptStrides, maxRank, l.keptStrides);
  std::copy_n(reduced.dims, maxRank, l.reduced);
  std::copy_n(reducedStrides, maxRank, l.reducedStrides);
  // Threads of the last tile ask where results are that are beyond the last one.
  for (int axis = 0; axis < kept.rank; ++axis) l.byKept[axis] = {kept.dims[axis], l.results + widestTile};
  for (int axis = 0; axis < reduced.rank; ++axis) l.byReduced[axis] = {reduced.dims[axis], l.terms};
  return l;
}

} // namespace

std::size_t Reduce::workspaceBytes(const Options& o) {
  return cuda::workspaceOf(o);
}

void Reduce::forward(Stream& q, View<const float> x, View<float> y) const {
  foldAs(q, kind_, loopsOf(kept_, keptStrides_, reduced_, reducedStrides_), x.data, y.data);
}
template <class T>
void Reduce::forward(Stream& q, std::type_identity_t<View<const T>> x, View<T> y) const {
  foldAs(q, kind_, loopsOf(kept_, keptStrides_, reduced_, reducedStrides_), x.data, y.data);
}

void Reduce::forward(Stream& q, View<const bfloat16> x, View<float> y) const {
  sumInFloat(q, kind_, loopsOf(kept_, keptStrides_, reduced_, reducedStrides_), x.data, y.data);
}
void Reduce::forward(Stream& q, View<const float16> x, View<float> y) const {
  sumInFloat(q, kind_, loopsOf(kept_, keptStrides_, reduced_, reducedStrides_), x.data, y.data);
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
