// Sequence parallelism: each member has some of the positions of every sequence (DeepSpeed-Ulysses, arXiv:2309.14509,
// section 3). Parameters stay whole. What cannot be divided along the positions is divided along the axis that costs
// least, attention along its heads, with an all-to-all before and behind it.
//
// Tensor parallelism with positions divided between its layers (Megatron-LM, arXiv:2205.05198, section 4.2.2): what
// tensor parallelism divides stays so divided, all else has positions (SplitResiduals.h).
//
// Expert parallelism (GShard, arXiv:2006.16668, section 3): each member has some of the samples, and some of the
// experts (SplitExperts.h).
#pragma once

#include "Split/ChooseClasses.h"

namespace pdc {

/// Divides a graph along the positions or the samples of its inputs. Reports where it has none, or where the members
/// cannot have equally many; with samples, also where it has no experts. An evaluation has the parameters of
/// `training`.
Expected<Choice> chooseTokens(const Graph& graph, const LoopTable& loops, const SplitOptions& options,
                              Diagnostics& diags, const Choice* training = nullptr);

} // namespace pdc
