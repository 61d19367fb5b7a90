// See MaxPool2d.h, and Pooling.h for what a thread does. Windows of 2 x 2 side by side, the most common ones, have
// kernels of their own: each element is in one window, so that a thread moves two whole windows, 16 bytes of each row.
#include "pdcrt/kernels/MaxPool2d.h"

#include "cuda/support/Pooling.h"

#include <limits>

namespace pdcrt {
namespace {

using cuda::aligned;
using Sizes = cuda::PoolingSizes;

/// So many neighbouring loads do not wait for each other: the windows of 3 x 3 and what is narrower have one round a
/// row.
constexpr int atOnce = 3;

constexpr float least = -std::numeric_limits<float>::infinity();

/// The largest value so far, and where in its plane it is.
struct Largest {
  float value;
  std::int32_t at; ///< what an index can say

  __device__ void compare(float other, std::int64_t otherAt) {
    if (other > value || (other != other && value == value)) {
      value = other;
      at = static_cast<std::int32_t>(otherAt);
    }
  }
};

/// As results i … i + n - 1.
template <int n>
__device__ void storeLargest(const Largest (&best)[n], float* y, std::int32_t* index, std::int64_t i) {
  Pack<float, n> values;
  Pack<std::int32_t, n> at;
  for (int k = 0; k < n; ++k) {
    values[k] = best[k].value;
    at[k] = best[k].at;
  }
  storePack(View(y), i, values);
  if (index) storePack(View(index), i, at);
}

/// For n channels that lie together.
template <int n, bool together>
__global__ void pool(Sizes s, bool relu, const float* x, float* y, std::int32_t* index) {
  const std::int64_t lanes = together ? s.lanes : 1;
  for (std::int64_t i = thread() * n; i < s.outputs(); i += threads() * n) {
    const auto [position, lane] = s.laneOf<together>(i);
    const auto [of, row, column] = s.ofOutput(position);
    const float* const plane = x + of * s.rows.size * s.columns.size * lanes + lane;
    const std::int64_t top = s.rows.start(row), left = s.columns.start(column);
    const auto rows = s.rowTaps(row), columns = s.columnTaps(column);
    const auto at = [&](std::int64_t r, std::int64_t c) {
      return (top + r * s.rows.dilation) * s.columns.size + left + c * s.columns.dilation;
    };
    Largest best[n];
    // Something smaller than, or equal to, the first value of the window.
    const Largest first =
        relu ? Largest{0, -1} : Largest{least, static_cast<std::int32_t>(at(rows.first, columns.first))};
    for (Largest& ofLane : best) ofLane = first;
    for (std::int64_t r = rows.first; r < rows.last; ++r)
      for (std::int64_t c = columns.first; c < columns.last; c += atOnce) {
        const std::int64_t here = at(r, c);
        Pack<float, n> values[atOnce]; // beyond the window its last one again, which does not win then
        for (int k = 0; k < atOnce; ++k)
          values[k] = loadPack<n>(View(plane), at(r, minimum(c + k, columns.last - 1)) * lanes);
        for (int k = 0; k < atOnce; ++k)
          for (int e = 0; e < n; ++e) best[e].compare(values[k][e], here + k * s.columns.dilation);
      }
    storeLargest(best, y, index, i);
  }
}

/// For n neighbours of a row.
template <int n>
__global__ void unpool(Sizes s, const float* dy, const std::int32_t* index, float* dx) {
  for (std::int64_t i = thread() * n; i < s.planes * s.rows.size * s.columns.size; i += threads() * n) {
    const auto [plane, row, column] = s.ofInput(i);
    const auto here = static_cast<std::int32_t>(row * s.columns.size + column);
    const auto rows = s.rowsFrom(row);
    const std::int64_t first = s.columnsFrom(column).first, last = s.columnsFrom(column + n - 1).last;
    Pack<float, n> sums = {};
    for (std::int64_t r = rows.first; r <= rows.last; ++r)
      for (std::int64_t c = first; c <= last; c += atOnce) {
        const std::int64_t output = (plane * s.outputRows + r) * s.outputColumns + c;
        std::int32_t from[atOnce]; // which of the neighbours
        float gradients[atOnce];
        for (int k = 0; k < atOnce; ++k) {
          from[k] = c + k <= last ? index[output + k] - here : -1;
          gradients[k] = c + k <= last ? dy[output + k] : 0.0f;
        }
        for (int k = 0; k < atOnce; ++k)
          for (int neighbour = 0; neighbour < n; ++neighbour)
            if (from[k] == neighbour) sums[neighbour] += gradients[k];
      }
    storePack(View(dx), i, sums);
  }
}

/// For n channels that lie together.
template <int n>
__global__ void unpoolLanes(Sizes s, const float* dy, const std::int32_t* index, float* dx) {
  constexpr int outputsAtOnce = 2; // as many as there are of windows of 3 with strides of 2
  for (std::int64_t i = thread() * n; i < s.inputs(); i += threads() * n) {
    const auto [position, lane] = s.laneOf<true>(i);
    const auto [plane, row, column] = s.ofInput(position);
    const auto here = static_cast<std::int32_t>(row * s.columns.size + column);
    const auto rows = s.rowsFrom(row), columns = s.columnsFrom(column);
    Pack<float, n> sums = {};
    for (std::int64_t r = rows.first; r <= rows.last; ++r)
      for (std::int64_t c = columns.first; c <= columns.last; c += outputsAtOnce) {
        const std::int64_t output = ((plane * s.outputRows + r) * s.outputColumns + c) * s.lanes + lane;
        Pack<std::int32_t, n> at[outputsAtOnce];
        Pack<float, n> gradients[outputsAtOnce] = {};
        for (int k = 0; k < outputsAtOnce; ++k)
          if (c + k <= columns.last) {
            at[k] = loadPack<n>(View(index), output + k * s.lanes);
            gradients[k] = loadPack<n>(View(dy), output + k * s.lanes);
          }
        for (int k = 0; k < outputsAtOnce; ++k)
          for (int e = 0; e < n; ++e)
            if (c + k <= columns.last && at[k][e] == here) sums[e] += gradients[k][e];
      }
    storePack(View(dx), i, sums);
  }
}

/// The same where windows of 2 x 2 fill the planes: from the outputs, so that each is read once.
template <int n>
__global__ void unpoolHalves(Sizes s, const float* dy, const std::int32_t* index, float* dx) {
  for (std::int64_t i = thread() * n; i < s.outputs(); i += threads() * n) {
    const auto [position, lane] = s.laneOf<true>(i);
    const auto [of, row, column] = s.ofOutput(position);
    const Pack<float, n> gradients = loadPack<n>(View(dy), i);
    const Pack<std::int32_t, n> at = loadPack<n>(View(index), i);
    for (int tap = 0; tap < 4; ++tap) {
      const std::int64_t here = (row * 2 + tap / 2) * s.columns.size + column * 2 + tap % 2;
      Pack<float, n> sums = {};
      for (int e = 0; e < n; ++e)
        if (at[e] == static_cast<std::int32_t>(here)) sums[e] += gradients[e];
      const std::int64_t to = (of * s.rows.size * s.columns.size + here) * s.lanes + lane;
      // This is a multiple of n already. The compiler has to see it, or it stores the elements one by one.
      storePack(View(dx), to & ~std::int64_t{n - 1}, sums);
    }
  }
}

/// Two windows of 2 x 2, of results i and i + 1.
struct TwoWindows {
  std::int64_t plane, corner; ///< where the plane begins, and the windows in it

  __device__ TwoWindows(const Sizes& s, std::int64_t i) {
    const auto [of, row, column] = s.ofOutput(i);
    plane = of * s.rows.size * s.columns.size;
    corner = row * 2 * s.columns.size + column * 2;
  }
};

__global__ void poolPairs(Sizes s, bool relu, const float* x, float* y, std::int32_t* index) {
  for (std::int64_t i = thread() * 2; i < s.planes * s.outputRows * s.outputColumns; i += threads() * 2) {
    const TwoWindows in(s, i);
    const std::int64_t below = in.corner + s.columns.size;
    const Pack<float, 4> rows[2] = {loadPack<4>(View(x), in.plane + in.corner), loadPack<4>(View(x), in.plane + below)};
    const auto first = static_cast<std::int32_t>(in.corner);
    Largest best[2] = {{least, first}, {least, first + 2}};
    if (relu) best[0] = best[1] = {0, -1};
    for (int k = 0; k < 2; ++k)
      for (int r = 0; r < 2; ++r)
        for (int c = 2 * k; c < 2 * k + 2; ++c) best[k].compare(rows[r][c], (r == 0 ? in.corner : below) + c);
    storeLargest(best, y, index, i);
  }
}

__global__ void unpoolPairs(Sizes s, const float* dy, const std::int32_t* index, float* dx) {
  for (std::int64_t i = thread() * 2; i < s.planes * s.outputRows * s.outputColumns; i += threads() * 2) {
    const TwoWindows in(s, i);
    const Pack<float, 2> gradients = loadPack<2>(View(dy), i);
    const Pack<std::int32_t, 2> at = loadPack<2>(View(index), i);
    for (int r = 0; r < 2; ++r) {
      const std::int64_t from = in.corner + r * s.columns.size;
      Pack<float, 4> row = {};
      for (int c = 0; c < 4; ++c)
        if (at[c / 2] - static_cast<std::int32_t>(from) == c) row[c] += gradients[c / 2];
      // This is a multiple of 4 already. The compiler has to see it, or it stores the elements one by one.
      storePack(View(dx), (in.plane + from) & ~std::int64_t{3}, row);
    }
  }
}

/// Whether windows of 2 x 2 fill an axis.
bool halves(const WindowAxis& axis, std::int64_t outputs) {
  return axis.kernel == 2 && axis.stride == 2 && axis.pad == 0 && axis.dilation == 1 && axis.size == 2 * outputs;
}
bool comesInHalves(const Sizes& s) {
  return halves(s.rows, s.outputRows) && halves(s.columns, s.outputColumns);
}
bool comesInPairs(const Sizes& s) {
  return s.lanes == 1 && comesInHalves(s) && s.outputColumns % 2 == 0;
}

Sizes sizesOf(const MaxPool2d::Options& o) {
  return {o,
          {o.input.dims[2], o.kernel.height, o.strides.height, o.pads.top, o.dilations.height},
          {o.input.dims[3], o.kernel.width, o.strides.width, o.pads.left, o.dilations.width}};
}

} // namespace

MaxPool2d::MaxPool2d(Setup&, const Options& o) : options_(o) {
  cuda::checkLanes(o.input, o.lanes);
  const Sizes s = sizesOf(o);
  checkPooling(o.input, o.output, {s.rows, s.columns}, 1);
}

void MaxPool2d::forward(Stream& q, View<const float> x, View<float> y, View<std::int32_t> index) const {
  const Sizes s = sizesOf(options_);
  constexpr const char* name = "max pooling";
  if (comesInPairs(s) && aligned<4>(x.data) && aligned<2>(y.data) && aligned<2>(index.data))
    return launchLoop(q, name, poolPairs, s.outputs() / 2, s, options_.relu, x.data, y.data, index.data);
  const bool packs = aligned<4>(x.data) && aligned<4>(y.data) && aligned<4>(index.data);
  cuda::withLanes(
      s.lanes, packs, [&]<int n, bool together>(std::integral_constant<int, n>, std::bool_constant<together>) {
        launchLoop(q, name, pool<n, together>, s.outputs() / n, s, options_.relu, x.data, y.data, index.data);
      });
}

void MaxPool2d::inputGradient(Stream& q, View<const float> dy, View<const std::int32_t> index, View<float> dx) const {
  const Sizes s = sizesOf(options_);
  constexpr const char* name = "max pooling, gradient";
  const auto launch = [&](auto kernel, std::int64_t count) {
    launchLoop(q, name, kernel, count, s, dy.data, index.data, dx.data);
  };
  if (comesInPairs(s) && aligned<2>(dy.data) && aligned<2>(index.data) && aligned<4>(dx.data))
    return launch(unpoolPairs, s.outputs() / 2);
  const bool packs = aligned<4>(dy.data) && aligned<4>(index.data) && aligned<4>(dx.data);
  cuda::withLanes(s.lanes, packs,
                  [&]<int n, bool together>(std::integral_constant<int, n>, std::bool_constant<together>) {
                    if (together && comesInHalves(s))
                      launch(unpoolHalves<n>, s.outputs() / n);
                    else if (together)
                      launch(unpoolLanes<n>, s.inputs() / n);
                    else if (s.columns.size % 4 == 0 && aligned<4>(dx.data))
                      launch(unpool<4>, s.inputs() / 4);
                    else
                      launch(unpool<1>, s.inputs());
                  });
}

} // namespace pdcrt
