// LINK: pdcTransforms pdcOps pdcAnalysis
// Members that have some of the positions of every sequence compute what the whole graph computes: loss and gradients,
// in f64. What they send around attention is what DeepSpeed-Ulysses sends (arXiv:2309.14509, section 3.2).
#include "SplitDecoder.h"
#include "SplitTesting.h"
#include "pdc/Analysis/TeamTimes.h"
#include "pdc/Transforms/Split.h"

#include <algorithm>
#include <regex>

using namespace pdc;
using namespace pdc::testing;

namespace {

class SplitTokens : public ::testing::Test {
protected:
  void make(const std::string& text) {
    model = std::make_unique<Model>(text);
    model->run(differentiate);
    model->run(fuse);
    model->run(addEvaluation);
  }
  Graph& split(const Sizes& sizes, std::int64_t members) {
    make(decoder(sizes));
    model->run([&](PassContext& context) {
      return splitOverTeam(context, {.members = members, .all = false, .tokens = true});
    });
    suffix = ".sp" + std::to_string(members);
    return *model->module->findGraph("main" + suffix);
  }

  /// The largest relative difference of loss and gradients, norm by norm; of the graphs of `model`, and of members in
  /// `other` if it is there.
  double difference(Model* other = nullptr) {
    // Of a bias of keys, to which softmax is blind, the gradient is 0 but for rounding.
    return largestDifference(*model, other ? *other : *model, suffix);
  }

  /// Bytes that all-to-alls of a member send.
  std::int64_t exchanged(const Graph& graph, bool forward) {
    std::int64_t bytes = 0;
    for (const auto& operation : graph.operations())
      if (operation->def().name == "all_to_all" && (operation->phase == Phase::forward) == forward)
        bytes += bytesSentOverTeam(*operation);
    return bytes;
  }

  std::unique_ptr<Model> model;
  std::string suffix;
};

} // namespace

TEST_F(SplitTokens, ComputesTheWholeGraph) {
  for (std::int64_t members : {2, 3, 4})
    for (std::int64_t batch : {1, 2})
      for (bool drops : {false, true})
        for (const auto& [heads, groups, causal] :
             {std::tuple(12, 12, true), {12, 12, false}, {12, 1, true}, {5, 5, true}, {5, 5, false}, {6, 3, true}})
          for (const char* loss : {"", "has_ignore_index = true, ignore_index = 1, label_smoothing = 0.25"}) {
            SCOPED_TRACE(::testing::Message() << members << " members, " << batch << " samples, " << heads << " heads, "
                                              << groups << " groups, causal " << causal << ", drops " << drops);
            const Sizes sizes{
                .batch = batch, .heads = heads, .groups = groups, .causal = causal, .drops = drops, .loss = loss};
            const Graph& member = split(sizes, members);
            EXPECT_LE(difference(), 1e-12) << model->messages() << print(member);
            if (batch > 1) continue;
            // Every head is somewhere once, or keys and values are everywhere.
            EXPECT_EQ(countOf(member, "all_to_all"), groups % members == 0 ? 8 : 0) << print(member);
            model->run(hideCollectives);
            EXPECT_LE(difference(), 1e-12);
          }
}

TEST_F(SplitTokens, SendsWhatUlyssesSends) {
  std::int64_t before = 0;
  for (std::int64_t members : {2, 4, 8}) {
    const Sizes sizes{.positions = 6 * members, .heads = 8, .groups = 8};
    const Graph& member = split(sizes, members);
    const std::int64_t formula =
        4 * sizes.batch * sizes.positions * sizes.width() / members * (members - 1) / members * 4; // 4 bytes each
    EXPECT_EQ(exchanged(member, true), formula);
    EXPECT_EQ(exchanged(member, false), formula);
    // As many positions for each member: less than twice as much for any number of members.
    if (before > 0) {
      EXPECT_LT(formula, 2 * before);
    }
    before = formula;
  }
}

TEST_F(SplitTokens, ParametersAreWholeAndGradientsAreTerms) {
  const Graph& member = split({}, 2);
  EXPECT_TRUE(member.team.sums);
  EXPECT_TRUE(member.team.parts.empty());
  EXPECT_NE(print(member).find("team 2 sums {"), std::string::npos);
  // But for the loss and what its gradient is divided by, nothing is summed in a step.
  EXPECT_EQ(countOf(member, "all_reduce"), 2) << print(member);
  EXPECT_EQ(countOf(member, "all_gather"), 0);
  std::string text = print(*model->module);
  Model read(text);
  EXPECT_EQ(print(*read.module), text);
  Model alone(std::regex_replace(text, std::regex(" sums"), ""));
  EXPECT_EQ(difference(&alone), INFINITY);
  EXPECT_NE(model->messages().find("members have different values of"), std::string::npos) << model->messages();
}

TEST_F(SplitTokens, NoticesDropoutByLocalNumber) {
  Graph& member = split({.drops = true}, 2);
  EXPECT_LE(difference(), 1e-12);
  for (const char* op : {"dropout", "dropout_attention"})
    for (const auto& operation : member.operations())
      if (operation->def().name == op && operation->attributes.getInt("run") > 0) {
        const std::int64_t run = operation->attributes.getInt("run");
        operation->attributes.set("run", std::int64_t{0});
        EXPECT_GT(difference(), 1e-6) << op;
        operation->attributes.set("run", run);
      }
  EXPECT_LE(difference(), 1e-12);
}

TEST_F(SplitTokens, NoticesAMeanByLocalCount) {
  for (const char* loss : {"", "has_ignore_index = true, ignore_index = 1"}) {
    split({.loss = loss}, 2);
    EXPECT_LE(difference(), 1e-12);
    // The gradient of the member's mean is that of the team's.
    const std::string text = print(*model->module);
    std::smatch found, seed;
    // The seed, 1, has a number for a name.
    const std::regex one(R"(%([0-9]+) = constant \{value = dense<f32\[\], \[1\.0\]>\})"),
        gradient(R"(softmax_cross_entropy_gradient %([^,]*), %[^\n]*\.own)");
    ASSERT_TRUE(std::regex_search(text, found, gradient) && std::regex_search(text, seed, one)) << text;
    std::string changed = text;
    changed.replace(static_cast<std::size_t>(found.position(1)), static_cast<std::size_t>(found.length(1)),
                    seed.str(1));
    Model other(changed);
    EXPECT_GT(difference(&other), 1e-6);
  }
}

TEST_F(SplitTokens, NoticesACausalMaskByLocalPosition) {
  split({.heads = 5, .groups = 5}, 2);
  EXPECT_LE(difference(), 1e-12);
  const std::string text = print(*model->module);
  const std::regex own(R"(own_part (%\S+) \{axis = 2, members = 2\} : i32\[1, 1, 6, 1\])");
  ASSERT_TRUE(std::regex_search(text, own)) << text;
  Model other(std::regex_replace(
      text, own, "slice $1 {sizes = [1, 1, 6, 1], starts = [0, 0, 0, 0], steps = [1, 1, 1, 1]} : i32[1, 1, 6, 1]"));
  EXPECT_GT(difference(&other), 1e-6);
}

TEST_F(SplitTokens, RefusesWhatIsNoSequence) {
  const auto expectRefused = [&](const std::string& text, const std::string& message) {
    make(text);
    PassContext context = model->context();
    EXPECT_FALSE(splitOverTeam(context, {.members = 2, .all = false, .tokens = true}));
    EXPECT_NE(model->messages().find(message), std::string::npos) << model->messages();
  };
  expectRefused(decoder({.positions = 9}), "input 'tokens', i64[1, 9], has 9 positions, which 2 members cannot divide");
  expectRefused(R"(module @m {
  param %w : f32[6, 4]
  graph @main(%x: f32[4, 6]) {
    %y = linear %x, %w : f32[4, 4]
    %loss = reduce_mean %y {axes = [0, 1]} : f32[]
    loss %loss
  }
})",
                "no input is a sequence");
}

// Without integers, features at positions are a sequence. What goes from position to position is computed by everyone.
TEST_F(SplitTokens, DividesFeaturesAtPositions) {
  make(R"(module @m {
  param %w : f32[3, 4]
  param %v : f32[4, 4]
  graph @main(%x: f32[1, 6, 3]) {
    %a = linear %x, %w : f32[1, 6, 4]
    %b = cumsum %a {axis = 1} : f32[1, 6, 4]
    %c = linear %b, %v : f32[1, 6, 4]
    %d = mul %c, %a : f32[1, 6, 4]
    %loss = reduce_mean %d {axes = [0, 1, 2]} : f32[]
    loss %loss
  }
})");
  for (std::int64_t members : {2, 3}) {
    model->run([&](PassContext& context) {
      return splitOverTeam(context, {.members = members, .all = false, .tokens = true});
    });
    suffix = ".sp" + std::to_string(members);
    EXPECT_LE(difference(), 1e-12) << print(*model->module);
  }
}
