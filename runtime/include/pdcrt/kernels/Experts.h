// Rows of tokens put into the slots of experts that indices name, and fetched from there: what a mixture of experts
// does around its experts (Lepikhin et al. 2020, GShard; Fedus et al. 2021, Switch Transformers).
#pragma once

#include "pdcrt/Setup.h"
#include "pdcrt/Stream.h"
#include "pdcrt/View.h"

#include <cstdint>

namespace pdcrt {

/// x is [groups, tokens, size] and y [groups, experts, capacity, size]. Each token has `choices`: choice k of token t
/// in group g names slot slots[g, t, k] of expert experts[g, t, k] in its group, with the factor gates[g, t, k];
/// without gates all factors are 1. A choice whose expert or slot is outside is dropped: it names nothing.
///
/// A member of a team may have a part of the experts, of which there are `all`: member m those from m · experts on. The
/// choices of others name nothing here.
///
/// Results may not overlap operands.
class Experts {
public:
  struct Options {
    std::int64_t groups = 1, tokens = 0, choices = 1;
    std::int64_t experts = 0, capacity = 0, size = 0;
    std::int64_t all = 0; ///< experts of all members; 0: y has all of them
  };

  Experts(Setup& setup, const Options& options);

  /// y[slot] = the sum of gate · x[token] over the choices that name the slot, in order of tokens and choices; 0 where
  /// there is none.
  void dispatch(Stream& q, View<const float> x, View<const std::int64_t> experts, View<const std::int64_t> slots,
                View<const float> gates, View<float> y) const;
  /// x[token] = the sum of gate · y[slot] over the token's choices, in order of experts and slots; 0 where all are
  /// dropped.
  void combine(Stream& q, View<const float> y, View<const std::int64_t> experts, View<const std::int64_t> slots,
               View<const float> gates, View<float> x) const;
  /// dgates = x[token] · y[slot] for each choice, the gradient of the gates of `combine` where x is that of its result;
  /// 0 where a choice is dropped.
  void gateGradient(Stream& q, View<const float> x, View<const float> y, View<const std::int64_t> experts,
                    View<const std::int64_t> slots, View<float> dgates) const;

private:
  Options options_;
};

} // namespace pdcrt
