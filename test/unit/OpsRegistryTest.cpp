// LINK: pdcTransforms pdcOps
// What every op must satisfy, checked for each one in the registry: a new op arrives tested.
#include "OpsTrained.h"

#include "pdc/IR/Elementwise.h"
#include "pdc/Transforms/Transforms.h"

#include "pdcrt/Setup.h"

#include <algorithm>
#include <set>

using namespace pdc;
using namespace pdc::testing;

namespace {

class Ops : public ::testing::TestWithParam<const OpDef*> {
protected:
  const OpDef& def() const { return *GetParam(); }
  bool isComposed() const { return def().kind == OpKind::composed; }
  /// Computed by one member alone.
  bool isAlone() const { return def().kind != OpKind::collective; }
};

/// Whether every operand and result of `a` is at most as large as that of `b`, dimension by dimension.
bool isSmaller(const Operation& a, const Operation& b) {
  const auto fits = [](const std::vector<Value*>& left, const std::vector<Value*>& right) {
    if (left.size() != right.size()) return false;
    for (std::size_t i = 0; i < left.size(); ++i) {
      if (!left[i] != !right[i]) return false;
      if (!left[i]) continue;
      const Shape &x = left[i]->type().shape, &y = right[i]->type().shape;
      if (left[i]->type().element != right[i]->type().element) return false;
      if (x.size() != y.size() || !std::equal(x.begin(), x.end(), y.begin(), std::less_equal<>())) return false;
    }
    return true;
  };
  return fits(a.operands(), b.operands()) && fits(a.results(), b.results());
}

} // namespace

TEST_P(Ops, SaysWhatItIs) {
  EXPECT_NE(def().summary.back(), '.');
  for (const AttributeDef& attribute : def().attributes) {
    EXPECT_FALSE(attribute.summary.empty()) << attribute.name;
    EXPECT_NE(attribute.summary.back(), '.') << attribute.name;
  }
  if (isComposed()) return;
  EXPECT_GE(def().examples.size(), def().gradient ? 5u : 1u) << "gradients are tested on at least five shapes";
  if (def().kind == OpKind::kernel) {
    EXPECT_TRUE(def().kernel.use);
    EXPECT_TRUE(def().cost);
    EXPECT_TRUE(def().reference);
  }
}

TEST_P(Ops, ExamplesParseVerifyAndPrintBack) {
  for (const std::string& example : def().examples) {
    const std::string text = moduleText(example);
    const auto module = parse(text);
    ASSERT_TRUE(module);
    EXPECT_EQ(print(*module), text);
    EXPECT_EQ(&module->graphs.front()->operations().back()->def(), &def()) << "an example ends with its op";
    Diagnostics diags(nullptr);
    EXPECT_TRUE(verify(*module, diags)) << messages(diags);
  }
}

// The text states the result types, the parser compares them with inference; here the reference fills them, in both
// precisions, and the two agree.
TEST_P(Ops, ReferenceAgreesInBothPrecisions) {
  if (!isAlone()) GTEST_SKIP() << "defined by its forms";
  for (const std::string& example : def().examples) {
    const auto module = parse(moduleText(example));
    ASSERT_TRUE(module);
    Graph& graph = *module->graphs.front();
    addOutputs(graph);
    const auto inputs = Inputs(1).of(graph);
    Diagnostics diags(nullptr);
    const auto exact = interpret(graph, inputs, {}, Precision::f64, diags, 5, 2);
    const auto rounded = interpret(graph, inputs, {}, Precision::f32, diags, 5, 2);
    ASSERT_TRUE(exact && rounded) << messages(diags) << example;
    for (const GraphOutput& output : graph.outputs) {
      const Tensor &wide = exact->outputs.at(output.name), &narrow = rounded->outputs.at(output.name);
      EXPECT_EQ(wide.shape(), output.value->type().shape);
      EXPECT_EQ(wide.type().element, heldAs(output.value->type().element, Precision::f64));
      EXPECT_LT(errorOf(narrow, wide), isFloat(wide.type().element) ? 2e-6 : 1e-300) << example;
    }
  }
}

// What OpRewrites::again makes has the type and the bits of result 0.
TEST_P(Ops, AgainGivesTheFirstResult) {
  if (!def().rewrites.again) GTEST_SKIP() << "not again";
  for (const std::string& example : def().examples) {
    const auto module = parse(moduleText(example));
    ASSERT_TRUE(module);
    Graph& graph = *module->graphs.front();
    const Operation& op = *graph.operations().back();
    Diagnostics diags(nullptr);
    Builder b(*module, graph, allOps(), diags);
    const Operation* again = def().rewrites.again(op, b);
    ASSERT_TRUE(again) << messages(diags) << example;
    EXPECT_EQ(again->result()->type(), op.result()->type());
    graph.outputs = {{.kind = OutputKind::result, .value = op.result(), .name = "first"},
                     {.kind = OutputKind::result, .value = again->result(), .name = "again"}};
    const auto result = interpret(graph, Inputs(1).of(graph), {}, Precision::f32, diags);
    ASSERT_TRUE(result) << messages(diags);
    EXPECT_EQ(result->outputs.at("first"), result->outputs.at("again")) << example;
  }
}

namespace {

/// The results of an example's last operation that carry gradients: those behind the first of a kernel op are for its
/// own gradient.
std::vector<Value*> differentiableResults(const Module& module) {
  const Operation& op = *module.graphs.front()->operations().back();
  const std::vector<Value*>& results = op.results();
  return {results.begin(), op.def().kind == OpKind::elementwise ? results.end() : results.begin() + 1};
}

/// Attributes that examples need not vary: keys and shares of random numbers, small numbers beside a variance, the type
/// that a number, or a result, is converted to.
bool needNotVary(const AttributeDef& attribute) {
  return std::set<std::string>{"op_number", "ratio", "epsilon", "to", "result", "low"}.contains(attribute.name);
}

/// An example whose gradients are compared with differences: floats that lead to floats.
bool isDifferentiated(const Module& module) {
  const Graph& graph = *module.graphs.front();
  const Value* result = graph.operations().back()->result();
  return result && isFloat(result->type().element) &&
         std::any_of(graph.inputs.begin(), graph.inputs.end(), [](const GraphInput& input) {
           return isFloat(input.value->type().element) && input.value->name().rfind("constant", 0) != 0;
         });
}

} // namespace

TEST_P(Ops, GradientAgreesWithFiniteDifferences) {
  if (!def().gradient && def().kind != OpKind::elementwise) GTEST_SKIP() << "no gradient";
  int compared = 0;
  for (const std::string& example : def().examples) {
    auto parsed = parse(moduleText(example));
    ASSERT_TRUE(parsed);
    const std::vector<Value*> differentiable = differentiableResults(*parsed);
    Trained trained(std::move(parsed), differentiable);
    Graph& graph = *trained.module->graphs.front();
    if (graph.outputs.empty() || trained.parameters.empty()) continue; // integers or booleans
    const auto whole = parse(moduleText(example));
    const std::vector<Value*>& results = whole->graphs.front()->operations().back()->results();
    if (std::find(results.begin(), results.end(), nullptr) != results.end()) continue; // as in evaluation
    compared += expectGradientsToBeDifferences(trained);
  }
  int differentiated = 0;
  for (const std::string& example : def().examples) differentiated += isDifferentiated(*parse(moduleText(example)));
  EXPECT_GE(compared, def().gradient ? 5 : std::min(differentiated, 5));
}

// What can be said of an op is said in several ways where its gradient is tested: strides, dilations, groups, axes.
TEST_P(Ops, ExamplesOfGradientsVaryEveryAttribute) {
  if (!def().gradient) GTEST_SKIP() << "no gradient of its own";
  for (const AttributeDef& attribute : def().attributes) {
    if (needNotVary(attribute)) continue;
    std::vector<Attribute> values;
    for (const std::string& example : def().examples) {
      const auto module = parse(moduleText(example));
      ASSERT_TRUE(module);
      if (!isDifferentiated(*module)) continue;
      const Attribute* value = module->graphs.front()->operations().back()->attributes.find(attribute.name);
      if (value && std::find(values.begin(), values.end(), *value) == values.end()) values.push_back(*value);
    }
    EXPECT_GE(values.size(), 2u) << attribute.name << " is always the same";
  }
}

// An elementwise op of several floats is differentiated where one of them is repeated.
TEST_P(Ops, ExamplesOfElementwiseGradientsBroadcast) {
  if (def().kind != OpKind::elementwise || def().operands.size() < 2) GTEST_SKIP() << "one operand";
  int differentiated = 0, repeated = 0;
  for (const std::string& example : def().examples) {
    const auto module = parse(moduleText(example));
    ASSERT_TRUE(module);
    if (!isDifferentiated(*module)) continue;
    ++differentiated;
    const Operation& op = *module->graphs.front()->operations().back();
    repeated += std::any_of(op.operands().begin(), op.operands().end(), [&](const Value* operand) {
      return operand && operand->type().shape != op.result()->type().shape;
    });
  }
  if (differentiated > 0) {
    EXPECT_GE(repeated, 2) << "of " << differentiated << " examples";
  }
}

// Floats that lead to floats have a gradient, but for the ops that are named here. (Steps have the gradient 0.)
TEST_P(Ops, HasAGradientUnlessItIsKnownToHaveNone) {
  static const std::set<std::string> known = {"batch_norm_training_again",
                                              "conv2d_max_pool",
                                              "decode_rows",
                                              "encode_rows",
                                              "linear_of_rows",
                                              "relayout",
                                              "softmax_cross_entropy_maxima",
                                              "softmax_cross_entropy_of_sums",
                                              "softmax_cross_entropy_sums"}; // after differentiation
  // Graphs are split after differentiation.
  if (isComposed() || !isAlone() || def().kind == OpKind::elementwise || def().kind == OpKind::constant) return;
  if (def().name.find("gradient") != std::string::npos) return; // of second order
  bool differentiable = false;
  for (const std::string& example : def().examples) differentiable |= isDifferentiated(*parse(moduleText(example)));
  if (!differentiable) return;
  EXPECT_NE(static_cast<bool>(def().gradient), known.contains(def().name)) << def().name;
}

namespace {

/// The last operation of an example alone, its dimensions of size `from` of size `to` instead, in attributes that are
/// shapes too; null, with an error reported, where the op refuses that.
std::unique_ptr<Module> resized(const Module& example, std::int64_t from, std::int64_t to, Diagnostics& diags) {
  const auto replaced = [&](Shape shape) {
    std::replace(shape.begin(), shape.end(), from, to);
    return shape;
  };
  const Operation& op = *example.graphs.front()->operations().back();
  auto module = std::make_unique<Module>();
  module->name = "resized";
  Graph& graph = *module->graphs.emplace_back(std::make_unique<Graph>("main"));
  Builder b(*module, graph, allOps(), diags);
  std::map<const Value*, Value*> operands = {{nullptr, nullptr}};
  for (const Value* operand : op.operands()) {
    if (operands.contains(operand)) continue;
    const std::optional<Tensor> constant = Builder::constantValue(operand);
    const Type type{operand->type().element, replaced(operand->type().shape)};
    operands[operand] = constant ? b.constant(*constant) : graph.addInput(type, operand->name());
  }
  Attributes attributes = op.attributes;
  for (const char* name : {"shape", "input_shape", "sizes"})
    if (const auto* found = attributes.find(name); found && std::holds_alternative<Shape>(*found))
      attributes.set(name, replaced(std::get<Shape>(*found)));
  std::vector<Value*> list;
  for (const Value* operand : op.operands()) list.push_back(operands.at(operand));
  std::vector<bool> wanted;
  for (const Value* result : op.results()) wanted.push_back(result);
  return b.create(op.def().name, list, attributes, wanted) ? std::move(module) : nullptr;
}

} // namespace

// Whatever the op says to dimensions of size 0 and 1: it computes and differentiates them, or refuses them.
TEST_P(Ops, TakesOrRefusesEmptyDimensionsAndThoseOfSizeOne) {
  if (isComposed() || !isAlone() || def().facts.random) return;
  int empty = 0, refused = 0;
  for (const std::string& example : def().examples) {
    const auto whole = parse(moduleText(example));
    ASSERT_TRUE(whole);
    std::set<std::int64_t> sizes;
    for (const GraphInput& input : whole->graphs.front()->inputs)
      for (std::int64_t dim : input.value->type().shape) sizes.insert(dim);
    for (std::int64_t from : sizes)
      for (std::int64_t to : {0, 1}) {
        Diagnostics diags(nullptr);
        auto module = resized(*whole, from, to, diags);
        if (!module || !verify(*module, diags)) { // by its types, or by a rule of its own
          EXPECT_TRUE(diags.hasErrors()) << example;
          ++refused;
          continue;
        }
        empty += to == 0;
        const std::vector<Value*> results = differentiableResults(*module);
        const std::vector<Value*>& all = module->graphs.front()->operations().back()->results();
        const bool differentiable = (def().gradient || def().kind == OpKind::elementwise) &&
                                    std::find(all.begin(), all.end(), nullptr) == all.end();
        Trained trained(std::move(module), results);
        const Graph& graph = *trained.module->graphs.front();
        // An index or a label may be outside now, which the values say; or no label counts any more.
        const auto result = interpret(graph, trained.inputs, trained.parameters, Precision::f64, diags, 5, 2);
        if (!result) {
          EXPECT_TRUE(diags.hasErrors()) << example;
          ++refused;
        } else if (std::isfinite(result->loss) && differentiable && !trained.parameters.empty() &&
                   !graph.outputs.empty()) {
          expectGradientsToBeDifferences(trained);
        }
      }
  }
  RecordProperty("empty", empty);
  RecordProperty("refused", refused);
  EXPECT_TRUE(empty || refused || def().kind == OpKind::constant);
}

TEST_P(Ops, CostGrowsWithSize) {
  if (isComposed()) return;
  std::vector<std::unique_ptr<Module>> modules;
  for (const std::string& example : def().examples) {
    modules.push_back(parse(moduleText(example)));
    ASSERT_TRUE(modules.back());
  }
  for (const auto& a : modules) {
    const Operation& small = *a->graphs.front()->operations().back();
    const Cost cost = costOf(small);
    EXPECT_GE(cost.flops, 0);
    EXPECT_GE(cost.bytes, 0);
    for (const auto& b : modules) {
      const Operation& large = *b->graphs.front()->operations().back();
      if (small.attributes != large.attributes || !isSmaller(small, large)) continue;
      EXPECT_LE(cost.flops, costOf(large).flops) << print(*a) << print(*b);
      EXPECT_LE(cost.bytes, costOf(large).bytes) << print(*a) << print(*b);
    }
  }
}

// The class takes the options that the compiler prints, and refuses none.
TEST_P(Ops, KernelCanBeConstructed) {
  if (def().kind != OpKind::kernel) return;
  for (const std::string& example : def().examples) {
    const auto module = parse(moduleText(example));
    ASSERT_TRUE(module);
    const KernelUse use = def().kernel.use(*module->graphs.front()->operations().back());
    EXPECT_FALSE(use.className.empty());
    EXPECT_FALSE(use.method.empty());
    EXPECT_EQ(use.draws, def().facts.random);
    pdcrt::Setup setup;
    EXPECT_NO_THROW(use.construct(setup)) << example << use.options;
  }
}

// What an op becomes in evaluation has the types of what it replaces.
TEST_P(Ops, EvaluationFormHasTheSameTypes) {
  if (!def().rewrites.evaluation) return;
  for (const std::string& example : def().examples) {
    const auto module = parse(moduleText(example));
    ASSERT_TRUE(module);
    Graph& graph = *module->graphs.front();
    const Operation& op = *graph.operations().back();
    Diagnostics diags(nullptr);
    Builder b(*module, graph, allOps(), diags);
    const std::vector<Value*> values = def().rewrites.evaluation(op, b);
    ASSERT_EQ(values.size(), op.def().results.size()) << messages(diags);
    ASSERT_TRUE(values[0]) << messages(diags);
    for (std::size_t i = 0; i < values.size(); ++i)
      EXPECT_TRUE(!values[i] || values[i]->type() == op.result(i)->type()) << example;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Ops, ::testing::ValuesIn(allOps().all()),
                         [](const auto& tested) { return tested.param->name; });
