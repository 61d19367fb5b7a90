// LINK: pdcTransforms pdcOps
// What `raise` recognises of exporters' spellings, and what it leaves alone. The interpreter computes every graph
// before and after: a rewrite may not change a value, whether it was meant to fire or not.
#include "TransformsTesting.h"

using namespace pdc;
using namespace pdc::testing;

namespace {

/// A graph over %x: f32[2, 3, 8], parameters %w and %b of f32[8], and constants %one, %two, …; `body` ends with %y.
std::string graphOf(const std::string& body) {
  std::string text = "module @m {\n  param %w : f32[8]\n  param %b : f32[8]\n  graph @main(%x: f32[2, 3, 8]) {\n";
  const std::pair<const char*, const char*> constants[] = {{"one", "1.0"},
                                                           {"two", "2.0"},
                                                           {"half", "0.5"},
                                                           {"eps", "1e-05"},
                                                           {"minus_half", "-0.5"},
                                                           {"three", "3.0"},
                                                           {"third", "0.33333334"},
                                                           {"root2", "1.4142135"},
                                                           {"inverse2", "0.70710677"},
                                                           {"cubic", "0.044715"},
                                                           {"rootpi", "0.7978846"},
                                                           {"near", "0.0447"},
                                                           {"eight_sevenths", "1.1428572"},
                                                           {"quick", "1.702"},
                                                           {"thousand", "1000.0"},
                                                           {"zero", "0.0"}};
  for (const auto& [name, value] : constants)
    if (body.find("%" + std::string(name)) != std::string::npos)
      text += std::string("    %") + name + " = constant {value = dense<f32[], [" + value + "]>} : f32[]\n";
  return text + body + "    result \"y\" = %y\n  }\n}\n";
}

std::string op(const std::string& result, const std::string& what, const char* shape = "[2, 3, 8]") {
  return "    %" + result + " = " + what + " : f32" + shape + "\n";
}

/// The ops of the graph that are no constants: "layer_norm add".
std::string opsOf(const Graph& graph) {
  std::string names;
  for (const auto& operation : graph.operations())
    if (operation->def().kind != OpKind::constant) names += (names.empty() ? "" : " ") + operation->def().name;
  return names;
}

/// Raises `body`, whose values must stay, and returns the ops that are left.
std::string raised(const std::string& body) {
  Model model(graphOf(body));
  if (!model.module) return "does not parse";
  const Tensors inputs = randomInputs(model.main(), 3), parameters = randomParameters(*model.module, 4);
  const Tensor before = runGraph(model.main(), inputs, parameters, Precision::f64).outputs.at("y");
  model.run(pdc::raise);
  const Tensor after = runGraph(model.main(), inputs, parameters, Precision::f64).outputs.at("y");
  EXPECT_EQ(before.type(), after.type());
  for (std::int64_t i = 0; i < before.elements(); ++i)
    EXPECT_NEAR(after.asDouble(i), before.asDouble(i), 1e-6) << print(*model.module);
  return opsOf(model.main());
}

const char* const rows = "[2, 3, 1]";
const std::string mean = " {axes = [2], keep_dims = true}";

std::string centre() {
  return op("m", "reduce_mean %x" + mean, rows) + op("d", "sub %x, %m");
}
/// %s = sqrt(mean of the square of `of` + epsilon).
std::string deviation(const std::string& of) {
  return op("q", "mul " + of + ", " + of) + op("v", "reduce_mean %q" + mean, rows) + op("a", "add %v, %eps", rows) +
         op("s", "sqrt %a", rows);
}

} // namespace

TEST(RaiseLayerNorm, FromPyTorchsPieces) {
  const std::string normal = centre() + deviation("%d");
  EXPECT_EQ(raised(normal + op("y", "div %d, %s")), "layer_norm");
  EXPECT_EQ(raised(normal + op("n", "div %d, %s") + op("g", "mul %n, %w") + op("y", "add %g, %b")), "layer_norm");
  EXPECT_EQ(raised(normal + op("n", "div %d, %s") + op("g", "mul %w, %n") + op("y", "add %b, %g")), "layer_norm");
  EXPECT_EQ(raised(normal + op("n", "div %d, %s") + op("y", "add %n, %b")), "layer_norm");
}

TEST(RaiseLayerNorm, WithTheInverseOfTheRoot) {
  const std::string normal = centre() + deviation("%d");
  EXPECT_EQ(raised(normal + op("r", "reciprocal %s", rows) + op("y", "mul %d, %r")), "layer_norm");
  EXPECT_EQ(raised(normal + op("r", "div %one, %s", rows) + op("y", "mul %r, %d")), "layer_norm");
  EXPECT_EQ(raised(normal + op("r", "pow %a, %minus_half", rows) + op("y", "mul %d, %r")), "layer_norm");
}

TEST(RaiseLayerNorm, WithDifferenceAndSquareComputedApart) {
  EXPECT_EQ(raised(centre() + op("e", "sub %x, %m") + op("q", "pow %e, %two") + op("v", "reduce_mean %q" + mean, rows) +
                   op("a", "add %eps, %v", rows) + op("s", "pow %a, %half", rows) + op("y", "div %d, %s")),
            "layer_norm");
}

TEST(RaiseLayerNorm, WithTheMeanFoldedIntoTheBias) {
  const std::string inverse = centre() + deviation("%d") + op("r", "reciprocal %s", rows);
  const std::string rest = op("k", "mul %x, %a2") + op("u", "mul %m, %a2") + op("z", "sub %b, %u");
  EXPECT_EQ(raised(inverse + op("a2", "mul %r, %w") + rest + op("y", "add %k, %z")), "layer_norm");
  EXPECT_EQ(raised(inverse + op("k", "mul %r, %x") + op("u", "mul %m, %r", rows) + op("z", "sub %b, %u") +
                   op("y", "add %z, %k")),
            "layer_norm");
  // The bias is subtracted from.
  EXPECT_EQ(raised(inverse + op("a2", "mul %r, %w") + op("k", "mul %x, %a2") + op("u", "mul %m, %a2") +
                   op("z", "sub %u, %b") + op("y", "add %k, %z")),
            "reduce_mean sub mul reduce_mean add sqrt reciprocal mul mul mul sub add");
  // The factor of the mean is another.
  EXPECT_EQ(raised(inverse + op("a2", "mul %r, %w") + op("k", "mul %x, %a2") + op("u", "mul %m, %r", rows) +
                   op("z", "sub %b, %u") + op("y", "add %k, %z")),
            "reduce_mean sub mul reduce_mean add sqrt reciprocal mul mul mul sub add");
}

TEST(RaiseLayerNorm, NotFromNearMisses) {
  // The variance of a sample, divided by n - 1.
  EXPECT_EQ(raised(centre() + op("q", "mul %d, %d") + op("v", "reduce_mean %q" + mean, rows) +
                   op("u", "mul %v, %eight_sevenths", rows) + op("a", "add %u, %eps", rows) + op("s", "sqrt %a", rows) +
                   op("y", "div %d, %s")),
            "reduce_mean sub mul reduce_mean mul add sqrt div");
  // The epsilon outside of the root.
  EXPECT_EQ(raised(centre() + op("q", "mul %d, %d") + op("v", "reduce_mean %q" + mean, rows) +
                   op("s", "sqrt %v", rows) + op("a", "add %s, %eps", rows) + op("y", "div %d, %a")),
            "reduce_mean sub mul reduce_mean elementwise add div"); // a length, see RaiseLength
  // Mean and variance over different axes.
  EXPECT_EQ(raised(op("m", "reduce_mean %x {axes = [1, 2], keep_dims = true}", "[2, 1, 1]") + op("d", "sub %x, %m") +
                   deviation("%d") + op("y", "div %d, %s")),
            "reduce_mean sub rms_norm");
  // Axes that are not the last ones.
  EXPECT_EQ(raised(op("m", "reduce_mean %x {axes = [1], keep_dims = true}", "[2, 1, 8]") + op("d", "sub %x, %m") +
                   op("q", "mul %d, %d") + op("v", "reduce_mean %q {axes = [1], keep_dims = true}", "[2, 1, 8]") +
                   op("a", "add %v, %eps", "[2, 1, 8]") + op("s", "sqrt %a", "[2, 1, 8]") + op("y", "div %d, %s")),
            "reduce_mean sub mul reduce_mean add sqrt div");
  // A scale that is one number, and a normalisation that somebody else reads too.
  const std::string normal = centre() + deviation("%d") + op("n", "div %d, %s");
  EXPECT_EQ(raised(normal + op("y", "mul %n, %two")), "layer_norm mul");
  EXPECT_EQ(raised(normal + op("g", "mul %n, %w") + op("y", "add %g, %n")), "layer_norm mul add");
  // A product after the bias is no scale.
  EXPECT_EQ(raised(normal + op("g", "add %n, %b") + op("y", "mul %g, %w")), "layer_norm mul");
}

TEST(RaiseRmsNorm, FromPieces) {
  EXPECT_EQ(raised(deviation("%x") + op("y", "div %x, %s")), "rms_norm");
  EXPECT_EQ(raised(deviation("%x") + op("r", "div %one, %s", rows) + op("n", "mul %x, %r") + op("y", "mul %w, %n")),
            "rms_norm");
}

TEST(RaiseRmsNorm, NotFromNearMisses) {
  // What is divided is not what is squared.
  EXPECT_EQ(raised(op("z", "tanh %x") + deviation("%x") + op("y", "div %z, %s")), "tanh mul reduce_mean add sqrt div");
  // A sum of squares instead of their mean.
  EXPECT_EQ(raised(op("q", "mul %x, %x") + op("v", "reduce_sum %q" + mean, rows) + op("a", "add %v, %eps", rows) +
                   op("s", "sqrt %a", rows) + op("y", "div %x, %s")),
            "mul reduce_sum add sqrt div");
}

TEST(RaiseGelu, WhereverItsFactorsStand) {
  const std::string phi = op("e", "div %x, %root2") + op("f", "erf %e") + op("g", "add %f, %one");
  EXPECT_EQ(raised(phi + op("p", "mul %x, %g") + op("y", "mul %p, %half")), "gelu");
  EXPECT_EQ(raised(phi + op("h", "mul %half, %x") + op("y", "mul %h, %g")), "gelu");
  EXPECT_EQ(raised(phi + op("h", "mul %g, %half") + op("y", "mul %x, %h")), "gelu");
  EXPECT_EQ(raised(phi + op("p", "mul %x, %g") + op("y", "div %p, %two")), "gelu");
  EXPECT_EQ(raised(op("e", "mul %x, %inverse2") + op("f", "erf %e") + op("g", "add %one, %f") + op("p", "mul %g, %x") +
                   op("y", "mul %half, %p")),
            "gelu");
  // Of something that is elementwise itself.
  EXPECT_EQ(raised(op("z", "add %x, %b") + op("e", "div %z, %root2") + op("f", "erf %e") + op("g", "add %f, %one") +
                   op("p", "mul %z, %g") + op("y", "mul %p, %half")),
            "add gelu");
}

TEST(RaiseGelu, InItsTanhForm) {
  const std::string cube = op("c", "pow %x, %three");
  const std::string inner = op("k", "mul %cubic, %c") + op("i", "add %x, %k") + op("j", "mul %rootpi, %i") +
                            op("t", "tanh %j") + op("g", "add %one, %t");
  EXPECT_EQ(raised(cube + inner + op("h", "mul %half, %x") + op("y", "mul %h, %g")), "gelu_tanh");
  EXPECT_EQ(
      raised(op("q", "mul %x, %x") + op("c", "mul %q, %x") + inner + op("p", "mul %x, %g") + op("y", "mul %p, %half")),
      "gelu_tanh");
  EXPECT_EQ(raised(op("r", "mul %rootpi, %x") + op("q", "mul %cubic, %x") + op("u", "mul %q, %x") +
                   op("v", "add %one, %u") + op("j", "mul %r, %v") + op("t", "tanh %j") + op("g", "add %one, %t") +
                   op("h", "mul %half, %x") + op("y", "mul %h, %g")),
            "gelu_tanh");
}

TEST(RaiseGelu, NotFromNearMisses) {
  const std::string phi = op("e", "div %x, %root2") + op("f", "erf %e") + op("g", "add %f, %one");
  EXPECT_EQ(raised(phi + op("y", "mul %x, %g")), "div erf add mul"); // twice as much
  EXPECT_EQ(raised(phi + op("z", "tanh %x") + op("p", "mul %z, %g") + op("y", "mul %p, %half")),
            "div erf add tanh mul mul");
  EXPECT_EQ(raised(op("e", "mul %x, %half") + op("f", "erf %e") + op("g", "add %f, %one") + op("p", "mul %x, %g") +
                   op("y", "mul %p, %half")),
            "mul erf add mul mul");
  EXPECT_EQ(raised(op("e", "mul %x, %quick") + op("s", "sigmoid %e") + op("y", "mul %x, %s")), "mul sigmoid mul");
  // A factor of the cubic term that is off in the third digit.
  EXPECT_EQ(raised(op("c", "pow %x, %three") + op("k", "mul %near, %c") + op("i", "add %x, %k") +
                   op("j", "mul %rootpi, %i") + op("t", "tanh %j") + op("g", "add %one, %t") +
                   op("h", "mul %half, %x") + op("y", "mul %h, %g")),
            "pow mul add mul tanh add mul mul");
  // It agrees with GELU at every point but those beyond 1, or 1,000, where it is cut off.
  EXPECT_EQ(raised(phi + op("z", "minimum %x, %one") + op("p", "mul %z, %g") + op("y", "mul %p, %half")),
            "div erf add minimum mul mul");
  EXPECT_EQ(raised(phi + op("z", "minimum %x, %thousand") + op("p", "mul %z, %g") + op("y", "mul %p, %half")),
            "div erf add minimum mul mul");
}

TEST(RaiseSoftmax, FromPieces) {
  const std::string sum = op("s", "reduce_sum %e" + mean, rows);
  EXPECT_EQ(raised(op("e", "exp %x") + sum + op("y", "div %e, %s")), "softmax");
  EXPECT_EQ(raised(op("m", "reduce_max %x" + mean, rows) + op("d", "sub %x, %m") + op("e", "exp %d") + sum +
                   op("y", "div %e, %s")),
            "softmax");
  EXPECT_EQ(raised(op("e", "exp %x") + sum + op("p", "div %e, %s") + op("y", "log %p")), "log_softmax");
}

TEST(RaiseSoftmax, NotFromNearMisses) {
  EXPECT_EQ(raised(op("e", "exp %x") + op("s", "reduce_sum %x" + mean, rows) + op("y", "div %e, %s")),
            "exp reduce_sum div");
  EXPECT_EQ(raised(op("e", "exp %x") + op("s", "reduce_sum %e {axes = [1], keep_dims = true}", "[2, 1, 8]") +
                   op("y", "div %e, %s")),
            "exp reduce_sum div");
}

TEST(RaiseSoftmax, WhereNoNumberBecomesZero) {
  const std::string isNaN = "    %n = elementwise %p {expressions = [\"a0 != a0\"]} : bool[2, 3, 8]\n";
  EXPECT_EQ(raised(op("p", "softmax %x") + isNaN + op("y", "where %n, %zero, %p")),
            "reduce_max elementwise softmax elementwise");
  EXPECT_EQ(raised(op("p", "softmax %x") + isNaN + op("y", "where %n, %one, %p")), "softmax elementwise where");
}

const std::string ofRow = " {axes = [2]}";

std::string sumOfSquares(const std::string& result, const std::string& x) {
  return op("q_" + result, "mul " + x + ", " + x) + op(result, "reduce_sum %q_" + result + ofRow, "[2, 3]");
}

TEST(RaiseLength, FromExportersSpellings) {
  // std, pairwise_distance, norm of order 3, cosine_similarity
  EXPECT_EQ(raised(centre() + op("q", "mul %d, %d") + op("v", "reduce_mean %q" + ofRow, "[2, 3]") +
                   op("u", "mul %v, %eight_sevenths", "[2, 3]") + op("y", "sqrt %u", "[2, 3]")),
            "reduce_mean sub mul reduce_mean mul elementwise");
  EXPECT_EQ(raised(sumOfSquares("s", "%x") + op("y", "pow %s, %half", "[2, 3]")), "mul reduce_sum elementwise");
  EXPECT_EQ(raised(op("a", "abs %x") + op("q", "mul %a, %a") + op("c", "mul %q, %a") +
                   op("s", "reduce_sum %c" + ofRow, "[2, 3]") + op("y", "pow %s, %third", "[2, 3]")),
            "abs mul mul reduce_sum elementwise");
  EXPECT_EQ(raised(op("z", "mul %x, %w") + sumOfSquares("s", "%x") + sumOfSquares("t", "%z") +
                   op("p", "mul %s, %t", "[2, 3]") + op("y", "sqrt %p", "[2, 3]")),
            "mul mul reduce_sum mul reduce_sum mul elementwise");
}

TEST(RaiseLength, NotFromNearMisses) {
  // The square root of a sum of squares; roots of another order; a sum of what is no power.
  EXPECT_EQ(raised(sumOfSquares("s", "%x") + op("y", "sqrt %s", "[2, 3]")), "mul reduce_sum sqrt");
  EXPECT_EQ(raised(sumOfSquares("s", "%x") + op("y", "pow %s, %third", "[2, 3]")), "mul reduce_sum pow");
  EXPECT_EQ(raised(op("e", "exp %x") + op("s", "reduce_sum %e" + ofRow, "[2, 3]") + op("y", "pow %s, %half", "[2, 3]")),
            "exp reduce_sum pow");
  EXPECT_EQ(raised(op("q", "mul %x, %x") + op("v", "reduce_mean %q" + ofRow, "[2, 3]") + op("y", "sqrt %v", "[2, 3]")),
            "mul reduce_mean sqrt");
}

TEST(RaiseLogSigmoid, OfASigmoidAndOfWhatIsLeftOfOne) {
  EXPECT_EQ(raised(op("s", "sigmoid %x") + op("y", "log %s")), "neg softplus neg");
  EXPECT_EQ(raised(op("s", "sigmoid %x") + op("r", "sub %one, %s") + op("y", "log %r")), "softplus neg");
  EXPECT_EQ(raised(op("s", "sigmoid %x") + op("r", "sub %two, %s") + op("y", "log %r")), "sigmoid sub log");
}

TEST(RaiseLimitedLog, OnlyOfALogarithmAndANumber) {
  EXPECT_EQ(raised(op("a", "abs %x") + op("l", "log %a") + op("y", "maximum %l, %minus_half")), "abs elementwise");
  EXPECT_EQ(raised(op("a", "abs %x") + op("l", "log %a") + op("y", "maximum %l, %x")), "abs log maximum");
  EXPECT_EQ(raised(op("a", "abs %x") + op("l", "log %a") + op("y", "minimum %minus_half, %l")), "abs log minimum");
}

TEST(RaiseMatMul, TakesTransposesOfItsOperandsIn) {
  EXPECT_EQ(raised(op("t", "transpose %x {permutation = [0, 2, 1]}", "[2, 8, 3]") +
                   op("p", "matmul %x, %t", "[2, 3, 3]") + op("y", "softmax %p", "[2, 3, 3]")),
            "matmul softmax");
  EXPECT_EQ(raised(op("z", "tanh %x") + op("t", "transpose %z {permutation = [0, 2, 1]}", "[2, 8, 3]") +
                   op("y", "matmul %t, %x", "[2, 8, 8]")),
            "tanh matmul");
}

TEST(RaiseMatMul, KeepsRowsTogetherWhereOtherAxesMoveToo) {
  // Keys [batch, positions, heads, size] that an exporter has turned to [batch, heads, size, positions] in one step.
  const std::string split = op("k", "reshape %x {shape = [2, 3, 2, 4]}", "[2, 3, 2, 4]");
  Model model(graphOf(split + op("q", "transpose %k {permutation = [0, 2, 1, 3]}", "[2, 2, 3, 4]") +
                      op("t", "transpose %k {permutation = [0, 2, 3, 1]}", "[2, 2, 4, 3]") +
                      op("y", "matmul %q, %t", "[2, 2, 3, 3]")));
  ASSERT_TRUE(model.module);
  const Tensors inputs = randomInputs(model.main(), 3);
  const Tensor before = runGraph(model.main(), inputs, {}, Precision::f64).outputs.at("y");
  model.run(pdc::raise);
  EXPECT_EQ(before, runGraph(model.main(), inputs, {}, Precision::f64).outputs.at("y"));
  const std::string text = print(model.main());
  EXPECT_EQ(text.find("permutation = [0, 2, 3, 1]"), std::string::npos) << text;
  EXPECT_NE(text.find("transpose_b = true"), std::string::npos) << text;
}

TEST(RaiseMatMul, LeavesOtherTransposesAlone) {
  // Of the batch, and one that somebody else reads.
  EXPECT_EQ(raised(op("t", "transpose %x {permutation = [1, 0, 2]}", "[3, 2, 8]") + op("u", "tanh %t", "[3, 2, 8]") +
                   op("y", "matmul %t, %u {transpose_b = true}", "[3, 2, 2]")),
            "transpose tanh matmul");
  Model model(graphOf(op("t", "transpose %x {permutation = [0, 2, 1]}", "[2, 8, 3]") +
                      op("p", "matmul %x, %t", "[2, 3, 3]") + op("u", "matmul %t, %p", "[2, 8, 3]") +
                      op("y", "add %u, %t", "[2, 8, 3]")));
  model.run(pdc::raise);
  EXPECT_EQ(print(model.main()).find("transpose_"), std::string::npos) << print(model.main());
}
