// The passes of this room by name.
#include "Rooms.h"
#include "pdc/Support/JsonReader.h"
#include "pdc/Transforms/Precision.h"

#include <charconv>

using namespace pdc;

/// --lower-precision=type=bf16
static Status runLowerPrecision(PassContext& context) {
  ElementType low = ElementType::f32;
  if (!elementTypeFromName(context.options["type"], low) || (low != ElementType::bf16 && low != ElementType::f16))
    return context.diags.error({}).exit(ExitCode::usage).help("write type=bf16 or type=f16")
           << "'" << context.options["type"] << "' is not a type of low precision";
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
             << "least='" << text << "' is not a valid FLOP count";
  }
  return alignClasses(context, least);
}

/// --quantize-frozen=alpha=6,match=REGEX,keep=REGEX
static Status runQuantizeFrozen(PassContext& context) {
  QuantizeOptions options;
  if (const auto given = context.options.find("match"); given != context.options.end()) options.match = given->second;
  if (const auto given = context.options.find("keep"); given != context.options.end()) options.keep = given->second;
  if (const auto given = context.options.find("alpha"); given != context.options.end()) {
    const std::string& text = given->second;
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), options.alpha);
    if (failed != std::errc() || end != text.data() + text.size() || !(options.alpha >= 0))
      return context.diags.error({.file = context.module.file})
                 .exit(ExitCode::usage)
                 .help("write alpha=6, or alpha=inf")
             << "alpha='" << text << "' is not a number >= 0";
  }
  if (const auto given = context.options.find("kept"); given != context.options.end()) {
    Expected<JsonDocument> document = JsonDocument::parse(given->second, "--quantize-frozen=kept", context.diags);
    if (!document) return failure;
    options.kept = readKeptInputs(document->root());
    if (!document->ok()) return failure;
  }
  return quantizeFrozen(context, options);
}

void pdc::registerPrecisionPasses(PassRegistry& registry) {
  registry.add({.argument = "quantize-frozen",
                .summary = "Makes integers of 8 bits of frozen weights",
                .description =
                    "A frozen matrix becomes two parameters, `W.int8` with one byte per weight and `W.scale` with a "
                    "scale for each output or row of a table; `W.T.int8` and `W.T.scale`, where these are columns of "
                    "W. `linear` becomes `linear_int8`, and `gather` one of "
                    "integers, which are multiplied by their row's scale. Whoever reads the matrix must know "
                    "integers (OpRewrites::int8Use), along one axis: a table that is the last layer's weights too "
                    "is stored once. The values are computed while weights are written. Runs after `raise` and "
                    "before `differentiate`.",
                .options = {{"alpha", "inputs with larger values are multiplied in f32 (6)"},
                            {"kept", "inputs that keep their weights in f32: {\"W\": [0, 3]}"},
                            {"keep", "a regular expression in names of weights that stay as they are"},
                            {"match", "a regular expression in names; default: every frozen weight that can be"}},
                .run = runQuantizeFrozen});
  registry.add({.argument = "lower-precision",
                .summary = "Computes products in bf16 or f16",
                .description =
                    "Converts the f32 operands of forward operations whose OpDef prefers low precision and has a "
                    "kernel for it, and their results back to f32. Between two such operations nothing is converted, "
                    "nor where elements of low precision only move. Softmax cross-entropy reads logits in low "
                    "precision; a norm rounds what only products read (attribute `result`). A product whose result "
                    "chooses something, as a router's logits choose experts, stays f32. So does everything else: "
                    "parameters are the master weights, and their gradients are f32. Runs before "
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
  registry.add({.argument = "widen-gradients",
                .summary = "Lets products of low precision give gradients of weights in f32",
                .description =
                    "Applies to gradients that have no other reader: they are neither rounded nor converted. Runs "
                    "after `differentiate`.",
                .run = widenGradients});
  registry.add({.argument = "convert-again",
                .summary = "Lets the backward convert parameters to low precision again",
                .description =
                    "Minibatches in flight then keep no copies of the weights. Runs after `fuse`; the operations are "
                    "marked `again`.",
                .run = convertAgain});
}
