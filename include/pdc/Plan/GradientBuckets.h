// Buckets: what of a replicated stage's gradients is reduced together. A bucket's all-reduce begins as soon as the
// backward has finished with it, while the backward goes on; a message of its own takes a latency of its own, so small
// parameters share one.
//
// Buckets are fixed on the whole model, by fusion groups: a cut changes none of them, but may leave parts of one in two
// stages. Which bucket a gradient is in changes no bit of its sum.
#pragma once

#include <cstdint>
#include <vector>

namespace pdc {

/// Bytes of a bucket of several groups, at most. 8 MiB take 7 ms at 10 Gb/s, beside which a latency is little; and
/// little is left to reduce after the last gradient.
inline constexpr std::int64_t defaultBucketBytes = std::int64_t{8} << 20;

/// The bucket of each fusion group, from the bytes of the parameters that it uses first. They count from the last
/// group, whose gradients are final first; a group of more than `mostBytes` has a bucket of its own.
std::vector<int> gradientBuckets(const std::vector<std::int64_t>& parameterBytes,
                                 std::int64_t mostBytes = defaultBucketBytes);

/// What a stage has of a bucket.
struct GradientBucket {
  std::int64_t bytes = 0;
  double final = 1; ///< the part of the backward after which its gradients are final
};

/// What of an all-reduce of `syncMs` is left when a backward of `backwardMs` ends:
///
///   max(0, max_i( final_i · backward + Σ_{k>=i} y_k ) - backward),   y_k = (sync - core) · bytes_k / Σ bytes
///
/// `buckets` are in the order in which they are reduced; without any, nothing is hidden. `coreMs`: what the all-reduce
/// takes from the core that computes; it is counted with the update, and for so long nobody waits.
///
/// `sharded`: only one half of sync - core is a sum, y_k that much less; the other half gathers what was updated, and
/// nothing hides it.
double exposedSyncMs(const std::vector<GradientBucket>& buckets, double backwardMs, double syncMs, double coreMs = 0,
                     bool sharded = false);

} // namespace pdc
