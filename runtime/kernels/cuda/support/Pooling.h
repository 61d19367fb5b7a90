// What both poolings share: one thread per output, and in the gradient one per input or some neighbours, which asks the
// windows that reach it, in order, so that there is no atomic sum. Where channels lie together at each position of a
// plane, a thread does the same for some of them at once.
#pragma once

#include "Divider.h"
#include "common/Shapes.h"
#include "common/Window.h"

#include <algorithm>
#include <stdexcept>
#include <type_traits>

namespace pdcrt::cuda {

struct PoolingSizes {
  std::int64_t lanes; ///< channels that lie together
  std::int64_t planes, outputRows, outputColumns;
  WindowAxis rows, columns;
  Divider byLanes, byOutputRows, byOutputColumns, byRows, byColumns, byRowStride, byColumnStride, byRowDilation,
      byColumnDilation;

  /// For Options of either pooling.
  template <class Options>
  PoolingSizes(const Options& o, const WindowAxis& rowsOf, const WindowAxis& columnsOf)
      : lanes(o.lanes), planes(o.input.dims[0] * o.input.dims[1] / lanes), outputRows(o.output.dims[2]),
        outputColumns(o.output.dims[3]), rows(rowsOf), columns(columnsOf),
        byLanes(lanes, std::max(o.input.elements(), o.output.elements())),
        byOutputRows(outputRows, o.output.elements()), byOutputColumns(outputColumns, o.output.elements()),
        byRows(rows.size, o.input.elements()), byColumns(columns.size, o.input.elements()),
        byRowStride(rows.stride, reachable(rows)), byColumnStride(columns.stride, reachable(columns)),
        byRowDilation(rows.dilation, roomOf(rows)), byColumnDilation(columns.dilation, roomOf(columns)) {}

  PDCRT_DEVICE std::int64_t outputs() const { return planes * outputRows * outputColumns * lanes; }
  PDCRT_DEVICE std::int64_t inputs() const { return planes * rows.size * columns.size * lanes; }

  /// Where position i of the results, or of the inputs, lies.
  struct Place {
    std::int64_t plane, row, column;
  };
  __device__ Place ofOutput(std::int64_t i) const { return place(i, byOutputRows, byOutputColumns); }
  __device__ Place ofInput(std::int64_t i) const { return place(i, byRows, byColumns); }

  /// The position of element i, and its number among the channels there. Only with `together` there are several.
  struct Lane {
    std::int64_t position, lane;
  };
  template <bool together>
  __device__ Lane laneOf(std::int64_t i) const {
    if constexpr (!together) return {i, 0};
    const std::int64_t position = byLanes.quotient(i);
    return {position, i - position * lanes};
  }

  /// The taps of the window of an output that lie inside: first … last - 1 (WindowAxis, whose divisions are slow here).
  struct Taps {
    std::int64_t first, last;
  };
  __device__ Taps rowTaps(std::int64_t output) const { return tapsOf(rows, byRowDilation, output); }
  __device__ Taps columnTaps(std::int64_t output) const { return tapsOf(columns, byColumnDilation, output); }

  /// Outputs whose window may hold a position of an axis: first … last.
  struct Reach {
    std::int64_t first, last;
  };
  __device__ Reach rowsFrom(std::int64_t at) const { return reachOf(rows, byRowStride, at, outputRows); }
  __device__ Reach columnsFrom(std::int64_t at) const { return reachOf(columns, byColumnStride, at, outputColumns); }

private:
  static std::int64_t reachable(const WindowAxis& axis) { return axis.size + axis.pad + axis.stride; }
  static std::int64_t roomOf(const WindowAxis& axis) { return axis.size + axis.pad + axis.dilation; }
  __device__ static Taps tapsOf(const WindowAxis& axis, const Divider& byDilation, std::int64_t output) {
    const std::int64_t start = axis.start(output), room = axis.size - start;
    return {start >= 0 ? 0 : byDilation.quotient(axis.dilation - 1 - start),
            room <= 0 ? 0 : minimum(axis.kernel, byDilation.quotient(room + axis.dilation - 1))};
  }
  __device__ static Place place(std::int64_t i, const Divider& rowCount, const Divider& columnCount) {
    const std::int64_t line = columnCount.quotient(i);
    return {rowCount.quotient(line), rowCount.remainder(line), columnCount.remainder(i)};
  }
  __device__ static Reach reachOf(const WindowAxis& axis, const Divider& byStride, std::int64_t at,
                                  std::int64_t outputs) {
    const std::int64_t low = at + axis.pad - (axis.kernel - 1) * axis.dilation, high = byStride.quotient(at + axis.pad);
    return {low <= 0 ? 0 : byStride.quotient(low + axis.stride - 1), high < outputs ? high : outputs - 1};
  }
};

/// Whether the memory can be moved as packs of n; memory that is absent can.
template <int n, class T>
bool aligned(const T* memory) {
  return reinterpret_cast<std::uintptr_t>(memory) % sizeof(Pack<T, n>) == 0;
}

/// Calls f(std::integral_constant<int, n>(), std::bool_constant<together>()), where a thread moves n channels that lie
/// together. `aligned`: all memory is, for packs of 4.
template <class F>
void withLanes(std::int64_t lanes, bool aligned, F f) {
  if (lanes == 1)
    f(std::integral_constant<int, 1>(), std::false_type());
  else if (lanes % 4 == 0 && aligned)
    f(std::integral_constant<int, 4>(), std::true_type());
  else
    f(std::integral_constant<int, 1>(), std::true_type());
}

/// Throws std::runtime_error unless lanes divide the channels.
inline void checkLanes(const Shape& input, std::int64_t lanes) {
  if (lanes < 1 || input.dims[1] % lanes != 0)
    throw std::runtime_error("pooling of " + toString(input) + ": lanes must divide the channels");
}

} // namespace pdcrt::cuda
