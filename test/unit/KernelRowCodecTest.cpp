// LINK: pdcrt_kernels
// Rows of int8 with a few columns as they are: the encoded bytes against the definition, one element at a time, and the
// bound of the error on every element.
#include "KernelTest.h"
#include "pdcrt/kernels/RowCodec.h"

#include <limits>
#include <optional>
#include <set>

using namespace pdcrt;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity(), notANumber = std::numeric_limits<float>::quiet_NaN();

struct Case {
  RowCodec::Options options;
  std::vector<float> x;

  float at(std::int64_t i, std::int64_t j) const { return x[static_cast<std::size_t>(i * options.columns + j)]; }
};

/// Normal numbers, and in some columns large ones.
Case drawn(RowCodec::Options options, std::uint32_t seed, std::int64_t outliers = 0) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  Case made{options, {}};
  for (std::int64_t i = 0; i < options.rows; ++i)
    for (std::int64_t j = 0; j < options.columns; ++j)
      made.x.push_back(normal(generator) * (outliers > 0 && j % (options.columns / outliers) == 1 ? 30.0f : 1.0f));
  return made;
}

float sizeOf(float x) {
  return std::isnan(x) ? infinity : std::abs(x);
}

/// The columns that stay, the best first.
std::vector<std::int64_t> columnsThatStay(const Case& c) {
  std::vector<std::pair<float, std::int64_t>> order; // smaller is better
  for (std::int64_t j = 0; j < c.options.columns; ++j) {
    float largest = 0;
    for (std::int64_t i = 0; i < c.options.rows; ++i) largest = std::max(largest, sizeOf(c.at(i, j)));
    if (largest >= static_cast<float>(c.options.alpha)) order.emplace_back(-largest, j);
  }
  std::sort(order.begin(), order.end());
  std::vector<std::int64_t> columns;
  for (const auto& [_, j] : order)
    if (static_cast<std::int64_t>(columns.size()) < c.options.kept) columns.push_back(j);
  return columns;
}

std::vector<float> thereAndBack(const Case& c) {
  Setup setup;
  const RowCodec codec(setup, c.options);
  const std::size_t bytes = RowCodec::Layout(c.options).bytes;
  Buffer<float> x(static_cast<std::int64_t>(c.x.size())), y(static_cast<std::int64_t>(c.x.size()));
  std::copy(c.x.begin(), c.x.end(), x.values().begin());
  Buffer<std::uint8_t> encoded(static_cast<std::int64_t>(bytes));
  expectGoodManners(setup, {encoded}, [&](Stream& q) { codec.encode(q, x.view(), encoded.view()); });
  expectGoodManners(setup, {y}, [&](Stream& q) { codec.decode(q, encoded.view(), y.view()); });
  return {y.values().begin(), y.values().end()};
}

/// From the definition; also checks the bound of the error.
void expectTheDefinition(const Case& c) {
  const std::vector<float> y = thereAndBack(c);
  const std::vector<std::int64_t> stay = columnsThatStay(c);
  const std::set<std::int64_t> asTheyAre(stay.begin(), stay.end());
  for (std::int64_t i = 0; i < c.options.rows; ++i) {
    float b = 0;
    for (std::int64_t j = 0; j < c.options.columns; ++j)
      if (!asTheyAre.contains(j)) b = std::max(b, sizeOf(c.at(i, j)));
    for (std::int64_t j = 0; j < c.options.columns; ++j) {
      const float x = c.at(i, j), made = y[static_cast<std::size_t>(i * c.options.columns + j)];
      SCOPED_TRACE("row " + std::to_string(i) + ", column " + std::to_string(j));
      if (asTheyAre.contains(j)) {
        ASSERT_EQ(std::memcmp(&x, &made, sizeof x), 0) << x << " became " << made;
      } else if (b == infinity) {
        ASSERT_TRUE(std::isnan(made)) << made;
      } else if (b < RowCodec::least) {
        ASSERT_EQ(made, 0);
      } else {
        const float factor = 127 / b, scale = b / 127;
        ASSERT_EQ(made, std::nearbyint(x * factor) * scale) << x;
        ASSERT_LE(std::abs(double(made) - x), b / 254.0 + 0x1p-22 * b);
      }
    }
  }
}

} // namespace

TEST(RowCodec, IsItsDefinition) {
  std::uint32_t seed = 0;
  for (const std::int64_t rows : {1, 3, 64})
    for (const std::int64_t columns : {1, 7, 32, 200})
      for (const std::int64_t kept : {0, 1, 5})
        for (const double alpha : {0.0, 2.0, 6.0, 1e30}) {
          SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(columns) + ", " + std::to_string(kept) +
                       " columns of at least " + std::to_string(alpha));
          expectTheDefinition(drawn({rows, columns, kept, alpha}, ++seed));
        }
}

TEST(RowCodec, KeepsOutliersAsTheyAre) {
  const Case c = drawn({16, 90, 3, 6.0}, 1, 3);
  EXPECT_EQ(columnsThatStay(c).size(), 3u);
  expectTheDefinition(c);
  // Otherwise they would cost the others their precision.
  Case rounded = c;
  rounded.options.kept = 0;
  const auto error = [](const Case& each) {
    double sum = 0;
    const std::vector<float> y = thereAndBack(each);
    for (std::size_t i = 0; i < y.size(); ++i) sum += std::abs(double(y[i]) - each.x[i]);
    return sum;
  };
  EXPECT_LT(5 * error(c), error(rounded));
}

TEST(RowCodec, OfEqualColumnsKeepsTheFirst) {
  Case c = drawn({2, 6, 2, 1.0}, 2);
  for (const std::int64_t j : {5, 3, 1}) c.x[static_cast<std::size_t>(j)] = j == 3 ? -9.0f : 9.0f;
  EXPECT_EQ(columnsThatStay(c), (std::vector<std::int64_t>{1, 3}));
  expectTheDefinition(c);
}

TEST(RowCodec, TakesRowsOfZerosAndOfTheSmallestNumbers) {
  Case c = drawn({4, 5, 0, 6.0}, 3);
  for (std::size_t j = 0; j < 5; ++j) {
    c.x[j] = 0;
    c.x[5 + j] *= 1e-44f;
    c.x[10 + j] *= 1e-30f;
  }
  expectTheDefinition(c);
}

TEST(RowCodec, HidesNothingThatIsNotFinite) {
  for (const float value : {notANumber, infinity, -infinity})
    for (const std::int64_t kept : {0, 1, 2}) {
      Case c = drawn({3, 8, kept, 6.0}, 4);
      c.x[10] = value; // row 1
      expectTheDefinition(c);
      c.x[13] = value;
      expectTheDefinition(c);
      const std::vector<float> y = thereAndBack(c);
      EXPECT_FALSE(std::isfinite(y[10]));
      EXPECT_FALSE(std::isfinite(y[13]));
    }
}
