// The passes of this room by name.
#include "Rooms.h"
#include "pdc/Transforms/Transforms.h"

using namespace pdc;

void pdc::registerFusionPasses(PassRegistry& registry) {
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
}
