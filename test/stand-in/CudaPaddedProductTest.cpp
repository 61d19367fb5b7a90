// Products of matrices that are copied to aligned rows, part by part, on CUDA.
#include "KernelTest.h"
#include "cuda/support/Product.h"
#include "pdcrt/PaddedProduct.h"
#include "pdcrt/kernels/Linear.h"

#include <array>

using namespace pdcrt;

namespace {

/// By copies of a few rows or columns at a time; every number is exact, so that what is read of the gaps would show. R:
/// the result's.
template <class T, class R = T>
void checkPaddedProduct(const cuda::ProductSizes& o, std::size_t bytes) {
  SCOPED_TRACE(testing::Message() << o.m << " x " << o.k << " x " << o.n << (o.transposeA ? " a transposed" : "")
                                  << (o.transposeB ? " b transposed" : "") << " in " << bytes << " bytes");
  const cuda::PaddedProduct padded =
      cuda::paddedProduct(o, elementOf<T>(), {.leastWork = 1, .leastSize = 1, .grain = 32, .bytes = bytes * sizeof(T)});
  ASSERT_GT(padded.part, 0);
  EXPECT_LE(padded.bytes, bytes * sizeof(T));
  const cuda::Product product({.m = o.m,
                               .k = o.k,
                               .n = o.n,
                               .transposeA = o.transposeA,
                               .transposeB = o.transposeB,
                               .bias = !o.wideResult,
                               .element = elementOf<T>(),
                               .wideResult = o.wideResult,
                               .padded = padded});
  Buffer<T> a(o.m * o.k), b(o.k * o.n), bias(o.n);
  const Buffer<R> c(o.m * o.n);
  for (Buffer<T>* buffer : {&a, &b, &bias})
    for (std::int64_t i = 0; i < buffer->count(); ++i) (*buffer)[i] = T(static_cast<float>(i * 7 % 5 % 3 - 1));
  pdcrt::Setup setup;
  setup.needWorkspace(cuda::productBytes + padded.bytes);
  expectGoodManners(setup, {c}, [&](Stream& q) {
    product.run(q, a.view().data, b.view().data, o.wideResult ? nullptr : bias.view().data, c.view().data);
  });
  for (std::int64_t i = 0; i < o.m; ++i)
    for (std::int64_t j = 0; j < o.n; ++j) {
      float sum = o.wideResult ? 0.0f : float(bias[j]);
      for (std::int64_t l = 0; l < o.k; ++l)
        sum += float(a[o.transposeA ? l * o.m + i : i * o.k + l]) * float(b[o.transposeB ? j * o.k + l : l * o.n + j]);
      ASSERT_EQ(float(c[i * o.n + j]), sum) << "row " << i << ", column " << j;
    }
}

template <class T>
void checkPaddedProducts() {
  for (bool transposeA : {false, true})
    for (bool transposeB : {false, true})
      for (const auto& [m, k, n] : {std::array{75, 40, 48}, {72, 41, 48}, {72, 40, 99}, {75, 41, 99}, {33, 41, 99}}) {
        const cuda::ProductSizes sizes = {m, k, n, transposeA, transposeB};
        if ((transposeA ? m : k) % 8 == 0 && (transposeB ? k : n) % 8 == 0 && n % 8 == 0) continue;
        checkPaddedProduct<T>(sizes, 1 << 20);
        checkPaddedProduct<T>(sizes, 11500);
        if constexpr (sizeof(T) == 2) {
          cuda::ProductSizes wide = sizes;
          wide.wideResult = true;
          checkPaddedProduct<T, float>(wide, 1 << 20);
          checkPaddedProduct<T, float>(wide, 15000);
        }
      }
}

TEST(PaddedProduct, InLowPrecisionIsTheDefinition) {
  checkPaddedProducts<bfloat16>();
  checkPaddedProducts<float16>();
}

TEST(PaddedProduct, OfRoundedFloatsIsTheDefinition) {
  const bool before = cuda::tf32.exchange(true);
  checkPaddedProducts<float>();
  cuda::tf32 = before;
}

TEST(PaddedProduct, CopiesWhatIsLargeAndNotAligned) {
  const auto of = [](const cuda::ProductSizes& sizes, Element element = Element::bf16) {
    const cuda::PaddedProduct p = cuda::paddedProduct(sizes, element);
    EXPECT_LE(p.bytes, std::size_t{128} << 20);
    return std::array{p.extent, p.part, std::int64_t{p.matrices[0].copied}, std::int64_t{p.matrices[1].copied},
                      std::int64_t{p.matrices[2].copied}};
  };
  using Found = std::array<std::int64_t, 5>;
  const Found none = {};
  // A vocabulary of 50257 words: logits, and the gradients of what they are of.
  EXPECT_EQ(of({.m = 8192, .k = 768, .n = 50257, .transposeB = true}), (Found{8192, 1280, 0, 0, 1}));
  EXPECT_EQ(of({.m = 8192, .k = 50257, .n = 768}), (Found{8192, 1280, 1, 0, 0}));
  EXPECT_EQ(of({.m = 50257, .k = 8192, .n = 768, .transposeA = true}), (Found{50257, 7296, 1, 0, 0}));
  EXPECT_EQ(of({.m = 768, .k = 8192, .n = 50257, .transposeA = true}), (Found{50257, 7296, 0, 1, 1}));
  EXPECT_EQ(of({.m = 8192, .k = 768, .n = 50256, .transposeB = true}), none);
  EXPECT_EQ(of({.m = 8192, .k = 64, .n = 50257, .transposeB = true}), none);
  EXPECT_EQ(of({.m = 512, .k = 768, .n = 1001, .transposeB = true}), none);
  EXPECT_EQ(of({.m = 8192, .k = 768, .n = 30524, .transposeB = true}, Element::f32), none);
  EXPECT_EQ(of({.m = 1 << 20, .k = 1 << 20, .n = 333333}), none); // even of the shortest part a copy is too large
}

TEST(PaddedProduct, HasWorkspace) {
  const Linear::Options o = {
      .rows = 8192, .inputs = 768, .outputs = 50257, .transposed = true, .element = Element::f16};
  const auto products = cuda::productsOf(o);
  std::size_t most = 0;
  for (const cuda::ProductSizes& sizes : products) most = std::max(most, cuda::paddedProduct(sizes, o.element).bytes);
  EXPECT_GT(most, std::size_t{1} << 20);
  EXPECT_EQ(cuda::workspaceOf(o), cuda::productBytes + most);
}

} // namespace
