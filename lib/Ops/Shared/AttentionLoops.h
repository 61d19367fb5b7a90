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
/// are summed over these. Queries are free unless attention is causal, where a member would have to know which queries
/// it has.
Loops attentionLoops(const Operation& op, const AttentionSizes& sizes, const AttentionValues& operands,
                     const AttentionValues& results);

} // namespace pdc::ops
