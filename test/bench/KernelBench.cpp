// Times kernels of the CPU target on the shapes of networks (ResNet-18 at minibatch 2, 8x8 digits at minibatch 32), one
// thread. Operations per second count the multiplications and additions of the definition, whatever the algorithm does.
#include "pdcrt/Optimizer.h"
#include "pdcrt/kernels/AveragePool2d.h"
#include "pdcrt/kernels/BatchNorm.h"
#include "pdcrt/kernels/Conv2d.h"
#include "pdcrt/kernels/Dropout.h"
#include "pdcrt/kernels/Linear.h"
#include "pdcrt/kernels/MaxPool2d.h"
#include "pdcrt/kernels/Reduce.h"
#include "pdcrt/kernels/Softmax.h"
#include "pdcrt/kernels/SoftmaxCrossEntropy.h"
#include "pdcrt/kernels/Transpose.h"

#include <benchmark/benchmark.h>

#include <cmath>
#include <cstddef>
#include <new>
#include <string>
#include <vector>

using namespace pdcrt;

namespace {

/// 64-byte aligned values, neither denormal nor all equal.
class Tensor {
public:
  explicit Tensor(std::int64_t count) : values_(new (std::align_val_t(64)) float[static_cast<std::size_t>(count)]) {
    for (std::int64_t i = 0; i < count; ++i) values_[i] = std::sin(static_cast<float>(i));
  }
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;
  ~Tensor() { ::operator delete[](values_, std::align_val_t(64)); }
  operator View<float>() const { return values_; }
  operator View<const float>() const { return values_; }

private:
  float* values_;
};

/// Calls `call` as often as the benchmark wants, each doing `operations` and moving `bytes`.
template <class Call>
void time(benchmark::State& state, const Setup& setup, double operations, double bytes, Call call) {
  const Tensor workspace(static_cast<std::int64_t>(setup.workspaceBytes() / sizeof(float)) + 1);
  Stream stream(reinterpret_cast<std::byte*>(View<float>(workspace).data), setup.workspaceBytes());
  for (auto iteration : state) call(stream);
  if (operations > 0)
    state.counters["operations"] = benchmark::Counter(operations, benchmark::Counter::kIsIterationInvariantRate);
  if (bytes > 0) state.counters["bytes"] = benchmark::Counter(bytes, benchmark::Counter::kIsIterationInvariantRate);
}

enum class Direction { forward, inputGradient, weightGradient };
constexpr std::pair<const char*, Direction> directions[] = {{"forward", Direction::forward},
                                                            {"inputGradient", Direction::inputGradient},
                                                            {"weightGradient", Direction::weightGradient}};

void timeConvolution(benchmark::State& state, const Conv2d::Options& o, Direction direction) {
  const Shape output = Conv2d::outputShape(o);
  const Tensor x(o.input.elements()), w(o.filter.elements()), y(output.elements());
  Setup setup;
  const Conv2d conv(setup, o);
  const double operations =
      2.0 * static_cast<double>(output.elements() * o.filter.dims[1] * o.filter.dims[2] * o.filter.dims[3]);
  time(state, setup, operations, 0, [&](Stream& q) {
    switch (direction) {
    case Direction::forward: return conv.forward(q, x, w, {}, y);
    case Direction::inputGradient: return conv.inputGradient(q, y, w, x);
    case Direction::weightGradient: return conv.weightGradient(q, x, y, w, {});
    }
  });
}

void timeLinear(benchmark::State& state, const Linear::Options& o, Direction direction) {
  const Tensor x(o.rows * o.inputs), w(o.inputs * o.outputs), y(o.rows * o.outputs);
  Setup setup;
  const Linear linear(setup, o);
  time(state, setup, 2.0 * static_cast<double>(o.rows * o.inputs * o.outputs), 0, [&](Stream& q) {
    switch (direction) {
    case Direction::forward: return linear.forward(q, x, w, {}, y);
    case Direction::inputGradient: return linear.inputGradient(q, y, w, x);
    case Direction::weightGradient: return linear.weightGradient(q, x, y, w, {});
    }
  });
}

enum class Gradients { none, ofWeights, ofWeightsInParts, both, bothInParts };

/// Gradients of the weights, or of the input too, and the momentum update of the weights: after them, or part by part.
void timeUpdate(benchmark::State& state, const Linear::Options& o, Gradients gradients) {
  const std::int64_t weights = o.inputs * o.outputs;
  const Tensor x(o.rows * o.inputs), y(o.rows * o.outputs), w(weights), velocity(weights), gradient(weights),
      dx(o.rows * o.inputs);
  Training training;
  training.optimizer = OptimizerKind::momentum;
  training.momentum = 0.9;
  Setup setup;
  const Linear linear(setup, o);
  time(state, setup, 0, 4.0 * sizeof(float) * static_cast<double>(weights), [&](Stream& q) {
    const auto update = [&](const float* values, Elements elements) {
      UpdateSlice slice = {.old = View<const float>(w).data,
                           .fresh = View<float>(w).data,
                           .gradient = View<const float>(gradient).data,
                           .first = View<float>(velocity).data,
                           .second = nullptr,
                           .count = weights,
                           .update = 1,
                           .minibatches = 1,
                           .scale = 1,
                           .learningRate = 1e-3F,
                           .weightDecay = 0};
      slice = slice.partOf(elements);
      slice.gradient = values;
      device::update(q, {&slice, 1}, training);
    };
    switch (gradients) {
    case Gradients::none: break;
    case Gradients::ofWeights: linear.weightGradient(q, x, y, gradient, {}); break;
    case Gradients::ofWeightsInParts: return linear.weightGradientInParts(q, x, y, gradient, {}, update);
    case Gradients::both:
      linear.inputGradient(q, y, w, dx);
      return linear.weightGradientInParts(q, x, y, gradient, {}, update);
    case Gradients::bothInParts: return linear.gradientsInParts(q, x, y, w, gradient, {}, dx, update);
    }
    update(View<const float>(gradient).data, {});
  });
}

/// Layers whose weights fit no cache.
const std::pair<const char*, Linear::Options> vgg16 = {
    "vgg16.fc1", {.rows = 4, .inputs = 25088, .outputs = 4096, .transposed = true}};
const std::pair<const char*, Linear::Options> alexnet = {
    "alexnet.fc1", {.rows = 32, .inputs = 9216, .outputs = 4096, .transposed = true}};

template <class Kernel, class Call>
void add(const std::string& name, const typename Kernel::Options& options, double bytes, Call call) {
  benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
    Setup setup;
    const Kernel kernel(setup, options);
    time(state, setup, 0, bytes, [&](Stream& q) { call(kernel, q); });
  });
}

void addLayers() {
  const std::pair<const char*, Conv2d::Options> convolutions[] = {
      {"resnet18.stem", {.input = {2, 3, 224, 224}, .filter = {64, 3, 7, 7}, .strides = {2, 2}, .pads = {3, 3, 3, 3}}},
      {"resnet18.layer1", {.input = {2, 64, 56, 56}, .filter = {64, 64, 3, 3}, .pads = {1, 1, 1, 1}}},
      {"resnet18.layer2.first",
       {.input = {2, 64, 56, 56}, .filter = {128, 64, 3, 3}, .strides = {2, 2}, .pads = {1, 1, 1, 1}}},
      {"resnet18.layer2.downsample", {.input = {2, 64, 56, 56}, .filter = {128, 64, 1, 1}, .strides = {2, 2}}},
      {"resnet18.layer2", {.input = {2, 128, 28, 28}, .filter = {128, 128, 3, 3}, .pads = {1, 1, 1, 1}}},
      {"resnet18.layer3", {.input = {2, 256, 14, 14}, .filter = {256, 256, 3, 3}, .pads = {1, 1, 1, 1}}},
      {"resnet18.layer4", {.input = {2, 512, 7, 7}, .filter = {512, 512, 3, 3}, .pads = {1, 1, 1, 1}}},
      {"digits.first", {.input = {32, 1, 8, 8}, .filter = {16, 1, 3, 3}, .pads = {1, 1, 1, 1}}},
      {"digits.second", {.input = {32, 16, 8, 8}, .filter = {32, 16, 3, 3}, .pads = {1, 1, 1, 1}}},
  };
  const std::pair<const char*, Linear::Options> linears[] = {
      {"resnet18.fc", {.rows = 2, .inputs = 512, .outputs = 1000, .transposed = true}},
      {"digits.fc1", {.rows = 32, .inputs = 400, .outputs = 120, .transposed = true}},
      {"digits.fc3", {.rows = 32, .inputs = 84, .outputs = 10, .transposed = true}},
      {"transformer.up", {.rows = 1024, .inputs = 256, .outputs = 1024}},
      {"transformer.down", {.rows = 1024, .inputs = 1024, .outputs = 256}},
      {"transformer.logits", {.rows = 1024, .inputs = 256, .outputs = 2000, .transposed = true}},
      vgg16,
      alexnet,
  };
  for (const auto& [directionName, direction] : directions) {
    for (const auto& [name, options] : convolutions)
      benchmark::RegisterBenchmark((std::string("Conv2d/") + name + "/" + directionName).c_str(), timeConvolution,
                                   options, direction);
    for (const auto& [name, options] : linears)
      benchmark::RegisterBenchmark((std::string("Linear/") + name + "/" + directionName).c_str(), timeLinear, options,
                                   direction);
  }
}

void addUpdates() {
  for (const auto& [name, options] : {vgg16, alexnet}) {
    const auto add = [name = name, options = options](const std::string& what, Gradients gradients) {
      benchmark::RegisterBenchmark((std::string("Linear/") + name + "/" + what).c_str(), timeUpdate, options,
                                   gradients);
    };
    add("update", Gradients::none);
    add("weightGradient and update", Gradients::ofWeights);
    add("weightGradient and update in parts", Gradients::ofWeightsInParts);
    add("inputGradient, then weightGradient and update in parts", Gradients::both);
    add("gradients and update in parts", Gradients::bothInParts);
  }
}

void addTheRest() {
  constexpr std::int64_t count = 2 * 64 * 112 * 112;
  constexpr double bytes = 4.0 * count;
  static const Tensor x(count), y(count), dy(count), dx(count), channels(4096);
  static std::vector<std::uint8_t> mask(count);
  static std::vector<std::int32_t> index(count);
  const Shape stem = {2, 64, 112, 112};
  for (const int lanes : {1, 16}) {
    const std::string layout = lanes == 1 ? "" : "/blocks";
    const BatchNorm::Options norm = {.input = stem, .relu = true, .lanes = lanes};
    add<BatchNorm>("BatchNorm/trainForward" + layout, norm, 4 * bytes, [](const BatchNorm& k, Stream& q) {
      k.trainForward(q, x, channels, channels, channels, channels, {}, y, channels, channels, {}, {});
    });
    add<BatchNorm>("BatchNorm/gradient" + layout, norm, 5 * bytes, [](const BatchNorm& k, Stream& q) {
      k.gradient(q, dy, x, channels, channels, channels, {}, channels, dx, channels, channels, {});
    });
    add<BatchNorm>("BatchNorm/gradient by result" + layout, norm, 7 * bytes, [](const BatchNorm& k, Stream& q) {
      k.gradient(q, dy, x, channels, channels, channels, y, {}, dx, channels, channels, {});
    });
  }
  const MaxPool2d::Options pool = {
      .input = stem, .output = {2, 64, 56, 56}, .kernel = {3, 3}, .strides = {2, 2}, .pads = {1, 1, 1, 1}};
  add<MaxPool2d>("MaxPool2d/forward", pool, 1.5 * bytes,
                 [](const MaxPool2d& k, Stream& q) { k.forward(q, x, y, index.data()); });
  add<MaxPool2d>("MaxPool2d/inputGradient", pool, 1.5 * bytes, [](const MaxPool2d& k, Stream& q) {
    k.inputGradient(q, y, View<const std::int32_t>(index.data()), dx);
  });
  add<AveragePool2d>("AveragePool2d/global", {.input = stem, .output = {2, 64, 1, 1}, .kernel = {112, 112}}, bytes,
                     [](const AveragePool2d& k, Stream& q) { k.forward(q, x, y); });
  add<Softmax>("Softmax/forward", {.rows = count / 128, .classes = 128}, 2 * bytes,
               [](const Softmax& k, Stream& q) { k.forward(q, x, y); });
  static const std::vector<std::int64_t> labels(800, 1);
  static const Tensor loss(1);
  add<SoftmaxCrossEntropy>("SoftmaxCrossEntropy/forward", {.batch = 800, .classes = 2000}, 2.0 * 4 * 800 * 2000,
                           [](const SoftmaxCrossEntropy& k, Stream& q) {
                             k.forward(q, x, View<const std::int64_t>(labels.data()), {}, loss, y);
                           });
  add<Reduce>("Reduce/rows", {.input = {count / 512, 512}, .axes = {1}}, bytes,
              [](const Reduce& k, Stream& q) { k.forward(q, x, y); });
  for (const std::int64_t columns : {512, 1024, 2000})
    add<Reduce>("Reduce/columns/" + std::to_string(columns), {.input = {count / columns, columns}, .axes = {0}}, bytes,
                [](const Reduce& k, Stream& q) { k.forward(q, x, y); });
  add<Transpose>("Transpose/heads", {.input = {8, 128, 8, 32}, .permutation = {0, 2, 1, 3}}, 2.0 * 4 * 8 * 128 * 256,
                 [](const Transpose& k, Stream& q) { k.forward<float>(q, x, y); });
  add<Transpose>("Transpose/matrix", {.input = {1024, 1024}, .permutation = {1, 0}}, 2.0 * 4 * 1024 * 1024,
                 [](const Transpose& k, Stream& q) { k.forward<float>(q, x, y); });
  add<Dropout>("Dropout/forward", {.elements = count}, 2.25 * bytes,
               [](const Dropout& k, Stream& q) { k.forward(q, {}, x, y, mask.data()); });
}

} // namespace

int main(int argc, char** argv) {
  addLayers();
  addUpdates();
  addTheRest();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
