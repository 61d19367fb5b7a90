// What the replicas of a stage send each other where D neighbouring ones of R have everything together, and hybrid
// sharding otherwise (D < R; PyTorch FSDP, arXiv:2304.11277, section 3.2.2), in units of the bytes of its parameters.
//
// A sum sends every replica's terms of a part of 1/R to the replica that adds them up. Where several replicas own a
// shard, each has the sum of a part of it, and they send these to each other. A gather sends the own shard of 1/D to
// the other owners.
#pragma once

namespace pdc {

/// That a replica sends for a sum: (R - 1)/R + 1/D - 1/R.
inline double sentForSum(int replicas, int owners) {
  return 1 + 1.0 / owners - 2.0 / replicas;
}

/// That a replica sends for a gather: (D - 1)/D.
inline double sentForGather(int owners) {
  return 1 - 1.0 / owners;
}

/// The same as a share of what an all-reduce of all R replicas sends, 2(R - 1)/R. Half of it where D = R.
inline double sumShare(int replicas, int owners) {
  return sentForSum(replicas, owners) / (2 - 2.0 / replicas);
}
inline double gatherShare(int replicas, int owners) {
  return sentForGather(owners) / (2 - 2.0 / replicas);
}

} // namespace pdc
