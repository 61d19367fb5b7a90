// LINK: pdcMemory pdcStage pdcTransforms pdcOps
// What arrives while a kernel makes the terms of a sum has its place from then on, where the bytes are free.
#include "MemorySimulation.h"
#include "pdc/IR/Text.h"

#include <gtest/gtest.h>
#include <iostream>

using namespace pdc;

namespace {

/// A member's graph: a value of 1 MiB made in parts and summed, behind another of `before` columns that dies with it.
struct Member {
  std::unique_ptr<Module> module;
  Expected<MemoryPlan> plan = failure;
  const Graph& graph() const { return *module->graphs.front(); }

  Member(const std::string& rest, Diagnostics& diags) {
    auto parsed = parseModule(R"(module @m {
  param %v : f32[4, 64]
  param %w : f32[64, 256]
  graph @main(%x: f32[1024, 4]) team 2 {
    %0 = linear %x, %v : f32[1024, 64] <group 0>
    %1 = linear %0, %w {parts = 4} : f32[1024, 256] <group 0>
    %2 = all_reduce_start %1 {members = 2} : f32[262144] <group 0>
    %3 = all_reduce_finish %1, %2 {members = 2} : f32[1024, 256] <group 0>
)" + rest + R"(
  }
})",
                              "test.pdir", registry(), diags);
    if (!parsed) return;
    module = std::move(*parsed);
    plan = planMemory(graph(), nullptr, {.oneSlot = true}, diags);
  }
  const Operation& maker() const { return *graph().find("1")->definer(); }
};

TEST(MemoryFollow, WhatArrivesHasItsPlaceWhileTheTermsAreMade) {
  Diagnostics diags(&std::cerr);
  const Member member(R"(    %4 = mul %3, %3 : f32[1024, 256] <group 0>
    %5 = linear %4, %w {transposed = true} : f32[1024, 64] <group 0>
    %6 = linear %5, %w : f32[1024, 256] <group 0>
    %7 = add %6, %4 : f32[1024, 256] <group 0>
    %8 = add %7, %3 : f32[1024, 256] <group 0>
    result "y" = %8)",
                      diags);
  ASSERT_TRUE(member.plan);
  const auto followed = member.plan->training.followed.find(&member.maker());
  ASSERT_NE(followed, member.plan->training.followed.end());
  EXPECT_EQ(followed->second->result()->name(), "2");
  const Buffer* arriving = member.plan->training.find(member.graph().find("2"));
  EXPECT_EQ(arriving->first, member.plan->training.timeline.positions.at(&member.maker()));
  Simulation simulation(*member.plan);
  EXPECT_EQ(simulation.train(member.graph()), "");
}

TEST(MemoryFollow, TimeIsNotBoughtWithMemory) {
  Diagnostics diags(&std::cerr);
  const Member member(R"(    %4 = reduce_sum %3 {axes = [0, 1], keep_dims = false} : f32[] <group 0>
    result "y" = %4)",
                      diags);
  ASSERT_TRUE(member.plan);
  EXPECT_TRUE(member.plan->training.followed.empty()) << "the product has the most bytes of all";
  EXPECT_EQ(partsOf(member.maker()), 4) << "the bits do not depend on it";
}

} // namespace
