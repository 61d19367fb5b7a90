// The transforms from an imported model to the graph of a training step, in the order in which the driver runs them.
//
//   import → canonicalize → raise → add-loss → add-lora → order-branches → differentiate → fuse → add-evaluation →
//   layout → (planner) → the passes of stages (pdc/Stage/StagePasses.h)
//
// Each is a pass (registerTransforms) with its own file in lib/Transforms; the functions here are for the driver, which
// has options that are not text.
#pragma once

#include "pdc/Pass/Pass.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace pdc {

void registerTransforms(PassRegistry& registry);

/// Folds constants, applies the ops' canonicalisations, removes what nobody uses, to a fixed point. Afterwards: no
/// dead operation, no operation with only constant operands and a result of at most 64 KiB.
Status canonicalize(PassContext& context);

/// Turns exporters' pieces back into one op: linear from transpose + matmul + add. Runs before differentiation, because
/// a fused backward cannot be recovered afterwards.
Status raise(PassContext& context);

/// --lora=: adapters of low rank for linear layers.
struct LoraOptions {
  std::int64_t rank = 8;
  double alpha = 8;
  std::string targets; ///< REGEX, searched for in the layers' paths in the module, or "all-linear"
  double dropout = 0;
  std::vector<std::int64_t> chosenSlices = {0}; ///< of `slices` layers that are packed into each
  std::int64_t slices = 1;
  std::string train;      ///< REGEX: parameters that keep training in full
  std::uint64_t seed = 0; ///< of the first values of A
};
/// From the options of the pass add-lora, which are the parts of --lora=. Errors: ExitCode::usage.
Expected<LoraOptions> loraOptions(const std::map<std::string, std::string>& options, Diagnostics& diags);
/// Adds adapters to @main, and to Module::adapters, and freezes all parameters that are neither of adapters nor matched
/// by `train`. Runs after `raise` and the losses, before `differentiate`. "all-linear" is every layer whose weight is a
/// parameter but those that compute the logits of a loss, and those that train in full. Errors: no layer has such a
/// path, a weight that is computed, a rank above the sizes of a layer, slices that do not divide its outputs, a layer
/// that trains in full or has an adapter already.
Status addLora(PassContext& context, const LoraOptions& options);

/// Leaves out rows of linear layers that nobody reads, because a mask says that they are padding. Runs on all graphs,
/// after `layout`.
Status skipPadding(PassContext& context);

/// Over what a loss that leaves out positions is a mean: those of a minibatch, or those of all minibatches of an
/// update.
enum class LossAverage {
  minibatch,
  update,
  automatic ///< update where positions may be ignored and their labels are an input as it is, else minibatch
};

/// --loss=: a loss. `kind`: "" (the default of docs/Training.md), softmax-cross-entropy, nll, mse, bce-with-logits,
/// bce, output.
struct LossOptions {
  std::string kind;
  /// That it applies to ("": the first output that is not a scalar), or that is the loss; an output or another value.
  std::string output;
  std::string label;                       ///< its label input ("": `label` for classes, `target` for numbers)
  double weight = 1;                       ///< factor
  std::optional<std::int64_t> ignoreIndex; ///< of softmax-cross-entropy and nll, like what follows
  double labelSmoothing = 0;               ///< not of nll
  std::vector<double> classWeights;        ///< empty: all 1
  LossAverage average = LossAverage::minibatch;
};
/// From the options of the pass add-loss, which are the parts of --loss=.
Expected<LossOptions> lossOptions(const std::map<std::string, std::string>& options, Diagnostics& diags);
/// Adds one loss; several add up. Afterwards @main has at least one output of kind loss, its prediction if there is
/// one, and label inputs are marked.
Status addLoss(PassContext& context, const LossOptions& options);

/// After the last loss: of several losses each, and scalar outputs of the model from which one is computed, are outputs
/// of kind term, too.
Status nameTerms(PassContext& context);

/// Of branches that meet again, puts those with fewer layers before the longest: what follows where they meet joins the
/// fusion group of the last one, and the others can be on either side of a cut.
Status orderBranches(PassContext& context);

/// --metric=output:NAME: the float scalar that the model calls so. Ask before losses are added; as an output of kind
/// prediction that is called `name` it stays for the evaluation.
Expected<Value*> scalarOutput(PassContext& context, const std::string& name);

/// Appends the backward operations of @main, whole: phases I and W apart, origins set, one gradient output per use of a
/// trained parameter in program order, and the fold order of values with several consumers (from the last consumer to
/// the first; the addition belongs to the earlier consumer).
Status differentiate(PassContext& context);

/// Decides fusion groups on forward operations (group ids in program order, gap-free from 0; backward operations
/// inherit from their origin, but for large gradients of weights, which have groups of their own behind it,
/// IR/GradientGroups.h; parameters used by several groups keep them apart) and merges chains of elementwise operations
/// of one group and phase into one `elementwise`.
Status fuse(PassContext& context);

/// Chooses which values have their channels in blocks, or last (IR/Type.h), in all graphs of the module, and adds
/// copies between operations that do not agree. What crosses between groups keeps its name.
Status chooseLayouts(PassContext& context);

/// Adds @evaluate: the forward part of @main with each op's evaluation form (running statistics, no dropout). Values
/// keep the names that they have in @main. Its outputs are losses where the label is there, and predictions, which
/// @main loses, with what leads to nothing else inside of its group; and loads of layers
/// (OpRewrites::load).
Status addEvaluation(PassContext& context);

} // namespace pdc
