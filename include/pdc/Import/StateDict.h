// The state_dict of the PyTorch module that a model was exported from.
#pragma once

#include "pdc/Support/Diagnostics.h"
#include "pdcrt/Safetensors.h"

#include <cstddef>
#include <deque>
#include <map>
#include <string>
#include <vector>

namespace pdc {

/// Writes the weights `trained`, by the names of the initializers of the ONNX model at `model`, to `out`, a safetensors
/// file that `module.load_state_dict(safetensors.torch.load_file(out))` takes: with the names, shapes and layouts that
/// the module has. What the exporter transposed, packed (LSTM, GRU, RNN) or renamed is as it was in the module, tied
/// parameters are there under each of their names, and so are the buffers that the file has.
///
/// Says which names were changed, and which tensors of the module the file lacks. Files of other exporters than
/// PyTorch's have the initializers' names. With an empty `out` nothing is written, and what would be an error is one.
///
/// Errors: the model cannot be read; a trained tensor that is none of the module's, since the exporter computed it
/// (with what to type to export without that); another type or shape; `out` cannot be written.
Status writeStateDict(const std::string& model, const std::map<std::string, pdcrt::TensorRecord>& trained,
                      const std::string& out, Diagnostics& diags);

/// Some of `trained` as writeStateDict writes them, into `tensors`, with values in `made`. Errors are the same, but
/// that nothing is written.
Status stateTensors(const std::string& model, const std::map<std::string, pdcrt::TensorRecord>& trained,
                    std::deque<std::vector<std::byte>>& made, std::map<std::string, pdcrt::TensorRecord>& tensors,
                    Diagnostics& diags);

/// A name under which a state_dict has a parameter of the model.
struct StateName {
  std::string parameter; ///< the initializer
  bool transposed = false;
  bool isPart = false; ///< the initializer has more: it is packed for a recurrent layer
};

/// By tensors of the state_dict, those with another name or layout than `parameters` of the model at `model`. Empty
/// where the model cannot be read.
std::map<std::string, StateName> otherStateNames(const std::string& model, const std::vector<std::string>& parameters);

} // namespace pdc
