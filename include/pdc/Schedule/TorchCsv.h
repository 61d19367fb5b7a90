// The CSV files in which PyTorch keeps pipeline schedules (torch.distributed.pipelining, _load_csv and _dump_csv).
//
// One row per rank, one cell per time step, empty where the rank is idle. A cell is a stage, a letter and a microbatch:
//
//   2F0  forward        2B0  full backward        2I0  backward, input gradient        2W0  backward, weight gradient
//
// A file is one batch. What it leaves open follows from the plan: transfers over its edges, all-reduces, updates.
// PyTorch's form with communication is read too: SEND_F, RECV_F, SEND_B and RECV_B are left out, and
// (0F7;7B3)OVERLAP_F_B is one computation after the other; a remark says so. Of a replicated stage 2UNSHARD and
// 2RESHARD say where its sharded weights are gathered and given up, 2REDUCE_GRAD where the sum of its gradients begins;
// what is not given up before the end of the batch is there. Where a stage has no UNSHARD, or one replica, the others
// mean nothing, and are left out.
#pragma once

#include "pdc/Schedule/PipelineShape.h"
#include "pdc/Support/Expected.h"

#include <string>
#include <vector>

namespace pdc {

class Diagnostics;

/// The computations of one batch. pdc knows replicas, which PyTorch's files do not: a stage with R rows has R replicas,
/// and microbatch b is of the row with b mod R.
struct TorchBatch {
  std::int64_t microbatches = 0;
  struct Stage {
    int replicas = 1;
    int warmup = 0;    ///< forwards before the first backward, less one
    int slots = 1;     ///< minibatches in flight, at most
    int handovers = 1; ///< of them between I and W
    int sweeps = 0;    ///< how often its weights are gathered; 0: they are not sharded
  };
  std::vector<Stage> stages;
  std::vector<std::vector<pdcrt::Host>> hosts; ///< by rank
  /// By rank: forwards, backwards, and of sharded stages UN, RE and RS, in order. Only of the former indices matter.
  std::vector<std::vector<pdcrt::Action>> ranks;
};

/// Reads a file's text. An error names the row and where in it the cell is (as line and column).
Expected<TorchBatch> torchBatchFromCsv(const std::string& text, const std::string& file, Diagnostics& diags);

/// The endless schedule that executes the batch again and again, with an update of every stage after each. `shape` has
/// the edges and the shared parameters; stages and microbatches are the batch's. Rings are as deep as the order of the
/// computations needs, if it can be executed at all.
pdcrt::Schedule scheduleOfBatch(const TorchBatch& batch, const PipelineShape& shape);

/// The batch that `schedule` repeats, when each computation takes one step and nothing else takes any. Reports an error
/// where a schedule does not flush, or where its batches differ.
Expected<std::string> torchCsv(const pdcrt::Schedule& schedule, Diagnostics& diags);

} // namespace pdc
