// Rows of a matrix, or columns of one, quantised one by one.
#include "pdc/IR/DerivedValues.h"

#include "pdcrt/Int8.h"

#include <algorithm>
#include <cmath>

using namespace pdc;

const char* pdc::nameOf(DerivedValues::Kind kind) {
  switch (kind) {
  case DerivedValues::Kind::int8: return "int8";
  case DerivedValues::Kind::scales: return "scales";
  case DerivedValues::Kind::inputs: return "inputs";
  case DerivedValues::Kind::places: return "places";
  }
  return "";
}

Type pdc::typeOf(const DerivedValues& derived) {
  const auto axis = static_cast<std::size_t>(derived.axis);
  const std::int64_t rows = derived.source.shape[axis], size = derived.source.shape[1 - axis];
  switch (derived.kind) {
  case DerivedValues::Kind::int8: return {ElementType::i8, {rows, size}};
  case DerivedValues::Kind::scales: return {ElementType::f32, {rows}};
  case DerivedValues::Kind::places: return {ElementType::i32, {static_cast<std::int64_t>(derived.inputs.size())}};
  case DerivedValues::Kind::inputs: break;
  }
  return {ElementType::f32, {static_cast<std::int64_t>(derived.inputs.size()), rows}};
}

Tensor pdc::derivedTensor(const DerivedValues& derived, std::span<const float> source, std::int64_t& badAt) {
  const auto bad = std::find_if(source.begin(), source.end(), [](float value) { return !std::isfinite(value); });
  badAt = bad - source.begin();
  if (bad != source.end()) return {};
  if (derived.kind == DerivedValues::Kind::places)
    return Tensor::ofInts(typeOf(derived).shape, derived.inputs, ElementType::i32);
  const std::int64_t rows = derived.source.shape[0], columns = derived.source.shape[1];
  const std::int64_t count = derived.axis == 0 ? rows : columns, size = derived.axis == 0 ? columns : rows;
  const auto placeOf = [&](std::int64_t row, std::int64_t i) {
    return static_cast<std::size_t>(derived.axis == 0 ? row * columns + i : i * columns + row);
  };
  Tensor tensor(typeOf(derived));
  if (derived.kind == DerivedValues::Kind::inputs) {
    const auto kept = tensor.mutableData<float>();
    for (std::size_t e = 0; e < derived.inputs.size(); ++e)
      for (std::int64_t row = 0; row < count; ++row)
        kept[e * static_cast<std::size_t>(count) + static_cast<std::size_t>(row)] =
            source[placeOf(row, derived.inputs[e])];
    return tensor;
  }
  // In the order in which the source lies in memory.
  std::vector<float> most(static_cast<std::size_t>(count), 0.0f);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c) {
      float& largest = most[static_cast<std::size_t>(derived.axis == 0 ? r : c)];
      largest = std::max(largest, std::fabs(source[static_cast<std::size_t>(r * columns + c)]));
    }
  for (float& value : most) value = pdcrt::int8::scaleOf(value);
  if (derived.kind == DerivedValues::Kind::scales) {
    std::copy(most.begin(), most.end(), tensor.mutableData<float>().begin());
    return tensor;
  }
  const auto integers = tensor.mutableData<std::int8_t>();
  for (std::int64_t row = 0; row < count; ++row)
    for (std::int64_t i = 0; i < size; ++i)
      integers[static_cast<std::size_t>(row * size + i)] =
          pdcrt::int8::quantized(source[placeOf(row, i)], most[static_cast<std::size_t>(row)]);
  return tensor;
}
