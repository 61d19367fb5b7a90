// The passes of this room by name.
#include "Rooms.h"
#include "pdc/Transforms/Transforms.h"

using namespace pdc;

/// --add-loss=kind=mse,output=y
static Status runAddLoss(PassContext& context) {
  Expected<LossOptions> options = lossOptions(context.options, context.diags);
  return options ? addLoss(context, *options) : Status(failure);
}

void pdc::registerLossPasses(PassRegistry& registry) {
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
  registry.add({.argument = "name-terms",
                .summary = "Decides which scalars a run reports beside the total loss",
                .description =
                    "Each of several losses, without its weight, and scalar outputs of the model from which a loss is "
                    "computed, such as one that balances the loads of experts, are `term`s, too, which a run reports "
                    "by their names. Runs once, after the last `add-loss`.",
                .options = {},
                .run = nameTerms});
  registry.add({.argument = "add-evaluation",
                .summary = "Adds @evaluate, the forward part of @main as the model is used",
                .description =
                    "Operations take their evaluation form (running statistics, no dropout). Values that groups hand "
                    "to each other keep their names. Predictions exist there only: @main loses them, and the "
                    "operations inside their group that lead to nothing else. Layers that deal out rows to places "
                    "(experts) get an output `load`: how many rows each place takes, and how many there are.",
                .options = {},
                .run = addEvaluation});
}
