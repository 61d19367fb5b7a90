// LINK: pdcrt_kernels
// The manners of Lstm, Gru, Rnn and RecurrentWeights: memory, repeatability, optional results. What they compute is
// compared with the ops' definitions in OpsEngineTest; of large layers here.
#include "KernelTest.h"
#include "pdcrt/kernels/Gru.h"
#include "pdcrt/kernels/Lstm.h"
#include "pdcrt/kernels/RecurrentWeights.h"
#include "pdcrt/kernels/Rnn.h"

#include <cmath>
#include <stdexcept>
#include <vector>

using namespace pdcrt;

namespace {

/// Sizes and inputs of one layer; rows end after 5, 0, … steps.
struct Layer {
  std::int64_t steps, batch, hidden;
  std::int64_t state = batch * hidden, states = steps * state;
  Buffer<float> h0 = randomBuffer(state, 1), c0 = randomBuffer(state, 2), dy = randomBuffer(states, 3),
                dc = randomBuffer(states, 4);
  Buffer<std::int32_t> lengths = Buffer<std::int32_t>(batch);

  Layer(std::int64_t s, std::int64_t b, std::int64_t h) : steps(s), batch(b), hidden(h) {
    for (std::int64_t row = 0; row < batch; ++row)
      lengths[row] = static_cast<std::int32_t>((row + 1) * 5 % (steps + 1));
  }
  View<const float> maybe(bool wanted, const Buffer<float>& buffer) const {
    return wanted ? View<const float>(buffer.view()) : View<const float>();
  }
  View<const std::int32_t> maybeLengths(bool wanted) const {
    return wanted ? View<const std::int32_t>(lengths.view()) : View<const std::int32_t>();
  }
};

class Recurrent : public testing::TestWithParam<bool> {
protected:
  const bool all = GetParam(); ///< whether everything optional is there
  const Layer layer = all ? Layer{9, 5, 37} : Layer{1, 3, 16};
};

TEST_P(Recurrent, Lstm) {
  const Layer& l = layer;
  pdcrt::Setup setup;
  const Lstm lstm(setup, {.steps = l.steps, .batch = l.batch, .hidden = l.hidden, .order = "ifco", .reverse = all});
  const Buffer<float> x = randomBuffer(4 * l.states, 5), r = randomBuffer(4 * l.hidden * l.hidden, 6),
                      y = room(l.states), c = room(l.states), gates = room(4 * l.states), dx = room(4 * l.states),
                      dh0 = room(l.state), dc0 = room(l.state), alone = room(l.states);
  expectGoodManners(
      setup, {y, c, gates},
      [&](Stream& q) {
        lstm.forward(q, x, r, l.maybe(all, l.h0), l.maybe(all, l.c0), l.maybeLengths(all), y, c, gates);
      },
      productMemory);
  expectGoodManners(
      setup, {alone},
      [&](Stream& q) {
        lstm.forward(q, x, r, l.maybe(all, l.h0), l.maybe(all, l.c0), l.maybeLengths(all), alone, {}, {});
      },
      productMemory);
  EXPECT_TRUE(std::ranges::equal(y.values(), alone.values())) << "states depend on what else is kept";
  expectGoodManners(
      setup, {dx, dh0, dc0},
      [&](Stream& q) {
        lstm.gradient(q, l.dy, l.maybe(all, l.dc), r, c, gates, l.maybe(all, l.c0), l.maybeLengths(all), dx, dh0, dc0);
      },
      productMemory);
}

TEST_P(Recurrent, Gru) {
  const Layer& l = layer;
  pdcrt::Setup setup;
  const Gru gru(setup, {.steps = l.steps, .batch = l.batch, .hidden = l.hidden, .order = "rzh", .reverse = all});
  const Buffer<float> x = randomBuffer(3 * l.states, 5), r = randomBuffer(3 * l.hidden * l.hidden, 6),
                      b = randomBuffer(3 * l.hidden, 7), y = room(l.states), gates = room(4 * l.states),
                      dx = room(3 * l.states), da = room(3 * l.states), dh0 = room(l.state), alone = room(l.states);
  expectGoodManners(
      setup, {y, gates},
      [&](Stream& q) { gru.forward(q, x, r, l.maybe(all, b), l.maybe(all, l.h0), l.maybeLengths(all), y, gates); },
      productMemory);
  expectGoodManners(
      setup, {alone},
      [&](Stream& q) { gru.forward(q, x, r, l.maybe(all, b), l.maybe(all, l.h0), l.maybeLengths(all), alone, {}); },
      productMemory);
  EXPECT_TRUE(std::ranges::equal(y.values(), alone.values())) << "states depend on what else is kept";
  expectGoodManners(
      setup, {dx, da, dh0},
      [&](Stream& q) { gru.gradient(q, l.dy, r, y, gates, l.maybe(all, l.h0), l.maybeLengths(all), dx, da, dh0); },
      productMemory);
}

TEST_P(Recurrent, Rnn) {
  const Layer& l = layer;
  pdcrt::Setup setup;
  const Rnn rnn(setup, {.steps = l.steps, .batch = l.batch, .hidden = l.hidden, .relu = !all, .reverse = all});
  const Buffer<float> x = randomBuffer(l.states, 5), r = randomBuffer(l.hidden * l.hidden, 6), y = room(l.states),
                      dx = room(l.states), dh0 = room(l.state);
  expectGoodManners(
      setup, {y}, [&](Stream& q) { rnn.forward(q, x, r, l.maybe(all, l.h0), l.maybeLengths(all), y); }, productMemory);
  expectGoodManners(
      setup, {dx, dh0}, [&](Stream& q) { rnn.gradient(q, l.dy, r, y, l.maybeLengths(all), dx, dh0); }, productMemory);
}

TEST_P(Recurrent, Weights) {
  const Layer& l = layer;
  pdcrt::Setup setup;
  const RecurrentWeights weights(
      setup, {.steps = l.steps, .batch = l.batch, .hidden = l.hidden, .gates = 3 * l.hidden, .reverse = all});
  const Buffer<float> da = randomBuffer(3 * l.states, 5), dr = room(3 * l.hidden * l.hidden), db = room(3 * l.hidden);
  expectGoodManners(
      setup, {dr, db}, [&](Stream& q) { weights.gradient(q, da, l.dy, l.maybe(all, l.h0), dr, db); }, productMemory);
}

INSTANTIATE_TEST_SUITE_P(Optional, Recurrent, testing::Bool(),
                         [](const auto& p) { return p.param ? "AllThere" : "Absent"; });

namespace {

/// The layer that Rnn is, without lengths and initial states, and its gradients, in double precision.
struct Definition {
  std::vector<double> y, dx;

  Definition(const Rnn::Options& o, const Buffer<float>& x, const Buffer<float>& r, const Buffer<float>& dy)
      : y(static_cast<std::size_t>(x.count())), dx(y.size()) {
    const auto at = [&](std::int64_t t, std::int64_t b, std::int64_t j) {
      return static_cast<std::size_t>((t * o.batch + b) * o.hidden + j);
    };
    for (std::int64_t t = 0; t < o.steps; ++t)
      for (std::int64_t b = 0; b < o.batch; ++b)
        for (std::int64_t j = 0; j < o.hidden; ++j) {
          double sum = double(x[static_cast<std::int64_t>(at(t, b, j))]);
          for (std::int64_t i = 0; t > 0 && i < o.hidden; ++i) sum += y[at(t - 1, b, i)] * r[j * o.hidden + i];
          y[at(t, b, j)] = std::tanh(sum);
        }
    for (std::int64_t t = o.steps - 1; t >= 0; --t)
      for (std::int64_t b = 0; b < o.batch; ++b)
        for (std::int64_t j = 0; j < o.hidden; ++j) {
          double sum = double(dy[static_cast<std::int64_t>(at(t, b, j))]);
          for (std::int64_t i = 0; t + 1 < o.steps && i < o.hidden; ++i)
            sum += dx[at(t + 1, b, i)] * r[i * o.hidden + j];
          dx[at(t, b, j)] = sum * (1 - y[at(t, b, j)] * y[at(t, b, j)]);
        }
  }
};

} // namespace

/// So many units and steps that the weights of all steps are packed once, and sums are split.
TEST(RecurrentKernel, LargeLayersAreTheirDefinition) {
  const Rnn::Options o = {.steps = 9, .batch = 7, .hidden = 300};
  const Buffer<float> x = randomBuffer(o.steps * o.batch * o.hidden, 1), dy = randomBuffer(x.count(), 2),
                      r = randomBuffer(o.hidden * o.hidden, 3), y = room(x.count()), dx = room(x.count());
  for (float& weight : r.values()) weight *= 0.1f; // states far from 1 and -1
  const Definition exact(o, x, r, dy);
  pdcrt::Setup setup;
  const Rnn rnn(setup, o);
  expectGoodManners(
      setup, {y}, [&](Stream& q) { rnn.forward(q, x, r, {}, {}, y); }, productMemory);
  expectGoodManners(
      setup, {dx}, [&](Stream& q) { rnn.gradient(q, dy, r, y, {}, dx, {}); }, productMemory);
  EXPECT_LE(relativeError(y, exact.y), 1e-6);
  // It goes through a product for each step. How the library splits their sums depends on the processor: 1.1e-6 was
  // seen.
  EXPECT_LE(relativeError(dx, exact.dx), 2e-6);
}

TEST(RecurrentOptions, WhatIsNoLayerIsRefused) {
  pdcrt::Setup setup;
  EXPECT_THROW(Lstm(setup, {.steps = 0, .batch = 2, .hidden = 3}), std::runtime_error);
  EXPECT_THROW(Lstm(setup, {.steps = 1, .batch = 2, .hidden = 3, .order = "iofo"}), std::runtime_error);
  EXPECT_THROW(Gru(setup, {.steps = 1, .batch = 2, .hidden = 3, .order = "zr"}), std::runtime_error);
  EXPECT_THROW(Rnn(setup, {.steps = 1, .batch = 0, .hidden = 3}), std::runtime_error);
  try {
    Gru(setup, {.steps = 2, .batch = 4, .hidden = -3});
    ADD_FAILURE() << "was taken";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "GRU layer of 2 steps, batch 4, -3 hidden units: sizes must be positive");
  }
}

} // namespace
