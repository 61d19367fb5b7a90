// LINK: pdcrt_kernels
// Attention against its definition in double precision: blocks of queries, heads that share keys, biases of every
// shape, causal, with dropout.
#include "AttentionDefinition.h"
#include "KernelTest.h"
#include "TeamMember.h"
#include "pdcrt/Random.h"
#include "pdcrt/kernels/Attention.h"
#include "pdcrt/kernels/Dropout.h"

#include <limits>
#include <optional>
#include <stdexcept>

using namespace pdcrt;
using namespace pdcrt::attention;

namespace {

/// The mask that Dropout draws for the weights.
std::vector<std::uint8_t> maskOf(const Attention::Options& o, Draw draw) {
  const std::int64_t count = o.batch * o.heads * o.queries * o.keys;
  const Buffer<float> x(count), y(count);
  const Buffer<std::uint8_t> mask(count);
  pdcrt::Setup setup;
  Stream q;
  Dropout(setup, {.elements = count, .op = o.op, .ratio = o.ratio}).forward(q, draw, x, y, mask);
  return {mask.values().begin(), mask.values().end()};
}

void check(const Attention::Options& o, const Inputs& in) {
  SCOPED_TRACE(std::to_string(o.queries) + " queries, " + std::to_string(o.keys) + " keys");
  pdcrt::Setup setup;
  const Attention attention(setup, o);
  const std::int64_t rows = o.batch * o.heads * o.queries;
  const Buffer<float> y(rows * o.valueSize), largest(rows), inverse(rows), dq(in.q.count()), dk(in.k.count()),
      dv(in.v.count());
  const Buffer<std::uint8_t> mask(o.ratio > 0 ? rows * o.keys : 1);
  const View<const float> bias = o.bias.rank ? View<const float>(in.bias) : View<const float>();
  const Draw draw{.seed = 42, .minibatch = 7};
  std::vector<std::uint8_t> drawn;
  if (o.ratio > 0) {
    drawn = maskOf(o, draw);
    expectGoodManners(
        setup, {y, largest, inverse, mask},
        [&](Stream& q) { attention.forwardDropped(q, draw, in.q, in.k, in.v, bias, y, largest, inverse, mask); },
        productMemory);
    EXPECT_TRUE(std::ranges::equal(mask.values(), drawn));
  } else {
    expectGoodManners(
        setup, {y, largest, inverse},
        [&](Stream& q) { attention.forward(q, in.q, in.k, in.v, bias, y, largest, inverse); }, productMemory);
  }
  expectGoodManners(
      setup, {dq, dk, dv},
      [&](Stream& q) {
        attention.inputGradient(q, in.dy, in.q, in.k, in.v, bias, largest, inverse,
                                o.ratio > 0 ? View<const std::uint8_t>(mask) : View<const std::uint8_t>(), dq, dk, dv);
      },
      productMemory);
  const Outcome exact = expected(o, in, drawn);
  expectClose(y, exact.y, "y");
  expectClose(dq, exact.dq, "dq");
  expectClose(dk, exact.dk, "dk");
  expectClose(dv, exact.dv, "dv");
}

void check(const Attention::Options& o) {
  check(o, Inputs(o));
}

TEST(AttentionKernel, AgreesWithItsDefinition) {
  check({.batch = 2, .heads = 3, .groups = 3, .queries = 5, .keys = 7, .size = 4, .valueSize = 6, .scale = 0.5});
  check({.queries = 1, .keys = 1, .size = 1, .valueSize = 1});
  check({.heads = 2, .groups = 2, .queries = 70, .keys = 600, .size = 3, .valueSize = 2}); // blocks of 54 and 16
  check({.heads = 2, .groups = 1, .queries = 70, .keys = 600, .size = 32, .valueSize = 24, .scale = 0.2});
}

TEST(AttentionKernel, SeesNoKeyAfterACausalQuery) {
  check({.batch = 2, .heads = 2, .groups = 2, .queries = 9, .keys = 9, .size = 4, .valueSize = 4, .causal = true});
  check({.queries = 3, .keys = 8, .size = 4, .valueSize = 4, .causal = true});
  check(
      {.heads = 2, .groups = 1, .queries = 150, .keys = 150, .size = 8, .valueSize = 8, .scale = 0.3, .causal = true});
}

TEST(AttentionKernel, SharesKeysAmongHeads) {
  check({.batch = 2, .heads = 6, .groups = 2, .queries = 4, .keys = 5, .size = 3, .valueSize = 2, .scale = 0.7});
  check({.heads = 4, .groups = 1, .queries = 20, .keys = 2100, .size = 2, .valueSize = 1}); // blocks of 16 and 4
}

TEST(AttentionKernel, AddsBiasesOfEveryShape) {
  for (const Shape& bias :
       {Shape{2, 3, 4, 5}, Shape{2, 1, 1, 5}, Shape{1, 3, 1, 5}, Shape{1, 1, 4, 5}, Shape{1, 1, 1, 5}})
    check({.batch = 2, .heads = 3, .groups = 1, .queries = 4, .keys = 5, .size = 2, .valueSize = 3, .bias = bias});
  check({.queries = 70, .keys = 70, .size = 2, .valueSize = 3, .causal = true, .bias = {1, 1, 70, 70}});
}

TEST(AttentionKernel, GivesHiddenScoresNoGradient) {
  const Attention::Options o{.queries = 4, .keys = 5, .size = 2, .valueSize = 3, .bias = {1, 1, 4, 5}, .hides = true};
  const Inputs in(o);
  for (std::int64_t i : {0, 3, 7}) in.bias[i] = std::numeric_limits<float>::lowest();
  check(o, in);
  // A query that sees nothing has equal weights.
  for (std::int64_t i = 10; i < 15; ++i) in.bias[i] = std::numeric_limits<float>::lowest();
  pdcrt::Setup setup;
  const Attention attention(setup, o);
  const Buffer<float> y(12), largest(4), inverse(4), dq(8), dk(10), dv(15);
  const GuardedBytes workspace(setup.workspaceBytes());
  Stream q(workspace.data(), workspace.size());
  attention.forward(q, in.q, in.k, in.v, in.bias, y, largest, inverse);
  attention.inputGradient(q, in.dy, in.q, in.k, in.v, in.bias, largest, inverse, {}, dq, dk, dv);
  EXPECT_EQ(inverse[2], 0.2f);
  for (std::int64_t e = 0; e < 2; ++e) EXPECT_EQ(dq[2 * 2 + e], 0);
}

/// A row of scores is held by a warp, by a block, or goes through it in pieces; four at once, or one by one.
TEST(AttentionKernel, TakesRowsOfEveryLength) {
  for (std::int64_t keys : {64, 129, 132, 600, 1023, 1024, 2052, 2053, 4100})
    for (bool causal : {false, true})
      check({.queries = 3,
             .keys = keys,
             .size = 2,
             .valueSize = 2,
             .causal = causal,
             .bias = {1, 1, 3, keys},
             .ratio = 0.25});
}

TEST(AttentionKernel, DropsAsDropoutDoes) {
  check(
      {.batch = 2, .heads = 2, .groups = 2, .queries = 5, .keys = 7, .size = 4, .valueSize = 3, .ratio = 0.3, .op = 9});
  check({.heads = 2,
         .groups = 1,
         .queries = 70,
         .keys = 70,
         .size = 4,
         .valueSize = 3,
         .scale = 0.5,
         .causal = true,
         .ratio = 0.5,
         .op = 3});
}

/// The mask that a member draws for the weights of its part, whose sizes these are.
std::vector<std::uint8_t> maskOfMember(const Attention::Options& part, Draw draw, std::int64_t member) {
  const Inputs in(part);
  const std::int64_t rows = part.batch * part.heads * part.queries;
  const Buffer<float> y(rows * part.valueSize), largest(rows), inverse(rows);
  const Buffer<std::uint8_t> mask(rows * part.keys);
  pdcrt::Setup setup;
  const Attention attention(setup, part);
  TeamMember team(member, part.members);
  expectGoodManners(
      setup, {y, largest, inverse, mask},
      [&](Stream& q) {
        q.join(&team);
        attention.forwardDropped(q, draw, in.q, in.k, in.v, {}, y, largest, inverse, mask);
      },
      productMemory);
  const std::vector<std::uint8_t> drawn{mask.values().begin(), mask.values().end()};
  expectClose(y, expected(part, in, drawn).y, "y"); // what is drawn is what is dropped
  return drawn;
}

TEST(AttentionKernel, AMembersHeadsOrSamplesDropAsInTheWhole) {
  const Draw draw{.seed = 42, .minibatch = 7};
  for (std::int64_t members : {2, 3})
    for (std::int64_t keys : {7, 8}) {
      SCOPED_TRACE(testing::Message() << members << " members, " << keys << " keys");
      const Attention::Options whole{.batch = 6,
                                     .heads = 6,
                                     .groups = 6,
                                     .queries = 5,
                                     .keys = keys,
                                     .size = 4,
                                     .valueSize = 3,
                                     .ratio = 0.4,
                                     .op = 9};
      const std::vector<std::uint8_t> all = maskOf(whole, draw);
      Attention::Options ofHeads = whole, ofSamples = whole;
      ofHeads.members = ofSamples.members = members;
      ofHeads.heads = ofHeads.groups = 6 / members;
      ofHeads.run = ofHeads.heads * 5 * keys;
      ofSamples.batch = 6 / members;
      ofSamples.run = ofSamples.batch * 6 * 5 * keys;
      for (const Attention::Options& part : {ofHeads, ofSamples})
        for (std::int64_t m = 0; m < members; ++m) {
          const std::vector<std::uint8_t> mask = maskOfMember(part, draw, m);
          const pdcrt::OwnElements own{part.run, members, m};
          for (std::size_t i = 0; i < mask.size(); ++i)
            ASSERT_EQ(mask[i], all[static_cast<std::size_t>(own.at(static_cast<std::int64_t>(i)))])
                << "member " << m << ", runs of " << part.run << ", element " << i;
        }
    }
}

TEST(AttentionKernel, ComputesTheGradientsThatAreWanted) {
  const Attention::Options o{.heads = 2, .groups = 2, .queries = 3, .keys = 4, .size = 2, .valueSize = 2};
  const Inputs in(o);
  pdcrt::Setup setup;
  const Attention attention(setup, o);
  const Buffer<float> y(12), largest(6), inverse(6), dv(16);
  const GuardedBytes workspace(setup.workspaceBytes());
  Stream q(workspace.data(), workspace.size());
  attention.forward(q, in.q, in.k, in.v, {}, y, largest, inverse);
  attention.inputGradient(q, in.dy, in.q, in.k, in.v, {}, largest, inverse, {}, {}, {}, dv);
  expectClose(dv, expected(o, in, {}).dv, "dv");
}

TEST(AttentionKernel, RefusesSizesThatDoNotFit) {
  pdcrt::Setup setup;
  const Attention::Options good{.heads = 4, .groups = 2, .queries = 3, .keys = 3, .size = 2, .valueSize = 2};
  const auto refuses = [&](auto change) {
    Attention::Options o = good;
    change(o);
    EXPECT_THROW(Attention(setup, o), std::runtime_error);
  };
  EXPECT_NO_THROW(Attention(setup, good));
  refuses([](auto& o) { o.keys = 0; });
  refuses([](auto& o) { o.groups = 3; });
  refuses([](auto& o) { o.causal = true, o.queries = 4; });
  refuses([](auto& o) { o.ratio = 1; });
  refuses([](auto& o) { o.run = 5, o.members = 2; });
  refuses([](auto& o) { o.bias = {1, 1, 3, 2}; });
  refuses([](auto& o) { o.bias = {3}; });
}

TEST(MultiHeadAttentionKernel, AgreesWithTheDefinition) {
  for (const MultiHeadAttention::Options& o : std::initializer_list<MultiHeadAttention::Options>{
           {.batch = 2, .heads = 3, .groups = 3, .queries = 5, .keys = 7, .size = 4, .valueSize = 6, .scale = 0.5},
           {.batch = 2, .heads = 4, .groups = 2, .queries = 6, .keys = 6, .size = 4, .valueSize = 4, .packed = true},
           {.heads = 2, .groups = 1, .queries = 3, .keys = 8, .size = 8, .valueSize = 4, .causal = true},
           {.batch = 2, .heads = 2, .groups = 2, .queries = 3, .keys = 5, .size = 4, .bias = {2, 1, 1, 5}},
           {.batch = 2,
           .heads = 4,
           .groups = 2,
           .queries = 6,
           .keys = 6,
           .size = 4,
           .valueSize = 4,
           .causal = true,
           .bias = {1, 4, 6, 6},
           .packed = true},
           {.batch = 3,
           .heads = 2,
           .groups = 2,
           .queries = 9,
           .keys = 9,
           .size = 8,
           .valueSize = 8,
           .causal = true,
           .packed = true}}) {
    SCOPED_TRACE(testing::Message() << o.heads << " heads, " << (o.packed ? "packed" : "each its own"));
    expectDefinitionInRows<float>(o, 1e-5);
  }
}

TEST(MultiHeadAttentionKernel, RefusesPackedRowsWithOtherKeys) {
  pdcrt::Setup setup;
  EXPECT_THROW(MultiHeadAttention(setup, {.queries = 2, .keys = 3, .packed = true}), std::runtime_error);
}

} // namespace
