// LINK: pdcTransforms pdcOps
// What the members of a team compute together is what the graph computes: loss, gradients and new states, in f64.
#include "TransformsTesting.h"
#include "pdc/IR/TeamInterpreter.h"
#include "pdc/Transforms/Split.h"

using namespace pdc;
using namespace pdc::testing;

namespace {

/// Two heads of causal attention with packed queries, keys and values, an MLP, tied words, BatchNorm's relatives.
const char* const transformer = R"(module @m {
  param %words : f32[10, 8]
  param %scale : f32[8]
  param %shift : f32[8]
  param %qkv : f32[8, 24]
  param %qkv.bias : f32[24]
  param %project : f32[8, 8]
  param %project.bias : f32[8]
  param %up : f32[8, 12]
  param %up.bias : f32[12]
  param %down : f32[12, 8]
  param %down.bias : f32[8]
  graph @main(%tokens: i64[2, 4], %label: i64[8] label) {
    %x = gather %words, %tokens {axis = 0} : f32[2, 4, 8]
    %n, %mean, %deviation, _, _ = layer_norm %x, %scale, %shift {axis = 2} : f32[2, 4, 8], f32[2, 4], f32[2, 4], _, _
    %packed = linear %n, %qkv, %qkv.bias : f32[2, 4, 24]
    %apart = reshape %packed {shape = [2, 4, 3, 2, 4]} : f32[2, 4, 3, 2, 4]
    %turned = transpose %apart {permutation = [2, 0, 3, 1, 4]} : f32[3, 2, 2, 4, 4]
    %q1 = slice %turned {sizes = [1, 2, 2, 4, 4], starts = [0, 0, 0, 0, 0], steps = [1, 1, 1, 1, 1]} : f32[1, 2, 2, 4, 4]
    %k1 = slice %turned {sizes = [1, 2, 2, 4, 4], starts = [1, 0, 0, 0, 0], steps = [1, 1, 1, 1, 1]} : f32[1, 2, 2, 4, 4]
    %v1 = slice %turned {sizes = [1, 2, 2, 4, 4], starts = [2, 0, 0, 0, 0], steps = [1, 1, 1, 1, 1]} : f32[1, 2, 2, 4, 4]
    %q = reshape %q1 {shape = [2, 2, 4, 4]} : f32[2, 2, 4, 4]
    %k = reshape %k1 {shape = [2, 2, 4, 4]} : f32[2, 2, 4, 4]
    %v = reshape %v1 {shape = [2, 2, 4, 4]} : f32[2, 2, 4, 4]
    %k.turned = transpose %k {permutation = [0, 1, 3, 2]} : f32[2, 2, 4, 4]
    %scores = matmul %q, %k.turned : f32[2, 2, 4, 4]
    %p = softmax %scores : f32[2, 2, 4, 4]
    %y = matmul %p, %v : f32[2, 2, 4, 4]
    %y.turned = transpose %y {permutation = [0, 2, 1, 3]} : f32[2, 4, 2, 4]
    %heads = reshape %y.turned {shape = [2, 4, 8]} : f32[2, 4, 8]
    %projected = linear %heads, %project, %project.bias : f32[2, 4, 8]
    %sum = add %x, %projected : f32[2, 4, 8]
    %hidden = linear %sum, %up, %up.bias : f32[2, 4, 12]
    %active = gelu %hidden : f32[2, 4, 12]
    %out = linear %active, %down, %down.bias : f32[2, 4, 8]
    %last = add %sum, %out : f32[2, 4, 8]
    %logits3 = linear %last, %words {transposed = true} : f32[2, 4, 10]
    %logits = reshape %logits3 {shape = [8, 10]} : f32[8, 10]
    %loss, %statistics = softmax_cross_entropy %logits, %label : f32[], f32[8, 2]
    loss %loss
  }
})";

/// Ready to be split: differentiated, fused, with its evaluation.
std::unique_ptr<Model> trained(std::unique_ptr<Model> model) {
  model->run(differentiate);
  model->run(fuse);
  model->run(addEvaluation);
  return model;
}

std::vector<SplitClass> split(Model& model, std::int64_t members, bool all) {
  std::vector<SplitClass> classes;
  model.run([&](PassContext& context) { return splitOverTeam(context, {members, all}, &classes); });
  return classes;
}

std::int64_t chosen(const std::vector<SplitClass>& classes) {
  return std::count_if(classes.begin(), classes.end(), [](const SplitClass& of) { return of.chosen; });
}

double distance(const Tensor& actual, const Tensor& expected) {
  double difference = 0, norm = 0;
  for (std::int64_t i = 0; i < expected.elements(); ++i) {
    difference += std::pow(actual.asDouble(i) - expected.asDouble(i), 2);
    norm += std::pow(expected.asDouble(i), 2);
  }
  return std::sqrt(difference) / std::max(std::sqrt(norm), 1e-6);
}

/// The largest relative difference of loss, gradients and states between a graph and what a team makes of it.
double differenceOf(Model& model, const std::string& name, std::int64_t members, unsigned seed) {
  const Graph& whole = *model.module->findGraph(name);
  const Graph& member = *model.module->findGraph(name + ".tp" + std::to_string(members));
  const Tensors inputs = randomInputs(whole, seed), parameters = randomParameters(*model.module, seed);
  const auto expected = interpret(whole, inputs, parameters, Precision::f64, model.diags, 5, 2);
  const auto actual = interpretTeam(member, inputs, parameters, Precision::f64, model.diags, 5, 2);
  EXPECT_TRUE(expected && actual) << model.messages();
  if (!expected || !actual) return INFINITY;
  EXPECT_EQ(expected->gradients.size(), actual->gradients.size());
  double most = std::abs(actual->loss - expected->loss) / std::max(std::abs(expected->loss), 1e-6);
  for (const auto& [parameter, gradient] : expected->gradients)
    most = std::max(most, distance(actual->gradients.at(parameter), gradient));
  for (const auto& [parameter, state] : expected->states)
    most = std::max(most, distance(actual->states.at(parameter), state));
  return most;
}

std::vector<Operation*> collectives(const Graph& graph, Phase phase) {
  std::vector<Operation*> found;
  for (const auto& operation : graph.operations())
    if (operation->def().kind == OpKind::collective && operation->phase == phase) found.push_back(operation.get());
  return found;
}

class RandomSplit : public ::testing::TestWithParam<unsigned> {};

} // namespace

TEST_P(RandomSplit, ATeamComputesTheGraph) {
  Diagnostics diags(nullptr);
  for (std::int64_t members : {2, 3}) {
    const auto model = trained(std::make_unique<Model>(randomModule(GetParam(), diags, /*kinks=*/true)));
    const std::int64_t divided = chosen(split(*model, members, true));
    EXPECT_LE(differenceOf(*model, "main", members, GetParam()), 1e-12) << print(*model->module);
    EXPECT_LE(differenceOf(*model, "evaluate", members, GetParam()), 1e-12);
    EXPECT_GT(divided, 0);
    model->run(hideCollectives);
    EXPECT_LE(differenceOf(*model, "main", members, GetParam()), 1e-12) << print(*model->module);
    EXPECT_LE(differenceOf(*model, "evaluate", members, GetParam()), 1e-12);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomSplit, ::testing::Range(0u, 60u));

TEST(Split, DividesATransformerAsMegatronDoes) {
  const auto model = trained(std::make_unique<Model>(transformer));
  split(*model, 2, true);
  const Graph& member = *model->module->findGraph("main.tp2");
  const auto formOf = [&](const char* name) { return member.team.formOf(*model->module->findParameter(name)); };
  EXPECT_EQ(formOf("qkv"), Form::split(1, 3)); // the heads of each of queries, keys and values
  EXPECT_EQ(formOf("qkv.bias"), Form::split(0, 3));
  EXPECT_EQ(formOf("project"), Form::split(0, 1));
  EXPECT_EQ(formOf("project.bias"), Form());
  EXPECT_EQ(formOf("up"), Form::split(1, 1));
  EXPECT_EQ(formOf("down"), Form::split(0, 1));
  EXPECT_EQ(formOf("scale"), Form());
  EXPECT_LE(differenceOf(*model, "main", 2, 1), 1e-12);
  EXPECT_LE(differenceOf(*model, "evaluate", 2, 1), 1e-12);
}

TEST(Split, KeepsGroupsPhasesOriginsAndNames) {
  const auto model = trained(std::make_unique<Model>(transformer));
  split(*model, 2, true);
  const Graph &whole = model->main(), &member = *model->module->findGraph("main.tp2");
  for (const auto& operation : whole.operations())
    for (const Value* result : operation->results()) {
      if (!result) continue;
      const Value* same = member.find(result->name());
      const Value* part = member.find(result->name() + ".own");
      const Value* here = same ? same : part;
      ASSERT_TRUE(here) << result->name();
      EXPECT_EQ(here->definer()->group, operation->group) << result->name();
      EXPECT_EQ(here->definer()->phase, operation->phase) << result->name();
      EXPECT_EQ(here->definer()->origin() != nullptr, operation->origin() != nullptr) << result->name();
    }
  ASSERT_EQ(member.outputs.size(), whole.outputs.size());
  for (std::size_t i = 0; i < whole.outputs.size(); ++i) EXPECT_EQ(member.outputs[i].kind, whole.outputs[i].kind);
}

// Each member looks only for its own words, also in the backward.
TEST(Split, MakesItsRowsOfTheGradientOfATable) {
  const auto model = trained(std::make_unique<Model>(transformer));
  split(*model, 2, true);
  const Graph& member = *model->module->findGraph("main.tp2");
  int gradients = 0;
  for (const auto& operation : member.operations())
    if (operation->def().name == "gather_gradient") {
      ++gradients;
      EXPECT_EQ(toString(operation->result()->type()), "f32[5, 8]");
      EXPECT_EQ(operation->attributes.getInt("rows"), 10);
    }
  EXPECT_EQ(gradients, 1);
  for (const auto& operation : member.operations())
    for (const Value* result : operation->results())
      EXPECT_FALSE(result && toString(result->type()) == "f32[10, 8]") << result->name();
}

TEST(Split, GradientsOfOneInputAreSummedOnce) {
  const auto model = trained(std::make_unique<Model>(R"(module @m {
  param %first : f32[4, 5]
  param %a : f32[5, 6]
  param %b : f32[5, 6]
  param %c : f32[5, 6]
  param %d : f32[6, 5]
  graph @main(%x: f32[3, 4]) {
    %h = linear %x, %first : f32[3, 5]
    %u = tanh %h : f32[3, 5]
    %p = linear %u, %a : f32[3, 6]
    %q = linear %u, %b : f32[3, 6]
    %r = linear %u, %c : f32[3, 6]
    %pq = mul %p, %q : f32[3, 6]
    %pqr = mul %pq, %r : f32[3, 6]
    %y = linear %pqr, %d : f32[3, 5]
    %z = add %y, %u : f32[3, 5]
    %loss = reduce_mean %z {axes = [0, 1], keep_dims = false} : f32[]
    loss %loss
  }
})"));
  split(*model, 2, true);
  const Graph& member = *model->module->findGraph("main.tp2");
  EXPECT_EQ(collectives(member, Phase::forward).size(), 1u) << print(member);
  EXPECT_EQ(collectives(member, Phase::inputGradient).size(), 1u) << print(member);
  EXPECT_LE(differenceOf(*model, "main", 2, 1), 1e-12);
}

// Ten words are two or four equal parts, eleven are not: the last part is filled up.
TEST(Split, DividesAVocabulary) {
  for (const char* words : {"10", "11"})
    for (std::int64_t members : {2, 3, 4}) {
      std::string text = transformer;
      for (const char* shape : {"f32[10, 8]", "f32[2, 4, 10]", "f32[8, 10]", "shape = [8, 10]"})
        if (const std::size_t at = text.find(shape); at != std::string::npos) {
          std::string changed = shape;
          changed.replace(changed.find("10"), 2, words);
          for (std::size_t next = at; next != std::string::npos; next = text.find(shape, next + 1))
            text.replace(next, std::string(shape).size(), changed);
        }
      const auto model = trained(std::make_unique<Model>(text));
      split(*model, members, true);
      const std::string name = "main.tp" + std::to_string(members);
      const Graph& member = *model->module->findGraph(name);
      const Form form = member.team.formOf(*model->module->findParameter("words"));
      EXPECT_TRUE(form.isSplit() && form.axis == 0) << words << " words over " << members;
      EXPECT_EQ(form.padded, std::stoi(words) % members == 0 ? 0 : std::stoi(words));
      EXPECT_LE(differenceOf(*model, "main", members, 1), 1e-12) << words << " words over " << members;
      EXPECT_LE(differenceOf(*model, "evaluate", members, 1), 1e-12) << words << " words over " << members;
    }
}

TEST(Split, LeavesAloneWhatDoesNotPay) {
  const auto model = trained(std::make_unique<Model>(transformer));
  const std::vector<SplitClass> classes = split(*model, 2, false);
  for (const SplitClass& of : classes)
    if (of.chosen) {
      EXPECT_GE(of.flops / 256 + 3 * static_cast<double>(of.parameterBytes), static_cast<double>(of.communicatedBytes));
    } else {
      EXPECT_FALSE(of.why.empty());
    }
  EXPECT_LE(differenceOf(*model, "main", 2, 1), 1e-12);
}

// Mistakes that the comparison must notice.

TEST(Split, AMissingCollectiveIsNoticed) {
  int total = 0;
  for (Phase phase : {Phase::forward, Phase::inputGradient}) {
    const auto model = trained(std::make_unique<Model>(transformer));
    split(*model, 2, true);
    Graph& member = *model->module->findGraph("main.tp2");
    int noticed = 0, reductions = 0;
    for (Operation* operation : collectives(member, phase)) {
      const Reformed forms = operation->def().split.forms(*operation);
      if (!forms.from.isPartial() || !forms.to.isWhole() || operation->operand(1)) continue;
      ++reductions;
      Value *sum = operation->result(), *term = operation->operand(0);
      member.replaceAllUses(sum, term);
      // Values that differ between members are an error, others a difference.
      const Tensors inputs = randomInputs(model->main(), 1), parameters = randomParameters(*model->module, 1);
      const auto actual = interpretTeam(member, inputs, parameters, Precision::f64, model->diags, 5, 2);
      noticed += !actual || differenceOf(*model, "main", 2, 1) > 1e-6;
      member.replaceAllUses(term, sum);
      operation->setOperand(0, term);
    }
    EXPECT_EQ(noticed, reductions);
    total += reductions;
  }
  EXPECT_GT(total, 1);
}

TEST(Split, ABiasThatEveryMemberAddsIsNoticed) {
  const auto model = trained(std::make_unique<Model>(transformer));
  split(*model, 2, true);
  Graph& member = *model->module->findGraph("main.tp2");
  int biases = 0;
  for (Operation* operation : collectives(member, Phase::forward)) {
    if (!operation->operand(1) || operation->attributes.getInt("added_axis") == -1) continue;
    Operation& linear = *operation->operand(0)->definer();
    ASSERT_GE(linear.operands().size(), 3u);
    linear.setOperand(2, operation->operand(1)); // in every term, and still in the sum
    ++biases;
  }
  EXPECT_EQ(biases, 2);
  EXPECT_GT(differenceOf(*model, "main", 2, 1), 1e-6);
}

TEST(Split, HeadsInOneBlockAreNoticed) {
  const auto model = trained(std::make_unique<Model>(transformer));
  split(*model, 2, true);
  Graph& member = *model->module->findGraph("main.tp2");
  member.team.parts[model->module->findParameter("qkv")] = Form::split(1, 1);
  EXPECT_GT(differenceOf(*model, "main", 2, 1), 1e-6);
}

TEST(Split, MasksThatEveryMemberNumbersByItselfAreNoticed) {
  const auto model = trained(std::make_unique<Model>(R"(module @m {
  param %up : f32[6, 8]
  param %down : f32[8, 6]
  graph @main(%x: f32[3, 6]) {
    %hidden = linear %x, %up : f32[3, 8]
    %kept, %mask = dropout %hidden {op_number = 7, ratio = 0.5} : f32[3, 8], u8[3, 8]
    %y = linear %kept, %down : f32[3, 6]
    %loss = reduce_mean %y {axes = [0, 1]} : f32[]
    loss %loss
  }
})"));
  split(*model, 2, true);
  EXPECT_LE(differenceOf(*model, "main", 2, 1), 1e-12);
  for (const auto& operation : model->module->findGraph("main.tp2")->operations())
    if (operation->def().name == "dropout") operation->attributes.set("members", std::int64_t{1});
  EXPECT_GT(differenceOf(*model, "main", 2, 1), 1e-6);
}

TEST(Split, AMeanOfWhatEachMemberHasIsNoticed) {
  const auto model = trained(std::make_unique<Model>(R"(module @m {
  param %up : f32[6, 8]
  graph @main(%x: f32[3, 6]) {
    %hidden = linear %x, %up : f32[3, 8]
    %active = tanh %hidden : f32[3, 8]
    %loss = reduce_mean %active {axes = [0, 1]} : f32[]
    loss %loss
  }
})"));
  split(*model, 2, true);
  EXPECT_LE(differenceOf(*model, "main", 2, 1), 1e-12);
  std::string text = print(*model->module);
  const std::string mean = "all_reduce_mean ";
  const std::size_t at = text.find(mean);
  ASSERT_NE(at, std::string::npos) << text;
  Model summed(text.replace(at, mean.size(), "all_reduce ")); // of the members' means
  EXPECT_GT(differenceOf(summed, "main", 2, 1), 1e-6);
}

TEST(Split, WhatADivisionChangesIsRefused) {
  const auto expectRefused = [](const std::string& expected, const std::function<void(Graph&)>& change) {
    const auto model = trained(std::make_unique<Model>(transformer));
    split(*model, 2, true);
    Graph& member = *model->module->findGraph("main.tp2");
    EXPECT_TRUE(verifySplit(model->main(), member, model->diags));
    change(member);
    EXPECT_FALSE(verifySplit(model->main(), member, model->diags)) << expected;
    EXPECT_NE(model->messages().find(expected), std::string::npos) << model->messages();
  };
  expectRefused("has moved '%last' from group", [](Graph& g) { g.find("last")->definer()->group += 1; });
  expectRefused("has lost '%active'", [](Graph& g) { g.rename(g.find("active.own"), "else"); });
  expectRefused("output 1 is", [](Graph& g) { std::swap(g.outputs[1], g.outputs[2]); });
  expectRefused("'%hidden' is f32[2, 4, 12], and f32[2, 4, 6] in a member", [](Graph& g) {
    Value* part = g.find("hidden.own");
    g.rename(part, "hidden");
  });
  expectRefused("of which a member has", [](Graph& g) { g.team.members = 4; });
}

TEST(Split, AWeightGradientIsComputedWhileMembersCommunicate) {
  const auto model = trained(std::make_unique<Model>(transformer));
  split(*model, 2, true);
  Graph& member = *model->module->findGraph("main.tp2");
  const std::size_t count =
      collectives(member, Phase::forward).size() + collectives(member, Phase::inputGradient).size();
  model->run(hideCollectives);
  std::vector<const Operation*> open;
  std::size_t pairs = 0, hidden = 0;
  const Operation* previous = nullptr;
  for (const auto& operation : member.operations()) {
    const CollectiveHalf half =
        operation->def().kind == OpKind::collective ? operation->def().split.half : CollectiveHalf::both;
    EXPECT_TRUE(operation->def().split.start.empty()) << operation->def().name;
    if (half == CollectiveHalf::start) open.push_back(operation.get());
    if (half == CollectiveHalf::finish) {
      ASSERT_FALSE(open.empty());
      EXPECT_EQ(operation->operand(1)->definer(), open.front()); // in the order in which they start
      EXPECT_EQ(operation->group, open.front()->group);
      hidden += open.front() != previous && previous->phase == Phase::weightGradient;
      open.erase(open.begin());
      ++pairs;
    }
    previous = operation.get();
  }
  EXPECT_TRUE(open.empty());
  EXPECT_EQ(pairs, count);
  EXPECT_GE(hidden, 2u); // of the queries, keys and values, and of the MLP
}

TEST(Split, NumbersOfValuesWithoutNamesNameNothingElse) {
  const auto model = trained(std::make_unique<Model>(R"(module @m {
  param %a : f32[6, 8]
  param %b : f32[8, 6]
  param %c : f32[6, 8]
  param %d : f32[8, 6]
  graph @main(%x: f32[3, 6]) {
    %0 = linear %x, %a : f32[3, 8]
    %1 = tanh %0 : f32[3, 8]
    %2 = linear %1, %b : f32[3, 6]
    %3 = linear %2, %c : f32[3, 8]
    %4 = tanh %3 : f32[3, 8]
    %5 = linear %4, %d : f32[3, 6]
    %6 = reduce_mean %5 {axes = [0, 1]} : f32[]
    loss %6
  }
})"));
  split(*model, 2, true); // verifies
  EXPECT_LE(differenceOf(*model, "main", 2, 1), 1e-12);
}
