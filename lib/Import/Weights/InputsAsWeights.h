// Models that were exported without weights, which they have as inputs then.
#pragma once

#include "Inputs.h"
#include "OnnxFile.h"
#include "TensorReader.h"

#include <string>
#include <vector>

namespace pdc {

/// Fails where the weights are inputs, or in a file that was not copied. `inputs`: those of the model.
Status hasItsWeights(const OnnxFile& file, const std::vector<DataInput>& inputs, TensorReader& reader,
                     Diagnostics& diags);

/// Makes parameters of the inputs that look like weights, or that --train says are some.
void takeInputsAsWeights(OnnxFile& file, const std::string& train, Diagnostics& diags);

} // namespace pdc
