// LINK: pdcTransforms pdcOps
// Attention in exporters' pieces: what `raise` makes one op of, and what it leaves alone. The interpreter computes
// every graph before and after, the loss and the gradients of what it is trained on.
#include "TransformsTesting.h"

#include <limits>

using namespace pdc;
using namespace pdc::testing;

namespace {

/// What a graph computes %y, its output, from: parameters %q, %k and %v with 2 samples, 4 heads, 6 positions and
/// size 3.
struct Pieces {
  std::string body; ///< the operations
  std::string inputs = "";
  std::string keys = "f32[2, 4, 6, 3]"; ///< of keys and values
};

std::string textOf(const Pieces& p) {
  std::string text = "module @m {\n  param %q : f32[2, 4, 6, 3]\n  param %k : " + p.keys + "\n  param %v : " + p.keys +
                     "\n  graph @main(" + p.inputs + ") {\n";
  const std::pair<const char*, const char*> constants[] = {{"half", "0.5"},       {"zero", "0.0"},
                                                           {"root", "1.5"},       {"lowest", "-3.4028235e+38"},
                                                           {"minus_inf", "-inf"}, {"minus_10000", "-10000.0"}};
  for (const auto& [name, value] : constants)
    if (p.body.find("%" + std::string(name)) != std::string::npos)
      text += std::string("    %") + name + " = constant {value = dense<f32[], [" + value + "]>} : f32[]\n";
  return text + p.body + "    result \"y\" = %y\n  }\n}\n";
}

constexpr const char* scoresShape = "f32[2, 4, 6, 6]";

std::string op(const std::string& result, const std::string& what, const std::string& type = scoresShape) {
  return "    %" + result + " = " + what + " : " + type + "\n";
}
std::string products() {
  return op("s", "matmul %q, %k {transpose_b = true}");
}
/// From the scores %`scores` on.
std::string weighted(const std::string& scores) {
  return op("p", "softmax %" + scores) + op("y", "matmul %p, %v", "f32[2, 4, 6, 3]");
}

/// 6 x 6 values, f(query, key).
template <class F>
std::string table(const std::string& type, F f) {
  std::string values;
  for (int i = 0; i < 6; ++i)
    for (int j = 0; j < 6; ++j) values += (values.empty() ? "" : ", ") + std::string(f(i, j));
  return "constant {value = dense<" + type + "[6, 6], [" + values + "]>}";
}

std::string opsOf(const Graph& graph) {
  std::string names;
  for (const auto& operation : graph.operations())
    if (operation->def().kind != OpKind::constant) names += (names.empty() ? "" : " ") + operation->def().name;
  return names;
}

/// Raises the graph, whose value and gradients must stay, and returns the ops that are left.
std::string raised(const Pieces& pieces, Tensors inputs = {}) {
  const std::string text = textOf(pieces);
  Model model(text);
  if (!model.module) return "does not parse";
  for (const auto& [name, tensor] : randomInputs(model.main(), 3)) inputs.emplace(name, tensor);
  const Tensors parameters = randomParameters(*model.module, 4);
  const Tensors before = squaresOf(text, false, inputs, parameters), after = squaresOf(text, true, inputs, parameters);
  EXPECT_EQ(before.size(), after.size());
  for (const auto& [name, tensor] : before) {
    EXPECT_EQ(tensor.type(), after.at(name).type());
    for (std::int64_t i = 0; i < tensor.elements(); ++i)
      EXPECT_NEAR(after.at(name).asDouble(i), tensor.asDouble(i), 1e-9) << name << "\n" << text;
  }
  model.run(pdc::raise);
  return opsOf(model.main()) + (print(model.main()).find("causal = true") != std::string::npos ? ", causal" : "");
}

} // namespace

TEST(RaiseAttention, WhereverTheFactorStands) {
  EXPECT_EQ(raised({products() + weighted("s")}), "dot_product_attention");
  EXPECT_EQ(raised({products() + op("t", "div %s, %root") + weighted("t")}), "dot_product_attention");
  EXPECT_EQ(raised({products() + op("t", "mul %half, %s") + weighted("t")}), "dot_product_attention");
  const std::string small = "f32[2, 4, 6, 3]";
  EXPECT_EQ(raised({op("a", "mul %q, %half", small) + op("b", "div %k, %root", small) +
                    op("s", "matmul %a, %b {transpose_b = true}") + op("t", "mul %s, %half") + weighted("t")}),
            "dot_product_attention");
}

TEST(RaiseAttention, WithKeysTransposedApart) {
  EXPECT_EQ(raised({op("t", "transpose %k {permutation = [0, 1, 3, 2]}", "f32[2, 4, 3, 6]") + op("s", "matmul %q, %t") +
                    weighted("s")}),
            "dot_product_attention");
}

TEST(RaiseAttention, WithKeysTransposedBeforeTheyAreScaled) {
  EXPECT_EQ(raised({op("t", "transpose %k {permutation = [0, 1, 3, 2]}", "f32[2, 4, 3, 6]") +
                    op("u", "mul %t, %half", "f32[2, 4, 3, 6]") + op("s", "matmul %q, %u") + weighted("s")}),
            "dot_product_attention");
  EXPECT_EQ(raised({op("t", "transpose %k {permutation = [0, 1, 3, 2]}", "f32[2, 4, 3, 6]") +
                        op("u", "mul %t, %f", "f32[2, 4, 3, 6]") + op("s", "matmul %q, %u") + weighted("s"),
                    "%f: f32[2, 4, 3, 6]"}),
            "transpose mul matmul softmax matmul");
}

TEST(RaiseAttention, WithWhateverIsAdded) {
  for (const char* type : {"f32[2, 1, 1, 6]", "f32[6]", "f32[4, 6, 6]", "f32[2, 4, 6, 6]"}) {
    Pieces pieces{products() + op("m", "add %mask, %s") + weighted("m"), "%mask: " + std::string(type)};
    const std::string ops = raised(pieces);
    EXPECT_TRUE(ops == "dot_product_attention" || ops == "reshape dot_product_attention") << type << ops;
  }
}

TEST(RaiseAttention, CausalWhereAConstantSaysSo) {
  const auto after = [](const char* hidden) { return [hidden](int i, int j) { return j > i ? hidden : "0.0"; }; };
  EXPECT_EQ(
      raised({op("c", table("f32", after("-inf")), "f32[6, 6]") + products() + op("m", "add %s, %c") + weighted("m")}),
      "dot_product_attention, causal");
  const std::string visible =
      op("c", table("bool", [](int i, int j) { return j > i ? "false" : "true"; }), "bool[6, 6]");
  const std::string hidden =
      op("c", table("bool", [](int i, int j) { return j > i ? "true" : "false"; }), "bool[6, 6]");
  EXPECT_EQ(raised({visible + products() + op("m", "where %c, %s, %lowest") + weighted("m")}),
            "dot_product_attention, causal");
  EXPECT_EQ(
      raised({hidden + products() + op("t", "div %s, %root") + op("m", "where %c, %minus_inf, %t") + weighted("m")}),
      "dot_product_attention, causal");
  // A finite number that is added hides nothing altogether, one key more is hidden, and one less.
  EXPECT_EQ(raised({op("c", table("f32", after("-10000.0")), "f32[6, 6]") + products() + op("m", "add %s, %c") +
                    weighted("m")}),
            "reshape dot_product_attention");
  EXPECT_EQ(raised({op("c", table("bool", [](int i, int j) { return j > i || (i == 3 && j == 1) ? "true" : "false"; }),
                       "bool[6, 6]") +
                    products() + op("m", "where %c, %lowest, %s") + weighted("m")}),
            "reshape dot_product_attention");
  EXPECT_EQ(
      raised({op("c", table("bool", [](int i, int j) { return j > i && j != 4 ? "true" : "false"; }), "bool[6, 6]") +
              products() + op("m", "where %c, %lowest, %s") + weighted("m")}),
      "reshape dot_product_attention");
}

TEST(RaiseAttention, WithAMaskThatHidesAllKeysOfAQuery) {
  // Its weights are equal, and its scores get no gradient.
  Tensor mask(Type{ElementType::boolean, {2, 1, 6, 6}});
  for (std::int64_t i = 0; i < mask.elements(); ++i) mask.set(i, i / 6 == 2 || i % 5 == 0);
  EXPECT_EQ(raised({products() + op("m", "where %mask, %lowest, %s") + weighted("m"), "%mask: bool[2, 1, 6, 6]"},
                   {{"mask", mask}}),
            "where dot_product_attention");
  EXPECT_EQ(
      raised({op("c", table("bool", [](int i, int j) { return i == 2 || i == j ? "true" : "false"; }), "bool[6, 6]") +
              products() + op("m", "where %c, %lowest, %s") + weighted("m")}),
      "reshape dot_product_attention");
}

/// From the masked scores %m on, as PyTorch's exporter makes 0 of a softmax of nothing but -inf.
static std::string weightedUnlessNaN() {
  return op("p", "softmax %m") + op("n", "elementwise %p {expressions = [\"a0 != a0\"]}", "bool[2, 4, 6, 6]") +
         op("w", "where %n, %zero, %p") + op("y", "matmul %w, %v", "f32[2, 4, 6, 3]");
}

TEST(RaiseAttention, WithRowsPutAsideThatNoMaskHides) {
  EXPECT_EQ(raised({op("b", "where %mask, %zero, %lowest", "f32[2, 1, 6, 6]") + products() + op("m", "add %s, %b") +
                        weightedUnlessNaN(),
                    "%mask: bool[2, 1, 6, 6]"}),
            "where dot_product_attention");
  EXPECT_EQ(raised({op("c", table("f32", [](int i, int j) { return j > i ? "-inf" : "0.0"; }), "f32[6, 6]") +
                    products() + op("m", "add %s, %c") + weightedUnlessNaN()}),
            "dot_product_attention, causal");
  EXPECT_EQ(raised({op("c", table("f32", [](int i, int j) { return j == 5 && i > 2 ? "-inf" : "0.5"; }), "f32[6, 6]") +
                    products() + op("m", "add %s, %c") + weightedUnlessNaN()}),
            "reshape dot_product_attention");
  EXPECT_EQ(raised({op("m", "matmul %q, %k {transpose_b = true}") + weightedUnlessNaN()}), "dot_product_attention");
}

/// A guard whose rows are those of `largest`, over the masked scores %m of a mask %b.
static std::string guarded(const std::string& largest) {
  const std::string aside = " {expressions = [\"select(a0 == -inf, 0, a1)\"]}";
  return op("m", "add %s, %b") + largest + op("safe", "elementwise %largest, %m" + aside) + op("p", "softmax %safe") +
         op("w", "elementwise %largest, %p" + aside) + op("y", "matmul %w, %v", "f32[2, 4, 6, 3]");
}

TEST(RaiseAttention, WithRowsPutAsideThatAMaskMayHide) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  Tensor mask(Type{ElementType::f32, {2, 1, 6, 6}}); // nothing is seen by the third query, and by all of a sample
  for (std::int64_t i = 0; i < mask.elements(); ++i)
    mask.set(i, i / 6 == 2 || i / 36 == 1 || i % 5 == 0 ? -infinity : 0.25);
  const std::string ofMasked = op("largest", "reduce_max %m {axes = [3], keep_dims = true}", "f32[2, 4, 6, 1]"),
                    ofMask = op("largest", "reduce_max %b {axes = [3], keep_dims = true}", "f32[2, 1, 6, 1]");
  for (const std::string& largest : {ofMask, ofMasked})
    EXPECT_EQ(raised({products() + guarded(largest), "%b: f32[2, 1, 6, 6]"}, {{"b", mask}}),
              "reduce_max elementwise dot_product_attention elementwise");
  std::string values;
  for (int i = 0; i < 36; ++i) values += (i ? ", " : "") + std::string(i / 6 == 2 || i == 0 ? "-inf" : "0.0");
  EXPECT_EQ(raised({"    %b = constant {value = dense<f32[1, 6, 6], [" + values + "]>} : f32[1, 6, 6]\n" + products() +
                    guarded(ofMasked)}),
            "reduce_max elementwise reshape dot_product_attention elementwise");
}

TEST(RaiseAttention, NotWhereOtherRowsArePutAside) {
  // The guard asks for the largest of something else, over another axis, and somebody else asks, too.
  const std::string other = op("largest", "reduce_max %o {axes = [3], keep_dims = true}", "f32[2, 4, 6, 1]"),
                    across = op("largest", "reduce_max %m {axes = [2], keep_dims = true}", "f32[2, 4, 1, 6]"),
                    ofMasked = op("largest", "reduce_max %m {axes = [3], keep_dims = true}", "f32[2, 4, 6, 1]");
  const std::string ops = "matmul add reduce_max elementwise softmax elementwise matmul";
  EXPECT_EQ(raised({products() + guarded(other), "%b: f32[2, 1, 6, 6], %o: f32[2, 4, 6, 6]"}), ops);
  EXPECT_EQ(raised({products() + guarded(across), "%b: f32[2, 1, 6, 6]"}), ops);
  std::string read = products() + guarded(ofMasked);
  read.replace(read.find("%y ="), 2, "%z");
  EXPECT_EQ(raised({read + op("y", "mul %z, %largest", "f32[2, 4, 6, 3]"), "%b: f32[2, 1, 6, 6]"}), ops + " mul");
}

TEST(RaiseAttention, WithDropoutOfItsWeights) {
  const std::string dropped =
      op("p", "softmax %s") +
      op("d, %mask", "dropout %p {op_number = 5, ratio = 0.25}", "f32[2, 4, 6, 6], u8[2, 4, 6, 6]") +
      op("y", "matmul %d, %v", "f32[2, 4, 6, 3]");
  EXPECT_EQ(raised({products() + dropped}), "dropout_attention");
  EXPECT_EQ(raised({products() + op("p", "softmax %s") +
                    op("d, %mask", "dropout %p {op_number = 5, ratio = 0.25}", "f32[2, 4, 6, 6], u8[2, 4, 6, 6]") +
                    op("z", "matmul %d, %v", "f32[2, 4, 6, 3]") + op("y", "matmul %d, %z", "f32[2, 4, 6, 3]")}),
            "matmul softmax dropout matmul matmul");
}

TEST(RaiseAttention, WithHeadsThatShareKeys) {
  const auto copies = [](const std::string& x) {
    return op(x + "1", "reshape %" + x + " {shape = [2, 2, 1, 6, 3]}", "f32[2, 2, 1, 6, 3]") +
           op(x + "2", "broadcast %" + x + "1 {shape = [2, 2, 2, 6, 3]}", "f32[2, 2, 2, 6, 3]") +
           op(x + "3", "reshape %" + x + "2 {shape = [2, 4, 6, 3]}", "f32[2, 4, 6, 3]");
  };
  EXPECT_EQ(raised({copies("k") + copies("v") + op("s", "matmul %q, %k3 {transpose_b = true}") + op("p", "softmax %s") +
                        op("y", "matmul %p, %v3", "f32[2, 4, 6, 3]"),
                    "", "f32[2, 2, 6, 3]"}),
            "dot_product_attention");
  // Copies of the whole list of heads, instead of each head.
  const std::string tiled = op("k1", "reshape %k {shape = [2, 1, 2, 6, 3]}", "f32[2, 1, 2, 6, 3]") +
                            op("k2", "broadcast %k1 {shape = [2, 2, 2, 6, 3]}", "f32[2, 2, 2, 6, 3]") +
                            op("k3", "reshape %k2 {shape = [2, 4, 6, 3]}", "f32[2, 4, 6, 3]");
  EXPECT_EQ(raised({tiled + copies("v") + op("s", "matmul %q, %k3 {transpose_b = true}") + op("p", "softmax %s") +
                        op("y", "matmul %p, %v3", "f32[2, 4, 6, 3]"),
                    "", "f32[2, 2, 6, 3]"}),
            "reshape broadcast reshape reshape broadcast reshape dot_product_attention");
}

TEST(RaiseAttention, NotFromNearMisses) {
  // Weights or scores that somebody else reads, too.
  EXPECT_EQ(raised({products() + op("p", "softmax %s") + op("z", "matmul %p, %v", "f32[2, 4, 6, 3]") +
                    op("o", "matmul %p, %z", "f32[2, 4, 6, 3]") + op("y", "add %z, %o", "f32[2, 4, 6, 3]")}),
            "matmul softmax matmul matmul add");
  // A softmax of something that is no product, and of a product of something else with transposed weights.
  EXPECT_EQ(raised({products() + op("t", "tanh %s") + weighted("t")}), "matmul tanh softmax matmul");
  EXPECT_EQ(
      raised({products() + op("p", "softmax %s") + op("y", "matmul %p, %v {transpose_a = true}", "f32[2, 4, 6, 3]")}),
      "matmul softmax matmul");
  // A mask that puts a number that scores may have, and one without an axis for keys.
  const std::string mask = "%mask: bool[2, 1, 1, 6]";
  EXPECT_EQ(raised({products() + op("m", "where %mask, %minus_10000, %s") + weighted("m"), mask}),
            "matmul where softmax matmul");
  EXPECT_EQ(raised({products() + op("m", "add %s, %mask") + weighted("m"), "%mask: f32[2, 1, 6, 1]"}),
            "matmul add softmax matmul");
  // The factor is no number.
  EXPECT_EQ(raised({products() + op("t", "mul %s, %f") + weighted("t"), "%f: f32[2, 4, 6, 6]"}),
            "matmul mul softmax matmul");
}
