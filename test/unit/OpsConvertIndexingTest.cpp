// LINK: pdcOps
// Conversions that pick, place, reduce and sum elements by index: values beside ONNX's own test vectors, what opset
// versions change, and what is refused.
#include "OpsNode.h"

using namespace pdc;
using namespace pdc::testing;

namespace {

using Integers = std::vector<std::int64_t>;

std::vector<double> valuesOf(const Tensor& tensor) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < tensor.elements(); ++i) values.push_back(tensor.asDouble(i));
  return values;
}

Tensor matrix(Shape shape, const std::vector<std::int64_t>& values) {
  return Tensor::ofInts(std::move(shape), values);
}

} // namespace

TEST(OpsConvertIndexing, SplitSharesOutUnequallySinceOpset18) {
  Node old("Split", 13), since("Split", 18), wrong("Split", 18);
  EXPECT_FALSE(old.floats({7}).convert(3));
  ASSERT_TRUE(since.floats({7}).attribute("num_outputs", std::int64_t{3}).convert(3)) << since.error();
  EXPECT_EQ(since.run("0").shape(), Shape{3});
  EXPECT_EQ(since.run("2").shape(), Shape{1});
  EXPECT_FALSE(wrong.floats({7}).attribute("num_outputs", std::int64_t{2}).convert(3));
  EXPECT_NE(wrong.error().find("has num_outputs 2 and 3 outputs"), std::string::npos) << wrong.error();
}

TEST(OpsConvertIndexing, PadTakesAxesSinceOpset18AndWrapsSince19) {
  Node axes("Pad", 18), wrap("Pad", 19), wrong("Pad", 18);
  ASSERT_TRUE(axes.floats({2, 3}).integers({1, 2}).constant(Tensor::scalar(7)).integers({-1}).convert())
      << axes.error();
  EXPECT_EQ(axes.run().shape(), (Shape{2, 6}));
  ASSERT_TRUE(wrap.constant(matrix({3}, {1, 2, 3})).integers({2, 4}).attribute("mode", std::string("wrap")).convert());
  EXPECT_EQ(valuesOf(wrap.run()), (std::vector<double>{2, 3, 1, 2, 3, 1, 2, 3, 1}));
  EXPECT_FALSE(wrong.floats({2, 3}).integers({1, 2, 3, 4}).constant(Tensor::scalar(7)).integers({0}).convert());
  EXPECT_NE(wrong.error().find("has pads [1, 2, 3, 4] for axes [0]"), std::string::npos) << wrong.error();
}

TEST(OpsConvertIndexing, ReductionsTakeAxesAsInputsSinceOpset18) {
  for (const char* opType : {"ReduceMax", "ReduceMean", "ReduceProd", "ReduceL2", "ReduceLogSumExp"}) {
    Node before(opType, 13), since(opType, 18), noop(opType, 18);
    ASSERT_TRUE(before.floats({2, 3}).attribute("axes", Integers{1}).convert()) << before.error();
    ASSERT_TRUE(since.floats({2, 3}).integers({1}).convert()) << since.error();
    EXPECT_EQ(before.run(), since.run()) << opType;
    EXPECT_FALSE(noop.floats({2, 3}).attribute("axes", Integers{1}).convert()) << opType;
  }
}

TEST(OpsConvertIndexing, ReductionsOfBooleansAndEmptyTensors) {
  Node any("ReduceMax", 20), sum("ReduceSum", 13), product("ReduceProd", 18), least("ReduceMin", 18);
  ASSERT_TRUE(any.input(ElementType::boolean, {2, 3}).integers({1}).convert()) << any.error();
  EXPECT_EQ(any.run().type().element, ElementType::boolean);
  const Tensor none(Type{ElementType::f32, {2, 0}});
  ASSERT_TRUE(sum.constant(none).integers({1}).convert());
  EXPECT_EQ(valuesOf(sum.run()), (std::vector<double>{0, 0}));
  ASSERT_TRUE(product.constant(none).integers({1}).convert());
  EXPECT_EQ(valuesOf(product.run()), (std::vector<double>{1, 1}));
  ASSERT_TRUE(least.constant(none).integers({1}).convert());
  EXPECT_TRUE(std::isinf(least.run().asDouble(0)));
}

TEST(OpsConvertIndexing, ArgMaxChoosesAmongEqualsAndFindsNan) {
  const Tensor x = Tensor::ofFloats({5}, std::vector<double>{1, 3, 2, 3, 0});
  Node first("ArgMax", 13), last("ArgMax", 13), nan("ArgMin", 13);
  ASSERT_TRUE(first.constant(x).convert());
  EXPECT_EQ(valuesOf(first.run()), std::vector<double>{1});
  ASSERT_TRUE(last.constant(x).attribute("select_last_index", std::int64_t{1}).convert());
  EXPECT_EQ(valuesOf(last.run()), std::vector<double>{3});
  ASSERT_TRUE(nan.constant(Tensor::ofFloats({3}, std::vector<double>{1, NAN, 0})).convert());
  EXPECT_EQ(valuesOf(nan.run()), std::vector<double>{1});
}

TEST(OpsConvertIndexing, NegativeIndicesCountFromTheEnd) {
  Node elements("GatherElements", 13), tuples("GatherND", 13), scatter("ScatterElements", 18);
  const Tensor x = matrix({2, 3}, {0, 1, 2, 3, 4, 5});
  ASSERT_TRUE(
      elements.constant(x).constant(matrix({2, 2}, {-1, 0, 1, -3})).attribute("axis", std::int64_t{1}).convert());
  EXPECT_EQ(valuesOf(elements.run()), (std::vector<double>{2, 0, 4, 3}));
  ASSERT_TRUE(tuples.constant(x).constant(matrix({2, 2}, {-1, -1, 0, 1})).convert());
  EXPECT_EQ(valuesOf(tuples.run()), (std::vector<double>{5, 1}));
  ASSERT_TRUE(scatter.constant(x)
                  .constant(matrix({1, 2}, {-1, 0}))
                  .constant(matrix({1, 2}, {10, 20}))
                  .attribute("axis", std::int64_t{1})
                  .attribute("reduction", std::string("add"))
                  .convert())
      << scatter.error();
  EXPECT_EQ(valuesOf(scatter.run()), (std::vector<double>{20, 1, 12, 3, 4, 5}));
}

TEST(OpsConvertIndexing, AnIndexOutsideIsAnErrorOnEveryAxis) {
  // Merged axes must not make another element of it.
  for (const std::int64_t outside : {3, -4}) {
    Node elements("GatherElements", 13), tuples("GatherND", 13);
    const Tensor x = matrix({2, 3}, {0, 1, 2, 3, 4, 5});
    EXPECT_FALSE(elements.constant(x).constant(matrix({1, 1}, {outside})).attribute("axis", std::int64_t{1}).convert());
    EXPECT_NE(elements.error().find("is outside"), std::string::npos) << elements.error();
    EXPECT_FALSE(tuples.constant(x).constant(matrix({1, 2}, {0, outside})).convert());
    EXPECT_NE(tuples.error().find("is outside"), std::string::npos) << tuples.error();
  }
}

TEST(OpsConvertIndexing, TopKReadsKWhereItsOpsetHasIt) {
  Node old("TopK", 9), since("TopK", 11), data("TopK", 11);
  const Tensor x = Tensor::ofFloats({4}, std::vector<double>{1, 4, 4, 3});
  ASSERT_TRUE(old.constant(x).attribute("k", std::int64_t{2}).convert(2)) << old.error();
  ASSERT_TRUE(since.constant(x).integers({3}).attribute("largest", std::int64_t{0}).convert(2)) << since.error();
  EXPECT_EQ(valuesOf(old.run("1")), (std::vector<double>{1, 2}));
  EXPECT_EQ(valuesOf(since.run("0")), (std::vector<double>{1, 3, 4}));
  EXPECT_FALSE(data.floats({4}).input(ElementType::i64, {1}).convert(2));
  EXPECT_EQ(data.exitCode(), ExitCode::unsupported);
}

TEST(OpsConvertIndexing, EinsumAgreesWithItsDefinition) {
  const auto run = [](const std::string& equation, std::vector<Tensor> inputs) {
    Node node("Einsum", 12);
    for (const Tensor& input : inputs) node.constant(input.convertedTo(ElementType::f32));
    EXPECT_TRUE(node.attribute("equation", equation).convert()) << equation << ": " << node.error();
    return valuesOf(node.run());
  };
  const Tensor a = matrix({2, 3}, {1, 2, 3, 4, 5, 6}), b = matrix({3, 2}, {1, 0, 2, 1, 0, 3}),
               v = matrix({3}, {1, 2, 3});
  EXPECT_EQ(run("ij,jk->ik", {a, b}), (std::vector<double>{5, 11, 14, 23}));
  EXPECT_EQ(run("ij,jk", {a, b}), (std::vector<double>{5, 11, 14, 23}));
  EXPECT_EQ(run("ij,jk,ki->", {a, b, matrix({2, 2}, {1, 0, 0, 1})}), (std::vector<double>{28}));
  EXPECT_EQ(run("ij, j -> i", {a, v}), (std::vector<double>{14, 32}));
  EXPECT_EQ(run("ij->ji", {a}), (std::vector<double>{1, 4, 2, 5, 3, 6}));
  EXPECT_EQ(run("i,j->ji", {v, matrix({2}, {1, 10})}), (std::vector<double>{1, 2, 3, 10, 20, 30}));
  EXPECT_EQ(run("...ii->...i", {matrix({2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8})}), (std::vector<double>{1, 4, 5, 8}));
  EXPECT_EQ(run("ii", {matrix({2, 2}, {1, 2, 3, 4})}), (std::vector<double>{5}));
  EXPECT_EQ(run("...j,...j->...", {a, matrix({1, 3}, {1, 1, 1})}), (std::vector<double>{6, 15}));
}

TEST(OpsConvertIndexing, EinsumRefusesWhatDoesNotFit) {
  const auto refuse = [](const std::string& equation, const std::string& message) {
    Node node("Einsum", 12);
    EXPECT_FALSE(node.floats({2, 3}).floats({3, 2}).attribute("equation", equation).convert()) << equation;
    EXPECT_NE(node.error().find(message), std::string::npos) << node.error();
  };
  refuse("ij->i", "1 terms for 2 inputs");
  refuse("ij,jkl->i", "term 'jkl' does not fit an input of rank 2");
  refuse("ij,ij->i", "a label has 2 and 3 elements");
  refuse("ij,jk->z", "has a label twice, or one that no input has");
  refuse("i1,jk->i", "not an equation");
}

TEST(OpsConvertIndexing, OneHotAndTriluAndCompress) {
  Node oneHot("OneHot", 11), trilu("Trilu", 14), compress("Compress", 11), reverse("ReverseSequence", 10);
  ASSERT_TRUE(oneHot.integers({1, -1, 5}).integers({3}).constant(matrix({2}, {7, 9})).convert()) << oneHot.error();
  EXPECT_EQ(valuesOf(oneHot.run()), (std::vector<double>{7, 9, 7, 7, 7, 9, 7, 7, 7}));
  ASSERT_TRUE(trilu.constant(matrix({2, 3}, {1, 2, 3, 4, 5, 6})).constant(matrix({}, {1})).convert()) << trilu.error();
  EXPECT_EQ(valuesOf(trilu.run()), (std::vector<double>{0, 2, 3, 0, 0, 6}));
  ASSERT_TRUE(compress.constant(matrix({2, 2}, {1, 2, 3, 4})).integers({0, 1, 1}).convert()) << compress.error();
  EXPECT_EQ(valuesOf(compress.run()), (std::vector<double>{2, 3}));
  ASSERT_TRUE(reverse.constant(matrix({3, 2}, {0, 1, 2, 3, 4, 5})).integers({3, 2}).convert()) << reverse.error();
  EXPECT_EQ(valuesOf(reverse.run()), (std::vector<double>{4, 3, 2, 1, 0, 5}));
}

TEST(OpsConvertIndexing, ModHasTheSignOfTheDivisorUnlessFmod) {
  const Tensor a = matrix({4}, {-7, 7, -7, 7}), b = matrix({4}, {3, -3, -3, 3});
  Node python("Mod", 13), c("Mod", 13), floats("Mod", 13);
  ASSERT_TRUE(python.constant(a).constant(b).convert());
  EXPECT_EQ(valuesOf(python.run()), (std::vector<double>{2, -2, -1, 1}));
  ASSERT_TRUE(c.constant(a).constant(b).attribute("fmod", std::int64_t{1}).convert());
  EXPECT_EQ(valuesOf(c.run()), (std::vector<double>{-1, 1, -1, 1}));
  EXPECT_FALSE(floats.floats({2}).floats({2}).convert());
}

TEST(OpsConvertIndexing, CumProdMultipliesUpToEachElement) {
  for (bool exclusive : {false, true})
    for (bool reverse : {false, true}) {
      Node node("CumProd", 26);
      ASSERT_TRUE(node.floats({2, 5, 3})
                      .integers({-2})
                      .attribute("exclusive", std::int64_t{exclusive})
                      .attribute("reverse", std::int64_t{reverse})
                      .convert())
          << node.error();
      const Tensor y = node.run(), x = Inputs(4).of(node.graph()).at("x0");
      ASSERT_EQ(y.shape(), x.shape());
      for (std::int64_t at = 0; at < x.elements(); ++at) {
        const std::int64_t i = at / 3 % 5;
        double product = 1;
        for (std::int64_t j = 0; j < 5; ++j)
          if ((j != i || !exclusive) && (reverse ? j >= i : j <= i)) product *= x.asDouble(at + (j - i) * 3);
        EXPECT_NEAR(y.asDouble(at), product, 1e-12 * std::abs(product));
      }
    }
}

TEST(OpsConvertIndexing, CumProdNeedsAnAxisOfItsInput) {
  Node node("CumProd", 26);
  EXPECT_FALSE(node.floats({2, 5}).integers({2}).convert());
  EXPECT_NE(node.error().find("'CumProd' operator has axis 2"), std::string::npos) << node.error();
}

TEST(OpsConvertIndexing, OfNoBooleansNoneIsTrueAndAllAre) {
  for (bool largest : {true, false}) {
    Node node(largest ? "ReduceMax" : "ReduceMin", 20);
    ASSERT_TRUE(node.constant(Tensor(Type{ElementType::boolean, {2, 0}})).integers({1}).convert()) << node.error();
    const Tensor y = node.run();
    ASSERT_EQ(y.type(), (Type{ElementType::boolean, {2, 1}}));
    for (std::int64_t i : {0, 1}) EXPECT_EQ(y.asInt(i), largest ? 0 : 1);
  }
}

TEST(OpsConvertIndexing, UniqueFindsEachElementOrSliceOnce) {
  const auto at = [](Node& node, const char* output) { return valuesOf(node.run(output)); };
  Node sorted("Unique", 11), met("Unique", 11), rows("Unique", 11), data("Unique", 11);
  ASSERT_TRUE(sorted.constant(matrix({2, 3}, {2, 1, 1, 3, 4, 3})).convert(4)) << sorted.error();
  EXPECT_EQ(at(sorted, "0"), (std::vector<double>{1, 2, 3, 4}));
  EXPECT_EQ(at(sorted, "1"), (std::vector<double>{1, 0, 3, 4}));
  EXPECT_EQ(at(sorted, "2"), (std::vector<double>{1, 0, 0, 2, 3, 2}));
  EXPECT_EQ(at(sorted, "3"), (std::vector<double>{2, 1, 2, 1}));
  ASSERT_TRUE(met.constant(matrix({3}, {2, 1, 2})).attribute("sorted", std::int64_t{0}).convert(4)) << met.error();
  EXPECT_EQ(at(met, "0"), (std::vector<double>{2, 1}));
  ASSERT_TRUE(rows.constant(matrix({3, 2}, {5, 1, 0, 1, 5, 1})).attribute("axis", std::int64_t{0}).convert(4));
  EXPECT_EQ(at(rows, "0"), (std::vector<double>{0, 1, 5, 1}));
  EXPECT_EQ(at(rows, "2"), (std::vector<double>{1, 0, 1}));
  EXPECT_FALSE(data.floats({3}).convert(4));
  EXPECT_EQ(data.exitCode(), ExitCode::unsupported);
}

TEST(OpsConvertIndexing, DeterminantsAreThoseOfElimination) {
  Node two("Det", 11), three("Det", 11), wide("Det", 11), large("Det", 11);
  ASSERT_TRUE(two.constant(matrix({2, 2}, {1, 2, 3, 4}).convertedTo(ElementType::f32)).convert());
  EXPECT_EQ(valuesOf(two.run()), (std::vector<double>{-2}));
  EXPECT_EQ(two.run().shape(), Shape{});
  ASSERT_TRUE(three.constant(matrix({1, 3, 3}, {2, -1, 3, 0, 4, 1, 5, 2, 7}).convertedTo(ElementType::f32)).convert());
  EXPECT_NEAR(three.run().asDouble(0), -13, 1e-12);
  EXPECT_FALSE(wide.floats({2, 3}).convert());
  EXPECT_EQ(wide.exitCode(), ExitCode::invalidInput);
  EXPECT_FALSE(large.floats({7, 7}).convert());
  EXPECT_EQ(large.error(), "m.onnx:n: error: 'Det' operator has matrices of 7 rows, pdc takes 1 to 6\n");
}

TEST(OpsConvertIndexing, BitsOfIntegersShift) {
  const auto bytes = [](std::vector<std::int64_t> values) {
    return Tensor::ofInts({static_cast<std::int64_t>(values.size())}, values, ElementType::u8);
  };
  Node left("BitShift", 11), right("BitShift", 11), nowhere("BitShift", 11), floats("BitwiseAnd", 18);
  ASSERT_TRUE(left.constant(bytes({129, 1, 7}))
                  .constant(bytes({1, 8, 0}))
                  .attribute("direction", std::string("LEFT"))
                  .convert());
  EXPECT_EQ(valuesOf(left.run()), (std::vector<double>{2, 0, 7}));
  ASSERT_TRUE(
      right.constant(bytes({129, 1})).constant(bytes({7, 70})).attribute("direction", std::string("RIGHT")).convert());
  EXPECT_EQ(valuesOf(right.run()), (std::vector<double>{1, 0}));
  const auto small = [](std::vector<std::int64_t> values) {
    return Tensor::ofInts({static_cast<std::int64_t>(values.size())}, values, ElementType::i8);
  };
  Node signedLeft("BitShift", 28), signedRight("BitShift", 28);
  ASSERT_TRUE(signedLeft.constant(small({65, 1, -1, 3}))
                  .constant(small({1, 8, 7, -1}))
                  .attribute("direction", std::string("LEFT"))
                  .convert());
  EXPECT_EQ(valuesOf(signedLeft.run()), (std::vector<double>{-126, 0, -128, 0}));
  ASSERT_TRUE(signedRight.constant(small({-128, -5, 5, -5, 100}))
                  .constant(small({3, 70, 70, -1, -2}))
                  .attribute("direction", std::string("RIGHT"))
                  .convert());
  EXPECT_EQ(valuesOf(signedRight.run()), (std::vector<double>{-16, -1, 0, -1, 0}));
  EXPECT_FALSE(nowhere.constant(bytes({1})).constant(bytes({1})).convert());
  EXPECT_FALSE(floats.floats({2}).floats({2}).convert());
  EXPECT_NE(floats.error().find("needs integers for 'bitAnd', these are f32"), std::string::npos) << floats.error();
}
