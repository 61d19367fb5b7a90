// LINK: pdcrt
// Kernels that bring values from one form into another, on members that are threads, against the formulas on whole
// tensors: local element j of a divided axis, in blocks of B elements with shares of s, is element ⌊j / s⌋ · B + m · s
// + j mod s of the whole, and zero beyond its end.
#include "TeamThreads.h"

#include "pdcrt/kernels/OwnPart.h"
#include "pdcrt/kernels/TeamExchange.h"
#include "pdcrt/kernels/TeamGather.h"
#include "pdcrt/kernels/TeamReduce.h"
#include "pdcrt/kernels/TeamScatter.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <stdexcept>
#include <string>

using namespace pdcrt;

namespace {

using Floats = std::vector<float>;

struct Tensor {
  Shape shape;
  Floats values;
};

Tensor random(const Shape& shape, unsigned seed) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  Tensor tensor{shape, Floats(static_cast<std::size_t>(shape.elements()))};
  for (float& value : tensor.values) value = uniform(engine);
  return tensor;
}

/// A member's part, element by element.
Tensor partOf(const Tensor& whole, const TeamDivision& division, int members, int member) {
  const auto axis = division.axis;
  const std::int64_t size = whole.shape.dims[axis], blocks = division.padded > 0 ? 1 : division.blocks,
                     block = size / blocks, share = (block + members - 1) / members;
  Tensor part{whole.shape, {}};
  part.shape.dims[axis] = share * blocks;
  std::int64_t inner = 1;
  for (int i = axis + 1; i < whole.shape.rank; ++i) inner *= whole.shape.dims[i];
  for (std::int64_t i = 0; i < part.shape.elements(); ++i) {
    const std::int64_t outer = i / (share * blocks * inner), j = i / inner % (share * blocks), rest = i % inner;
    const std::int64_t inBlock = member * share + j % share;
    const bool isPadding = inBlock >= block;
    const std::int64_t at = (outer * size + j / share * block + inBlock) * inner + rest;
    part.values.push_back(isPadding ? 0 : whole.values[static_cast<std::size_t>(at)]);
  }
  return part;
}

Tensor sumOf(const std::vector<Tensor>& terms) {
  Tensor sum = terms[0];
  for (std::size_t m = 1; m < terms.size(); ++m)
    for (std::size_t i = 0; i < sum.values.size(); ++i) sum.values[i] += terms[m].values[i];
  return sum;
}

/// Runs `kernel` on each member, on its `x`: kernel(q, x, arrived) gives the result.
template <class Kernel, class Options, class Call>
std::vector<Floats> runAll(const std::vector<Tensor>& xs, Options options, std::int64_t resultElements,
                           const Call& call) {
  const int members = static_cast<int>(xs.size());
  options.operand = xs[0].shape; // all have one
  std::vector<Kernel> kernels;
  std::vector<Collective> collectives;
  for (std::size_t i = 0; i < xs.size(); ++i) {
    pdcrt::Setup setup;
    kernels.emplace_back(setup, options);
    collectives = setup.collectives();
  }
  std::vector<Floats> results(xs.size());
  TeamThreads team(members, collectives);
  team.run([&](Stream& q, int member) {
    const auto m = static_cast<std::size_t>(member);
    const Floats before = xs[m].values;
    Floats arrived(static_cast<std::size_t>(Kernel::arriving(options)), NAN),
        y(static_cast<std::size_t>(resultElements), NAN);
    const View<const float> x = xs[m].values.data();
    kernels[m].start(q, x, View<float>(arrived.data()));
    call(kernels[m], q, x, View<float>(arrived.data()), View<float>(y.data()));
    EXPECT_EQ(xs[m].values, before);
    results[m] = y;
  });
  return results;
}

struct Case {
  Shape whole;
  TeamDivision division;
};

/// Divisions for `members`: along each axis, in blocks, padded.
std::vector<Case> casesFor(int members) {
  const std::int64_t t = members;
  return {{{2 * t}, {0, 1, 0}},
          {{3, 2 * t, 5}, {1, 1, 0}},
          {{3 * t, 4}, {0, 1, 0}},
          {{3 * t, 4}, {0, 3, 0}},
          {{2, 6 * t}, {1, 3, 0}},
          {{2, 3, 2 * t, 2}, {2, 2, 0}},
          {{2 * t - 1}, {0, 1, 2 * t - 1}},
          {{4, 3 * t - 1}, {1, 1, 3 * t - 1}},
          {{3 * t - 2, 3}, {0, 1, 3 * t - 2}},
          {{2, 4 * t - 3, 3}, {1, 1, 4 * t - 3}}};
}

std::string text(const Case& of) {
  std::string text;
  for (int i = 0; i < of.whole.rank; ++i) text += std::to_string(of.whole.dims[i]) + " ";
  return text + "axis " + std::to_string(of.division.axis) + " blocks " + std::to_string(of.division.blocks) +
         " padded " + std::to_string(of.division.padded);
}

class TeamKernels : public testing::TestWithParam<int> {
protected:
  int members() const { return GetParam(); }
  std::vector<Tensor> terms(const Shape& shape) const {
    std::vector<Tensor> terms;
    for (int m = 0; m < members(); ++m) terms.push_back(random(shape, static_cast<unsigned>(100 + m)));
    return terms;
  }
  std::vector<Tensor> parts(const Tensor& whole, const TeamDivision& division) const {
    std::vector<Tensor> parts;
    for (int m = 0; m < members(); ++m) parts.push_back(partOf(whole, division, members(), m));
    return parts;
  }
};

TEST_P(TeamKernels, ReduceIsTheSumTheMeanTheLargestOrTheSmallest) {
  using Combine = TeamReduce::Combine;
  const Shape shape = {3, 5, 7};
  const std::vector<Tensor> xs = terms(shape);
  const auto m = static_cast<float>(members());
  for (const Combine combine : {Combine::sum, Combine::mean, Combine::max, Combine::min})
    for (int added = -2; added < 3; ++added) { // -2: none
      const TeamReduce::Options options = {
          .members = members(), .combine = combine, .addedAxis = added < 0 ? -1 : added};
      const Tensor more = random(added < 0 ? shape : Shape{shape.dims[added]}, 7);
      const std::vector<Floats> results = runAll<TeamReduce>(
          xs, options, shape.elements(),
          [&](const TeamReduce& kernel, Stream& q, View<const float> x, View<float> arrived, View<float> y) {
            kernel.finish(q, x, arrived, added == -2 ? View<const float>() : View<const float>(more.values.data()), y);
          });
      for (std::size_t i = 0; i < xs[0].values.size(); ++i) {
        float expected = xs[0].values[i];
        for (std::size_t k = 1; k < xs.size(); ++k) {
          const float term = xs[k].values[i];
          expected = combine == Combine::max   ? std::max(expected, term)
                     : combine == Combine::min ? std::min(expected, term)
                                               : expected + term;
        }
        if (combine == Combine::mean) expected /= m;
        const std::size_t inner = added == 0 ? 35 : added == 1 ? 7 : 1, size = added < 0 ? 105 : more.values.size();
        if (added != -2) expected += more.values[i / inner % size];
        for (const Floats& result : results) ASSERT_EQ(result[i], expected) << i << " added " << added;
      }
    }
}

TEST_P(TeamKernels, ReduceMayWriteOverItsOperand) {
  std::vector<Tensor> xs = terms({4, 9});
  const Tensor sum = sumOf(xs);
  const TeamReduce::Options options = {.operand = xs[0].shape, .members = members()};
  pdcrt::Setup setup;
  const TeamReduce kernel(setup, options);
  TeamThreads team(members(), setup.collectives());
  team.run([&](Stream& q, int member) {
    float* const x = xs[static_cast<std::size_t>(member)].values.data();
    Floats arrived(static_cast<std::size_t>(TeamReduce::arriving(options)));
    kernel.start(q, View<const float>(x), View<float>(arrived.data()));
    kernel.finish(q, View<const float>(x), View<float>(arrived.data()), {}, View<float>(x));
  });
  for (const Tensor& x : xs) EXPECT_EQ(x.values, sum.values);
}

TEST_P(TeamKernels, ScatterLeavesEachItsPartOfTheSum) {
  for (const Case& of : casesFor(members())) {
    const std::vector<Tensor> xs = terms(of.whole), expected = parts(sumOf(xs), of.division);
    const std::vector<Floats> results = runAll<TeamScatter>(
        xs, TeamScatter::Options{.members = members(), .to = of.division}, expected[0].shape.elements(),
        [](const TeamScatter& kernel, Stream& q, View<const float> x, View<float> arrived, View<float> y) {
          kernel.finish(q, x, arrived, y);
        });
    for (std::size_t m = 0; m < results.size(); ++m) EXPECT_EQ(results[m], expected[m].values) << text(of) << " " << m;
  }
}

TEST_P(TeamKernels, GatherJoinsTheParts) {
  for (const Case& of : casesFor(members())) {
    const Tensor whole = random(of.whole, 3);
    const std::vector<Floats> results = runAll<TeamGather>(
        parts(whole, of.division), TeamGather::Options{.members = members(), .from = of.division}, of.whole.elements(),
        [](const TeamGather& kernel, Stream& q, View<const float> x, View<float> arrived, View<float> y) {
          kernel.finish(q, x, arrived, y);
        });
    for (const Floats& result : results) EXPECT_EQ(result, whole.values) << text(of);
  }
}

TEST_P(TeamKernels, ExchangeSplitsAlongTheOtherAxis) {
  const std::int64_t t = members();
  const std::vector<std::pair<TeamDivision, TeamDivision>> divisions = {
      {{0, 1, 0}, {2, 1, 0}}, {{2, 1, 0}, {0, 1, 0}}, {{2, 3, 0}, {0, 2, 0}}, {{0, 2, 0}, {2, 3, 0}}};
  const Shape even = {2 * t, 3, 3 * t}, uneven = {2 * t - 1, 3, 3 * t - 2};
  std::vector<std::pair<Tensor, std::pair<TeamDivision, TeamDivision>>> cases;
  for (const auto& of : divisions) cases.emplace_back(random(even, 5), of);
  cases.push_back({random(uneven, 6), {{0, 1, 2 * t - 1}, {2, 1, 3 * t - 2}}});
  cases.push_back({random(uneven, 6), {{2, 1, 3 * t - 2}, {0, 1, 2 * t - 1}}});
  for (const auto& [whole, forms] : cases) {
    const auto& [from, to] = forms;
    const std::vector<Tensor> expected = parts(whole, to);
    const std::vector<Floats> results =
        runAll<TeamExchange>(parts(whole, from), TeamExchange::Options{.members = members(), .from = from, .to = to},
                             expected[0].shape.elements(),
                             [](const TeamExchange& kernel, Stream& q, View<const float> x, View<float> arrived,
                                View<float> y) { kernel.finish(q, x, arrived, y); });
    for (std::size_t m = 0; m < results.size(); ++m)
      EXPECT_EQ(results[m], expected[m].values)
          << from.axis << "/" << from.blocks << " to " << to.axis << "/" << to.blocks << " on " << m;
  }
}

TEST_P(TeamKernels, ReduceAddsAlongChannelsInEveryLayout) {
  const std::int64_t batch = 2, channels = 12, plane = 5;
  for (const std::int64_t lanes : {std::int64_t{1}, std::int64_t{4}, channels}) {
    const std::vector<Tensor> xs = terms({batch, channels, plane, 1});
    const Tensor bias = random({channels}, 7);
    const std::vector<Floats> results = runAll<TeamReduce>(
        xs, TeamReduce::Options{.members = members(), .addedAxis = 1, .lanes = lanes}, xs[0].shape.elements(),
        [&](const TeamReduce& kernel, Stream& q, View<const float> x, View<float> arrived, View<float> y) {
          kernel.finish(q, x, arrived, View<const float>(bias.values.data()), y);
        });
    std::size_t i = 0; // in memory: [batch, channels / lanes, plane, lanes]
    for (std::int64_t n = 0; n < batch; ++n)
      for (std::int64_t block = 0; block < channels / lanes; ++block)
        for (std::int64_t p = 0; p < plane; ++p)
          for (std::int64_t lane = 0; lane < lanes; ++lane, ++i) {
            float expected = xs[0].values[i];
            for (std::size_t k = 1; k < xs.size(); ++k) expected += xs[k].values[i];
            expected += bias.values[static_cast<std::size_t>(block * lanes + lane)];
            for (const Floats& result : results) ASSERT_EQ(result[i], expected) << i << ", lanes " << lanes;
          }
  }
}

TEST_P(TeamKernels, OwnPartIsTheMembers) {
  for (const Case& of : casesFor(members())) {
    const Tensor whole = random(of.whole, 9);
    const std::vector<Tensor> expected = parts(whole, of.division);
    pdcrt::Setup setup;
    const OwnPart kernel(setup, {.operand = whole.shape, .members = members(), .to = of.division});
    TeamThreads team(members(), {});
    team.run([&](Stream& q, int member) {
      Floats y(expected[0].values.size(), NAN);
      kernel.forward(q, View<const float>(whole.values.data()), View<float>(y.data()));
      EXPECT_EQ(y, expected[static_cast<std::size_t>(member)].values) << text(of) << " " << member;
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Members, TeamKernels, testing::Values(2, 3, 4));

std::string refusal(const std::function<void(Setup&)>& construct) {
  pdcrt::Setup setup;
  try {
    construct(setup);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "constructed";
}

TEST(TeamKernelOptions, ThatDoNotFitAreRefused) {
  EXPECT_EQ(refusal([](auto& s) {
              TeamScatter(s, {.operand = {4, 7}, .members = 2, .to = {1}});
            }),
            "the value 4x7 cannot be divided along axis 1 in 1 blocks of 2 parts");
  EXPECT_EQ(refusal([](auto& s) {
              TeamScatter(s, {.operand = {4, 8}, .members = 2, .to = {1, 3}});
            }),
            "the value 4x8 cannot be divided along axis 1 in 3 blocks of 2 parts");
  EXPECT_EQ(refusal([](auto& s) { OwnPart(s, {.operand = {4}, .members = 2, .to = {2}}); }),
            "the value 4 cannot be divided along axis 2 in 1 blocks of 2 parts");
  // The last of four members would have nothing: 2 + 2 + 1 + 0.
  EXPECT_EQ(refusal([](auto& s) {
              OwnPart(s, {.operand = {5}, .members = 4, .to = {0, 1, 5}});
            }),
            "the part 2 cannot be divided along axis 0 in 1 blocks of 4 parts of 5 elements");
  EXPECT_EQ(refusal([](auto& s) {
              TeamGather(s, {.operand = {3}, .members = 2, .from = {0, 1, 9}});
            }),
            "the part 3 cannot be divided along axis 0 in 1 blocks of 2 parts of 9 elements");
  EXPECT_EQ(refusal([](auto& s) {
              TeamExchange(s, {.operand = {4, 4}, .members = 2, .from = {1}, .to = {1}});
            }),
            "parts of 4x4 are exchanged along one axis, 1");
  EXPECT_EQ(refusal([](auto& s) {
              TeamReduce(s, {.operand = {4, 4}, .members = 2, .addedAxis = 2});
            }),
            "a sum over a team adds along axis 2 of 4x4");
}

} // namespace
