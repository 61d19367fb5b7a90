// The workspace that each kernel takes on a GPU: arithmetic, so that the compiler can plan it where no GPU is. A kernel
// for CUDA declares the same number when it is constructed, and does with it. A class that is missing here has no
// kernel for CUDA, and pdc refuses models that need it.
#pragma once

#include "pdcrt/kernels/Attention.h"
#include "pdcrt/kernels/AveragePool2d.h"
#include "pdcrt/kernels/BatchNorm.h"
#include "pdcrt/kernels/Broadcast.h"
#include "pdcrt/kernels/Concat.h"
#include "pdcrt/kernels/Conv2d.h"
#include "pdcrt/kernels/CumSum.h"
#include "pdcrt/kernels/Dropout.h"
#include "pdcrt/kernels/Gather.h"
#include "pdcrt/kernels/Gru.h"
#include "pdcrt/kernels/LayerNorm.h"
#include "pdcrt/kernels/Linear.h"
#include "pdcrt/kernels/Lstm.h"
#include "pdcrt/kernels/MatMul.h"
#include "pdcrt/kernels/MaxPool2d.h"
#include "pdcrt/kernels/Pad.h"
#include "pdcrt/kernels/RecurrentWeights.h"
#include "pdcrt/kernels/Reduce.h"
#include "pdcrt/kernels/Rnn.h"
#include "pdcrt/kernels/Scatter.h"
#include "pdcrt/kernels/Slice.h"
#include "pdcrt/kernels/Softmax.h"
#include "pdcrt/kernels/SoftmaxCrossEntropy.h"
#include "pdcrt/kernels/TopK.h"
#include "pdcrt/kernels/Transpose.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace pdcrt::cuda {

/// Libraries want workspace at multiples of this; the arena's are of 64.
inline constexpr std::size_t workspaceAlignment = 256;

constexpr std::size_t roundedUp(std::size_t bytes) {
  return (bytes + workspaceAlignment - 1) / workspaceAlignment * workspaceAlignment;
}

/// Of a product of matrices (cuBLASLt): what NVIDIA recommends for its newest devices, and room to align it.
inline constexpr std::size_t productBytes = (std::size_t{32} << 20) + workspaceAlignment;

/// A long sum is cut into parts, each for one block. The parts of one result are added in their order.
struct SumParts {
  std::int64_t parts = 1, size = 0; ///< the last one may be shorter
};
/// For `results` sums of `terms` terms each.
constexpr SumParts partsOf(std::int64_t results, std::int64_t terms) {
  constexpr std::int64_t blocks = 1024, least = 512;
  const std::int64_t wanted = std::max<std::int64_t>(1, blocks / std::max<std::int64_t>(results, 1));
  const std::int64_t parts = std::clamp<std::int64_t>(terms / least, 1, wanted);
  const std::int64_t size = std::max<std::int64_t>(1, (terms + parts - 1) / parts);
  return {std::max<std::int64_t>(1, (terms + size - 1) / size), size};
}
/// The same where a block makes parts of neighbouring results, whose terms lie a row apart: so many at once.
inline constexpr std::int64_t columnsPerBlock = 32;
constexpr SumParts partsOfColumns(std::int64_t results, std::int64_t terms) {
  return partsOf((results + columnsPerBlock - 1) / columnsPerBlock, terms);
}
/// For `sums` sums at once, whose parts are of 8 bytes.
constexpr std::size_t partBytes(std::int64_t results, SumParts parts, std::size_t sums = 1) {
  return static_cast<std::size_t>(parts.parts * results) * sums * sizeof(double);
}

constexpr std::size_t bytesOfFloats(std::int64_t count) {
  return static_cast<std::size_t>(count) * sizeof(float);
}

/// By products: theirs, then the weights of all heads and their gradient. Fused: what was measured.
inline std::size_t workspaceOf(const Attention::Options& o) {
  constexpr Attention::Algorithm fused = Attention::Algorithm::fused;
  const int fusedOnes = (o.algorithms.forward == fused) + (o.algorithms.inputGradient == fused);
  const std::size_t plain =
      roundedUp(productBytes) + 2 * roundedUp(bytesOfFloats(o.batch * o.heads * o.queries * o.keys));
  const std::size_t measured = roundedUp(static_cast<std::size_t>(o.algorithms.workspace)) + workspaceAlignment;
  return std::max(fusedOnes < 2 ? plain : 0, fusedOnes > 0 ? measured : 0);
}
inline std::size_t workspaceOf(const AveragePool2d::Options&) {
  return 0;
}
inline std::size_t workspaceOf(const BatchNorm::Options& o) {
  if (o.input.rank < 2) return 0;
  const std::int64_t channels = std::max<std::int64_t>(1, o.input.dims[1]);
  // Two sums per part, then two results per channel.
  return partBytes(channels, partsOf(channels, o.input.elements() / channels), 2) +
         static_cast<std::size_t>(channels) * 2 * sizeof(float);
}
inline std::size_t workspaceOf(const Broadcast::Options&) {
  return 0;
}
inline std::size_t workspaceOf(const Concat::Options&) {
  return 0;
}
/// Of the sum that a Reduce with these sizes makes: `results` of `terms`.
inline std::size_t workspaceOf(const Reduce::Options& o) {
  std::int64_t terms = 1;
  for (std::int64_t axis : o.axes)
    if (axis >= 0 && axis < o.input.rank) terms *= o.input.dims[axis];
  const std::int64_t results = o.input.elements() / std::max<std::int64_t>(terms, 1);
  return partBytes(results, partsOfColumns(results, terms)); // at least as many as where rows are summed up
}
/// Where the paddings before and after differ, cuDNN gets a copy of the input that is padded already.
inline bool padsDiffer(const Conv2d::Options& o) {
  return o.pads.top != o.pads.bottom || o.pads.left != o.pads.right;
}
inline Shape paddedInput(const Conv2d::Options& o) {
  return {o.input.dims[0], o.input.dims[1], o.input.dims[2] + o.pads.top + o.pads.bottom,
          o.input.dims[3] + o.pads.left + o.pads.right};
}
/// The most that an algorithm of a convolution (cuDNN) may take: what the measured ones do, else four times what it
/// reads and writes as floats, within limits. The upper one leaves room for a copy of all operands with channels last,
/// as tensor cores want them, and as much again and a half.
inline std::size_t convolutionBytes(const Conv2d::Options& o) {
  if (o.algorithms.workspace > 0) return static_cast<std::size_t>(o.algorithms.workspace);
  const std::int64_t elements = o.input.elements() + o.filter.elements() + Conv2d::outputShape(o).elements();
  const std::size_t operands = static_cast<std::size_t>(elements) * (o.element == Element::f32 ? 4 : 2);
  constexpr std::size_t least = std::size_t{8} << 20, enough = std::size_t{256} << 20;
  return std::clamp(roundedUp(4 * bytesOfFloats(elements)), least, std::max(enough, roundedUp(operands * 5 / 2)));
}
inline std::size_t workspaceOf(const Conv2d::Options& o) {
  const std::size_t copy = padsDiffer(o) ? roundedUp(bytesOfFloats(paddedInput(o).elements())) : 0;
  const Shape y = Conv2d::outputShape(o);
  return std::max(convolutionBytes(o) + workspaceAlignment + copy, workspaceOf(Reduce::Options{y, {0, 2, 3}}));
}
inline std::size_t workspaceOf(const CumSum::Options&) {
  return 0;
}
inline std::size_t workspaceOf(const Dropout::Options&) {
  return 0;
}
/// Where the first and the last index of each row are, and the next one after each.
inline std::size_t indexedRowBytes(std::int64_t size, std::int64_t count) {
  return static_cast<std::size_t>(2 * size + count) * sizeof(std::int32_t);
}
inline std::size_t workspaceOf(const Gather::Options& o) {
  return indexedRowBytes(o.size, o.count);
}
/// The products', then p and the gradient of the state.
inline std::size_t workspaceOf(const Gru::Options& o) {
  return roundedUp(productBytes) + bytesOfFloats(4 * o.batch * o.hidden);
}
inline std::size_t workspaceOf(const LayerNorm::Options& o) {
  return partBytes(o.size, partsOfColumns(o.size, o.rows), 2);
}
inline std::size_t workspaceOf(const Linear::Options& o) {
  return std::max(productBytes, partBytes(o.outputs, partsOfColumns(o.outputs, o.rows)));
}
/// The products', then gates and cells that nobody keeps, or the gradients of the state.
inline std::size_t workspaceOf(const Lstm::Options& o) {
  return roundedUp(productBytes) + bytesOfFloats(6 * o.batch * o.hidden);
}
inline std::size_t workspaceOf(const MatMul::Options&) {
  return productBytes;
}
inline std::size_t workspaceOf(const MaxPool2d::Options&) {
  return 0;
}
inline std::size_t workspaceOf(const Pad::Options&) {
  return 0;
}
inline std::size_t workspaceOf(const RecurrentWeights::Options& o) {
  return std::max(productBytes, partBytes(o.gates, partsOfColumns(o.gates, o.steps * o.batch)));
}
inline std::size_t workspaceOf(const Rnn::Options& o) {
  return roundedUp(productBytes) + bytesOfFloats(o.batch * o.hidden);
}
inline std::size_t workspaceOf(const Scatter::Options& o) {
  return indexedRowBytes(o.size, o.count);
}
inline std::size_t workspaceOf(const Slice::Options&) {
  return 0;
}
inline std::size_t workspaceOf(const Softmax::Options&) {
  return 0;
}
inline std::size_t workspaceOf(const SoftmaxCrossEntropy::Options& o) {
  return static_cast<std::size_t>(std::max<std::int64_t>(1, o.batch * o.inner)) * 2 * sizeof(double);
}
inline std::size_t workspaceOf(const TopK::Options&) {
  return 0;
}
inline std::size_t workspaceOf(const Transpose::Options&) {
  return 0;
}

} // namespace pdcrt::cuda
