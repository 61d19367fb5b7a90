// See LinearInt8.h. Integers are multiplied four at a time (dp4a), in tiles that a block shares; what is rounded is
// rounded in the order of the definition, so that the bits are those of the CPU's kernel. The gradient is a product of
// floats, for which some outputs' weights at a time become floats.
#include "pdcrt/kernels/LinearInt8.h"

#include "cuda/support/Product.h"
#include "device/cuda/Cuda.h"
#include "pdcrt/CudaWorkspace.h"
#include "pdcrt/Int8.h"

#include <optional>
#include <stdexcept>

namespace pdcrt {
namespace {

using cuda::blockCombine;

/// A product that no sum may be fused with.
__device__ float product(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}

/// sum + the products of four integers each.
__device__ std::int32_t addProducts(std::int32_t a, std::int32_t b, std::int32_t sum) {
#ifdef __CUDA_ARCH__
  return __dp4a(a, b, sum);
#else
  for (int i = 0; i < 32; i += 8) sum += static_cast<std::int8_t>(a >> i) * static_cast<std::int8_t>(b >> i);
  return sum;
#endif
}

struct Int8Sizes {
  std::int64_t rows, inputs, outputs, kept;
  float alpha;

  __host__ __device__ std::int64_t groups() const { return (inputs + 3) / 4; }
};

/// In the workspace: for each input whether it is an outlier, and its row among the kept weights or -1; the outliers,
/// and how many there are; scales and integers of the rows.
struct Int8Workspace {
  std::int32_t *isOutlier, *keptRow, *outliers, *count;
  float* steps;
  std::int32_t* integers;

  Int8Workspace(const Int8Sizes& s, std::byte* begin) {
    std::byte* at = begin;
    const auto take = [&](std::int64_t elements) {
      std::byte* const here = at;
      at += cuda::roundedUp(static_cast<std::size_t>(elements) * sizeof(float));
      return here;
    };
    isOutlier = reinterpret_cast<std::int32_t*>(take(s.inputs));
    keptRow = reinterpret_cast<std::int32_t*>(take(s.inputs));
    outliers = reinterpret_cast<std::int32_t*>(take(s.inputs));
    count = reinterpret_cast<std::int32_t*>(take(1));
    steps = reinterpret_cast<float*>(take(s.rows));
    integers = reinterpret_cast<std::int32_t*>(take(s.rows * s.groups()));
  }
};

__global__ void findOutliers(Int8Sizes s, const float* x, const std::int32_t* keptInputs, Int8Workspace own) {
  for (std::int64_t i = thread(); i < s.inputs; i += threads()) {
    std::int32_t row = -1;
    for (std::int64_t e = 0; e < s.kept; ++e)
      if (keptInputs[e] == i) row = static_cast<std::int32_t>(e);
    bool isOutlier = row >= 0;
    for (std::int64_t j = 0; j < s.rows; ++j) isOutlier |= !(std::fabs(x[j * s.inputs + i]) < s.alpha);
    own.keptRow[i] = row;
    own.isOutlier[i] = isOutlier;
  }
}

/// An outlier's place is the number of those before it.
__global__ void listOutliers(Int8Sizes s, Int8Workspace own) {
  for (std::int64_t i = thread(); i < s.inputs; i += threads()) {
    if (!own.isOutlier[i] && i != s.inputs - 1) continue;
    std::int32_t before = 0;
    for (std::int64_t other = 0; other < i; ++other) before += own.isOutlier[other];
    if (own.isOutlier[i]) own.outliers[before] = static_cast<std::int32_t>(i);
    if (i == s.inputs - 1) *own.count = before + own.isOutlier[i];
  }
}

/// One block per row.
__global__ void quantizeRows(Int8Sizes s, const float* x, Int8Workspace own) {
  for (std::int64_t row = blockIdx.x; row < s.rows; row += gridDim.x) {
    const float* const from = x + row * s.inputs;
    float most = 0;
    for (std::int64_t i = threadIdx.x; i < s.inputs; i += blockDim.x)
      if (!own.isOutlier[i]) most = maximum(most, std::fabs(from[i]));
    const float step = blockCombine(most, 0.0f, cuda::Larger()) / int8::largest;
    if (threadIdx.x == 0) own.steps[row] = step;
    for (std::int64_t g = threadIdx.x; g < s.groups(); g += blockDim.x) {
      std::uint32_t four = 0;
      for (std::int64_t i = 4 * g; i < 4 * g + 4 && i < s.inputs; ++i) {
        if (own.isOutlier[i] || !(step > 0)) continue;
        const float rounded = fminf(fmaxf(rintf(from[i] / step), -int8::largest), int8::largest);
        four |= (static_cast<std::uint32_t>(static_cast<std::int32_t>(rounded)) & 0xFFu) << (8 * (i % 4));
      }
      own.integers[row * s.groups() + g] = static_cast<std::int32_t>(four);
    }
  }
}

constexpr int tile = 32, groupsAtOnce = 16; ///< rows and outputs of a block, and what it shares of them
constexpr int perThread = tile * tile / static_cast<int>(threadsPerBlock);

__device__ std::int32_t groupOf(Int8Sizes s, const std::int8_t* row, std::int64_t group) {
  std::uint32_t four = 0;
  for (std::int64_t i = 4 * group; i < 4 * group + 4 && i < s.inputs; ++i)
    four |= static_cast<std::uint32_t>(static_cast<std::uint8_t>(row[i])) << (8 * (i % 4));
  return static_cast<std::int32_t>(four);
}

/// `Sum` has 64 bits where 32 are too few for all products of an element.
template <class Sum>
__global__ void multiply(Int8Sizes s, const float* x, const std::int8_t* w, const float* scale, const float* kept,
                         const float* bias, float* y, Int8Workspace own) {
  __shared__ std::int32_t left[tile][groupsAtOnce + 1], right[tile][groupsAtOnce + 1];
  const std::int64_t across = (s.outputs + tile - 1) / tile, down = (s.rows + tile - 1) / tile;
  for (std::int64_t block = blockIdx.x; block < across * down; block += gridDim.x) {
    const std::int64_t row = block / across * tile, column = block % across * tile;
    const int mine = static_cast<int>(threadIdx.x) % tile; // of the outputs; and every so many rows
    Sum sums[perThread] = {};
    for (std::int64_t first = 0; first < s.groups(); first += groupsAtOnce) {
      __syncthreads();
      for (int at = static_cast<int>(threadIdx.x); at < tile * groupsAtOnce; at += static_cast<int>(blockDim.x)) {
        const int r = at / groupsAtOnce, g = at % groupsAtOnce;
        const bool isThere = first + g < s.groups();
        left[r][g] = isThere && row + r < s.rows ? own.integers[(row + r) * s.groups() + first + g] : 0;
        right[r][g] = isThere && column + r < s.outputs ? groupOf(s, w + (column + r) * s.inputs, first + g) : 0;
      }
      __syncthreads();
      for (int n = 0; n < perThread; ++n) {
        const int r = static_cast<int>(threadIdx.x) / tile + n * (tile / perThread);
        std::int32_t sum = 0;
        for (int g = 0; g < groupsAtOnce; ++g) sum = addProducts(left[r][g], right[mine][g], sum);
        sums[n] += sum;
      }
    }
    const std::int64_t output = column + mine;
    for (int n = 0; n < perThread && output < s.outputs; ++n) {
      const std::int64_t j = row + static_cast<int>(threadIdx.x) / tile + n * (tile / perThread);
      if (j >= s.rows) continue;
      float value = product(static_cast<float>(sums[n]), product(own.steps[j], scale[output]));
      for (std::int32_t o = 0; o < *own.count; ++o) {
        const std::int64_t i = own.outliers[o];
        const std::int32_t e = own.keptRow[i];
        const float weight = e >= 0 ? kept[e * s.outputs + output]
                                    : product(static_cast<float>(w[output * s.inputs + i]), scale[output]);
        value = fmaf(x[j * s.inputs + i], weight, value);
      }
      y[j * s.outputs + output] = bias ? value + bias[output] : value;
    }
  }
}

/// The weights of outputs [begin, begin + count) as floats.
__global__ void widen(Int8Sizes s, std::int64_t begin, std::int64_t count, const std::int8_t* w, const float* scale,
                      float* to) {
  for (std::int64_t i = thread(); i < count * s.inputs; i += threads())
    to[i] = product(static_cast<float>(w[begin * s.inputs + i]), scale[begin + i / s.inputs]);
}
__global__ void putKept(Int8Sizes s, std::int64_t begin, std::int64_t count, const float* kept,
                        const std::int32_t* keptInputs, float* to) {
  for (std::int64_t i = thread(); i < count * s.kept; i += threads()) {
    const std::int64_t e = i / count, k = i % count;
    to[k * s.inputs + keptInputs[e]] = kept[e * s.outputs + begin + k];
  }
}

/// Columns of dy, together.
__global__ void copyColumns(Int8Sizes s, std::int64_t begin, std::int64_t count, const float* dy, float* to) {
  for (std::int64_t i = thread(); i < s.rows * count; i += threads())
    to[i] = dy[i / count * s.outputs + begin + i % count];
}

Int8Sizes sizesOf(const LinearInt8::Options& o) {
  return {o.rows, o.inputs, o.outputs, o.kept, static_cast<float>(o.alpha)};
}

} // namespace

struct LinearInt8::Impl {
  Options options;
  /// Of the gradient: of the first outputs, of as many others, and of those that are left.
  cuda::Product first;
  std::optional<cuda::Product> next, last;
};

LinearInt8::LinearInt8(Setup& setup, const Options& o) : impl_(std::make_unique<Impl>()) {
  if (o.rows < 1 || o.inputs < 1 || o.outputs < 1)
    throw std::runtime_error("linear layer of int8 weights, of " + std::to_string(o.rows) + " rows, " +
                             std::to_string(o.inputs) + " inputs, " + std::to_string(o.outputs) +
                             " outputs: sizes must be positive");
  impl_->options = o;
  setup.needWorkspace(cuda::workspaceOf(o));
  const auto product = [&](std::int64_t outputs, bool adds) {
    return cuda::Product({.m = o.rows, .k = outputs, .n = o.inputs, .accumulate = adds});
  };
  const std::int64_t atOnce = cuda::outputsAtOnce(o);
  impl_->first = product(atOnce, false);
  if (o.outputs > atOnce) impl_->next.emplace(product(atOnce, true));
  if (const std::int64_t left = o.outputs % atOnce; left > 0) impl_->last.emplace(product(left, true));
}

LinearInt8::~LinearInt8() = default;
LinearInt8::LinearInt8(LinearInt8&&) noexcept = default;
LinearInt8& LinearInt8::operator=(LinearInt8&&) noexcept = default;

void LinearInt8::forward(Stream& q, View<const float> x, View<const std::int8_t> w, View<const float> scale,
                         View<const float> kept, View<const std::int32_t> keptInputs, View<const float> b,
                         View<float> y) const {
  const Options& o = impl_->options;
  const Int8Sizes s = sizesOf(o);
  const Int8Workspace own(s, cuda::alignedWorkspace(q));
  launchLoop(q, "linear of int8, outliers", findOutliers, s.inputs, s, x.data, keptInputs.data, own);
  launchLoop(q, "linear of int8, outliers", listOutliers, s.inputs, s, own);
  cuda::launchBlocks(q, "linear of int8, rounding", quantizeRows, s.rows, s, x.data, own);
  const std::int64_t blocks = ((s.rows + tile - 1) / tile) * ((s.outputs + tile - 1) / tile);
  cuda::launchBlocks(q, "linear of int8",
                     s.inputs > int8::productsIn32Bits ? multiply<std::int64_t> : multiply<std::int32_t>, blocks, s,
                     x.data, w.data, scale.data, kept.data, o.bias ? b.data : nullptr, y.data, own);
}

void LinearInt8::inputGradient(Stream& q, View<const float> dy, View<const std::int8_t> w, View<const float> scale,
                               View<const float> kept, View<const std::int32_t> keptInputs, View<float> dx) const {
  const Options& o = impl_->options;
  const Int8Sizes s = sizesOf(o);
  const std::int64_t atOnce = cuda::outputsAtOnce(o);
  std::byte* const begin = cuda::alignedWorkspace(q);
  auto* const weights = reinterpret_cast<float*>(begin + cuda::productBytes);
  auto* const columns = reinterpret_cast<float*>(
      begin + cuda::productBytes + cuda::roundedUp(static_cast<std::size_t>(atOnce * o.inputs) * sizeof(float)));
  Stream library = q;
  library.work(begin, cuda::productBytes);
  for (std::int64_t output = 0; output < o.outputs; output += atOnce) {
    const std::int64_t count = std::min(atOnce, o.outputs - output);
    launchLoop(q, "linear of int8, gradient", widen, count * o.inputs, s, output, count, w.data, scale.data, weights);
    if (o.kept > 0)
      launchLoop(q, "linear of int8, gradient", putKept, count * o.kept, s, output, count, kept.data, keptInputs.data,
                 weights);
    launchLoop(q, "linear of int8, gradient", copyColumns, o.rows * count, s, output, count, dy.data, columns);
    const cuda::Product& made = output == 0 ? impl_->first : count == atOnce ? *impl_->next : *impl_->last;
    made.run(library, columns, weights, nullptr, dx.data);
  }
}

} // namespace pdcrt
