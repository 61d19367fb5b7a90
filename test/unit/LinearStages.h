// A small model written by hand as stage programs, in plain loops: stage s computes
//
//   h = tanh(x · W + g),   y = g * h          (so the parameter g is used twice)
//   mean' = 0.9 · mean + 0.1 · (mean of y)    (state)
//
// on rows of `width` features, `batch` rows per minibatch; the last stage's loss is the mean of (y - target)². Stage 0
// reads the input `x`, the last one the label `target`. In the tied model every stage uses the gain g of stage 0.
//
// The halves of its backward have what those of generated programs have: backward_input leaves a value to
// backward_weight, and writes the gradient of one use itself. backward_weight says when W's gradient is final, and then
// g's.
#pragma once

#include "exec/Executor.h"

#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace linear {

using namespace pdcrt;

inline constexpr std::int64_t batch = 3, width = 5;
inline constexpr std::size_t valueBytes = batch * width * sizeof(float);
inline constexpr std::size_t block = 64;
inline constexpr Shape valueShape = {batch, width};

// Offsets in the slot, the weights block and the gradients block.
inline constexpr std::size_t inX = 0, hiddenAt = block, outAt = 2 * block, targetAt = 3 * block, lossAt = 4 * block,
                             scaleAt = 4 * block + 32;
inline constexpr std::size_t weightAt = 0, gainAt = 2 * block;
inline constexpr std::size_t dWeightAt = 0, dGainAsBias = 2 * block, dGainAsScale = 3 * block;

/// How long each phase sleeps: emulates work where a test is about time.
inline std::chrono::microseconds forwardTime{0}, backwardTime{0};

template <int Index, int Count, bool Tied = false>
struct LinearStage {
  static constexpr bool first = Index == 0, last = Index == Count - 1, foreignGain = Tied && !first;

  // Edges sorted by (direction, from, to): values from the left, values to the right, gradients to the left, gradients
  // from the right.
  static constexpr int fromLeft = 0;
  static inline const std::vector<EdgeRow> edges = [] {
    std::vector<EdgeRow> rows;
    if (!first) rows.push_back({Direction::forward, Index - 1, Index, valueBytes});
    if (!last) rows.push_back({Direction::forward, Index, Index + 1, 0});
    if (!first) rows.push_back({Direction::backward, Index, Index - 1, valueBytes});
    if (!last) rows.push_back({Direction::backward, Index + 1, Index, valueBytes});
    return rows;
  }();
  static constexpr int gradientFromRight = last ? -1 : (first ? 1 : 3), gradientToLeft = first ? -1 : (last ? 1 : 2);
  static inline const std::vector<PortRow> ports = [] {
    std::vector<PortRow> rows;
    for (std::size_t i = 0; i < edges.size(); ++i)
      rows.push_back({static_cast<int>(i), "y", Element::f32, valueShape, valueBytes, edges[i].bytes == 0 ? outAt : 0});
    return rows;
  }();
  static inline const std::string weightName = "w" + std::to_string(Index), gainName = "g" + std::to_string(Index),
                                  stateName = "mean" + std::to_string(Index);
  static inline const std::vector<ParameterRow> parameters = [] {
    std::vector<ParameterRow> rows = {{weightName.c_str(), Element::f32, {width, width}, weightAt, 0, true, 1, 1}};
    if (!foreignGain) rows.push_back({gainName.c_str(), Element::f32, {width}, gainAt, 1, true, 0.5, 0});
    return rows;
  }();
  static inline const std::vector<GradientRow> gradients = [] {
    if (foreignGain) return std::vector<GradientRow>{{0, dWeightAt}};
    return std::vector<GradientRow>{{1, dGainAsBias, true}, {0, dWeightAt}, {1, dGainAsScale}};
  }();
  // The user of row i is stage `userOf(i)`; each uses the gain at two positions, after those of the stages before it.
  static constexpr int sharedRows = !Tied || Count == 1 ? 0 : first ? Count - 1 : 1;
  static constexpr int userOf(int row) { return first ? row + 1 : Index; }
  static inline const std::vector<SharedRow> shared = [] {
    std::vector<SharedRow> rows;
    for (int i = 0; i < sharedRows; ++i) rows.push_back({0, userOf(i), block, 2 * block});
    return rows;
  }();
  static inline const std::vector<SharedValueRow> sharedValues = [] {
    std::vector<SharedValueRow> rows;
    for (int i = 0; i < sharedRows; ++i)
      rows.push_back({i, "g0", Element::f32, {width}, first ? gainAt : 0, first ? 1 : -1});
    return rows;
  }();
  static inline const std::vector<SharedUseRow> sharedUses = [] {
    std::vector<SharedUseRow> rows;
    for (int i = 0; i < sharedRows; ++i)
      for (int use = 0; use < 2; ++use)
        rows.push_back({i, i, 2 * userOf(i) + use, static_cast<std::size_t>(use) * block,
                        use == 0 ? dGainAsBias : dGainAsScale, use == 0});
    return rows;
  }();
  static inline const std::array<StateRow, 1> states = {{{stateName.c_str(), Element::f32, {width}, 0}}};
  static inline const std::vector<DataRow> data = [] {
    std::vector<DataRow> rows;
    if (first) rows.push_back({"x", Element::f32, valueShape, inX, false, 0});
    if (last) rows.push_back({"target", Element::f32, valueShape, targetAt, true, 0});
    if (last) rows.push_back({"loss_scale", Element::f32, {}, scaleAt, false, 0, true});
    return rows;
  }();
  static inline const std::vector<OutputRow> outputs = [] {
    std::vector<OutputRow> rows;
    if (last) {
      rows.push_back({OutputKind::loss, "loss", Element::f32, {}, lossAt});
      rows.push_back({OutputKind::prediction, "y", Element::f32, valueShape, outAt});
    }
    return rows;
  }();
  static inline const std::array<GroupRow, 1> groups = {{{Index, "linear"}}};

  static float* at(std::byte* base, std::size_t offset) { return reinterpret_cast<float*>(base + offset); }
  static const float* at(const std::byte* base, std::size_t offset) {
    return reinterpret_cast<const float*>(base + offset);
  }
  static const float* input(const Call& c) { return first ? at(c.frame.slot, inX) : at(c.frame.edges[fromLeft], 0); }

  static const float* gain(const Call& c) { return foreignGain ? at(c.frame.shared[0], 0) : at(c.weights, gainAt); }

  static void compute(const Call& c) {
    const float *x = input(c), *w = at(c.weights, weightAt), *g = gain(c);
    float *h = at(c.frame.slot, hiddenAt), *y = at(c.frame.slot, outAt);
    for (int r = 0; r < batch; ++r)
      for (int j = 0; j < width; ++j) {
        float sum = g[j];
        for (int i = 0; i < width; ++i) sum += x[r * width + i] * w[i * width + j];
        h[r * width + j] = std::tanh(sum);
        y[r * width + j] = g[j] * h[r * width + j];
      }
  }

  static void forward(const Call& c) {
    if (forwardTime.count()) std::this_thread::sleep_for(forwardTime);
    c.stream->group(Index);
    compute(c);
    observe(c);
  }

  /// The state, and the loss of the last stage.
  static void observe(const Call& c) {
    const float* y = at(c.frame.slot, outAt);
    float* mean = at(c.state, 0);
    for (int j = 0; j < width; ++j) {
      float sum = 0;
      for (int r = 0; r < batch; ++r) sum += y[r * width + j];
      mean[j] = 0.9f * mean[j] + 0.1f * (sum / batch);
    }
    if (!last) return;
    const float* target = at(c.frame.slot, targetAt);
    float loss = 0;
    for (int i = 0; i < batch * width; ++i) loss += (y[i] - target[i]) * (y[i] - target[i]);
    *at(c.frame.slot, lossAt) = loss / (batch * width);
  }

  /// dL/dy, from the right or from the loss.
  static float outGradient(const Call& c, int i) {
    if (!last) return at(c.frame.edges[gradientFromRight], 0)[i];
    const float error = at(c.frame.slot, outAt)[i] - at(c.frame.slot, targetAt)[i];
    return *at(c.frame.slot, scaleAt) * (2 * error / (batch * width));
  }
  /// dL/d(x · W + g).
  static float innerGradient(const Call& c, int i) {
    float h = at(c.frame.slot, hiddenAt)[i];
    return outGradient(c, i) * gain(c)[i % width] * (1 - h * h);
  }

  static void backwardInput(const Call& c) {
    if (backwardTime.count()) std::this_thread::sleep_for(backwardTime);
    c.stream->group(Index);
    differentiate(c);
    if (first) return;
    const float *w = at(c.weights, weightAt), *inner = at(c.handover, 0);
    float* dx = at(c.frame.edges[gradientToLeft], 0);
    for (int r = 0; r < batch; ++r)
      for (int i = 0; i < width; ++i) {
        float sum = 0;
        for (int j = 0; j < width; ++j) sum += inner[r * width + j] * w[i * width + j];
        dx[r * width + i] = sum;
      }
  }

  /// dL/d(x · W + g), and what g has of it.
  static void differentiate(const Call& c) {
    float* inner = at(c.handover, 0);
    for (int i = 0; i < batch * width; ++i) inner[i] = innerGradient(c, i);
    for (int j = 0; j < width; ++j) {
      float bias = 0;
      for (int r = 0; r < batch; ++r) bias += inner[r * width + j];
      at(c.gradients, dGainAsBias)[j] = bias;
    }
  }

  static void backwardWeight(const Call& c) {
    c.stream->group(Index);
    const float *x = input(c), *inner = at(c.handover, 0);
    for (int j = 0; j < width; ++j)
      for (int i = 0; i < width; ++i) {
        float sum = 0;
        for (int r = 0; r < batch; ++r) sum += x[r * width + i] * inner[r * width + j];
        at(c.gradients, dWeightAt)[i * width + j] = sum;
      }
    c.stream->bucket(0);
    for (int j = 0; j < width; ++j) {
      float scale = 0;
      for (int r = 0; r < batch; ++r)
        scale += outGradient(c, r * width + j) * at(c.frame.slot, hiddenAt)[r * width + j];
      at(c.gradients, dGainAsScale)[j] = scale;
    }
    c.stream->bucket(1);
  }

  static inline const Stage stage = {
      .index = Index,
      .count = Count,
      .model = "linear.onnx",
      .modelHash = "0000",
      .bytes = {.weights = 3 * block,
                .state = block,
                .gradients = 4 * block,
                .slot = 5 * block,
                .handover = valueBytes,
                .scratch = 0,
                .workspace = 0},
      .parameters = parameters,
      .gradients = gradients,
      .shared = shared,
      .sharedValues = sharedValues,
      .sharedUses = sharedUses,
      .states = states,
      .edges = edges,
      .ports = ports,
      .data = data,
      .outputs = outputs,
      .groups = groups,
      .buildKernels = [](Setup&) -> std::shared_ptr<const void> { return std::make_shared<const int>(Index); },
      .forward = forward,
      .backwardInput = backwardInput,
      .backwardWeight = backwardWeight,
      .evaluate = compute,
  };
};

template <int Count, bool Tied, int... Index>
std::vector<const Stage*> stagesOf(std::integer_sequence<int, Index...>) {
  return {&LinearStage<Index, Count, Tied>::stage...};
}

template <bool Tied>
std::vector<const Stage*> stagesOf(int count) {
  switch (count) {
  case 1: return stagesOf<1, Tied>(std::make_integer_sequence<int, 1>());
  case 2: return stagesOf<2, Tied>(std::make_integer_sequence<int, 2>());
  case 3: return stagesOf<3, Tied>(std::make_integer_sequence<int, 3>());
  default: return stagesOf<4, Tied>(std::make_integer_sequence<int, 4>());
  }
}

/// The model with as many stages.
inline std::vector<const Stage*> linearStages(int count, bool tied = false) {
  return tied ? stagesOf<true>(count) : stagesOf<false>(count);
}

/// A number in (-1, 1) for every string and index: weights and data that look random and need no file.
inline float noise(const std::string& name, std::int64_t i) {
  std::uint64_t x = 0x9E3779B97F4A7C15ull * static_cast<std::uint64_t>(i + 1);
  for (char c : name) x = (x ^ static_cast<unsigned char>(c)) * 0x100000001B3ull;
  x ^= x >> 31;
  x *= 0xBF58476D1CE4E5B9ull;
  x ^= x >> 29;
  return static_cast<float>(static_cast<double>(x >> 11) / 4503599627370496.0 - 1.0);
}

/// Initial weights; state starts at 0.
inline Status readInitial(const char* name, Element, const Shape& shape, std::span<std::byte> destination,
                          const MemberPart& = {}) {
  auto* values = reinterpret_cast<float*>(destination.data());
  for (std::int64_t i = 0; i < shape.elements(); ++i)
    values[i] = name[0] == 'm' ? 0 : (name[0] == 'g' ? 0.8f : 0) + 0.5f * noise(name, i);
  return {};
}

/// Minibatches of noise.
class NoiseData : public BatchSource {
public:
  Status read(const DataRow& row, std::int64_t minibatch, std::byte* destination) override {
    auto* values = reinterpret_cast<float*>(destination);
    for (std::int64_t i = 0; i < row.shape.elements(); ++i)
      values[i] = noise(row.label ? "t" : "x", minibatch * row.shape.elements() + i);
    return {};
  }
};

} // namespace linear
