// Group normalisation (Wu and He 2018) and instance normalisation (Ulyanov, Vedaldi and Lempitsky 2016): layer_norm
// over each sample's groups of channels, then one scale and bias per channel or group.
#include "Convert/Onnx.h"
#include "Shared/Define.h"

namespace pdc::ops::GroupNorm {

namespace {

/// `weight` [C] as [C, 1, …] of `rank` axes, so that it goes with axis 1 of a tensor with one axis more.
Value* perChannel(OnnxReader& n, Value* weight, std::size_t rank) {
  Shape shape(rank, 1);
  shape[0] = weight->type().shape[0];
  return n.reshape(weight, shape);
}

Value* affine(OnnxReader& n, Value* x, Value* scale, Value* bias) {
  const std::size_t rank = x->type().shape.size() - 1;
  scale = perChannel(n, scale, rank);
  Value* scaled = scale ? n.value("mul", {x, scale}) : nullptr;
  bias = perChannel(n, bias, rank);
  return scaled && bias ? n.value("add", {scaled, bias}) : nullptr;
}

/// Inputs X [N, C, …], scale and bias, both with one element per group or, with `perGroup` false, per channel.
Value* convert(OnnxReader& n, std::int64_t groups, bool perGroup) {
  Value* x = n.input(0);
  const Shape shape = x->type().shape;
  const double epsilon = n.number("epsilon", 1e-5f);
  if (shape.size() < 2 || elementsOf(shape) == 0) {
    static_cast<void>(n.error() << "needs a sample axis and a channel axis, its input is " << toString(x->type()));
    return nullptr;
  }
  if (groups < 1 || shape[1] % groups != 0) {
    static_cast<void>(n.error() << "has " << groups << " groups for " << shape[1] << " channels");
    return nullptr;
  }
  const Shape weight{perGroup ? groups : shape[1]};
  for (std::size_t i : {1, 2})
    if (n.type(i).shape != weight) {
      static_cast<void>(n.error() << "needs " << toString(weight) << " as input " << i << ", it is "
                                  << toString(n.type(i)));
      return nullptr;
    }
  Value* rows = n.reshape(x, {shape[0], groups, product(shape, 1, shape.size()) / groups});
  Value* y = rows ? n.value("layer_norm", {rows}, {{"axis", std::int64_t{2}}, {"epsilon", epsilon}}) : nullptr;
  if (y && perGroup) y = affine(n, y, n.input(1), n.input(2));
  y = n.reshape(y, shape);
  return y && !perGroup ? affine(n, y, n.input(1), n.input(2)) : y;
}

} // namespace

std::vector<OpDef> define() {
  const auto group = [](OnnxReader& n) {
    n.ignore("stash_type"); // statistics are exact
    return convert(n, n.integer("num_groups", 0), /*perGroup=*/n.version() < 21);
  };
  const auto instance = [](OnnxReader& n) {
    return convert(n, n.type(0).rank() < 2 ? 1 : n.type(0).shape[1], /*perGroup=*/false);
  };
  return {
      composed("group_norm", "X normalised over groups of channels, times scale, plus bias: layer_norm, mul and add",
               {onnx("GroupNormalization", 3, group, 18)}),
      composed("instance_norm", "X normalised over each channel of each sample: layer_norm, mul and add",
               {onnx("InstanceNormalization", 3, instance, 1)}),
  };
}

} // namespace pdc::ops::GroupNorm
