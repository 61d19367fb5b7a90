// LINK: pdcrt_kernels
// Kernels whose work the threads of a rank share compute with several what they compute with one: the same bits, where
// each result is computed as before.
#include "KernelTest.h"
#include "pdcrt/Optimizer.h"
#include "pdcrt/SharedLoop.h"
#include "pdcrt/Threads.h"
#include "pdcrt/kernels/Attention.h"
#include "pdcrt/kernels/AveragePool2d.h"
#include "pdcrt/kernels/BatchNorm.h"
#include "pdcrt/kernels/Dropout.h"
#include "pdcrt/kernels/Gather.h"
#include "pdcrt/kernels/Gru.h"
#include "pdcrt/kernels/LayerNorm.h"
#include "pdcrt/kernels/Linear.h"
#include "pdcrt/kernels/Lstm.h"
#include "pdcrt/kernels/MaxPool2d.h"
#include "pdcrt/kernels/Reduce.h"
#include "pdcrt/kernels/Rnn.h"
#include "pdcrt/kernels/Softmax.h"
#include "pdcrt/kernels/SoftmaxCrossEntropy.h"
#include "pdcrt/kernels/SoftmaxCrossEntropyParts.h"
#include "pdcrt/kernels/Transpose.h"

#include <algorithm>
#include <mutex>
#include <thread>
#include <utility>

using namespace pdcrt;

namespace {

using Results = std::vector<std::reference_wrapper<const Buffer<float>>>;

/// Constructs and calls a kernel with one, two and three threads, in memory that it may not leave, and expects results
/// that are as the first ones, but for `tolerance`.
template <class Construct, class Call>
void expectSame(const Results& results, double tolerance, Construct construct, Call call) {
  std::vector<std::vector<double>> first;
  for (int threads : {1, 2, 3}) {
    kernelThreads = threads;
    Setup setup;
    const auto kernel = construct(setup);
    const GuardedBytes workspace(setup.workspaceBytes());
    workspace.fill(0xFF);
    Stream q(workspace.data(), workspace.size());
    for (const Buffer<float>& result : results) result.bytes().fill(0xFF);
    call(kernel, q);
    EXPECT_TRUE(workspace.guardsIntact()) << "wrote outside the workspace that was declared";
    std::size_t index = 0;
    for (const Buffer<float>& result : results) {
      EXPECT_TRUE(result.bytes().guardsIntact()) << "wrote outside result " << index;
      if (threads == 1)
        first.emplace_back(result.values().begin(), result.values().end());
      else
        EXPECT_LE(relativeError(result, first[index]), tolerance)
            << "result " << index << ", " << threads << " threads";
      ++index;
    }
  }
  kernelThreads = 1;
}

// The same bits where tiles compute it.
TEST(KernelThreads, Linear) {
  for (bool transposed : {false, true}) {
    const Linear::Options o = {.rows = 200, .inputs = 300, .outputs = 70, .transposed = transposed, .bias = true};
    const Buffer<float> x = randomBuffer(o.rows * o.inputs, 1), w = randomBuffer(o.inputs * o.outputs, 2),
                        b = randomBuffer(o.outputs, 3), dy = randomBuffer(o.rows * o.outputs, 4), y = room(dy.count()),
                        dx = room(x.count()), dw = room(w.count()), db = room(o.outputs);
    const bool tiled = __builtin_cpu_supports("avx2") && !__builtin_cpu_supports("avx512f");
    expectSame(
        {y, dx, dw, db}, tiled ? 0 : 1e-6, [&](pdcrt::Setup& setup) { return Linear(setup, o); },
        [&](const Linear& linear, Stream& q) {
          linear.forward(q, x, w, b, y);
          linear.inputGradient(q, dy, w, dx);
          linear.weightGradient(q, x, dy, dw, db);
        });
  }
}

// Weights that fit no cache, which few rows meet.
TEST(KernelThreads, LinearOfFewRows) {
  if (!__builtin_cpu_supports("avx512f")) GTEST_SKIP() << "computed as other layers are without AVX-512";
  for (bool transposed : {false, true}) {
    const Linear::Options o = {.rows = 7, .inputs = 1030, .outputs = 2050, .transposed = transposed};
    const Buffer<float> x = randomBuffer(o.rows * o.inputs, 1), w = randomBuffer(o.inputs * o.outputs, 2),
                        dy = randomBuffer(o.rows * o.outputs, 4), y = room(dy.count()), dx = room(x.count()),
                        dw = room(w.count());
    expectSame(
        {y, dx, dw}, transposed ? 0 : 1e-6, [&](pdcrt::Setup& setup) { return Linear(setup, o); },
        [&](const Linear& linear, Stream& q) {
          linear.forward(q, x, w, {}, y);
          linear.inputGradient(q, dy, w, dx);
          linear.weightGradient(q, x, dy, dw, {});
        });
  }
}

// Two of five groups of keys are for each of three threads, or one; masks and a bias are read at the right place.
TEST(KernelThreads, Attention) {
  const Attention::Options o = {.batch = 5,
                                .heads = 4,
                                .groups = 2,
                                .queries = 100,
                                .keys = 100,
                                .size = 8,
                                .valueSize = 16,
                                .scale = 0.3,
                                .causal = true,
                                .bias = {5, 4, 100, 100},
                                .ratio = 0.2,
                                .op = 3};
  const std::int64_t rows = o.batch * o.heads * o.queries;
  const Buffer<float> query = randomBuffer(rows * o.size, 1),
                      key = randomBuffer(o.batch * o.groups * o.keys * o.size, 2),
                      value = randomBuffer(o.batch * o.groups * o.keys * o.valueSize, 3),
                      bias = randomBuffer(rows * o.keys, 4), dy = randomBuffer(rows * o.valueSize, 5),
                      y = room(rows * o.valueSize), largest = room(rows), inverse = room(rows),
                      dquery = room(query.count()), dkey = room(key.count()), dvalue = room(value.count());
  const Buffer<std::uint8_t> mask(rows * o.keys);
  expectSame(
      {y, largest, inverse, dquery, dkey, dvalue}, 0, [&](pdcrt::Setup& setup) { return Attention(setup, o); },
      [&](const Attention& attention, Stream& q) {
        attention.forwardDropped(q, {.seed = 7, .minibatch = 2}, query, key, value, bias, y, largest, inverse, mask);
        attention.inputGradient(q, dy, query, key, value, bias, largest, inverse, mask, dquery, dkey, dvalue);
      });
}

TEST(KernelThreads, BatchNorm) {
  for (std::int64_t lanes : {1, 16}) {
    constexpr std::int64_t channels = 80;
    const BatchNorm::Options o = {.input = {4, channels, 32, 32}, .relu = true, .lanes = lanes};
    const Buffer<float> x = randomBuffer(o.input.elements(), 1), scale = randomBuffer(channels, 2),
                        bias = randomBuffer(channels, 3), residual = randomBuffer(x.count(), 4),
                        dy = randomBuffer(x.count(), 5), y = room(x.count()), mean = room(channels),
                        inverse = room(channels), newMean = room(channels), newVariance = room(channels),
                        dx = room(x.count()), dscale = room(channels), dbias = room(channels),
                        dresidual = room(x.count()), again = room(x.count());
    Buffer<float> variance(channels);
    for (float& value : variance.values()) value = 2;
    expectSame(
        {y, mean, inverse, newMean, newVariance, again, dx, dscale, dbias, dresidual}, 0,
        [&](pdcrt::Setup& setup) { return BatchNorm(setup, o); },
        [&](const BatchNorm& norm, Stream& q) {
          norm.trainForward(q, x, scale, bias, bias, variance, residual, y, mean, inverse, newMean, newVariance);
          norm.trainForwardAgain(q, x, scale, bias, mean, inverse, residual, again);
          norm.gradient(q, dy, x, scale, mean, inverse, y, {}, dx, dscale, dbias, dresidual);
        });
    expectSame(
        {y, dx, dscale, dbias}, 0, [&](pdcrt::Setup& setup) { return BatchNorm(setup, o); },
        [&](const BatchNorm& norm, Stream& q) {
          norm.forward(q, x, scale, bias, bias, variance, y);
          norm.frozenGradient(q, dy, x, scale, bias, variance, dx, dscale, dbias);
        });
  }
}

TEST(KernelThreads, LayerNorm) {
  const LayerNorm::Options o = {.rows = 301, .size = 700};
  const Buffer<float> x = randomBuffer(o.rows * o.size, 1), scale = randomBuffer(o.size, 2),
                      bias = randomBuffer(o.size, 3), dy = randomBuffer(x.count(), 4), y = room(x.count()),
                      mean = room(o.rows), inverse = room(o.rows), dx = room(x.count()), rms = room(x.count()),
                      rmsInverse = room(o.rows), rmsDx = room(x.count()), dscale = room(o.size), dbias = room(o.size),
                      rmsDscale = room(o.size);
  expectSame(
      {y, mean, inverse, dx, dscale, dbias, rms, rmsInverse, rmsDx, rmsDscale}, 0,
      [&](pdcrt::Setup& setup) { return LayerNorm(setup, o); },
      [&](const LayerNorm& norm, Stream& q) {
        norm.forward(q, x.view(), scale, bias, {}, y.view(), mean, inverse, {}, {});
        norm.inputGradient(q, dy.view(), x, scale, mean, inverse, {}, dx, {});
        norm.weightGradient(q, dy.view(), x, mean, inverse, dscale, dbias);
        norm.rmsForward(q, x.view(), scale, {}, rms.view(), rmsInverse, {}, {});
        norm.rmsInputGradient(q, dy.view(), x, scale, rmsInverse, {}, rmsDx, {});
        norm.rmsWeightGradient(q, dy.view(), x, rmsInverse, rmsDscale);
      });
}

TEST(KernelThreads, MaxPool2d) {
  for (std::int64_t lanes : {1, 16}) {
    const MaxPool2d::Options o = {.input = {5, 48, 31, 31},
                                  .output = {5, 48, 16, 16},
                                  .kernel = {3, 3},
                                  .strides = {2, 2},
                                  .pads = {1, 1, 1, 1},
                                  .lanes = lanes};
    const Buffer<float> x = randomBuffer(o.input.elements(), 1), dy = randomBuffer(o.output.elements(), 2),
                        y = room(dy.count()), dx = room(x.count());
    const Buffer<std::int32_t> index(dy.count());
    expectSame(
        {y, dx}, 0, [&](pdcrt::Setup& setup) { return MaxPool2d(setup, o); },
        [&](const MaxPool2d& pool, Stream& q) {
          pool.forward(q, x, y, index);
          pool.inputGradient(q, dy, index, dx);
        });
  }
}

TEST(KernelThreads, AveragePool2d) {
  for (std::int64_t lanes : {1, 16}) {
    const AveragePool2d::Options o = {.input = {5, 48, 31, 31},
                                      .output = {5, 48, 16, 16},
                                      .kernel = {3, 3},
                                      .strides = {2, 2},
                                      .pads = {1, 1, 1, 1},
                                      .lanes = lanes};
    const Buffer<float> x = randomBuffer(o.input.elements(), 1), dy = randomBuffer(o.output.elements(), 2),
                        y = room(dy.count()), dx = room(x.count());
    expectSame(
        {y, dx}, 0, [&](pdcrt::Setup& setup) { return AveragePool2d(setup, o); },
        [&](const AveragePool2d& pool, Stream& q) {
          pool.forward(q, x, y);
          pool.inputGradient(q, dy, dx);
        });
  }
}

// Columns alone, rows, both inside of an outer loop, and one sum of all.
TEST(KernelThreads, Reduce) {
  const std::vector<std::pair<Shape, Axes>> reductions = {
      {{700, 300}, {0}}, {{700, 300}, {1}}, {{5, 70, 600}, {1}}, {{5, 70, 3, 200}, {1, 3}}, {{700, 300}, {0, 1}}};
  for (const auto& [shape, axes] : reductions)
    for (Reduction kind : {Reduction::sum, Reduction::mean, Reduction::max, Reduction::min, Reduction::product}) {
      const Buffer<float> x = randomBuffer(shape.elements(), 1);
      std::int64_t results = shape.elements();
      for (std::int64_t axis : axes) results /= shape.dims[axis];
      const Buffer<float> y = room(results);
      expectSame(
          {y}, 0, [&](pdcrt::Setup& setup) { return Reduce(setup, {.input = shape, .axes = axes, .kind = kind}); },
          [&](const Reduce& reduce, Stream& q) { reduce.forward(q, x, y); });
    }
}

// Rows that move whole, tiles of two axes, and an outermost axis too short for all threads.
TEST(KernelThreads, Transpose) {
  const std::vector<std::pair<Shape, Axes>> transpositions = {{{8, 100, 4, 64}, {0, 2, 1, 3}},
                                                              {{700, 301}, {1, 0}},
                                                              {{2, 400, 300}, {0, 2, 1}},
                                                              {{2, 3, 400, 100}, {1, 0, 3, 2}}};
  for (const auto& [shape, permutation] : transpositions) {
    const Buffer<float> x = randomBuffer(shape.elements(), 1), y = room(x.count());
    expectSame(
        {y}, 0, [&](pdcrt::Setup& setup) { return Transpose(setup, {.input = shape, .permutation = permutation}); },
        [&](const Transpose& transpose, Stream& q) { transpose.forward(q, x, y.view()); });
  }
}

TEST(KernelThreads, Fill) {
  const Buffer<float> y = room(300007);
  expectSame(
      {y}, 0, [](pdcrt::Setup&) { return 0; }, [&](int, Stream& q) { fill(q, y.view().data, y.count(), 0.25f); });
}

TEST(KernelThreads, Dropout) {
  const Dropout::Options o = {.elements = 300007, .op = 3, .ratio = 0.3};
  const Buffer<float> x = randomBuffer(o.elements, 1), dy = randomBuffer(o.elements, 2), y = room(o.elements),
                      dx = room(o.elements);
  const Buffer<std::uint8_t> mask(o.elements);
  expectSame(
      {y, dx}, 0, [&](pdcrt::Setup& setup) { return Dropout(setup, o); },
      [&](const Dropout& dropout, Stream& q) {
        dropout.forward(q, {.seed = 7, .minibatch = 2}, x, y, mask);
        dropout.inputGradient(q, dy, mask, dx);
      });
}

TEST(KernelThreads, Softmax) {
  for (bool logarithm : {false, true}) {
    const Softmax::Options o = {.rows = 301, .classes = 700, .logarithm = logarithm};
    const Buffer<float> x = randomBuffer(o.rows * o.classes, 1), dy = randomBuffer(x.count(), 2), y = room(x.count()),
                        dx = room(x.count());
    expectSame(
        {y, dx}, 0, [&](pdcrt::Setup& setup) { return Softmax(setup, o); },
        [&](const Softmax& softmax, Stream& q) {
          softmax.forward(q, x, y);
          softmax.inputGradient(q, dy, y, dx);
        });
  }
}

// Rows with one index are added in the order of the indices, whoever adds them.
TEST(KernelThreads, Gather) {
  const Gather::Options o = {.outer = 3, .size = 501, .inner = 100, .count = 900};
  const Buffer<float> dy = randomBuffer(o.outer * o.count * o.inner, 1), dx = room(o.outer * o.size * o.inner);
  Buffer<std::int64_t> indices(o.count);
  for (std::int64_t i = 0; i < o.count; ++i) indices[i] = i * 37 % 520 - 9;
  expectSame(
      {dx}, 0, [&](pdcrt::Setup& setup) { return Gather(setup, o); },
      [&](const Gather& gather, Stream& q) { gather.inputGradient(q, dy, indices, dx); });
}

// Each item once, by as many threads as there are; few elements are one thread's.
TEST(KernelThreads, SharedLoop) {
  for (std::int64_t elements : {std::int64_t{100}, 10 * leastShared}) {
    kernelThreads = 3;
    std::mutex mutex;
    std::vector<std::pair<std::int64_t, std::int64_t>> ranges;
    std::vector<std::thread::id> threads;
    shareLoop(100, elements, [&](std::int64_t begin, std::int64_t end) {
      const std::lock_guard lock(mutex);
      ranges.push_back({begin, end});
      threads.push_back(std::this_thread::get_id());
    });
    kernelThreads = 1;
    std::sort(ranges.begin(), ranges.end());
    std::sort(threads.begin(), threads.end());
    EXPECT_EQ(std::unique(threads.begin(), threads.end()), threads.end());
    if (elements == 100)
      EXPECT_EQ(ranges, (decltype(ranges){{0, 100}}));
    else
      EXPECT_EQ(ranges, (decltype(ranges){{0, 33}, {33, 66}, {66, 100}}));
  }
}

// The loss is a sum in one order; labels that are ignored and classes that are weighted are found by each thread.
TEST(KernelThreads, SoftmaxCrossEntropy) {
  for (bool weighted : {false, true}) {
    const SoftmaxCrossEntropy::Options o = {.batch = 7,
                                            .classes = 1000,
                                            .inner = 31,
                                            .hasIgnoreIndex = true,
                                            .ignoreIndex = 11,
                                            .labelSmoothing = weighted ? 0.1 : 0.0};
    const Buffer<float> logits = randomBuffer(o.batch * o.classes * o.inner, 1), dloss = {1.5f}, loss = room(1),
                        statistics = room(2 * o.batch * o.inner), dlogits = room(logits.count());
    Buffer<float> weights(o.classes);
    for (std::int64_t c = 0; c < o.classes; ++c) weights[c] = 1 + static_cast<float>(c % 5);
    Buffer<std::int64_t> labels(o.batch * o.inner);
    for (std::int64_t i = 0; i < labels.count(); ++i) labels[i] = i * 13 % 40;
    const View<const float> classWeights = weighted ? View<const float>(weights) : View<const float>();
    expectSame(
        {loss, statistics, dlogits}, 0, [&](pdcrt::Setup& setup) { return SoftmaxCrossEntropy(setup, o); },
        [&](const SoftmaxCrossEntropy& entropy, Stream& q) {
          entropy.forward(q, logits, labels, classWeights, loss, statistics);
          entropy.inputGradient(q, dloss, labels, logits, statistics, classWeights, dlogits);
        });
  }
}

TEST(KernelThreads, SoftmaxCrossEntropyParts) {
  const SoftmaxCrossEntropyParts::Options o = {
      .batch = 7, .classes = 1000, .inner = 31, .total = 1999, .labelSmoothing = 0.1};
  const std::int64_t positions = o.batch * o.inner;
  const Buffer<float> logits = randomBuffer(positions * o.classes, 1), maxima = room(positions),
                      sums = room(3 * positions);
  Buffer<std::int64_t> labels(positions);
  for (std::int64_t i = 0; i < labels.count(); ++i) labels[i] = i * 13 % 40;
  expectSame(
      {maxima, sums}, 0, [&](pdcrt::Setup& setup) { return SoftmaxCrossEntropyParts(setup, o); },
      [&](const SoftmaxCrossEntropyParts& parts, Stream& q) {
        parts.maxima(q, logits, maxima);
        parts.sums(q, logits, labels, maxima, {}, sums);
      });
}

// Products of fewer rows may sum in another order. A batch of 6 is for two and three threads, 60 steps give each
// enough.
struct Layer {
  std::int64_t steps = 60, batch = 6, hidden = 96, state = batch * hidden, states = steps * state;
  Buffer<float> h0 = randomBuffer(state, 1), c0 = randomBuffer(state, 2), dy = randomBuffer(states, 3),
                y = room(states), dh0 = room(state);
  Buffer<std::int32_t> lengths{60, 3, 0, 17, 60, 9};

  /// Of `gates` gates; small enough for roundings not to grow from step to step.
  Buffer<float> recurrentWeights(std::int64_t gates) const {
    Buffer<float> r = randomBuffer(gates * hidden * hidden, 6);
    for (float& value : r.values()) value *= 0.05f;
    return r;
  }
};

TEST(KernelThreads, Lstm) {
  const Layer l;
  const Buffer<float> x = randomBuffer(4 * l.states, 5), r = l.recurrentWeights(4), c = room(l.states),
                      gates = room(4 * l.states), alone = room(l.states), dx = room(4 * l.states), dc0 = room(l.state);
  expectSame(
      {l.y, c, gates, alone, dx, l.dh0, dc0}, 1e-6,
      [&](pdcrt::Setup& setup) { return Lstm(setup, {.steps = l.steps, .batch = l.batch, .hidden = l.hidden}); },
      [&](const Lstm& lstm, Stream& q) {
        lstm.forward(q, x, r, l.h0, l.c0, l.lengths, alone, {}, {});
        lstm.forward(q, x, r, l.h0, l.c0, l.lengths, l.y, c, gates);
        lstm.gradient(q, l.dy, {}, r, c, gates, l.c0, l.lengths, dx, l.dh0, dc0);
      });
}

TEST(KernelThreads, Gru) {
  const Layer l;
  const Buffer<float> x = randomBuffer(3 * l.states, 5), r = l.recurrentWeights(3), b = randomBuffer(3 * l.hidden, 7),
                      gates = room(4 * l.states), alone = room(l.states), dx = room(3 * l.states),
                      da = room(3 * l.states);
  expectSame(
      {l.y, gates, alone, dx, da, l.dh0}, 1e-6,
      [&](pdcrt::Setup& setup) { return Gru(setup, {.steps = l.steps, .batch = l.batch, .hidden = l.hidden}); },
      [&](const Gru& gru, Stream& q) {
        gru.forward(q, x, r, b, l.h0, l.lengths, alone, {});
        gru.forward(q, x, r, b, l.h0, l.lengths, l.y, gates);
        gru.gradient(q, l.dy, r, l.y, gates, l.h0, l.lengths, dx, da, l.dh0);
      });
}

TEST(KernelThreads, Rnn) {
  const Layer l;
  const Buffer<float> x = randomBuffer(l.states, 5), r = l.recurrentWeights(1), dx = room(l.states);
  expectSame(
      {l.y, dx, l.dh0}, 1e-6,
      [&](pdcrt::Setup& setup) { return Rnn(setup, {.steps = l.steps, .batch = l.batch, .hidden = l.hidden}); },
      [&](const Rnn& rnn, Stream& q) {
        rnn.forward(q, x, r, l.h0, l.lengths, l.y);
        rnn.gradient(q, l.dy, r, l.y, l.lengths, dx, l.dh0);
      });
}

TEST(KernelThreads, Update) {
  constexpr std::int64_t count = 300007;
  const Buffer<float> old = randomBuffer(count, 1), gradient = randomBuffer(count, 2), fresh = room(count),
                      first = room(count), second = room(count);
  for (OptimizerKind optimizer :
       {OptimizerKind::sgd, OptimizerKind::momentum, OptimizerKind::adam, OptimizerKind::adamw}) {
    const Training training = {.optimizer = optimizer};
    expectSame(
        {fresh, first, second}, 0, [](pdcrt::Setup&) { return 0; },
        [&](int, Stream& q) {
          for (std::int64_t i = 0; i < count; ++i) first[i] = second[i] = static_cast<float>(i % 10);
          const UpdateSlice slice = {.old = old.view().data,
                                     .fresh = fresh.view().data,
                                     .gradient = gradient.view().data,
                                     .first = first.view().data,
                                     .second = second.view().data,
                                     .count = count,
                                     .update = 3,
                                     .minibatches = 2,
                                     .scale = 0.5f,
                                     .learningRate = 0.1f,
                                     .weightDecay = 0.01f};
          device::update(q, {&slice, 1}, training);
        });
  }
}

} // namespace
