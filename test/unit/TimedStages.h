// A model of any number of stages, with any edges between them, tensors of any size, and kernels that take a given time
// by sleeping: for tests and measurements of the runtime that need neither generated code nor cores.
//
// A stage adds up the values x that reach it. With parameters w and g of `parameters` elements each, repeated along the
// `values` elements of x,
//
//   u = x · w + g,   h = u / (1 + u²),   y = x + g · h      (so g is used twice)
//   mean' = 0.9 · mean + 0.1 · y                            (state; of the first elements of y)
//
// and y goes over every edge that leaves. The last stage's loss is the mean of (y - target)². Backwards a stage adds up
// the gradients that reach it, from the loss too, and sends the same result over every edge. With skips this is not the
// gradient of the loss; it depends on all that a run may get wrong, and a replay computes the same bits.
#pragma once

#include "exec/Executor.h"
#include "pdcrt/Schedule.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

namespace timed {

using namespace pdcrt;

/// How long the phases of a stage take, at least.
struct StageTimes {
  std::chrono::microseconds forward{0}, inputGradient{0}, weightGradient{0};
};

struct Model {
  std::vector<StageTimes> stages;
  std::vector<ScheduleEdge> edges; ///< sorted by (from, to)
  std::int64_t values = 16;        ///< floats of each tensor that travels; a multiple of 16, and of `parameters`
  std::int64_t parameters = 16;    ///< floats of w and of g; a multiple of 16
  std::size_t valueBytes() const { return static_cast<std::size_t>(values) * sizeof(float); }
  std::size_t parameterBytes() const { return static_cast<std::size_t>(parameters) * sizeof(float); }
};

/// A number in (-1, 1) for every key and index.
inline float noise(std::uint64_t key, std::int64_t i) {
  std::uint64_t x = 0x9E3779B97F4A7C15ull * (static_cast<std::uint64_t>(i) + 1) + 0xD1B54A32D192ED03ull * (key + 1);
  x ^= x >> 31;
  x *= 0xBF58476D1CE4E5B9ull;
  x ^= x >> 29;
  return static_cast<float>(static_cast<double>(x >> 11) / 4503599627370496.0 - 1.0);
}

/// Initial weights and state.
inline Status readInitial(const char* name, Element, const Shape& shape, std::span<std::byte> destination,
                          const MemberPart& = {}) {
  auto* values = reinterpret_cast<float*>(destination.data());
  const auto stage = static_cast<std::uint64_t>(std::atoi(name + 1));
  for (std::int64_t i = 0; i < shape.elements(); ++i)
    values[i] = name[0] == 'm' ? 0 : 0.5f + 0.4f * noise(2 * stage + (name[0] == 'g'), i);
  return {};
}

/// Minibatches of noise.
class NoiseData : public BatchSource {
public:
  Status read(const DataRow& row, std::int64_t minibatch, std::byte* destination) override {
    auto* values = reinterpret_cast<float*>(destination);
    for (std::int64_t i = 0; i < row.shape.elements(); ++i)
      values[i] = noise(1000 + 2 * static_cast<std::uint64_t>(minibatch) + row.label, i);
    return {};
  }
};

class Stages {
public:
  static constexpr int most = 16;

  /// One model at a time: executors are prepared for the one that was made last.
  explicit Stages(Model model) : model_(std::move(model)) {
    for (int s = 0; s < static_cast<int>(model_.stages.size()); ++s) programs_.push_back(programOf(s));
    make(std::make_integer_sequence<int, most>());
    current = this;
  }
  Stages(const Stages&) = delete;
  Stages& operator=(const Stages&) = delete;

  std::vector<const Stage*> all() const {
    std::vector<const Stage*> result;
    for (const std::unique_ptr<Program>& program : programs_) result.push_back(&program->stage);
    return result;
  }

private:
  /// Offsets in the slot, in the weights block and in the gradients block follow from the sizes.
  struct Program {
    const Model* model = nullptr;
    StageTimes times;
    bool first = false, last = false;
    std::vector<EdgeRow> edges;
    std::vector<PortRow> ports;
    std::string weightName, gainName, stateName;
    std::vector<ParameterRow> parameters;
    std::vector<GradientRow> gradients;
    std::vector<StateRow> states;
    std::vector<DataRow> data;
    std::vector<OutputRow> outputs;
    std::vector<GroupRow> groups;
    std::vector<int> valuesIn, gradientsIn, gradientsOut; ///< indices of edges
    Stage stage;

    std::size_t input() const { return 0; }
    std::size_t output() const { return model->valueBytes(); }
    std::size_t target() const { return 2 * model->valueBytes(); }
    std::size_t loss() const { return 3 * model->valueBytes(); }
    std::size_t gain() const { return model->parameterBytes(); }
    std::size_t gainAsBias() const { return model->parameterBytes(); }
    std::size_t gainAsScale() const { return 2 * model->parameterBytes(); }
  };

  std::unique_ptr<Program> programOf(int s) const {
    auto program = std::make_unique<Program>();
    Program& p = *program;
    const int count = static_cast<int>(model_.stages.size());
    p.model = &model_;
    p.times = model_.stages[static_cast<std::size_t>(s)];
    p.first = s == 0;
    p.last = s + 1 == count;
    for (Direction direction : {Direction::forward, Direction::backward})
      for (const ScheduleEdge& edge : model_.edges) {
        const bool forward = direction == Direction::forward;
        if ((edge.from != s && edge.to != s) || !(forward ? edge.forward : edge.backward)) continue;
        const bool leaves = forward ? edge.from == s : edge.to == s;
        // A row names its ends in the direction of travel, and rows are sorted by them.
        const int from = forward ? edge.from : edge.to, to = forward ? edge.to : edge.from;
        p.edges.push_back({direction, from, to, forward && leaves ? 0 : model_.valueBytes()});
      }
    std::stable_sort(p.edges.begin(), p.edges.end(), [](const EdgeRow& a, const EdgeRow& b) {
      return std::tuple(a.direction, a.from, a.to) < std::tuple(b.direction, b.from, b.to);
    });
    const Shape values = {model_.values}, parameters = {model_.parameters};
    for (int i = 0; i < static_cast<int>(p.edges.size()); ++i) {
      const EdgeRow& edge = p.edges[static_cast<std::size_t>(i)];
      const bool forward = edge.direction == Direction::forward, leaves = edge.from == s;
      p.ports.push_back(
          {i, "y", Element::f32, values, model_.valueBytes(), forward && leaves ? p.output() : std::size_t{0}});
      if (forward && !leaves) p.valuesIn.push_back(i);
      if (!forward) (leaves ? p.gradientsOut : p.gradientsIn).push_back(i);
    }
    p.weightName = "w" + std::to_string(s);
    p.gainName = "g" + std::to_string(s);
    p.stateName = "m" + std::to_string(s);
    p.parameters = {{p.weightName.c_str(), Element::f32, parameters, 0, 0, true, 1, 1},
                    {p.gainName.c_str(), Element::f32, parameters, p.gain(), 0, true, 0.5, 0}};
    p.gradients = {{1, p.gainAsBias()}, {0, 0}, {1, p.gainAsScale()}};
    p.states = {{p.stateName.c_str(), Element::f32, parameters, 0}};
    if (p.first) p.data.push_back({"x", Element::f32, values, p.input(), false, 0});
    if (p.last) p.data.push_back({"target", Element::f32, values, p.target(), true, 0});
    if (p.last) p.outputs.push_back({OutputKind::loss, "loss", Element::f32, {}, p.loss()});
    p.groups = {{s, "timed"}};
    p.stage = {.index = s,
               .count = count,
               .model = "timed.onnx",
               .modelHash = "0000",
               .bytes = {.weights = 2 * model_.parameterBytes(),
                         .state = model_.parameterBytes(),
                         .gradients = 3 * model_.parameterBytes(),
                         .slot = p.loss() + 64,
                         .scratch = 0,
                         .workspace = 0},
               .parameters = p.parameters,
               .gradients = p.gradients,
               .states = p.states,
               .edges = p.edges,
               .ports = p.ports,
               .data = p.data,
               .outputs = p.outputs,
               .groups = p.groups,
               .buildKernels = nullptr,
               .forward = forward,
               .backwardInput = backwardInput,
               .backwardWeight = backwardWeight,
               .evaluate = compute};
    return program;
  }

  /// The kernels of a stage are its program; a plain function must know which.
  template <int... Index>
  void make(std::integer_sequence<int, Index...>) {
    using Build = std::shared_ptr<const void> (*)(Setup&);
    static constexpr Build build[] = {+[](Setup&) -> std::shared_ptr<const void> {
      return {std::shared_ptr<const void>(), current->programs_[Index].get()};
    }...};
    for (std::size_t s = 0; s < programs_.size(); ++s) programs_[s]->stage.buildKernels = build[s];
  }

  static const Program& programIn(const Call& c) { return *static_cast<const Program*>(c.kernels); }
  static float* at(std::byte* base, std::size_t offset) { return reinterpret_cast<float*>(base + offset); }
  static const float* at(const std::byte* base, std::size_t offset) {
    return reinterpret_cast<const float*>(base + offset);
  }

  /// Ends when the time since its construction has passed.
  class Sleep {
  public:
    explicit Sleep(std::chrono::microseconds time) : until_(std::chrono::steady_clock::now() + time), time_(time) {}
    ~Sleep() {
      if (time_.count() > 0) std::this_thread::sleep_until(until_);
    }
    Sleep(const Sleep&) = delete;
    Sleep& operator=(const Sleep&) = delete;

  private:
    std::chrono::steady_clock::time_point until_;
    std::chrono::microseconds time_;
  };

  /// Adds up what came over these edges.
  static void addUp(const Call& c, const std::vector<int>& edges, float* sum, std::int64_t count) {
    for (std::size_t e = 0; e < edges.size(); ++e) {
      const float* part = at(c.frame.edges[edges[e]], 0);
      for (std::int64_t i = 0; i < count; ++i) sum[i] = e == 0 ? part[i] : sum[i] + part[i];
    }
  }

  static void compute(const Call& c) {
    const Program& p = programIn(c);
    const std::int64_t count = p.model->values, repeat = p.model->parameters;
    float *x = at(c.frame.slot, p.input()), *y = at(c.frame.slot, p.output());
    if (!p.first) addUp(c, p.valuesIn, x, count);
    const float *w = at(c.weights, 0), *g = at(c.weights, p.gain());
    for (std::int64_t begin = 0; begin < count; begin += repeat)
      for (std::int64_t j = 0; j < repeat; ++j) {
        const float u = x[begin + j] * w[j] + g[j];
        y[begin + j] = x[begin + j] + g[j] * (u / (1 + u * u));
      }
  }

  static void forward(const Call& c) {
    const Program& p = programIn(c);
    Sleep sleep(p.times.forward);
    c.stream->group(p.stage.index);
    compute(c);
    const float* y = at(c.frame.slot, p.output());
    float* mean = at(c.state, 0);
    for (std::int64_t j = 0; j < p.model->parameters; ++j) mean[j] = 0.9f * mean[j] + 0.1f * y[j];
    if (!p.last) return;
    const float* target = at(c.frame.slot, p.target());
    float loss = 0;
    for (std::int64_t i = 0; i < p.model->values; ++i) loss += (y[i] - target[i]) * (y[i] - target[i]);
    *at(c.frame.slot, p.loss()) = loss / static_cast<float>(p.model->values);
  }

  /// dL/dy of element `i`, from later stages and from the loss.
  static float outGradient(const Call& c, const Program& p, std::int64_t i) {
    float sum = 0;
    for (int edge : p.gradientsIn) sum += at(c.frame.edges[edge], 0)[i];
    if (p.last) sum += at(c.frame.slot, p.output())[i] - at(c.frame.slot, p.target())[i];
    return sum;
  }
  /// dh/du.
  static float slope(float u) { return (1 - u * u) / ((1 + u * u) * (1 + u * u)); }

  static void backwardInput(const Call& c) {
    const Program& p = programIn(c);
    Sleep sleep(p.times.inputGradient);
    c.stream->group(p.stage.index);
    if (p.gradientsOut.empty()) return;
    const std::int64_t count = p.model->values, repeat = p.model->parameters;
    const float *w = at(c.weights, 0), *g = at(c.weights, p.gain()), *x = at(c.frame.slot, p.input());
    float* dx = at(c.frame.edges[p.gradientsOut[0]], 0);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t j = i % repeat;
      dx[i] = outGradient(c, p, i) * (1 + g[j] * slope(x[i] * w[j] + g[j]) * w[j]);
    }
    for (std::size_t e = 1; e < p.gradientsOut.size(); ++e)
      std::memcpy(c.frame.edges[p.gradientsOut[e]], dx, p.model->valueBytes());
  }

  static void backwardWeight(const Call& c) {
    const Program& p = programIn(c);
    Sleep sleep(p.times.weightGradient);
    c.stream->group(p.stage.index);
    const std::int64_t count = p.model->values, repeat = p.model->parameters;
    const float *w = at(c.weights, 0), *g = at(c.weights, p.gain()), *x = at(c.frame.slot, p.input());
    float *dw = at(c.gradients, 0), *bias = at(c.gradients, p.gainAsBias()), *scale = at(c.gradients, p.gainAsScale());
    for (float* block : {dw, bias, scale}) std::memset(block, 0, p.model->parameterBytes());
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t j = i % repeat;
      const float u = x[i] * w[j] + g[j],
                  dy = outGradient(c, p, i) * (static_cast<float>(repeat) / static_cast<float>(count));
      dw[j] += dy * g[j] * slope(u) * x[i];
      bias[j] += dy * g[j] * slope(u);
      scale[j] += dy * (u / (1 + u * u));
    }
  }

  static inline const Stages* current = nullptr;
  Model model_;
  std::vector<std::unique_ptr<Program>> programs_;
};

} // namespace timed
