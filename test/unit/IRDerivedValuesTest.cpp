// LINK: pdcIR
// Matrices as integers of 8 bits with a scale per row: against the formulas, and the bound of the rounding.
#include "pdc/IR/DerivedValues.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

using namespace pdc;

namespace {

constexpr std::int64_t rows = 7, columns = 5;

/// With a row and a column of zeros.
std::vector<float> matrix() {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> values(rows * columns);
  for (std::int64_t i = 0; i < rows * columns; ++i)
    values[static_cast<std::size_t>(i)] = i / columns == 2 || i % columns == 4 ? 0.0f : normal(random);
  return values;
}

Tensor made(DerivedValues::Kind kind, int axis, const std::vector<float>& source,
            std::vector<std::int64_t> inputs = {}) {
  std::int64_t badAt = 0;
  return derivedTensor({.kind = kind,
                        .of = "w",
                        .source = {ElementType::f32, {rows, columns}},
                        .axis = axis,
                        .inputs = std::move(inputs)},
                       source, badAt);
}

} // namespace

TEST(DerivedValues, IntegersAndScalesAreThoseOfTheFormulas) {
  const std::vector<float> w = matrix();
  for (int axis : {0, 1}) {
    const std::int64_t count = axis == 0 ? rows : columns, size = axis == 0 ? columns : rows;
    const Tensor integers = made(DerivedValues::Kind::int8, axis, w),
                 scales = made(DerivedValues::Kind::scales, axis, w);
    EXPECT_EQ(integers.type(), (Type{ElementType::i8, {count, size}}));
    EXPECT_EQ(scales.type(), (Type{ElementType::f32, {count}}));
    for (std::int64_t row = 0; row < count; ++row) {
      const auto at = [&](std::int64_t i) {
        return w[static_cast<std::size_t>(axis == 0 ? row * columns + i : i * columns + row)];
      };
      float most = 0;
      for (std::int64_t i = 0; i < size; ++i) most = std::fmax(most, std::fabs(at(i)));
      const double scale = scales.asDouble(row);
      EXPECT_EQ(scale, static_cast<double>(most / 127.0f));
      bool isLargest = most == 0;
      for (std::int64_t i = 0; i < size; ++i) {
        const double integer = integers.asDouble(row * size + i);
        EXPECT_LE(std::fabs(integer * scale - static_cast<double>(at(i))), scale * 0.50001) << row << ", " << i;
        isLargest |= std::fabs(integer) == 127;
      }
      EXPECT_TRUE(isLargest) << "row " << row << " does not use its range";
    }
  }
}

TEST(DerivedValues, InputsAreTheValuesThemselves) {
  const std::vector<float> w = matrix();
  const Tensor byRows = made(DerivedValues::Kind::inputs, 0, w, {1, 4}),
               byColumns = made(DerivedValues::Kind::inputs, 1, w, {0, 3, 6});
  EXPECT_EQ(made(DerivedValues::Kind::places, 1, w, {0, 3, 6}),
            Tensor::ofInts({3}, std::vector<std::int64_t>{0, 3, 6}, ElementType::i32));
  EXPECT_EQ(byRows.type(), (Type{ElementType::f32, {2, rows}}));
  EXPECT_EQ(byColumns.type(), (Type{ElementType::f32, {3, columns}}));
  for (std::int64_t row = 0; row < rows; ++row)
    EXPECT_EQ(byRows.data<float>()[static_cast<std::size_t>(row)], w[static_cast<std::size_t>(row * columns + 1)]);
  for (std::int64_t column = 0; column < columns; ++column)
    EXPECT_EQ(byColumns.data<float>()[static_cast<std::size_t>(columns + column)],
              w[static_cast<std::size_t>(3 * columns + column)]);
}

TEST(DerivedValues, WhatIsNotFiniteHasNoIntegers) {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> w = matrix();
    w[11] = bad;
    std::int64_t badAt = 0;
    const Tensor none = derivedTensor({.of = "w", .source = {ElementType::f32, {rows, columns}}}, w, badAt);
    EXPECT_NE(none.type(), (Type{ElementType::i8, {rows, columns}}));
    EXPECT_EQ(badAt, 11);
  }
}
