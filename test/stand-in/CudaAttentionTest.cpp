// The algorithms of attention on CUDA: plain and fused ones compute the definition, and go on from what the other one
// has kept; what was measured decides, and what does not fit is refused. On a GPU too (utils/check-gpu), where the
// runtime was built with fused attention, but for what speaks of the stand-in's times.
#include "AttentionDefinition.h"
#include "KernelTest.h"
#include "cuda/AttentionBias.h"
#include "pdcrt/CudaWorkspace.h"
#include "pdcrt/StreamClock.h"
#include "pdcrt/kernels/Attention.h"

#include <limits>
#include <map>
#include <type_traits>

namespace pdcrt {
namespace {

using Algorithm = Attention::Algorithm;

/// What a GPU meets, or what the stand-in can time in seconds.
#ifdef PDC_TEST_ON_GPU
constexpr std::int64_t positions = 128, size = 64;
#else
constexpr std::int64_t positions = 8, size = 8;
#endif
const Attention::Options plainOne = {.batch = 2,
                                     .heads = 2,
                                     .groups = 2,
                                     .queries = positions,
                                     .keys = positions,
                                     .size = size,
                                     .valueSize = size,
                                     .scale = 0.25,
                                     .element = Element::bf16};
/// As above, with less.
Attention::Options with(void (*change)(Attention::Options&)) {
  Attention::Options o = plainOne;
  change(o);
  return o;
}
const std::map<std::string, Attention::Options> attentions = {
    {"heads", plainOne},
    {"f16", with([](auto& o) { o.element = Element::f16; })},
    {"causal", with([](auto& o) { o.causal = true; })},
    {"causal, the last query at the last key", with([](auto& o) { o.causal = true, o.keys = positions + 5; })},
    {"heads that share keys", with([](auto& o) { o.groups = 1; })},
    {"rows of scores that a warp holds", with([](auto& o) { o.queries = 2, o.keys = 132; })},
    {"rows of scores that a block holds", with([](auto& o) { o.queries = 2, o.keys = 1028; })},
    {"rows of scores in pieces", with([](auto& o) { o.queries = 2, o.keys = 4100; })},
    {"rows of scores in pieces, causal", with([](auto& o) { o.causal = true, o.queries = 2, o.keys = 2053; })},
    {"values of another size", with([](auto& o) { o.keys = 3 * positions, o.valueSize = 2 * size; })},
    {"a bias for each key of a sample", with([](auto& o) {
       o.bias = {2, 1, 1, o.keys};
     })},
    {"a bias for each score of a head, causal", with([](auto& o) {
       o.causal = true, o.element = Element::f16, o.bias = {1, 2, o.queries, o.keys};
     })},
};

/// The same heads in packed rows.
const MultiHeadAttention::Options packedOne = {.batch = 2,
                                               .heads = 2,
                                               .groups = 2,
                                               .queries = positions,
                                               .keys = positions,
                                               .size = size,
                                               .valueSize = size,
                                               .scale = 0.25,
                                               .packed = true,
                                               .element = Element::bf16};

/// What kernels with these options say while they are timed.
std::vector<KernelTime> timesOf(const Attention::Options& o) {
  std::vector<KernelTime> times;
  pdcrt::Setup setup;
  setup.timing(&times);
  const Attention kernel(setup, o);
  return times;
}
/// By these algorithms, with the workspace that they were measured to take.
Attention::Options by(Algorithm forward, Algorithm inputGradient, Attention::Options o) {
  static std::vector<KernelTime> times; // what is there is not measured again
  pdcrt::Setup setup;
  setup.timing(&times);
  const Attention kernel(setup, o);
  for (const KernelTime& time : times)
    if (time.kernel == Attention::profileName(o))
      o.algorithms.workspace = std::max(o.algorithms.workspace, static_cast<std::int64_t>(time.workspaceBytes));
  o.algorithms.forward = forward, o.algorithms.inputGradient = inputGradient;
  return o;
}
/// Empty where it can be constructed.
std::string refusalOf(const Attention::Options& o) {
  try {
    pdcrt::Setup setup;
    const Attention kernel(setup, o);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

template <class T>
void expectDefinition(const Attention::Options& o) {
  const attention::Inputs in(o);
  const Buffer<T> q = attention::rounded<T>(in.q), k = attention::rounded<T>(in.k), v = attention::rounded<T>(in.v),
                  dy = attention::rounded<T>(in.dy);
  const std::int64_t rows = o.batch * o.heads * o.queries;
  const Buffer<T> y(dy.count()), dq(q.count()), dk(k.count()), dv(v.count());
  const Buffer<float> largest(rows), inverse(rows);
  const View<const float> bias = attention::biasOf(o, in);
  pdcrt::Setup setup;
  const Attention kernel(setup, o);
  expectGoodManners(setup, {y, largest, inverse},
                    [&](Stream& stream) { kernel.forward(stream, q, k, v, bias, y.view(), largest, inverse); });
  expectGoodManners(setup, {dq, dk, dv}, [&](Stream& stream) {
    kernel.inputGradient(stream, dy, q, k, v, bias, largest, inverse, {}, dq.view(), dk.view(), dv.view());
  });
  const attention::Outcome exact = expected(o, in, {});
  constexpr double tolerance = std::is_same_v<T, bfloat16> ? 1e-2 : 2e-3;
  EXPECT_LE(attention::relativeError(y, exact.y), tolerance); // NaN fails too
  EXPECT_LE(attention::relativeError(dq, exact.dq), tolerance);
  EXPECT_LE(attention::relativeError(dk, exact.dk), tolerance);
  EXPECT_LE(attention::relativeError(dv, exact.dv), tolerance);
}

TEST(CudaAttention, EitherAlgorithmComputesTheDefinitionAndGoesOnFromTheOther) {
  std::string refused; // by a device or a build
  for (const auto& [name, o] : attentions)
    for (const Algorithm forward : {Algorithm::plain, Algorithm::fused})
      for (const Algorithm gradient : {Algorithm::plain, Algorithm::fused}) {
        const Attention::Options one = by(forward, gradient, o);
        SCOPED_TRACE(name + ", forward by " + Attention::algorithmNames[static_cast<int>(forward)] + ", gradient by " +
                     Attention::algorithmNames[static_cast<int>(gradient)]);
        if (const std::string why = refusalOf(one); !why.empty())
          refused = why;
        else
          o.element == Element::bf16 ? expectDefinition<bfloat16>(one) : expectDefinition<float16>(one);
      }
  if (!refused.empty()) GTEST_SKIP() << "not all of them: " << refused;
}

TEST(CudaAttention, EitherAlgorithmTakesHeadsInRows) {
  std::string refused;
  for (const auto& [name, change] : std::map<std::string, void (*)(MultiHeadAttention::Options&)>{
           {"packed", [](auto&) {}},
           {"packed, causal, f16", [](auto& o) { o.causal = true, o.element = Element::f16; }},
           {"packed, heads that share keys", [](auto& o) { o.groups = 1; }},
           {"packed, a bias for each key of a sample",
            [](auto& o) {
              o.bias = {2, 1, 1, o.keys};
            }},
           {"queries, keys and values apart",
            [](auto& o) { o.packed = false, o.keys = 3 * positions, o.valueSize = 2 * size; }}})
    for (const Algorithm forward : {Algorithm::plain, Algorithm::fused})
      for (const Algorithm gradient : {Algorithm::plain, Algorithm::fused}) {
        MultiHeadAttention::Options o = packedOne;
        change(o);
        const Attention::Options chosen = by(forward, gradient, MultiHeadAttention::attentionOf(o));
        SCOPED_TRACE(name + ", forward by " + Attention::algorithmNames[static_cast<int>(forward)] + ", gradient by " +
                     Attention::algorithmNames[static_cast<int>(gradient)]);
        if (const std::string why = refusalOf(chosen); !why.empty()) {
          refused = why;
          continue;
        }
        o.algorithms = chosen.algorithms;
        o.element == Element::bf16 ? attention::expectDefinitionInRows<bfloat16>(o, 1e-2)
                                   : attention::expectDefinitionInRows<float16>(o, 2e-3);
      }
  if (!refused.empty()) GTEST_SKIP() << "not all of them: " << refused;
}

TEST(CudaAttention, FusedOnesGiveTheGradientsThatAreWanted) {
  const Attention::Options o = by(Algorithm::fused, Algorithm::fused, plainOne);
  if (const std::string why = refusalOf(o); !why.empty()) GTEST_SKIP() << why;
  const attention::Inputs in(o);
  const Buffer<bfloat16> q = attention::rounded<bfloat16>(in.q), k = attention::rounded<bfloat16>(in.k),
                         v = attention::rounded<bfloat16>(in.v), dy = attention::rounded<bfloat16>(in.dy);
  const Buffer<bfloat16> y(dy.count()), dk(k.count());
  pdcrt::Setup setup;
  const Attention kernel(setup, o);
  const GuardedBytes workspace(setup.workspaceBytes());
  Stream stream(workspace.data(), workspace.size());
  kernel.forward(stream, q, k, v, {}, y.view(), {}, {}); // nobody wants the statistics either
  kernel.inputGradient(stream, dy, q, k, v, {}, {}, {}, {}, {}, dk.view(), {});
  EXPECT_LE(attention::relativeError(dk, expected(o, in, {}).dk), 1e-2);
}

TEST(CudaAttention, WhereNothingIsToBeChosenNothingIsTimed) {
  for (const auto& o :
       {with([](auto& o) { o.element = Element::f32; }), with([](auto& o) { o.size = 12; }),
        with([](auto& o) { o.valueSize = 136; }), with([](auto& o) { o.ratio = 0.5; }), with([](auto& o) {
          o.bias = {1, 1, 1, o.keys}, o.hides = true;
        }),
        with([](auto& o) {
          o.keys = 12, o.bias = {1, 1, 1, o.keys};
        })}) {
    EXPECT_TRUE(timesOf(o).empty());
    Attention::Options fused = o;
    fused.algorithms.forward = Algorithm::fused;
    EXPECT_NE(refusalOf(fused).find("the fused algorithm is for 16 bits and heads of 8, 16, … 128 elements"),
              std::string::npos)
        << refusalOf(fused);
  }
}

/// Of masks: what 16 bits do not hold is as far from 0 as they go.
template <class T>
void expectSpread(const std::vector<float>& bias, const std::vector<float>& expected) {
  const auto keys = static_cast<std::int64_t>(bias.size());
  const Attention::Options o = {.batch = 1,
                                .queries = 3,
                                .keys = keys,
                                .bias = {1, 1, 1, keys},
                                .element = std::is_same_v<T, bfloat16> ? Element::bf16 : Element::f16};
  const Buffer<float> from(keys);
  for (std::int64_t j = 0; j < keys; ++j) from[j] = bias[static_cast<std::size_t>(j)];
  const Buffer<T> to(o.queries * keys);
  EXPECT_EQ(cuda::spreadBiasBytes(o), 256u);
  Stream q;
  cuda::spreadBias(q, o, from.view().data, to.view().data);
  for (std::int64_t i = 0; i < to.count(); ++i)
    EXPECT_EQ(static_cast<float>(to[i]), expected[static_cast<std::size_t>(i % keys)]) << i;
}

TEST(CudaAttention, ABiasIsRoundedWithoutBecomingInfinite) {
  constexpr float infinity = std::numeric_limits<float>::infinity(), most = std::numeric_limits<float>::max();
  const std::vector<float> bias = {-infinity, -most, -1e9f, 0, 1.0009765625f, 65504, 1e5f, infinity};
  expectSpread<bfloat16>(bias, {-0x1.FEp127f, -0x1.FEp127f, -0x1.DCp29f, 0, 1, 65536, 99840, 0x1.FEp127f});
  expectSpread<float16>(bias, {-65504, -65504, -65504, 0, 1.0009765625f, 65504, 65504, 65504});
}

#ifndef PDC_TEST_ON_GPU
TEST(CudaAttention, WithFusedOnesAloneTheWorkspaceIsTheirs) {
  const auto bytesOf = [](Algorithm forward, Algorithm gradient) {
    pdcrt::Setup setup;
    const Attention kernel(setup, by(forward, gradient, plainOne));
    return setup.workspaceBytes();
  };
  EXPECT_EQ(bytesOf(Algorithm::fused, Algorithm::fused), 3 * 4096u + 256);
  EXPECT_EQ(bytesOf(Algorithm::fused, Algorithm::plain), cuda::workspaceOf(plainOne));
  EXPECT_EQ(bytesOf(Algorithm::plain, Algorithm::fused), cuda::workspaceOf(plainOne));
}

TEST(CudaAttention, WhatTheDeviceOrThePlanDoesNotHaveIsRefused) {
  Attention::Options o = plainOne;
  o.size = 128;
  o.algorithms.forward = Algorithm::fused;
  EXPECT_EQ(refusalOf(o), "attention of 2x2x8x128 to 2x2x8x128: there is no fused algorithm here (heads of more than "
                          "64); measure on this device: pdc-profile");
  o = plainOne;
  o.algorithms = {.inputGradient = Algorithm::fused, .workspace = 4096};
  EXPECT_EQ(refusalOf(o), "attention of 2x2x8x8 to 2x2x8x8: the fused algorithm needs 12288 bytes of workspace on "
                          "this device, the program was planned with 4096; measure on it: pdc-profile");
  o.algorithms = {.forward = Algorithm::fused, .workspace = 4096};
  EXPECT_EQ(refusalOf(o), "");
}

TEST(CudaAttention, RowsAreRefusedWhatTheDeviceOrThePlanDoesNotHave) {
  const auto refusal = [](const MultiHeadAttention::Options& o) -> std::string {
    try {
      pdcrt::Setup setup;
      const MultiHeadAttention kernel(setup, o);
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "";
  };
  MultiHeadAttention::Options o = {.heads = 2, .groups = 2, .queries = 8, .keys = 8, .size = 128, .valueSize = 8};
  o.element = Element::bf16;
  o.algorithms = {.forward = Algorithm::fused, .inputGradient = Algorithm::fused, .workspace = 4096};
  EXPECT_EQ(refusal(o), "attention of 1x2x8x128 to 1x2x8x128: there is no fused algorithm here (heads of more than "
                        "64); measure on this device: pdc-profile");
  o.size = 8;
  EXPECT_EQ(refusal(o), "attention of 1x2x8x8 to 1x2x8x8: the fused algorithm needs 12288 bytes of workspace on this "
                        "device, the program was planned with 4352; measure on it: pdc-profile");
  o.algorithms.workspace = 12288;
  EXPECT_EQ(refusal(o), "");
}

/// Nothing is copied: of the time of the fused ones, and of a kernel that fills.
TEST(CudaAttention, FusedOnesMoveNoHeads) {
  MultiHeadAttention::Options o = packedOne;
  o.algorithms = by(Algorithm::fused, Algorithm::fused, plainOne).algorithms;
  pdcrt::Setup setup;
  const MultiHeadAttention kernel(setup, o);
  std::byte* const workspace = device::allocate(setup.workspaceBytes());
  Stream q = device::openStream(workspace, setup.workspaceBytes());
  const std::int64_t rows = o.batch * o.queries;
  const Buffer<bfloat16> x(rows * 3 * o.heads * o.size), y(rows * o.heads * o.size), dx(x.count());
  const Buffer<float> largest(rows * o.heads), inverse(rows * o.heads);
  StreamClock clock;
  clock.mark(q);
  kernel.forward(q, x, {}, {}, {}, y.view(), largest, inverse);
  clock.mark(q);
  kernel.inputGradient(q, y, x, {}, {}, {}, y, largest, inverse, dx.view(), {}, {});
  clock.mark(q);
  ASSERT_TRUE(device::wait(q));
  EXPECT_NEAR(clock.seconds(0, 1), 2e-6, 1e-9);
  EXPECT_NEAR(clock.seconds(1, 2), 4e-6, 1e-9);
  device::close(q);
  device::release(workspace, setup.workspaceBytes());
}

/// Of two products and a kernel, and of five products and a kernel, against one kernel, and one that fills.
TEST(CudaAttention, TimesAreThoseOfTheDevice) {
  for (const auto& [name, gradient] : {std::pair("heads", 4.0), {"causal", 9.0}}) {
    std::map<std::string, double> microseconds;
    for (const KernelTime& time : timesOf(attentions.at(name))) {
      EXPECT_EQ(time.kernel, Attention::profileName(attentions.at(name)));
      EXPECT_EQ(time.workspaceBytes, time.algorithm == "plain" ? 0u : time.method == "forward" ? 4096u : 3 * 4096u);
      microseconds[time.method + " " + time.algorithm] = std::round(1e3 * time.ms);
    }
    EXPECT_EQ(
        microseconds,
        (std::map<std::string, double>{
            {"forward plain", 3}, {"forward fused", 2}, {"inputGradient plain", 6}, {"inputGradient fused", gradient}}))
        << name;
  }
}

TEST(CudaAttention, TheSameSizesAreTimedOnce) {
  std::vector<KernelTime> times;
  pdcrt::Setup setup;
  setup.timing(&times);
  Attention::Options o = plainOne;
  const Attention first(setup, o);
  const std::size_t once = times.size();
  o.scale = 1;
  const Attention second(setup, o);
  EXPECT_EQ(times.size(), once);
}

/// Fused ones take 2 and, where it is causal, 9 microseconds, plain ones 3 and 6.
TEST(CudaAttention, WhoTimesComputesByTheFastest) {
  for (bool timed : {false, true}) {
    const Attention::Options o = attentions.at("causal");
    std::vector<KernelTime> times;
    pdcrt::Setup setup;
    setup.timing(timed ? &times : nullptr);
    const Attention kernel(setup, o);
    std::byte* const workspace = device::allocate(setup.workspaceBytes());
    Stream q = device::openStream(workspace, setup.workspaceBytes());
    const std::int64_t rows = o.batch * o.heads * o.queries;
    const Buffer<bfloat16> x(rows * o.size), y(rows * o.size), dx(rows * o.size);
    const Buffer<float> largest(rows), inverse(rows);
    StreamClock clock;
    clock.mark(q);
    kernel.forward(q, x, x, x, {}, y.view(), largest, inverse);
    clock.mark(q);
    kernel.inputGradient(q, y, x, x, x, {}, largest, inverse, {}, dx.view(), dx.view(), dx.view());
    clock.mark(q);
    ASSERT_TRUE(device::wait(q));
    EXPECT_NEAR(clock.seconds(0, 1), timed ? 2e-6 : 3e-6, 1e-9);
    EXPECT_NEAR(clock.seconds(1, 2), 6e-6, 1e-9);
    device::close(q);
    device::release(workspace, setup.workspaceBytes());
  }
}
#endif

} // namespace
} // namespace pdcrt
