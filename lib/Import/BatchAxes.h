// Which axis of each data input is the batch.
#pragma once

#include "Inputs.h"

namespace pdc {

struct BatchAxis {
  int axis = -1; ///< pdcrt::noBatchAxis where there is none
  enum class Source {
    unknown,
    none,   ///< it does not need one: it is bound, or nobody reads it
    stated, ///< by --batch-axis
    named,  ///< like a batch
    agreed, ///< like a number ("N"), or its symbol is the first axis of most inputs and outputs
    placed  ///< it is the first one, and nothing speaks against it
  } source = Source::unknown;
  bool several = false; ///< unknown, because several axes have the symbol of the batch
};

/// One for each input. Errors: --batch-axis of an input or an axis that is not there, or of an input that is bound.
Expected<std::vector<BatchAxis>> chooseBatchAxes(const InputContext& context);

/// Tells which inputs have no batch axis, and what to type; success where every input has what it needs.
Status checkBatchAxes(const InputContext& context, const std::vector<BatchAxis>& axes);

/// "axis 1 of 'h0' ('N')".
std::string describe(const DataInput& input, const BatchAxis& axis);

} // namespace pdc
