// LINK: pdcTransforms pdcOps pdcAnalysis
// Members that have some of the samples and some of the experts compute what the whole graph computes: loss, balancing
// loss and every gradient, in f64, with the same tokens dropped. What they send is what GShard sends (arXiv:2006.16668,
// section 3.2): slots of the groups of each member to the experts of each other one.
#include "SplitTesting.h"
#include "pdc/Analysis/TeamTimes.h"
#include "pdc/Transforms/Split.h"

#include <algorithm>
#include <regex>

using namespace pdc;
using namespace pdc::testing;

namespace {

struct Sizes {
  std::int64_t samples = 4, positions = 6, width = 8, experts = 4, capacity = 3, chosen = 1;
  std::int64_t groups = 4; ///< of tokens; 0: all of them are routed together
  bool shared = false, drops = false;
  std::int64_t tokens() const { return samples * positions; }
};

std::string typed(const Shape& shape, const std::string& element = "f32") {
  return element + toString(shape);
}

/// A layer of experts with biases, routed by the best `chosen` probabilities, between tied words.
class Text {
public:
  explicit Text(const Sizes& sizes) : z(sizes) {}

  std::string run() {
    const std::int64_t h = z.width, e = z.experts;
    for (const auto& [name, shape] : std::vector<std::pair<const char*, Shape>>{{"words", {10, h}},
                                                                                {"router", {h, e}},
                                                                                {"w1", {e, h, 2 * h}},
                                                                                {"b1", {e, 1, 2 * h}},
                                                                                {"w2", {e, 2 * h, h}},
                                                                                {"b2", {e, 1, h}},
                                                                                {"s1", {h, 2 * h}},
                                                                                {"s2", {2 * h, h}}})
      if (z.shared || name[0] != 's') text_ += "  param %" + std::string(name) + " : " + typed(shape) + "\n";
    const std::string ids = typed({z.samples, z.positions}, "i64");
    text_ += "  graph @main(%tokens: " + ids + ", %label: " + ids + " label) {\n";
    add("%x", "gather %words, %tokens", {z.samples, z.positions, h});
    if (z.drops)
      line("%dropped, %mask = dropout %x {op_number = 3, ratio = 0.25} : " + typed({z.samples, z.positions, h}) + ", " +
           typed({z.samples, z.positions, h}, "u8"));
    add("%rows", std::string("reshape ") + (z.drops ? "%dropped" : "%x") + " {shape = " + toString(of({h})) + "}",
        of({h}));
    route();
    compute();
    add("%sum", z.shared ? "elementwise %rows, %y, %shared {expressions = [\"a0 + a1 + a2\"]}" : "add %rows, %y",
        of({h}));
    add("%logits", "linear %sum, %words {transposed = true}", of({10}));
    add("%flat", "reshape %logits {shape = " + toString(Shape{z.tokens(), 10}) + "}", {z.tokens(), 10});
    add("%labels", "reshape %label {shape = " + toString(Shape{z.tokens()}) + "}", {z.tokens()}, "i64");
    line("%loss, %s = softmax_cross_entropy %flat, %labels : f32[], " + typed({z.tokens(), 2}));
    return "module @m {\n" + text_ + "    loss %loss\n    loss %balance\n  }\n}\n";
  }

private:
  /// [groups, tokens of a group, …] or [tokens, …].
  Shape of(const Shape& inner) const {
    Shape shape = z.groups > 0 ? Shape{z.groups, z.tokens() / z.groups} : Shape{z.tokens()};
    shape.insert(shape.end(), inner.begin(), inner.end());
    return shape;
  }
  int axis() const { return z.groups > 0 ? 1 : 0; } ///< of tokens
  void line(const std::string& text) { text_ += "    " + text + "\n"; }
  void add(const std::string& result, const std::string& operation, const Shape& shape,
           const std::string& element = "f32") {
    line(result + " = " + operation + " : " + typed(shape, element));
  }
  static std::string list(std::int64_t count, const std::string& what) {
    std::string text;
    for (std::int64_t i = 0; i < count; ++i) text += ", " + what + std::to_string(i);
    return text.substr(2);
  }

  void route() {
    const std::int64_t e = z.experts, k = z.chosen, last = axis() + 1;
    const std::string lastAxis = "axes = [" + std::to_string(last) + "]";
    Shape numbers(static_cast<std::size_t>(last), 1);
    numbers.push_back(e);
    add("%numbers", "constant {value = dense<" + typed(numbers, "i64") + ", [" + list(e, "") + "]>}", numbers, "i64");
    add("%scores", "linear %rows, %router", of({e}));
    add("%p", "softmax %scores", of({e}));
    add("%best", "top_k %p {axis = " + std::to_string(last) + ", k = " + std::to_string(k) + "}", of({k}), "i64");
    for (std::int64_t c = 0; c < k; ++c) {
      const std::string n = std::to_string(c);
      Shape starts(static_cast<std::size_t>(last), 0), steps(static_cast<std::size_t>(last) + 1, 1);
      starts.push_back(c);
      add("%expert" + n,
          "slice %best {sizes = " + toString(of({1})) + ", starts = " + toString(starts) +
              ", steps = " + toString(steps) + "}",
          of({1}), "i64");
      add("%one" + n, "elementwise %expert" + n + ", %numbers {expressions = [\"select(a0 == a1, 1, 0)\"]}", of({e}));
      add("%count" + n, "cumsum %one" + n + " {axis = " + std::to_string(axis()) + "}", of({e}));
      std::string place = "%count" + n;
      if (c > 0) {
        Shape all = of({e});
        all[static_cast<std::size_t>(axis())] = 1;
        add("%all" + n, "reduce_sum %one0 {axes = [" + std::to_string(axis()) + "], keep_dims = true}", all);
        add("%after" + n, "elementwise " + place + ", %all" + n + " {expressions = [\"a0 + a1\"]}", of({e}));
        place = "%after" + n;
      }
      add("%own" + n, "mul " + place + ", %one" + n, of({e}));
      add("%place" + n, "reduce_sum %own" + n + " {" + lastAxis + ", keep_dims = true}", of({1}));
      add("%before" + n, "elementwise %place" + n + " {expressions = [\"a0 - 1\"]}", of({1}));
      add("%slot" + n, "cast %before" + n + " {to = \"i64\"}", of({1}), "i64");
      add("%chance" + n, "mul %p, %one" + n, of({e}));
      add("%gate" + n, "reduce_sum %chance" + n + " {" + lastAxis + ", keep_dims = true}", of({1}));
    }
    const std::string along = " {axis = " + std::to_string(last) + "}";
    add("%slots", k > 1 ? "concat " + list(k, "%slot") + along : "reshape %slot0 {shape = " + toString(of({1})) + "}",
        of({k}), "i64");
    add("%gates", k > 1 ? "concat " + list(k, "%gate") + along : "reshape %gate0 {shape = " + toString(of({1})) + "}",
        of({k}));
    const std::string tokens = z.groups > 0 ? "axes = [0, 1]" : "axes = [0]";
    add("%f", "reduce_mean %one0 {" + tokens + "}", {e});
    add("%P", "reduce_mean %p {" + tokens + "}", {e});
    add("%share", "mul %f, %P", {e});
    add("%balance", "reduce_sum %share {axes = [0]}", {});
  }

  void compute() {
    const std::int64_t h = z.width, e = z.experts, n = std::max<std::int64_t>(z.groups, 1) * z.capacity;
    const auto slots = [&](std::int64_t first, std::int64_t second, std::int64_t size) {
      return z.groups > 0 ? Shape{first, second, z.capacity, size} : Shape{e, z.capacity, size};
    };
    add("%in",
        "dispatch %rows, %best, %slots {capacity = " + std::to_string(z.capacity) + ", experts = " + std::to_string(e) +
            "}",
        slots(z.groups, e, h));
    std::string in = "%in";
    if (z.groups > 0) {
      add("%turned", "transpose %in {permutation = [1, 0, 2, 3]}", slots(e, z.groups, h));
      add(in = "%merged", "reshape %turned {shape = " + toString(Shape{e, n, h}) + "}", {e, n, h});
    }
    add("%up", "matmul " + in + ", %w1", {e, n, 2 * h});
    add("%active", "elementwise %up, %b1 {expressions = [\"tanh(a0 + a1)\"]}", {e, n, 2 * h});
    add("%down", "matmul %active, %w2", {e, n, h});
    add("%made", "elementwise %down, %b2 {expressions = [\"a0 + a1\"]}", {e, n, h});
    std::string made = "%made";
    if (z.groups > 0) {
      add("%apart", "reshape %made {shape = " + toString(slots(e, z.groups, h)) + "}", slots(e, z.groups, h));
      add(made = "%back", "transpose %apart {permutation = [1, 0, 2, 3]}", slots(z.groups, e, h));
    }
    add("%y", "combine " + made + ", %best, %slots, %gates", of({h}));
    if (!z.shared) return;
    add("%shared.up", "linear %rows, %s1", of({2 * h}));
    add("%shared.active", "tanh %shared.up", of({2 * h}));
    add("%shared", "linear %shared.active, %s2", of({h}));
  }

  Sizes z;
  std::string text_;
};

class SplitExperts : public ::testing::Test {
protected:
  Status divide(PassContext& context, std::int64_t members) {
    suffix = ".ep" + std::to_string(members);
    placed.clear();
    return splitOverTeam(context, {.members = members, .all = false, .tokens = true, .experts = true, .orders = orders},
                         &classes, &placed);
  }
  void make(const std::string& text) {
    model = std::make_unique<Model>(text);
    model->run(differentiate);
    model->run(fuse);
    model->run(addEvaluation);
  }
  Graph& split(const Sizes& sizes, std::int64_t members) {
    make(Text(sizes).run());
    model->run([&](PassContext& context) { return divide(context, members); });
    return *model->module->findGraph("main" + suffix);
  }

  /// The largest relative difference of loss and gradients, norm by norm; of members in `other` if it is there.
  double difference(Model* other = nullptr) {
    std::vector<std::string> zeros;
    const double most = largestDifference(*model, other ? *other : *model, suffix, &zeros);
    EXPECT_TRUE(zeros.empty()) << zeros.front();
    return most;
  }

  /// Bytes that a member sends in collectives of values with at least `least` elements.
  std::int64_t sent(const Graph& graph, const std::string& op, bool forward, std::int64_t least) {
    std::int64_t bytes = 0;
    for (const auto& operation : graph.operations())
      if (operation->def().name == op && (operation->phase == Phase::forward) == forward &&
          operation->operand(0)->type().elements() >= least)
        bytes += bytesSentOverTeam(*operation);
    return bytes;
  }
  double lossOf(const Sizes& sizes) {
    make(Text(sizes).run());
    const Graph& whole = *model->module->findGraph("main");
    return interpret(whole, randomInputs(whole, 3, 10), randomParameters(*model->module, 3), Precision::f64,
                     model->diags, 5, 2)
        ->loss;
  }

  std::unique_ptr<Model> model;
  std::vector<SplitClass> classes;
  std::vector<PlacedLayer> placed;
  std::map<std::string, std::vector<std::int32_t>> orders; ///< the layer has no name but that of its op
  std::string suffix;
};

} // namespace

TEST_F(SplitExperts, ComputesTheWholeGraph) {
  for (std::int64_t members : {2, 4})
    for (std::int64_t groups : {0, 2, 4, 8})
      for (std::int64_t chosen : {1, 2})
        for (bool more : {false, true}) {
          SCOPED_TRACE(::testing::Message() << members << " members, " << groups << " groups, top " << chosen
                                            << ", a shared expert and dropout " << more);
          const Sizes sizes{
              .capacity = groups == 0 ? 8 : 2, .chosen = chosen, .groups = groups, .shared = more, .drops = more};
          const Graph& member = split(sizes, members);
          EXPECT_LE(difference(), 1e-12) << model->messages() << print(member);
          EXPECT_EQ(member.team.parts.size(), 4u);
          EXPECT_TRUE(member.team.sums);
          model->run(hideCollectives);
          EXPECT_LE(difference(), 1e-12);
        }
}

TEST_F(SplitExperts, TokensAreDropped) {
  for (std::int64_t groups : {0, 4}) {
    Sizes sizes{.capacity = groups == 0 ? 8 : 2, .groups = groups};
    const double with = lossOf(sizes);
    sizes.capacity = 24;
    EXPECT_GT(std::abs(lossOf(sizes) - with), 1e-6) << groups;
  }
}

// Of E experts with C slots for each of G groups and rows of d, over P members: 4 (P - 1) / P · (E·G·C·d) / P elements
// per layer and step, a half of them in the forward.
TEST_F(SplitExperts, SlotsGoThereAndBackByOneAllToAllEach) {
  for (std::int64_t members : {2, 4})
    for (std::int64_t chosen : {1, 2}) {
      const Sizes z{.capacity = 4, .chosen = chosen};
      const Graph& member = split(z, members);
      const std::int64_t slots = z.experts * z.groups * z.capacity * z.width;
      for (bool forward : {true, false}) {
        EXPECT_EQ(sent(member, "all_to_all", forward, slots / members),
                  2 * slots / members * (members - 1) / members * 4)
            << print(member);
        for (const char* op : {"all_gather", "reduce_scatter", "all_reduce"})
          EXPECT_EQ(sent(member, op, forward, z.tokens() * z.width / members), 0) << op << "\n" << print(member);
      }
      ASSERT_EQ(classes.size(), 2u);
      EXPECT_EQ(classes[1].parameters, (std::vector<std::string>{"w1 axis 0", "b1 axis 0", "w2 axis 0", "b2 axis 0"}));
      EXPECT_EQ(classes[1].communicatedBytes, 4 * slots / members * (members - 1) / members * 4);
      EXPECT_NE(classes[1].why.find("whole groups"), std::string::npos) << classes[1].why;
    }
}

// The slots of an expert are for tokens of all members: two gather the tokens, more exchange features for tokens.
TEST_F(SplitExperts, TokensWithoutGroupsGoTheWayThatSendsLess) {
  for (std::int64_t members : {2, 4}) {
    const Sizes z{.width = 64, .capacity = 8, .groups = 0};
    const Graph& member = split(z, members);
    const std::int64_t tokens = z.tokens() * z.width, slots = z.experts * z.capacity * z.width,
                       least = std::min(tokens, slots) / members;
    for (bool forward : {true, false}) {
      std::int64_t bytes = 0;
      for (const char* op : {"all_to_all", "all_gather", "reduce_scatter", "all_reduce"})
        bytes += sent(member, op, forward, least);
      const std::int64_t gathered = 2 * tokens * (members - 1) / members,
                         exchanged = 2 * (tokens + slots) * (members - 1) / members / members;
      EXPECT_EQ(bytes, 4 * std::min(gathered, exchanged)) << print(member);
      EXPECT_EQ(gathered < exchanged, members == 2);
    }
    EXPECT_NE(classes[1].why.find(members == 2 ? "tokens are gathered" : "some features of all tokens"),
              std::string::npos)
        << classes[1].why;
  }
}

TEST_F(SplitExperts, GradientsOfExpertsAreNoTerms) {
  const Graph& member = split({}, 2);
  const auto formOf = [&](const char* name) {
    for (const GraphOutput& output : member.outputs)
      if (output.kind == OutputKind::gradient && output.parameter->name == name) return member.team.formOf(output);
    return Form{};
  };
  for (const char* name : {"w1", "b1", "w2", "b2"}) EXPECT_EQ(formOf(name), Form::split(0, 1)) << name;
  for (const char* name : {"words", "router"}) EXPECT_EQ(formOf(name), Form::partial(Combine::sum)) << name;
  const std::string text = print(*model->module);
  Model read(text);
  EXPECT_EQ(print(*read.module), text);
  EXPECT_LE(difference(&read), 1e-12);
}

// One product while tokens are on their way to the experts, the other one on their way back; in the backward the
// gradients of its operands each.
TEST_F(SplitExperts, ASharedExpertIsComputedBetweenStartAndFinish) {
  const Sizes z{.width = 16, .shared = true};
  Graph& member = split(z, 2);
  model->run(hideCollectives);
  EXPECT_LE(difference(), 1e-12);
  const std::int64_t slots = z.experts * z.groups * z.capacity * z.width;
  for (const bool forward : {true, false}) {
    std::vector<int> between; // products, by all-to-all
    bool isOpen = false;
    for (const auto& operation : member.operations()) {
      if ((operation->phase == Phase::forward) != forward) continue;
      const std::string& name = operation->def().name;
      const bool isOfSlots = operation->operand(0) && operation->operand(0)->type().elements() == slots / 2;
      if (isOfSlots && name == "all_to_all_start") isOpen = true, between.push_back(0);
      if (isOfSlots && name == "all_to_all_finish") isOpen = false;
      if (isOpen && name.starts_with("linear")) ++between.back();
    }
    EXPECT_EQ(between.size(), 2u);
    for (int products : between) EXPECT_GE(products, forward ? 1 : 2) << print(member);
  }
}

// Another order of the experts changes nothing that is computed: no dropped token, no loss, no gradient.
TEST_F(SplitExperts, LieWhereTheirOrderSays) {
  for (std::int64_t members : {2, 4})
    for (std::int64_t groups : {0, 2, 4})
      for (std::int64_t chosen : {1, 2})
        for (const std::vector<std::int32_t>& order : {std::vector<std::int32_t>{2, 0, 3, 1}, {3, 2, 1, 0}}) {
          SCOPED_TRACE(::testing::Message() << members << " members, " << groups << " groups, top " << chosen);
          orders = {{"dispatch", order}};
          const Sizes sizes{.capacity = groups == 0 ? 8 : 2,
                            .chosen = chosen,
                            .groups = groups,
                            .shared = groups == 4,
                            .drops = true};
          const Graph& member = split(sizes, members);
          EXPECT_LE(difference(), 1e-12) << model->messages() << print(member);
          ASSERT_EQ(placed.size(), 1u);
          EXPECT_EQ(placed[0].name + placed[0].why, "dispatch");
          EXPECT_EQ(member.team.orders.size(), 4u);
          for (const auto& [parameter, own] : member.team.orders) EXPECT_EQ(own, order) << parameter->name;
          model->run(hideCollectives);
          EXPECT_LE(difference(), 1e-12);
          const std::string text = print(*model->module);
          Model read(text);
          EXPECT_EQ(print(*read.module), text);
          EXPECT_LE(difference(&read), 1e-12);
        }
}

// Weights that lie otherwise than rows are sent; rows of one direction that are.
TEST_F(SplitExperts, NoticesAnotherOrder) {
  orders = {{"dispatch", {2, 0, 3, 1}}};
  split({.capacity = 8, .groups = 0}, 2);
  EXPECT_LE(difference(), 1e-12);
  const std::string text = print(*model->module), part = "part %w1 = axis 0 blocks 1 order [2, 0, 3, 1]",
                    places = "[1, 3, 0, 2, -1]";
  ASSERT_NE(text.find(part), std::string::npos) << text;
  const auto with = [&](std::size_t at, std::size_t size, const std::string& changed) {
    Model other(std::string(text).replace(at, size, changed));
    return difference(&other);
  };
  EXPECT_GT(with(text.find(part), part.size(), "part %w1 = axis 0 blocks 1 order [0, 2, 3, 1]"), 1e-6);
  EXPECT_GT(with(text.find(part), part.size(), "part %w1 = axis 0 blocks 1"), 1e-6);
  int found = 0;
  for (std::size_t at = text.find(places); at != std::string::npos; at = text.find(places, at + 1), ++found)
    EXPECT_GT(with(at, places.size(), "[1, 3, 2, 0, -1]"), 1e-6) << found;
  EXPECT_GE(found, 5); // dispatch, combine and their gradients, and the evaluation
}

TEST_F(SplitExperts, KeepTheOrderOfTheFileWhereSomethingReadsIt) {
  const std::string text = Text({.capacity = 8, .groups = 0}).run();
  orders = {{"dispatch", {2, 0, 3, 1}}};
  const auto whyOf = [&](const std::string& more, const std::string& loss) {
    make(std::string(text).insert(text.find("    loss %loss"), more + "    loss %" + loss + "\n"));
    model->run([&](PassContext& context) { return divide(context, 2); });
    EXPECT_LE(difference(), 1e-12);
    EXPECT_TRUE(model->module->findGraph("main.ep2")->team.orders.empty());
    return placed.empty() ? "none" : placed[0].why;
  };
  EXPECT_NE(
      whyOf("    %first = reduce_mean %b1 {axes = [0, 1, 2]} : f32[]\n", "first").find("'b1' in the order of the file"),
      std::string::npos);
  EXPECT_NE(whyOf("    %numbers.made = constant {value = dense<f32[4, 1, 1], [1, 2, 3, 4]>} : f32[4, 1, 1]\n"
                  "    %weighted = mul %made, %numbers.made : f32[4, 8, 8]\n"
                  "    %second = reduce_mean %weighted {axes = [0, 1, 2]} : f32[]\n",
                  "second")
                .find("'numbers.made' in the order of the file"),
            std::string::npos)
      << placed[0].why;
  orders.clear();
}

TEST_F(SplitExperts, RefusesOrdersOfOtherLayers) {
  const auto refuse = [&](const std::string& name, const std::vector<std::int32_t>& order, const char* message) {
    orders = {{name, order}};
    make(Text({}).run());
    PassContext context = model->context();
    EXPECT_FALSE(divide(context, 2));
    EXPECT_NE(model->messages().find(message), std::string::npos) << model->messages();
  };
  refuse("blocks.7", {0, 1, 2, 3}, "no layer of experts has this name");
  refuse("dispatch", {0, 1}, "the layer has 4 experts, and there are loads of 2");
}

TEST_F(SplitExperts, NoticesWhatIsWrong) {
  // Slots of other members' experts; a share of tokens that is not the mean over all; a sum that lacks a member.
  for (const auto& [groups, right, wrong] : std::vector<std::tuple<std::int64_t, const char*, const char*>>{
           {0, "all = 4", "all = 0"}, {4, "all_reduce_mean", "all_reduce_max"}, {4, " sums \\{", " {"}}) {
    split({.width = 64, .capacity = 8, .groups = groups}, 2);
    EXPECT_LE(difference(), 1e-12);
    const std::string text = print(*model->module), changed = std::regex_replace(text, std::regex(right), wrong);
    ASSERT_NE(changed, text) << right;
    Model other(changed);
    EXPECT_GT(difference(&other), 1e-6) << right;
  }
}

TEST_F(SplitExperts, Refuses) {
  const auto expectRefused = [&](const std::string& text, std::int64_t members, const std::string& message) {
    make(text);
    PassContext context = model->context();
    EXPECT_FALSE(divide(context, members));
    EXPECT_NE(model->messages().find(message), std::string::npos) << model->messages();
  };
  expectRefused(Text({.samples = 3, .experts = 6, .groups = 3}).run(), 2,
                "input 'tokens', i64[3, 6], has 3 samples, which 2 members cannot divide evenly");
  expectRefused(Text({.experts = 3}).run(), 2,
                "parameter 'w1' has matrices of 3 experts, which 2 members cannot divide evenly");
  expectRefused(R"(module @m {
  param %w : f32[6, 4]
  graph @main(%x: f32[4, 6]) {
    %y = linear %x, %w : f32[4, 4]
    %loss = reduce_mean %y {axes = [0, 1]} : f32[]
    loss %loss
  }
})",
                2, "no parameter has a matrix for each expert");
}

// What the members cannot divide is whole, and told.
TEST_F(SplitExperts, LeavesWholeWhatMembersCannotDivide) {
  make(R"(module @m {
  param %w : f32[4, 4, 3]
  param %v : f32[3, 4, 3]
  param %x.scale : f32[4, 4]
  graph @main(%x: f32[4, 4]) {
    %a = broadcast %x {shape = [4, 4, 4]} : f32[4, 4, 4]
    %h = mul %x, %x.scale : f32[4, 4]
    %b = broadcast %h {shape = [3, 4, 4]} : f32[3, 4, 4]
    %c = matmul %a, %w : f32[4, 4, 3]
    %d = matmul %b, %v : f32[3, 4, 3]
    %e = tanh %c : f32[4, 4, 3]
    %f = tanh %d : f32[3, 4, 3]
    %one = reduce_mean %e {axes = [0, 1, 2]} : f32[]
    %two = reduce_mean %f {axes = [0, 1, 2]} : f32[]
    loss %one
    loss %two
  }
})");
  model->run([&](PassContext& context) { return divide(context, 2); });
  EXPECT_LE(difference(), 1e-12) << print(*model->module);
  const Graph& member = *model->module->findGraph("main.ep2");
  EXPECT_EQ(member.team.parts.size(), 1u);
  ASSERT_EQ(classes.size(), 3u);
  EXPECT_EQ(classes[2].parameters.front(), "v");
  EXPECT_NE(classes[2].why.find("3 experts, which 2 members cannot divide"), std::string::npos) << classes[2].why;
}
