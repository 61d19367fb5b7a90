// Weights that are no initializers of the model: Constant nodes, as paddle2onnx and spox write them, and initializers
// and Constant nodes in the bodies of control flow.
#pragma once

#include "OnnxFile.h"

#include <functional>
#include <string>
#include <vector>

namespace pdc {

/// A float that could be an initializer of the model.
struct LiftableWeight {
  std::string name;      ///< as an initializer: that of the value, with its node before it where others have that name
  bool isInBody = false; ///< of control flow
  bool isWeight = false; ///< it looks like a weight; whoever asks may know better
};

/// Makes initializers of those that `wanted` says, in a file as it was read (before any node was moved), and returns
/// them. What a body reads then comes from outside: all iterations of a loop share it. Values that the file stores
/// number by number stay where they are.
std::vector<LiftableWeight> liftWeights(OnnxFile& file, const std::function<bool(const LiftableWeight&)>& wanted);

} // namespace pdc
