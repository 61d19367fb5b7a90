// LINK: pdcTransforms pdcOps
// A loss whose classes a team divides, with the layer that makes its logits: it is what the whole graph computes, in
// f64.
#include "TransformsTesting.h"
#include "pdc/IR/TeamInterpreter.h"
#include "pdc/Transforms/Split.h"

#include <algorithm>

using namespace pdc;
using namespace pdc::testing;

namespace {

/// A layer with `classes` outputs and a loss. `options` are attributes. The layer's inputs are not divided, because the
/// model's would be.
std::string lossText(std::int64_t classes, bool isWeighted, const std::string& options) {
  const std::string count = std::to_string(classes);
  return "module @m {\n  param %w : f32[4, " + count + "]\n  param %v : f32[4]\n  graph @main(%x: f32[6, 4], " +
         "%label: i64[6] label" + (isWeighted ? ", %weights: f32[" + count + "]" : "") + ") {\n" +
         "    %h = add %x, %v : f32[6, 4]\n    %a = tanh %h : f32[6, 4]\n    %y = linear %a, %w : f32[6, " + count +
         "]\n    %loss, %s = softmax_cross_entropy %y, %label" + (isWeighted ? ", %weights" : "") +
         (options.empty() ? "" : " {" + options + "}") + " : f32[], f32[6, 2]\n    loss %loss\n  }\n}\n";
}

std::int64_t countOf(const Graph& graph, const std::string& op) {
  return std::count_if(graph.operations().begin(), graph.operations().end(),
                       [&](const auto& operation) { return operation->def().name == op; });
}

class SplitLoss : public ::testing::Test {
protected:
  /// The graph of a member, of a model that is differentiated and evaluated.
  Graph& split(const std::string& text, std::int64_t members) {
    model = std::make_unique<Model>(text);
    model->run(differentiate);
    model->run(fuse);
    model->run(addEvaluation);
    model->run([&](PassContext& context) { return splitOverTeam(context, {members, true}); });
    return *model->module->findGraph("main.tp" + std::to_string(members));
  }

  /// The largest difference of the losses and gradients from those of the whole graphs.
  double difference(std::int64_t members) {
    double most = 0;
    for (const char* name : {"main", "evaluate"}) {
      const Graph& whole = *model->module->findGraph(name);
      const Graph& member = *model->module->findGraph(name + (".tp" + std::to_string(members)));
      Tensors inputs = randomInputs(whole, 3, classes);
      if (const auto weights = inputs.find("weights"); weights != inputs.end())
        for (std::int64_t i = 0; i < classes; ++i) weights->second.set(i, 0.5 + std::abs(weights->second.asDouble(i)));
      if (badLabel) inputs.at("label").set(1, *badLabel);
      const Tensors parameters = randomParameters(*model->module, 3);
      const auto expected = interpret(whole, inputs, parameters, Precision::f64, model->diags, 5, 2);
      const auto actual = interpretTeam(member, inputs, parameters, Precision::f64, model->diags, 5, 2);
      if (!expected || !actual) return INFINITY;
      most = std::max(most, std::abs(actual->loss - expected->loss));
      EXPECT_EQ(actual->gradients.size(), expected->gradients.size());
      for (const auto& [parameter, gradient] : expected->gradients)
        for (std::int64_t i = 0; i < gradient.elements(); ++i)
          most = std::max(most, std::abs(actual->gradients.at(parameter).asDouble(i) - gradient.asDouble(i)));
    }
    return most;
  }

  std::int64_t classes = 6;
  std::optional<double> badLabel;
  std::unique_ptr<Model> model;
};

} // namespace

TEST_F(SplitLoss, IsThatOfAllClasses) {
  for (std::int64_t members : {2, 3})
    for (std::int64_t count : {6, 5}) // 5 with padding
      for (bool isWeighted : {false, true})
        for (const char* options : {"", "label_smoothing = 0.25", "has_ignore_index = true, ignore_index = 1",
                                    "has_ignore_index = true, ignore_index = 0, label_smoothing = 0.5"}) {
          SCOPED_TRACE(::testing::Message() << count << " classes over " << members << " {" << options << "}");
          classes = count;
          const Graph& member = split(lossText(classes, isWeighted, options), members);
          EXPECT_EQ(countOf(member, "softmax_cross_entropy_sums"), 1) << print(member);
          EXPECT_EQ(countOf(member, "softmax_cross_entropy"), 0);
          EXPECT_EQ(countOf(member, "all_gather"), 0) << print(member);
          EXPECT_LE(difference(members), 1e-12) << model->messages() << print(member);
        }
}

TEST_F(SplitLoss, RefusesALabelThatIsNoClass) {
  for (double bad : {-1, 5}) {
    classes = 5;
    badLabel = bad;
    split(lossText(classes, false, ""), 2);
    const Graph& member = *model->module->findGraph("main.tp2");
    Tensors inputs = randomInputs(member, 3, classes);
    inputs.at("label").set(1, bad);
    EXPECT_FALSE(
        interpretTeam(member, inputs, randomParameters(*model->module, 3), Precision::f64, model->diags, 5, 2));
    EXPECT_NE(model->messages().find("is none of the classes 0 to 4"), std::string::npos) << model->messages();
  }
}

// A gap belongs to no member's classes.
TEST_F(SplitLoss, WithAGapIsComputedByEveryMember) {
  classes = 4;
  std::string text = lossText(6, false, "gap = 2");
  const Graph& member = split(text, 2);
  EXPECT_EQ(countOf(member, "softmax_cross_entropy"), 1);
  EXPECT_LE(difference(2), 1e-12) << model->messages();
}

// Mistakes that the comparison must notice.

TEST_F(SplitLoss, AMissingSumIsNoticed) {
  for (const char* op : {"all_reduce_max", "all_reduce"}) {
    Graph& member = split(lossText(6, true, "label_smoothing = 0.25"), 2);
    int found = 0;
    for (const auto& operation : member.operations())
      if (operation->def().name == op && operation->phase == Phase::forward &&
          operation->operand(0)->definer()->def().name.find("softmax_cross_entropy") == 0) {
        member.replaceAllUses(operation->result(), operation->operand(0));
        ++found;
        break;
      }
    EXPECT_EQ(found, 1) << op;
    EXPECT_GT(difference(2), 1e-6) << op;
  }
}

TEST_F(SplitLoss, AnotherNumberOfClassesIsNoticed) {
  Graph& member = split(lossText(6, false, "label_smoothing = 0.25"), 2);
  for (const auto& operation : member.operations())
    if (operation->def().name == "softmax_cross_entropy_gradient")
      operation->attributes.set("classes", std::int64_t{7});
  EXPECT_GT(difference(2), 1e-6);
}
