// LINK: pdcAnalysis pdcTransforms pdcOps
// What members of a team wait for each other: bytes and steps by the formulas, less what is computed meanwhile.
#include "TransformsTesting.h"
#include "pdc/Analysis/TeamTimes.h"

#include <memory>

using namespace pdc;
using namespace pdc::testing;

namespace {

constexpr DeviceKind device = {.f32Flops = 1e12, .memoryBandwidthBytesPerS = 1e9};

/// A graph of a team of three: a sum of 2,400 bytes, beside `between`, and a gather of parts of 800.
std::unique_ptr<Model> teamOf(const std::string& between) {
  auto model = std::make_unique<Model>(R"(module @m {
  param %w : f32[3, 6]
  graph @main(%x: f32[100, 3], %z: f32[1000, 10]) team 3 {
    %h = linear %x, %w : f32[100, 6]
    %a = all_reduce_start %h {members = 3} : f32[600]
)" + between + R"(    %s = all_reduce_finish %h, %a {members = 3} : f32[100, 6]
    %part = slice %s {sizes = [100, 2], starts = [0, 0], steps = [1, 1]} : f32[100, 2]
    %whole = all_gather %part {from_axis = 1, members = 3} : f32[100, 6]
    %loss = reduce_mean %whole {axes = [0, 1], keep_dims = false} : f32[]
    loss %loss
  }
})");
  for (const auto& operation : model->main().operations()) operation->group = 0;
  return model;
}

/// What the collectives add to group 0.
CostNode addedTo(Model& model, const ClusterLevel& link, double scale = 1, double coreSPerByte = 0) {
  Profile profile = analyticProfile(model.main(), device, "");
  profile.groups[0].forwardMs *= scale;
  CostGraph cost;
  cost.nodes.resize(1);
  DeviceKind ofTeam = device;
  ofTeam.coreSPerByte = coreSPerByte;
  addTeamTimes(cost, model.main(), profile, {.device = ofTeam, .link = link}, /*splitBackward=*/false);
  return cost.nodes[0];
}

const std::string tanhOf80000Bytes = "    %t = tanh %z : f32[1000, 10]\n";

TEST(TeamTimes, BytesAreThoseOfTheFormulas) {
  const auto model = teamOf("");
  std::vector<std::int64_t> bytes;
  for (const auto& operation : model->main().operations())
    if (operation->def().kind == OpKind::collective) bytes.push_back(bytesSentOverTeam(*operation));
  EXPECT_EQ(bytes, (std::vector<std::int64_t>{0, 2 * 2 * 2400 / 3, 2 * 800})); // start, finish, gather
}

TEST(TeamTimes, StepsAndBytesTakeTheLink) {
  const auto model = teamOf("");
  // Three steps of 1 ms, and 4,800 bytes at 1 MB/s.
  const CostNode node = addedTo(*model, {.bandwidthBytesPerS = 1e6, .latencyS = 1e-3});
  EXPECT_DOUBLE_EQ(node.forwardMs, 3 + 4.8);
  EXPECT_DOUBLE_EQ(node.forwardTeamMs, node.forwardMs);
  EXPECT_EQ(node.backwardTeamMs, 0);
}

TEST(TeamTimes, WhatIsComputedMeanwhileHidesTheSum) {
  const auto model = teamOf(tanhOf80000Bytes);
  const ClusterLevel link = {.bandwidthBytesPerS = 1e8, .latencyS = 50e-6};
  const double sumMs = 2 * 0.05 + 0.032, gatherMs = 0.05 + 0.016;
  // It takes 80 µs, by its bytes.
  EXPECT_NEAR(addedTo(*model, link).forwardTeamMs, sumMs - 0.08 + gatherMs, 1e-12);
  EXPECT_NEAR(addedTo(*model, link).forwardHiddenTeamMs, 0.08, 1e-12);
  EXPECT_NEAR(addedTo(*model, link, /*scale=*/10).forwardHiddenTeamMs, sumMs, 1e-12);
  EXPECT_NEAR(addedTo(*model, link, /*scale=*/10).forwardTeamMs, gatherMs, 1e-12) << "measured: ten times as long";
}

TEST(TeamTimes, WhatIsSentWhileItIsMadeHidesTheSum) {
  const auto timeOf = [](const std::string& parts) {
    Model model(R"(module @m {
  param %w : f32[1, 10]
  graph @main(%x: f32[400, 1]) team 2 {
    %h = linear %x, %w )" +
                parts + R"(: f32[400, 10]
    %a = all_reduce_start %h {members = 2} : f32[4000]
    %s = all_reduce_finish %h, %a {members = 2} : f32[400, 10]
    %loss = reduce_mean %s {axes = [0, 1], keep_dims = false} : f32[]
    loss %loss
  }
})");
    for (const auto& operation : model.main().operations()) operation->group = 0;
    return [cost = addedTo(model, {.bandwidthBytesPerS = 1e9, .latencyS = 0}).forwardTeamMs,
            slow = addedTo(model, {.bandwidthBytesPerS = 1e8, .latencyS = 0}).forwardTeamMs] {
      return std::pair(cost, slow);
    }();
  };
  // The product takes 17.64 µs, by its bytes, and the sum 16 µs, or 160 µs.
  const double madeMs = (400 + 10 + 4000) * 4e-6;
  const auto [fast, slow] = timeOf("");
  EXPECT_NEAR(fast, 0.016, 1e-12);
  EXPECT_NEAR(slow, 0.16, 1e-12);
  const auto [fastInParts, slowInParts] = timeOf("{parts = 4} ");
  EXPECT_NEAR(fastInParts, 0.016 / 4, 1e-12) << "the last part is sent when it is made";
  EXPECT_NEAR(slowInParts, 0.16 - 0.75 * madeMs, 1e-12);
}

TEST(TeamTimes, OfATeamOfThatSizeTakeTheLinksPlace) {
  const auto model = teamOf("");
  ClusterLevel link = {.bandwidthBytesPerS = 1e6, .latencyS = 1e-3};
  link.teamSums = {{2, 50e-3, 1e3}, {3, 5e-3, 2e6}, {4, 50e-3, 1e3}};
  // The sum: 5 ms, and 3,200 bytes at 2 MB/s. The gather by the link: 1 ms, and 1,600 bytes at 1 MB/s.
  EXPECT_DOUBLE_EQ(addedTo(*model, link).forwardTeamMs, 5 + 1.6 + 1 + 1.6);
  link.teamExchanges = {{3, 7e-3, 4e6}};
  EXPECT_DOUBLE_EQ(addedTo(*model, link).forwardTeamMs, 5 + 1.6 + 7 + 0.4);
}

TEST(TeamTimes, OfATeamHoldTheTimeOfTheCore) {
  const auto model = teamOf("");
  ClusterLevel link = {.bandwidthBytesPerS = 1e15, .latencyS = 0};
  link.teamSums = link.teamExchanges = {{3, 0, 1e6}};
  // 4,800 bytes take 4.8 ms, and twice 0.1 µs each of a core meanwhile.
  EXPECT_NEAR(addedTo(*model, link, 1, /*coreSPerByte=*/1e-7).forwardTeamMs, 4.8, 1e-12);
  // Behind what hides the sum there is the core's time of it. The gather waits.
  const auto hidden = teamOf(tanhOf80000Bytes);
  EXPECT_NEAR(addedTo(*hidden, link, /*scale=*/1000, /*coreSPerByte=*/1e-7).forwardTeamMs, 2 * 3200e-4 + 1.6, 1e-9);
}

TEST(TeamTimes, BytesMayTakeTheCore) {
  const auto model = teamOf(tanhOf80000Bytes);
  const ClusterLevel link = {.bandwidthBytesPerS = 1e15, .latencyS = 0};
  EXPECT_NEAR(addedTo(*model, link, 1, /*coreSPerByte=*/1e-6).forwardTeamMs, 2 * 4800 * 1e-3, 1e-6);
}

} // namespace

TEST(TeamTimes, TermsOfGradientsAreSummedBeforeTheUpdate) {
  ClusterLevel link = {.bandwidthBytesPerS = 1e6, .latencyS = 0};
  const auto updateMs = [&](const std::string& team, bool inParts = false) {
    Model model("module @m {\n  param %w : f32[" + std::string(inParts ? "4000" : "1000") +
                "]\n  graph @main(%x: f32[1000]) " + team + " {\n" +
                (inParts ? "    part %w = axis 0 blocks 1\n" : "") + R"(    %y = mul %x, %w : f32[1000]
    %loss = reduce_mean %y {axes = [0], keep_dims = false} : f32[]
    loss %loss
    gradient %w = %y
  }
})");
    for (const auto& operation : model.main().operations()) operation->group = 0;
    return addedTo(model, link).updateMs;
  };
  EXPECT_EQ(updateMs("team 4"), 0);
  EXPECT_NEAR(updateMs("team 4 sums"), 2 * 0.75 * 4, 1e-12); // 4,000 bytes
  EXPECT_EQ(updateMs("team 4 sums", /*inParts=*/true), 0);   // a member has all of its gradient
  link.teamSums = {{4, 1, 3e6}};
  EXPECT_NEAR(updateMs("team 4 sums"), 2 * 0.75 * 4 / 3, 1e-12);
}
