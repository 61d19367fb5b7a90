// The algorithms of convolutions on CUDA: each computes the definition, what was measured decides, and what does not
// fit is refused. On a GPU too (utils/check-gpu), but for what speaks of the stand-in's times.
#include "ConvolutionFused.h"
#include "KernelTest.h"
#include "pdcrt/CudaWorkspace.h"
#include "pdcrt/StreamClock.h"
#include "pdcrt/kernels/Conv2d.h"

#ifndef PDC_TEST_ON_GPU
#include "StandIn.h"
#endif

#include <map>
#include <set>

namespace pdcrt {
namespace {

using Algorithm = Conv2d::Algorithm;

const std::map<std::string, Conv2d::Options> convolutions = {
    {"square", {.input = {2, 12, 9, 7}, .filter = {20, 12, 3, 3}, .pads = {1, 1, 1, 1}}},
    {"strided, in groups",
     {.input = {2, 8, 8, 9}, .filter = {12, 4, 3, 2}, .strides = {2, 1}, .pads = {1, 0, 0, 2}, .groups = 2}},
    {"dilated, one channel", {.input = {3, 1, 9, 9}, .filter = {5, 1, 3, 3}, .dilations = {2, 1}}},
};

struct Results {
  Buffer<float> y, dx, dw;
};
/// From the same operands for the same sizes.
Results resultsOf(const Conv2d::Options& o) {
  const Shape out = Conv2d::outputShape(o);
  const Buffer<float> x = randomBuffer(o.input.elements(), 1), w = randomBuffer(o.filter.elements(), 2),
                      dy = randomBuffer(out.elements(), 3);
  Results results = {room(out.elements()), room(x.count()), room(w.count())};
  pdcrt::Setup setup;
  const Conv2d kernel(setup, o);
  expectGoodManners(setup, {results.y, results.dx, results.dw}, [&](Stream& q) {
    kernel.forward(q, x, w, {}, results.y);
    kernel.inputGradient(q, dy, w, results.dx);
    kernel.weightGradient(q, x, dy, results.dw, {});
  });
  return results;
}
void expectSame(const Buffer<float>& actual, const Buffer<float>& expected, const std::string& what) {
  const std::vector<double> wanted(expected.values().begin(), expected.values().end());
  EXPECT_LE(relativeError(actual, wanted), 1e-5) << what;
}

/// What kernels with these options say while they are timed.
std::vector<KernelTime> timesOf(const Conv2d::Options& o) {
  std::vector<KernelTime> times;
  pdcrt::Setup setup;
  setup.timing(&times);
  const Conv2d kernel(setup, o);
  return times;
}

Algorithm algorithmOf(const std::string& name) {
  for (std::size_t i = 0; i < std::size(Conv2d::algorithmNames); ++i)
    if (name == Conv2d::algorithmNames[i]) return static_cast<Algorithm>(i);
  ADD_FAILURE() << name;
  return Algorithm::automatic;
}
Algorithm& memberOf(Conv2d::Algorithms& algorithms, const std::string& method) {
  return method == "forward"         ? algorithms.forward
         : method == "inputGradient" ? algorithms.inputGradient
                                     : algorithms.weightGradient;
}

/// KernelConvolutionTest compares the recommended ones with the definition.
TEST(CudaConvolution, EveryAlgorithmThatIsTimedComputesWhatTheRecommendedOneDoes) {
  for (const auto& [name, o] : convolutions) {
    const Results recommended = resultsOf(o);
    std::set<std::string> methods;
    for (const KernelTime& time : timesOf(o)) {
      methods.insert(time.method);
      EXPECT_EQ(time.kernel, Conv2d::profileName(o));
      EXPECT_GT(time.ms, 0);
      EXPECT_GT(time.workspaceBytes, 0u);
      EXPECT_LE(time.workspaceBytes, cuda::convolutionBytes(o));
      Conv2d::Options named = o;
      memberOf(named.algorithms, time.method) = algorithmOf(time.algorithm);
      const Results results = resultsOf(named);
      const std::string what = name + ", " + time.method + " by " + time.algorithm;
      expectSame(results.y, recommended.y, what);
      expectSame(results.dx, recommended.dx, what);
      expectSame(results.dw, recommended.dw, what);
    }
    EXPECT_EQ(methods.size(), 3u) << name;
  }
}

TEST(CudaConvolution, WithTheWorkspaceThatWasMeasuredNoMoreIsPlanned) {
  Conv2d::Options o = convolutions.at("square");
  pdcrt::Setup before;
  const Conv2d recommended(before, o);
  std::map<std::string, KernelTime> fastest;
  for (const KernelTime& time : timesOf(o))
    if (KernelTime& best = fastest[time.method]; best.method.empty() || time.ms < best.ms) best = time;
  for (const auto& [method, time] : fastest) {
    memberOf(o.algorithms, method) = algorithmOf(time.algorithm);
    o.algorithms.workspace = std::max(o.algorithms.workspace, static_cast<std::int64_t>(time.workspaceBytes));
  }
  pdcrt::Setup after;
  const Conv2d measured(after, o);
  EXPECT_LT(after.workspaceBytes(), before.workspaceBytes());
  resultsOf(o); // with its manners
}

/// [N, C, H, W], or, where `isLast`, the same as [N, H, W, C].
Buffer<float> withChannels(bool isLast, const Buffer<float>& plain, const Shape& s) {
  Buffer<float> last(plain.count());
  std::copy(plain.values().begin(), plain.values().end(), last.values().begin());
  if (!isLast) return last;
  const std::int64_t channels = s.dims[1], plane = s.dims[2] * s.dims[3];
  for (std::int64_t n = 0; n < s.dims[0]; ++n)
    for (std::int64_t c = 0; c < channels; ++c)
      for (std::int64_t i = 0; i < plane; ++i)
        last[(n * plane + i) * channels + c] = plain[(n * channels + c) * plane + i];
  return last;
}

/// Of x, of y, or of both; padded alike on both sides or not; by every algorithm.
TEST(CudaConvolution, OperandsMayHaveTheirChannelsLast) {
  const Conv2d::Options alike = {.input = {2, 16, 9, 8}, .filter = {32, 16, 3, 3}, .pads = {1, 1, 1, 1}, .bias = true};
  Conv2d::Options other = alike;
  other.pads = {1, 0, 0, 2};
  other.strides = {2, 1};
  Conv2d::Options pointwise = {.input = {2, 32, 5, 5}, .filter = {16, 32, 1, 1}, .bias = true};
  for (const Conv2d::Options& o : {alike, other, pointwise}) {
    const Shape out = Conv2d::outputShape(o);
    const Buffer<float> x = randomBuffer(o.input.elements(), 1), w = randomBuffer(o.filter.elements(), 2),
                        b = randomBuffer(o.filter.dims[0], 3), dy = randomBuffer(out.elements(), 4);
    struct All {
      Buffer<float> y, dx, dw, db;
    };
    const auto compute = [&](const Conv2d::Options& with, const Buffer<float>& input, const Buffer<float>& gradient) {
      All all = {room(out.elements()), room(x.count()), room(w.count()), room(b.count())};
      pdcrt::Setup setup;
      const Conv2d kernel(setup, with);
      expectGoodManners(setup, {all.y, all.dx, all.dw, all.db}, [&](Stream& q) {
        kernel.forward(q, input, w, b, all.y);
        kernel.inputGradient(q, gradient, w, all.dx);
        kernel.weightGradient(q, input, gradient, all.dw, all.db);
      });
      return all;
    };
    const All plain = compute(o, x, dy);
    for (const auto& [lastX, lastY] : {std::pair(true, true), std::pair(true, false), std::pair(false, true)})
      for (Algorithm algorithm : {Algorithm::automatic, Algorithm::channelsLast, Algorithm::implicitGemm}) {
        Conv2d::Options last = o;
        last.inputLanes = lastX ? o.input.dims[1] : 1;
        last.outputLanes = lastY ? o.filter.dims[0] : 1;
        last.algorithms = {.forward = algorithm, .inputGradient = algorithm, .weightGradient = algorithm};
        const All all = compute(last, withChannels(lastX, x, o.input), withChannels(lastY, dy, out));
        const std::string what =
            Conv2d::profileName(last) + " by " + Conv2d::algorithmNames[static_cast<int>(algorithm)];
        expectSame(all.y, withChannels(lastY, plain.y, out), what);
        expectSame(all.dx, withChannels(lastX, plain.dx, o.input), what);
        expectSame(all.dw, plain.dw, what);
        expectSame(all.db, plain.db, what);
        expectAddedOf(last, 0);
      }
  }
}

std::string refusalOf(const Conv2d::Options& o) {
  try {
    pdcrt::Setup setup;
    const Conv2d kernel(setup, o);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

TEST(CudaConvolution, WhatTheDeviceOrThePlanDoesNotHaveIsRefused) {
  Conv2d::Options o = convolutions.at("square");
  o.algorithms.forward = Algorithm::direct;
  EXPECT_EQ(refusalOf(o),
            "convolution of 2x12x9x7 with filter 20x12x3x3: cuDNN does not compute 'forward' by direct on "
            "this device; measure on it: pdc-profile");
  o.algorithms = {.weightGradient = Algorithm::gemm};
  EXPECT_NE(refusalOf(o).find("cuDNN does not compute 'weightGradient' by gemm on this device"), std::string::npos);
  o.algorithms = {.forward = Algorithm::channelsLast, .workspace = 256};
  const std::string small = refusalOf(o); // a device may also lack it
  EXPECT_TRUE(small.find("bytes of workspace on this device, the program was planned with 256") != std::string::npos ||
              small.find("cuDNN does not compute 'forward' by channelsLast") != std::string::npos)
      << small;
}

#ifndef PDC_TEST_ON_GPU
TEST(CudaConvolution, TimesAreThoseOfTheDeviceWithWhatIsCopied) {
  std::map<std::string, double> microseconds;
  for (const KernelTime& time : timesOf(convolutions.at("square")))
    microseconds[time.method + " " + time.algorithm] = std::round(1e3 * time.ms);
  EXPECT_EQ(microseconds, (std::map<std::string, double>{{"forward implicitGemm", 8},
                                                         {"forward precomputedGemm", 5},
                                                         {"forward winograd", 3},
                                                         {"forward winogradApart", 6},
                                                         {"forward channelsLast", 7}, // 4 and three copies
                                                         {"inputGradient implicitGemm", 6},
                                                         {"inputGradient winograd", 8},
                                                         {"inputGradient winogradApart", 5},
                                                         {"inputGradient channelsLast", 12},
                                                         {"weightGradient implicitGemm", 6},
                                                         {"weightGradient winogradApart", 8},
                                                         {"weightGradient channelsLast", 4}}));
}

TEST(CudaConvolution, WhatFailsWhenItIsTriedIsNotOffered) {
  stand_in::failForward(1); // implicit GEMM with precomputed indices, and so channels last
  const std::vector<KernelTime> times = timesOf(convolutions.at("square"));
  stand_in::failForward(-1);
  std::set<std::string> forward;
  for (const KernelTime& time : times)
    if (time.method == "forward") forward.insert(time.algorithm);
  EXPECT_EQ(forward, (std::set<std::string>{"implicitGemm", "winograd", "winogradApart"}));
}

TEST(CudaConvolution, TheSameSizesAreTimedOnce) {
  std::vector<KernelTime> times;
  pdcrt::Setup setup;
  setup.timing(&times);
  Conv2d::Options o = convolutions.at("square");
  const Conv2d first(setup, o);
  const std::size_t once = times.size();
  o.bias = true;
  const Conv2d second(setup, o);
  EXPECT_EQ(times.size(), once);
}

/// The fastest ones take 3 + 5 + 4 microseconds, the recommended ones 5 + 6 + 6.
TEST(CudaConvolution, WhoTimesComputesByTheFastest) {
  const Conv2d::Options o = convolutions.at("square");
  for (bool timed : {false, true}) {
    std::vector<KernelTime> times;
    pdcrt::Setup setup;
    setup.timing(timed ? &times : nullptr);
    const Conv2d kernel(setup, o);
    std::byte* const workspace = device::allocate(setup.workspaceBytes());
    Stream q = device::openStream(workspace, setup.workspaceBytes());
    const Buffer<float> x(o.input.elements()), w(o.filter.elements()), y(Conv2d::outputShape(o).elements());
    StreamClock clock;
    clock.mark(q);
    kernel.forward(q, x, w, {}, y);
    kernel.inputGradient(q, y, w, x);
    kernel.weightGradient(q, x, y, w, {});
    clock.mark(q);
    ASSERT_TRUE(device::wait(q));
    EXPECT_NEAR(clock.seconds(0, 1), timed ? 12e-6 : 17e-6, 1e-9);
    device::close(q);
    device::release(workspace, setup.workspaceBytes());
  }
}

/// On tensor cores; where the library does not have that, a pass of our own gives the same.
TEST(CudaConvolution, TheLibraryAddsTheBiasAndAppliesTheRelu) {
  for (const auto& [relu, lanes] : {std::pair{false, 1}, {true, 1}, {true, 16}}) {
    Conv2d::Options o = {.input = {2, 16, 5, 4},
                         .filter = {16, 16, 3, 3},
                         .pads = {1, 1, 1, 1},
                         .bias = true,
                         .relu = relu,
                         .inputLanes = lanes,
                         .outputLanes = lanes};
    for (Element element : {Element::bf16, Element::f32}) {
      SCOPED_TRACE(testing::Message() << (relu ? "with" : "without") << " ReLU, " << lanes << " lanes, "
                                      << (element == Element::bf16 ? "bf16" : "f32"));
      o.element = element;
      const std::int64_t count = o.input.elements();
      const auto resultsOf = [&]<class T>(T, bool refuse) {
        const auto rounded = [](const Buffer<float>& exact) {
          Buffer<T> buffer(exact.count());
          for (std::int64_t i = 0; i < exact.count(); ++i) buffer[i] = T(exact[i]);
          return buffer;
        };
        Buffer<T> x = rounded(randomBuffer(count, 1)), w = rounded(randomBuffer(o.filter.elements(), 2)),
                  b = rounded(randomBuffer(16, 3)), y(count);
        x[7] = T(std::numeric_limits<float>::quiet_NaN());
        pdcrt::Setup setup;
        const Conv2d kernel(setup, o);
        stand_in::refuseFinishing(refuse);
        expectGoodManners(setup, {y},
                          [&](Stream& q) { kernel.template forward<T>(q, x.view(), w.view(), b.view(), y.view()); });
        stand_in::refuseFinishing(false);
        return std::vector<float>(y.values().begin(), y.values().end());
      };
      const auto both = [&](bool refuse) {
        return element == Element::bf16 ? resultsOf(bfloat16(), refuse) : resultsOf(float(), refuse);
      };
      const int before = stand_in::finishedForwards();
      const std::vector<float> finished = both(false);
      EXPECT_EQ(stand_in::finishedForwards() > before, element == Element::bf16);
      const int again = stand_in::finishedForwards();
      const std::vector<float> apart = both(true);
      EXPECT_EQ(stand_in::finishedForwards(), again);
      for (std::size_t i = 0; i < finished.size(); ++i) {
        ASSERT_EQ(std::isnan(finished[i]), std::isnan(apart[i])) << i;
        if (std::isnan(apart[i])) continue;
        ASSERT_NEAR(finished[i], apart[i], element == Element::bf16 ? 0.125 : 0) << i; // one rounding or two
      }
      EXPECT_GT(std::count_if(finished.begin(), finished.end(), [](float value) { return std::isnan(value); }), 0);
    }
  }
}
#endif

} // namespace
} // namespace pdcrt
