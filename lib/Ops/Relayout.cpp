// A value in the other layout. Only the layout pass makes these. Kernel: pdcrt::Transpose.
#include "Kernels/KernelOptions.h"
#include "Shared/Define.h"
#include "Shared/LoopsOf.h"

namespace pdc::ops::Relayout {

/// The blocks of channels are transposed with the positions of the plane.
static KernelUse kernel(const Operation& op) {
  const Shape s = operandType(op, 0).shape;
  const std::int64_t lanes = lanesOf(op), outer = s[0] * s[1] / lanes, plane = s[2] * s[3];
  const bool toBlocks = operandType(op, 0).layout == pdc::plain;
  const pdcrt::Shape input = toBlocks ? pdcrt::Shape{outer, lanes, plane} : pdcrt::Shape{outer, plane, lanes};
  return kernelUse<pdcrt::Transpose>("Transpose", "forward", {.input = input, .permutation = {0, 2, 1}});
}

std::vector<OpDef> define() {
  return {{
      .name = "relayout",
      .summary = "X, with its channels in blocks, or last, or no longer",
      .operands = {{"X"}},
      .results = {{"Y"}},
      .infer = [](const InferContext& c) -> Types {
        Type y = c.operand(0);
        y.layout = y.layout == pdc::plain ? channelsLast : pdc::plain; // channels in blocks are stated
        return std::vector<Type>{y};
      },
      .verify = [](const Operation& op, Diagnostics& diags) -> Status {
        const Type &x = operandType(op, 0), &y = resultType(op);
        if (fitsChannelBlocks(x) && (x.layout == pdc::plain) != (y.layout == pdc::plain)) return success;
        return diags.error(op.location) << "'relayout' op makes " << toString(y) << " of " << toString(x)
                                        << ", it must change between plain and blocks of " << channelBlock
                                        << " channels, or of all";
      },
      .cost = moveCost,
      .kernel = {.use = kernel,
                 .channelBlocks =
                     [](const Operation& op) {
                       return ChannelBlocks{.values = {op.operand(0), op.result()}, .apart = true};
                     }},
      .split = {.loops = alongAxes({.end = 2, .operands = {0}, .results = {0}})},
      .reference = moving([](ReferenceContext& c) {
        visitBytes(*c.operands[0], *c.results[0], [](auto x, auto y) { std::copy(x.begin(), x.end(), y.begin()); });
      }),
      .examples = {example("%x: f32[2, 32, 3, 2]", "%b = relayout %x : f32[2, 32, 3, 2]@1\n"
                                                   "%y = relayout %b : f32[2, 32, 3, 2]"),
                   example("%x: f32[1, 32, 1, 2]", "%b = relayout %x : f32[1, 32, 1, 2]@1")},
      .facts = {.moves = true},
  }};
}

} // namespace pdc::ops::Relayout
