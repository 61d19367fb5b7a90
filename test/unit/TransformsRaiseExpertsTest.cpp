// LINK: pdcTransforms pdcOps
// What `raise` makes of the masks by which exporters route tokens to experts. The interpreter computes every graph
// before and after: all elements must be equal, whether the rewrite was meant to fire or not.
#include "TransformsTesting.h"

using namespace pdc;
using namespace pdc::testing;

namespace {

/// Operations over 10 tokens of 4 numbers, 3 experts and 2 slots, with constants by name. %best are the experts that
/// each token likes best, two of them.
std::string graphOf(const std::string& body) {
  return R"(module @m {
  graph @main(%logits: f32[10, 3], %x: f32[10, 4], %y: f32[3, 2, 4], %dense: f32[10, 3, 2]) {
    %first = constant {value = dense<i64[], [0]>} : i64[]
    %second = constant {value = dense<i64[], [1]>} : i64[]
    %zero = constant {value = dense<f32[], [0.0]>} : f32[]
    %one = constant {value = dense<f32[], [1.0]>} : f32[]
    %half = constant {value = dense<f32[], [0.5]>} : f32[]
    %two = constant {value = dense<f32[], [2.0]>} : f32[]
    %experts = constant {value = dense<i64[1, 3], [0, 1, 2]>} : i64[1, 3]
    %turned = constant {value = dense<i64[1, 3], [1, 2, 0]>} : i64[1, 3]
    %slots = constant {value = dense<i64[1, 2], [0, 1]>} : i64[1, 2]
    %places = constant {value = dense<f32[1, 2], [0.0, 1.0]>} : f32[1, 2]
    %p = softmax %logits : f32[10, 3]
    %best = top_k %p {axis = 1, k = 2} : i64[10, 2]
)" + body +
         R"(    result "inputs" = %inputs
    result "out" = %out
  }
}
)";
}

/// The choice `i` of each token: its expert %e, its gate %g, its place %at among the tokens that chose that expert, its
/// one-hots %a[token, expert] and %b[token, slot], and %fits, whether there is a slot.
std::string choice(int i, const std::string& before = "") {
  const std::string n = std::to_string(i);
  std::string text = R"(
    %e$ = gather %best, @ {axis = 1} : i64[10]
    %ec$ = reshape %e$ {shape = [10, 1]} : i64[10, 1]
    %is$ = elementwise %ec$, %experts {expressions = ["select(a0 < 0, a0 + 3, a0) == a1"]} : bool[10, 3]
    %a$ = cast %is$ {to = "f32"} : f32[10, 3]
    %gs$ = mul %p, %a$ : f32[10, 3]
    %g$ = reduce_sum %gs$ {axes = [1]} : f32[10]
    %sum$ = cumsum %a$ {axis = 0} : f32[10, 3]
    %count$ = sub %sum$, %one : f32[10, 3]
)" + before + R"(
    %ats$ = mul %count$, %a$ : f32[10, 3]
    %at$ = reduce_sum %ats$ {axes = [1]} : f32[10]
    %less$ = less %at$, %two : bool[10]
    %fits$ = cast %less$ {to = "f32"} : f32[10]
    %slot$ = cast %at$ {to = "i64"} : i64[10]
    %low$ = minimum %slot$, %second : i64[10]
    %sc$ = reshape %low$ {shape = [10, 1]} : i64[10, 1]
    %in$ = equal %sc$, %slots : bool[10, 2]
    %b$ = cast %in$ {to = "f32"} : f32[10, 2]
)";
  std::string made;
  for (char c : text) made += c == '$' ? n : c == '@' ? (i == 0 ? "%first" : "%second") : std::string(1, c);
  return made;
}

/// %m of a choice [token, expert, slot], as two products of columns and rows: an einsum.
std::string mask(int i, bool fits = true) {
  const std::string text =
      std::string(fits ? "    %h$ = mul %g$, %fits$ : f32[10]\n" : "    %h$ = mul %g$, %one : f32[10]\n") +
      R"(    %hc$ = reshape %h$ {shape = [10, 1, 1]} : f32[10, 1, 1]
    %ar$ = reshape %a$ {shape = [10, 1, 3]} : f32[10, 1, 3]
    %ha$ = matmul %hc$, %ar$ : f32[10, 1, 3]
    %hac$ = reshape %ha$ {shape = [10, 3, 1]} : f32[10, 3, 1]
    %br$ = reshape %b$ {shape = [10, 1, 2]} : f32[10, 1, 2]
    %m$ = matmul %hac$, %br$ : f32[10, 3, 2]
)";
  std::string made;
  for (char c : text) made += c == '$' ? std::to_string(i) : std::string(1, c);
  return made;
}

/// The two products with %mask, in the form of einsum.
std::string products(const std::string& isPositive = "greater %mask, %zero") {
  return "    %where = " + isPositive + R"( : bool[10, 3, 2]
    %d = cast %where {to = "f32"} : f32[10, 3, 2]
    %dt = transpose %d {permutation = [1, 2, 0]} : f32[3, 2, 10]
    %rows = reshape %dt {shape = [1, 6, 10]} : f32[1, 6, 10]
    %xs = reshape %x {shape = [1, 10, 4]} : f32[1, 10, 4]
    %moved = matmul %rows, %xs : f32[1, 6, 4]
    %inputs = reshape %moved {shape = [3, 2, 4]} : f32[3, 2, 4]
    %flat = reshape %mask {shape = [1, 10, 6]} : f32[1, 10, 6]
    %ys = reshape %y {shape = [1, 6, 4]} : f32[1, 6, 4]
    %back = matmul %flat, %ys : f32[1, 10, 4]
    %out = reshape %back {shape = [10, 4]} : f32[10, 4]
)";
}

std::string named(const std::string& name, const std::string& mask) {
  return "    %mask = " + name + " " + mask + " : f32[10, 3, 2]\n";
}

int countOf(const Graph& graph, const std::string& op) {
  int count = 0;
  for (const auto& operation : graph.operations()) count += operation->def().name == op ? 1 : 0;
  return count;
}

void expectEqual(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(a.type(), b.type());
  for (std::int64_t i = 0; i < a.elements(); ++i) ASSERT_EQ(a.asDouble(i), b.asDouble(i)) << i;
}

/// Raises a graph, whose values must stay: "dispatches combines", how many there are.
std::string raisedText(const std::string& text) {
  Model model(text);
  if (!model.module) return "does not parse";
  struct Run {
    Tensors inputs;
    Precision precision;
    Tensors outputs;
  };
  const Tensors parameters = randomParameters(*model.module, 6);
  std::vector<Run> runs;
  for (unsigned seed : {3u, 4u, 5u})
    for (Precision precision : {Precision::f64, Precision::f32}) {
      Tensors inputs = randomInputs(model.main(), seed);
      Tensors outputs = runGraph(model.main(), inputs, parameters, precision).outputs;
      runs.push_back({std::move(inputs), precision, std::move(outputs)});
    }
  model.run(pdc::canonicalize);
  model.run(pdc::raise);
  for (const Run& run : runs) {
    const Tensors after = runGraph(model.main(), run.inputs, parameters, run.precision).outputs;
    for (const auto& [name, tensor] : run.outputs) expectEqual(tensor, after.at(name));
  }
  return std::to_string(countOf(model.main(), "dispatch")) + " " + std::to_string(countOf(model.main(), "combine"));
}
std::string raised(const std::string& body) {
  return raisedText(graphOf(body));
}

std::string top2() {
  return choice(0) +
         choice(1, "    %taken = reduce_sum %a0 {axes = [0], keep_dims = true} : f32[1, 3]\n"
                   "    %all1 = add %count1, %taken : f32[10, 3]\n") +
         mask(0) + mask(1);
}

TEST(RaiseExperts, OfOneExpertPerToken) {
  EXPECT_EQ(raised(choice(0) + mask(0) + named("mul", "%m0, %one") + products()), "1 1");
}

TEST(RaiseExperts, OfTheTwoBestExperts) {
  EXPECT_EQ(raised(top2() + named("add", "%m0, %m1") + products()), "1 1");
}

TEST(RaiseExperts, WhereTheCapacityIsNotAskedFor) { // the one-hot of a slot beyond it is 0, or all share the last slot
  EXPECT_EQ(raised(choice(0) + mask(0, false) + named("mul", "%m0, %one") + products()), "1 1");
}

TEST(RaiseExperts, WithPlacesThatAreNumbers) {
  EXPECT_EQ(raised(choice(0) + R"(
    %atc = reshape %at0 {shape = [10, 1]} : f32[10, 1]
    %halves = mul %atc, %half : f32[10, 1]
    %inf = equal %halves, %places : bool[10, 2]
    %b = cast %inf {to = "f32"} : f32[10, 2]
    %ar = reshape %a0 {shape = [10, 3, 1]} : f32[10, 3, 1]
    %br = reshape %b {shape = [10, 1, 2]} : f32[10, 1, 2]
    %ab = mul %ar, %br : f32[10, 3, 2]
    %gc = reshape %g0 {shape = [10, 1, 1]} : f32[10, 1, 1]
    %mask = mul %gc, %ab : f32[10, 3, 2]
)" + products()),
            "1 1");
}

/// All choices of a token at once: one-hots [token, choice, …], of which the mask is a sum.
std::string atOnce(const std::string& mask) {
  return R"(
    %bs = reshape %best {shape = [10, 2, 1]} : i64[10, 2, 1]
    %experts3 = reshape %experts {shape = [1, 1, 3]} : i64[1, 1, 3]
    %slots3 = reshape %slots {shape = [1, 1, 2]} : i64[1, 1, 2]
    %isa = equal %bs, %experts3 : bool[10, 2, 3]
    %ai = cast %isa {to = "i64"} : i64[10, 2, 3]
    %rows20 = reshape %ai {shape = [20, 3]} : i64[20, 3]
    %sums = cumsum %rows20 {axis = 0} : i64[20, 3]
    %taken = mul %sums, %rows20 : i64[20, 3]
    %ats = reduce_sum %taken {axes = [1]} : i64[20]
    %less1 = sub %ats, %second : i64[20]
    %at = reshape %less1 {shape = [10, 2, 1]} : i64[10, 2, 1]
    %isb = equal %at, %slots3 : bool[10, 2, 2]
    %a = cast %isa {to = "f32"} : f32[10, 2, 3]
    %b = cast %isb {to = "f32"} : f32[10, 2, 2]
    %pick = elementwise %bs {expressions = ["a0 * 0 + 1"]} : i64[10, 2, 1]
    %g = cast %pick {to = "f32"} : f32[10, 2, 1]
    %w = mul %g, %half : f32[10, 2, 1]
)" + mask +
         products();
}

TEST(RaiseExperts, OfASumOverChoices) {
  EXPECT_EQ(raised(atOnce(R"(
    %ga = mul %w, %a : f32[10, 2, 3]
    %a4 = reshape %ga {shape = [10, 2, 3, 1]} : f32[10, 2, 3, 1]
    %b4 = reshape %b {shape = [10, 2, 1, 2]} : f32[10, 2, 1, 2]
    %ab = mul %a4, %b4 : f32[10, 2, 3, 2]
    %mask = reduce_sum %ab {axes = [1]} : f32[10, 3, 2]
)")),
            "1 1");
}

TEST(RaiseExperts, OfAProductOverChoices) {
  EXPECT_EQ(raised(atOnce(R"(
    %ga = mul %w, %a : f32[10, 2, 3]
    %mask = matmul %ga, %b {transpose_a = true} : f32[10, 3, 2]
)")),
            "1 1");
}

TEST(RaiseExperts, WhereConditionsAndPlacesAreOfEachExpert) {
  EXPECT_EQ(raised(choice(0) + R"(
    %few = less %count0, %two : bool[10, 3]
    %af = where %few, %a0, %zero : f32[10, 3]
    %pa = mul %p, %af : f32[10, 3]
    %pr = reshape %pa {shape = [10, 3, 1]} : f32[10, 3, 1]
    %ci = cast %count0 {to = "i64"} : i64[10, 3]
    %cr = reshape %ci {shape = [10, 3, 1]} : i64[10, 3, 1]
    %slots3 = reshape %slots {shape = [1, 1, 2]} : i64[1, 1, 2]
    %isb = equal %cr, %slots3 : bool[10, 3, 2]
    %mask = where %isb, %pr, %zero : f32[10, 3, 2]
)" + products()),
            "1 1");
}

TEST(RaiseExperts, OfAMaskOnTheRight) {
  EXPECT_EQ(raised(choice(0) + mask(0) + named("mul", "%m0, %one") + R"(
    %where = not_equal %mask, %zero : bool[10, 3, 2]
    %d = cast %where {to = "f32"} : f32[10, 3, 2]
    %rows = reshape %d {shape = [10, 6]} : f32[10, 6]
    %moved = matmul %x, %rows {transpose_a = true} : f32[4, 6]
    %turned1 = transpose %moved {permutation = [1, 0]} : f32[6, 4]
    %inputs = reshape %turned1 {shape = [3, 2, 4]} : f32[3, 2, 4]
    %flat = reshape %mask {shape = [10, 6]} : f32[10, 6]
    %ys = reshape %y {shape = [6, 4]} : f32[6, 4]
    %back = matmul %ys, %flat {transpose_a = true, transpose_b = true} : f32[4, 10]
    %out = transpose %back {permutation = [1, 0]} : f32[10, 4]
)"),
            "1 1");
}

TEST(RaiseExperts, WhereConditionsHideWhatDoesNotFit) {
  EXPECT_EQ(raised(choice(0) + R"(
    %over = greater_equal %at0, %two : bool[10]
    %h0 = where %over, %zero, %g0 : f32[10]
)" + mask(0).substr(mask(0).find("    %hc0")) +
                   named("mul", "%m0, %one") + products()),
            "1 1");
}

/// Routing as in GShard: the second expert is the best of the others, conditions are asked for each token and expert.
/// `second` are the logits among which it is found.
std::string gshard(const std::string& second, const std::string& isPositive) {
  return R"(
    %none = constant {value = dense<f32[], [-inf]>} : f32[]
    %oneI = constant {value = dense<i64[], [1]>} : i64[]
    %twoI = constant {value = dense<i64[], [2]>} : i64[]
    %zeroI = constant {value = dense<i64[], [0]>} : i64[]
    %i0 = top_k %p {axis = 1, k = 1} : i64[10, 1]
    %is0 = equal %i0, %experts : bool[10, 3]
    %others = where %is0, %none, %logits : f32[10, 3]
    %i1 = top_k )" +
         second + R"( {axis = 1, k = 1} : i64[10, 1]
    %is1 = equal %i1, %experts : bool[10, 3]
    %m0 = where %is0, %oneI, %zeroI : i64[10, 3]
    %m1 = where %is1, %oneI, %zeroI : i64[10, 3]
    %s0 = cumsum %m0 {axis = 0} : i64[10, 3]
    %s1 = cumsum %m1 {axis = 0} : i64[10, 3]
    %l0 = sub %s0, %oneI : i64[10, 3]
    %l1 = sub %s1, %oneI : i64[10, 3]
    %few0 = less %l0, %twoI : bool[10, 3]
    %few1 = less %l1, %twoI : bool[10, 3]
    %fi0 = where %few0, %oneI, %zeroI : i64[10, 3]
    %fi1 = where %few1, %oneI, %zeroI : i64[10, 3]
    %k0 = mul %m0, %fi0 : i64[10, 3]
    %k1 = mul %m1, %fi1 : i64[10, 3]
    %lk0 = mul %l0, %k0 : i64[10, 3]
    %lk1 = mul %l1, %k1 : i64[10, 3]
    %at0 = reduce_sum %lk0 {axes = [1], keep_dims = true} : i64[10, 1]
    %at1 = reduce_sum %lk1 {axes = [1], keep_dims = true} : i64[10, 1]
    %f0 = cast %k0 {to = "f32"} : f32[10, 3]
    %f1 = cast %k1 {to = "f32"} : f32[10, 3]
    %g0 = mul %logits, %f0 : f32[10, 3]
    %g1 = mul %p, %f1 : f32[10, 3]
    %in0 = equal %at0, %slots : bool[10, 2]
    %in1 = equal %at1, %slots : bool[10, 2]
    %b0 = cast %in0 {to = "f32"} : f32[10, 2]
    %b1 = cast %in1 {to = "f32"} : f32[10, 2]
    %gc0 = reshape %g0 {shape = [10, 3, 1]} : f32[10, 3, 1]
    %gc1 = reshape %g1 {shape = [10, 3, 1]} : f32[10, 3, 1]
    %br0 = reshape %b0 {shape = [10, 1, 2]} : f32[10, 1, 2]
    %br1 = reshape %b1 {shape = [10, 1, 2]} : f32[10, 1, 2]
    %c0 = matmul %gc0, %br0 : f32[10, 3, 2]
    %c1 = matmul %gc1, %br1 : f32[10, 3, 2]
    %mask = add %c0, %c1 : f32[10, 3, 2]
)" + products(isPositive);
}

TEST(RaiseExperts, OfTheBestAndTheBestOfTheOthers) {
  for (const char* comparison : {"greater %mask, %zero", "not_equal %mask, %zero"})
    EXPECT_EQ(raised(gshard("%others", comparison)), "1 1");
}

/// Their gates may have other signs: what counts is that of the sum.
TEST(RaiseExperts, OfTwoChoicesThatMayBeOnePlace) {
  for (const char* comparison : {"greater %mask, %zero", "not_equal %mask, %zero"})
    EXPECT_EQ(raised(gshard("%logits", comparison)), "1 1");
}

/// Two groups of 5 tokens, each with slots of its own.
TEST(RaiseExperts, OfGroups) {
  EXPECT_EQ(raised(choice(0) + R"(
    %ag = reshape %a0 {shape = [2, 5, 3]} : f32[2, 5, 3]
    %gg = reshape %g0 {shape = [2, 5]} : f32[2, 5]
    %sumg = cumsum %ag {axis = 1} : f32[2, 5, 3]
    %countg = sub %sumg, %one : f32[2, 5, 3]
    %atg = mul %countg, %ag : f32[2, 5, 3]
    %eg = reshape %e0 {shape = [2, 5, 1]} : i64[2, 5, 1]
    %experts3 = reshape %experts {shape = [1, 1, 3]} : i64[1, 1, 3]
    %isg = equal %eg, %experts3 : bool[2, 5, 3]
    %onesg = cast %isg {to = "f32"} : f32[2, 5, 3]
    %placeg = reduce_sum %atg {axes = [2]} : f32[2, 5]
    %pg = reshape %placeg {shape = [2, 5, 1]} : f32[2, 5, 1]
    %slots3 = reshape %places {shape = [1, 1, 2]} : f32[1, 1, 2]
    %ing = equal %pg, %slots3 : bool[2, 5, 2]
    %bg = cast %ing {to = "f32"} : f32[2, 5, 2]
    %a4 = reshape %onesg {shape = [2, 5, 3, 1]} : f32[2, 5, 3, 1]
    %b4 = reshape %bg {shape = [2, 5, 1, 2]} : f32[2, 5, 1, 2]
    %ab = matmul %a4, %b4 : f32[2, 5, 3, 2]
    %gr = reshape %gg {shape = [2, 5, 1, 1]} : f32[2, 5, 1, 1]
    %mask = mul %ab, %gr : f32[2, 5, 3, 2]
    %where = greater %mask, %zero : bool[2, 5, 3, 2]
    %d = cast %where {to = "f32"} : f32[2, 5, 3, 2]
    %dt = transpose %d {permutation = [0, 2, 3, 1]} : f32[2, 3, 2, 5]
    %rows = reshape %dt {shape = [2, 6, 5]} : f32[2, 6, 5]
    %xs = reshape %x {shape = [2, 5, 4]} : f32[2, 5, 4]
    %inputs = matmul %rows, %xs : f32[2, 6, 4]
    %flat = reshape %mask {shape = [2, 5, 6]} : f32[2, 5, 6]
    %ys = reshape %y {shape = [1, 6, 4]} : f32[1, 6, 4]
    %yg = broadcast %ys {shape = [2, 6, 4]} : f32[2, 6, 4]
    %out = matmul %flat, %yg : f32[2, 5, 4]
)"),
            "1 1");
}

/// Each of two choices of 10 tokens is multiplied by the matrix of its expert, which is gathered for it.
std::string chosenWeights(const std::string& index, const std::string& product, int experts = 3) {
  return R"(module @m {
  param %w : f32[)" +
         std::to_string(experts) + R"(, 60]
  graph @main(%logits: f32[10, )" +
         std::to_string(experts) + R"(], %x: f32[20, 10]) {
    %best = top_k %logits {axis = 1, k = 2} : i64[10, 2]
    %flat = reshape %best {shape = [20]} : i64[20]
)" + index +
         R"(
    %chosen = gather %w, %index : f32[20, 60]
)" + product +
         R"(    result "out" = %out
  }
}
)";
}
const char* const fromLeft = R"(
    %matrices = reshape %chosen {shape = [20, 6, 10]} : f32[20, 6, 10]
    %columns = reshape %x {shape = [20, 10, 1]} : f32[20, 10, 1]
    %out = matmul %matrices, %columns : f32[20, 6, 1]
)";
const char* const fromRight = R"(
    %matrices = reshape %chosen {shape = [20, 10, 6]} : f32[20, 10, 6]
    %rows = reshape %x {shape = [20, 1, 10]} : f32[20, 1, 10]
    %out = matmul %rows, %matrices : f32[20, 1, 6]
)";
const char* const wrapped = "    %index = elementwise %flat {expressions = [\"select(a0 < -3 || a0 >= 3, 3, select(a0 "
                            "< 0, a0 + 3, a0) * 1)\"]} "
                            ": i64[20]\n";
const char* const fromTheEnd = "    %index = elementwise %flat {expressions = [\"a0 - 3\"]} : i64[20]\n";

TEST(RaiseChosenWeights, OnEitherSide) {
  EXPECT_EQ(raisedText(chosenWeights(wrapped, fromLeft)), "1 1");
  EXPECT_EQ(raisedText(chosenWeights(wrapped, fromRight)), "1 1");
}

/// Nothing says that the choices of a token differ: an expert has a slot for each of them.
TEST(RaiseChosenWeights, WhereAllMayChooseOneExpert) {
  Model model(chosenWeights(fromTheEnd, fromRight));
  model.run(pdc::raise);
  EXPECT_NE(print(*model.module).find("capacity = 20"), std::string::npos) << print(*model.module);
  EXPECT_EQ(raisedText(chosenWeights(fromTheEnd, fromRight)), "1 1");
  Model apart(chosenWeights(wrapped, fromRight));
  apart.run(pdc::raise);
  EXPECT_NE(print(*apart.module).find("capacity = 10"), std::string::npos) << print(*apart.module);
}

TEST(RaiseChosenWeights, NotFromNearMisses) {
  // What is gathered is used elsewhere, too.
  EXPECT_EQ(raisedText(chosenWeights(wrapped, std::string(fromRight) + "    result \"too\" = %chosen\n")), "0 0");
  // Slots of so many experts would be more than the matrices.
  std::string many = chosenWeights("    %index = reshape %flat {shape = [20]} : i64[20]\n", fromRight, 9);
  EXPECT_EQ(raisedText(many), "0 0");
  // Several rows share a matrix.
  EXPECT_EQ(raisedText(chosenWeights(wrapped, R"(
    %matrices = reshape %chosen {shape = [20, 10, 6]} : f32[20, 10, 6]
    %two = concat %x, %x {axis = 1} : f32[20, 20]
    %rows = reshape %two {shape = [20, 2, 10]} : f32[20, 2, 10]
    %out = matmul %rows, %matrices : f32[20, 2, 6]
)")),
            "0 0");
}

TEST(RaiseExperts, NotFromNearMisses) {
  // What is added is no choice.
  EXPECT_EQ(raised(choice(0) + mask(0) + named("add", "%m0, %dense") + products()), "0 0");
  // The positions are not those of the axis.
  std::string turned = choice(0) + mask(0) + named("mul", "%m0, %one") + products();
  for (std::size_t at; (at = turned.find("%ec0, %experts")) != std::string::npos;)
    turned.replace(at, 14, "%ec0, %turned");
  EXPECT_EQ(raised(turned), "0 0");
  // Elsewhere the mask is not 0.
  EXPECT_EQ(raised(choice(0) + mask(0) + "    %yes = greater %m0, %zero : bool[10, 3, 2]\n" +
                   named("where", "%yes, %m0, %half") + products()),
            "0 0");
  // All are compared with another number, and where nothing is chosen, too: the mask itself still chooses.
  EXPECT_EQ(raised(choice(0) + mask(0) + named("mul", "%m0, %one") + products("greater_equal %mask, %zero")), "0 1");
  EXPECT_EQ(raised(choice(0) + mask(0) + named("mul", "%m0, %one") + products("greater %mask, %half")), "0 1");
  // Each expert has tokens, but no slots.
  EXPECT_EQ(raised(choice(0) + R"(
    %ad = reshape %a0 {shape = [10, 3, 1]} : f32[10, 3, 1]
    %mask = mul %ad, %dense : f32[10, 3, 2]
)" + products()),
            "0 0");
}

} // namespace
