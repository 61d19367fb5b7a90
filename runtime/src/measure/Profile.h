// Times every fusion group inside the program that it is part of: a one-stage program, minibatch after minibatch.
#pragma once

#include "exec/Executor.h"

#include <string>
#include <vector>

namespace pdcrt {

/// Measures and writes
///
///   {"repetitions": 50, "step_ms": 3.2, "update_ms": 0.1, "data_ms": 0.05, "groups": [{"id": 0, "name": "…",
///    "forward_ms": …, "forward_spread": …, "input_gradient_ms": …, "input_gradient_spread": …,
///    "weight_gradient_ms": …, "weight_gradient_spread": …}, …],
///    "accumulate_ms": 0.1, "device": "NVIDIA …", "clock_mhz": 1980, "reserved_bytes": 612368384, "kernels":
///    [{"kernel": "Conv2d{…}", "method": "forward", "algorithm": "implicitGemm", "ms": 0.2, "workspace_bytes": 4096},
///    …]}
///
/// accumulate_ms, what adding a set of gradients to another one takes, is measured on CPUs; what follows on a GPU. The
/// clock is counted right after the measurement; reserved are context, code and libraries, and what other programs have
/// there. `kernels` are what algorithms of kernels took while these were constructed, of which the fastest were
/// measured.
///
/// Times are medians over repetitions after a warm-up; a spread is the distance of the quartiles over the median.
/// step_ms is the time of the three phases of a minibatch without the update, measured without looking at groups.
/// data_ms is what reading the samples of a minibatch takes; with `copies`, which is for data that are made up, what
/// copying them takes, as from a file in memory.
/// `executor` is prepared and has its weights, and hosts one stage.
/// `recordsPhases`: as RunOptions::graphs; groups are looked at in phases that are not recorded.
Status profile(Executor& executor, BatchSource& data, bool copies, const Training& training, bool recordsPhases,
               const std::vector<KernelTime>& kernels, const std::string& path);

} // namespace pdcrt
