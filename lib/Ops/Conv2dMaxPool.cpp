// Two-dimensional convolution and the maxima of its result in windows of 2x2, in one pass. Kernel: pdcrt::Conv2d.
#include "Shared/Convolution.h"

#include <limits>

namespace pdc::ops::Conv2dMaxPool {

namespace {

/// The convolution, whose result is not the operation's.
Convolution convolutionBefore(const Operation& op) {
  Convolution convolution = convolutionOf(op);
  convolution.y[2] = convolution.window.count(0, convolution.x[2]);
  convolution.y[3] = convolution.window.count(1, convolution.x[3]);
  return convolution;
}

Types infer(const InferContext& c) {
  const Expected<Shape> y = convolutionShape(c, "conv2d_max_pool");
  if (!y) return failure;
  const Shape maxima = {(*y)[0], (*y)[1], (*y)[2] / 2, (*y)[3] / 2};
  if (maxima[2] < 1 || maxima[3] < 1)
    return c.error() << "'conv2d_max_pool' op has the maxima of 2x2 values of " << toString(*y);
  if (c.operand(0).element != ElementType::f32)
    return c.error() << "'conv2d_max_pool' op has " << toString(c.operand(0)) << ", it is for f32";
  return std::vector<Type>{{ElementType::f32, maxima}, {ElementType::i32, maxima}};
}

/// As max_pool: of equal values the first, NaN before everything.
template <class T>
void poolMaxima(const Convolution& convolution, std::span<const T> y, std::span<T> maxima,
                std::span<std::int32_t> index) {
  const std::int64_t columns = convolution.y[3], plane = convolution.y[2] * columns;
  const Shape pooled = {convolution.y[0] * convolution.y[1], convolution.y[2] / 2, columns / 2};
  forEachIndex(pooled, [&, at = std::size_t{0}](const std::vector<std::int64_t>& i) mutable {
    T best = convolution.relu ? T(0) : -std::numeric_limits<T>::infinity();
    std::int64_t place = convolution.relu ? -1 : 2 * i[1] * columns + 2 * i[2];
    for (std::int64_t tap = 0; tap < 4; ++tap) {
      const std::int64_t here = (2 * i[1] + tap / 2) * columns + 2 * i[2] + tap % 2;
      const T value = y[static_cast<std::size_t>(i[0] * plane + here)];
      if (value > best || (value != value && best == best)) best = value, place = here;
    }
    maxima[at] = best;
    if (!index.empty()) index[at] = static_cast<std::int32_t>(place);
    ++at;
  });
}

std::vector<std::string> examples() {
  const auto text = [](const char* x, const char* w, const char* options, const char* y) {
    return example("%x: f32" + std::string(x) + ", %w: f32" + w + ", %b: f32[16]",
                   "%y, %index = conv2d_max_pool %x, %w, %b {" + std::string(options) + "} : f32" + y + ", i32" + y);
  };
  return {text("[2, 16, 5, 6]", "[16, 16, 3, 3]", "pads = [1, 1, 1, 1]", "[2, 16, 2, 3]"),
          text("[1, 16, 9, 7]", "[16, 16, 3, 3]", "pads = [1, 0, 1, 1], relu = true", "[1, 16, 4, 3]"),
          text("[2, 3, 7, 9]", "[16, 3, 3, 3]", "relu = true, strides = [2, 1]", "[2, 16, 1, 3]"),
          example("%x: f32[1, 2, 4, 4], %w: f32[3, 2, 1, 1]", "%y, _ = conv2d_max_pool %x, %w : f32[1, 3, 2, 2], _"),
          example("%x: f32[1, 4, 2, 3], %w: f32[8, 1, 1, 2]",
                  "%y, %index = conv2d_max_pool %x, %w {groups = 4} : f32[1, 8, 1, 1], i32[1, 8, 1, 1]")};
}

} // namespace

std::vector<OpDef> define() {
  return {{
      .name = "conv2d_max_pool",
      .summary = "Maximum of each window of 2x2, side by side, of conv2d, and where in its plane it is",
      .operands = {{"X"}, {"W"}, {.name = "B", .optional = true}},
      .results = {{"Y"}, {.name = "index", .optional = true}},
      .attributes = convolutionAttributes(
          {boolean("relu", false, "whether values below 0 count as 0, which is nowhere: the index is -1")}),
      .infer = infer,
      .cost =
          [](const Operation& op) {
            const Convolution convolution = convolutionBefore(op);
            return Cost{convolution.flops() + static_cast<double>(elementsOf(convolution.y)), bytesMoved(op)};
          },
      .kernel = {.use =
                     [](const Operation& op) {
                       pdcrt::Conv2d::Options options = convolutionBefore(op).options(op.operand(2));
                       options.pooled = true;
                       return kernelUse<pdcrt::Conv2d>("Conv2d", "forwardPooled", options);
                     },
                 .alternatives = [](const Operation& op,
                                    Target t) { return convolutionBefore(op).alternatives("forward", t); },
                 // Maxima and indices lie alike, as their gradient wants them.
                 .channelBlocks =
                     [](const Operation& op) {
                       ChannelBlocks blocks = blocksBesideFilter(op);
                       if (op.result(1) && !blocks.values.empty()) {
                         blocks.values.push_back(op.result(1));
                         blocks.alike = {op.result(0), op.result(1)};
                       }
                       return blocks;
                     },
                 .filterBlocks = [](const Operation& op) { return filterInBlocksOf(op, op.operand(1)); }},
      .rewrites = {.evaluation = [](const Operation& op, Builder& b) -> std::vector<Value*> {
        // The index is for the gradient.
        return {b.value(op.def().name, op.operands(), op.attributes), nullptr};
      }},
      .split = {.loops = [](const Operation& op) { return loopsOfConvolution(op, /*mayDivideInputs=*/false); },
                .divide = divideConvolution},
      .reference = reference([]<class T>(ReferenceContext& c) {
        const Convolution convolution = convolutionBefore(c.op);
        std::vector<T> y(static_cast<std::size_t>(elementsOf(convolution.y)));
        convolution.compute<T>(c, y);
        poolMaxima<T>(convolution, y, c.out<T>(0), c.results[1] ? c.out<std::int32_t>(1) : std::span<std::int32_t>());
      }),
      .examples = examples(),
  }};
}

} // namespace pdc::ops::Conv2dMaxPool
