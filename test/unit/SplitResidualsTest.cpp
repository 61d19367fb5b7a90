// LINK: pdcTransforms pdcOps pdcAnalysis
// Members that have parts of weights in layers, and positions between them, compute what the whole graph computes: loss
// and gradients, in f64. What they send is what sums of whole values send, and what a backward gathers again
// (Megatron-LM, arXiv:2205.05198, section 4.2.2).
#include "SplitDecoder.h"
#include "SplitTesting.h"
#include "pdc/Analysis/TeamTimes.h"
#include "pdc/Transforms/Split.h"

#include <regex>

using namespace pdc;
using namespace pdc::testing;

namespace {

class SplitResiduals : public ::testing::Test {
protected:
  Graph& split(const Sizes& sizes, SplitOptions options) {
    model = std::make_unique<Model>(decoder(sizes));
    model->run(differentiate);
    model->run(fuse);
    model->run(addEvaluation);
    model->run([&](PassContext& context) { return splitOverTeam(context, options); });
    suffix = suffixOf(options);
    return *model->module->findGraph("main" + suffix);
  }
  Graph& split(const Sizes& sizes, std::int64_t members) {
    return split(sizes, {.members = members, .all = true, .tokens = true, .weights = true});
  }
  double difference(Model* other = nullptr) { return largestDifference(*model, other ? *other : *model, suffix); }
  /// Bytes that a member sends for values of the decoder's width at its positions.
  static std::int64_t sentForResiduals(const Graph& member, const Sizes& sizes) {
    std::int64_t bytes = 0;
    for (const auto& operation : member.operations())
      if (operation->def().kind == OpKind::collective &&
          std::max(operation->operand(0)->type().elements(), operation->result()->type().elements()) ==
              sizes.batch * sizes.positions * sizes.width())
        bytes += bytesSentOverTeam(*operation);
    return bytes;
  }
  /// The difference after a change of the member's text, which must change something.
  double differenceAfter(const std::string& what, const std::string& by) {
    const std::string text = print(*model->module);
    const std::string changed = std::regex_replace(text, std::regex(what), by, std::regex_constants::format_first_only);
    EXPECT_NE(changed, text) << text;
    Model other(changed);
    return difference(&other);
  }

  std::unique_ptr<Model> model;
  std::string suffix;
};

} // namespace

TEST_F(SplitResiduals, ComputesTheWholeGraph) {
  for (std::int64_t members : {2, 3, 4})
    for (std::int64_t batch : {1, 2})
      for (bool drops : {false, true})
        for (const auto& [heads, groups, causal] :
             {std::tuple(12, 12, true), {12, 12, false}, {12, 1, true}, {5, 5, true}, {6, 3, true}}) {
          SCOPED_TRACE(::testing::Message() << members << " members, " << batch << " samples, " << heads << " heads, "
                                            << groups << " groups, causal " << causal << ", drops " << drops);
          const Sizes sizes{.batch = batch, .heads = heads, .groups = groups, .causal = causal, .drops = drops};
          for (const bool all : {false, true}) {
            split(sizes, {.members = members, .all = all, .tokens = true, .weights = true});
            EXPECT_LE(difference(), 1e-12) << model->messages() << print(*model->module);
            model->run(hideCollectives);
            EXPECT_LE(difference(), 1e-12) << print(*model->module);
          }
        }
}

// What lies between layers is divided: sums of dropouts, norms, and the gradients of all of them.
TEST_F(SplitResiduals, HaveThePositionsOfAMember) {
  const Sizes sizes{.drops = true};
  const Graph& member = split(sizes, 2);
  const std::string part = "f32[1, 6, 8]";
  for (const char* value : {"x", "n", "o", "middle", "n2", "down", "last"}) {
    const Value* own = member.find(std::string(value) + ".own");
    ASSERT_TRUE(own) << value << print(member);
    EXPECT_EQ(toString(own->type()), part) << value;
  }
  for (const auto& operation : member.operations())
    if (operation->def().name == "layer_norm" || operation->def().name == "layer_norm_input_gradient") {
      EXPECT_EQ(toString(operation->result()->type()), part);
    }
  // Every head is somewhere, and half of the hidden units.
  EXPECT_EQ(toString(member.find("up.own")->type()), "f32[1, 12, 8]");
  EXPECT_EQ(countOf(member, "all_to_all"), 0);
}

// A sum of whole values takes 2·(P-1)/P of their bytes. Here a half of that scatters it, the other half gathers it
// before the next layer. Behind the words it is scattered, and gathered before the last layer; a backward gathers again
// what only the MLP and only the last layer read. Of what queries, keys and values read, members keep all.
TEST_F(SplitResiduals, SendWhatSumsOfWholeValuesSend) {
  for (std::int64_t members : {2, 4}) {
    const Sizes sizes{.batch = 2, .positions = 48, .heads = 8, .groups = 8};
    const std::int64_t once =
        4 * sizes.batch * sizes.positions * sizes.width() * (members - 1) / members; // of one value, in bytes
    // Forward: words, attention, MLP. Backward: before the last layer, MLP and attention.
    EXPECT_EQ(sentForResiduals(split(sizes, {.members = members, .all = true}), sizes), 2 * 6 * once);
    const Graph& parts = split(sizes, members);
    const std::int64_t scattered = 6, gathered = 3 + 2, again = 2;
    EXPECT_EQ(sentForResiduals(parts, sizes), (scattered + gathered + again) * once) << print(parts);
  }
}

TEST_F(SplitResiduals, GradientsOfWholeWeightsAreTerms) {
  const Graph& member = split({}, 2);
  EXPECT_TRUE(member.team.sums);
  EXPECT_FALSE(member.team.parts.empty());
  std::string text = print(*model->module);
  Model read(text);
  EXPECT_EQ(print(*read.module), text);
  Model alone(std::regex_replace(text, std::regex(" sums"), ""));
  EXPECT_EQ(difference(&alone), INFINITY);
}

TEST_F(SplitResiduals, NoticeWhatIsWrong) {
  split({.drops = true}, 2);
  EXPECT_LE(difference(), 1e-12);
  // A bias that only one member adds, terms that are not scattered but cut, parts of other positions.
  EXPECT_GT(differenceAfter(R"(add %o\.step, %\S+ :)", "add %o.step, %o.step :"), 1e-6);
  EXPECT_GT(differenceAfter(R"(reduce_scatter %o\.made)", "own_part %o.made"), 1e-6);
  EXPECT_GT(differenceAfter(R"(run = [1-9][0-9]*)", "run = 0"), 1e-6);
}

TEST_F(SplitResiduals, RefusesPositionsThatMembersCannotDivide) {
  model = std::make_unique<Model>(decoder({.positions = 9}));
  PassContext context = model->context();
  EXPECT_FALSE(splitOverTeam(context, {.members = 2, .all = true, .tokens = true, .weights = true}));
  EXPECT_NE(model->messages().find("has 9 positions, which 2 members cannot divide"), std::string::npos);
}
