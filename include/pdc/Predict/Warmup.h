// How many forwards each stage runs before its first backward (w_s). In flight per replica: w_s + 1.
#pragma once

#include "pdc/Plan/Plan.h"
#include "pdcrt/Simulate.h"

#include <vector>

namespace pdc {

/// PipeDream's: w_s = floor((N - 1 - Σ_{t<s} R_t) / R_s), N = Σ R_s. It hides no transfer.
std::vector<int> paperWarmup(const Plan& plan);

/// Enough to hide every transfer and all-reduce at `timeMs` per minibatch, from the last stage backwards over each edge
/// s -> t with 2x = (transfer there and back) / timeMs:
///
///   w_s = ceil(((w_t + 1)·R_t + 2x) / R_s)                               where updates overlap with the all-reduce
///   w_s = ceil(((w_t + 2)·R_t + R_s - 2·gcd(R_s, R_t) + 2x) / R_s)       where a stage waits for it
///
/// A stage waits with sync=barrier, and with overlap too when the all-reduce takes more than a quarter of its period.
std::vector<int> hideUpperBound(const Plan& plan, double timeMs);

/// As many as a stage of a batch computes until its first gradient is back: with less it waits for that, and a batch
/// takes longer where the first stages have the most to do. w_s = floor(behind_s / F_s), behind_s the longest way from
/// stage s on and back, both transfers over each edge and the computation of each stage behind it.
std::vector<int> fillWarmup(const Plan& plan);

/// No smaller w_s reaches `timeMs`, given those of later stages. With f the longest path of forwards and transfers from
/// stage s to a later stage u, b that of backwards from u to s, U the update, e the exposed all-reduce, for all u that
/// have both:
///
///   d_s = 0:  w_s >= ceil((f + b + U_s + e_s) / (R_s·timeMs)) - 1 + ceil(w_u·R_u / R_s)
///   d_s = 1:  w_s >= ceil((w_u·R_u + (f + b + U_s) / timeMs) / R_s) - 1
///             w_s >= ceil((f + b + U_s + all-reduce) / (R_s·timeMs)) - 2 + ceil(w_u·R_u / R_s)
///
/// because the forward of local minibatch k + w + 1 follows the update after backward k, and with d_s = 0 this waits
/// for the backwards of all replicas; and w_o·R_o >= w_u·R_u for each user u of a shared parameter of stage o.
std::vector<int> hideLowerBound(const Plan& plan, double timeMs);

/// The smallest warm-up that the simulator shows to reach plan.timeMs, which must hold the bottleneck (within 0.1 %),
/// searched between the two bounds from the last stage to the first. Where every lane has links of its own, that is
/// always reached. Where lanes share a link, transfers hold each other up (docs/Semantics.md): up to six minibatches
/// more between neighbours are tried, up to two that the last stage runs ahead, and then single stages, as long as one
/// of them makes the pipeline faster. The search executes a bounded number of actions: for pipelines of hundreds of
/// stages it ends early with a warm-up that suffices, and where a single simulation would be too long the upper bound
/// is the answer.
std::vector<int> hideWarmup(const Plan& plan);
/// The same on a machine with other times.
std::vector<int> hideWarmup(const Plan& plan, const pdcrt::Times& times);

/// Raises the input stage's warm-up to what vertical sync needs, R_0·(w_0 + d_0) >= R_s·(w_s + d_s), and cuts what a
/// batch of microbatches cannot fill.
void adjustWarmup(const Plan& plan, std::vector<int>& warmup);

} // namespace pdc
