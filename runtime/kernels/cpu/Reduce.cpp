// Reduce. Axes are merged until kept and reduced ones alternate. If the last one is reduced, rows are folded in lanes;
// if it is kept, columns are folded side by side.
#include "pdcrt/kernels/Reduce.h"

#include "common/Shapes.h"
#include "device/cpu/Parts.h"
#include "device/cpu/Sums.h"
#include "pdcrt/Math.h"

#include <algorithm>
#include <limits>
#include <type_traits>

namespace pdcrt {
namespace {

struct Sum {
  using Value = double;
  static constexpr Value start = 0;
  PDCRT_INLINE static Value combine(Value a, Value b) { return a + b; }
};
struct Product {
  using Value = double;
  static constexpr Value start = 1;
  PDCRT_INLINE static Value combine(Value a, Value b) { return a * b; }
};
struct Max {
  using Value = float;
  static constexpr Value start = -std::numeric_limits<float>::infinity();
  PDCRT_INLINE static Value combine(Value a, Value b) { return maximum(a, b); }
};
struct Min {
  using Value = float;
  static constexpr Value start = std::numeric_limits<float>::infinity();
  PDCRT_INLINE static Value combine(Value a, Value b) { return minimum(a, b); }
};

/// The loops of a reduction: those over outputs and, inside, those over what an output reduces.
struct Loops {
  const Shape& kept;
  const std::int64_t* keptStrides;
  const Shape& reduced; ///< without the innermost axis if that is reduced
  const std::int64_t* reducedStrides;
  double factor; ///< 1, or for a mean 1 / count
};

/// The innermost axis, of `length`, is reduced.
template <class Kind>
PDCRT_INLINE void foldRows(const Loops& loops, std::int64_t length, const float* x, float* y) {
  std::int64_t keptIndex[maxRank] = {}, keptOffset = 0;
  do {
    typename Kind::Value value = Kind::start;
    std::int64_t index[maxRank] = {}, offset = keptOffset;
    do {
      const float* const row = x + offset;
      value = Kind::combine(value,
                            foldInLanes(length, Kind::start, Kind::combine, [row](std::int64_t i) { return row[i]; }));
    } while (advance(loops.reduced, loops.reducedStrides, index, offset));
    *y++ = static_cast<float>(value * loops.factor);
  } while (advance(loops.kept, loops.keptStrides, keptIndex, keptOffset));
}

/// The innermost axis, of `length`, is kept.
template <class Kind>
PDCRT_INLINE void foldColumns(const Loops& loops, std::int64_t length, const float* x, float* y) {
  constexpr std::int64_t width = 2048; // whole rows, which lie behind each other, as far as their sums fit the cache
  std::int64_t keptIndex[maxRank] = {}, keptOffset = 0;
  do {
    for (std::int64_t begin = 0; begin < length; begin += width) {
      const std::int64_t count = std::min(width, length - begin);
      typename Kind::Value lanes[width];
      std::fill(lanes, lanes + width, Kind::start);
      std::int64_t index[maxRank] = {}, offset = keptOffset + begin;
      do {
        const float* const row = x + offset;
        for (std::int64_t i = 0; i < count; ++i) lanes[i] = Kind::combine(lanes[i], row[i]);
      } while (advance(loops.reduced, loops.reducedStrides, index, offset));
      for (std::int64_t i = 0; i < count; ++i) *y++ = static_cast<float>(lanes[i] * loops.factor);
    }
  } while (advance(loops.kept, loops.keptStrides, keptIndex, keptOffset));
}

PDCRT_VECTORIZED void sumRows(const Loops& l, std::int64_t length, const float* x, float* y) {
  foldRows<Sum>(l, length, x, y);
}
PDCRT_VECTORIZED void sumColumns(const Loops& l, std::int64_t length, const float* x, float* y) {
  foldColumns<Sum>(l, length, x, y);
}
PDCRT_VECTORIZED void maxRows(const Loops& l, std::int64_t length, const float* x, float* y) {
  foldRows<Max>(l, length, x, y);
}
PDCRT_VECTORIZED void maxColumns(const Loops& l, std::int64_t length, const float* x, float* y) {
  foldColumns<Max>(l, length, x, y);
}
PDCRT_VECTORIZED void minRows(const Loops& l, std::int64_t length, const float* x, float* y) {
  foldRows<Min>(l, length, x, y);
}
PDCRT_VECTORIZED void minColumns(const Loops& l, std::int64_t length, const float* x, float* y) {
  foldColumns<Min>(l, length, x, y);
}
PDCRT_VECTORIZED void productRows(const Loops& l, std::int64_t length, const float* x, float* y) {
  foldRows<Product>(l, length, x, y);
}
PDCRT_VECTORIZED void productColumns(const Loops& l, std::int64_t length, const float* x, float* y) {
  foldColumns<Product>(l, length, x, y);
}

using FoldFunction = void (*)(const Loops&, std::int64_t length, const float* x, float* y);

FoldFunction functionOf(Reduction kind, bool rows) {
  switch (kind) {
  case Reduction::max: return rows ? maxRows : maxColumns;
  case Reduction::min: return rows ? minRows : minColumns;
  case Reduction::product: return rows ? productRows : productColumns;
  case Reduction::sum:
  case Reduction::mean: break;
  }
  return rows ? sumRows : sumColumns;
}

/// One element after the other. Integers are combined as 64 unsigned bits, which wrap around.
template <class T>
struct Fold {
  using Value = std::conditional_t<std::is_floating_point_v<T>, double, std::uint64_t>;

  Reduction kind;
  std::int64_t count; ///< of elements per result

  T start() const {
    using Limits = std::numeric_limits<T>;
    if (kind == Reduction::max) return Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
    if (kind == Reduction::min) return Limits::has_infinity ? Limits::infinity() : Limits::max();
    return kind == Reduction::product ? T(1) : T(0);
  }
  T combine(T a, T b) const {
    if (kind == Reduction::max) return maximum(a, b);
    if (kind == Reduction::min) return minimum(a, b);
    const Value x = static_cast<Value>(a), y = static_cast<Value>(b);
    return static_cast<T>(kind == Reduction::product ? x * y : x + y);
  }
  T finish(T value) const {
    if (kind != Reduction::mean || count == 0) return value;
    if constexpr (std::is_signed_v<T> && std::is_integral_v<T>)
      return static_cast<T>(value / count); // of which a small type may not have the value
    else if constexpr (std::is_integral_v<T>)
      return static_cast<T>(value / static_cast<std::uint64_t>(count));
    else
      return value / static_cast<T>(count);
  }
};

template <class T>
void foldAll(Reduction kind, const Shape& kept, const std::int64_t* keptStrides, const Shape& reduced,
             const std::int64_t* reducedStrides, const T* x, T* y) {
  const Fold<T> fold{kind, reduced.elements()};
  if (kept.elements() == 0) return;
  std::int64_t keptIndex[maxRank] = {}, keptOffset = 0;
  do {
    T value = fold.start();
    std::int64_t index[maxRank] = {}, offset = keptOffset;
    if (fold.count > 0) do
        value = fold.combine(value, x[offset]);
      while (advance(reduced, reducedStrides, index, offset));
    *y++ = fold.finish(value);
  } while (advance(kept, keptStrides, keptIndex, keptOffset));
}

} // namespace

std::size_t Reduce::workspaceBytes(const Options&) {
  return 0;
}

void Reduce::forward(Stream&, View<const float> x, View<float> y) const {
  if (kept_.elements() == 0 || reduced_.elements() == 0)
    return foldAll(kind_, kept_, keptStrides_, reduced_, reducedStrides_, x.data, y.data);
  const double factor = kind_ == Reduction::mean ? 1.0 / static_cast<double>(reduced_.elements()) : 1.0;
  const bool rows = reduced_.rank > 0 && reducedStrides_[reduced_.rank - 1] == 1;
  Shape outer = rows ? reduced_ : kept_;
  std::int64_t length = 1;
  if (outer.rank > 0) length = outer.dims[--outer.rank];
  const Shape &kept = rows ? kept_ : outer, &reduced = rows ? outer : reduced_;
  const FoldFunction fold = functionOf(kind_, rows);
  const auto foldPart = [&](const Shape& part, std::int64_t count, std::int64_t from, std::int64_t to) {
    fold({part, keptStrides_, reduced, reducedStrides_, factor}, count, x.data + from, y.data + to);
  };
  // Threads share the outermost loop over outputs; what has none but columns, the columns.
  const std::int64_t elements = kept_.elements() * reduced_.elements();
  if (kept.rank > 0) {
    const std::int64_t outputs = kept_.elements() / kept.dims[0];
    return parts::runRanges(parts::countOf(kept.dims[0], elements), kept.dims[0],
                            [&](std::int64_t begin, std::int64_t end) {
                              Shape part = kept;
                              part.dims[0] = end - begin;
                              foldPart(part, length, begin * keptStrides_[0], begin * outputs);
                            });
  }
  if (rows) return foldPart(kept, length, 0, 0);
  parts::runLines(length, elements,
                  [&](std::int64_t begin, std::int64_t end) { foldPart(kept, end - begin, begin, begin); });
}

template <class T>
void Reduce::forward(Stream&, std::type_identity_t<View<const T>> x, View<T> y) const {
  foldAll(kind_, kept_, keptStrides_, reduced_, reducedStrides_, x.data, y.data);
}

template void Reduce::forward(Stream&, View<const double>, View<double>) const;
template void Reduce::forward(Stream&, View<const std::int64_t>, View<std::int64_t>) const;
template void Reduce::forward(Stream&, View<const std::int32_t>, View<std::int32_t>) const;
template void Reduce::forward(Stream&, View<const std::int16_t>, View<std::int16_t>) const;
template void Reduce::forward(Stream&, View<const std::int8_t>, View<std::int8_t>) const;
template void Reduce::forward(Stream&, View<const std::uint64_t>, View<std::uint64_t>) const;
template void Reduce::forward(Stream&, View<const std::uint32_t>, View<std::uint32_t>) const;
template void Reduce::forward(Stream&, View<const std::uint16_t>, View<std::uint16_t>) const;
template void Reduce::forward(Stream&, View<const std::uint8_t>, View<std::uint8_t>) const;

} // namespace pdcrt
