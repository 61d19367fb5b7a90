// Transport `nccl`: blocks go between GPUs by NCCL, everything else over another transport (`mpi`, or `threads`).
//
// A lane is a communicator of NCCL and a stream: one for each edge and direction, one for the replicas of each stage,
// one for each shared edge and direction, one for each team (NcclTeam.h). All are made at start-up, in one order that
// all ranks have, and every pair that will talk is connected then. Afterwards transfers, and what teams compute, are
// started in the order of StartOrder.h, because NCCL promises progress to one of several streams only.
#pragma once

#include "pdcrt/Schedule.h"
#include "pdcrt/Status.h"
#include "transport/Transport.h"

#include <memory>
#include <string>
#include <vector>

namespace pdcrt {

/// What a lane is for.
struct NcclLane {
  struct Link {
    int from, to; ///< processes
    int channel;
  };
  std::string name;        ///< "values of edge 0 > 1"
  std::vector<int> ranks;  ///< processes that take part, ascending; of a team, by member
  std::vector<Link> links; ///< that blocks will take; of a team none
  int channel = 0;         ///< of the host, on which the lowest rank tells the others the communicator's name
  bool isTeam = false;     ///< for collectives of a team's members
};

/// The lanes of a schedule, in the order in which they are made.
std::vector<NcclLane> ncclLanes(const Schedule& schedule);

/// What the ranks of a program for GPUs, as processes or threads, send each other blocks with.
enum class BlockWay { unset, nccl, host };

/// Asks all ranks for their GPUs and for what they want, over `transport` and the channel after those of `lanes`; makes
/// one answer of it, the same for all: `nccl` where every rank has a GPU of its own and the program was built with
/// NCCL, unless `wish` says `host`. Fails where ranks want different things (Exit::usage), or `nccl` cannot be had: on
/// rank 0, which is to say why and to abort; the others wait for that.
Status chooseBlockWay(Transport& transport, const Schedule& schedule, BlockWay wish, BlockWay& way);

/// Puts `nccl` around `transport`. All ranks must call it. Fails with Exit::noDevice where NCCL does, and with
/// Exit::usage in programs without it. Once NCCL has failed in a run, the transport has aborted(), with NCCL's text in
/// failure(); and when another rank has given up, what NCCL does on the device is ended.
///
/// It and the two below are in the library of a target's kernels: that of the CPU knows no NCCL.
Status makeNcclTransport(const std::vector<NcclLane>& lanes, std::unique_ptr<Transport>& transport);

/// For start-up, when no other thread uses the transport: carries out a transfer of the host. Fails where `whom`, as
/// messages name the other end, does not answer for two minutes, or has given up.
Status finishAlone(Transport& transport, Transfer& transfer, const std::string& whom);

/// Whether makeNcclTransport can do more than fail; if not, why.
Status ncclAvailable();
/// What tells the GPU of `rank` from others of this machine.
std::string gpuOf(int rank);

} // namespace pdcrt
