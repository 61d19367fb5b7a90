// The indices along which attention and its gradient may be divided.
#pragma once

#include "Shared/LoopsOf.h"

namespace pdc::ops {

struct AttentionSizes {
  std::int64_t batch = 1, heads = 1, groups = 1, queries = 1;
  bool causal = false, packed = false;
};

/// Operands or results, by number. All have the batch on axis 0.
struct AttentionValues {
  std::vector<Place> queries;             ///< where the heads of Q and Y are; queries lie on the axis before the last
  std::vector<Place> keys;                ///< where the heads of K and V are
  std::vector<std::size_t> statistics;    ///< [batch, heads, queries]
  std::vector<std::size_t> perScore = {}; ///< [batch, heads, queries, keys]: a bias, a mask
};

/// Batch and groups of heads are free, and so are the heads of a group, which share keys: gradients of keys and values
/// are summed over these. Queries are free; of causal attention, if divideQueries() divides it.
Loops attentionLoops(const Operation& op, const AttentionSizes& sizes, const AttentionValues& operands,
                     const AttentionValues& results);

/// Makes a division of causal attention by `make`, of operands in the forms of the division. Where queries are divided,
/// they are not the last ones: a bias, which knows the positions of a member's queries, hides the keys behind each, and
/// the operation that is made is not causal. `first` is the operand with the queries; the bias is the third after it.
std::vector<Value*> divideQueries(const Operation& op, std::size_t first, const Loops& loops, const Division& division,
                                  std::vector<Value*> operands, Builder& b,
                                  const std::function<std::vector<Value*>(const std::vector<Value*>&)>& make);

} // namespace pdc::ops
