// LINK: pdcTransforms pdcOps
// Rows of padded positions that `skip-padding` leaves out: the loss, every gradient and every prediction are those of
// all rows, for masks of every kind. (test/Transforms/skip-padding.pdir has what is left as it is.)
#include "TransformsTesting.h"

using namespace pdc;
using namespace pdc::testing;

namespace {

/// Encoder layers over 3 texts of 8 positions, and what follows them.
std::string encoder(int layers, const std::string& low, const std::string& end) {
  std::string parameters, operations = R"(
    %none = constant {value = dense<i64[], [0]>} : i64[]
    %keep = not_equal %mask, %none : bool[3, 8]
    %flat = reshape %keep {shape = [24, 1]} : bool[24, 1]
    %places = constant {value = dense<i64[3, 8], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23]>} : i64[3, 8]
    %again = gather %flat, %places : bool[3, 8, 1]
    %row = reshape %again {shape = [3, 1, 1, 8]} : bool[3, 1, 1, 8]
    %zero = constant {value = dense<f32[], [0.0]>} : f32[]
    %low = constant {value = dense<f32[], [)" +
                                       low + R"(]>} : f32[]
    %hidden = where %row, %zero, %low : f32[3, 1, 1, 8])";
  std::string x = "%x";
  for (int i = 0; i < layers; ++i) {
    const std::string n = std::to_string(i);
    for (const char* w : {"q", "k", "v", "o"})
      parameters += "  param %" + (w + n) + " : f32[4, 4]\n  param %" + (w + n) + "b : f32[4]\n";
    parameters += "  param %up" + n + " : f32[4, 6]\n  param %down" + n + " : f32[6, 4]\n  param %scale" + n +
                  " : f32[4]\n  param %shift" + n + " : f32[4]\n";
    for (const char* w : {"q", "k", "v"})
      operations += "\n    %y" + (w + n) + " = linear " + x + ", %" + (w + n) + ", %" + (w + n) +
                    "b : f32[3, 8, 4]\n    %h" + (w + n) + " = reshape %y" + (w + n) +
                    " {shape = [3, 8, 2, 2]} : f32[3, 8, 2, 2]\n    %t" + (w + n) + " = transpose %h" + (w + n) +
                    " {permutation = [0, 2, 1, 3]} : f32[3, 2, 8, 2]";
    operations += "\n    %a" + n + ", %l" + n + ", %i" + n + " = dot_product_attention %tq" + n + ", %tk" + n +
                  ", %tv" + n + ", %hidden {scale = 0.7} : f32[3, 2, 8, 2], f32[3, 2, 8], f32[3, 2, 8]\n    %at" + n +
                  " = transpose %a" + n + " {permutation = [0, 2, 1, 3]} : f32[3, 8, 2, 2]\n    %ar" + n +
                  " = reshape %at" + n + " {shape = [3, 8, 4]} : f32[3, 8, 4]\n    %ao" + n + " = linear %ar" + n +
                  ", %o" + n + ", %o" + n + "b : f32[3, 8, 4]\n    %as" + n + " = add %ao" + n + ", " + x +
                  " : f32[3, 8, 4]\n    %n" + n + ", %m" + n + ", %r" + n + ", _, _ = layer_norm %as" + n + ", %scale" +
                  n + ", %shift" + n + " {axis = 2} : f32[3, 8, 4], f32[3, 8], f32[3, 8], _, _\n    %u" + n +
                  " = linear %n" + n + ", %up" + n + " : f32[3, 8, 6]\n    %g" + n + " = gelu %u" + n +
                  " : f32[3, 8, 6]\n    %d" + n + " = linear %g" + n + ", %down" + n + " : f32[3, 8, 4]\n    %e" + n +
                  " = add %d" + n + ", %n" + n + " : f32[3, 8, 4]";
    x = "%e" + n;
  }
  return "module @encoder {\n" + parameters +
         "  graph @main(%x: f32[3, 8, 4], %mask: i64[3, 8], %target: f32[3, 4] label) {" + operations +
         "\n    %last = add " + x + ", " + x + " : f32[3, 8, 4]\n" + end + R"(
    %wrong = sub %pooled, %target : f32[3, 4]
    %squares = mul %wrong, %wrong : f32[3, 4]
    %loss = reduce_mean %squares {axes = [0, 1], keep_dims = false} : f32[]
    loss %loss
  }
})";
}

const std::string
    lowest = "-3.4028235e+38",
    mean = R"(    %float = where %keep, %one, %zero : f32[3, 8]
    %column = reshape %float {shape = [3, 8, 1]} : f32[3, 8, 1]
    %counted = mul %last, %column : f32[3, 8, 4]
    %pooled = reduce_sum %counted {axes = [1], keep_dims = false} : f32[3, 4])",
    ones = "    %one = constant {value = dense<f32[], [1.0]>} : f32[]\n",
    first = R"(    %begin = slice %last {sizes = [3, 1, 4], starts = [0, 0, 0], steps = [1, 1, 1]} : f32[3, 1, 4]
    %pooled = reshape %begin {shape = [3, 4]} : f32[3, 4])",
    all = "    %pooled = reduce_mean %last {axes = [1], keep_dims = false} : f32[3, 4]";

std::size_t layersOfRows(Model& model) {
  std::size_t count = 0;
  for (const auto& operation : model.main().operations()) count += operation->def().name == "linear_of_rows";
  return count;
}

InterpreterResult resultOf(Model& model, const Tensors& inputs) {
  Diagnostics diags(nullptr);
  auto result = interpret(model.main(), inputs, randomParameters(*model.module, 5), Precision::f64, diags);
  EXPECT_TRUE(result);
  return result ? *result : InterpreterResult();
}

void expectClose(const std::map<std::string, Tensor>& is, const std::map<std::string, Tensor>& expected) {
  ASSERT_EQ(is.size(), expected.size());
  for (const auto& [name, tensor] : expected)
    for (std::int64_t i = 0; i < tensor.elements(); ++i)
      EXPECT_NEAR(is.at(name).asDouble(i), tensor.asDouble(i), 1e-12) << name;
}

void expectSame(const std::string& text, std::size_t layers) {
  Model whole(text), some(text);
  for (Model* model : {&whole, &some}) {
    model->run(differentiate);
    model->run(fuse);
  }
  some.run([](PassContext& context) {
    context.options["least"] = "1";
    return skipPadding(context);
  });
  EXPECT_EQ(layersOfRows(some), layers);
  const std::vector<std::vector<int>> masks = {{1, 1, 1, 1, 1, 1, 1, 1}, {1, 1, 1, 0, 0, 0, 0, 0},
                                               {0, 0, 0, 0, 0, 0, 0, 0}, {0, 0, 0, 1, 1, 1, 1, 1},
                                               {0, 1, 0, 1, 0, 1, 0, 7}, {1, 0, 0, 0, 0, 0, 0, 0}};
  for (std::size_t round = 0; round < masks.size(); ++round) {
    Tensors inputs = randomInputs(whole.main(), static_cast<unsigned>(round));
    Tensor& mask = inputs.at("mask");
    for (std::size_t i = 0; i < 24; ++i)
      mask.set(static_cast<std::int64_t>(i), masks[(round + i / 8) % masks.size()][i % 8]);
    const InterpreterResult expected = resultOf(whole, inputs), is = resultOf(some, inputs);
    EXPECT_NEAR(is.loss, expected.loss, 1e-12);
    expectClose(is.gradients, expected.gradients);
    expectClose(is.outputs, expected.outputs);
  }
}

TEST(SkipPadding, ComputesWhatAMeanOverPositionsThatCountReads) {
  expectSame(encoder(2, lowest, ones + mean), 12);
}

TEST(SkipPadding, ComputesTheFirstPositionAlways) {
  expectSame(encoder(2, lowest, first), 12);
}

// A mean over all positions reads them; of keys and values padded rows are hidden still.
TEST(SkipPadding, LeavesWhatIsRead) {
  expectSame(encoder(2, lowest, all), 4);
}

// Keys that scores of -10,000 hide may have weights: keys and values are computed.
TEST(SkipPadding, TakesNoFiniteScoreForHidden) {
  expectSame(encoder(1, "-10000.0", ones + mean), 4);
}

// A mask that hides other positions than it takes out of the mean: keys and values are computed.
TEST(SkipPadding, SeesThatAMaskIsMoved) {
  std::string text = encoder(1, lowest, ones + mean);
  const std::string places = "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23]",
                    moved = "[1, 0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23]";
  text.replace(text.find(places), places.size(), moved);
  expectSame(text, 4);
}

// With a causal mask, padded queries in front of a text see no key that counts, and hidden ones have equal weights.
TEST(SkipPadding, LeavesKeysThatSomeQueriesSeeAlone) {
  std::string text = encoder(1, lowest, all);
  std::string later = "[";
  for (int q = 0; q < 8; ++q)
    for (int k = 0; k < 8; ++k) later += std::string(q + k > 0 ? ", " : "") + (k > q ? lowest : "0.0");
  const std::string place = "%hidden = where %row, %zero, %low : f32[3, 1, 1, 8]";
  text.replace(text.find(place), place.size(),
               "%padded = where %row, %zero, %low : f32[3, 1, 1, 8]\n    %later = constant {value = dense<f32[1, 1, 8, "
               "8], " +
                   later +
                   "]>} : f32[1, 1, 8, 8]\n    %hidden = elementwise %padded, %later {expressions = [\"min(a0, a1)\"]} "
                   ": f32[3, 1, 8, 8]");
  expectSame(text, 0);
  text = encoder(1, lowest, all);
  const std::string scale = "{scale = 0.7}";
  text.replace(text.find(scale), scale.size(), "{causal = true, scale = 0.7}");
  expectSame(text, 0);
}

// Rows of zeros that are divided by their norm would be NaN, which a product with 0 does not remove.
TEST(SkipPadding, LeavesRowsThatAreDividedByWhatTheyMake) {
  const std::string norm = R"(    %products = mul %last, %last : f32[3, 8, 4]
    %sums = reduce_sum %products {axes = [2], keep_dims = true} : f32[3, 8, 1]
    %norms = sqrt %sums : f32[3, 8, 1]
    %units = div %last, %norms : f32[3, 8, 4]
)";
  std::string end = ones + norm + mean;
  end.replace(end.find("mul %last, %column"), 18, "mul %units, %column");
  expectSame(encoder(1, lowest, end), 2);
}

} // namespace
