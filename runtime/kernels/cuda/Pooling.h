// What both poolings share: one thread per output, and in the gradient one per input, which asks the windows that reach
// it, in order, so that there is no atomic sum.
#pragma once

#include "Divider.h"
#include "Window.h"

namespace pdcrt::cuda {

struct PoolingSizes {
  std::int64_t planes, outputRows, outputColumns;
  WindowAxis rows, columns;
  Divider byOutputRows, byOutputColumns, byRows, byColumns, byRowStride, byColumnStride;

  /// For Options of either pooling.
  template <class Options>
  PoolingSizes(const Options& o, const WindowAxis& rowsOf, const WindowAxis& columnsOf)
      : planes(o.input.dims[0] * o.input.dims[1]), outputRows(o.output.dims[2]), outputColumns(o.output.dims[3]),
        rows(rowsOf), columns(columnsOf), byOutputRows(outputRows, o.output.elements()),
        byOutputColumns(outputColumns, o.output.elements()), byRows(rows.size, o.input.elements()),
        byColumns(columns.size, o.input.elements()), byRowStride(rows.stride, reachable(rows)),
        byColumnStride(columns.stride, reachable(columns)) {}

  /// Where element i of the results, or of the inputs, lies.
  struct Place {
    std::int64_t plane, row, column;
  };
  __device__ Place ofOutput(std::int64_t i) const { return place(i, byOutputRows, byOutputColumns); }
  __device__ Place ofInput(std::int64_t i) const { return place(i, byRows, byColumns); }

  /// Outputs whose window may hold a position of an axis: first … last.
  struct Reach {
    std::int64_t first, last;
  };
  __device__ Reach rowsFrom(std::int64_t at) const { return reachOf(rows, byRowStride, at, outputRows); }
  __device__ Reach columnsFrom(std::int64_t at) const { return reachOf(columns, byColumnStride, at, outputColumns); }

private:
  static std::int64_t reachable(const WindowAxis& axis) { return axis.size + axis.pad + axis.stride; }
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

} // namespace pdcrt::cuda
