// Threads inside kernels.
#pragma once

#include "pdcrt/Stage.h"

#include <chrono>
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

// For how long a thread runs before another one of its core has its turn, where several want it: the longest that Linux
// gives, for those that compute, and that find less of their memory in the caches with every turn; the shortest for
// those that do little at a time, who then come soon.
inline constexpr std::chrono::nanoseconds longTurn{100'000'000}, shortTurn{100'000};

/// Asks Linux, from 6.12 on, for such turns for this thread, and for those that it starts from now on. False where they
/// are not to be had, or somebody has chosen how the thread is scheduled.
bool takeTurnsOf(std::chrono::nanoseconds length);

} // namespace pdcrt
