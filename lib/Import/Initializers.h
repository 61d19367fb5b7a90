// What becomes of a model's initializers; the rule is in pdc/Import/OnnxImport.h.
#pragma once

#include "Buffers.h"
#include "TensorReader.h"
#include "pdc/Import/OnnxImport.h"

namespace pdc {

enum class InitializerRole { unused, constant, triangle, trained, frozen, state, tied };

struct Initializer {
  InitializerRole role = InitializerRole::unused;
  StoredTensor tensor;     ///< empty when unused
  Triangle triangle;       ///< of a large mask, which is computed
  int tiedTo = -1;         ///< when tied: the trained initializer whose copy it is,
  bool transposed = false; ///< and whether it is its transpose
  std::string reason;      ///< of its role: "parameters of the module"; empty: it looks like a weight
};

/// One per initializer of the graph, in the file's order. Warns of patterns that match nothing, and of weights that an
/// exporter's constant folding renamed or merged.
Expected<std::vector<Initializer>> readInitializers(const OnnxFile& file, const ImportOptions& options,
                                                    TensorReader& reader, Diagnostics& diags);

} // namespace pdc
