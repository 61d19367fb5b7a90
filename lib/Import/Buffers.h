// Which initializers are no weights, although they are floats and an exporter stores them like weights.
#pragma once

#include "TensorReader.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace pdc {

/// Whether the first row of a tensor has -inf, or a number that does the same in a softmax (-1e4 and below): a mask
/// that is added to attention scores. No weight is like this.
bool isAttentionMask(const StoredTensor& tensor, TensorReader& reader, const Location& where);

/// A matrix of two numbers: element [i, j] is `below` for j <= i + diagonal, else `above`. Axes before the last two
/// have size 1.
struct Triangle {
  std::int64_t diagonal = 0;
  double below = 0, above = 0;
};

/// How a tensor is a triangle, as causal masks are.
std::optional<Triangle> triangleOf(const StoredTensor& tensor, TensorReader& reader, const Location& where);

/// Whether `name` ends with a word by which frameworks' users call their tables: "layers.0.rotary.cos_cached".
bool isNamedLikeBuffer(const std::string& name);

/// Whether the last word of `name` is one that layers of frameworks give to what they learn: "weight", "in_proj_bias",
/// "weight_hh_l0_reverse", "cls_token", "pos_embed".
bool isNamedLikeLearned(const std::string& name);

/// A pattern for --freeze that matches `names` by their last words: "(^|[./_])(cos|sin)$".
std::string patternOf(const std::vector<std::string>& names);

/// Whether a graph input is called as a framework calls a weight: "conv1.weight".
bool isNamedLikeWeight(const std::string& name);

/// Whether `name` is a path, as frameworks call parameters and exporters what they make of them:
/// "layer1.0.bn.running_mean", "onnx::MatMul_176".
bool isNamedLikeParameter(const std::string& name);

/// Whether a graph input could be a parameter: a float type without symbolic dimensions.
bool isTypedLikeParameter(const onnx::ValueInfoProto& input);

} // namespace pdc
