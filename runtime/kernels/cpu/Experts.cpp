// See Experts.h.
#include "pdcrt/kernels/Experts.h"

#include "device/cpu/Parts.h"
#include "device/cpu/Sums.h"

#include <algorithm>
#include <cstring>

namespace pdcrt {
namespace {

constexpr std::int64_t none = -1;

/// Which slots choices name.
struct Choices {
  std::int64_t first, experts, capacity;
  const std::int64_t *expertOf, *slotOf;

  Choices(const Experts::Options& o, const Stream& q, View<const std::int64_t> chosen, View<const std::int64_t> slots)
      : first(o.all > 0 ? q.member() * o.experts : 0), experts(o.experts), capacity(o.capacity), expertOf(chosen.data),
        slotOf(slots.data) {}
  /// The slot of choice `i`, counted over all experts of its group; or `none`.
  std::int64_t at(std::int64_t i) const {
    const std::int64_t expert = expertOf[i] - first, slot = slotOf[i];
    return expert >= 0 && expert < experts && slot >= 0 && slot < capacity ? expert * capacity + slot : none;
  }
};

PDCRT_VECTORIZED void scale(std::int64_t size, float factor, const float* from, float* to) {
  for (std::int64_t i = 0; i < size; ++i) to[i] = factor * from[i];
}

PDCRT_VECTORIZED void addScaled(std::int64_t size, float factor, const float* from, float* to) {
  for (std::int64_t i = 0; i < size; ++i) to[i] += factor * from[i];
}

PDCRT_VECTORIZED float product(std::int64_t size, const float* a, const float* b) {
  return foldInLanes(
      size, 0.0f, [](float x, float y) { return x + y; }, [=](std::int64_t i) { return a[i] * b[i]; });
}

/// The first row of a sum, or the next.
void take(bool isFirst, std::int64_t size, const float* gate, const float* from, float* to) {
  if (!isFirst)
    addScaled(size, gate ? *gate : 1, from, to);
  else if (gate)
    scale(size, *gate, from, to);
  else
    std::memcpy(to, from, static_cast<std::size_t>(size) * sizeof(float));
}

/// Slots of all groups, and choices of all tokens.
std::int64_t slotsOf(const Experts::Options& o) {
  return o.groups * o.experts * o.capacity;
}
std::int64_t choicesOf(const Experts::Options& o) {
  return o.groups * o.tokens * o.choices;
}

} // namespace

/// For each slot the first choice that names it, for each choice the next one that names the same slot.
Experts::Experts(Setup& setup, const Options& o) : options_(o) {
  setup.needWorkspace(static_cast<std::size_t>(slotsOf(o) + choicesOf(o)) * sizeof(std::int64_t));
}

void Experts::dispatch(Stream& q, View<const float> x, View<const std::int64_t> experts, View<const std::int64_t> slots,
                       View<const float> gates, View<float> y) const {
  const Options& o = options_;
  const Choices choices(o, q, experts, slots);
  const std::int64_t ofGroup = o.experts * o.capacity, ofTokens = o.tokens * o.choices, all = slotsOf(o);
  auto* const first = reinterpret_cast<std::int64_t*>(q.workspace());
  std::int64_t* const next = first + all;
  std::fill(first, first + all, none);
  for (std::int64_t i = choicesOf(o); i-- > 0;) {
    const std::int64_t slot = choices.at(i);
    if (slot == none) continue;
    std::int64_t& begin = first[i / ofTokens * ofGroup + slot];
    next[i] = begin;
    begin = i;
  }
  parts::runRanges(parts::countOf(all, all * o.size), all, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t slot = begin; slot < end; ++slot) {
      float* const to = y.data + slot * o.size;
      if (first[slot] == none) std::fill(to, to + o.size, 0.0f);
      for (std::int64_t i = first[slot]; i != none; i = next[i])
        take(i == first[slot], o.size, gates.data ? gates.data + i : nullptr, x.data + i / o.choices * o.size, to);
    }
  });
}

void Experts::combine(Stream& q, View<const float> y, View<const std::int64_t> experts, View<const std::int64_t> slots,
                      View<const float> gates, View<float> x) const {
  const Options& o = options_;
  const Choices choices(o, q, experts, slots);
  const std::int64_t tokens = o.groups * o.tokens;
  const auto combineOne = [&](std::int64_t token) {
    const std::int64_t begin = token * o.choices;
    const float* const from = y.data + token / o.tokens * o.experts * o.capacity * o.size;
    float* const to = x.data + token * o.size;
    // Choices are few: the next one in order of slots, and of equal ones in their own, is looked for anew.
    std::int64_t last = none, lastSlot = none;
    for (std::int64_t taken = 0; taken < o.choices; ++taken) {
      std::int64_t best = none, bestSlot = 0;
      for (std::int64_t i = begin; i < begin + o.choices; ++i) {
        const std::int64_t slot = choices.at(i);
        const bool isLater = slot > lastSlot || (slot == lastSlot && i > last);
        if (slot != none && isLater && (best == none || slot < bestSlot)) best = i, bestSlot = slot;
      }
      if (best == none) break;
      take(last == none, o.size, gates.data ? gates.data + best : nullptr, from + bestSlot * o.size, to);
      last = best, lastSlot = bestSlot;
    }
    if (last == none) std::fill(to, to + o.size, 0.0f);
  };
  parts::runRanges(parts::countOf(tokens, tokens * o.choices * o.size), tokens,
                   [&](std::int64_t begin, std::int64_t end) {
                     for (std::int64_t token = begin; token < end; ++token) combineOne(token);
                   });
}

void Experts::gateGradient(Stream& q, View<const float> x, View<const float> y, View<const std::int64_t> experts,
                           View<const std::int64_t> slots, View<float> dgates) const {
  const Options& o = options_;
  const Choices choices(o, q, experts, slots);
  const std::int64_t all = choicesOf(o);
  parts::runRanges(parts::countOf(all, all * o.size), all, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t slot = choices.at(i), group = i / (o.tokens * o.choices);
      const float* const row = y.data + (group * o.experts * o.capacity + slot) * o.size;
      dgates.data[i] = slot == none ? 0 : product(o.size, x.data + i / o.choices * o.size, row);
    }
  });
}

} // namespace pdcrt
