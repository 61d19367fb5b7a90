// LINK: pdcIR
// Rules of the verifier that no text can break (test/IR/invalid-*.pdir has the others), each with a module that keeps
// it.
#include "IRTesting.h"

using namespace pdc;

class VerifierTest : public IRTest {
protected:
  VerifierTest() {
    module.name = "m";
    module.file = "m.onnx";
    w = module.addParameter({.name = "w", .type = {ElementType::f32, {2}}});
    graph = module.graphs.emplace_back(std::make_unique<Graph>("main")).get();
    x = graph->addInput({ElementType::f32, {2}}, "x");
    Builder b(module, *graph, registry, diags);
    y = b.value("add", {x, graph->parameterValue(*w)});
    z = b.value("exp", {y});
  }
  std::string violations() {
    EXPECT_FALSE(verify(module, diags));
    return messages();
  }

  Module module;
  Parameter* w;
  Graph* graph;
  Value *x, *y, *z;
};

TEST_F(VerifierTest, AcceptsWhatIsRight) {
  EXPECT_TRUE(verify(module, diags));
  EXPECT_EQ(messages(), "");
}

TEST_F(VerifierTest, DefinitionComesBeforeUse) {
  graph->reorder({z->definer(), y->definer()});
  EXPECT_EQ(violations(), "error: 'exp' op uses '%0' before it is defined\n");
}

TEST_F(VerifierTest, OperandsBelongToTheGraph) {
  Graph other("other");
  z->definer()->setOperand(0, other.addInput({ElementType::f32, {2}}, "q"));
  EXPECT_EQ(violations(), "error: 'exp' op uses '%q' before it is defined\n");
  z->definer()->setOperand(0, y);
}

TEST_F(VerifierTest, TypesFollowOperands) {
  x->setType({ElementType::f32, {3, 2}});
  EXPECT_EQ(violations(), "error: result 'Y' of 'add' op is f32[3, 2], not f32[2]\n");
}

TEST_F(VerifierTest, AttributesAreThere) {
  Builder b(module, *graph, registry, diags);
  Value* s = b.value("scale", {x});
  s->definer()->attributes.erase("alpha");
  EXPECT_EQ(violations(), "error: 'scale' op needs attribute 'alpha', a number\n");
}

TEST_F(VerifierTest, ParametersAgreeWithTheModule) {
  w->type.shape = {3};
  EXPECT_EQ(violations(), "m.onnx:@main: error: parameter 'w' is f32[3], here f32[2]\n");
}

TEST_F(VerifierTest, ParametersBelongToTheModule) {
  Parameter stranger{.name = "stranger", .type = {ElementType::f32, {2}}};
  graph->parameterValue(stranger);
  EXPECT_EQ(violations(), "m.onnx:@main: error: '%stranger' is no parameter of the module\n");
}

TEST_F(VerifierTest, ParametersHaveDistinctNames) {
  module.addParameter({.name = "w", .type = {ElementType::f32, {2}}});
  EXPECT_EQ(violations(), "error: two parameters are named 'w'\n");
}

TEST_F(VerifierTest, GraphsHaveDistinctNames) {
  module.graphs.push_back(std::make_unique<Graph>("main"));
  EXPECT_EQ(violations(), "m.onnx:@main: error: two graphs are named '@main'\n");
}

TEST_F(VerifierTest, OutputsExist) {
  graph->outputs.push_back({.kind = OutputKind::result, .value = nullptr, .name = "none"});
  EXPECT_EQ(violations(), "m.onnx:@main: error: an output is not a value of the graph\n");
}

TEST_F(VerifierTest, OutputsOfParametersNameOne) {
  graph->outputs.push_back({.kind = OutputKind::gradient, .value = x});
  EXPECT_EQ(violations(), "m.onnx:@main: error: the gradient '%x' belongs to no parameter of the module\n");
}

TEST_F(VerifierTest, OnlyReceivedInputsHaveASender) {
  graph->inputs[0].peer = 1;
  EXPECT_EQ(violations(), "m.onnx:@main: error: input '%x' has a sending stage, and is not received\n");
}

TEST_F(VerifierTest, OriginsStandBefore) {
  y->definer()->phase = Phase::inputGradient;
  y->definer()->setOrigin(z->definer());
  EXPECT_EQ(violations(), "error: the origin of backward 'add' op does not stand before it\n");
}

TEST_F(VerifierTest, SizesFitInto63Bits) {
  x->setType({ElementType::f32, {std::int64_t{1} << 62}});
  EXPECT_NE(violations().find("the size of '%x' does not fit into 63 bits"), std::string::npos);
}

TEST_F(VerifierTest, AllViolationsAreReported) {
  y->setType({ElementType::i64, {2}});
  graph->inputs[0].peer = 1;
  static_cast<void>(violations());
  EXPECT_GE(diags.all().size(), 3u);
}
