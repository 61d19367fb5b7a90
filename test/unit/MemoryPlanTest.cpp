// LINK: pdcMemory pdcStage pdcOps
// The memory plan against a simulation: every phase is executed on a memory that remembers which value was written
// where, so that whoever overwrites a value that is still read is found.
#include "MemorySimulation.h"
#include "pdc/IR/Builder.h"
#include "pdc/IR/Text.h"
#include "pdc/IR/Verifier.h"
#include "pdc/Stage/StagePasses.h"
#include "pdc/Transforms/Transforms.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <iostream>
#include <map>
#include <random>
#include <set>

using namespace pdc;

namespace {

/// A random model: linear layers, elementwise operations, views, values with several users.
std::unique_ptr<Module> randomModule(std::uint64_t seed, Diagnostics& diags) {
  std::mt19937_64 random(seed);
  auto module = std::make_unique<Module>();
  module->name = "random";
  module->graphs.push_back(std::make_unique<Graph>("main"));
  Graph& graph = *module->graphs.back();
  Builder b(*module, graph, registry(), diags);
  std::vector<Value*> values = {graph.addInput({ElementType::f32, {4, 16}}, "x"),
                                graph.addInput({ElementType::f32, {4, 16}}, "y")};
  std::vector<Parameter*> weights;
  for (int i = 0; i < 4; ++i)
    weights.push_back(module->addParameter({.name = "w" + std::to_string(i), .type = {ElementType::f32, {16, 16}}}));
  Parameter* bias = module->addParameter({.name = "b", .type = {ElementType::f32, {16}}});
  auto any = [&] { return values[values.size() - 1 - random() % std::min<std::size_t>(values.size(), 4)]; };
  const int length = 3 + static_cast<int>(random() % 12);
  for (int i = 0; i < length; ++i) {
    b.setLocation({"", "node" + std::to_string(i), 0, 0});
    switch (random() % 6) {
    case 0:
      values.push_back(b.value(
          "linear",
          {any(), graph.parameterValue(*weights[random() % 4]), random() % 2 ? graph.parameterValue(*bias) : nullptr},
          {{"transposed", true}}));
      break;
    case 1: values.push_back(b.value("relu", {any()})); break;
    case 2: values.push_back(b.value("mul", {any(), any()})); break;
    case 3: values.push_back(b.value("add", {any(), any()})); break;
    case 4: values.push_back(b.value("sigmoid", {any()})); break;
    case 5: {
      Value* flat = b.value("reshape", {any()}, {{"shape", std::vector<std::int64_t>{64}}});
      values.push_back(b.value("reshape", {flat}, {{"shape", std::vector<std::int64_t>{4, 16}}}));
      break;
    }
    }
  }
  Parameter* own = module->addParameter({.name = "own", .type = {ElementType::f32, {16, 16}}});
  Value* sum = b.value("linear", {values.back(), graph.parameterValue(*own), nullptr}, {{"transposed", true}});
  graph.outputs.push_back({.kind = OutputKind::prediction, .value = sum});
  Value* row = b.value("reshape", {sum}, {{"shape", std::vector<std::int64_t>{1, 64}}});
  Parameter* last = module->addParameter({.name = "last", .type = {ElementType::f32, {1, 64}}});
  Value* product = b.value("linear", {row, graph.parameterValue(*last), nullptr}, {{"transposed", true}});
  Value* loss = b.value("reshape", {product}, {{"shape", std::vector<std::int64_t>{}}});
  graph.outputs.push_back({.kind = OutputKind::loss, .value = loss});
  return module;
}

/// What is alive while an operation of training runs, counted from the graph alone: what it and later operations read
/// and earlier ones or itself have made, what the runtime reads later, its workspace.
std::int64_t aliveAt(const MemoryPlan& plan, const std::vector<const Operation*>& order, std::size_t now) {
  std::set<const Value*> made, needed;
  auto counts = [&](const Value* value) {
    const Buffer* buffer = plan.training.find(value);
    const Block block = buffer->place.block;
    return block == Block::slot || block == Block::handover || block == Block::scratch;
  };
  for (const PlacedData& data : plan.data) made.insert(data.value);
  for (const EarlyUpdate& update : plan.earlyUpdates)
    if (std::find(order.begin() + static_cast<std::ptrdiff_t>(now), order.end(), update.after) != order.end())
      needed.insert(storageOf(update.gradient));
  for (std::size_t i = 0; i <= now; ++i)
    for (const Value* result : order[i]->results())
      if (result) made.insert(result);
  for (std::size_t i = now; i < order.size(); ++i)
    for (const Value* operand : order[i]->operands())
      if (operand) needed.insert(storageOf(operand));
  for (const Value* result : order[now]->results())
    if (result) needed.insert(result);
  for (const PlacedPort& port : plan.ports)
    if (plan.edges[static_cast<std::size_t>(port.edge)].direction == pdcrt::Direction::forward)
      needed.insert(storageOf(port.value));
  for (const PlacedOutput& output : plan.outputs)
    if (output.kind == OutputKind::loss) needed.insert(storageOf(output.value));
  std::int64_t bytes = 0;
  for (const Value* value : made)
    if (needed.contains(value) && counts(value)) bytes += value->type().bytes();
  for (const Value* result : order[now]->results()) // in place of an operand
    if (result && plan.training.find(result)->replaces) bytes -= result->type().bytes();
  if (auto it = plan.training.workspaces.find(order[now]); it != plan.training.workspaces.end())
    bytes += it->second.bytes;
  return bytes;
}

/// The lower bound is what the definition says.
void checkLiveBytes(const MemoryPlan& plan, const Graph& graph) {
  std::vector<const Operation*> order;
  for (ProgramPhase phase : {ProgramPhase::forward, ProgramPhase::backwardInput, ProgramPhase::backwardWeight})
    for (const auto& operation : graph.operations())
      if (plan.phaseOf(*operation) == phase && operation->def().kind != OpKind::view &&
          operation->def().kind != OpKind::constant)
        order.push_back(operation.get());
  if (!plan.copies.empty()) return; // what is copied stays longer
  std::int64_t most = 0;
  for (std::size_t i = 0; i < order.size(); ++i) most = std::max(most, aliveAt(plan, order, i));
  EXPECT_EQ(plan.live.peak, most) << print(graph);
  EXPECT_LE(most, static_cast<std::int64_t>(plan.bytes.slot + plan.bytes.handover + plan.bytes.scratch));
}

} // namespace

TEST(AnalysisMemory, NothingIsOverwrittenWhileItIsAlive) {
  Diagnostics diags(&std::cerr);
  int cuts = 0, ties = 0;
  std::size_t taken = 0, alive = 0, inOne = 0, apart = 0, earlyUpdates = 0, workspaces = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    auto module = randomModule(seed, diags);
    Diagnostics silent(nullptr); // parameters that do not matter are warned about
    PassContext context{*module, registry(), silent, {}};
    ASSERT_TRUE(canonicalize(context));
    ASSERT_TRUE(differentiate(context));
    ASSERT_TRUE(fuse(context));
    ASSERT_TRUE(addEvaluation(context));
    int groups = 0;
    for (const auto& operation : module->findGraph("main")->operations())
      groups = std::max(groups, operation->group + 1);
    std::vector<int> cut(static_cast<std::size_t>(groups), 0);
    // Parameters are shared here and there, but not those of the last groups.
    for (int g = std::max(seed % 4 == 1 ? groups / 2 : groups - 2, 1); seed % 2 == 1 && g < groups; ++g)
      cut[static_cast<std::size_t>(g)] = 1;
    auto stages = splitStages(context, cut);
    if (!stages) continue; // a parameter of both, which one does not train
    cuts += stages->size() > 1;
    const std::vector<SharedParameter> shared = sharedParameters(*module->findGraph("main"), cut);
    ties += static_cast<int>(shared.size());
    for (const StageGraphs& stage : *stages) {
      if (seed % 3 == 1) computeWeightGradientsEarly(*stage.training);
      struct Way {
        bool split, early, oneSlot;
      };
      for (const auto& [split, early, oneSlot] : std::vector<Way>{{false, false, false},
                                                                  {true, false, false},
                                                                  {false, true, false},
                                                                  {false, false, true},
                                                                  {true, false, true}}) {
        auto plan = planMemory(
            *stage.training, stage.evaluation,
            {.stage = stage.stage, .shared = shared, .splitBackward = split, .earlyUpdates = early, .oneSlot = oneSlot},
            diags);
        ASSERT_TRUE(plan);
        earlyUpdates += plan->earlyUpdates.size();
        Simulation simulation(*plan);
        ASSERT_EQ(simulation.train(*stage.training), "") << print(*stage.training);
        if (stage.evaluation) {
          ASSERT_EQ(simulation.evaluate(*stage.evaluation), "") << print(*stage.evaluation);
        }
        checkLiveBytes(*plan, *stage.training);
        if (split) continue;
        ASSERT_EQ(plan->bytes.handover, 0U);
        if (oneSlot) {
          ASSERT_EQ(plan->bytes.scratch, 0U);
        }
        workspaces += plan->training.workspaces.size();
        if (!early) (oneSlot ? inOne : apart) += plan->bytes.slot + plan->bytes.scratch;
        taken += plan->bytes.slot + plan->bytes.scratch;
        alive += static_cast<std::size_t>(plan->live.peak);
      }
    }
  }
  EXPECT_LT(static_cast<double>(taken), 1.25 * static_cast<double>(alive)); // values are tiny here: padding counts
  // Here what lies where the slot holds nothing are workspaces, of which kernels need other ones on each processor.
  if (workspaces > 0)
    EXPECT_LT(inOne, apart);
  else
    EXPECT_EQ(inOne, apart);
  EXPECT_GT(cuts, 50);
  EXPECT_GT(ties, 5);
  EXPECT_GT(earlyUpdates, 100U);
}

// A value that is computed again need not be kept, and nothing else is kept longer for it.
TEST(AnalysisMemory, ComputingAgainTakesNoMoreMemoryAtAnyTime) {
  Diagnostics diags(&std::cerr);
  int again = 0, lessKept = 0, lessAtMost = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    for (const bool split : {false, true}) {
      auto module = randomModule(seed, diags);
      Diagnostics silent(nullptr);
      PassContext context{*module, registry(), silent, {}};
      ASSERT_TRUE(canonicalize(context));
      ASSERT_TRUE(differentiate(context));
      ASSERT_TRUE(fuse(context));
      Graph& graph = *module->findGraph("main");
      if (!split) computeWeightGradientsEarly(graph);
      const MemoryOptions options = {.splitBackward = split, .oneSlot = true};
      const auto before = planMemory(graph, nullptr, options, diags);
      ASSERT_TRUE(computeAgain(context, graph, {.share = 1, .leastBytes = 0, .splitBackward = split}));
      ASSERT_TRUE(verify(*module, diags)) << print(graph);
      const auto after = planMemory(graph, nullptr, options, diags);
      ASSERT_TRUE(before && after);
      Simulation simulation(*after);
      ASSERT_EQ(simulation.train(graph), "") << print(graph);
      EXPECT_LE(after->live.peak, before->live.peak) << print(graph);
      EXPECT_LE(after->live.stashed, before->live.stashed) << print(graph);
      EXPECT_LE(after->live.handed, before->live.handed) << print(graph);
      again += static_cast<int>(std::count_if(graph.operations().begin(), graph.operations().end(),
                                              [](const auto& operation) { return operation->again; }));
      lessKept += after->live.stashed < before->live.stashed;
      lessAtMost += after->live.peak < before->live.peak;
    }
  }
  EXPECT_GT(again, 10);
  EXPECT_GT(lessKept, 10);
  EXPECT_GT(lessAtMost, 0);
}

// The gradient of the sum leaves to stage 0, and the weight gradient of 'b' reads it: it is handed over, and a copy
// leaves.
TEST(AnalysisMemory, WhatBackwardWeightReadsOfAGradientThatLeavesIsHandedOver) {
  Diagnostics diags(&std::cerr);
  const std::string text = R"(module @m {
  param %w : f32[16, 16]
  param %b : f32[16]
  param %v : f32[16, 16]
  graph @main(%x: f32[4, 16]) {
    %0 = linear %x, %w {transposed = true} : f32[4, 16] <group 0>
    %1 = add %0, %b : f32[4, 16] <group 1>
    %2 = linear %1, %v {transposed = true} : f32[4, 16] <group 1>
    %3 = reduce_sum %2 {axes = [0, 1]} : f32[] <group 1>
    loss %3
  }
})";
  auto module = parseModule(text, "test.pdir", registry(), diags);
  ASSERT_TRUE(module);
  PassContext context{**module, registry(), diags, {}};
  ASSERT_TRUE(differentiate(context));
  auto stages = splitStages(context, {0, 1});
  ASSERT_TRUE(stages);
  const Graph& graph = *(*stages)[1].training;
  auto plan = planMemory(graph, nullptr, {.stage = 1, .splitBackward = true}, diags);
  ASSERT_TRUE(plan);
  Simulation simulation(*plan);
  EXPECT_EQ(simulation.train(graph), "") << print(graph);
  EXPECT_EQ(plan->copies.size(), 1U) << print(graph);
}

// Data are checked against it, and drawn below it where they are synthetic.
TEST(AnalysisMemory, IntegerInputsKnowAmongHowManyRowsTheyChoose) {
  Diagnostics diags(&std::cerr);
  const std::string text = R"(module @m {
  param %table : f32[7, 4]
  param %places : f32[5, 4]
  graph @main(%words: i64[2, 3], %counts: i64[2, 3], %both: i32[2, 3], %negative: i64[2, 3],
              %small: i32[2, 3]) {
    %0 = gather %table, %words : f32[2, 3, 4]
    %1 = gather %table, %both : f32[2, 3, 4]
    %2 = reshape %both {shape = [2, 3]} : i32[2, 3]
    %3 = gather %places, %2 : f32[2, 3, 4]
    %4 = add %0, %1 : f32[2, 3, 4]
    %5 = add %4, %3 : f32[2, 3, 4]
    %6 = cast %counts {to = "f32"} : f32[2, 3]
    %7 = reduce_sum %6 {axes = [0, 1]} : f32[]
    %8 = reduce_sum %5 {axes = [0, 1, 2]} : f32[]
    %9 = add %7, %8 : f32[]
    %10 = neg %negative : i64[2, 3]
    %11 = gather %table, %10 : f32[2, 3, 4]
    %12 = cast %small {to = "i64"} : i64[2, 3]
    %13 = gather %table, %12 : f32[2, 3, 4]
    %14 = add %11, %13 : f32[2, 3, 4]
    %15 = reduce_sum %14 {axes = [0, 1, 2]} : f32[]
    %16 = add %9, %15 : f32[]
    loss %16
  }
})";
  auto module = parseModule(text, "test.pdir", registry(), diags);
  ASSERT_TRUE(module);
  PassContext context{**module, registry(), diags, {}};
  ASSERT_TRUE(differentiate(context));
  auto plan = planMemory(*(*module)->findGraph("main"), nullptr, {}, diags);
  ASSERT_TRUE(plan);
  std::map<std::string, std::int64_t> choices;
  for (const PlacedData& data : plan->data) choices[data.value->name()] = data.choices;
  EXPECT_EQ(choices, (std::map<std::string, std::int64_t>{
                         {"words", 7}, {"counts", 0}, {"both", 5}, {"negative", 0}, {"small", 7}}));
}

// Of all its data, but not of the loss scale; and only there.
TEST(AnalysisMemory, DataOfAMinibatchWaitsBesideTheSlotOnAGpu) {
  Diagnostics diags(&std::cerr);
  const std::string text = R"(module @m {
  param %w : f32[5]
  graph @main(%x: f32[3, 5], %y: f32[3, 5] label, %unused: i64[3]) {
    %0 = add %x, %w : f32[3, 5]
    %1 = sub %0, %y : f32[3, 5]
    %2 = mul %1, %1 : f32[3, 5]
    %3 = reduce_sum %2 {axes = [0, 1]} : f32[]
    loss %3
  }
})";
  for (const bool scaled : {false, true}) {
    auto module = parseModule(text, "test.pdir", registry(), diags);
    ASSERT_TRUE(module);
    PassContext context{**module, registry(), diags, {}};
    if (scaled) context.options["loss_scale"] = "dynamic";
    ASSERT_TRUE(differentiate(context));
    const Graph& graph = *(*module)->findGraph("main");
    ASSERT_EQ(graph.inputs.size(), scaled ? 4U : 3U);
    auto onCpu = planMemory(graph, nullptr, {}, diags),
         onGpu = planMemory(graph, nullptr, {.target = Target::cuda}, diags);
    ASSERT_TRUE(onCpu && onGpu);
    EXPECT_EQ(onCpu->bytes.dataStaging, 0U);
    EXPECT_EQ(onGpu->bytes.dataStaging, 64U + 64 + 64);
    EXPECT_EQ(onGpu->bytes.slot, onCpu->bytes.slot);
  }
}

TEST(AnalysisMemory, WhatLivesInsideAPhaseLiesInTheSlotWhileThatHoldsNothing) {
  Diagnostics diags(&std::cerr);
  const std::string text = R"(module @m {
  graph @main(%x: f32[32, 32]) {
    %0 = transpose %x {permutation = [1, 0]} : f32[32, 32]
    %1 = transpose %0 {permutation = [1, 0]} : f32[32, 32]
    %2 = transpose %1 {permutation = [1, 0]} : f32[32, 32]
    %3 = transpose %2 {permutation = [1, 0]} : f32[32, 32]
    result "y" = %3
  }
})";
  auto module = parseModule(text, "test.pdir", registry(), diags);
  ASSERT_TRUE(module);
  auto plan = planMemory(*(*module)->findGraph("main"), nullptr, {.keepResults = true}, diags);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->bytes.scratch,
            4096U); // of three: the first is where the result will be, the next where the input was
  EXPECT_EQ(plan->bytes.slot, 2 * 4096U); // the input and the result
  EXPECT_EQ(plan->bytes.weights, 0U);
}

// Backward reads what the second sigmoid has made first, and then has no use for it: with several slots it lies before
// what the first one has made, so that what is free then is in one piece. In one slot program order stays.
TEST(AnalysisMemory, WhatBackwardIsDoneWithFirstComesFirstInTheSlot) {
  Diagnostics diags(&std::cerr);
  const std::string text = R"(module @m {
  param %w : f32[16, 16]
  param %v : f32[16, 16]
  graph @main(%x: f32[4, 16]) {
    %0 = linear %x, %w {transposed = true} : f32[4, 16]
    %1 = sigmoid %0 : f32[4, 16]
    %2 = linear %1, %v {transposed = true} : f32[4, 16]
    %3 = sigmoid %2 : f32[4, 16]
    %4 = reduce_sum %3 {axes = [0, 1]} : f32[]
    loss %4
  }
})";
  auto module = parseModule(text, "test.pdir", registry(), diags);
  ASSERT_TRUE(module);
  PassContext context{**module, registry(), diags, {}};
  ASSERT_TRUE(differentiate(context));
  const Graph& graph = *(*module)->findGraph("main");
  const auto placeOf = [&](const MemoryPlan& plan, const std::string& name) {
    for (const Buffer& buffer : plan.training.buffers)
      if (buffer.value->name() == name && buffer.place.block == Block::slot) return buffer.place.offset;
    return std::int64_t{-1};
  };
  const auto several = planMemory(graph, nullptr, {}, diags),
             one = planMemory(graph, nullptr, {.oneSlot = true}, diags);
  ASSERT_TRUE(several && one);
  ASSERT_GE(placeOf(*several, "3"), 0);
  EXPECT_LT(placeOf(*several, "3"), placeOf(*several, "1"));
  ASSERT_GE(placeOf(*one, "1"), 0);
  EXPECT_LT(placeOf(*one, "1"), placeOf(*one, "3"));
}

TEST(AnalysisMemory, ValuesNeededTwiceAreCopied) {
  Diagnostics diags(&std::cerr);
  const std::string text = R"(module @m {
  graph @main(%x: f32[16]) {
    result "a" = %x
    result "b" = %x
  }
})";
  auto module = parseModule(text, "test.pdir", registry(), diags);
  ASSERT_TRUE(module);
  auto plan = planMemory(*(*module)->findGraph("main"), nullptr, {.keepResults = true}, diags);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->copies.size(), 0U); // both results are the input's bytes
  EXPECT_EQ(plan->bytes.slot, 64U);
}
