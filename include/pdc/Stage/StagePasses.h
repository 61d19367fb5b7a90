// The passes from the graph of a training step to one graph per stage. They run once the plan is known, in the order of
// this file; pdc/Stage/StagePolicy.h decides which of them run on which stage.
#pragma once

#include "pdc/Pass/Pass.h"
#include "pdc/Plan/EdgeCodec.h"
#include "pdc/Plan/TeamSplit.h"

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace pdc {

void registerStagePasses(PassRegistry& registry);

/// The graphs of one stage, owned by the module: @stageK and @stageK.evaluate.
struct StageGraphs {
  int stage = 0;
  Graph* training = nullptr;
  Graph* evaluation = nullptr;
};

/// Cuts @main and @evaluate between groups: `stageOfGroup[g]` is the stage of group g, non-decreasing along every
/// forward edge. Values that cross become inputs `received` and outputs `sent`, once per consuming stage, with the same
/// order at both ends; those that only a backward reads come last, and are no ports of the evaluation. Gradient values
/// cross where the fold order puts them. One of a parameter leaves the graph of the stage that has the parameter.
///
/// With `splits`, one for each stage, that of a stage with the split tp:2 is cut out of @main.tp2 and @evaluate.tp2
/// (suffixOf), which have the operations of the undivided graphs in the same groups. Between stages of different splits
/// whole values cross. Errors: members have terms of such a value; a parameter that such stages share is not the same
/// part in both.
Expected<std::vector<StageGraphs>> splitStages(PassContext& context, const std::vector<int>& stageOfGroup,
                                               const std::vector<TeamSplit>& splits = {});

/// The graphs that splitStages has made, in the order of the stages.
std::vector<StageGraphs> stageGraphs(Module& module);

/// Which of the values that cross between stages are encoded, and their gradients with them; null: all that can be.
struct EdgeCodecs {
  EdgeCodec codec;
  const std::set<std::string>* tensors = nullptr;
};

/// Whether a gradient of this name, or a part of one, is of the value of that name.
bool isGradientOf(const std::string& gradient, const std::string& value);

/// In the graphs of splitStages: encodes what is sent, by the name %x.encoded, and decodes what is received before its
/// first reader. The sender goes on with the exact values; the receiver has them as nearly as the bytes say, so that
/// the cut changes what is trained.
Status encodeEdges(PassContext& context, const EdgeCodecs& codecs);

/// Recomputation (Chen et al., arXiv 1604.06174) of a whole stage: instead of keeping what the backward reads of the
/// forward, the backward of `stage`, a graph of splitStages, begins by computing it again. What still is kept from
/// forward to backward: inputs, what arrives, what leaves. The repeated operations are of phase I, draw the same random
/// numbers and leave running statistics alone; so the gradients are the same, bit for bit.
void recomputeForward(Graph& stage);

/// Moves every operation of phase W up to where its last operand is made, before the operations of phase I that follow:
/// its operands need not stay longer. With `afterReaders`, a gradient that can be made in parts
/// (KernelUse::partsMethod) comes after every operation of the backward that reads the parameter. In the graph of a
/// team those stay that are computed while a collective is under way (hideCollectives), unless more bytes would be
/// alive at once than if all moved. Only the order of the operations changes.
void computeWeightGradientsEarly(Graph& stage, bool afterReaders = false);

/// Joins the operation that makes a gradient in parts with the one that reads the parameter for an input gradient,
/// where no other operation of the backward reads it (OpRewrites::together): each part of the parameter is read for
/// both before it is updated. Gradients are the same, bit for bit. Errors: internal ones only.
Status computeGradientsTogether(PassContext& context, Graph& stage);

/// Which values computeAgain computes again.
struct ComputeAgainOptions {
  double share = 0.01; ///< of the estimated time of the stage, at most, that is spent on it
  /// Smaller values are kept: recomputing them is not worth a call.
  std::int64_t leastBytes = std::int64_t{1} << 16;
  /// The halves of a backward run apart: what both of them read is kept.
  bool splitBackward = false;
};

/// Selective recomputation: instead of keeping a value of the forward until the backward of `stage`, a graph of
/// splitStages, computes it again right before the first operation that reads it, where one pass over memory gives it
/// from what is kept anyway (OpRewrites::again, elementwise operations that compute little). Gradients are the same,
/// bit for bit, and at no time is more alive. Runs when the order of operations is final. Errors: internal ones only.
Status computeAgain(PassContext& context, Graph& stage, const ComputeAgainOptions& options);

/// For the graph of a stage that has one minibatch in flight at a time: its backward reads what the forward has
/// converted, as before convertAgain (pdc/Transforms/Precision.h), and the forward begins with the conversions.
void keepConversions(Graph& stage);

/// Bytes that keepConversions would keep from the forward to the backward, at most.
std::int64_t keptBytes(const Graph& stage);

} // namespace pdc
