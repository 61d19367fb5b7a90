// The passes of this library by name, for pdc-opt and docs/Passes.md.
#include "pdc/Transforms/Precision.h"
#include "pdc/Transforms/Transforms.h"

#include <algorithm>
#include <charconv>

using namespace pdc;

/// --add-loss=kind=mse,output=y
static Status runAddLoss(PassContext& context) {
  Expected<LossOptions> options = lossOptions(context.options, context.diags);
  return options ? addLoss(context, *options) : Status(failure);
}

/// --lower-precision=type=bf16
static Status runLowerPrecision(PassContext& context) {
  ElementType low = ElementType::f32;
  if (!elementTypeFromName(context.options["type"], low) || (low != ElementType::bf16 && low != ElementType::f16))
    return context.diags.error({}).exit(ExitCode::usage).help("write type=bf16 or type=f16")
           << "'" << context.options["type"] << "' is no low precision";
  return lowerPrecision(context, low);
}

/// --align-classes=least=2147483648
static Status runAlignClasses(PassContext& context) {
  double least = 0x1p31;
  if (const auto given = context.options.find("least"); given != context.options.end()) {
    const std::string& text = given->second;
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), least);
    if (failed != std::errc() || end != text.data() + text.size() || !(least >= 0))
      return context.diags.error({.file = context.module.file}).exit(ExitCode::usage).help("write least=0")
             << "least='" << text << "' is no number of floating-point operations";
  }
  return alignClasses(context, least);
}

void pdc::registerTransforms(PassRegistry& registry) {
  // In the order in which pdc runs them; docs/Passes.md lists them so.
  registry.add({.argument = "canonicalize",
                .summary = "Folds constants, applies the ops' simplifications, removes dead operations",
                .description =
                    "Works on forward operations, to a fixed point. `%y = reshape %x` of the same shape becomes "
                    "`%x`. Afterwards no operation is dead, and none has only constant operands and a result "
                    "of at most 64 KiB.",
                .options = {},
                .run = canonicalize});
  registry.add({.argument = "raise",
                .summary = "Turns exporters' pieces back into one op",
                .description =
                    "`transpose` of a weight, `matmul` and `add` become `linear`. What exporters make of layer and "
                    "root mean square normalisation, GELU (with erf or tanh), softmax, attention and LSTM cells "
                    "becomes one op again, and unrolled steps of an LSTM layer become that layer. The patterns "
                    "belong to the ops (OpDef::raise). Runs before `differentiate`, because a fused backward cannot "
                    "be recovered afterwards.",
                .options = {},
                .run = raise});
  registry.add({.argument = "add-loss",
                .summary = "Decides what is minimised",
                .description =
                    "Without `kind`, the outputs of loss operators become losses, otherwise the only scalar float "
                    "output. With `kind`, the loss applies to the output `output` (default: the first float output "
                    "that is not a scalar); the pass adds it and its label input, which losses share. For a softmax "
                    "or sigmoid, the loss is computed from the logits where that is the same function. Several runs "
                    "add several losses. Afterwards there is at least one `loss`, its `prediction` if there is one, "
                    "and label inputs are marked.",
                .options = {{"kind", "softmax-cross-entropy, nll, mse, bce-with-logits, bce, or output"},
                            {"output", "the output that the loss applies to, or that is the loss"},
                            {"label", "its label input (`label` for classes, `target` for numbers)"},
                            {"weight", "factor of the loss"},
                            {"ignore_index", "label of positions that do not count"},
                            {"average",
                             "minibatch, or update: the loss gets a factor, its share of the update's; automatic: the "
                             "latter where positions may be ignored"},
                            {"label_smoothing", "share of the loss that all classes have in equal parts"},
                            {"class_weights", "one weight per class: 1/2/0.5"}},
                .run = runAddLoss});
  registry.add({.argument = "lower-precision",
                .summary = "Computes products in bf16 or f16",
                .description =
                    "Converts the f32 operands of forward operations whose OpDef prefers low precision and has a "
                    "kernel for it, and their results back to f32. Between two such operations nothing is converted, "
                    "nor where elements of low precision only move. Softmax cross-entropy reads logits in low "
                    "precision; a norm rounds what only products read (attribute `result`). Everything else stays "
                    "f32: parameters are the master weights, and their gradients are f32. Runs before "
                    "`differentiate`. The CPU target has no low precision.",
                .options = {{"type", "bf16 or f16"}},
                .run = runLowerPrecision});
  registry.add({.argument = "align-classes",
                .summary = "Makes rows of logits begin at multiples of 16 bytes",
                .description =
                    "Tensor cores read other rows at a fraction of their speed. The layer that makes the logits gets "
                    "extra outputs, whose weights are zeros and which the loss ignores: `softmax_cross_entropy %y, "
                    "%label {gap = 7}`. Other readers of the logits read a slice. Applies to large layers whose "
                    "logits only change shape or type before a loss that knows gaps. Runs before `differentiate`, "
                    "for programs that compute in low precision.",
                .options = {{"least", "floating-point operations of a large layer (2147483648)"}},
                .run = runAlignClasses});
  registry.add({.argument = "merge-heads",
                .summary = "Lets attention read and write rows in which heads lie beside each other",
                .description =
                    "`multi_head_attention %qkv {heads = 12}` replaces slices, transposes and "
                    "`dot_product_attention`. The fused kernels of GPUs read the rows as they are, so no data is "
                    "moved, in the gradient neither. Applies to attention in low precision without dropout, whose "
                    "bias hides nothing. Runs before `differentiate`.",
                .run = mergeHeads});
  registry.add({.argument = "order-branches",
                .summary = "Puts shorter branches before longer ones that they meet",
                .description =
                    "Where branches without other readers meet, such as a shortcut's convolution and BatchNorm "
                    "beside the three layers of a residual block, branches with fewer layers (operations that read a "
                    "matrix of weights) come before the longest one, as soon as their operands exist. The operation "
                    "where they meet, the sum, joins the fusion group of the last branch (`fuse`); the others can be "
                    "in the stage before or after a cut. Runs before `differentiate`, which adds gradients in "
                    "program order.",
                .options = {},
                .run = orderBranches});
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
  registry.add({.argument = "widen-gradients",
                .summary = "Lets products of low precision give gradients of weights in f32",
                .description =
                    "Applies to gradients that have no other reader: they are neither rounded nor converted. Runs "
                    "after `differentiate`.",
                .run = widenGradients});
  registry.add({.argument = "fuse",
                .summary = "Decides fusion groups and merges elementwise operations inside them",
                .description =
                    "A group begins at an operation that reads a matrix of weights or computes much for each "
                    "element. It also begins at an operation with other weights (a normalisation) that follows a "
                    "kernel, if a cut before it sends no more than one behind it. Memory-bound operations that "
                    "follow join the group. A weight gradient that takes much longer than its transfer is a group "
                    "behind that of its layer.\n\nChains of elementwise operations of one group and phase become one "
                    "`elementwise`, or a part of the kernel beside them where its OpDef offers that: BatchNorm, ReLU "
                    "and residual sum; a convolution and its ReLU; an input gradient and another that it is added "
                    "to; the sum of all parts of a value's gradient. Results of the model that training does not "
                    "need are dropped. Afterwards every operation has a group; groups are numbered in program order.",
                .options = {{"remarks", "tell what was fused, what could not be, and why"},
                            {"apart", "decide groups alone, and leave their operations apart"},
                            {"gradients", "every gradient of weights is a group of its own, not only large ones"}},
                .run = fuse});
  registry.add({.argument = "convert-again",
                .summary = "Lets the backward convert parameters to low precision again",
                .description =
                    "Minibatches in flight then keep no copies of the weights. Runs after `fuse`; the operations are "
                    "marked `again`.",
                .run = convertAgain});
  registry.add({.argument = "add-evaluation",
                .summary = "Adds @evaluate, the forward part of @main as the model is used",
                .description =
                    "Operations take their evaluation form (running statistics, no dropout). Values that groups hand "
                    "to each other keep their names. Predictions exist there only: @main loses them, and the "
                    "operations inside their group that lead to nothing else.",
                .options = {},
                .run = addEvaluation});
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
}
