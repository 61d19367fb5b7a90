// ONNX's operators on sequences, where lengths and positions are known when a model is compiled.
#pragma once

#include "ModelValue.h"
#include "OnnxProto.h"
#include "pdc/IR/Builder.h"

namespace pdc {

/// Whether `node` is an operator of ONNX's own domain that takes or makes sequences: SequenceEmpty, SequenceConstruct,
/// SequenceInsert, SequenceErase, SequenceAt, SequenceLength, SplitToSequence, ConcatFromSequence.
bool isSequenceOperator(const onnx::NodeProto& node);

/// The output of such a node: slices of what is split, the tensor at a position, a concatenation.
///
/// Errors: lengths and positions that are computed from data or lie outside; a concatenation of nothing; a tensor where
/// a sequence is expected, and the other way round.
Expected<ModelValue> convertSequenceOperator(const onnx::NodeProto& node, const std::vector<ModelValue>& inputs,
                                             Builder& builder);

} // namespace pdc
