// Threads inside kernels.
#pragma once

#include "pdcrt/Stage.h"

#include <span>

namespace pdcrt {

/// OpenMP threads with which this thread constructs and calls kernels. Primitives, the workspace that they need, and
/// the order of their sums depend on the number: a stage program runs with the one that it was planned with (Stage.h).
inline thread_local int kernelThreads = 1;

/// Threads of a rank that links `stages`: what the flag --kernel-threads says, else (0) with how many they were
/// planned.
int threadsOf(int flag, std::span<const Stage* const> stages);

/// To be called before anything else with the arguments of `main`: makes sure that OpenMP threads which wait for work
/// spin for some microseconds only, then sleep, instead of keeping cores that other ranks need. libgomp reads that from
/// the environment when it is loaded, so a process with `threads` > 1 whose environment says nothing starts itself
/// again. Does nothing where that fails.
void waitBriefly(char** argv, int threads);

} // namespace pdcrt
