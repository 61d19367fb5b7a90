// Older normalisations, said with reductions: local responses (Krizhevsky, Sutskever and Hinton 2012), mean and
// variance.
#include "Convert/Onnx.h"
#include "Shared/Define.h"

#include <charconv>

namespace pdc::ops::ResponseNorm {

namespace {

std::string literal(double value) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

/// X / (bias + alpha / size · sum of X² over `size` channels)^beta. The sum is a mean over windows of a plane whose
/// rows are the channels; channels that do not exist count as 0.
Value* convertLrn(OnnxReader& n) {
  const Type x = n.type(0);
  const std::int64_t size = n.integer("size", 0);
  const std::string alpha = literal(n.number("alpha", 1e-4f)), beta = literal(n.number("beta", 0.75)),
                    bias = literal(n.number("bias", 1));
  if (x.rank() < 2 || x.elements() == 0 || size < 1 || size > (1 << 20)) {
    static_cast<void>(n.error() << "takes " << size << " channels of " << toString(x));
    return nullptr;
  }
  const Shape plane{x.shape[0], 1, x.shape[1], product(x.shape, 2, x.shape.size())};
  using Sizes = std::vector<std::int64_t>;
  Value* squares = n.reshape(n.value("mul", {n.input(0), n.input(0)}), plane);
  Value* means = squares ? n.value("average_pool", {squares},
                                   {{"kernel", Sizes{size, 1}},
                                    {"pads", Sizes{(size - 1) / 2, 0, size / 2, 0}},
                                    {"count_include_pad", true}})
                         : nullptr;
  means = n.reshape(means, x.shape);
  const std::string expression = "a0 * pow(" + bias + " + " + alpha + " * a1, -" + beta + ")";
  return means ? n.value("elementwise", {n.input(0), means}, {{"expressions", std::vector{expression}}}) : nullptr;
}

/// (X - mean) / (standard deviation + 1e-9).
Value* convertMeanVariance(OnnxReader& n) {
  const auto axes = n.axes(n.integers("axes", {0, 2, 3}), n.type(0).rank());
  if (!axes) return nullptr;
  const Attributes reduction{{"axes", *axes}, {"keep_dims", true}};
  Value* mean = n.value("reduce_mean", {n.input(0)}, reduction);
  Value* distance = mean ? n.value("sub", {n.input(0), mean}) : nullptr;
  Value* squares = distance ? n.value("mul", {distance, distance}) : nullptr;
  Value* variance = squares ? n.value("reduce_mean", {squares}, reduction) : nullptr;
  return variance ? n.value("elementwise", {distance, variance},
                            {{"expressions", std::vector<std::string>{"a0 / (sqrt(a1) + 1e-09)"}}})
                  : nullptr;
}

} // namespace

std::vector<OpDef> define() {
  return {
      composed("local_response_norm", "X divided by what its neighbours among the channels amount to: average_pool",
               {onnx("LRN", 1, convertLrn, 1)}),
      composed("mean_variance_norm", "X with mean 0 and variance 1 over some axes: reduce_mean",
               {onnx("MeanVarianceNormalization", 1, convertMeanVariance, 9)}),
  };
}

} // namespace pdc::ops::ResponseNorm
