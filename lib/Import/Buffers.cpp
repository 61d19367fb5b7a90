#include "Buffers.h"

#include "pdc/IR/OpDef.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <set>

using namespace pdc;

namespace {

constexpr std::array buffers = {"anchors",    "attention_mask", "attn_mask", "causal_mask",         "cos",
                                "cos_cached", "freqs",          "freqs_cis", "freqs_cos",           "freqs_sin",
                                "inv_freq",   "mask",           "pe",        "positional_encoding", "rope",
                                "sin",        "sin_cached",     "positions"};
constexpr std::array weights = {"weight", "bias", "gamma", "beta", "kernel"};

/// What follows the last '.', '/' or ':' of a name.
std::string lastWord(const std::string& name) {
  return name.substr(name.find_last_of("./:") + 1);
}

} // namespace

bool pdc::isAttentionMask(const StoredTensor& tensor, TensorReader& reader, const Location& where) {
  if (tensor.type.element != ElementType::f32 || tensor.type.rank() < 2 || !tensor.reference) return false;
  StoredTensor row = tensor;
  row.type.shape = {std::min<std::int64_t>(tensor.type.shape.back(), 4096)};
  row.reference->length = row.type.bytes();
  Expected<Tensor> values = row.type.elements() <= tensor.type.elements() ? reader.load(row, where) : failure;
  if (!values) return false;
  const std::span<const float> numbers = values->data<float>();
  return std::any_of(numbers.begin(), numbers.end(), [](float x) { return x <= -1e4F; });
}

std::optional<Triangle> pdc::triangleOf(const StoredTensor& tensor, TensorReader& reader, const Location& where) {
  const Shape& shape = tensor.type.shape;
  if (shape.size() < 2 || tensor.lacksElements()) return {};
  const std::int64_t rows = shape[shape.size() - 2], columns = shape.back();
  if (rows < 2 || columns < 2 || tensor.type.elements() != rows * columns) return {};
  Expected<Tensor> values = reader.load(tensor, where);
  if (!values) return {};
  Triangle triangle{.below = values->asDouble(0), .above = values->asDouble(columns - 1)};
  while (triangle.diagonal + 1 < columns && values->asDouble(triangle.diagonal + 1) == triangle.below)
    ++triangle.diagonal;
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j)
      if (values->asDouble(i * columns + j) != (j <= i + triangle.diagonal ? triangle.below : triangle.above))
        return {};
  return triangle;
}

bool pdc::isNamedLikeBuffer(const std::string& name) {
  return std::find(buffers.begin(), buffers.end(), lastWord(name)) != buffers.end();
}

bool pdc::isNamedLikeLearned(const std::string& name) {
  constexpr std::array parts = {"weight", "bias",  "gamma", "beta",  "kernel",
                                "token",  "embed", "scale", "param", "alpha"};
  const std::string word = lastWord(name);
  return std::any_of(parts.begin(), parts.end(),
                     [&](const char* part) { return word.find(part) != std::string::npos; });
}

std::string pdc::patternOf(const std::vector<std::string>& names) {
  std::set<std::string> words;
  for (const std::string& name : names) words.insert(lastWord(name));
  std::string pattern = "(^|[./:])(";
  for (const std::string& word : words) {
    if (word != *words.begin()) pattern += "|";
    for (char c : word)
      pattern += (std::string(".[]()*+?{}^$|\\").find(c) == std::string::npos ? "" : "\\") + std::string(1, c);
  }
  return pattern + ")$";
}

bool pdc::isNamedLikeParameter(const std::string& name) {
  return name.find('.') != std::string::npos || name.find("::") != std::string::npos;
}

bool pdc::isTypedLikeParameter(const onnx::ValueInfoProto& input) {
  const onnx::TypeProto::Tensor& tensor = input.type().tensor_type();
  const std::optional<ElementType> element = elementTypeFromOnnx(tensor.elem_type());
  return element && isFloat(*element) && tensor.has_shape() &&
         std::all_of(tensor.shape().dim().begin(), tensor.shape().dim().end(),
                     [](const auto& dim) { return dim.dim_value() > 0; });
}

bool pdc::isNamedLikeWeight(const std::string& name) {
  const std::string word = lastWord(name);
  return word != name && std::find(weights.begin(), weights.end(), word) != weights.end();
}
