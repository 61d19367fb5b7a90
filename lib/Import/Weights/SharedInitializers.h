// Initializers that an exporter or an optimizer stored once because they were equal, although the network has several:
// the scale and the running variance of an untrained BatchNormalization, the weights of all LayerNorms of one width.
#pragma once

#include "TensorReader.h"

#include <string>
#include <vector>

namespace pdc {

/// An input of a node that gets an initializer of its own. Inputs of one layer that is applied several times share one.
struct PartedInput {
  int node = 0, input = 0;             ///< of the graph
  int initializer = 0;                 ///< that it shares with others
  std::string name;                    ///< of its own one
  std::vector<std::string> foldedFrom; ///< the parameters that its own one is another form of
};

struct PartedInputs {
  std::vector<PartedInput> inputs;
  /// Nodes of BatchNormalization that have all their initializers in common, in a file that does not say whether they
  /// are one layer: they are taken for several.
  std::vector<std::string> guessed;
};

/// By the modules in which the nodes were called, where PyTorch's default exporter says them; elsewhere of
/// BatchNormalization only: its four parameters are four, and two layers have eight.
PartedInputs partedInputs(const OnnxFile& file, TensorReader& reader);

/// Gives each of `inputs` its initializer.
void part(OnnxFile& file, const std::vector<PartedInput>& inputs);

} // namespace pdc
