// LINK: pdcrt_base
// Filters in blocks: where each element lies, the way back, and what is no filter.
#include "pdcrt/FilterBlocks.h"
#include "files/WeightFile.h"

#include <gtest/gtest.h>
#include <numeric>
#include <vector>

using namespace pdcrt;

namespace {

std::vector<float> numbered(const Shape& shape) {
  std::vector<float> values(static_cast<std::size_t>(shape.elements()));
  std::iota(values.begin(), values.end(), 1.0f);
  return values;
}

std::span<std::byte> bytesOf(std::vector<float>& values) {
  return std::as_writable_bytes(std::span(values));
}

const Shape shapes[] = {{16, 16, 1, 1}, {48, 32, 3, 2}, {16, 64, 2, 5}, {80, 16, 1, 1}};

TEST(FilterBlocks, HoldEachElementWhereTheLayoutSays) {
  for (const Shape& shape : shapes) {
    const std::vector<float> rows = numbered(shape);
    std::vector<float> blocks = rows;
    ASSERT_TRUE(toFilterBlocks(shape, bytesOf(blocks)));
    const std::int64_t inputs = shape.dims[1], height = shape.dims[2], width = shape.dims[3];
    for (std::int64_t o = 0, at = 0; o < shape.dims[0]; ++o)
      for (std::int64_t i = 0; i < inputs; ++i)
        for (std::int64_t r = 0; r < height; ++r)
          for (std::int64_t s = 0; s < width; ++s, ++at) {
            const std::int64_t place =
                ((((o / 16 * (inputs / 16) + i / 16) * height + r) * width + s) * 16 + i % 16) * 16 + o % 16;
            ASSERT_EQ(rows[static_cast<std::size_t>(at)], blocks[static_cast<std::size_t>(place)]) << at;
          }
  }
}

TEST(FilterBlocks, ComeBack) {
  for (const Shape& shape : shapes) {
    const std::vector<float> rows = numbered(shape);
    std::vector<float> values = rows;
    ASSERT_TRUE(toFilterBlocks(shape, bytesOf(values)));
    EXPECT_NE(values, rows);
    ASSERT_TRUE(fromFilterBlocks(shape, bytesOf(values)));
    EXPECT_EQ(values, rows);
  }
}

TEST(FilterBlocks, OfOtherShapesAndSizesAreRefusedAndLeftAsTheyAre) {
  for (const Shape& shape : {Shape{24, 16, 3, 3}, Shape{16, 24, 3, 3}, Shape{16, 16, 3}, Shape{0, 16, 1, 1}}) {
    std::vector<float> values = numbered(shape);
    const std::vector<float> before = values;
    EXPECT_FALSE(toFilterBlocks(shape, bytesOf(values)));
    EXPECT_FALSE(fromFilterBlocks(shape, bytesOf(values)));
    EXPECT_EQ(values, before);
  }
  const Status status = toFilterBlocks(Shape{24, 16, 3, 3}, {});
  EXPECT_EQ(status.code(), Exit::invalid);
  EXPECT_EQ(status.message(), "a filter [24, 16, 3, 3] has no whole blocks of 16 outputs and 16 inputs");
  std::vector<float> values = numbered({16, 16, 1, 1});
  EXPECT_EQ(toFilterBlocks({16, 16, 1, 1}, bytesOf(values).first(1020)).message(),
            "a filter [16, 16, 1, 1] has 1024 bytes, here are 1020");
}

TEST(FilterBlocks, AreConvertedInABlockOfWeightsWhereARowSaysSo) {
  const ParameterRow rows[] = {{"plain", Element::f32, {16, 16, 1, 1}, 0, 0, true, 1, 1},
                               {"blocks", Element::f32, {16, 16, 1, 1}, 1024, 0, true, 1, 1, false, true}};
  std::vector<float> memory = numbered({2, 256});
  std::vector<float> expected = memory;
  ASSERT_TRUE(toFilterBlocks({16, 16, 1, 1}, bytesOf(expected).subspan(1024)));
  ASSERT_TRUE(WeightFile::load(rows, bytesOf(memory).data(), nullptr));
  EXPECT_EQ(memory, expected);
  ASSERT_TRUE(WeightFile::store(rows, bytesOf(memory).data(), nullptr));
  EXPECT_EQ(memory, numbered({2, 256}));
}

} // namespace
