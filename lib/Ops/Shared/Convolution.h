// Two-dimensional convolution, as all operations that call pdcrt::Conv2d have it: sizes, attributes, rules and layouts.
#pragma once

#include "Kernels/ConvolutionAlgorithms.h"
#include "Kernels/KernelOptions.h"
#include "Shared/Define.h"
#include "Shared/LoopsOf.h"
#include "Shared/Window.h"

#include "pdcrt/kernels/Conv2d.h"

#include <cstdint>
#include <span>
#include <vector>

namespace pdc::ops {

/// All sizes of a convolution; x is [n, c, h, w], the filter [o, c / groups, kernel], y [n, o, p, q].
struct Convolution {
  Shape x, w, y;
  Window window;
  std::int64_t groups;
  std::int64_t inputLanes, outputLanes; ///< channels per position in memory, of x and y
  std::int64_t filterLanes;             ///< of inputs and of outputs in a block of w
  bool relu;
  ElementType element;
  pdcrt::Conv2d::Algorithms algorithms;

  /// Of an operation with the attributes of convolutionAttributes().
  Convolution(const Operation& op, const Type& xType, const Type& wType, const Type& yType);

  double flops() const { return 2.0 * static_cast<double>(elementsOf(y)) * static_cast<double>(product(w, 1, 4)); }
  pdcrt::Conv2d::Options options(bool bias) const;
  KernelUse kernel(const char* method, bool bias) const {
    return kernelUse<pdcrt::Conv2d>("Conv2d", method, options(bias));
  }
  KernelAlternatives alternatives(const char* method, Target target) const {
    return convolutionAlternatives(options(false), method, target);
  }
  /// Calls visit(position in y, position in x, position in w) for every product of the convolution.
  template <class Visit>
  void forEachProduct(Visit visit) const {
    const std::int64_t outputsPerGroup = w[0] / groups;
    forEachIndex(y, [&, at = std::int64_t{0}](const std::vector<std::int64_t>& i) mutable {
      const std::int64_t firstChannel = i[1] / outputsPerGroup * w[1];
      for (std::int64_t c = 0; c < w[1]; ++c)
        for (std::int64_t r = 0; r < w[2]; ++r)
          for (std::int64_t s = 0; s < w[3]; ++s) {
            const std::int64_t row = i[2] * window.strides[0] - window.before[0] + r * window.dilations[0];
            const std::int64_t column = i[3] * window.strides[1] - window.before[1] + s * window.dilations[1];
            if (row >= 0 && row < x[2] && column >= 0 && column < x[3])
              visit(at, ((i[0] * x[1] + firstChannel + c) * x[2] + row) * x[3] + column,
                    ((i[1] * w[1] + c) * w[2] + r) * w[3] + s);
          }
      ++at;
    });
  }
  /// y of the operands x, w and, if there is one, bias, by the definition. `result` is 0 before.
  template <class T>
  void compute(const ReferenceContext& c, std::span<T> result) const {
    const auto from = c.in<T>(0), filter = c.in<T>(1);
    const std::int64_t plane = product(y, 2, 4), channels = y[1];
    if (c.operands.size() > 2 && c.operands[2])
      for (std::int64_t i = 0; i < elementsOf(y); ++i) result[i] = c.in<T>(2)[i / plane % channels];
    forEachProduct(
        [&](std::int64_t atY, std::int64_t atX, std::int64_t atW) { result[atY] += from[atX] * filter[atW]; });
  }
};

/// Of an operation that reads x, w and perhaps a bias.
Convolution convolutionOf(const Operation& op);

/// Strides, pads, dilations, groups and algorithms, and `more`.
std::vector<AttributeDef> convolutionAttributes(std::vector<AttributeDef> more = {});

/// The shape of y for x and w, with all rules of a convolution checked.
Expected<Shape> convolutionShape(const InferContext& c, const char* op, const Shape& x, const Shape& w);
/// The shape of y for operands x, w and, if there is one, a bias, which are checked.
Expected<Shape> convolutionShape(const InferContext& c, const char* op);

/// The filter, where it may lie in blocks.
std::vector<const Value*> filterInBlocksOf(const Operation& op, const Value* filter);
/// The library has few kernels for groups with channels last.
bool isInOneGroup(const Operation& op);

/// What lies beside the filter: operand 0 and result 0.
ChannelBlocks blocksBesideFilter(const Operation& op);

/// For OpSplit::loops of operations that read x, w and perhaps a bias. Input channels are summed: they may not be
/// divided where the kernel goes on with something that is not linear.
Loops loopsOfConvolution(const Operation& op, bool mayDivideInputs);
/// For OpSplit::loops of gradients for x. What they are added to, operand 2, is added once.
Loops loopsOfInputGradient(const Operation& op);
/// For OpSplit::loops of gradients for w and perhaps a bias.
Loops loopsOfWeightGradient(const Operation& op);
/// For OpSplit::divide of all of these: where groups are divided, a member has fewer of them.
std::vector<Value*> divideConvolution(const Operation& op, const Loops& loops, const Division& division,
                                      const std::vector<Value*>& operands, Builder& b);

/// As torch.nn.Conv2d counts it; and ConvTranspose2d, whose filter has its inputs first.
std::int64_t fanInOfConvolution(const Operation& op);

} // namespace pdc::ops
