// LINK: pdcrt_kernels
// Products of integers: by every kind of instructions that this processor has, for any number of threads, the same
// bits.
#include "Int8Layer.h"
#include "Int8Product.h"
#include "pdcrt/Int8.h"
#include "pdcrt/Threads.h"

using namespace pdcrt;

namespace {

class Int8Tiles : public testing::TestWithParam<Int8Case> {
protected:
  void TearDown() override { kernelThreads = 1; }
};

} // namespace

TEST_P(Int8Tiles, EveryProcessorGivesTheBitsOfTheDefinition) {
  using Instructions = Int8Product::Instructions;
  const QuantisedLayer l(GetParam());
  const Int8Definition expected(l);
  int tried = 0;
  for (const Instructions instructions :
       {Instructions::plain, Instructions::avx2, Instructions::avx512, Instructions::vnni}) {
    if (!Int8Product::available(instructions)) continue;
    for (int threads : {1, 2, 3}) {
      SCOPED_TRACE(testing::Message() << "instructions " << static_cast<int>(instructions) << ", threads " << threads);
      kernelThreads = threads;
      const Int8Product product({.rows = l.o.rows,
                                 .inputs = l.o.inputs,
                                 .outputs = l.o.outputs,
                                 .kept = l.o.kept,
                                 .alpha = static_cast<float>(l.o.alpha)},
                                instructions);
      pdcrt::Setup setup;
      setup.needWorkspace(product.workspaceBytes());
      const auto run = [&](Stream& q) {
        product.run(q.workspace(), {.x = l.x.view().data,
                                    .w = l.w.view().data,
                                    .scale = l.scale.view().data,
                                    .kept = l.kept.view().data,
                                    .keptInputs = l.keptInputs.view().data,
                                    .bias = l.o.bias ? l.bias.view().data : nullptr,
                                    .y = l.y.view().data});
      };
      if (threads == 1)
        expectGoodManners(setup, {l.y}, run);
      else
        expectGoodManners(setup, {l.y}, run, std::size_t{1} << 20); // threads are started
      EXPECT_EQ(differingBits(l.y, expected.ys), 0);
      ++tried;
    }
  }
  EXPECT_GE(tried, 3);
}

INSTANTIATE_TEST_SUITE_P(Sizes, Int8Tiles, testing::ValuesIn(int8Cases));

// Sums that do not fit 32 bits: all products are 127 · 127, or -127 · 127.
TEST(Int8TileSums, LongerThan32BitsAreExact) {
  using Instructions = Int8Product::Instructions;
  for (const std::int64_t inputs : {int8::productsIn32Bits, int8::productsIn32Bits + 1, 3 * int8::productsIn32Bits})
    for (const std::int8_t sign : {std::int8_t{1}, std::int8_t{-1}})
      for (const Instructions instructions :
           {Instructions::plain, Instructions::avx2, Instructions::avx512, Instructions::vnni}) {
        if (!Int8Product::available(instructions)) continue;
        Buffer<float> x(inputs), scale{1}, y(1);
        Buffer<std::int8_t> w(inputs);
        std::ranges::fill(x.values(), 127.0f);
        std::ranges::fill(w.values(), static_cast<std::int8_t>(127 * sign));
        const Int8Product product(
            {.rows = 1, .inputs = inputs, .outputs = 1, .kept = 0, .alpha = std::numeric_limits<float>::infinity()},
            instructions);
        const GuardedBytes workspace(product.workspaceBytes());
        product.run(workspace.data(), {.x = x.view().data,
                                       .w = w.view().data,
                                       .scale = scale.view().data,
                                       .kept = nullptr,
                                       .keptInputs = nullptr,
                                       .bias = nullptr,
                                       .y = y.view().data});
        EXPECT_EQ(y[0], static_cast<float>(sign * inputs * 127 * 127))
            << inputs << " inputs, instructions " << static_cast<int>(instructions);
      }
}
