#include "InputsAsWeights.h"

#include "Buffers.h"
#include "pdcrt/Training.h"

#include <algorithm>
#include <set>

using namespace pdc;

Status pdc::hasItsWeights(const OnnxFile& file, const std::vector<DataInput>& inputs, TensorReader& reader,
                          Diagnostics& diags) {
  const char* help = "--init=SEED starts with the usual initialisation of each operator, --init-from=F.safetensors "
                     "with stored weights";
  if (const auto [location, count] = reader.lackingData(); count > 0)
    return diags.error({.file = file.path()}).help("put it beside the model").help(help)
           << "has no weights: external data '" << location << "', with " << count << " of its "
           << file.graph().initializer_size() << " initializers, is not there";
  const auto isWeight = [](const DataInput& input) { return isFloat(input.element) && isNamedLikeWeight(input.name); };
  const auto count = std::count_if(inputs.begin(), inputs.end(), isWeight);
  if (count == 0 || file.graph().initializer_size() > 0) return success;
  return diags.error({.file = file.path()})
             .exit(ExitCode::unsupported)
             .help("export with the weights: torch.onnx.export(…, export_params=True)")
             .help(help)
         << "has no weights: " << count << " of its " << inputs.size() << " inputs are called like some, '"
         << std::find_if(inputs.begin(), inputs.end(), isWeight)->name << "' first";
}

void pdc::takeInputsAsWeights(OnnxFile& file, const std::string& train, Diagnostics& diags) {
  std::set<std::string> initializers;
  for (const onnx::TensorProto& tensor : file.graph().initializer()) initializers.insert(tensor.name());
  const bool anyTrain = !train.empty() && pdcrt::isParameterMatch(train);
  std::vector<std::string> taken;
  for (int i = 0; i < file.graph().input_size();) {
    const onnx::ValueInfoProto& input = file.graph().input(i);
    const bool stated =
        anyTrain && pdcrt::matches({.match = train, .learningRate = {}, .weightDecay = {}}, input.name(), 2);
    if (initializers.contains(input.name()) || !isTypedLikeParameter(input) ||
        !(stated || isNamedLikeParameter(input.name()))) {
      ++i;
      continue;
    }
    taken.push_back(input.name());
    file.makeInitializer(i);
  }
  if (!taken.empty())
    diags.remark({.file = file.path()}) << taken.size() << (taken.size() == 1 ? " input is" : " inputs are")
                                        << " taken for weights that the model was exported without, '" << taken.front()
                                        << "' first";
}
