// What becomes of trained adapters (IR/Adapter.h): a file of PEFT (huggingface/peft, LoraConfig), or weights of the
// model without adapters.
#pragma once

#include "pdc/IR/Adapter.h"
#include "pdc/Support/Diagnostics.h"
#include "pdc/Support/Expected.h"
#include "pdcrt/Safetensors.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace pdc {

struct Module;

/// What a training with adapters trains: adapters.json in a generated folder, and the metadata "adapters" of the
/// weights that its runs write.
struct AdapterRecord {
  std::vector<Adapter> adapters;
  std::vector<std::string> trained; ///< parameters of the model that are trained in full
};
/// That of a module with adapters.
AdapterRecord recordOf(const Module& module);
inline constexpr const char* adaptersFile = "adapters.json";

std::string toJson(const AdapterRecord& record);
/// Errors, naming `file`: it is not what toJson writes.
Expected<AdapterRecord> adaptersFromJson(const std::string& text, const std::string& file, Diagnostics& diags);

/// What adapter_config.json of PEFT says.
struct PeftConfig {
  std::int64_t rank = 0;
  double alpha = 0;
  bool usesRoot = false;                ///< the factor is alpha / √rank (use_rslora)
  std::map<std::string, double> alphas; ///< of layers whose paths end with a match of these regular expressions

  /// The factor of the adapter of a layer, which has this rank.
  double scaleOf(const std::string& path, std::int64_t ownRank) const;
};
/// Errors, naming `file`: it is none, or of another kind than LoRA without biases (ExitCode::unsupported).
Expected<PeftConfig> peftConfigFromJson(const std::string& text, const std::string& file, Diagnostics& diags);

/// By parameter. Values are those of files, or of `made`, which must stay.
using TrainedTensors = std::map<std::string, pdcrt::TensorRecord>;

/// `trained` without tensors of adapters, and with each adapted weight W as W + scale · (B · A), transposed where W is
/// [inputs, outputs]; each sum is of f64 and rounded once. Weights that `trained` lacks are those of the model at
/// `model`. Errors: a tensor is lacking, or has another type or shape; a weight that another layer reads, too, which
/// has no such adapter.
Expected<TrainedTensors> mergeAdapters(const std::string& model, const TrainedTensors& trained,
                                       const AdapterRecord& record, std::deque<std::vector<std::byte>>& made,
                                       Diagnostics& diags);

/// "DIR" and "PREFIX" of "DIR,strip=PREFIX".
std::pair<std::string, std::string> folderAndStrip(const std::string& text);

/// Writes with `write`, which is writeTrainedOnnx or writeStateDict, what mergeAdapters makes of `trained`. Matrices in
/// 8 bits, `W.int8` and `W.scale`, are those that they stand for, with which the adapters were trained.
Status writeMerged(Status (*write)(const std::string& model, const TrainedTensors& trained, const std::string& out,
                                   Diagnostics& diags),
                   const std::string& model, const TrainedTensors& trained, const AdapterRecord& record,
                   const std::string& out, Diagnostics& diags);

/// Writes the folder `out` that peft.PeftModel.from_pretrained(module, out) reads: adapter_model.safetensors and
/// adapter_config.json. `strip` is taken off the paths of the layers, where a wrapper of the module was exported. The
/// adapters of slices of one layer are one adapter there, with the sum of their ranks, and zeros elsewhere. What was
/// trained in full is in modules_to_save. With an empty `out` nothing is written, and what would be an error is one.
/// Errors: there are no adapters; a tensor is lacking, or has another shape; a path does not begin with `strip`; `out`
/// cannot be written.
Status writeAdapter(const std::string& model, const TrainedTensors& trained, const AdapterRecord& record,
                    const std::string& out, const std::string& strip, Diagnostics& diags);

} // namespace pdc
