#include "Shared/AttentionLoops.h"

#include "Kernels/AttentionOptions.h"

#include "pdcrt/kernels/Attention.h"

#include <algorithm>
#include <numeric>

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
  divide(queries, sizes.queries);
  return loops;
}

namespace {

/// 0 where a member's query sees a key, else what makes its weight 0: [1, 1, queries, keys], of a member's queries.
Value* biasOfQueries(std::int64_t queries, std::int64_t keys, std::int64_t members, ElementType element, Builder& b) {
  constexpr double hidden = 10 * pdcrt::Attention::hidden;
  const auto positions = [&](std::int64_t count, std::int64_t first, Shape shape) {
    Tensor tensor(Type{ElementType::i32, std::move(shape)});
    for (std::int64_t i = 0; i < count; ++i) tensor.setInt(i, first + i);
    return b.constant(tensor);
  };
  Value* const ofKeys = positions(keys, 0, {1, 1, 1, keys});
  Value* ofQueries = positions(queries, keys - queries, {1, 1, queries, 1});
  if (!ofKeys || !ofQueries) return nullptr;
  ofQueries = b.value("own_part", {ofQueries}, {{"axis", 2}, {"members", members}});
  Value* const isBehind = ofQueries ? b.value("greater", {ofKeys, ofQueries}) : nullptr;
  Value *const none = b.constant(0, element), *const hides = b.constant(hidden, element);
  return isBehind && none && hides ? b.value("where", {isBehind, hides, none}) : nullptr;
}

} // namespace

std::vector<Value*> divideQueries(const Operation& op, std::size_t first, const Loops& loops, const Division& division,
                                  std::vector<Value*> operands, Builder& b,
                                  const std::function<std::vector<Value*>(const std::vector<Value*>&)>& make) {
  const Type& queries = operandType(op, first);
  const Form form = formOfOperand(loops, first, division);
  const bool dividesQueries = form.isSplit() && form.axis == queries.rank() - 2;
  if (!dividesQueries || !op.attributes.get<bool>("causal")) return make(operands);
  const Shape& keys = operandType(op, first + attention::key).shape;
  Value* bias = biasOfQueries(queries.shape[static_cast<std::size_t>(form.axis)], keys[keys.size() - 2], division.parts,
                              besideQueries(queries.element), b);
  const std::size_t at = first + attention::bias;
  if (operands.size() <= at) operands.resize(at + 1);
  if (bias && operands[at]) bias = b.value("add", {operands[at], bias});
  operands[at] = bias;
  if (!bias) return {};
  std::vector<Value*> results = make(operands);
  const auto made = std::find_if(results.begin(), results.end(), [](const Value* result) { return result; });
  if (made != results.end()) (*made)->definer()->attributes.set("causal", false);
  return results;
}

} // namespace pdc::ops
