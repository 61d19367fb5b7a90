// LINK: pdcIR pdcrt_base
// Parts of tensors: what a member has, as the compiler says it, and any parts made of any others.
#include "pdc/IR/TeamTensors.h"
#include "pdcrt/Part.h"

#include <gtest/gtest.h>
#include <numeric>
#include <random>

using pdcrt::copyPart;
using pdcrt::countsInNorm;
using pdcrt::localShape;
using pdcrt::MemberPart;
using pdcrt::Part;
using pdcrt::problemOf;
using pdcrt::wholeShape;

namespace {

using Bytes = std::vector<std::byte>;
using Random = std::mt19937_64;

std::int64_t pick(Random& random, std::int64_t from, std::int64_t to) {
  return std::uniform_int_distribution(from, to)(random);
}

pdcrt::Shape randomShape(Random& random) {
  pdcrt::Shape shape;
  shape.rank = static_cast<int>(pick(random, 1, 4));
  for (int axis = 0; axis < shape.rank; ++axis) shape.dims[axis] = pick(random, 1, 12);
  return shape;
}

Part randomPart(Random& random, const pdcrt::Shape& whole) {
  Part part;
  part.axis = static_cast<int>(pick(random, 0, whole.rank - 1));
  part.wholeSize = whole.dims[part.axis];
  part.of = pick(random, 1, 5);
  do part.blocks = pick(random, 1, part.wholeSize);
  while (part.wholeSize % part.blocks != 0);
  return part.of == 1 ? Part{} : part;
}

std::size_t bytesOf(const pdcrt::Shape& shape, std::size_t elementBytes) {
  return static_cast<std::size_t>(shape.elements()) * elementBytes;
}

/// Bytes none of which is zero, so that padding shows.
Bytes randomBytes(Random& random, std::size_t count) {
  Bytes bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(pick(random, 1, 255));
  return bytes;
}

/// What every member has.
std::vector<Bytes> cut(const pdcrt::Shape& whole, std::size_t elementBytes, const Bytes& bytes, const Part& part) {
  std::vector<Bytes> parts;
  for (int member = 0; member < part.of; ++member) {
    parts.emplace_back(bytesOf(localShape(whole, part), elementBytes));
    copyPart(whole, elementBytes, {}, bytes, {part, member}, parts.back());
  }
  return parts;
}

/// The parts of one division made of those of another.
std::vector<Bytes> cutAgain(const pdcrt::Shape& whole, std::size_t elementBytes, const std::vector<Bytes>& parts,
                            const Part& from, const Part& to) {
  std::vector<Bytes> made;
  for (int member = 0; member < to.of; ++member) {
    made.emplace_back(bytesOf(localShape(whole, to), elementBytes));
    for (int source = 0; source < from.of; ++source)
      copyPart(whole, elementBytes, {from, source}, parts[static_cast<std::size_t>(source)], {to, member}, made.back());
  }
  return made;
}

/// The definition: element by element, by the formula of Part.h.
Bytes cutByFormula(const pdcrt::Shape& whole, const Bytes& bytes, const Part& part, std::int64_t member) {
  const std::int64_t block = part.wholeSize / part.blocks, share = (block + part.of - 1) / part.of;
  std::int64_t outer = 1, inner = 1;
  for (int axis = 0; axis < whole.rank; ++axis)
    if (axis != part.axis) (axis < part.axis ? outer : inner) *= whole.dims[axis];
  Bytes made;
  for (std::int64_t o = 0; o < outer; ++o)
    for (std::int64_t j = 0; j < part.blocks * share; ++j)
      for (std::int64_t i = 0; i < inner; ++i) {
        const std::int64_t inBlock = member * share + j % share, index = j / share * block + inBlock;
        made.push_back(inBlock < block ? bytes[static_cast<std::size_t>((o * part.wholeSize + index) * inner + i)]
                                       : std::byte{});
      }
  return made;
}

} // namespace

TEST(Parts, OfAnOrderHaveTheElementsItNames) {
  Random random(5);
  for (int round = 0; round < 3000; ++round) {
    const pdcrt::Shape whole = randomShape(random);
    Part first, second = randomPart(random, whole);
    first.axis = static_cast<int>(pick(random, 0, whole.rank - 1));
    first.wholeSize = whole.dims[first.axis];
    do first.of = pick(random, 1, first.wholeSize);
    while (first.wholeSize % first.of != 0);
    if (first.isWhole()) continue;
    std::vector<std::int32_t> order(static_cast<std::size_t>(first.wholeSize));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    first.order = order;
    ASSERT_EQ(problemOf(first, whole), "");
    const Bytes bytes = randomBytes(random, bytesOf(whole, 2));
    const std::vector<Bytes> parts = cut(whole, 2, bytes, first);
    std::int64_t outer = 1, inner = 2;
    for (int axis = 0; axis < whole.rank; ++axis)
      if (axis != first.axis) (axis < first.axis ? outer : inner) *= whole.dims[axis];
    for (std::int64_t m = 0; m < first.of; ++m) {
      Bytes expected;
      for (std::int64_t o = 0; o < outer; ++o)
        for (std::int64_t j = 0; j < first.share(); ++j)
          for (std::int64_t i = 0; i < inner; ++i)
            expected.push_back(bytes[static_cast<std::size_t>(
                (o * first.wholeSize + order[static_cast<std::size_t>(m * first.share() + j)]) * inner + i)]);
      ASSERT_EQ(parts[static_cast<std::size_t>(m)], expected) << round;
    }
    ASSERT_EQ(cutAgain(whole, 2, parts, first, second), cut(whole, 2, bytes, second)) << round;
    ASSERT_EQ(cutAgain(whole, 2, cut(whole, 2, bytes, second), second, first), parts) << round;
    Part third = first;
    std::vector<std::int32_t> other = order;
    std::shuffle(other.begin(), other.end(), random);
    third.order = other;
    ASSERT_EQ(cutAgain(whole, 2, cut(whole, 2, bytes, first), first, third), cut(whole, 2, bytes, third)) << round;
  }
}

TEST(Parts, HaveTheElementsOfTheFormula) {
  Random random(1);
  for (int round = 0; round < 2000; ++round) {
    const pdcrt::Shape whole = randomShape(random);
    const Part part = randomPart(random, whole);
    if (part.isWhole()) continue;
    const Bytes bytes = randomBytes(random, bytesOf(whole, 1));
    const std::vector<Bytes> parts = cut(whole, 1, bytes, part);
    for (std::size_t m = 0; m < parts.size(); ++m)
      ASSERT_EQ(parts[m], cutByFormula(whole, bytes, part, static_cast<std::int64_t>(m))) << round;
  }
}

TEST(Parts, AreRoundTrips) {
  Random random(2);
  for (int round = 0; round < 10'000; ++round) {
    const pdcrt::Shape whole = randomShape(random);
    const Part first = randomPart(random, whole), second = randomPart(random, whole);
    const auto elementBytes = static_cast<std::size_t>(1 << pick(random, 0, 3));
    const Bytes bytes = randomBytes(random, bytesOf(whole, elementBytes));
    const std::vector<Bytes> parts = cut(whole, elementBytes, bytes, first);
    ASSERT_EQ(cutAgain(whole, elementBytes, parts, first, {})[0], bytes) << round;
    const std::vector<Bytes> others = cutAgain(whole, elementBytes, parts, first, second);
    ASSERT_EQ(others, cut(whole, elementBytes, bytes, second)) << round;
    ASSERT_EQ(cutAgain(whole, elementBytes, others, second, {})[0], bytes) << round;
  }
}

TEST(Parts, AreThoseOfTheCompiler) {
  Random random(3);
  int padded = 0, inBlocks = 0;
  for (int round = 0; round < 5000; ++round) {
    const pdcrt::Shape whole = randomShape(random);
    const Part part = randomPart(random, whole);
    const pdc::Type type{pdc::ElementType::f32, {whole.dims, whole.dims + whole.rank}};
    if (part.isWhole()) continue;
    const pdc::Form form = pdc::splitOf(type, part.axis, part.blocks, part.of);
    if (!pdc::canSplit(type, form, part.of)) continue;
    ASSERT_EQ(pdc::storedPart(type, form, part.of), part) << round;
    padded += part.isPadded();
    inBlocks += part.blocks > 1;
    ASSERT_EQ(part.isPadded(), form.padded > 0) << round;
    const pdc::Type local = pdc::partOf(type, form, part.of);
    const pdcrt::Shape shape = localShape(whole, part);
    ASSERT_EQ(local.shape, (pdc::Shape{shape.dims, shape.dims + shape.rank})) << round;
    ASSERT_EQ(wholeShape(shape, part), whole) << round;

    const Bytes bytes = randomBytes(random, bytesOf(whole, 4));
    const std::vector<Bytes> parts = cut(whole, 4, bytes, part);
    for (std::size_t m = 0; m < parts.size(); ++m) {
      const pdc::Tensor tensor = pdc::partOf(pdc::Tensor(type, bytes), form, part.of, static_cast<std::int64_t>(m));
      ASSERT_TRUE(std::equal(parts[m].begin(), parts[m].end(), tensor.bytes().begin(), tensor.bytes().end())) << round;
    }
  }
  EXPECT_EQ(pdc::storedPart({pdc::ElementType::f32, {3}}, {}, 2), Part{});
  EXPECT_GT(padded, 100);
  EXPECT_GT(inBlocks, 100);
}

TEST(Parts, OfAVocabularyHavePadding) {
  const Part part{.axis = 0, .blocks = 1, .of = 2, .wholeSize = 50'257};
  EXPECT_EQ(problemOf(part, {50'257, 8}), "");
  EXPECT_EQ(localShape({50'257, 8}, part), (pdcrt::Shape{25'129, 8}));
  EXPECT_TRUE(part.isPadded());
  Bytes bytes(50'257, std::byte{1});
  bytes.back() = std::byte{2};
  const std::vector<Bytes> parts = cut({50'257, 1}, 1, bytes, part);
  EXPECT_EQ(parts[0], Bytes(25'129, std::byte{1}));
  EXPECT_EQ(parts[1][25'126], std::byte{1});
  EXPECT_EQ(parts[1][25'127], std::byte{2});
  EXPECT_EQ(parts[1][25'128], std::byte{0});
}

TEST(Parts, OfPackedQueriesKeysAndValuesAreBlocks) {
  const Part part{.axis = 1, .blocks = 3, .of = 2, .wholeSize = 12};
  Bytes bytes;
  for (int i = 0; i < 12; ++i) bytes.push_back(static_cast<std::byte>(i));
  Bytes expected;
  for (int i : {2, 3, 6, 7, 10, 11}) expected.push_back(static_cast<std::byte>(i));
  EXPECT_EQ(cut({1, 12}, 1, bytes, part)[1], expected);
}

TEST(Parts, OfMoreMembersThanElementsAreEmptyBehindTheEnd) {
  const Part part{.axis = 0, .blocks = 1, .of = 4, .wholeSize = 2};
  const std::vector<Bytes> parts = cut({2}, 1, {std::byte{7}, std::byte{9}}, part);
  EXPECT_EQ(parts, (std::vector<Bytes>{{std::byte{7}}, {std::byte{9}}, {std::byte{0}}, {std::byte{0}}}));
}

TEST(Parts, OfScalarsAndOfNothingAreWhole) {
  Bytes to(4);
  copyPart({}, 4, {}, Bytes(4, std::byte{5}), {}, to);
  EXPECT_EQ(to, Bytes(4, std::byte{5}));
  copyPart({3, 0}, 4, {}, {}, {}, {});
}

TEST(Parts, ThatCannotBeAreRefused) {
  const pdcrt::Shape whole{6, 10};
  const Part fine{.axis = 1, .blocks = 2, .of = 5, .wholeSize = 10};
  EXPECT_EQ(problemOf(fine, whole), "");
  EXPECT_EQ(problemOf({}, whole), "");
  auto with = [&](auto change) {
    Part part = fine;
    change(part);
    return problemOf(part, whole);
  };
  EXPECT_EQ(with([](Part& p) { p.of = 0; }), "is divided over 0 members, a team has 2 to 65536");
  EXPECT_EQ(with([](Part& p) { p.of = -2; }), "is divided over -2 members, a team has 2 to 65536");
  EXPECT_EQ(with([](Part& p) { p.of = 65'537; }), "is divided over 65537 members, a team has 2 to 65536");
  EXPECT_EQ(with([](Part& p) { p.axis = 2; }), "is divided along axis 2 of 2");
  EXPECT_EQ(with([](Part& p) { p.axis = -1; }), "is divided along axis -1 of 2");
  EXPECT_EQ(with([](Part& p) { p.wholeSize = 12; }), "is divided along an axis of 12, which has 10");
  EXPECT_EQ(with([](Part& p) { p.blocks = 3; }), "has 3 blocks of an axis of 10");
  EXPECT_EQ(with([](Part& p) { p.blocks = 0; }), "has 0 blocks of an axis of 10");
  EXPECT_EQ(with([](Part& p) { p.blocks = -5; }), "has -5 blocks of an axis of 10");
  static constexpr std::int32_t few[] = {1, 0}, twice[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 0},
                                outside[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 10};
  const auto inOrder = [&](std::span<const std::int32_t> order, std::int64_t blocks = 1) {
    return with([&](Part& p) { p.blocks = blocks, p.order = order; });
  };
  EXPECT_EQ(inOrder(few), "has an order of 2 of an axis of 10");
  EXPECT_EQ(inOrder(twice), "has an order of 10 in which 0 is outside, or twice");
  EXPECT_EQ(inOrder(outside), "has an order of 10 in which 10 is outside, or twice");
  EXPECT_EQ(inOrder(outside, 2),
            "has an order of an axis of 10 in 2 blocks of 5 parts, which are not equal parts of one block");
  EXPECT_EQ(with([](Part& p) { p.blocks = 20; }), "has 20 blocks of an axis of 10");
  EXPECT_EQ(problemOf({.axis = 0, .of = 2, .wholeSize = INT64_MAX}, {INT64_MAX}),
            "is divided along an axis of 9223372036854775807, which is too large");
}

TEST(Parts, CountOnceInTheNorm) {
  const Part divided{.axis = 0, .of = 3, .wholeSize = 6};
  for (int member = 0; member < 3; ++member) {
    EXPECT_TRUE(countsInNorm(divided, member));
    EXPECT_EQ(countsInNorm({}, member), member == 0);
  }
}
