// Parameters that a run does not change, and that its checkpoints leave out.
#pragma once

#include "pdc/Support/Diagnostics.h"
#include "pdc/Support/Expected.h"
#include "pdcrt/Safetensors.h"
#include "pdcrt/WriteFile.h"

#include <cstddef>
#include <deque>
#include <map>
#include <string>
#include <vector>

namespace pdc {

/// Adds the frozen parameters whose sums a checkpoint has to its `tensors`: from `base`, the weights that the run began
/// with, or else the initializers of the model at `model`, with values in `made`. Errors: values with another sum; a
/// parameter that neither has, unless it is an input of the model, which the run bound to a file.
Status takeFrozen(const std::string& model, const std::map<std::string, pdcrt::FileSum>& sums,
                  const std::map<std::string, pdcrt::TensorRecord>& base,
                  std::map<std::string, pdcrt::TensorRecord>& tensors, std::deque<std::vector<std::byte>>& made,
                  Diagnostics& diags);

} // namespace pdc
