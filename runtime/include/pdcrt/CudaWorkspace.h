// The workspace that each kernel takes on a GPU: arithmetic, so that the compiler can plan it where no GPU is. A kernel
// for CUDA declares the same number when it is constructed, and does with it. A class that is missing here has no
// kernel for CUDA, and pdc refuses models that need it.
#pragma once

#include "pdcrt/PaddedProduct.h"
#include "pdcrt/kernels/Attention.h"
#include "pdcrt/kernels/AveragePool2d.h"
#include "pdcrt/kernels/BatchNorm.h"
#include "pdcrt/kernels/Broadcast.h"
#include "pdcrt/kernels/Concat.h"
#include "pdcrt/kernels/Conv2d.h"
#include "pdcrt/kernels/CumSum.h"
#include "pdcrt/kernels/Dropout.h"
#include "pdcrt/kernels/Experts.h"
#include "pdcrt/kernels/Gather.h"
#include "pdcrt/kernels/Gru.h"
#include "pdcrt/kernels/LayerNorm.h"
#include "pdcrt/kernels/Linear.h"
#include "pdcrt/kernels/LinearInt8.h"
#include "pdcrt/kernels/LinearOfRows.h"
#include "pdcrt/kernels/Lstm.h"
#include "pdcrt/kernels/MatMul.h"
#include "pdcrt/kernels/MaxPool2d.h"
#include "pdcrt/kernels/MultiHeadAttention.h"
#include "pdcrt/kernels/OwnPart.h"
#include "pdcrt/kernels/Pad.h"
#include "pdcrt/kernels/RecurrentWeights.h"
#include "pdcrt/kernels/Reduce.h"
#include "pdcrt/kernels/Rnn.h"
#include "pdcrt/kernels/Scatter.h"
#include "pdcrt/kernels/Slice.h"
#include "pdcrt/kernels/Softmax.h"
#include "pdcrt/kernels/SoftmaxCrossEntropy.h"
#include "pdcrt/kernels/SoftmaxCrossEntropyParts.h"
#include "pdcrt/kernels/TeamExchange.h"
#include "pdcrt/kernels/TeamGather.h"
#include "pdcrt/kernels/TeamReduce.h"
#include "pdcrt/kernels/TeamScatter.h"
#include "pdcrt/kernels/TopK.h"
#include "pdcrt/kernels/Transpose.h"

#include <algorithm>
#include <array>
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
/// For `results` sums of `terms` terms each, of which a part has at least so many.
constexpr SumParts partsOf(std::int64_t results, std::int64_t terms, std::int64_t least = 512) {
  constexpr std::int64_t blocks = 1024;
  const std::int64_t wanted = std::max<std::int64_t>(1, blocks / std::max<std::int64_t>(results, 1));
  const std::int64_t parts = std::clamp<std::int64_t>(terms / least, 1, wanted);
  const std::int64_t size = std::max<std::int64_t>(1, (terms + parts - 1) / parts);
  return {std::max<std::int64_t>(1, (terms + size - 1) / size), size};
}
/// The same where a block makes parts of neighbouring results, whose terms lie a row apart: so many at once.
inline constexpr std::int64_t columnsPerBlock = 32;
constexpr SumParts partsOfColumns(std::int64_t results, std::int64_t terms) {
  constexpr std::int64_t least = 256; // a block reads up to 64 rows at once
  return partsOf((results + columnsPerBlock - 1) / columnsPerBlock, terms, least);
}
/// The same of channels of which `lanes` lie together at each position: a block has so many of these at most. So few
/// terms are enough for a part that all positions of the smallest planes make enough blocks.
inline constexpr std::int64_t lanesPerBlock = 128;
constexpr SumParts partsOfLanes(std::int64_t channels, std::int64_t lanes, std::int64_t terms) {
  if (lanes <= 1) return partsOf(channels, terms);
  const std::int64_t tiles = channels / lanes * ((lanes + lanesPerBlock - 1) / lanesPerBlock);
  return partsOf(tiles, terms, 4096 / std::min(lanes, lanesPerBlock));
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
/// What is not fused copies heads apart.
inline std::size_t workspaceOf(const MultiHeadAttention::Options& o) {
  constexpr Attention::Algorithm fused = Attention::Algorithm::fused;
  const bool copies = o.algorithms.forward != fused || o.algorithms.inputGradient != fused;
  return workspaceOf(MultiHeadAttention::attentionOf(o)) +
         (copies ? MultiHeadAttention::copyBytes(o) + workspaceAlignment : 0);
}
inline std::size_t workspaceOf(const AveragePool2d::Options&) {
  return 0;
}
inline std::size_t workspaceOf(const BatchNorm::Options& o) {
  if (o.input.rank < 2) return 0;
  const std::int64_t channels = std::max<std::int64_t>(1, o.input.dims[1]);
  // Two sums per part, then two results per channel.
  return partBytes(channels, partsOfLanes(channels, o.lanes, o.input.elements() / channels), 2) +
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
/// Where, in the workspace, y lies that is pooled.
inline std::size_t pooledFrom(const Conv2d::Options& o) {
  const std::size_t copy = padsDiffer(o) ? roundedUp(bytesOfFloats(paddedInput(o).elements())) : 0;
  return roundedUp(convolutionBytes(o) + copy);
}
inline std::size_t workspaceOf(const Conv2d::Options& o) {
  const Shape y = Conv2d::outputShape(o);
  return std::max(pooledFrom(o) + workspaceAlignment + (o.pooled ? bytesOfFloats(y.elements()) : 0),
                  workspaceOf(Reduce::Options{y, {0, 2, 3}}));
}
inline std::size_t workspaceOf(const CumSum::Options&) {
  return 0;
}
inline std::size_t workspaceOf(const Dropout::Options&) {
  return 0;
}
/// Of indices sorted by their rows: a key of 8 bytes each, twice.
inline std::size_t sortedRowBytes(std::int64_t count) {
  return 2 * roundedUp(static_cast<std::size_t>(count) * sizeof(std::uint64_t));
}
/// Of rows that one index names, so many are summed up at once.
inline constexpr std::int64_t indicesPerPiece = 64;
/// At most so many such sums are parts of others: as many as are complete, and as many as follow their first.
constexpr std::int64_t piecesOf(std::int64_t count) {
  return count > indicesPerPiece ? 2 * ((count + indicesPerPiece - 1) / indicesPerPiece) : 0;
}
/// The places that the choices name, sorted, and before that as they are.
inline std::size_t workspaceOf(const Experts::Options& o) {
  const std::int64_t count = o.groups * o.tokens * o.choices;
  return sortedRowBytes(count) + static_cast<std::size_t>(count) * sizeof(std::int64_t);
}
inline std::size_t workspaceOf(const Gather::Options& o) {
  return sortedRowBytes(o.count) + bytesOfFloats(o.outer * piecesOf(o.count) * o.inner);
}
/// The products', then p and the gradient of the state.
inline std::size_t workspaceOf(const Gru::Options& o) {
  return roundedUp(productBytes) + bytesOfFloats(4 * o.batch * o.hidden);
}
inline std::size_t workspaceOf(const LayerNorm::Options& o) {
  return partBytes(o.size, partsOfColumns(o.size, o.rows), 2);
}
/// Forward, the gradient of the input and that of the weights.
inline std::array<ProductSizes, 3> productsOf(const Linear::Options& o) {
  // The gradient of the weights is [outputs, inputs], or [inputs, outputs].
  return {{{.m = o.rows, .k = o.inputs, .n = o.outputs, .transposeB = o.transposed},
           {.m = o.rows, .k = o.outputs, .n = o.inputs, .transposeB = !o.transposed},
           {.m = o.transposed ? o.outputs : o.inputs,
            .k = o.rows,
            .n = o.transposed ? o.inputs : o.outputs,
            .transposeA = true,
            .wideResult = o.wideGradient && o.element != Element::f32}}};
}
/// The products', then copies of their matrices.
inline std::size_t workspaceOf(const Linear::Options& o) {
  std::size_t copies = 0;
  for (const ProductSizes& sizes : productsOf(o)) copies = std::max(copies, paddedProduct(sizes, o.element).bytes);
  return std::max(productBytes + copies, partBytes(o.outputs, partsOfColumns(o.outputs, o.rows)));
}
/// Outputs of the gradient whose weights are floats at a time: 16 MiB of them.
inline std::int64_t outputsAtOnce(const LinearInt8::Options& o) {
  constexpr std::int64_t floats = 4 << 20, alignedTo = 64;
  return std::min(o.outputs, std::max<std::int64_t>(1, floats / o.inputs / alignedTo) * alignedTo);
}
/// Forward: which inputs are outliers, scales and integers of the rows. Backward: the product's, then weights as
/// floats, then some columns of the gradient.
inline std::size_t workspaceOf(const LinearInt8::Options& o) {
  if (o.inputs < 1) return 0;
  const std::size_t forward = 3 * roundedUp(bytesOfFloats(o.inputs)) + roundedUp(bytesOfFloats(1)) +
                              roundedUp(bytesOfFloats(o.rows)) +
                              roundedUp(bytesOfFloats(o.rows * ((o.inputs + 3) / 4)));
  const std::int64_t some = outputsAtOnce(o);
  const std::size_t backward =
      productBytes + roundedUp(bytesOfFloats(some * o.inputs)) + roundedUp(bytesOfFloats(some * o.rows));
  return std::max(forward, backward) + workspaceAlignment;
}
inline std::size_t workspaceOf(const LinearOfRows::Options&) {
  return productBytes;
}
/// The products', then gates and cells that nobody keeps, or the gradients of the state.
inline std::size_t workspaceOf(const Lstm::Options& o) {
  return roundedUp(productBytes) + bytesOfFloats(6 * o.batch * o.hidden);
}
inline PaddedProduct paddedProduct(const MatMul::Options& o) {
  if (o.batch != 1) return {};
  return paddedProduct({.m = o.m, .k = o.k, .n = o.n, .transposeA = o.transposeA, .transposeB = o.transposeB},
                       o.element);
}
inline std::size_t workspaceOf(const MatMul::Options& o) {
  return productBytes + paddedProduct(o).bytes;
}
inline std::size_t workspaceOf(const MaxPool2d::Options&) {
  return 0;
}
inline std::size_t workspaceOf(const OwnPart::Options&) {
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
  return sortedRowBytes(o.count);
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
inline std::size_t workspaceOf(const SoftmaxCrossEntropyParts::Options&) {
  return 0;
}
inline std::size_t workspaceOf(const TeamExchange::Options&) {
  return 0;
}
inline std::size_t workspaceOf(const TeamGather::Options&) {
  return 0;
}
inline std::size_t workspaceOf(const TeamReduce::Options&) {
  return 0;
}
inline std::size_t workspaceOf(const TeamScatter::Options&) {
  return 0;
}
inline std::size_t workspaceOf(const TopK::Options&) {
  return 0;
}
inline std::size_t workspaceOf(const Transpose::Options&) {
  return 0;
}

} // namespace pdcrt::cuda
