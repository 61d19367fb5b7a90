// LINK: pdcAnalysis pdcOps
// The choice among the algorithms of kernels.
#include "pdc/Analysis/KernelTimes.h"
#include "pdc/IR/OpDef.h"
#include "pdc/IR/Text.h"
#include "pdc/Ops/AllOps.h"

#include <gtest/gtest.h>

using namespace pdc;

namespace {

constexpr const char* text = R"(
module @m {
  graph @main(%x: f32[2, 16, 8, 8], %w: f32[16, 16, 3, 3], %b: f32[16], %v: f32[16, 16, 3, 3]) {
    %y = conv2d %x, %w, %b {pads = [1, 1, 1, 1]} : f32[2, 16, 8, 8]
    %z = conv2d %y, %w {pads = [1, 1, 1, 1]} : f32[2, 16, 8, 8]
    %dz = conv2d_input_gradient %z, %w {input_shape = [2, 16, 8, 8], pads = [1, 1, 1, 1]} : f32[2, 16, 8, 8]
    %s = conv2d %dz, %v {pads = [1, 1, 1, 1], strides = [2, 2]} : f32[2, 16, 4, 4]
    result "s" = %s
  }
}
)";
constexpr const char* square = "Conv2d{.input = {2, 16, 8, 8}, .filter = {16, 16, 3, 3}, .pads = {1, 1, 1, 1}}";
constexpr const char* strided =
    "Conv2d{.input = {2, 16, 8, 8}, .filter = {16, 16, 3, 3}, .strides = {2, 2}, .pads = {1, 1, 1, 1}}";

class KernelTimes : public testing::Test {
protected:
  KernelTimes() {
    registerAllOps(ops_);
    module_ = std::move(*parseModule(text, "m.pdir", ops_, diags_));
  }

  /// The attributes of the operations, in program order.
  std::vector<std::string> chosen() const {
    std::vector<std::string> lines;
    for (const auto& operation : module_->findGraph("main")->operations()) {
      std::string line;
      for (const std::string& name : operation->attributes.get<std::vector<std::string>>("algorithms"))
        line += (line.empty() ? "" : " ") + name;
      lines.push_back(line);
    }
    return lines;
  }
  Status choose(const std::vector<KernelTime>& times) { return chooseAlgorithms(*module_, times, "p.json", diags_); }

  OpRegistry ops_;
  Diagnostics diags_{nullptr};
  std::unique_ptr<Module> module_;
};

const std::string automatic = "automatic automatic automatic";

TEST_F(KernelTimes, TheFastestAlgorithmOfEachDirectionIsTakenByAllThatCallTheKernel) {
  ASSERT_TRUE(choose({{square, "forward", "direct", 2},
                      {square, "forward", "winograd", 1},
                      {square, "inputGradient", "direct", 1},
                      {square, "inputGradient", "winograd", 2}}));
  const std::string both = "winograd direct automatic";
  EXPECT_EQ(chosen(), (std::vector<std::string>{both, both, both, automatic}));
}

TEST_F(KernelTimes, OfEqualOnesTheFirstIsTaken) {
  ASSERT_TRUE(choose({{square, "forward", "direct", 1}, {square, "forward", "winograd", 1}}));
  EXPECT_EQ(chosen()[0], "direct automatic automatic");
}

TEST_F(KernelTimes, WhatTheyDoNotSpeakOfIsAutomaticAgain) {
  ASSERT_TRUE(choose({{square, "forward", "winograd", 1}}));
  EXPECT_EQ(chosen()[0], "winograd automatic automatic");
  ASSERT_TRUE(choose({}));
  EXPECT_EQ(chosen(), (std::vector<std::string>(4, automatic)));
}

TEST_F(KernelTimes, WinogradIsNotOfferedForAWeightGradientWhereItsWorkspaceIsMostlyFilters) {
  // Two tiles of 4x4 outputs, 64 to 64 channels: 4 · 2 · 128 is less than 64 · 64. With eight times as many it is not.
  constexpr const char* small = R"(
module @m {
  graph @main(%x: f32[$, 64, 4, 4], %w: f32[64, 64, 3, 3]) {
    %y = conv2d %x, %w {pads = [1, 1, 1, 1]} : f32[$, 64, 4, 4]
    %dw, _ = conv2d_weight_gradient %x, %y {filter_shape = [64, 64, 3, 3], pads = [1, 1, 1, 1]} : f32[64, 64, 3, 3], _
    result "dw" = %dw
  }
}
)";
  for (const auto& [samples, offered] : {std::pair("2", false), std::pair("16", true)}) {
    std::string own = small;
    for (std::size_t at = own.find('$'); at != std::string::npos; at = own.find('$')) own.replace(at, 1, samples);
    module_ = std::move(*parseModule(own, "m.pdir", ops_, diags_));
    const std::string kernel =
        std::string("Conv2d{.input = {") + samples + ", 64, 4, 4}, .filter = {64, 64, 3, 3}, .pads = {1, 1, 1, 1}}";
    EXPECT_EQ(bool(choose({{kernel, "weightGradient", "winograd", 1}})), offered) << samples;
    EXPECT_TRUE(choose({{kernel, "forward", "winograd", 1}})) << samples;
  }
  EXPECT_EQ(
      diags_.all().front().message,
      "'winograd' cannot compute 'weightGradient' of the kernel Conv2d{.input = {2, 64, 4, 4}, .filter = {64, 64, 3, "
      "3}, .pads = {1, 1, 1, 1}}; known: direct");
}

TEST_F(KernelTimes, OurWinogradIsOfferedForAWeightGradientOfAnySize) {
  module_ = std::move(*parseModule(R"(
module @m {
  graph @main(%x: f32[2, 64, 4, 4]@1, %w: f32[64, 64, 3, 3]@2) {
    %y = conv2d %x, %w {pads = [1, 1, 1, 1]} : f32[2, 64, 4, 4]@1
    %dw, _ = conv2d_weight_gradient %x, %y {filter_shape = [64, 64, 3, 3], pads = [1, 1, 1, 1]} : f32[64, 64, 3, 3]@2, _
    result "dw" = %dw
  }
}
)",
                                   "m.pdir", ops_, diags_));
  constexpr const char* kernel = "Conv2d{.input = {2, 64, 4, 4}, .filter = {64, 64, 3, 3}, .pads = {1, 1, 1, 1}, "
                                 ".inputLanes = 16, .outputLanes = 16}";
  EXPECT_TRUE(choose({{kernel, "weightGradient", "tiledWinograd", 1}}));
  EXPECT_FALSE(choose({{kernel, "weightGradient", "winograd", 1}}));
}

TEST_F(KernelTimes, WhatTheModelLacksIsRefused) {
  EXPECT_FALSE(choose({{strided, "forward", "winograd", 1}}));
  EXPECT_FALSE(choose({{square, "forward", "fft", 1}}));
  EXPECT_FALSE(choose({{square, "weightGradient", "direct", 1}}));
  EXPECT_FALSE(choose({{"Conv2d{}", "forward", "direct", 1}}));
  std::vector<std::string> messages;
  for (const Diagnostic& diagnostic : diags_.all()) messages.push_back(diagnostic.message);
  EXPECT_EQ(messages,
            (std::vector<std::string>{
                std::string("'winograd' cannot compute 'forward' of the kernel ") + strided + "; known: direct",
                std::string("'fft' cannot compute 'forward' of the kernel ") + square + "; known: direct, winograd",
                std::string("the model does not call 'weightGradient' of the kernel ") + square,
                "the model does not call 'forward' of the kernel Conv2d{}"}));
  EXPECT_EQ(diags_.all().front().location.file, "p.json");
  EXPECT_EQ(chosen(), (std::vector<std::string>(4, automatic)));
}

TEST_F(KernelTimes, OnAGpuTheWorkspaceOfTheFastestOnesComesWithThem) {
  const std::vector<KernelTime> times = {{square, "forward", "precomputedGemm", 2, 8192},
                                         {square, "forward", "channelsLast", 1, 4096},
                                         {square, "inputGradient", "winogradApart", 1, 6144}};
  ASSERT_TRUE(chooseAlgorithms(*module_, times, "p.json", diags_, Target::cuda));
  const std::string both = "channelsLast winogradApart automatic";
  EXPECT_EQ(chosen(), (std::vector<std::string>{both, both, both, automatic}));
  std::vector<std::int64_t> workspaces;
  for (const auto& operation : module_->findGraph("main")->operations())
    workspaces.push_back(operation->attributes.getInt("workspace"));
  EXPECT_EQ(workspaces, (std::vector<std::int64_t>{6144, 6144, 6144, 0}));
  ASSERT_TRUE(chooseAlgorithms(*module_, {}, "", diags_, Target::cuda));
  EXPECT_EQ(module_->findGraph("main")->operations().front()->attributes.getInt("workspace"), 0);
}

TEST_F(KernelTimes, LinearLayersChooseOnAGpuAndOf16Bits) {
  module_ = std::move(*parseModule(R"(
module @m {
  graph @main(%x: bf16[4, 6], %w: bf16[6, 3], %b: bf16[3], %z: f32[4, 6], %v: f32[6, 3]) {
    %y = linear %x, %w, %b : bf16[4, 3]
    %dx = linear_input_gradient %y, %w : bf16[4, 6]
    %dw, %db = linear_weight_gradient %x, %y {wide = true} : f32[6, 3], f32[3]
    %e, _ = linear_weight_gradient %x, %y : bf16[6, 3], _
    %f = linear %z, %v : f32[4, 3]
    result "dw" = %dw
  }
}
)",
                                   "m.pdir", ops_, diags_));
  const std::string sizes = "Linear{.rows = 4, .inputs = 6, .outputs = 3", bf16 = ", .element = pdcrt::Element::bf16";
  const std::string biased = sizes + ", .bias = true" + bf16;
  const std::vector<KernelTime> times = {{biased + "}", "forward", "first", 2},
                                         {biased + "}", "forward", "sixth", 1},
                                         {sizes + bf16 + "}", "inputGradient", "second", 1},
                                         {biased + ", .wideGradient = true}", "weightGradient", "thirdWithSums", 1}};
  ASSERT_TRUE(chooseAlgorithms(*module_, times, "p.json", diags_, Target::cuda));
  EXPECT_EQ(chosen(),
            (std::vector<std::string>{"sixth automatic automatic", "automatic second automatic",
                                      "automatic automatic thirdWithSums", "automatic second automatic", automatic}));
  EXPECT_FALSE(choose(times));
  for (const KernelTime& wrong : {KernelTime{biased + "}", "forward", "firstWithSums", 1},
                                  KernelTime{sizes + bf16 + "}", "weightGradient", "firstWithSums", 1},
                                  KernelTime{sizes + "}", "forward", "second", 1}})
    EXPECT_FALSE(chooseAlgorithms(*module_, {wrong}, "p.json", diags_, Target::cuda)) << wrong.kernel;
}

TEST_F(KernelTimes, EachTargetHasItsAlgorithms) {
  EXPECT_FALSE(chooseAlgorithms(*module_, {{square, "forward", "direct", 1}}, "p.json", diags_, Target::cuda));
  EXPECT_FALSE(chooseAlgorithms(*module_, {{strided, "forward", "winograd", 1}}, "p.json", diags_, Target::cuda));
  EXPECT_FALSE(choose({{square, "forward", "channelsLast", 1}}));
  std::vector<std::string> messages;
  for (const Diagnostic& diagnostic : diags_.all()) messages.push_back(diagnostic.message);
  const std::string known = " for CUDA; known: implicitGemm, precomputedGemm, gemm, fft, tiledFft, winogradApart, "
                            "channelsLast";
  EXPECT_EQ(messages,
            (std::vector<std::string>{
                std::string("'direct' cannot compute 'forward' of the kernel ") + square + known + ", winograd",
                std::string("'winograd' cannot compute 'forward' of the kernel ") + strided + known,
                std::string("'channelsLast' cannot compute 'forward' of the kernel ") + square +
                    "; known: direct, winograd"}));
}

TEST_F(KernelTimes, OfWhatAKernelTellsTheMethodsThatAreCalledAreKept) {
  const std::vector<KernelTime> times = {{square, "forward", "implicitGemm", 1},
                                         {square, "weightGradient", "implicitGemm", 1},
                                         {strided, "forward", "gemm", 1}};
  EXPECT_EQ(calledOnly(times, *module_, Target::cuda), (std::vector<KernelTime>{times[0], times[2]}));
}

TEST_F(KernelTimes, EveryChoiceIsTimedOnce) {
  const std::vector<KernelTime> times = timeKernels(*module_);
  std::vector<std::string> what;
  for (const KernelTime& time : times) {
    EXPECT_EQ(time.kernel, square);
    EXPECT_GT(time.ms, 0);
    what.push_back(time.method + " " + time.algorithm);
  }
  EXPECT_EQ(what, (std::vector<std::string>{"forward direct", "forward winograd", "inputGradient direct",
                                            "inputGradient winograd"}));
  EXPECT_TRUE(coversChoices(times, *module_));
  EXPECT_FALSE(coversChoices({times[0], times[1]}, *module_));
  EXPECT_TRUE(choose(times));
}

} // namespace
