// See AveragePool2d.h, and Pooling.h for what a thread does.
#include "pdcrt/kernels/AveragePool2d.h"

#include "cuda/support/Pooling.h"

namespace pdcrt {
namespace {

struct Sizes : cuda::PoolingSizes {
  bool countPads;
  std::int64_t padBelow, padRight;
};

/// The taps of the window at `position` that count: those inside, or those inside or in the padding.
__device__ std::int64_t counted(const WindowAxis& axis, cuda::PoolingSizes::Taps inside, std::int64_t position,
                                bool countPads, std::int64_t padAfter) {
  if (!countPads) return inside.last - inside.first;
  const std::int64_t room = axis.size + padAfter - axis.start(position);
  return room < axis.kernel ? room : axis.kernel;
}
__device__ double factorOf(const Sizes& s, std::int64_t row, std::int64_t column) {
  return 1.0 / static_cast<double>(counted(s.rows, s.rowTaps(row), row, s.countPads, s.padBelow) *
                                   counted(s.columns, s.columnTaps(column), column, s.countPads, s.padRight));
}

/// For n channels that lie together.
template <int n, bool together>
__global__ void pool(Sizes s, const float* x, float* y) {
  constexpr int atOnce = 4; // so many loads do not wait for each other
  const std::int64_t lanes = together ? s.lanes : 1;
  for (std::int64_t i = thread() * n; i < s.outputs(); i += threads() * n) {
    const auto [position, lane] = s.laneOf<together>(i);
    const auto [of, row, column] = s.ofOutput(position);
    const float* const plane = x + of * s.rows.size * s.columns.size * lanes + lane;
    const std::int64_t top = s.rows.start(row), left = s.columns.start(column);
    const auto rows = s.rowTaps(row), columns = s.columnTaps(column);
    double sums[n] = {};
    for (std::int64_t r = rows.first; r < rows.last; ++r)
      for (std::int64_t c = columns.first; c < columns.last; c += atOnce) {
        Pack<float, n> values[atOnce] = {};
        for (int k = 0; k < atOnce; ++k)
          if (c + k < columns.last)
            values[k] = loadPack<n>(View(plane), ((top + r) * s.columns.size + left + c + k) * lanes);
        for (int k = 0; k < atOnce; ++k)
          for (int e = 0; e < n; ++e) sums[e] += values[k][e];
      }
    const double factor = factorOf(s, row, column);
    Pack<float, n> means;
    for (int e = 0; e < n; ++e) means[e] = static_cast<float>(sums[e] * factor);
    storePack(View(y), i, means);
  }
}

/// The same.
template <int n, bool together>
__global__ void unpool(Sizes s, const float* dy, float* dx) {
  const std::int64_t lanes = together ? s.lanes : 1;
  for (std::int64_t i = thread() * n; i < s.inputs(); i += threads() * n) {
    const auto [position, lane] = s.laneOf<together>(i);
    const auto [plane, row, column] = s.ofInput(position);
    const auto rows = s.rowsFrom(row), columns = s.columnsFrom(column);
    Pack<float, n> sums = {};
    for (std::int64_t r = rows.first; r <= rows.last; ++r)
      for (std::int64_t c = columns.first; c <= columns.last; ++c) {
        const std::int64_t output = (plane * s.outputRows + r) * s.outputColumns + c;
        const Pack<float, n> gradients = loadPack<n>(View(dy), output * lanes + lane);
        const double factor = factorOf(s, r, c);
        for (int e = 0; e < n; ++e) sums[e] += static_cast<float>(gradients[e] * factor);
      }
    storePack(View(dx), i, sums);
  }
}

Sizes sizesOf(const AveragePool2d::Options& o) {
  return {{o,
           {o.input.dims[2], o.kernel.height, o.strides.height, o.pads.top, 1},
           {o.input.dims[3], o.kernel.width, o.strides.width, o.pads.left, 1}},
          o.countIncludePad,
          o.pads.bottom,
          o.pads.right};
}

} // namespace

AveragePool2d::AveragePool2d(Setup&, const Options& o) : options_(o) {
  cuda::checkLanes(o.input, o.lanes);
  const Sizes s = sizesOf(o);
  checkPooling(o.input, o.output, {s.rows, s.columns}, 1);
}

void AveragePool2d::forward(Stream& q, View<const float> x, View<float> y) const {
  const Sizes s = sizesOf(options_);
  cuda::withLanes(s.lanes, cuda::aligned<4>(x.data) && cuda::aligned<4>(y.data),
                  [&]<int n, bool together>(std::integral_constant<int, n>, std::bool_constant<together>) {
                    launchLoop(q, "average pooling", pool<n, together>, s.outputs() / n, s, x.data, y.data);
                  });
}

void AveragePool2d::inputGradient(Stream& q, View<const float> dy, View<float> dx) const {
  const Sizes s = sizesOf(options_);
  cuda::withLanes(s.lanes, cuda::aligned<4>(dy.data) && cuda::aligned<4>(dx.data),
                  [&]<int n, bool together>(std::integral_constant<int, n>, std::bool_constant<together>) {
                    launchLoop(q, "average pooling, gradient", unpool<n, together>, s.inputs() / n, s, dy.data,
                               dx.data);
                  });
}

} // namespace pdcrt
