// Small matrices: products are sums in f64, in the order of the ranks.
#include "pdc/Import/Adapters.h"

#include "EqualInitializers.h"
#include "TensorReader.h"
#include "Weights/Int8Records.h"
#include "Weights/ModuleNames.h"
#include "Weights/OwnInitializers.h"
#include "pdc/Import/StateDict.h"
#include "pdcrt/WriteFile.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

using namespace pdc;
using Json = nlohmann::ordered_json;

namespace {

using Bytes = std::span<const std::byte>;

/// Floats of a record. Errors: it is lacking, or another one.
Expected<std::vector<float>> matrixOf(const TrainedTensors& trained, const std::string& name,
                                      std::vector<std::int64_t> shape, Diagnostics& diags) {
  const auto found = trained.find(name);
  const Type wanted{ElementType::f32, shape};
  if (found == trained.end())
    return diags.error({.node = name}).help("name the weights of a training with these adapters")
           << "is lacking among the trained weights, an adapter has it as " << toString(wanted);
  if (const Type type{found->second.element, found->second.shape}; type != wanted)
    return diags.error({.node = name}) << "was trained as " << toString(type) << ", the adapter has it as "
                                       << toString(wanted);
  return pdcrt::elementsOf<float>(found->second.values);
}

class Merging {
public:
  Merging(const OnnxFile& file, const TrainedTensors& trained, const AdapterRecord& record,
          std::deque<std::vector<std::byte>>& made, Diagnostics& diags)
      : file_(file), trained_(trained), record_(record), made_(made), diags_(diags), reader_(file, diags, true),
        names_(file) {}

  Expected<TrainedTensors> run() {
    TrainedTensors merged = trained_;
    for (const Adapter& adapter : record_.adapters) {
      merged.erase(adapter.nameOfA());
      merged.erase(adapter.nameOfB());
      if (!merge(adapter)) return failure;
    }
    for (const auto& [name, weight] : weights_) merged[name] = weight.record;
    return merged;
  }

private:
  struct Weight {
    pdcrt::TensorRecord record;
    std::vector<double> sums; ///< before the last rounding
    std::size_t adapters = 0;
  };

  /// The index of an initializer; -1: there is none.
  int initializerOf(const std::string& name) const {
    for (int i = 0; i < file_.graph().initializer_size(); ++i)
      if (file_.graph().initializer(i).name() == name) return i;
    return -1;
  }

  Status start(const Adapter& adapter, Weight& weight) {
    const Location where{.file = file_.path(), .node = adapter.weight};
    if (const auto found = trained_.find(adapter.weight); found != trained_.end()) {
      weight.record = found->second;
    } else {
      const int i = initializerOf(adapter.weight);
      if (i < 0) return diags_.error(where) << "has an adapter, but is no initializer of the model";
      const Expected<StoredTensor> stored = reader_.initializer(i);
      if (!stored) return failure;
      const Expected<Tensor> tensor = reader_.load(*stored, where);
      if (!tensor) return failure;
      const Bytes values = tensor->bytes();
      weight.record = {adapter.weight, stored->type.element, stored->type.shape,
                       made_.emplace_back(values.begin(), values.end())};
    }
    std::vector<std::int64_t> shape = {adapter.outputs, adapter.inputs};
    if (!adapter.outputsFirst) std::swap(shape[0], shape[1]);
    const Type type{weight.record.element, weight.record.shape}, wanted{ElementType::f32, shape};
    if (type != wanted)
      return diags_.error(where) << "is " << toString(type) << ", its adapter is for " << toString(wanted);
    const std::vector<float> floats = pdcrt::elementsOf<float>(weight.record.values);
    weight.sums.assign(floats.begin(), floats.end());
    return checkReaders(adapter);
  }

  /// A weight that something without the adapter reads, too, would change there.
  Status checkReaders(const Adapter& adapter) {
    std::set<std::string> names = {adapter.weight};
    for (int i = 0; i < file_.graph().initializer_size(); ++i)
      if (const std::string& name = file_.graph().initializer(i).name();
          !trained_.contains(name) &&
          copiedMatrix(file_, reader_, i, [&](const auto& o) { return o == adapter.weight; }))
        names.insert(name);
    std::set<std::string> paths;
    for (const Adapter& other : record_.adapters)
      if (other.weight == adapter.weight) paths.insert(other.path);
    std::map<std::string, const onnx::NodeProto*> readers; // by the module that has called them
    for (const onnx::NodeProto& node : file_.graph().node())
      for (const std::string& input : node.input())
        if (names.contains(input)) readers.emplace(node.op_type() == "Gather" ? "" : names_.modulePathOf(node), &node);
    for (const auto& [caller, node] : readers)
      if (node->op_type() == "Gather" || (readers.size() > 1 && !paths.contains(caller)))
        return diags_.error({.file = file_.path(), .node = node->name()})
                   .exit(ExitCode::unsupported)
                   .help("export the adapter (--export-adapter), or train without one for '" + adapter.path + "'")
               << "reads '" << adapter.weight << "', too, which cannot be merged with the adapter of '" << adapter.path
               << "' alone";
    return success;
  }

  Status merge(const Adapter& adapter) {
    const auto [found, isNew] = weights_.try_emplace(adapter.weight);
    Weight& weight = found->second;
    if (isNew && !start(adapter, weight)) return failure;
    const std::int64_t outputs = adapter.sliceOutputs(), first = adapter.slice * outputs;
    const Expected<std::vector<float>> foundA =
        matrixOf(trained_, adapter.nameOfA(), {adapter.rank, adapter.inputs}, diags_);
    const Expected<std::vector<float>> foundB = matrixOf(trained_, adapter.nameOfB(), {outputs, adapter.rank}, diags_);
    if (!foundA || !foundB) return failure;
    const float *const a = foundA->data(), *const b = foundB->data();
    const auto scale = static_cast<double>(adapter.scale());
    for (std::int64_t output = 0; output < outputs; ++output)
      for (std::int64_t input = 0; input < adapter.inputs; ++input) {
        double sum = 0;
        for (std::int64_t k = 0; k < adapter.rank; ++k)
          sum += static_cast<double>(b[output * adapter.rank + k]) * static_cast<double>(a[k * adapter.inputs + input]);
        const std::int64_t row = first + output;
        weight.sums[static_cast<std::size_t>(adapter.outputsFirst ? row * adapter.inputs + input
                                                                  : input * adapter.outputs + row)] += scale * sum;
      }
    const auto ofWeight = [&](const Adapter& other) { return other.weight == adapter.weight; };
    if (++weight.adapters ==
        static_cast<std::size_t>(std::count_if(record_.adapters.begin(), record_.adapters.end(), ofWeight))) {
      const std::vector<float> rounded(weight.sums.begin(), weight.sums.end());
      const Bytes bytes = std::as_bytes(std::span(rounded));
      weight.record.values = made_.emplace_back(bytes.begin(), bytes.end());
      weight.sums = {};
    }
    return success;
  }

  const OnnxFile& file_;
  const TrainedTensors& trained_;
  const AdapterRecord& record_;
  std::deque<std::vector<std::byte>>& made_;
  Diagnostics& diags_;
  TensorReader reader_;
  const ModuleNames names_;
  std::map<std::string, Weight> weights_;
};

/// The adapters of one layer, of which there are several where it is sliced, as PEFT has them.
struct PeftLayer {
  std::string path;
  std::vector<const Adapter*> adapters;
  std::int64_t rank() const { return adapters.front()->rank * static_cast<std::int64_t>(adapters.size()); }
  /// alpha / rank is that of each.
  double alpha() const { return adapters.front()->alpha * static_cast<double>(adapters.size()); }
};

class PeftFolder {
public:
  PeftFolder(const std::string& model, const TrainedTensors& trained, const AdapterRecord& record, std::string strip,
             Diagnostics& diags)
      : model_(model), trained_(trained), record_(record), strip_(std::move(strip)), diags_(diags) {}

  Status run(const std::string& out) {
    if (record_.adapters.empty())
      return diags_.error({.file = model_}).help("compile it with --lora") << "was trained without adapters";
    for (const Adapter& adapter : record_.adapters) {
      const auto known = std::find_if(layers_.begin(), layers_.end(), [&](const PeftLayer& layer) {
        return layer.adapters.front()->path == adapter.path;
      });
      if (known != layers_.end())
        known->adapters.push_back(&adapter);
      else if (const Expected<std::string> path = stripped(adapter.path); path)
        layers_.push_back({*path, {&adapter}});
      else
        return failure;
    }
    for (const PeftLayer& layer : layers_)
      if (!addLayer(layer)) return failure;
    if (!addTrained()) return failure;
    if (out.empty()) return success;
    std::error_code error;
    std::filesystem::create_directories(out, error);
    if (error) return diags_.error({.file = out}) << "cannot be made: " << error.message();
    pdcrt::Status status = pdcrt::writeSafetensors(out + "/adapter_model.safetensors", records_, {{"format", "pt"}});
    if (status) status = pdcrt::writeAtomically(out + "/adapter_config.json", config().dump(2) + "\n");
    if (!status) return diags_.error({}) << status.message();
    return success;
  }

private:
  Expected<std::string> stripped(const std::string& path) {
    if (path.starts_with(strip_)) return path.substr(strip_.size());
    return diags_.error({.file = model_, .node = path}).exit(ExitCode::usage)
           << "does not begin with '" << strip_ << "', which is to be taken off the paths of the layers";
  }

  void add(const std::string& name, std::vector<std::int64_t> shape, const std::vector<float>& values) {
    const Bytes bytes = std::as_bytes(std::span(values));
    records_.push_back({"base_model.model." + name, ElementType::f32, std::move(shape),
                        made_.emplace_back(bytes.begin(), bytes.end())});
  }

  Status addLayer(const PeftLayer& layer) {
    const Adapter& first = *layer.adapters.front();
    const std::int64_t rank = layer.rank();
    std::vector<float> a, b(static_cast<std::size_t>(first.outputs * rank), 0.0F);
    for (std::size_t i = 0; i < layer.adapters.size(); ++i) {
      const Adapter& one = *layer.adapters[i];
      const Expected<std::vector<float>> ownA = matrixOf(trained_, one.nameOfA(), {one.rank, one.inputs}, diags_);
      const Expected<std::vector<float>> ownB =
          matrixOf(trained_, one.nameOfB(), {one.sliceOutputs(), one.rank}, diags_);
      if (!ownA || !ownB) return failure;
      a.insert(a.end(), ownA->begin(), ownA->end());
      for (std::int64_t output = 0; output < one.sliceOutputs(); ++output)
        std::copy_n(ownB->data() + output * one.rank, one.rank,
                    b.begin() + (one.slice * one.sliceOutputs() + output) * rank +
                        static_cast<std::int64_t>(i) * one.rank);
    }
    add(layer.path + ".lora_A.weight", {rank, first.inputs}, a);
    add(layer.path + ".lora_B.weight", {first.outputs, rank}, b);
    return success;
  }

  /// What was trained in full, as modules_to_save.
  Status addTrained() {
    TrainedTensors full;
    for (const std::string& name : record_.trained) {
      const auto found = trained_.find(name);
      if (found == trained_.end()) return diags_.error({.node = name}) << "is lacking among the trained weights";
      full.insert(*found);
    }
    if (full.empty()) return success;
    TrainedTensors ofModule;
    if (!stateTensors(model_, full, made_, ofModule, diags_)) return failure;
    for (const auto& [name, record] : ofModule) {
      const Expected<std::string> own = stripped(name);
      if (!own) return failure;
      records_.push_back(record);
      records_.back().name = "base_model.model." + *own;
      saved_.insert(moduleOf(*own));
    }
    return success;
  }

  Json config() const {
    const PeftLayer& first = layers_.front();
    Json targets = Json::array(), ranks = Json::object(), alphas = Json::object();
    bool inputsFirst = false;
    for (const PeftLayer& layer : layers_) {
      targets.push_back(layer.path);
      if (layer.rank() != first.rank()) ranks[layer.path] = layer.rank();
      if (layer.alpha() != first.alpha()) alphas[layer.path] = layer.alpha();
      inputsFirst = inputsFirst || !layer.adapters.front()->outputsFirstInModule;
    }
    return {{"alpha_pattern", alphas},
            {"auto_mapping", nullptr},
            {"base_model_name_or_path", std::filesystem::path(model_).filename().string()},
            {"bias", "none"},
            {"fan_in_fan_out", inputsFirst},
            {"inference_mode", true},
            {"init_lora_weights", true},
            {"lora_alpha", first.alpha()},
            {"lora_dropout", first.adapters.front()->dropout},
            {"modules_to_save", saved_.empty() ? Json() : Json(saved_)},
            {"peft_type", "LORA"},
            {"r", first.rank()},
            {"rank_pattern", ranks},
            {"target_modules", targets},
            {"task_type", nullptr},
            {"use_dora", false},
            {"use_rslora", false}};
  }

  const std::string& model_;
  const TrainedTensors& trained_;
  const AdapterRecord& record_;
  const std::string strip_;
  Diagnostics& diags_;
  std::vector<PeftLayer> layers_;
  std::vector<pdcrt::TensorRecord> records_;
  std::deque<std::vector<std::byte>> made_;
  std::set<std::string> saved_; ///< modules
};

} // namespace

Expected<TrainedTensors> pdc::mergeAdapters(const std::string& model, const TrainedTensors& trained,
                                            const AdapterRecord& record, std::deque<std::vector<std::byte>>& made,
                                            Diagnostics& diags) {
  if (record.adapters.empty()) return trained;
  const Expected<OnnxFile> file = openWithOwnInitializers(
      model,
      [&](const std::string& name) {
        return trained.contains(name) || std::any_of(record.adapters.begin(), record.adapters.end(),
                                                     [&](const Adapter& adapter) { return adapter.weight == name; });
      },
      diags);
  if (!file) return failure;
  return Merging(*file, trained, record, made, diags).run();
}

Status pdc::writeAdapter(const std::string& model, const TrainedTensors& trained, const AdapterRecord& record,
                         const std::string& out, const std::string& strip, Diagnostics& diags) {
  return PeftFolder(model, trained, record, strip, diags).run(out);
}

Status pdc::writeMerged(Status (*write)(const std::string& model, const TrainedTensors& trained, const std::string& out,
                                        Diagnostics& diags),
                        const std::string& model, const TrainedTensors& trained, const AdapterRecord& record,
                        const std::string& out, Diagnostics& diags) {
  const Int8Records records(trained);
  std::deque<std::vector<std::byte>> made;
  const Expected<TrainedTensors> merged = mergeAdapters(model, records.whole(), record, made, diags);
  return merged ? write(model, *merged, out, diags) : Status(failure);
}
