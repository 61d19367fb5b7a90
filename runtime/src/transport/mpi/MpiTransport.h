// Transport `mpi`: ranks are MPI processes. All MPI calls of a run are made by the communication thread, and none
// blocks.
#pragma once

#include "pdcrt/Status.h"
#include "transport/Transport.h"

#include <memory>

namespace pdcrt {

struct MpiOptions {
  int rank = -1;                 ///< of the plan; -1: MPI's own
  bool synchronousSends = false; ///< MPI_Issend: a send is complete only when its receive is there (tests)
};

/// Initialises MPI and makes this process one of `ranks`. Fails with Exit::usage where another number was launched, and
/// where MPI has no thread support.
Status openMpi(int ranks, const MpiOptions& options, std::unique_ptr<Transport>& transport);

} // namespace pdcrt
