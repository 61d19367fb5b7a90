// Which safetensors files a person means by a folder, by the index of a checkpoint in several files, or by a file.
#pragma once

#include "pdc/Support/Diagnostics.h"
#include "pdc/Support/Expected.h"
#include "pdcrt/Safetensors.h"

#include <string>
#include <vector>

namespace pdc {

/// `path` as a list of files. A folder: that of Hugging Face's cache for a model, one of its snapshots, weights that a
/// run has exported, or any with model.safetensors or other safetensors files. An index (…safetensors.index.json): its
/// files, which lie beside it. Links are followed: a person has named the place. Errors: none of these, or files that
/// an index names are missing or leave its folder; PyTorch's own checkpoints, with what to type to convert them.
Expected<std::vector<std::string>> weightFiles(const std::string& path, Diagnostics& diags);

/// Opens one of them. Errors as the reader's; where it is a file of another kind, with the way to convert it.
Status openWeights(const std::string& path, pdcrt::SafetensorsFile& file, Diagnostics& diags);

} // namespace pdc
