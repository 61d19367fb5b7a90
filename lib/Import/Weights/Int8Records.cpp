// Names say which tensors belong together, and whether rows are columns of the matrix.
#include "Int8Records.h"

#include <utility>

using namespace pdc;

namespace {

/// Element (row, i) is the integer times the scale of its row, or the row's own value.
std::vector<float> weightsOf(const pdcrt::TensorRecord& integers, const pdcrt::TensorRecord& scales,
                             const pdcrt::TensorRecord* kept, const pdcrt::TensorRecord* keptInputs, bool transposed) {
  const auto rows = static_cast<std::size_t>(integers.shape[0]), size = static_cast<std::size_t>(integers.shape[1]);
  const std::vector<std::int8_t> values = pdcrt::elementsOf<std::int8_t>(integers.values);
  const std::vector<float> ofRows = pdcrt::elementsOf<float>(scales.values);
  std::vector<float> weights(rows * size);
  const auto placeOf = [&](std::size_t row, std::size_t i) { return transposed ? i * rows + row : row * size + i; };
  for (std::size_t row = 0; row < rows; ++row)
    for (std::size_t i = 0; i < size; ++i)
      weights[placeOf(row, i)] = static_cast<float>(values[row * size + i]) * ofRows[row];
  if (!kept || !keptInputs) return weights;
  const std::vector<float> own = pdcrt::elementsOf<float>(kept->values);
  const std::vector<std::int32_t> places = pdcrt::elementsOf<std::int32_t>(keptInputs->values);
  for (std::size_t e = 0; e < places.size(); ++e)
    for (std::size_t row = 0; row < rows && static_cast<std::size_t>(places[e]) < size; ++row)
      weights[placeOf(row, static_cast<std::size_t>(places[e]))] = own[e * rows + row];
  return weights;
}

} // namespace

Int8Records::Int8Records(const std::map<std::string, pdcrt::TensorRecord>& stored) : whole_(stored) {
  using pdcrt::Element;
  const std::string suffix = ".int8", transposedSuffix = ".T";
  for (const auto& [name, integers] : stored) {
    if (!name.ends_with(suffix) || integers.element != Element::i8 || integers.shape.size() != 2) continue;
    const std::string base = name.substr(0, name.size() - suffix.size());
    const auto find = [&](const char* other) {
      const auto found = stored.find(base + other);
      return found == stored.end() ? nullptr : &found->second;
    };
    const pdcrt::TensorRecord *scales = find(".scale"), *kept = find(".kept"), *keptInputs = find(".kept_inputs");
    if (!scales || scales->element != Element::f32 || scales->shape != std::vector{integers.shape[0]}) continue;
    const bool transposed = base.ends_with(transposedSuffix);
    const std::string matrix = transposed ? base.substr(0, base.size() - transposedSuffix.size()) : base;
    std::vector<std::int64_t> shape = integers.shape;
    if (transposed) std::swap(shape[0], shape[1]);
    made_.push_back(weightsOf(integers, *scales, kept, keptInputs, transposed));
    for (const char* other : {".int8", ".scale", ".kept", ".kept_inputs"}) whole_.erase(base + other);
    whole_[matrix] = {matrix, Element::f32, shape, std::as_bytes(std::span<const float>(made_.back()))};
  }
}
