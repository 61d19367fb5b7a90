// LINK: pdcIR
// The interpreter and the machinery of elementwise ops: broadcasting, element types, gradients, errors.
#include "IRTesting.h"

#include "pdc/IR/Interpreter.h"

#include <cmath>

using namespace pdc;

class InterpreterTest : public IRTest {
protected:
  Expected<InterpreterResult> run(const std::string& graph, const std::map<std::string, Tensor>& inputs,
                                  Precision precision = Precision::f64) {
    module = parse("module @m { param %w : f32[2] param %s : f32[] state " + graph + "}");
    const double weights[] = {10, 20};
    return interpret(*module->graphs.at(0), inputs, {{"w", Tensor::ofFloats({2}, weights)}, {"s", Tensor::scalar(5)}},
                     precision, diags);
  }
  static Tensor floats(Shape shape, std::vector<double> values) { return Tensor::ofFloats(std::move(shape), values); }
  static std::vector<double> listOf(const Tensor& tensor) {
    std::vector<double> list;
    for (std::int64_t i = 0; i < tensor.elements(); ++i) list.push_back(tensor.asDouble(i));
    return list;
  }
  std::unique_ptr<Module> module;
};

TEST_F(InterpreterTest, CollectsOutputsByKind) {
  auto result = run(R"(graph @main(%x: f32[2], %g: f32[2]) {
    %y = add %x, %w : f32[2]
    %l, _ = total %y : f32[], _
    %v = view %y {shape = [1, 2]} : f32[1, 2]
    result "out" = %v
    loss %l
    loss %l
    gradient %w = %x
    gradient %w = %g
    gradient %w = %x
    state %s = %l
  })",
                    {{"x", floats({2}, {1, 2})}, {"g", floats({2}, {0.5, 0.25})}});
  ASSERT_TRUE(result) << messages();
  EXPECT_EQ(listOf(result->outputs.at("out")), (std::vector<double>{11, 22}));
  EXPECT_EQ(result->outputs.at("out").shape(), (Shape{1, 2}));
  EXPECT_EQ(result->loss, 66);
  EXPECT_EQ(listOf(result->gradients.at("w")), (std::vector<double>{2.5, 4.25}));
  EXPECT_EQ(result->states.at("s").asDouble(0), 33);
  EXPECT_EQ(result->values.at("l").asDouble(0), 33);
}

TEST_F(InterpreterTest, GradientsAddUpInProgramOrder) {
  // (1e8 - 1e8) + 1 = 1 and 1e8 + (1 - 1e8) = 0 in f32.
  const std::map<std::string, Tensor> inputs = {
      {"a", floats({2}, {1e8, 1})}, {"b", floats({2}, {-1e8, 1e8})}, {"c", floats({2}, {1, -1e8})}};
  auto result =
      run("graph @main(%a: f32[2], %b: f32[2], %c: f32[2]) { gradient %w = %a gradient %w = %b gradient %w = %c }",
          inputs, Precision::f32);
  ASSERT_TRUE(result) << messages();
  EXPECT_EQ(listOf(result->gradients.at("w")), (std::vector<double>{1, 0}));
}

TEST_F(InterpreterTest, PrecisionIsThatOfTheRun) {
  const char* graph = "graph @main(%x: f32[2]) { %y = scale %x {alpha = 0.1} : f32[2] result \"y\" = %y }";
  const std::map<std::string, Tensor> inputs = {{"x", floats({2}, {3, 7})}};
  auto f64 = run(graph, inputs, Precision::f64), f32 = run(graph, inputs, Precision::f32);
  EXPECT_EQ(f64->outputs.at("y").type().element, ElementType::f64);
  EXPECT_EQ(f64->outputs.at("y").asDouble(0), 0.1 * 3);
  EXPECT_EQ(f32->outputs.at("y").type().element, ElementType::f32);
  EXPECT_EQ(f32->outputs.at("y").asDouble(0), static_cast<double>(0.1f * 3.0f));
}

TEST_F(InterpreterTest, BroadcastsAndCompares) {
  auto result = run(R"(graph @main(%x: f32[2, 1], %y: f32[3], %c: f32[]) {
    %z, %p = elementwise %x, %y, %c {expressions = ["a0 * a1 + a2", "a0 * a1 > a2"]} : f32[2, 3], bool[2, 3]
    result "z" = %z
    result "p" = %p
  })",
                    {{"x", floats({2, 1}, {1, 2})}, {"y", floats({3}, {10, 20, 30})}, {"c", Tensor::scalar(20)}});
  ASSERT_TRUE(result) << messages();
  EXPECT_EQ(listOf(result->outputs.at("z")), (std::vector<double>{30, 40, 50, 40, 60, 80}));
  EXPECT_EQ(listOf(result->outputs.at("p")), (std::vector<double>{0, 0, 1, 0, 1, 1}));
}

TEST_F(InterpreterTest, ErrorsNameInputsAndOperations) {
  const char* graph = "graph @main(%x: i64[]) { %y = pick %x : i64[] loc(\"Pick_7\") result \"y\" = %y }";
  EXPECT_FALSE(run(graph, {}));
  EXPECT_FALSE(run(graph, {{"x", floats({}, {1})}}));
  EXPECT_FALSE(run(graph, {{"x", floats({2}, {1, 2})}}));
  const std::int64_t labels[] = {2, 3};
  EXPECT_TRUE(run(graph, {{"x", Tensor::ofInts({}, {labels, 1})}}));
  EXPECT_FALSE(run(graph, {{"x", Tensor::ofInts({}, {labels + 1, 1})}}));
  EXPECT_EQ(messages(), "@main: error: input 'x' has no value\n"
                        "@main: error: input 'x' is i64[], its value f32[]\n"
                        "@main: error: input 'x' is [], its value [2]\n"
                        "test.pdir:1:79: error: 'pick' op: label 3 is not below 3, the number of classes\n");
}

TEST_F(InterpreterTest, OptionalOperandsAndResults) {
  auto result = run(R"(graph @main(%x: f32[2]) {
    %a, %n = total %x, _ : f32[], i64[]
    %b, _ = total %x, %a : f32[], _
    result "b" = %b
    result "n" = %n
  })",
                    {{"x", floats({2}, {1, 2})}});
  ASSERT_TRUE(result) << messages();
  EXPECT_EQ(result->outputs.at("b").asDouble(0), 6);
  EXPECT_EQ(result->outputs.at("n").asInt(0), 2);
}

TEST_F(IRTest, BroadcastShapes) {
  EXPECT_EQ(broadcastShapes({{2, 1}, {3}}), (Shape{2, 3}));
  EXPECT_EQ(broadcastShapes({{}, {4, 1, 1}, {1, 5}}), (Shape{4, 1, 5}));
  EXPECT_EQ(broadcastShapes({{0}, {1}}), Shape{0});
  EXPECT_EQ(broadcastShapes({{2}, {3}}), std::nullopt);
  EXPECT_EQ(broadcastShapes({{1, 2}, {3, 3}}), std::nullopt);
  EXPECT_EQ(broadcastShapes({{0}, {2}}), std::nullopt);
}

TEST_F(IRTest, ElementTypesOfExpressions) {
  auto inferred = [&](const std::string& text) -> std::string {
    Attributes attributes{{"expressions", std::vector<std::string>{text}}};
    const Type f{ElementType::f32, {2}}, i{ElementType::i64, {2}}, b{ElementType::boolean, {2}};
    Diagnostics local(nullptr);
    InferContext context{.operands = {&f, &i, &b}, .attributes = attributes, .location = {}, .diags = local};
    const auto types = inferElementwise(*registry.find("elementwise"), context);
    return types ? toString(types->at(0)) : local.all().at(0).message;
  };
  EXPECT_EQ(inferred("a0 * 2"), "f32[2]");
  EXPECT_EQ(inferred("a1 * 2"), "i64[2]");
  EXPECT_EQ(inferred("a1 > 2"), "bool[2]");
  EXPECT_EQ(inferred("!a2"), "bool[2]");
  EXPECT_EQ(inferred("a0 * a2"), "f32[2]");
  EXPECT_EQ(inferred("select(a1 > 2, a0, 0)"), "f32[2]");
  EXPECT_EQ(inferred("a0 + a1"), "'elementwise' op: expression 'a0 + a1' mixes f32 and i64");
  EXPECT_EQ(inferred("bitAnd(a1, 3)"), "i64[2]");
  EXPECT_EQ(inferred("bitNot(a0)"),
            "'elementwise' op: expression 'bitNot(a0)' needs integers for 'bitNot', these are f32");
  EXPECT_EQ(inferred("shiftLeft(a2, a2)"),
            "'elementwise' op: expression 'shiftLeft(a2, a2)' needs integers for 'shiftLeft', these are bool");
  EXPECT_EQ(inferred("a3"), "'elementwise' op: expression 'a3' speaks of 'a3', which is not an operand");
}

TEST_F(InterpreterTest, CostOfElementwise) {
  module = parse("module @m { graph @g(%x: f32[4, 2], %b: f32[2]) { %y = add %x, %b : f32[4, 2] } }");
  const Cost cost = costOfElementwise(*module->graphs[0]->operations()[0]);
  EXPECT_EQ(cost.flops, 8);
  EXPECT_EQ(cost.bytes, 32 + 8 + 32);
}

/// A gradient context over a graph, as `differentiate` has one; wants every operand.
class RecordingContext : public GradientContext {
public:
  RecordingContext(Builder& builder, const Operation& op, std::vector<Value*> gradients)
      : builder_(builder), op_(op), gradients_(std::move(gradients)) {}
  const Operation& op() const override { return op_; }
  Value* resultGradient(std::size_t i) const override { return gradients_[i]; }
  bool wants(std::size_t) const override { return true; }
  Operation* create(std::size_t, const std::string& name, std::vector<Value*> operands, Attributes attributes,
                    const std::vector<bool>& wantedResults) override {
    return builder_.create(name, std::move(operands), std::move(attributes), wantedResults);
  }

private:
  Builder& builder_;
  const Operation& op_;
  std::vector<Value*> gradients_;
};

TEST_F(InterpreterTest, GradientRuleOfElementwiseOps) {
  module = parse(R"IR(module @m { graph @g(%x: f32[2], %y: f32[2], %d: f32[2], %e: f32[2]) {
    %a, %b = elementwise %x, %y {expressions = ["a0 * a1", "exp(a0)"]} : f32[2], f32[2]
    %s = add %x, %y : f32[2]
  } })IR");
  Graph& graph = *module->graphs[0];
  Builder builder(*module, graph, registry, diags);
  auto texts = [&](std::size_t operation, std::vector<Value*> gradients) {
    RecordingContext context(builder, *graph.operations()[operation], std::move(gradients));
    std::vector<std::string> list;
    for (Value* gradient : elementwiseGradient(context)) {
      if (!gradient) {
        list.push_back("none");
        continue;
      }
      std::string text = gradient->definer()
                             ? gradient->definer()->attributes.get<std::vector<std::string>>("expressions")[0] + " of"
                             : gradient->name();
      if (gradient->definer())
        for (Value* operand : gradient->definer()->operands()) text += " " + operand->name();
      list.push_back(text);
    }
    return list;
  };
  Value *d = graph.find("d"), *e = graph.find("e");
  using Texts = std::vector<std::string>;
  EXPECT_EQ(texts(0, {d, e}), (Texts{"a0 * a1 + a2 * exp(a3) of d y e x", "a0 * a1 of d x"}));
  EXPECT_EQ(texts(0, {nullptr, e}), (Texts{"a0 * exp(a1) of e x", "none"}));
  EXPECT_EQ(texts(1, {d}), (Texts{"d", "d"})); // passed through without an operation
}
