// Transport `tcp`: ranks are processes that somebody started with a rank and a meeting point (PDC_*, torchrun), without
// MPI. Each two of them have a connection.
//
// The receiver says when a receive is posted, and only then does the sender send: nothing is buffered, no transfer
// waits behind one of another channel. Large transfers go in pieces, those of several channels in turn.
#pragma once

#include "pdcrt/Status.h"
#include "transport/Transport.h"

#include <memory>
#include <string>

namespace pdcrt {

struct TcpOptions {
  int rank = 0;
  std::string meeting;  ///< "HOST:PORT", where rank 0 listens
  double patience = 60; ///< seconds until all ranks are there, and until a silent connection is given up
};

/// Makes this process one of `ranks`. Fails with Exit::usage where processes disagree on their number or two have one
/// rank, with Exit::again where not all come in time.
Status openTcp(int ranks, const TcpOptions& options, std::unique_ptr<Transport>& transport);

} // namespace pdcrt
