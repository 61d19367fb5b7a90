// LINK: pdcImport pdcStage pdcOps
// The whole chain of transforms on the model of the quickstart, cut at every group.
#include "StageTesting.h"

#include "pdc/Import/OnnxImport.h"

#include <filesystem>

using namespace pdc;
using namespace pdc::testing;

namespace {

const std::string digits = PDC_SOURCE_DIR "/examples/digits/digits.onnx";

std::unique_ptr<Model> trainingModel() {
  Diagnostics diags(nullptr);
  auto imported = importOnnx(digits, {.batch = 2, .dims = {}, .freeze = {}, .train = {}}, allOps(), diags);
  EXPECT_TRUE(imported);
  if (!imported) return nullptr;
  auto model = std::make_unique<Model>(std::move(*imported));
  model->run(pdc::canonicalize);
  model->run(pdc::raise);
  LossOptions loss;
  loss.kind = "softmax-cross-entropy";
  model->run([&](PassContext& context) { return addLoss(context, loss); });
  model->run(differentiate);
  model->run(fuse);
  model->run(addEvaluation);
  return model;
}

} // namespace

TEST(Digits, CutAtEveryGroupComputesTheBitsOfTheUncutGraph) {
  ASSERT_TRUE(std::filesystem::exists(digits));
  const std::unique_ptr<Model> uncut = trainingModel(), cut = trainingModel();
  ASSERT_TRUE(uncut && cut);
  const int groups = groupsOf(uncut->main());
  EXPECT_GE(groups, 4) << "too few atoms for the four stages of the quickstart";
  std::vector<int> stageOfGroup;
  for (int group = 0; group < groups; ++group) stageOfGroup.push_back(group);
  Tensors parameters = randomParameters(*uncut->module, 5);
  for (const auto& parameter : uncut->module->parameters) // variances are positive
    if (parameter->role == ParameterRole::state)
      for (std::int64_t i = 0; i < parameter->type.elements(); ++i)
        parameters[parameter->name].set(i, std::abs(parameters[parameter->name].asDouble(i)) + 0.5);
  checkCut(*uncut, *cut, stageOfGroup, randomInputs(uncut->main(), 5, 10), parameters);
}

TEST(Digits, NoElementwiseOperationBeginsAGroup) {
  const std::unique_ptr<Model> model = trainingModel();
  ASSERT_TRUE(model);
  int last = -1;
  for (const auto& operation : model->main().operations()) {
    if (operation->group <= last) continue;
    last = operation->group;
    EXPECT_EQ(operation->def().kind, OpKind::kernel) << print(model->main());
  }
}
