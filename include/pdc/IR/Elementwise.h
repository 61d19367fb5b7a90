// What is common to all elementwise ops: names, types, evaluation, cost and gradient, derived from their expressions.
//
// Expressions speak of operands by the names in the OpDef. Of a variadic operand `a` they are a0, a1, …, so that the
// generic op `elementwise` says `%y = elementwise %x, %b {expressions = ["max(a0 + a1, 0)"]}`, with one result per
// expression. Attributes that are numbers or booleans stand for their value.
#pragma once

#include "pdc/IR/OpDef.h"

namespace pdc {

/// What expressions call operand `i` of `op`.
std::string operandNameInExpressions(const OpDef& op, std::size_t i);

/// The expressions of `op`, one per result, in terms of operand names alone: attributes are replaced by their values.
std::vector<ExpressionPtr> expressionsOf(const Operation& op);

/// What an expression converts to at its root: f32(…), bf16(…) or f16(…); nothing where it is another one.
std::optional<ElementType> conversionOf(const Expression& e);

/// Whether an operation gives its only operand as another type. That alone: what else one computes may cost more than
/// memory.
bool onlyConverts(const Operation& operation);

/// NumPy's broadcasting, aligned at the last dimension; nothing when two dimensions differ and neither is 1.
std::optional<Shape> broadcastShapes(const std::vector<Shape>& shapes);

/// Result types of an elementwise op: the operands' shapes broadcast together. A result's element type is boolean where
/// the expression is a comparison or a logical operation; else that of the operands in it, which must agree, except
/// that booleans count as 0 and 1 of any other type. (An OpDef with an `infer` of its own, such as a cast, overrides.)
Expected<std::vector<Type>> inferElementwise(const OpDef& def, const InferContext& context);

/// Computes all results of `op`: in f64 when `inDouble`, else in f32; in i64 when no operand and no result is a float.
/// Operand tensors are broadcast; results are converted to the element types of `results`, which have the right shapes.
void evaluateElementwise(const Operation& op, const std::vector<const Tensor*>& operands,
                         const std::vector<Tensor*>& results, bool inDouble);

/// Floating-point operations of all elements, and bytes read and written.
Cost costOfElementwise(const Operation& op);

/// The gradient rule of elementwise ops: for each wanted operand an `elementwise` operation that computes the sum over
/// results of (gradient · derivative), followed by a `reduce_sum` (and a `reshape`, if the rank changes) where the
/// operand was broadcast. Derivatives are the OpDef's where it states them.
std::vector<Value*> elementwiseGradient(GradientContext& context);

} // namespace pdc
