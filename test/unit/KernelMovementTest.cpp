// LINK: pdcrt_kernels
// Kernels that move elements, against index arithmetic written out with a coordinate per axis; and Reduce.
#include "KernelTest.h"
#include "pdcrt/Shape.h"
#include "pdcrt/kernels/Broadcast.h"
#include "pdcrt/kernels/Concat.h"
#include "pdcrt/kernels/Gather.h"
#include "pdcrt/kernels/Pad.h"
#include "pdcrt/kernels/Reduce.h"
#include "pdcrt/kernels/Slice.h"
#include "pdcrt/kernels/StridedCopy.h"
#include "pdcrt/kernels/Transpose.h"

#include <limits>
#include <numeric>
#include <stdexcept>

using namespace pdcrt;

namespace {

using Index = std::vector<std::int64_t>;

/// Calls visit(coordinates, linear index) for every element of `shape`.
template <class Visit>
void forEachElement(const Shape& shape, Visit visit) {
  for (std::int64_t linear = 0; linear < shape.elements(); ++linear) {
    Index index(static_cast<std::size_t>(shape.rank));
    std::int64_t rest = linear;
    for (int axis = shape.rank - 1; axis >= 0; rest /= shape.dims[axis--])
      index[static_cast<std::size_t>(axis)] = rest % shape.dims[axis];
    visit(index, linear);
  }
}

std::int64_t linearIndex(const Shape& shape, const Index& index) {
  std::int64_t linear = 0;
  for (int axis = 0; axis < shape.rank; ++axis)
    linear = linear * shape.dims[axis] + index[static_cast<std::size_t>(axis)];
  return linear;
}

/// 1, 2, 3, …
template <class T>
Buffer<T> counting(std::int64_t count) {
  Buffer<T> buffer(count);
  std::iota(buffer.values().begin(), buffer.values().end(), T(1));
  return buffer;
}

template <class T>
bool equal(const Buffer<T>& a, const Buffer<T>& b) {
  return std::ranges::equal(a.values(), b.values());
}

template <class T>
void checkTranspose(const Transpose::Options& o) {
  Shape output;
  for (std::int64_t axis : o.permutation) output.dims[output.rank++] = o.input.dims[axis];
  const Buffer<T> x = counting<T>(o.input.elements()), y(x.count()), expected(x.count());
  forEachElement(o.input, [&](const Index& index, std::int64_t i) {
    Index permuted;
    for (std::int64_t axis : o.permutation) permuted.push_back(index[static_cast<std::size_t>(axis)]);
    expected[linearIndex(output, permuted)] = x[i];
  });
  pdcrt::Setup setup;
  const Transpose transpose(setup, o);
  expectGoodManners(setup, {y}, [&](Stream& q) { transpose.forward(q, x, y.view()); });
  EXPECT_TRUE(equal(y, expected));
}

TEST(TransposeKernel, MovesEveryElement) {
  for (const Transpose::Options& o :
       std::initializer_list<Transpose::Options>{{{}, {}},
                                                 {{5}, {0}},
                                                 {{37, 65}, {1, 0}},
                                                 {{37, 65}, {0, 1}},
                                                 {{4, 3, 5, 7}, {0, 2, 1, 3}},
                                                 {{4, 3, 5, 7}, {0, 2, 3, 1}},
                                                 {{4, 3, 5, 7}, {3, 1, 0, 2}},
                                                 {{2, 9, 3, 16}, {0, 2, 1, 3}},
                                                 {{5, 3, 6}, {1, 0, 2}},
                                                 {{3, 9, 700}, {0, 2, 1}},
                                                 {{3, 700, 9}, {0, 2, 1}},
                                                 {{3, 700, 2, 3}, {0, 2, 3, 1}},
                                                 {{4, 16, 64}, {1, 0, 2}},
                                                 {{2, 1, 3, 1, 4}, {4, 3, 2, 1, 0}},
                                                 {{2, 3, 2, 2, 3, 2, 2, 2}, {7, 0, 6, 1, 5, 2, 4, 3}}}) {
    checkTranspose<float>(o);
    checkTranspose<std::int64_t>(o);
    checkTranspose<std::uint8_t>(o);
    checkTranspose<std::uint16_t>(o);
  }
}

TEST(TransposeKernel, RefusesWhatIsNoPermutation) {
  pdcrt::Setup setup;
  EXPECT_THROW(Transpose(setup, {{2, 3}, {0, 0}}), std::runtime_error);
  EXPECT_THROW(Transpose(setup, {{2, 3}, {0, 2}}), std::runtime_error);
  EXPECT_THROW(Transpose(setup, {{2, 3}, {0}}), std::runtime_error);
  EXPECT_THROW(Transpose(setup, {{2, 3}, {0, 1, 1}}), std::runtime_error);
}

template <class T>
void checkSlice(const Slice::Options& o) {
  const Buffer<T> x = counting<T>(o.input.elements()), y(o.output.elements()), expected(y.count()), dx(x.count()),
                  expectedGradient(x.count());
  forEachElement(o.output, [&](const Index& index, std::int64_t i) {
    Index from;
    for (std::size_t axis = 0; axis < index.size(); ++axis)
      from.push_back(o.starts[axis] + index[axis] * (o.steps.empty() ? 1 : o.steps[axis]));
    expected[i] = x[linearIndex(o.input, from)];
    expectedGradient[linearIndex(o.input, from)] = expected[i];
  });
  pdcrt::Setup setup;
  const Slice slice(setup, o);
  expectGoodManners(setup, {y}, [&](Stream& q) { slice.forward(q, x, y.view()); });
  EXPECT_TRUE(equal(y, expected));
  expectGoodManners(setup, {dx}, [&](Stream& q) { slice.inputGradient(q, expected, dx.view()); });
  EXPECT_TRUE(equal(dx, expectedGradient));
}

TEST(SliceKernel, TakesAPartAndPutsItsGradientBack) {
  for (const Slice::Options& o : std::initializer_list<Slice::Options>{{{10}, {4}, {3}, {}},
                                                                       {{10}, {4}, {9}, {-3}},
                                                                       {{6, 8}, {6, 3}, {0, 5}, {1, 1}},
                                                                       {{6, 8}, {2, 8}, {4, 0}, {}},
                                                                       {{6, 8, 3}, {3, 4, 2}, {5, 1, 0}, {-2, 2, 2}},
                                                                       {{6, 32}, {3, 16}, {5, 8}, {-2, 1}},
                                                                       {{6, 32}, {6, 16}, {0, 3}, {}},
                                                                       {{6, 32}, {6, 15}, {0, 4}, {}},
                                                                       {{6, 33}, {6, 16}, {0, 4}, {}},
                                                                       {{2, 7, 3}, {2, 7, 3}, {0, 0, 0}, {}}}) {
    checkSlice<float>(o);
    checkSlice<std::int64_t>(o);
  }
}

TEST(SliceKernel, RefusesAPartOutsideTheInput) {
  pdcrt::Setup setup;
  EXPECT_THROW(Slice(setup, {{10}, {4}, {7}, {}}), std::runtime_error);
  EXPECT_THROW(Slice(setup, {{10}, {4}, {2}, {-1}}), std::runtime_error);
  EXPECT_THROW(Slice(setup, {{10}, {4}, {2}, {0}}), std::runtime_error);
  EXPECT_THROW(Slice(setup, {{10, 2}, {4}, {2}, {}}), std::runtime_error);
}

template <class T>
void checkPad(const Pad::Options& o) {
  Shape output = o.input;
  for (std::size_t axis = 0; axis < o.before.size(); ++axis) output.dims[axis] += o.before[axis] + o.after[axis];
  const Buffer<T> x = counting<T>(o.input.elements()), y(output.elements()), expected(y.count()), dx(x.count());
  std::ranges::fill(expected.values(), static_cast<T>(o.value));
  forEachElement(o.input, [&](Index index, std::int64_t i) {
    for (std::size_t axis = 0; axis < index.size(); ++axis) index[axis] += o.before[axis];
    expected[linearIndex(output, index)] = x[i];
  });
  pdcrt::Setup setup;
  const Pad pad(setup, o);
  expectGoodManners(setup, {y}, [&](Stream& q) { pad.forward(q, x, y.view()); });
  EXPECT_TRUE(equal(y, expected));
  expectGoodManners(setup, {dx}, [&](Stream& q) { pad.inputGradient(q, y, dx.view()); });
  EXPECT_TRUE(equal(dx, x));
}

TEST(PadKernel, SurroundsTheInputAndCutsItOutAgain) {
  for (const Pad::Options& o : std::initializer_list<Pad::Options>{{{3}, {2}, {1}, -1},
                                                                   {{2, 3, 4, 5}, {0, 0, 1, 2}, {0, 0, 2, 0}, 0},
                                                                   {{2, 3}, {1, 0}, {0, 0}, 7},
                                                                   {{2, 3}, {0, 0}, {0, 0}, 7}}) {
    checkPad<float>(o);
    checkPad<std::int32_t>(o);
  }
}

TEST(PadKernel, RefusesNegativeOrMissingPaddings) {
  pdcrt::Setup setup;
  EXPECT_THROW(Pad(setup, {{3}, {-1}, {0}}), std::runtime_error);
  EXPECT_THROW(Pad(setup, {{3}, {1, 1}, {0}}), std::runtime_error);
}

TEST(BroadcastKernel, RepeatsAlongMissingAxesAndThoseOfSizeOne) {
  for (const Broadcast::Options& o : std::initializer_list<Broadcast::Options>{{{}, {4}},
                                                                               {{5}, {3, 5}},
                                                                               {{5, 1}, {5, 4}},
                                                                               {{3, 1, 1}, {2, 3, 4, 5}},
                                                                               {{1, 3, 1, 5}, {2, 3, 4, 5}},
                                                                               {{2, 3}, {2, 3}}}) {
    const Buffer<float> x = counting<float>(o.input.elements()), y(o.output.elements()), expected(y.count());
    forEachElement(o.output, [&](const Index& index, std::int64_t i) {
      Index from(index.end() - o.input.rank, index.end());
      for (int axis = 0; axis < o.input.rank; ++axis)
        if (o.input.dims[axis] == 1) from[static_cast<std::size_t>(axis)] = 0;
      expected[i] = x[linearIndex(o.input, from)];
    });
    pdcrt::Setup setup;
    const Broadcast broadcast(setup, o);
    expectGoodManners(setup, {y}, [&](Stream& q) { broadcast.forward(q, x, y.view()); });
    EXPECT_TRUE(equal(y, expected));
  }
  pdcrt::Setup setup;
  EXPECT_THROW(Broadcast(setup, {{3}, {4}}), std::runtime_error);
  EXPECT_THROW(Broadcast(setup, {{1, 4}, {4}}), std::runtime_error);
}

TEST(ConcatKernel, PutsOperandsSideBySide) {
  const Buffer<float> a = {1, 2, 3, 4}, b = {5, 6}, c = {7, 8, 9, 10, 11, 12}, y(12);
  pdcrt::Setup setup;
  const Concat concat(setup, {.outer = 2, .inner = {2, 1, 3}});
  expectGoodManners(setup, {y}, [&](Stream& q) { concat.forward(q, {a, b, c}, y.view()); });
  EXPECT_TRUE(equal(y, {1, 2, 5, 7, 8, 9, 3, 4, 6, 10, 11, 12}));
  const Buffer<std::int64_t> tokens = {1, 2}, joined(4);
  const Concat flat(setup, {.outer = 1, .inner = {2, 2}});
  expectGoodManners(setup, {joined}, [&](Stream& q) { flat.forward(q, {tokens, tokens}, joined.view()); });
  EXPECT_TRUE(equal(joined, {1, 2, 1, 2}));
}

template <class I>
void checkGather() {
  // [outer 2, size 3, inner 2]
  const Buffer<float> x = {0, 1, 10, 11, 20, 21, 30, 31, 40, 41, 50, 51}, y(20), dx(12);
  const Buffer<I> indices = {2, 0, -1, 2, 1};
  pdcrt::Setup setup;
  const Gather gather(setup, {.outer = 2, .size = 3, .inner = 2, .count = 5});
  expectGoodManners(setup, {y}, [&](Stream& q) { gather.forward(q, x, indices, y.view()); });
  EXPECT_TRUE(equal(y, {20, 21, 0, 1, 20, 21, 20, 21, 10, 11, 50, 51, 30, 31, 50, 51, 50, 51, 40, 41}));
  const Buffer<float> dy = counting<float>(20);
  expectGoodManners(setup, {dx}, [&](Stream& q) { gather.inputGradient(q, dy, indices, dx); });
  EXPECT_TRUE(equal(dx, {3, 4, 9, 10, 1 + 5 + 7, 2 + 6 + 8, 13, 14, 19, 20, 11 + 15 + 17, 12 + 16 + 18}));
}

TEST(GatherKernel, PicksRowsAndAddsTheirGradients) {
  checkGather<std::int64_t>();
  checkGather<std::int32_t>();
}

TEST(GatherKernel, AnIndexOutsideGivesNaNAndNoGradient) {
  const Buffer<float> x = {1, 2}, y(3), dy = {1, 1, 1}, dx(2);
  const Buffer<std::int64_t> indices = {2, -3, 1};
  pdcrt::Setup setup;
  const Gather gather(setup, {.size = 2, .count = 3});
  expectGoodManners(setup, {y}, [&](Stream& q) { gather.forward(q, x, indices, y.view()); });
  EXPECT_TRUE(std::isnan(y[0]) && std::isnan(y[1]));
  EXPECT_EQ(y[2], 2);
  expectGoodManners(setup, {dx}, [&](Stream& q) { gather.inputGradient(q, dy, indices, dx); });
  EXPECT_TRUE(equal(dx, {0, 1}));
}

/// The gradient of a table whose rows are named often, rarely or never, some by more indices than are added at once.
void checkGatherGradient(const Gather::Options& o, std::int64_t offset) {
  const Buffer<float> dy(o.outer * o.count * o.inner), dx(o.outer * o.size * o.inner + offset);
  for (std::int64_t i = 0; i < dy.count(); ++i) dy[i] = static_cast<float>(i * 13 % 31); // of which sums are exact
  const Buffer<std::int64_t> indices(o.count);
  std::vector<double> expected(static_cast<std::size_t>(dx.count()));
  for (std::int64_t i = 0; i < o.count; ++i) {
    const std::int64_t kind = i * 7 % 11; // one row has more than half of the indices, some are of no row
    const std::int64_t row = kind < 6    ? o.size / 2
                             : kind < 8  ? i * 31 % o.size
                             : kind < 10 ? i / 1000 % o.size
                                         : o.size;
    indices[i] = row < o.size && i % 2 ? row - o.size : row;
    for (std::int64_t outer = 0; row < o.size && outer < o.outer; ++outer)
      for (std::int64_t j = 0; j < o.inner; ++j)
        expected[static_cast<std::size_t>(offset + (outer * o.size + row) * o.inner + j)] +=
            dy[(outer * o.count + i) * o.inner + j];
  }
  pdcrt::Setup setup;
  const Gather gather(setup, o);
  expectGoodManners(setup, {dx}, [&](Stream& q) {
    std::ranges::fill(dx.values().first(static_cast<std::size_t>(offset)), 0.0f);
    gather.inputGradient(q, dy, indices, View<float>(dx.view().data + offset));
  });
  EXPECT_EQ(relativeError(dx, expected), 0);
}

TEST(GatherKernel, AddsManyGradientsOfOneRow) {
  checkGatherGradient({.size = 90, .inner = 8, .count = 9000}, 0);
  checkGatherGradient({.size = 90, .inner = 4, .count = 300}, 1);
  checkGatherGradient({.outer = 2, .size = 5, .inner = 3, .count = 700}, 0);
  checkGatherGradient({.size = 2, .inner = 4, .count = 64}, 0);
  checkGatherGradient({.size = 1, .inner = 4, .count = 65}, 0);
  checkGatherGradient({.size = 3, .inner = 4, .count = 257}, 0);
}

template <class T>
void checkFill() {
  for (std::int64_t count : {0, 1, 15, 16, 53, 4096})
    for (std::int64_t begin : {0, 1}) {
      const Buffer<T> to(begin + count), expected(begin + count);
      std::fill_n(expected.view().data + begin, count, T(7));
      RoomyStream q;
      fill(q, to.view().data + begin, count, T(7));
      EXPECT_TRUE(equal(to, expected)) << count << " from " << begin;
      EXPECT_TRUE(to.bytes().guardsIntact());
    }
}

TEST(FillKernel, WritesEveryElementAndNoOther) {
  checkFill<float>();
  checkFill<std::int64_t>();
  checkFill<std::uint8_t>();
  checkFill<std::uint16_t>();
}

void checkReduce(const Shape& input, const Axes& axes) {
  Shape output = input;
  for (std::int64_t axis : axes) output.dims[axis] = 1;
  const Buffer<float> x = randomBuffer(input.elements(), 1), y(output.elements());
  const auto count = static_cast<std::size_t>(y.count());
  const double infinity = std::numeric_limits<double>::infinity();
  std::vector<double> sums(count), means(count), maxima(count, -infinity), minima(count, infinity);
  forEachElement(input, [&](Index index, std::int64_t i) {
    for (std::int64_t axis : axes) index[static_cast<std::size_t>(axis)] = 0;
    const auto o = static_cast<std::size_t>(linearIndex(output, index));
    sums[o] += x[i];
    maxima[o] = std::max(maxima[o], double(x[i]));
    minima[o] = std::min(minima[o], double(x[i]));
  });
  for (std::size_t i = 0; i < count; ++i)
    means[i] = sums[i] * static_cast<double>(count) / static_cast<double>(x.count());
  for (auto [kind, expected] : {std::pair{Reduction::sum, &sums}, std::pair{Reduction::mean, &means},
                                std::pair{Reduction::max, &maxima}, std::pair{Reduction::min, &minima}}) {
    pdcrt::Setup setup;
    const Reduce reduce(setup, {.input = input, .axes = axes, .kind = kind});
    expectGoodManners(setup, {y}, [&](Stream& q) { reduce.forward(q, x, y); });
    EXPECT_LE(relativeError(y, *expected), 1e-6) << "kind " << static_cast<int>(kind);
  }
}

TEST(ReduceKernel, EverySetOfAxes) {
  for (const Shape& shape :
       {Shape{}, Shape{1}, Shape{37}, Shape{70, 67}, Shape{3, 4133}, Shape{3, 1, 5}, Shape{4, 3, 5, 7}})
    for (int subset = 0; subset < 1 << shape.rank; ++subset) {
      Axes axes;
      for (int axis = 0; axis < shape.rank; ++axis)
        if (subset >> axis & 1) axes.push_back(axis);
      SCOPED_TRACE(testing::Message() << "rank " << shape.rank << ", subset " << subset);
      checkReduce(shape, axes);
    }
}

/// What may be read by packs, in rows, short rows and columns, and what just may not.
TEST(ReduceKernel, RowsAndColumnsOfManyPacks) {
  for (std::int64_t size : {40, 42, 96})
    for (const Axes& axes : {Axes{0}, Axes{2}, Axes{0, 2}}) {
      SCOPED_TRACE(testing::Message() << "size " << size << ", " << axes.size() << " axes, first " << *axes.begin());
      checkReduce({300, 3, size}, axes);
    }
  checkReduce({5, 7, 1200}, {0, 2});
  checkReduce({1700, 96}, {0});
}

TEST(ReduceKernel, SumsOfManyLoseNothing) {
  const Buffer<float> x(1 << 20), y(1);
  std::ranges::fill(x.values(), 0.1f);
  pdcrt::Setup setup;
  const Reduce sum(setup, {.input = {1 << 20}, .axes = {0}});
  const GuardedBytes workspace(setup.workspaceBytes());
  Stream q(workspace.data(), workspace.size());
  sum.forward(q, x, y);
  EXPECT_EQ(y[0], static_cast<float>(double(0.1f) * (1 << 20)));
}

TEST(ReduceKernel, NaNWins) {
  const Buffer<float> x = {1, std::numeric_limits<float>::quiet_NaN(), 3}, y(1);
  pdcrt::Setup setup;
  Stream q;
  for (Reduction kind : {Reduction::sum, Reduction::mean, Reduction::max, Reduction::min}) {
    Reduce(setup, {.input = {3}, .axes = {0}, .kind = kind}).forward(q, x, y);
    EXPECT_TRUE(std::isnan(y[0]));
  }
}

template <class T>
class ReduceIntegers : public testing::Test {};
using IntegerTypes = testing::Types<std::int8_t, std::uint8_t, std::int16_t, std::uint16_t, std::int32_t, std::uint32_t,
                                    std::int64_t, std::uint64_t>;
TYPED_TEST_SUITE(ReduceIntegers, IntegerTypes);

/// 300 numbers of a row, or of a column: more than a small type can count.
TYPED_TEST(ReduceIntegers, WrapAroundAndHaveTheirOwnOrder) {
  using T = TypeParam;
  using Wide = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;
  constexpr std::int64_t terms = 300, results = 3;
  pdcrt::Setup setup;
  for (bool rows : {true, false}) {
    const Shape input = rows ? Shape{results, terms} : Shape{terms, results};
    Buffer<T> x(terms * results);
    for (std::int64_t i = 0; i < x.count(); ++i)
      x[i] = static_cast<T>(0x9E3779B97F4A7C15u * static_cast<std::uint64_t>(i + 1));
    for (Reduction kind : {Reduction::sum, Reduction::mean, Reduction::max, Reduction::min, Reduction::product}) {
      const Buffer<T> y(results);
      const Reduce reduce(setup, {.input = input, .axes = rows ? Axes{1} : Axes{0}, .kind = kind});
      expectGoodManners(setup, {y}, [&](Stream& q) { reduce.forward(q, x, y.view()); });
      for (std::int64_t result = 0; result < results; ++result) {
        std::uint64_t sum = 0, product = 1;
        T max = std::numeric_limits<T>::lowest(), min = std::numeric_limits<T>::max();
        for (std::int64_t term = 0; term < terms; ++term) {
          const T value = x[rows ? result * terms + term : term * results + result];
          sum += static_cast<std::uint64_t>(value);
          product *= static_cast<std::uint64_t>(value);
          max = std::max(max, value), min = std::min(min, value);
        }
        const T mean = static_cast<T>(static_cast<Wide>(static_cast<T>(sum)) / static_cast<Wide>(terms));
        const T expected = kind == Reduction::sum    ? static_cast<T>(sum)
                           : kind == Reduction::mean ? mean
                           : kind == Reduction::max  ? max
                           : kind == Reduction::min  ? min
                                                     : static_cast<T>(product);
        EXPECT_EQ(y[result], expected) << "kind " << static_cast<int>(kind) << ", result " << result;
      }
    }
  }
}

TYPED_TEST(ReduceIntegers, OfNoneTheExtremesAreThoseOfTheType) {
  using T = TypeParam;
  pdcrt::Setup setup;
  RoomyStream q;
  const Buffer<T> x(0), y(2);
  Reduce(setup, {.input = {2, 0}, .axes = {1}, .kind = Reduction::max}).forward(q, x, y.view());
  EXPECT_EQ(y[0], std::numeric_limits<T>::lowest());
  EXPECT_EQ(y[1], std::numeric_limits<T>::lowest());
  Reduce(setup, {.input = {2, 0}, .axes = {1}, .kind = Reduction::min}).forward(q, x, y.view());
  EXPECT_EQ(y[0], std::numeric_limits<T>::max());
}

TEST(ReduceKernel, RefusesAnAxisThatIsNone) {
  pdcrt::Setup setup;
  EXPECT_THROW(Reduce(setup, {.input = {3}, .axes = {1}}), std::runtime_error);
  EXPECT_THROW(Reduce(setup, {.input = {3}, .axes = {-1}}), std::runtime_error);
  EXPECT_THROW(Reduce(setup, {.input = {3, 2}, .axes = {1, 1}}), std::runtime_error);
}

} // namespace
