// See Experts.h. There are no atomic sums: choices are sorted by the slots that they name, and the rows of one slot are
// added in their order.
#include "pdcrt/kernels/Experts.h"

#include "cuda/support/IndexedRows.h"
#include "pdcrt/CudaWorkspace.h"

namespace pdcrt {
namespace {

using cuda::lowerBound;
using cuda::placeOfKey;
using cuda::rowKey;
using cuda::RowKey;
using cuda::rowOfKey;
using cuda::warpSize32;

constexpr std::int64_t none = -1;

/// The choices, and the experts that are here.
struct Choices {
  Experts::Options sizes;
  std::int64_t first;
  const std::int64_t *expertOf, *slotOf;
  const float* gates;

  std::int64_t count() const { return sizes.groups * sizes.tokens * sizes.choices; }
  std::int64_t slots() const { return sizes.groups * sizes.experts * sizes.capacity; }
};

/// The slot of choice `i`, counted over all groups; or `none`.
__device__ std::int64_t slotOf(const Choices& c, std::int64_t i) {
  const std::int64_t expert = c.expertOf[i] - c.first, slot = c.slotOf[i];
  if (expert < 0 || expert >= c.sizes.experts || slot < 0 || slot >= c.sizes.capacity) return none;
  return (i / (c.sizes.tokens * c.sizes.choices) * c.sizes.experts + expert) * c.sizes.capacity + slot;
}

__device__ float gateOf(const Choices& c, std::int64_t i) {
  return c.gates ? c.gates[i] : 1.0f;
}

/// What sortRows reads: there a negative number would count from the end.
__global__ void nameSlots(Choices c, std::int64_t count, std::int64_t outside, std::int64_t* named) {
  for (std::int64_t i = thread(); i < count; i += threads()) {
    const std::int64_t slot = slotOf(c, i);
    named[i] = slot == none ? outside : slot;
  }
}

__global__ void sumOfSlot(Choices c, std::int64_t count, std::int64_t elements, const RowKey* keys, const float* x,
                          float* y) {
  for (std::int64_t i = thread(); i < elements; i += threads()) {
    const std::int64_t slot = i / c.sizes.size, column = i % c.sizes.size;
    float sum = 0;
    for (std::int64_t at = lowerBound(keys, 0, count, rowKey(slot, 0)); at < count && rowOfKey(keys[at]) == slot;
         ++at) {
      const std::int64_t choice = placeOfKey(keys[at]);
      sum += gateOf(c, choice) * x[choice / c.sizes.choices * c.sizes.size + column];
    }
    y[i] = sum;
  }
}

__global__ void sumOfToken(Choices c, std::int64_t elements, const float* y, float* x) {
  for (std::int64_t e = thread(); e < elements; e += threads()) {
    const std::int64_t token = e / c.sizes.size, column = e % c.sizes.size, begin = token * c.sizes.choices;
    float sum = 0;
    // Choices are few: the next one in order of slots, and of equal ones in their own, is looked for anew.
    std::int64_t last = none, lastSlot = none;
    for (std::int64_t taken = 0; taken < c.sizes.choices; ++taken) {
      std::int64_t best = none, bestSlot = 0;
      for (std::int64_t i = begin; i < begin + c.sizes.choices; ++i) {
        const std::int64_t slot = slotOf(c, i);
        const bool isLater = slot > lastSlot || (slot == lastSlot && i > last);
        if (slot != none && isLater && (best == none || slot < bestSlot)) best = i, bestSlot = slot;
      }
      if (best == none) break;
      sum += gateOf(c, best) * y[bestSlot * c.sizes.size + column];
      last = best, lastSlot = bestSlot;
    }
    x[e] = sum;
  }
}

/// A warp per choice.
__global__ void products(Choices c, std::int64_t count, const float* x, const float* y, float* dgates) {
  const std::int64_t lane = threadIdx.x % warpSize32;
  for (std::int64_t i = thread() / warpSize32; i < count; i += threads() / warpSize32) {
    const std::int64_t slot = slotOf(c, i);
    float sum = 0;
    if (slot != none)
      for (std::int64_t j = lane; j < c.sizes.size; j += warpSize32)
        sum += x[i / c.sizes.choices * c.sizes.size + j] * y[slot * c.sizes.size + j];
    for (int distance = warpSize32 / 2; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, distance);
    if (lane == 0) dgates[i] = sum;
  }
}

Choices choicesOf(const Experts::Options& o, const Stream& q, View<const std::int64_t> experts,
                  View<const std::int64_t> slots, View<const float> gates) {
  return {o, o.all > 0 ? q.member() * o.experts : 0, experts.data, slots.data, gates.data};
}

} // namespace

Experts::Experts(Setup& setup, const Options& o) : options_(o) {
  setup.needWorkspace(cuda::workspaceOf(o));
}

void Experts::dispatch(Stream& q, View<const float> x, View<const std::int64_t> experts, View<const std::int64_t> slots,
                       View<const float> gates, View<float> y) const {
  const Choices choices = choicesOf(options_, q, experts, slots, gates);
  const std::int64_t count = choices.count(), all = choices.slots();
  auto* const named = reinterpret_cast<std::int64_t*>(q.workspace() + cuda::sortedRowBytes(count));
  launchLoop(q, "dispatch", nameSlots, count, choices, count, all, named);
  const RowKey* const keys = cuda::sortRows(q, {all}, count, named);
  launchLoop(q, "dispatch", sumOfSlot, all * options_.size, choices, count, all * options_.size, keys, x.data, y.data);
}

void Experts::combine(Stream& q, View<const float> y, View<const std::int64_t> experts, View<const std::int64_t> slots,
                      View<const float> gates, View<float> x) const {
  const std::int64_t elements = options_.groups * options_.tokens * options_.size;
  launchLoop(q, "combine", sumOfToken, elements, choicesOf(options_, q, experts, slots, gates), elements, y.data,
             x.data);
}

void Experts::gateGradient(Stream& q, View<const float> x, View<const float> y, View<const std::int64_t> experts,
                           View<const std::int64_t> slots, View<float> dgates) const {
  const Choices choices = choicesOf(options_, q, experts, slots, {});
  const std::int64_t count = choices.count();
  launchLoop(q, "combine, gradient", products, count * warpSize32, choices, count, x.data, y.data, dgates.data);
}

} // namespace pdcrt
