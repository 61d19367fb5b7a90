// What the ops with dot-product attention tell pdcrt::Attention: sizes, element types, and by which algorithms.
#pragma once

#include "pdc/IR/OpDef.h"

#include "pdcrt/kernels/Attention.h"

namespace pdc::ops {

namespace attention {
/// Operands of the forward ops; the gradient has dY before them.
enum Operand : std::size_t { query, key, value, bias };
} // namespace attention

/// X as [batch, heads, positions, size].
Shape withHeads(const Shape& x);

/// Sizes and attributes of the op, whose queries are operand `first`.
pdcrt::Attention::Options attentionOptions(const Operation& op, std::size_t first);

/// `algorithms` and `workspace`, see KernelAlternatives: of forward and input gradient. Without them it is automatic.
std::vector<AttributeDef> attentionAlgorithms();
/// What they say; the op has been verified.
pdcrt::Attention::Algorithms attentionAlgorithmsOf(const Attributes& attributes);
/// Reports unless the attributes are such.
Status requireAttentionAlgorithms(const InferContext& c, const char* op);

/// Of a call of `method`, which has to choose where the fused algorithm is possible.
KernelAlternatives attentionAlternatives(const pdcrt::Attention::Options& options, const char* method, Target target);

/// Reports unless operand i, if it is there, is a bias for such scores.
Status requireAttentionBias(const InferContext& c, const char* op, std::size_t i, const Type& scores);

/// Of a bias with this shape, from score to score along each axis: 0 where it is the same for all.
std::vector<std::int64_t> biasStrides(const Shape& bias);

/// Of bias and statistics beside queries of `element`: f32 beside 16 bits.
ElementType besideQueries(ElementType element);

} // namespace pdc::ops
