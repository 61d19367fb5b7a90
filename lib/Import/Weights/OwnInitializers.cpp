#include "Weights/OwnInitializers.h"

#include "Buffers.h"
#include "EqualInitializers.h"
#include "Weights/LiftedWeights.h"
#include "Weights/SharedInitializers.h"
#include "pdc/Support/NamePattern.h"

#include <algorithm>
#include <set>

using namespace pdc;

namespace {

std::string nameOf(const OnnxFile& file, int initializer) {
  return file.graph().initializer(initializer).name();
}

void tellOfLifted(const OnnxFile& file, const std::vector<LiftableWeight>& lifted, Diagnostics& diags) {
  std::vector<std::string> constants, inBodies;
  for (const LiftableWeight& weight : lifted) (weight.isInBody ? inBodies : constants).push_back(weight.name);
  if (!constants.empty())
    diags.remark({.file = file.path()})
            .help("--freeze='" + patternOf(constants) + "' keeps " + (constants.size() == 1 ? "it" : "them"))
        << constants.size() << (constants.size() == 1 ? " Constant node is" : " Constant nodes are")
        << " taken for weights, '" << constants.front() << "' first";
  if (!inBodies.empty())
    diags.remark({.file = file.path()})
            .help("--freeze='" + patternOf(inBodies) + "' keeps " + (inBodies.size() == 1 ? "it" : "them"))
        << inBodies.size() << (inBodies.size() == 1 ? " weight" : " weights") << " in bodies of control flow, '"
        << inBodies.front() << "' first: all iterations share them";
}

/// Undoes the merging of equal parameters that PyTorch's older exporter writes as Identity.
void separateMerged(OnnxFile& file, const std::vector<MergedParameter>& merged, Diagnostics& diags) {
  if (merged.empty()) return;
  const std::string source = nameOf(file, merged.front().initializer);
  separate(file, merged);
  diags.warning({.file = file.path()})
          .help("export with training=torch.onnx.TrainingMode.TRAINING to have every parameter stored")
      << "the exporter merged " << merged.size() << (merged.size() == 1 ? " parameter" : " parameters")
      << " with others that were equal, '" << merged.front().name << "' with '" << source
      << "' among them: they are trained apart";
}

void tellOfParted(const OnnxFile& file, const PartedInputs& parted, Diagnostics& diags) {
  if (parted.inputs.empty()) return;
  std::vector<std::string> names;
  Diagnostic diagnostic{.severity = Severity::warning, .location = {.file = file.path()}};
  for (const PartedInput& input : parted.inputs) {
    if (std::find(names.begin(), names.end(), input.name) != names.end()) continue;
    names.push_back(input.name);
    if (names.size() <= 4)
      diagnostic.notes.push_back("'" + input.name + "' was stored as '" + nameOf(file, input.initializer) + "'");
  }
  if (names.size() > 4) diagnostic.notes.push_back("and " + std::to_string(names.size() - 4) + " more");
  if (!parted.guessed.empty())
    diagnostic.notes.push_back("BatchNormalization '" + parted.guessed.front() +
                               "' has all its initializers from another one: they are taken for two layers, not for "
                               "one that is applied twice");
  diagnostic.message = std::to_string(names.size()) + (names.size() == 1 ? " initializer was" : " initializers were") +
                       " merged with others that were equal: they are apart again";
  diagnostic.helps = {"export with optimize=False, or after a step of training, to have every parameter stored"};
  diags.report(std::move(diagnostic));
}

} // namespace

static bool hasInitializer(const OnnxFile& file, const std::string& name) {
  const auto& all = file.graph().initializer();
  return std::any_of(all.begin(), all.end(), [&](const onnx::TensorProto& tensor) { return tensor.name() == name; });
}

Expected<OnnxFile> pdc::openWithOwnInitializers(const std::string& path,
                                                const std::function<bool(const std::string&)>& wanted,
                                                Diagnostics& diags) {
  Expected<OnnxFile> file = OnnxFile::open(path, diags);
  if (!file) return failure;
  giveOwnInitializers(*file, wanted, diags);
  for (int i = 0; i < file->graph().input_size();)
    if (const std::string& name = file->graph().input(i).name(); wanted(name) && !hasInitializer(*file, name))
      file->makeInitializer(i);
    else
      ++i;
  return file;
}

void pdc::giveOwnInitializers(OnnxFile& file, const ImportOptions& options, Diagnostics& diags) {
  NamePattern train("--train", options.train); // which the classification of the initializers checks
  tellOfLifted(
      file,
      liftWeights(file, [&](const LiftableWeight& weight) { return weight.isWeight || train.matches(weight.name); }),
      diags);
  Diagnostics silent(nullptr); // the import of the initializers says what is wrong with them
  TensorReader reader(file, silent, options.weightsMayLack);
  separateMerged(file, mergedParameters(file, reader, options.tie), diags);
  const PartedInputs parted = partedInputs(file, reader);
  tellOfParted(file, parted, diags);
  part(file, parted.inputs);
}

void pdc::giveOwnInitializers(OnnxFile& file, const std::function<bool(const std::string&)>& wanted,
                              Diagnostics& diags) {
  liftWeights(file, [&](const LiftableWeight& weight) { return wanted(weight.name); });
  TensorReader reader(file, diags);
  std::vector<MergedParameter> merged = mergedParameters(file, reader, /*tie=*/false);
  std::erase_if(merged, [&](const MergedParameter& parameter) { return !wanted(parameter.name); });
  separate(file, merged);
  PartedInputs parted = partedInputs(file, reader);
  std::erase_if(parted.inputs, [&](const PartedInput& input) { return !wanted(input.name); });
  part(file, parted.inputs);
}
