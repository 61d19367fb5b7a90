// Mixed precision for targets that have it.
#pragma once

#include "pdc/IR/KeptInputs.h"
#include "pdc/Pass/Pass.h"

#include <cstdint>
#include <string>
#include <vector>

namespace pdc {

/// The forward operations of @main whose OpDef prefers low precision, and has a kernel for it, compute in `low`, bf16
/// or f16; their f32 operands are converted, but for those that keep f32, and their results converted back. What
/// only moves elements in `low` stays there, a loss reads its logits so where they are, and a norm rounds what only
/// products read. Everything else stays f32: sums, softmax, statistics, and the parameters, which are the master
/// weights: each conversion is a use of them, so their gradients are f32.
Status lowerPrecision(PassContext& context, ElementType low);

/// Before `differentiate`: where the classes of a loss's logits are not a multiple of 16 bytes, the layer that makes
/// them gets outputs more, zeros, that the loss ignores. Of layers that compute at least so many flops.
Status alignClasses(PassContext& context, double leastFlops);

/// Before `differentiate`: attention that a fused kernel may compute takes rows in which heads lie beside each other,
/// as they are before they are split for it, and gives such (OpRewrites::mergeHeads).
Status mergeHeads(PassContext& context);

/// --quantize=: which frozen weights become integers of 8 bits.
struct QuantizeOptions {
  double alpha = 6;  ///< of linear_int8
  std::string match; ///< a regular expression that is searched for in names; empty: all that can be
  std::string keep;  ///< another: of those, matrices that stay f32
  /// By weights: inputs whose weights stay f32, ascending.
  KeptInputs kept;
};

/// After `raise`, when all values are known to be stored or drawn, and before `differentiate`: frozen matrices of f32
/// in
/// @main that are read only by ops which know integers (OpRewrites::int8Use), all along one axis, become two
/// parameters, NAME.int8 and NAME.scale (of columns NAME.T.int8 and NAME.T.scale), which are computed while weights are
/// written. Errors: a trained matrix that `match` names and `keep` does not, one that is read by something else, none
/// at all, no matrix that `keep` leaves out.
Status quantizeFrozen(PassContext& context, const QuantizeOptions& options);

/// What is multiplied by a matrix that quantizeFrozen would take, and rounded for it.
struct RoundedInput {
  std::string matrix; ///< its name
  Value* value = nullptr;
};
/// Those of @main of matrices that may keep inputs, in order of the matrices' first uses: tables may not.
std::vector<RoundedInput> roundedInputs(const Graph& graph, const QuantizeOptions& options);

/// After `differentiate`: gradients in low precision that are read in f32 only are made in f32, where the op can (its
/// attribute `wide`).
Status widenGradients(PassContext& context);

/// After `fuse`: the backward converts parameters again, instead of reading what the forward has converted. So a
/// minibatch in flight keeps no copy of the weights, and the backward reads the version of them that it is given.
Status convertAgain(PassContext& context);

/// The forward operations that convertAgain repeats in the backward: those that convert a parameter to low precision,
/// and those that only move elements of a converted parameter, or put others beside them.
bool convertsParameter(const Operation& operation);
bool movesConverted(const Operation& operation);

/// Of `fuse`, once groups are known: what is converted from low precision to f32, and read by the backward of the same
/// group, is converted again there. So the narrower value waits for it, and the conversion is fused with what reads it.
void widenAgain(Graph& graph);

} // namespace pdc
