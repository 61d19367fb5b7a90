// Indices computed by integer arithmetic: what ONNX's many ways to pick and place elements have in common. Each becomes
// positions in a tensor whose axes are merged, for one gather or one scatter.
#pragma once

#include "Convert/Onnx.h"

namespace pdc::ops {

/// 0, 1, … along axis `axis` of a shape of rank `rank`, 1 along the others: broadcasts to that shape. i64.
Value* arange(OnnxReader& n, std::int64_t size, std::size_t axis, std::size_t rank);

/// An elementwise op by its expression, of operands a0, a1, …; null if one of them is null.
Value* compute(OnnxReader& n, std::vector<Value*> operands, const std::string& expression);

/// Integers as i64; null for null.
Value* asIndices(OnnxReader& n, Value* x);

/// Positions in `x`, flattened, of x[…, indices[…, i, …], …]: `indices` replaces the index of axis `axis`, the others
/// are those of its own place (ONNX GatherElements). Where an index is outside, the position is.
Value* elementPositions(OnnxReader& n, const Shape& x, Value* indices, std::int64_t axis);

/// Positions of rows of `x`, its first `batch` + k axes merged, k the last dimension of `indices`: each tuple there
/// names one row (ONNX GatherND). The last axis is dropped. Where an index is outside, the position is.
Value* tuplePositions(OnnxReader& n, const Shape& x, Value* indices, std::int64_t batch);

/// Reports unless `x` is of i32 or i64; `what` for the message.
Status requireIndices(OnnxReader& n, std::size_t input);

} // namespace pdc::ops
