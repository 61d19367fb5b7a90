#include "ForwardOnData.h"

#include "OutputFolder.h"
#include "pdc/Driver/CpuEngine.h"
#include "pdc/Driver/Toolchain.h"
#include "pdc/IR/Text.h"
#include "pdc/Transforms/GraphUtilities.h"
#include "pdcrt/DataFile.h"
#include "pdcrt/Safetensors.h"

using namespace pdc;

Module* ForwardOnData::copy() {
  Expected<std::unique_ptr<Module>> copied = parseModule(print(original_), original_.file, registry_, diags_);
  if (!copied) return nullptr;
  module_ = std::move(*copied);
  graph().outputs.clear();
  return module_.get();
}

Status ForwardOnData::run(const std::function<void(const InterpreterResult&)>& look) {
  eraseDeadOperations(graph());
  if (!readParameters() || !openInputs()) return failure;
  Expected<std::unique_ptr<CpuEngine>> engine = CpuEngine::build({module_.get()}, diags_);
  if (!engine) return failure;
  for (std::int64_t minibatch = 0; minibatch < batches_; ++minibatch) {
    Expected<InterpreterResult> result =
        (*engine)->run(0, inputsOf(minibatch), parameters_, diags_, 0, static_cast<std::uint64_t>(minibatch));
    if (!result) return failure;
    look(*result);
  }
  return success;
}

Status ForwardOnData::readParameters() {
  Expected<TemporaryFolder> folder = TemporaryFolder::create(diags_);
  if (!folder) return failure;
  const std::string path = folder->path() + "/weights.safetensors";
  std::vector<const Parameter*> used;
  for (const Value* value : graph().parameterValues()) used.push_back(original_.findParameter(value->name()));
  if (!writeWeights(path, used, diags_)) return failure;
  pdcrt::SafetensorsFile file;
  if (pdcrt::Status status = file.open(path); !status) return reportFile(status, path, diags_);
  for (const auto& [name, record] : file.tensors())
    parameters_[name] = Tensor({record.element, record.shape}, record.values);
  return success;
}

Status ForwardOnData::openInputs() {
  for (const GraphInput& input : graph().inputs) {
    const Value& value = *input.value;
    if (value.users().empty()) continue;
    const std::string path = pdcrt::dataFile(data_, value.name());
    pdcrt::NpyFile& file = files_[value.name()];
    if (pdcrt::Status status = file.open(path); !status) return reportFile(status, path, diags_);
    Shape expected = value.type().shape;
    const int axis = axisOf(value);
    const std::int64_t samples = batches_ * batch_.size;
    if (axis >= 0 && file.shape().size() == expected.size()) {
      const std::int64_t there = file.shape()[static_cast<std::size_t>(axis)];
      if (there < samples)
        return diags_.error({.file = path}).help("write " + flag_ + ",batches=N with a smaller N")
               << "has " << there << " samples, " << batches_ << " batches of " << batch_.size << " need " << samples;
      expected[static_cast<std::size_t>(axis)] = there;
    }
    if (file.shape() != expected || isFloat(file.element()) != isFloat(value.type().element))
      return diags_.error({.file = path}) << "has " << nameOf(file.element()) << toString(file.shape()) << ", input '"
                                          << value.name() << "' is " << toString(value.type());
  }
  return success;
}

/// -1: the input is the same for all samples.
int ForwardOnData::axisOf(const Value& input) const {
  const auto found = batch_.axes.find(input.name());
  return found == batch_.axes.end() || found->second == pdcrt::noBatchAxis ? -1 : found->second;
}

std::map<std::string, Tensor> ForwardOnData::inputsOf(std::int64_t minibatch) {
  std::map<std::string, Tensor> inputs;
  for (const GraphInput& input : graph().inputs) {
    const Value& value = *input.value;
    const auto file = files_.find(value.name());
    if (file == files_.end()) {
      inputs[value.name()] = Tensor(value.type());
      continue;
    }
    const int axis = axisOf(value);
    std::int64_t outer = 1, inner = static_cast<std::int64_t>(pdcrt::bytesOf(file->second.element()));
    for (int i = 0; i < value.type().rank(); ++i)
      if (i != axis) (i < axis ? outer : inner) *= value.type().shape[static_cast<std::size_t>(i)];
    const std::int64_t there = axis < 0 ? 1 : file->second.shape()[static_cast<std::size_t>(axis)];
    const std::int64_t taken = axis < 0 ? 1 : batch_.size, first = axis < 0 ? 0 : minibatch * batch_.size;
    std::vector<std::byte> samples;
    for (std::int64_t o = 0; o < outer; ++o) {
      const auto from = file->second.values().subspan(static_cast<std::size_t>((o * there + first) * inner),
                                                      static_cast<std::size_t>(taken * inner));
      samples.insert(samples.end(), from.begin(), from.end());
    }
    inputs[value.name()] =
        Tensor({file->second.element(), value.type().shape}, samples).convertedTo(value.type().element);
  }
  return inputs;
}
