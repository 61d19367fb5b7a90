// The passes of this library by name, for the pipelines of pdc, for pdc-opt and for docs/Passes.md, which states the
// order in which they run (Pipeline.cpp).
#include "pdc/Transforms/Transforms.h"

#include "Rooms.h"

using namespace pdc;

void pdc::registerTransforms(PassRegistry& registry) {
  registry.add({.argument = "canonicalize",
                .summary = "Folds constants, applies the ops' simplifications, removes dead operations",
                .description =
                    "Works on forward operations, to a fixed point. `%y = reshape %x` of the same shape becomes "
                    "`%x`. Afterwards no operation is dead, and none has only constant operands and a result "
                    "of at most 64 KiB.",
                .options = {},
                .run = canonicalize});
  registry.add(
      {.argument = "raise",
       .summary = "Turns exporters' pieces back into one op",
       .description =
           "`transpose` of a weight, `matmul` and `add` become `linear`. What exporters make of layer and "
           "root mean square normalisation, GELU (with erf or tanh), softmax, attention and LSTM cells "
           "becomes one op again, and unrolled steps of an LSTM layer become that layer. The patterns "
           "belong to the ops (OpRewrites::raise). Runs before `differentiate`, because a fused backward cannot "
           "be recovered afterwards.",
       .options = {},
       .run = raise});
  registry.add(
      {.argument = "add-lora",
       .summary = "Adds adapters of low rank to linear layers, and freezes all else",
       .description =
           "The result Y of a layer that `targets` matches becomes Y + (alpha / rank) · (dropout(X) · "
           "transposed A) · transposed B. A starts with U(-1/√inputs, 1/√inputs), B with zeros. The layers are "
           "those of ops with OpRewrites::adaptable; `targets` is searched for in their paths in the module "
           "that was exported. `all-linear` is all layers but the one that computes the logits of a loss, and "
           "layers whose weights `train` matches. Several runs add several kinds of adapters. Afterwards only "
           "parameters of adapters are trained, and what `train` matches. Runs after the losses.",
       .options = {{"rank", "columns of A and B (8)"},
                   {"alpha", "the sum is multiplied by alpha / rank (the rank)"},
                   {"targets", "regular expression, or `all-linear`"},
                   {"dropout", "ratio of the dropout in front of A (0)"},
                   {"slices", "`0/2 of 3`: adapters for these of so many layers that are packed into each"},
                   {"train", "regular expression of other parameters that are trained"},
                   {"seed", "of the first values of A (0)"}},
       .run = [](PassContext& context) -> Status {
         const Expected<LoraOptions> options = loraOptions(context.options, context.diags);
         return options ? addLora(context, *options) : Status(failure);
       }});
  registry.add({.argument = "differentiate",
                .summary = "Appends the backward operations of @main",
                .description =
                    "Each backward operation has its origin, and phase I (input gradient) or W (weight gradient). "
                    "There is one `gradient` output per use of a trained parameter, in program order. The gradient "
                    "of a value with several consumers is folded from the last to the first; the addition belongs to "
                    "the earlier consumer. Forward operations that do not depend on data are put right before the "
                    "first operation that waits for them, so that fusion groups have the same order. Gradients of "
                    "the data are not computed.",
                .options = {{"loss_scale", "the gradient of the losses (1); `dynamic`: an input of this name"}},
                .run = differentiate});
  registry.add({.argument = "layout",
                .summary = "Puts the channels of planes in blocks, or last, where that saves copies",
                .description =
                    "Convolutions compute on blocks of 16 channels, `f32[8, 64, 56, 56]@1`, and copy other layouts "
                    "in every call. Values that other operations need in one layout are decided together, by the "
                    "bytes that are copied. `relayout` operations stand where layouts meet. A parameter that is the "
                    "filter of one convolution, and has no other reader, is stored in blocks of 16 × 16 channels, "
                    "`f32[64, 64, 3, 3]@2`, like its gradient.\n\nUnder CUDA, tensor cores want channels last "
                    "instead, `f32[8, 64, 56, 56]@3`, and filters row-major. Runs after `add-evaluation`, on all "
                    "graphs.",
                .options = {{"remarks", "tell where layouts meet, so that values are copied, and which filters stay "
                                        "row-major"},
                            {"last", "channels last, for CUDA"}},
                .run = chooseLayouts});
  registry.add(
      {.argument = "skip-padding",
       .summary = "Leaves out rows of linear layers that belong to padded positions",
       .description =
           "Where a mask, an input `[samples, positions]`, hides keys from attention and takes positions out "
           "of what follows, so that the rows of a layer at positions where it is 0 have no readers, `linear` "
           "becomes `linear_of_rows`. The pass follows the mask, element by element, through what exporters make of "
           "it. Rows of positions that are taken whatever it says, such as the first one, are computed, and so "
           "are all rows of a sample where the mask is 1 nowhere. Gradients there are 0 already. "
           "Runs after `layout`, for CPUs, where products of fewer rows take less time.",
       .options = {{"least", "rows, inputs and outputs of a layer that changes (64)"},
                   {"remarks", "tell how many layers there are"}},
       .run = skipPadding});
  registerLossPasses(registry);
  registerPrecisionPasses(registry);
  registerFusionPasses(registry);
  registerSplitPasses(registry);
  registerExpertPasses(registry);
}
