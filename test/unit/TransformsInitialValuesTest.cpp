// LINK: pdcTransforms pdcOps
// The usual initialisation: which distribution a parameter gets from the ops that use it, and what is drawn from it.
// The rules themselves are held to PyTorch by test/Driver/init-agrees-with-pytorch.test.
#include "TransformsTesting.h"

#include "pdc/Transforms/InitialValues.h"

using namespace pdc;
using namespace pdc::testing;

namespace {

/// "w: U(-0.5, 0.5); b: 0" for the parameters of a module with `parameters` ("w : f32[2]; …") and a graph.
std::string valuesOf(const std::string& parameters, const std::string& inputs, const std::string& body) {
  std::string text = "module @m {\n";
  for (std::size_t begin = 0; begin < parameters.size();) {
    const std::size_t end = std::min(parameters.find(';', begin), parameters.size());
    text += "  param %" + parameters.substr(begin, end - begin) + "\n";
    begin = end + 2;
  }
  text += "  graph @main(" + inputs + ") {\n";
  std::istringstream lines(body);
  for (std::string line; std::getline(lines, line);) text += "    " + line + "\n";
  Model model(text + "    result \"y\" = %y\n  }\n}\n");
  if (!model.module) return "does not parse";
  const auto found = usualValues(model.main());
  std::string values;
  for (const auto& parameter : model.module->parameters)
    if (const auto at = found.find(parameter.get()); at != found.end())
      values += (values.empty() ? "" : "; ") + parameter->name + ": " + toString(at->second);
  return values;
}

TEST(UsualValues, AreThoseOfTheLayer) {
  EXPECT_EQ(valuesOf("w : f32[5, 16]; b : f32[5]", "%x: f32[2, 16]",
                     "%y = linear %x, %w, %b {transposed = true} : f32[2, 5]"),
            "w: U(-0.25, 0.25); b: U(-0.25, 0.25)");
  EXPECT_EQ(valuesOf("w : f32[16, 4]", "%x: f32[2, 16]", "%y = linear %x, %w : f32[2, 4]"), "w: U(-0.25, 0.25)");
  EXPECT_EQ(valuesOf("w : f32[4, 4, 1, 1]; b : f32[4]", "%x: f32[2, 8, 3, 3]",
                     "%y = conv2d %x, %w, %b {groups = 2} : f32[2, 4, 3, 3]"),
            "w: U(-0.5, 0.5); b: U(-0.5, 0.5)");
  EXPECT_EQ(valuesOf("s : f32[3]; b : f32[3]; m : f32[3] state; v : f32[3] state", "%x: f32[2, 3]",
                     "%y, %a, %c, _, _ = batch_norm_training %x, %s, %b, %m, %v {epsilon = 0.001, momentum = 0.9} : "
                     "f32[2, 3], f32[3], f32[3], _, _"),
            "s: 1; b: 0; m: 0; v: 1");
  EXPECT_EQ(valuesOf("s : f32[3]; b : f32[3]", "%x: f32[2, 3]",
                     "%y, _, _, _, _ = layer_norm %x, %s, %b {axis = 1} : f32[2, 3], _, _, _, _"),
            "s: 1; b: 0");
  EXPECT_EQ(valuesOf("t : f32[7, 3]", "%i: i64[2]", "%y = gather %t, %i : f32[2, 3]"), "t: N(0, 1²)");
}

// Not 1/sqrt(inputs) for the weights of the input, as a linear layer that stands alone would have.
TEST(UsualValues, OfARecurrentLayerAreThoseOfItsStates) {
  EXPECT_EQ(valuesOf("w : f32[16, 9]; b : f32[16]; r : f32[16, 4]; c : f32[2, 4]", "%x: f32[3, 2, 9]",
                     "%g = linear %x, %w, %b {transposed = true} : f32[3, 2, 16]\n"
                     "%y, _, _ = lstm %g, %r, _, %c : f32[3, 2, 4], _, _"),
            "w: U(-0.5, 0.5); b: U(-0.5, 0.5); r: U(-0.5, 0.5); c: 0");
  EXPECT_EQ(valuesOf("w : f32[12, 9]; r : f32[12, 4]; b : f32[12]", "%x: f32[3, 2, 9]",
                     "%g = linear %x, %w {transposed = true} : f32[3, 2, 12]\n"
                     "%y, _ = gru %g, %r, %b : f32[3, 2, 4], _"),
            "w: U(-0.5, 0.5); r: U(-0.5, 0.5); b: U(-0.5, 0.5)");
}

TEST(UsualValues, FollowWeightsToTheOpThatUsesThem) {
  EXPECT_EQ(valuesOf("w : f32[3, 4, 4]", "%x: f32[2, 16]",
                     "%t = transpose %w {permutation = [1, 2, 0]} : f32[4, 4, 3]\n"
                     "%r = reshape %t {shape = [16, 3]} : f32[16, 3]\n%y = matmul %x, %r : f32[2, 3]"),
            "w: U(-0.25, 0.25)");
  // Two parts in another order, and the sum of two biases.
  EXPECT_EQ(valuesOf("w : f32[4, 16]; a : f32[4]; b : f32[4]", "%x: f32[2, 16]",
                     "%p = slice %w {sizes = [1, 16], starts = [3, 0], steps = [1, 1]} : f32[1, 16]\n"
                     "%q = slice %w {sizes = [3, 16], starts = [0, 0], steps = [1, 1]} : f32[3, 16]\n"
                     "%c = concat %p, %q {axis = 0} : f32[4, 16]\n%s = add %a, %b : f32[4]\n"
                     "%y = linear %x, %c, %s {transposed = true} : f32[2, 4]"),
            "w: U(-0.25, 0.25); a: U(-0.25, 0.25); b: U(-0.25, 0.25)");
}

TEST(UsualValues, OfTermsAndFactors) {
  const std::string product = "%p = matmul %x, %w : f32[2, 3, 4]\n";
  EXPECT_EQ(
      valuesOf("w : f32[16, 4]; b : f32[1, 1, 4]", "%x: f32[2, 3, 16]", product + "%y = add %b, %p : f32[2, 3, 4]"),
      "w: U(-0.25, 0.25); b: U(-0.25, 0.25)");
  EXPECT_EQ(valuesOf("b : f32[4]; s : f32[4]; t : f32[3, 4]", "%x: f32[2, 3, 4]",
                     "%p = mul %x, %s : f32[2, 3, 4]\n%q = add %p, %b : f32[2, 3, 4]\n%y = add %q, %t : f32[2, 3, 4]"),
            "b: 0; s: 1; t: N(0, 0.02²)");
  EXPECT_EQ(valuesOf("c : f32[1, 1, 4]", "%x: f32[2, 3, 4]",
                     "%b = broadcast %c {shape = [2, 1, 4]} : f32[2, 1, 4]\n"
                     "%y = concat %b, %x {axis = 1} : f32[2, 4, 4]"),
            "c: N(0, 0.02²)");
}

TEST(UsualValues, TheFirstUseSays) {
  EXPECT_EQ(valuesOf("t : f32[7, 4]", "%i: i64[2]",
                     "%e = gather %t, %i : f32[2, 4]\n%y = linear %e, %t {transposed = true} : f32[2, 7]"),
            "t: N(0, 1²)");
}

TEST(UsualValues, AreUnknownWhereNoOpSays) {
  EXPECT_EQ(valuesOf("e : f32[4]", "%x: f32[2, 4]", "%y = pow %x, %e : f32[2, 4]"), "");
  // Attention: both are computed.
  EXPECT_EQ(valuesOf("w : f32[16, 16]", "%x: f32[2, 16]",
                     "%q = linear %x, %w : f32[2, 16]\n%y = matmul %q, %x {transpose_b = true} : f32[2, 2]"),
            "w: U(-0.25, 0.25)");
}

struct Moments {
  double mean = 0, deviation = 0, least = 0, most = 0;
};

Moments momentsOf(const Tensor& tensor) {
  Moments m;
  const auto n = static_cast<double>(tensor.elements());
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    const double x = tensor.asDouble(i);
    m.mean += x / n;
    m.deviation += x * x / n;
    m.least = std::min(m.least, x), m.most = std::max(m.most, x);
  }
  m.deviation = std::sqrt(m.deviation - m.mean * m.mean);
  return m;
}

// Five standard errors: a wrong generator, not bad luck.
TEST(DrawnValues, HaveTheMomentsOfTheirDistribution) {
  const Type type{ElementType::f32, {400, 251}};
  const double n = static_cast<double>(type.elements());
  const Moments uniform = momentsOf(drawnTensor({{InitialValues::Kind::uniform, 0.5}, 3}, "w", type));
  EXPECT_NEAR(uniform.mean, 0, 5 * 0.5 / std::sqrt(3 * n));
  EXPECT_NEAR(uniform.deviation, 0.5 / std::sqrt(3), 5 * 0.5 / std::sqrt(5 * n));
  EXPECT_GE(uniform.least, -0.5);
  EXPECT_LT(uniform.least, -0.4999);
  EXPECT_LE(uniform.most, 0.5);
  EXPECT_GT(uniform.most, 0.4999);
  const Moments normal = momentsOf(drawnTensor({{InitialValues::Kind::normal, 2}, 3}, "w", type));
  EXPECT_NEAR(normal.mean, 0, 5 * 2 / std::sqrt(n));
  EXPECT_NEAR(normal.deviation, 2, 5 * 2 / std::sqrt(2 * n));
  EXPECT_GT(normal.most, 2 * 3.8); // a normal's tails
  EXPECT_LT(normal.most, 2 * 6.0);
}

TEST(DrawnValues, AreAFunctionOfNameSeedAndPosition) {
  const DrawnValues drawn{{InitialValues::Kind::normal, 1}, 3};
  const Type type{ElementType::f32, {103}};
  const Tensor values = drawnTensor(drawn, "w", type);
  EXPECT_TRUE(values.equals(drawnTensor(drawn, "w", type)));
  const Tensor longer = drawnTensor(drawn, "w", {ElementType::f32, {2, 103}});
  const Tensor otherName = drawnTensor(drawn, "v", type), otherSeed = drawnTensor({drawn.values, 4}, "w", type);
  double withName = 0, withSeed = 0, withNext = 0;
  for (std::int64_t i = 0; i < 103; ++i) {
    EXPECT_EQ(values.asDouble(i), longer.asDouble(i));
    withName += values.asDouble(i) * otherName.asDouble(i) / 103;
    withSeed += values.asDouble(i) * otherSeed.asDouble(i) / 103;
    withNext += values.asDouble(i) * longer.asDouble(i + 1) / 103;
  }
  for (double correlation : {withName, withSeed, withNext}) EXPECT_LT(std::fabs(correlation), 5 / std::sqrt(103.0));
}

TEST(DrawnValues, ConstantsAndOtherTypes) {
  const Tensor ones = drawnTensor({{InitialValues::Kind::constant, 1}, 3}, "w", {ElementType::bf16, {5}});
  for (std::int64_t i = 0; i < 5; ++i) EXPECT_EQ(ones.asDouble(i), 1);
  const DrawnValues drawn{{InitialValues::Kind::uniform, 1}, 3};
  const Tensor exact = drawnTensor(drawn, "w", {ElementType::f64, {9}});
  EXPECT_TRUE(drawnTensor(drawn, "w", {ElementType::f16, {9}}).equals(exact.convertedTo(ElementType::f16)));
}

} // namespace
