// The algorithms of linear layers on CUDA: each computes what the first does, what was measured decides, and what does
// not fit is refused. On a GPU too (utils/check-gpu), but for what speaks of the stand-in's times.
#include "KernelTest.h"
#include "pdcrt/StreamClock.h"
#include "pdcrt/kernels/Linear.h"

#ifndef PDC_TEST_ON_GPU
#include "StandIn.h"
#endif

#include <map>
#include <set>

namespace pdcrt {
namespace {

using Algorithm = Linear::Algorithm;

/// What a GPU meets, or what the stand-in can time in seconds.
#ifdef PDC_TEST_ON_GPU
constexpr std::int64_t scale = 64;
#else
constexpr std::int64_t scale = 1;
#endif
const Linear::Options plainOne = {.rows = 24 * scale,
                                  .inputs = 8 * scale,
                                  .outputs = 16 * scale,
                                  .transposed = true,
                                  .bias = true,
                                  .element = Element::bf16};
Linear::Options with(void (*change)(Linear::Options&)) {
  Linear::Options o = plainOne;
  change(o);
  return o;
}
const std::map<std::string, Linear::Options> layers = {
    {"transposed", plainOne},
    {"not transposed", with([](auto& o) { o.transposed = false; })},
    {"f16", with([](auto& o) { o.element = Element::f16; })},
    {"without a bias", with([](auto& o) { o.bias = false; })},
    {"gradients of f32", with([](auto& o) { o.wideGradient = true; })},
    {"gradients of f32, not transposed", with([](auto& o) { o.wideGradient = true, o.transposed = false; })},
};

/// What kernels with these options say while they are timed.
std::vector<KernelTime> timesOf(const Linear::Options& o) {
  std::vector<KernelTime> times;
  pdcrt::Setup setup;
  setup.timing(&times);
  const Linear kernel(setup, o);
  return times;
}

Linear::Options by(const Linear::Options& o, const std::string& method, const std::string& algorithm) {
  const auto begin = std::begin(Linear::algorithmNames), end = std::end(Linear::algorithmNames);
  const auto found = std::find(begin, end, algorithm);
  EXPECT_NE(found, end) << algorithm;
  Linear::Options named = o;
  (method == "forward"         ? named.algorithms.forward
   : method == "inputGradient" ? named.algorithms.inputGradient
                               : named.algorithms.weightGradient) = static_cast<Algorithm>(found - begin);
  return named;
}

/// All results from the same operands for the same sizes, one behind the other.
template <class T, class G>
std::vector<double> resultsOf(const Linear::Options& o) {
  const auto random = [](std::int64_t count, std::uint32_t seed) {
    const Buffer<float> exact = randomBuffer(count, seed);
    Buffer<T> rounded(count);
    for (std::int64_t i = 0; i < count; ++i) rounded[i] = T(exact[i]);
    return rounded;
  };
  const Buffer<T> x = random(o.rows * o.inputs, 1), w = random(o.inputs * o.outputs, 2), b = random(o.outputs, 3),
                  dy = random(o.rows * o.outputs, 4);
  const Buffer<T> y(dy.count()), dx(x.count());
  const Buffer<G> dw(w.count()), db(o.bias ? b.count() : 0);
  pdcrt::Setup setup;
  const Linear kernel(setup, o);
  expectGoodManners(setup, {y, dx}, [&](Stream& q) {
    kernel.forward<T>(q, x.view(), w.view(), o.bias ? b.view() : View<T>(), y);
    kernel.inputGradient<T>(q, dy.view(), w.view(), dx);
  });
  expectGoodManners(setup, {dw, db}, [&](Stream& q) {
    const View<G> ofBias = o.bias ? db.view() : View<G>();
    if constexpr (std::is_same_v<T, G>)
      kernel.weightGradient<T>(q, x.view(), dy.view(), dw, ofBias);
    else
      kernel.weightGradient(q, View<const T>(x.view()), View<const T>(dy.view()), dw, ofBias);
  });
  std::vector<double> all;
  for (const Buffer<T>* result : {&y, &dx})
    for (std::int64_t i = 0; i < result->count(); ++i) all.push_back((*result)[i]);
  for (const Buffer<G>* result : {&dw, &db})
    for (std::int64_t i = 0; i < result->count(); ++i) all.push_back((*result)[i]);
  return all;
}
std::vector<double> resultsOf(const Linear::Options& o) {
  if (o.element == Element::f16) return resultsOf<float16, float16>(o);
  return o.wideGradient ? resultsOf<bfloat16, float>(o) : resultsOf<bfloat16, bfloat16>(o);
}

/// CudaLowPrecisionTest compares the first ones with the definition.
TEST(CudaLinear, EveryAlgorithmThatIsTimedComputesWhatTheFirstDoes) {
  for (const auto& [name, o] : layers) {
    const std::vector<double> first = resultsOf(o);
    std::set<std::string> methods;
    for (const KernelTime& time : timesOf(o)) {
      methods.insert(time.method);
      EXPECT_EQ(time.kernel, Linear::profileName(o));
      EXPECT_GT(time.ms, 0);
      const std::vector<double> results = resultsOf(by(o, time.method, time.algorithm));
      ASSERT_EQ(results.size(), first.size());
      for (std::size_t i = 0; i < first.size(); ++i)
        ASSERT_NEAR(results[i], first[i], 1e-2 * (1 + std::abs(first[i])))
            << name << ", " << time.method << " by " << time.algorithm << ", result " << i;
    }
    EXPECT_EQ(methods.size(), 3u) << name;
  }
}

TEST(CudaLinear, OnlyTheGradientOfTheWeightsAddsUp) {
  for (Algorithm Linear::Algorithms::*method : {&Linear::Algorithms::forward, &Linear::Algorithms::inputGradient}) {
    Linear::Options o = plainOne;
    o.algorithms.*method = Algorithm::firstWithSums;
    pdcrt::Setup setup;
    EXPECT_THROW(Linear(setup, o), std::runtime_error);
  }
  Linear::Options o = layers.at("without a bias");
  o.algorithms.weightGradient = Algorithm::firstWithSums;
  pdcrt::Setup setup;
  EXPECT_THROW(Linear(setup, o), std::runtime_error);
  for (const KernelTime& time : timesOf(layers.at("without a bias")))
    EXPECT_EQ(time.algorithm.find("WithSums"), std::string::npos);
}

TEST(CudaLinear, OfF32NothingIsTimed) {
  EXPECT_TRUE(timesOf(with([](auto& o) { o.element = Element::f32; })).empty());
}

#ifndef PDC_TEST_ON_GPU

/// By method, as kernels choose it.
std::map<std::string, std::string> fastestOf(const Linear::Options& o) {
  std::map<std::string, KernelTime> best;
  for (const KernelTime& time : timesOf(o))
    if (KernelTime& of = best[time.method]; of.method.empty() || time.ms < of.ms) of = time;
  std::map<std::string, std::string> names;
  for (const auto& [method, time] : best) names[method] = time.algorithm;
  return names;
}

TEST(CudaLinear, WhatWasMeasuredDecides) {
  // A kernel that adds up after the product takes another microsecond at least.
  EXPECT_EQ(fastestOf(plainOne),
            (std::map<std::string, std::string>{
                {"forward", "first"}, {"inputGradient", "first"}, {"weightGradient", "firstWithSums"}}));
  stand_in::slowProducts(0);
  EXPECT_EQ(fastestOf(plainOne),
            (std::map<std::string, std::string>{
                {"forward", "second"}, {"inputGradient", "second"}, {"weightGradient", "secondWithSums"}}));
  stand_in::slowProducts(-1);
}

TEST(CudaLinear, WrongSumsAreNotOffered) {
  stand_in::spoilSums(true);
  const std::vector<KernelTime> times = timesOf(plainOne);
  stand_in::spoilSums(false);
  EXPECT_EQ(times.size(), 9u) << "three of each method";
  for (const KernelTime& time : times) EXPECT_EQ(time.algorithm.find("WithSums"), std::string::npos) << time.algorithm;
}

TEST(CudaLinear, WhatTheDeviceDoesNotHaveIsRefused) {
  Linear::Options o = plainOne;
  o.algorithms.inputGradient = Algorithm::fourth; // the stand-in has three
  pdcrt::Setup setup;
  try {
    const Linear kernel(setup, o);
    FAIL() << "taken";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("fewer algorithms on this device"), std::string::npos) << error.what();
  }
}

#endif

} // namespace
} // namespace pdcrt
