// The losses that --loss adds to an output.
#pragma once

#include "pdc/IR/Builder.h"
#include "pdc/Transforms/Transforms.h"

namespace pdc {

struct AddedLoss {
  Value* loss = nullptr;       ///< a scalar, without its weight
  Value* prediction = nullptr; ///< what an evaluation compares with the labels
  std::string evaluated;       ///< how: as Training::loss
};

/// The loss `options.kind` of `value`, which users know as `name`, together with its label input, which losses share by
/// name. Where `value` is a softmax or sigmoid of logits and the loss is the same function of these, it is made of the
/// logits, which is told; where the loss takes what `value` seems not to be, there is a warning. Errors are reported.
Expected<AddedLoss> lossOf(const LossOptions& options, Value& value, const std::string& name, Builder& builder);

/// `loss` times a new input, its share.
Value* withShare(Value* loss, LossShare share, Builder& builder);

/// Gives each loss operation of `graph` that has none yet its share (LossShare in Graph.h), as `options.average` says.
Status shareLosses(PassContext& context, Graph& graph, const LossOptions& options);

/// Whether an output is a scalar: it has no dimensions, or one element that the model reduced the batch to. An output
/// that the file gives a dimension without a size is none, also where there is one sample.
bool isScalarOutput(const Graph& graph, const GraphOutput& output);

} // namespace pdc
