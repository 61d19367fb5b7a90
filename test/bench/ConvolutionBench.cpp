// Times the algorithms of each direction of the convolutions of ResNet-18, ResNet-50 (minibatch 8), VGG-16 (minibatch
// 4) and AlexNet (minibatch 32) in blocks of channels, one thread. For the rule of runtime/kernels/cpu/Conv2d.cpp.
#include "pdcrt/kernels/Conv2d.h"

#include <benchmark/benchmark.h>

#include <immintrin.h>

#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

using namespace pdcrt;

namespace {

struct alignas(64) Line {
  float values[16];
};

std::vector<Line> lines(std::int64_t elements) {
  std::vector<Line> made(static_cast<std::size_t>(elements) / 16 + 1);
  float value = 0;
  for (Line& line : made)
    for (float& element : line.values) element = std::sin(value += 1);
  return made;
}

float* at(std::vector<Line>& lines) {
  return lines.front().values;
}

enum class Direction { forward, inputGradient, weightGradient };

bool takes(const Conv2d::Options& o, Direction direction, Conv2d::Algorithm algorithm) {
  if (algorithm == Conv2d::Algorithm::tiledWinograd) return Conv2d::takesTiledWinograd(o);
  if (algorithm == Conv2d::Algorithm::winograd) return Conv2d::takesWinograd(o);
  if (algorithm != Conv2d::Algorithm::tiled) return true;
  return direction == Direction::inputGradient ? Conv2d::takesTilesBackward(o) : Conv2d::takesTiles(o);
}

void run(benchmark::State& state, Conv2d::Options o, Direction direction, Conv2d::Algorithm algorithm) {
  switch (direction) {
  case Direction::forward: o.algorithms.forward = algorithm; break;
  case Direction::inputGradient: o.algorithms.inputGradient = algorithm; break;
  case Direction::weightGradient: o.algorithms.weightGradient = algorithm; break;
  }
  std::vector<Line> x = lines(o.input.elements()), w = lines(o.filter.elements()),
                    y = lines(Conv2d::outputShape(o).elements());
  Setup setup;
  const Conv2d conv(setup, o);
  std::vector<Line> workspace = lines(static_cast<std::int64_t>(setup.workspaceBytes() / sizeof(float)));
  Stream q(reinterpret_cast<std::byte*>(at(workspace)), setup.workspaceBytes());
  for (auto iteration : state) switch (direction) {
    case Direction::forward: conv.forward(q, at(x), at(w), {}, at(y)); break;
    case Direction::inputGradient: conv.inputGradient(q, at(y), at(w), at(x)); break;
    case Direction::weightGradient: conv.weightGradient(q, at(x), at(y), at(w), {}); break;
    }
  const double operations =
      2.0 * static_cast<double>(Conv2d::outputShape(o).elements() * o.filter.elements() / o.filter.dims[0]);
  state.counters["operations"] = benchmark::Counter(operations, benchmark::Counter::kIsIterationInvariantRate);
}

/// The most that any algorithm which multiplies as the definition does could reach: 12 vectors that stay in registers.
__attribute__((target("avx512f"))) void multiplyAndAdd512(benchmark::State& state) {
  __m512 sums[12];
  for (__m512& sum : sums) sum = _mm512_set1_ps(1);
  const __m512 factor = _mm512_set1_ps(0.999f), term = _mm512_set1_ps(0.001f);
  for (auto iteration : state) {
    for (int i = 0; i < 1000; ++i)
#pragma GCC unroll 12
      for (__m512& sum : sums) sum = _mm512_fmadd_ps(sum, factor, term);
  }
  benchmark::DoNotOptimize(sums);
  state.counters["operations"] =
      benchmark::Counter(1000.0 * 12 * 16 * 2, benchmark::Counter::kIsIterationInvariantRate);
}

/// The same without AVX-512.
__attribute__((target("avx2,fma"))) void multiplyAndAdd256(benchmark::State& state) {
  __m256 sums[12];
  for (__m256& sum : sums) sum = _mm256_set1_ps(1);
  const __m256 factor = _mm256_set1_ps(0.999f), term = _mm256_set1_ps(0.001f);
  for (auto iteration : state) {
    for (int i = 0; i < 1000; ++i)
#pragma GCC unroll 12
      for (__m256& sum : sums) sum = _mm256_fmadd_ps(sum, factor, term);
  }
  benchmark::DoNotOptimize(sums);
  state.counters["operations"] = benchmark::Counter(1000.0 * 12 * 8 * 2, benchmark::Counter::kIsIterationInvariantRate);
}

/// "8x64x56x56/64x64x3x3/s1"
std::string textOf(const Conv2d::Options& o) {
  std::string text;
  for (const Shape& shape : {o.input, o.filter}) {
    for (int i = 0; i < 4; ++i) text += (i ? "x" : "") + std::to_string(shape.dims[i]);
    text += "/";
  }
  return text + "s" + std::to_string(o.strides.height);
}

Conv2d::Options square(std::int64_t batch, std::int64_t inputs, std::int64_t size, std::int64_t outputs,
                       std::int64_t kernel, std::int64_t stride, std::int64_t pads) {
  return {.input = {batch, inputs, size, size},
          .filter = {outputs, inputs, kernel, kernel},
          .strides = {stride, stride},
          .pads = {pads, pads, pads, pads},
          .inputLanes = inputs % 16 ? 1 : 16,
          .outputLanes = 16,
          .filterLanes = inputs % 16 ? 1 : 16};
}

} // namespace

int main(int argc, char** argv) {
  std::vector<Conv2d::Options> shapes = {square(8, 3, 224, 64, 7, 2, 3)};
  for (const auto& [channels, size] : {std::pair{64, 56}, {128, 28}, {256, 14}, {512, 7}}) {
    shapes.push_back(square(8, channels, size, channels, 3, 1, 1)); // ResNet-18 and -50
    if (channels > 64) {
      shapes.push_back(square(8, channels / 2, 2 * size, channels, 3, 2, 1)); // ResNet-18
      shapes.push_back(square(8, channels / 2, 2 * size, channels, 1, 2, 0));
      shapes.push_back(square(8, channels, 2 * size, channels, 3, 2, 1)); // ResNet-50
      shapes.push_back(square(8, 2 * channels, 2 * size, 4 * channels, 1, 2, 0));
      shapes.push_back(square(8, 2 * channels, 2 * size, channels, 1, 1, 0));
    }
    shapes.push_back(square(8, channels, size, 4 * channels, 1, 1, 0)); // ResNet-50
    shapes.push_back(square(8, 4 * channels, size, channels, 1, 1, 0));
  }
  shapes.push_back(square(8, 64, 56, 64, 1, 1, 0));
  for (const auto& [inputs, size, outputs] : {std::tuple{3, 224, 64},
                                              {64, 224, 64},
                                              {64, 112, 128},
                                              {128, 112, 128},
                                              {128, 56, 256},
                                              {256, 56, 256},
                                              {256, 28, 512},
                                              {512, 28, 512},
                                              {512, 14, 512}})
    shapes.push_back(square(4, inputs, size, outputs, 3, 1, 1)); // VGG-16
  shapes.push_back(square(32, 3, 224, 64, 11, 4, 2));            // AlexNet
  shapes.push_back(square(32, 64, 27, 192, 5, 1, 2));
  for (const auto& [inputs, outputs] : {std::pair{192, 384}, {384, 256}, {256, 256}})
    shapes.push_back(square(32, inputs, 13, outputs, 3, 1, 1));
  for (const auto& [channels, size] : {std::pair{32, 28},
                                       {64, 56},
                                       {64, 28},
                                       {64, 8},
                                       {96, 11},
                                       {128, 28},
                                       {128, 14},
                                       {192, 13},
                                       {256, 28},
                                       {256, 14},
                                       {256, 7},
                                       {512, 14},
                                       {512, 7}})
    for (std::int64_t batch : {1, 2, 4, 8, 16, 32})
      if (batch * channels * size * size <= 8 * 64 * 56 * 56)
        shapes.push_back(square(batch, channels, size, channels, 3, 1, 1)); // where the rule turns
  if (__builtin_cpu_supports("avx512f"))
    benchmark::RegisterBenchmark("registers", multiplyAndAdd512);
  else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    benchmark::RegisterBenchmark("registers", multiplyAndAdd256);
  for (const Conv2d::Options& o : shapes)
    for (const auto& [name, direction] : {std::pair{"forward", Direction::forward},
                                          {"inputGradient", Direction::inputGradient},
                                          {"weightGradient", Direction::weightGradient}})
      for (const auto& [algorithmName, algorithm] : {std::pair{"direct", Conv2d::Algorithm::direct},
                                                     {"winograd", Conv2d::Algorithm::winograd},
                                                     {"tiled", Conv2d::Algorithm::tiled},
                                                     {"tiledWinograd", Conv2d::Algorithm::tiledWinograd}})
        if (takes(o, direction, algorithm))
          benchmark::RegisterBenchmark((textOf(o) + "/" + name + "/" + algorithmName).c_str(), run, o, direction,
                                       algorithm)
              ->Unit(benchmark::kMillisecond);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
