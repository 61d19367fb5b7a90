// LINK: pdcIR
// Types, tensors, graphs, the registry and the builder.
#include "IRTesting.h"

#include "pdc/IR/Interpreter.h"

#include <bit>
#include <cmath>
#include <limits>

using namespace pdc;

TEST(Type, SizesThatDoNotFitAreNegative) {
  EXPECT_EQ(elementsOf({2, 3, 4}), 24);
  EXPECT_EQ(elementsOf({}), 1);
  EXPECT_EQ(elementsOf({std::int64_t{1} << 62, 2}), -1);
  EXPECT_EQ(elementsOf({std::int64_t{1} << 62, 4, 0}), 0);
  EXPECT_EQ(elementsOf({-1, 2}), -1);
  EXPECT_EQ((Type{ElementType::f64, {std::int64_t{1} << 60}}).bytes(), -1);
  EXPECT_EQ((Type{ElementType::bf16, {3, 5}}).bytes(), 30);
  EXPECT_EQ(toString(Type{ElementType::bf16, {3, 5}, {7}}), "bf16[3, 5]@7");
}

TEST(Type, NamesOfElementsReadBack) {
  for (int i = 0; i <= static_cast<int>(ElementType::boolean); ++i) {
    ElementType read = ElementType::f64;
    EXPECT_TRUE(elementTypeFromName(nameOf(static_cast<ElementType>(i)), read));
    EXPECT_EQ(read, static_cast<ElementType>(i));
  }
  ElementType read = ElementType::f64;
  EXPECT_FALSE(elementTypeFromName("f33", read));
}

TEST(Tensor, CopiesShareUntilOneIsWritten) {
  Tensor a = Tensor::scalar(1), b = a;
  EXPECT_EQ(a.bytes().data(), b.bytes().data());
  b.mutableData<float>()[0] = 2;
  EXPECT_EQ(a.asDouble(0), 1);
  EXPECT_EQ(b.asDouble(0), 2);
  EXPECT_FALSE(a == b);
}

TEST(Tensor, EveryHalfPrecisionNumberReadsBack) {
  for (ElementType element : {ElementType::f16, ElementType::bf16}) {
    Tensor tensor(Type{element, {1}});
    for (std::uint32_t bits = 0; bits < 65536; ++bits) {
      tensor.mutableData<std::uint16_t>()[0] = static_cast<std::uint16_t>(bits);
      const double value = tensor.asDouble(0);
      if (std::isnan(value)) continue;
      tensor.set(0, value);
      ASSERT_EQ(tensor.data<std::uint16_t>()[0], bits) << nameOf(element) << " " << value;
    }
  }
}

TEST(Tensor, HalfPrecisionRoundsToNearestEven) {
  auto f16 = [](double value) { return Tensor::scalar(value, ElementType::f16).asDouble(0); };
  EXPECT_EQ(f16(1 + 1.0 / 2048), 1);              // half-way: to even
  EXPECT_EQ(f16(1 + 3.0 / 2048), 1 + 2.0 / 1024); // half-way: to even
  EXPECT_EQ(f16(1 + 1.1 / 2048), 1 + 1.0 / 1024);
  EXPECT_EQ(f16(65519), 65504);
  EXPECT_TRUE(std::isinf(f16(65520)));
  EXPECT_EQ(f16(std::ldexp(1, -24)), std::ldexp(1, -24));
  EXPECT_EQ(f16(std::ldexp(1, -25)), 0);
  auto bf16 = [](double value) { return Tensor::scalar(value, ElementType::bf16).asDouble(0); };
  EXPECT_EQ(bf16(1 + 1.0 / 256), 1);
  EXPECT_EQ(bf16(1 + 3.0 / 256), 1 + 2.0 / 128);
  EXPECT_TRUE(std::isnan(bf16(std::nan(""))));
}

TEST(Tensor, IntegersDoNotPassThroughDoubles) {
  const std::int64_t value = (std::int64_t{1} << 53) + 1;
  const Tensor tensor = Tensor::ofInts({1}, {&value, 1});
  EXPECT_EQ(tensor.asInt(0), value);
  EXPECT_EQ(tensor.convertedTo(ElementType::i32).convertedTo(ElementType::i64).asInt(0), 1);
  EXPECT_EQ(Tensor::scalar(1e300).convertedTo(ElementType::i64).asInt(0), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(Tensor::scalar(-7.9).convertedTo(ElementType::i8).asInt(0), -7);
  EXPECT_EQ(Tensor::scalar(0.5).convertedTo(ElementType::boolean).asInt(0), 1);
}

TEST(Tensor, UnsignedIntegersKeepTheirBits) {
  const std::int64_t allOnes = -1;
  const Tensor large = Tensor::ofInts({1}, {&allOnes, 1}, ElementType::u64);
  EXPECT_EQ(large.asDouble(0), std::ldexp(1, 64));
  EXPECT_EQ(large.asInt(0), -1);
  EXPECT_EQ(large.convertedTo(ElementType::u32).asInt(0), 0xFFFFFFFF);
  EXPECT_EQ(large.convertedTo(ElementType::u16).asInt(0), 0xFFFF);
  EXPECT_EQ(large.convertedTo(ElementType::i16).asInt(0), -1);
  EXPECT_EQ(Tensor::scalar(1e300).convertedTo(ElementType::u64).asDouble(0), std::ldexp(1, 64));
  EXPECT_EQ(Tensor::scalar(-3).convertedTo(ElementType::u32).asInt(0), 0);
  EXPECT_EQ(Tensor::scalar(40000).convertedTo(ElementType::u16).asInt(0), 40000);
  EXPECT_EQ(Tensor::scalar(40000).convertedTo(ElementType::i16).asInt(0), 32767);
}

class GraphTest : public IRTest {
protected:
  GraphTest() : builder(module, graph, registry, diags) {}
  Module module;
  Graph graph{"main"};
  Builder builder;
};

TEST_F(GraphTest, NamesAreUnique) {
  Value* a = graph.addInput({ElementType::f32, {2}}, "x");
  Value* b = graph.addInput({ElementType::f32, {2}}, "x");
  EXPECT_EQ(a->name(), "x");
  EXPECT_EQ(b->name(), "x.1");
  Value* c = builder.value("exp", {a});
  Value* d = builder.value("exp", {c});
  EXPECT_EQ(c->name(), "0");
  EXPECT_EQ(d->name(), "1");
  graph.rename(d, "x");
  EXPECT_EQ(d->name(), "x.2");
  EXPECT_EQ(graph.find("x.2"), d);
  EXPECT_EQ(graph.find("1"), nullptr);
  graph.rename(d, "x.2");
  EXPECT_EQ(d->name(), "x.2");
}

TEST_F(GraphTest, AParameterKeepsItsName) {
  Parameter* w = module.addParameter({.name = "w", .type = {ElementType::f32, {2}}});
  Value* other = graph.addInput({ElementType::f32, {2}}, "w");
  Value* value = graph.parameterValue(*w);
  EXPECT_EQ(value->name(), "w");
  EXPECT_EQ(other->name(), "w.1");
  EXPECT_EQ(graph.parameterValue(*w), value);
  EXPECT_EQ(graph.find("w.1"), other);
}

TEST_F(GraphTest, UsesFollowOperands) {
  Value* x = graph.addInput({ElementType::f32, {2}}, "x");
  Value* y = builder.value("add", {x, x});
  Value* z = builder.value("exp", {y});
  EXPECT_EQ(x->users().size(), 2u);
  EXPECT_EQ(z->definer()->operand(0), y);
  graph.outputs.push_back({.kind = OutputKind::prediction, .value = y});
  graph.replaceAllUses(y, x);
  EXPECT_TRUE(y->users().empty());
  EXPECT_EQ(x->users().size(), 3u);
  EXPECT_EQ(graph.outputs[0].value, x);
  graph.erase(y->definer());
  EXPECT_EQ(x->users(), std::vector<Operation*>{z->definer()});
  EXPECT_EQ(graph.operations().size(), 1u);
}

TEST_F(GraphTest, ErasesAndReorders) {
  Value* x = graph.addInput({ElementType::f32, {2}}, "x");
  Value* a = builder.value("exp", {x});
  Value* b = builder.value("exp", {x});
  Value* c = builder.value("exp", {b});
  graph.reorder({b->definer(), c->definer(), a->definer()});
  EXPECT_EQ(graph.operations()[2].get(), a->definer());
  graph.eraseIf({true, true, false});
  EXPECT_EQ(graph.operations().size(), 1u);
  EXPECT_EQ(x->users(), std::vector<Operation*>{a->definer()});
  EXPECT_EQ(graph.find("1"), nullptr);
}

TEST_F(GraphTest, ErasingForgetsOriginsAndNothingElse) {
  Value* x = graph.addInput({ElementType::f32, {2}}, "x");
  Value* a = builder.value("exp", {x});
  Value* b = builder.value("exp", {x});
  builder.setPhase(Phase::inputGradient, a->definer());
  Value* da = builder.value("exp", {x});
  Value* other = builder.value("exp", {x});
  EXPECT_EQ(a->definer()->derived(), (std::vector<Operation*>{da->definer(), other->definer()}));
  a->definer()->giveDerivedTo(*b->definer());
  EXPECT_TRUE(a->definer()->derived().empty());
  EXPECT_EQ(da->definer()->origin(), b->definer());
  da->definer()->setOrigin(a->definer());
  EXPECT_EQ(b->definer()->derived(), std::vector<Operation*>{other->definer()});
  graph.erase(b->definer());
  EXPECT_EQ(other->definer()->origin(), nullptr);
  EXPECT_EQ(da->definer()->origin(), a->definer());
  graph.erase(da->definer());
  EXPECT_TRUE(a->definer()->derived().empty());
  // The values that are left keep their names.
  EXPECT_EQ(graph.find(a->name()), a);
  EXPECT_EQ(graph.find(other->name()), other);
  other->definer()->setOrigin(a->definer());
  graph.eraseIf({true, false});
  EXPECT_EQ(other->definer()->origin(), nullptr);
  EXPECT_EQ(graph.operations().size(), 1u);
  EXPECT_EQ(x->users(), std::vector<Operation*>{other->definer()});
}

TEST_F(GraphTest, InsertsBefore) {
  Value* x = graph.addInput({ElementType::f32, {2}}, "x");
  Value* late = builder.value("exp", {x});
  builder.setInsertionPoint(late->definer());
  Value* early = builder.value("exp", {x});
  EXPECT_EQ(graph.operations()[0].get(), early->definer());
}

TEST_F(GraphTest, BuilderFillsInDefaultsAndRefuses) {
  Value* x = graph.addInput({ElementType::f32, {2}}, "x");
  Value* y = builder.value("scale", {x});
  EXPECT_EQ(y->definer()->attributes.getFloat("alpha"), 2.0);
  EXPECT_EQ(builder.value("scale", {x}, {{"beta", 1.0}}), nullptr);
  EXPECT_EQ(builder.value("scale", {}), nullptr);
  EXPECT_EQ(builder.value("none", {x}), nullptr);
  EXPECT_EQ(builder.value("view", {x}, {{"shape", std::vector<std::int64_t>{3}}}), nullptr);
  EXPECT_EQ(messages(), "error: 'scale' op has no attribute 'beta'\n"
                        "error: 'scale' op takes 1 operand, here are 0\n"
                        "error: there is no op 'none'\n"
                        "error: other number of elements\n");
  EXPECT_EQ(graph.operations().size(), 1u);
}

TEST_F(GraphTest, BuilderLeavesOptionalResultsOut) {
  Value* x = graph.addInput({ElementType::f32, {2}}, "x");
  Operation* total = builder.create("total", {x}, {}, {true, false}, {"sum"});
  EXPECT_EQ(total->result(0)->name(), "sum");
  EXPECT_EQ(total->result(1), nullptr);
  EXPECT_EQ(total->result(7), nullptr);
}

TEST_F(GraphTest, FoldsConstants) {
  Builder folding(module, graph, registry, diags, /*fold=*/true);
  const std::vector<std::int64_t> values = {std::int64_t{1} << 60, 3};
  Value* a = folding.constant(Tensor::ofInts({2}, values));
  Value* sum = folding.value("add", {a, a});
  const std::optional<Tensor> folded = Builder::constantValue(sum);
  ASSERT_TRUE(folded);
  EXPECT_EQ(folded->toInts(), (std::vector<std::int64_t>{std::int64_t{1} << 61, 6}));
  // Not what depends on an input, what has several results, or what is large.
  Value* x = graph.addInput({ElementType::i64, {2}}, "x");
  EXPECT_FALSE(Builder::constantValue(folding.value("add", {a, x})));
  EXPECT_FALSE(Builder::constantValue(folding.value("total", {folding.constant(1.0)})));
  Value* large = folding.constant(Tensor(Type{ElementType::f32, {20000}}));
  EXPECT_FALSE(Builder::constantValue(folding.value("exp", {large})));
  // f64 is folded in f64.
  Value* third = folding.constant(1.0 / 3, ElementType::f64);
  EXPECT_EQ(Builder::constantValue(folding.value("scale", {third}))->asDouble(0), 2.0 / 3);
}

TEST_F(GraphTest, CloneIsAnotherGraph) {
  Value* x = graph.addInput({ElementType::f32, {2}}, "x", InputKind::label);
  Value* y = builder.value("exp", {x});
  builder.setPhase(Phase::inputGradient, y->definer());
  builder.setGroup(3);
  Value* dy = builder.value("exp", {y});
  graph.outputs.push_back({.kind = OutputKind::result, .value = dy, .name = "out"});
  const std::unique_ptr<Graph> copy = clone(graph, "copy");
  EXPECT_EQ(copy->find("1")->definer()->origin(), copy->find("0")->definer());
  EXPECT_NE(copy->find("0"), y);
  EXPECT_EQ(copy->outputs[0].value, copy->find("1"));
  graph.outputs.clear();
  graph.erase(dy->definer());
  EXPECT_EQ(copy->operations().size(), 2u);
}

using OpRegistryDeathTest = IRTest;

static OpDef someOp() {
  return {.name = "some",
          .summary = "Something",
          .kind = OpKind::elementwise,
          .operands = {{"X"}},
          .results = {{"Y"}},
          .expressions = {"X"}};
}

TEST_F(OpRegistryDeathTest, ContradictionsAbort) {
  registry.add(someOp());
  EXPECT_DEATH(registry.add(someOp()), "op 'some': there are two ops of this name");
  auto expectDeath = [&](const char* message, auto change) {
    OpDef def = someOp();
    def.name = "other";
    change(def);
    EXPECT_DEATH(registry.add(def), message);
  };
  expectDeath("name is not an identifier", [](OpDef& d) { d.name = "a b"; });
  expectDeath("has no summary", [](OpDef& d) { d.summary = ""; });
  expectDeath("full stop", [](OpDef& d) { d.summary = "Something."; });
  expectDeath("has no result", [](OpDef& d) { d.results.clear(); });
  expectDeath("one expression per result", [](OpDef& d) { d.expressions = {"X", "X"}; });
  expectDeath("neither expressions nor", [](OpDef& d) { d.expressions = {}; });
  expectDeath("speaks of 'Z', which is not known", [](OpDef& d) { d.expressions = {"Z"}; });
  expectDeath("speaks of 'Y', which is not known", [](OpDef& d) { d.expressions = {"Y"}; });
  expectDeath("is not an expression", [](OpDef& d) { d.derivatives = {"X +"}; });
  expectDeath("more derivatives than operands", [](OpDef& d) { d.derivatives = {"X", "Y"}; });
  expectDeath("two things are named 'X'", [](OpDef& d) { d.results[0].name = "X"; });
  expectDeath("only the last operand can be variadic", [](OpDef& d) {
    d.operands = {{.name = "X", .variadic = true}, {.name = "Z"}};
  });
  expectDeath("another kind than its default", [](OpDef& d) { d.attributes = {{"a", 1.0, std::int64_t{1}, "b"}}; });
  expectDeath("infers no types", [](OpDef& d) { d.kind = OpKind::kernel, d.expressions.clear(); });
  expectDeath("is not elementwise", [](OpDef& d) { d.kind = OpKind::kernel; });
  expectDeath("maps no ONNX operator", [](OpDef& d) { d.kind = OpKind::composed; });
}

TEST_F(IRTest, FindsOnnxMappingsByVersion) {
  OpDef def = someOp();
  def.onnx = {{"Some", 1, 6, {}}, {"Some", 7, 13, {}}};
  registry.add(def);
  EXPECT_EQ(registry.findOnnx("Some", 6)->until, 6);
  EXPECT_EQ(registry.findOnnx("Some", 7)->since, 7);
  EXPECT_EQ(registry.findOnnx("Some", 14), nullptr);
  EXPECT_EQ(registry.findOnnx("Other", 7), nullptr);
}
