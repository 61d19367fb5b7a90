// The weights of a recurrent layer as they are stored, behind what exporters do with them.
//
// PyTorch stores gates in another order than ONNX. Exported for training, a model slices each weight into gates and
// concatenates them in ONNX's order, in every step of the training. Because the ops here take gates in any order, the
// stored weight itself can be used: nothing is copied, and its gradient needs no accumulator per gate.
#pragma once

#include "Convert/Onnx.h"

namespace pdc::ops {

/// Whether every element is 0 in every run: constants, and what repeats, reshapes or slices them.
bool isAlwaysZero(const Value* value);

/// Entry `index` of the first axis, without that axis. Looks through concatenations of entries.
Value* entry(OnnxReader& n, Value* x, std::int64_t index);
/// Rows begin … begin + count - 1. Looks through concatenations of rows.
Value* rows(OnnxReader& n, Value* x, std::int64_t begin, std::int64_t count);

/// `weights` have one block of rows per gate, in the order `gates`. If all are gates of stored values in one other
/// order, they are replaced by those. Returns the order that they have then.
std::string takeFromStored(std::vector<Value*>& weights, const std::string& gates);

} // namespace pdc::ops
