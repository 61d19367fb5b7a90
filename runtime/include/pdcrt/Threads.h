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

/// For how long a thread may compute before another one of its core has its turn; 100 ms are the most that Linux gives.
inline constexpr std::chrono::milliseconds longTurn{100};

/// Asks Linux, from 6.12 on, for such turns for this thread, and for those that it starts from now on. What computes on
/// a core in turns with others finds less of its memory in the caches with every turn; those that wait for something
/// short (messages) still come before it. False where that is not to be had.
bool takeLongTurns();

} // namespace pdcrt
