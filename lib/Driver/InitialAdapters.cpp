// The two files that peft's save_pretrained writes.
#include "InitialAdapters.h"

#include "OutputFolder.h"
#include "Renaming.h"
#include "WeightFiles.h"

#include "pdc/Import/Adapters.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <sstream>

using namespace pdc;

namespace {

constexpr const char *configName = "/adapter_config.json", *tensorsName = "/adapter_model.safetensors";
const std::string prefix = "base_model.model.", endOfA = ".lora_A.weight", endOfB = ".lora_B.weight";

class Folder {
public:
  Folder(Module& module, std::string folder, Renaming renaming, Diagnostics& diags)
      : module_(module), folder_(std::move(folder)), renaming_(std::move(renaming)), diags_(diags) {}

  Status run() {
    if (!readConfig() || !openWeights(folder_ + tensorsName, file_, diags_)) return failure;
    std::set<std::string> paths;
    for (const auto& [name, record] : file_.tensors()) {
      const std::string own = name.starts_with(prefix) ? renaming_(name.substr(prefix.size())) : "";
      if (own.empty()) return error(name, "does not begin with '" + prefix + renaming_.strip + "'", "");
      if (own.ends_with(endOfA)) {
        paths.insert(own.substr(0, own.size() - endOfA.size()));
        if (!takeLayer(own.substr(0, own.size() - endOfA.size()), name)) return failure;
      } else if (!own.ends_with(endOfB) && !takeWhole(own, name, record)) {
        return failure;
      }
    }
    for (const Adapter& adapter : module_.adapters)
      if (!paths.contains(adapter.path))
        return error(adapter.path, "has no adapter there, but by --lora",
                     "give the --lora of that training: rank=" + std::to_string(config_.rank) +
                         ", and targets that match its layers only");
    return success;
  }

private:
  Failure error(const std::string& node, const std::string& message, const std::string& help) {
    Diagnostic diagnostic{.location = {.file = folder_ + tensorsName, .node = node}, .message = message};
    if (!help.empty()) diagnostic.helps.push_back(help);
    diags_.report(std::move(diagnostic));
    return failure;
  }

  Status readConfig() {
    const Expected<std::string> text = readFile(folder_ + configName, diags_);
    if (!text) return failure;
    Expected<PeftConfig> config = peftConfigFromJson(*text, folder_ + configName, diags_);
    if (!config) return failure;
    config_ = *std::move(config);
    return success;
  }

  /// The elements of a matrix as f32; empty, and an error, where it is none.
  Expected<Tensor> matrix(const std::string& name) {
    const pdcrt::TensorRecord* const record = file_.find(name);
    if (!record || record->shape.size() != 2 || !isFloat(record->element))
      return error(name, "is no matrix of floats", "");
    return Tensor({record->element, record->shape}, record->values).convertedTo(ElementType::f32);
  }

  Status takeLayer(const std::string& path, const std::string& nameOfA) {
    std::vector<const Adapter*> adapters;
    for (const Adapter& adapter : module_.adapters)
      if (adapter.path == path) adapters.push_back(&adapter);
    const Expected<Tensor> a = matrix(nameOfA);
    const Expected<Tensor> b = matrix(nameOfA.substr(0, nameOfA.size() - endOfA.size()) + endOfB);
    if (!a || !b) return failure;
    const std::int64_t rank = a->type().shape[0];
    const double scale = config_.scaleOf(path, rank);
    std::ostringstream lora;
    lora << "--lora=rank=" << rank << ",alpha=" << scale * static_cast<double>(rank) << ",targets=" << path;
    if (adapters.empty())
      return error(
          nameOfA,
          "is of the layer '" + path + "', which has no adapter" +
              (module_.adapters.empty() ? "" : "; the first that has one is '" + module_.adapters[0].path + "'"),
          "compile with the --lora of that training, for this layer " + lora.str() +
              "; or change the names by --init-from=DIR,strip=…,add=…");
    const auto count = static_cast<std::int64_t>(adapters.size());
    const Adapter& first = *adapters[0];
    if (a->type().shape != Shape{first.rank * count, first.inputs} ||
        b->type().shape != Shape{first.outputs, first.rank * count} || static_cast<float>(scale) != first.scale()) {
      std::ostringstream text;
      text << "is " << toString(a->type()) << " with the scale " << scale << ", the adapter here has "
           << toString(Type{ElementType::f32, {first.rank * count, first.inputs}}) << " and " << first.scale();
      return error(nameOfA, text.str(), "compile with " + lora.str());
    }
    for (std::int64_t i = 0; i < count; ++i) takeSlice(*adapters[static_cast<std::size_t>(i)], i, *a, *b);
    if (count == 1 && first.slices == 1) return success;
    for (std::int64_t output = 0; output < first.outputs; ++output)
      for (std::int64_t k = 0; k < rank; ++k)
        if (output / first.sliceOutputs() != adapters[static_cast<std::size_t>(k / first.rank)]->slice &&
            b->asDouble(output * rank + k) != 0)
          return error(nameOfA, "is of an adapter of the whole layer, and the adapters here are of slices",
                       "compile without slices");
    return success;
  }

  /// The adapter is the i-th of those of the layer that have one.
  void takeSlice(const Adapter& adapter, std::int64_t i, const Tensor& a, const Tensor& b) {
    Tensor ownA({ElementType::f32, {adapter.rank, adapter.inputs}});
    Tensor ownB({ElementType::f32, {adapter.sliceOutputs(), adapter.rank}});
    const std::int64_t rank = a.type().shape[0], row = adapter.slice * adapter.sliceOutputs();
    for (std::int64_t k = 0; k < adapter.rank * adapter.inputs; ++k)
      ownA.set(k, a.asDouble(i * adapter.rank * adapter.inputs + k));
    for (std::int64_t output = 0; output < adapter.sliceOutputs(); ++output)
      for (std::int64_t k = 0; k < adapter.rank; ++k)
        ownB.set(output * adapter.rank + k, b.asDouble((row + output) * rank + i * adapter.rank + k));
    give(*module_.findParameter(adapter.nameOfA()), std::move(ownA));
    give(*module_.findParameter(adapter.nameOfB()), std::move(ownB));
  }

  /// What was trained in full, under the module's name.
  Status takeWhole(const std::string& own, const std::string& name, const pdcrt::TensorRecord& record) {
    Parameter* found = nullptr;
    for (const auto& parameter : module_.parameters) {
      const std::vector<std::string>& names = parameter->moduleNames;
      if (names.empty() ? parameter->name == own : std::find(names.begin(), names.end(), own) != names.end())
        found = parameter.get();
    }
    if (!found) return error(name, "is no parameter of the model", "change the names by --init-from=DIR,strip=…,add=…");
    Tensor tensor = Tensor({record.element, record.shape}, record.values).convertedTo(found->type.element);
    if (found->isTransposeOfModule && record.shape.size() == 2) {
      Tensor turned({found->type.element, {record.shape[1], record.shape[0]}});
      for (std::int64_t i = 0; i < record.shape[0]; ++i)
        for (std::int64_t j = 0; j < record.shape[1]; ++j)
          turned.set(j * record.shape[0] + i, tensor.asDouble(i * record.shape[1] + j));
      tensor = std::move(turned);
    }
    if (tensor.type() != found->type)
      return error(name,
                   "is " + toString(Type{record.element, record.shape}) + ", the parameter of the model is " +
                       toString(found->type),
                   "");
    give(*found, std::move(tensor));
    return success;
  }

  void give(Parameter& parameter, Tensor values) {
    parameter.given = std::move(values);
    parameter.drawn.reset();
    parameter.location.file = folder_ + tensorsName;
  }

  Module& module_;
  const std::string folder_;
  const Renaming renaming_;
  Diagnostics& diags_;
  pdcrt::SafetensorsFile file_;
  PeftConfig config_;
};

} // namespace

bool pdc::isAdapterFolder(std::string word) {
  takeRenaming(word);
  std::error_code ignored;
  return std::filesystem::exists(word + configName, ignored);
}

Status pdc::takeAdapter(Module& module, std::string word, Diagnostics& diags) {
  Renaming renaming = takeRenaming(word);
  return Folder(module, std::move(word), std::move(renaming), diags).run();
}
