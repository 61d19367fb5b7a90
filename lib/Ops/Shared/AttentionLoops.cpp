#include "Shared/AttentionLoops.h"

namespace pdc::ops {

namespace {

enum Along { batch, groups, heads, queries }; ///< heads: of a group

std::vector<Place> placesIn(const AttentionValues& values, Along along, std::int64_t groupCount) {
  constexpr int axisOfQueries[] = {0, 0, 0, -2}, axisOfStatistics[] = {0, 1, 1, -1}, axisPerScore[] = {0, 1, 1, -2};
  const std::int64_t blocks = along == heads ? groupCount : 1;
  std::vector<Place> places;
  for (const Place& place : values.queries)
    if (along == groups)
      places.push_back(place);
    else
      places.push_back({place.i, along == heads ? place.axis : axisOfQueries[along], blocks});
  for (const Place& place : values.keys) {
    if (along == groups) places.push_back(place);
    if (along == batch) places.push_back({place.i, 0});
  }
  for (std::size_t i : values.statistics) places.push_back({i, axisOfStatistics[along], blocks});
  for (std::size_t i : values.perScore) places.push_back({i, axisPerScore[along], blocks});
  return places;
}

} // namespace

Loops attentionLoops(const Operation& op, const AttentionSizes& sizes, const AttentionValues& operands,
                     const AttentionValues& results) {
  Loops loops(op);
  const auto divide = [&](Along along, std::int64_t size) {
    Index index{.size = size,
                .operands = placesIn(operands, along, sizes.groups),
                .results = placesIn(results, along, sizes.groups)};
    if (along == heads || along == queries)
      for (const Place& place : results.keys) index.reduced.push_back(place.i);
    addIndex(loops, op, index);
  };
  divide(batch, sizes.batch);
  // Packed rows have the heads of queries first, so that their blocks are of one size only where each has its own keys.
  if (!sizes.packed || sizes.heads == sizes.groups) divide(groups, sizes.groups);
  if (sizes.packed) return loops;
  divide(heads, sizes.heads / sizes.groups);
  if (!sizes.causal) divide(queries, sizes.queries);
  return loops;
}

} // namespace pdc::ops
