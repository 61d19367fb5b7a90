// Binds threads to cores, as taskset and mpirun bind processes.
#pragma once

#include <sched.h>

/// Binds this thread to the first `count` of the cores that it may use.
inline void bindToFirstCores(int count) {
  cpu_set_t all, few;
  CPU_ZERO(&few);
  sched_getaffinity(0, sizeof all, &all);
  for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&few) < count; ++core)
    if (CPU_ISSET(core, &all)) CPU_SET(core, &few);
  sched_setaffinity(0, sizeof few, &few);
}
