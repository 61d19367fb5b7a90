// Adapters of low rank (LoRA, Hu et al., arXiv:2106.09685) beside the weights of layers, as the pass add-lora adds
// them: Y becomes Y + (alpha / rank) · (dropout(X) · transposed A) · transposed B.
#pragma once

#include <cstdint>
#include <string>

namespace pdc {

struct Adapter {
  std::string path;                     ///< of the layer in the module: "transformer.h.0.attn.c_attn"
  std::string weight;                   ///< the parameter that it adapts
  bool outputsFirst = true;             ///< the parameter is [outputs, inputs]
  bool outputsFirstInModule = true;     ///< and so is the module's
  std::int64_t inputs = 0, outputs = 0; ///< of the layer
  std::int64_t rank = 1;
  double alpha = 1;
  double dropout = 0;
  /// The adapter is for outputs [slice · outputs / slices, (slice + 1) · outputs / slices): layers that were packed.
  std::int64_t slice = 0, slices = 1;

  /// How the adapter is called: the path, of a slice with its number: "attn.c_attn.slice0".
  std::string name() const { return slices == 1 ? path : path + ".slice" + std::to_string(slice); }
  std::string nameOfA() const { return name() + ".lora_A.weight"; } ///< [rank, inputs]
  std::string nameOfB() const { return name() + ".lora_B.weight"; } ///< [sliceOutputs(), rank]
  std::int64_t sliceOutputs() const { return outputs / slices; }
  /// The factor, as the programs compute with it.
  float scale() const { return static_cast<float>(alpha / static_cast<double>(rank)); }
  friend bool operator==(const Adapter&, const Adapter&) = default;
};

} // namespace pdc
