// LINK: pdcrt_kernels
// Rows moved into the slots of experts and back, against products with the mask that the choices stand for.
#include "KernelTest.h"
#include "pdcrt/kernels/Experts.h"

#include <random>

using namespace pdcrt;

namespace {

/// Choices of which some are dropped and some share a slot, and mask[group, token, expert, slot] in double precision.
struct Case {
  Case(const Experts::Options& options, bool hasGates)
      : o(options), choices(o.groups * o.tokens * o.choices), experts(choices), slots(choices), gates(choices),
        x(o.groups * o.tokens * o.size), y(o.groups * o.experts * o.capacity * o.size),
        mask(static_cast<std::size_t>(o.groups * o.tokens * o.experts * o.capacity)) {
    std::mt19937 random(7);
    const auto below = [&](std::int64_t n) { return static_cast<std::int64_t>(random() % static_cast<unsigned>(n)); };
    const auto number = [&] { return static_cast<float>(below(2000) - 1000) / 500; };
    for (std::int64_t i = 0; i < choices; ++i) {
      experts[i] = below(o.experts + 2) - 1;
      slots[i] = below(o.capacity + 3) - 1;
      gates[i] = number();
      const bool isInside = experts[i] >= 0 && experts[i] < o.experts && slots[i] >= 0 && slots[i] < o.capacity;
      if (isInside) mask[at(i)] += hasGates ? gates[i] : 1;
    }
    for (float& value : x.values()) value = number();
    for (float& value : y.values()) value = number();
  }
  std::size_t at(std::int64_t choice) const {
    const std::int64_t token = choice / o.choices;
    return static_cast<std::size_t>((token * o.experts + experts[choice]) * o.capacity + slots[choice]);
  }
  /// Calls visit(row of x, row of y, mask) for all pairs of one group.
  template <class Visit>
  void forEachPair(Visit visit) const {
    const std::int64_t rows = o.experts * o.capacity;
    for (std::int64_t token = 0; token < o.groups * o.tokens; ++token)
      for (std::int64_t slot = 0; slot < rows; ++slot)
        visit(token, token / o.tokens * rows + slot, mask[static_cast<std::size_t>(token * rows + slot)]);
  }

  Experts::Options o;
  std::int64_t choices;
  Buffer<std::int64_t> experts, slots;
  Buffer<float> gates, x, y;
  std::vector<double> mask;
};

void expectNear(const Buffer<float>& values, const std::vector<double>& expected) {
  for (std::int64_t i = 0; i < values.count(); ++i)
    ASSERT_NEAR(values[i], expected[static_cast<std::size_t>(i)], 1e-4) << i;
}

void check(const Experts::Options& o, bool hasGates) {
  const Case c(o, hasGates);
  const View<const float> gates = hasGates ? View<const float>(c.gates) : View<const float>();
  pdcrt::Setup setup;
  const Experts kernel(setup, o);
  const Buffer<float> dispatched(c.y.count()), combined(c.x.count()), dgates(c.choices);
  expectGoodManners(setup, {dispatched},
                    [&](Stream& q) { kernel.dispatch(q, c.x, c.experts, c.slots, gates, dispatched.view()); });
  expectGoodManners(setup, {combined},
                    [&](Stream& q) { kernel.combine(q, c.y, c.experts, c.slots, gates, combined.view()); });
  expectGoodManners(setup, {dgates},
                    [&](Stream& q) { kernel.gateGradient(q, c.x, c.y, c.experts, c.slots, dgates.view()); });
  std::vector<double> ofY(static_cast<std::size_t>(c.y.count())), ofX(static_cast<std::size_t>(c.x.count())),
      ofGates(static_cast<std::size_t>(c.choices)), products(c.mask.size());
  const std::int64_t rows = o.experts * o.capacity;
  c.forEachPair([&](std::int64_t token, std::int64_t slot, double factor) {
    for (std::int64_t j = 0; j < o.size; ++j) {
      const double x = c.x[token * o.size + j], y = c.y[slot * o.size + j];
      ofY[static_cast<std::size_t>(slot * o.size + j)] += factor * x;
      ofX[static_cast<std::size_t>(token * o.size + j)] += factor * y;
      products[static_cast<std::size_t>(token * rows + slot % rows)] += x * y;
    }
  });
  for (std::int64_t i = 0; i < c.choices; ++i)
    if (c.experts[i] >= 0 && c.experts[i] < o.experts && c.slots[i] >= 0 && c.slots[i] < o.capacity)
      ofGates[static_cast<std::size_t>(i)] = products[c.at(i)];
  expectNear(dispatched, ofY);
  expectNear(combined, ofX);
  expectNear(dgates, ofGates);
}

TEST(ExpertsKernel, MultipliesByTheMaskOfTheChoices) {
  for (const bool hasGates : {false, true}) {
    check({.tokens = 7, .experts = 3, .capacity = 2, .size = 5}, hasGates);
    check({.tokens = 40, .choices = 2, .experts = 4, .capacity = 9, .size = 33}, hasGates);
    check({.groups = 3, .tokens = 6, .choices = 3, .experts = 2, .capacity = 4, .size = 16}, hasGates);
    check({.tokens = 300, .choices = 2, .experts = 5, .capacity = 11, .size = 3}, hasGates);
    check({.groups = 2, .tokens = 1, .experts = 1, .capacity = 1, .size = 1}, hasGates);
  }
}

TEST(ExpertsKernel, NothingIsMovedWithoutTokensOrSlots) {
  check({.tokens = 0, .experts = 2, .capacity = 2, .size = 3}, true);
  check({.tokens = 4, .experts = 2, .capacity = 0, .size = 3}, true);
}

/// A token with three choices, of which the first one is added last.
TEST(ExpertsKernel, AddsInOrderOfExperts) {
  const Experts::Options o{.tokens = 1, .choices = 3, .experts = 3, .capacity = 1, .size = 1};
  pdcrt::Setup setup;
  const Experts kernel(setup, o);
  const Buffer<std::int64_t> experts = {2, 0, 1}, slots = {0, 0, 0};
  const Buffer<float> y = {1e8f, -1e8f, 1.0f}, x(1);
  RoomyStream stream;
  kernel.combine(stream, y, experts, slots, {}, x.view());
  EXPECT_EQ(x[0], 1.0f); // (1e8 - 1e8) + 1, where 1 + 1e8 - 1e8 is 0
}

} // namespace
