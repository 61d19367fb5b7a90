// Blocks of an image that become channels, and back: reshape and transpose.
#include "Convert/Onnx.h"
#include "Shared/Define.h"

namespace pdc::ops::Rearrange {

namespace {

/// The block size of an image [N, C, H, W] whose axes from `first` on are multiples of what they are divided by.
std::optional<std::int64_t> readBlock(OnnxReader& n, bool ofDepth) {
  const std::int64_t block = n.integer("blocksize", 0);
  const Shape& x = n.type(0).shape;
  const bool sane = x.size() == 4 && block >= 1 && block < (1 << 15);
  const bool fits = sane && (ofDepth ? x[1] % (block * block) == 0 : x[2] % block == 0 && x[3] % block == 0);
  if (fits) return block;
  static_cast<void>(n.error() << "has blocks of " << block << ", which do not fit " << toString(n.type(0)));
  return std::nullopt;
}

Value* permuted(OnnxReader& n, Value* x, const std::vector<std::int64_t>& permutation, const Shape& shape) {
  Value* y = x ? n.transpose(x, permutation) : nullptr;
  return y ? n.reshape(y, shape) : nullptr;
}

Value* convertDepthToSpace(OnnxReader& n) {
  const auto block = readBlock(n, /*ofDepth=*/true);
  const std::string mode = n.text("mode", "DCR");
  if (!block) return nullptr;
  if (mode != "DCR" && mode != "CRD") {
    static_cast<void>(n.error() << "has mode = '" << mode << "', it must be DCR or CRD");
    return nullptr;
  }
  const Shape x = n.type(0).shape, y{x[0], x[1] / (*block * *block), x[2] * *block, x[3] * *block};
  if (mode == "DCR")
    return permuted(n, n.reshape(n.input(0), {x[0], *block, *block, y[1], x[2], x[3]}), {0, 3, 4, 1, 5, 2}, y);
  return permuted(n, n.reshape(n.input(0), {x[0], y[1], *block, *block, x[2], x[3]}), {0, 1, 4, 2, 5, 3}, y);
}

Value* convertSpaceToDepth(OnnxReader& n) {
  const auto block = readBlock(n, /*ofDepth=*/false);
  if (!block) return nullptr;
  const Shape x = n.type(0).shape, y{x[0], x[1] * *block * *block, x[2] / *block, x[3] / *block};
  return permuted(n, n.reshape(n.input(0), {x[0], x[1], y[2], *block, y[3], *block}), {0, 3, 5, 1, 2, 4}, y);
}

} // namespace

std::vector<OpDef> define() {
  return {
      composed("depth_to_space", "Channels of X spread over blocks of the plane: reshape and transpose",
               {onnx("DepthToSpace", 1, convertDepthToSpace, 1)}),
      composed("space_to_depth", "Blocks of the planes of X as channels: reshape and transpose",
               {onnx("SpaceToDepth", 1, convertSpaceToDepth, 1)}),
  };
}

} // namespace pdc::ops::Rearrange
