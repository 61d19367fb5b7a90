// What tests may ask of the stand-in for CUDA.
#pragma once

#include <cstdint>

namespace stand_in {

/// From now on, streams go on in an order that this seed draws: at every call some of what is ready to run runs, on any
/// of them. Without it the seed is $PDC_STAND_IN_SEED, or 1.
void interleave(std::uint64_t seed);
/// How many devices there are ($PDC_STAND_IN_DEVICES, or 1).
void setDevices(int count);
/// How long nothing may move, in milliseconds, before a wait is one for ever (30,000): then every communicator of NCCL
/// has an error, and a wait that goes on all the same ends the program.
void setPatience(int milliseconds);
/// The peers of a device's communicators of NCCL see that it is gone. To be called when nothing is under way.
void killDevice(int device);
/// Whether there is no memory for graphs.
void failGraphs(bool fail);
/// The algorithm of cuDNN's forward convolutions that fails when it is called, though it says that it can; -1: none.
void failForward(int algorithm);
/// Whether cuDNN has no forward convolutions that end with bias and activation; how many of these have been called.
void refuseFinishing(bool refuse);
int finishedForwards();
/// The place of the algorithm of cuBLASLt's products that takes 2 microseconds instead of 1; -1: none.
void slowProducts(int place);
/// Whether sums that products make beside are wrong.
void spoilSums(bool spoil);
/// Work that is in streams and has not run.
std::size_t pending();

} // namespace stand_in
