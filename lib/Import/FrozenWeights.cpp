// Values are accepted where they have the sum of those that the run had.
#include "pdc/Import/FrozenWeights.h"

#include "TensorReader.h"
#include "Weights/OwnInitializers.h"
#include "pdcrt/Checkpoint.h"

#include <set>

using namespace pdc;

Status pdc::takeFrozen(const std::string& model, const std::map<std::string, pdcrt::FileSum>& sums,
                       const std::map<std::string, pdcrt::TensorRecord>& base,
                       std::map<std::string, pdcrt::TensorRecord>& tensors, std::deque<std::vector<std::byte>>& made,
                       Diagnostics& diags) {
  if (sums.empty()) return success;
  const Expected<OnnxFile> file = openWithOwnInitializers(
      model, [&](const std::string& name) { return sums.contains(name); }, diags);
  if (!file) return failure;
  TensorReader reader(*file, diags, /*elementsMayLack=*/true);
  std::map<std::string, int> initializers;
  for (int i = 0; i < file->graph().initializer_size(); ++i) initializers[file->graph().initializer(i).name()] = i;
  std::set<std::string> inputs;
  for (const onnx::ValueInfoProto& input : file->graph().input()) inputs.insert(input.name());
  const char* help = "name the folder that the run was started from: --base=DIR";
  for (const auto& [name, sum] : sums) {
    const Location where{.file = model, .node = name};
    pdcrt::TensorRecord record;
    if (const auto found = base.find(name); found != base.end()) {
      record = found->second;
    } else if (const auto at = initializers.find(name); at != initializers.end()) {
      const Expected<StoredTensor> stored = reader.initializer(at->second);
      if (!stored) return failure;
      if (stored->lacksElements()) return diags.error(where).help(help) << "was frozen, and has no values in the model";
      const Expected<Tensor> tensor = reader.load(*stored, where);
      if (!tensor) return failure;
      record = {name, stored->type.element, stored->type.shape,
                made.emplace_back(tensor->bytes().begin(), tensor->bytes().end())};
    } else if (inputs.contains(name)) {
      continue; // the run bound it to a file
    } else {
      return diags.error(where).help(help)
             << "was frozen, and the model has no such weight: --quantize makes others of it";
    }
    if (const pdcrt::FileSum own = pdcrt::extended({}, record.values); own != sum)
      return diags.error(where).help(help)
             << "has other values than the frozen parameter of the run: it is "
             << pdcrt::frozenMetadata(name, own).second << " (bytes and CRC-32C), that one was "
             << pdcrt::frozenMetadata(name, sum).second;
    tensors[name] = record;
  }
  return success;
}
