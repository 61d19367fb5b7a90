// Blocks that overlap become an image: the transposed convolution with one filter per place of a block, which is 1
// there and 0 elsewhere.
#include "Convert/Onnx.h"
#include "Shared/Define.h"

#include <algorithm>

namespace pdc::ops::Col2Im {

namespace {

/// [places, 1, height, width]: filter i is 1 at place i. The same for every channel.
Tensor filtersOf(std::int64_t channels, std::int64_t height, std::int64_t width) {
  const std::int64_t places = height * width;
  Tensor filters({ElementType::f32, {channels * places, 1, height, width}});
  for (std::int64_t i = 0; i < channels * places; ++i) filters.set(i * places + i % places, 1);
  return filters;
}

Value* convert(OnnxReader& n) {
  const auto image = n.constantIntegers(1, "image_shape"), block = n.constantIntegers(2, "block_shape");
  if (!image || !block) return nullptr;
  const std::vector<std::int64_t> strides = n.integers("strides", {1, 1}), dilations = n.integers("dilations", {1, 1}),
                                  pads = n.integers("pads", {0, 0, 0, 0});
  const Type x = n.type(0);
  if (image->size() != 2 || block->size() != 2 || x.element != ElementType::f32 || x.rank() != 3) {
    static_cast<void>(n.unsupported() << "makes an image of " << image->size() << " axes from " << toString(x)
                                      << ", pdc takes f32 of three axes and two of the image");
    return nullptr;
  }
  const auto positive = [](const std::vector<std::int64_t>& numbers, std::int64_t least) {
    return numbers.size() % 2 == 0 &&
           std::all_of(numbers.begin(), numbers.end(), [&](auto k) { return k >= least && k < (1 << 20); });
  };
  if (!positive(*image, 1) || !positive(*block, 1) || !positive(strides, 1) || !positive(dilations, 1) ||
      !positive(pads, 0) || strides.size() != 2 || dilations.size() != 2 || pads.size() != 4) {
    static_cast<void>(n.error() << "has sizes, strides, dilations or pads that are too small, too large or too few");
    return nullptr;
  }
  Shape blocks;
  for (std::size_t axis : {0, 1}) {
    const std::int64_t room = (*image)[axis] + pads[axis] + pads[axis + 2] - dilations[axis] * ((*block)[axis] - 1) - 1;
    blocks.push_back(room < 0 ? 0 : room / strides[axis] + 1);
  }
  const std::int64_t places = (*block)[0] * (*block)[1];
  if (x.shape[1] % places != 0 || x.shape[2] != blocks[0] * blocks[1] || x.shape[2] == 0) {
    static_cast<void>(n.error() << "is given " << toString(x) << ", expected a multiple of " << places
                                << " channels and " << blocks[0] * blocks[1] << " blocks");
    return nullptr;
  }
  const std::int64_t channels = x.shape[1] / places;
  Value* columns = n.reshape(n.input(0), {x.shape[0], x.shape[1], blocks[0], blocks[1]});
  Value* filters = n.b.constant(filtersOf(channels, (*block)[0], (*block)[1]));
  if (!columns || !filters) return nullptr;
  return n.value("conv2d_input_gradient", {columns, filters},
                 {{"input_shape", Shape{x.shape[0], channels, (*image)[0], (*image)[1]}},
                  {"groups", channels},
                  {"strides", strides},
                  {"dilations", dilations},
                  {"pads", pads}});
}

} // namespace

std::vector<OpDef> define() {
  return {composed("col2im", "An image from the blocks that it consists of: a transposed convolution with constants",
                   {onnx("Col2Im", 3, convert, 18)})};
}

} // namespace pdc::ops::Col2Im
