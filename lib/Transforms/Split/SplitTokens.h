// Sequence parallelism: each member has some of the positions of every sequence (DeepSpeed-Ulysses, arXiv:2309.14509,
// section 3). Parameters stay whole. What cannot be divided along the positions is divided along the axis that costs
// least, attention along its heads, with an all-to-all before and behind it.
#pragma once

#include "Split/ChooseClasses.h"

namespace pdc {

/// Divides a graph along the positions of its inputs. Reports where it has none, or where the members cannot have
/// equally many.
Expected<Choice> chooseTokens(const Graph& graph, const LoopTable& loops, std::int64_t members, Diagnostics& diags);

} // namespace pdc
