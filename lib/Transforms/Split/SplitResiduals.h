// Tensor parallelism with positions divided between its layers (Megatron-LM, arXiv:2205.05198, section 4.2.2): the sums
// behind its layers are scattered along the positions, and positions are gathered before them. That moves as many
// bytes as sums of whole values do; members have parts of all that lies between.
#pragma once

#include "Split/ChooseClasses.h"

namespace pdc {

/// Whether the operation adds terms of a sum that nothing else reads: it goes on with terms, and is not divided.
bool goesOnWithTerms(const Graph& graph, const Operation& operation,
                     const std::unordered_map<const Value*, Form>& made);

/// Fills `joined` and `gathered` of a choice: terms and parts that operations along the tokens read are put together as
/// parts of the tokens, and what only one group reads whole is gathered there. `made` has the forms in which results
/// are made, `tokens` what follows from the division of the inputs.
void placeJoins(const Graph& graph, const LoopTable& loops, const AxisClass& tokens,
                const std::unordered_map<const Value*, Form>& made, std::int64_t members, Choice& choice);

} // namespace pdc
