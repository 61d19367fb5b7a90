// Watches over the ranks of a run from outside: says which one died or hangs, and ends the others.
//
// Every process of the run connects to the supervisor over TCP (runtime/src/watch/Supervision.h states the protocol),
// so that its death is seen at once, whatever the transport of the training makes of it.
#pragma once

#include "pdc/Driver/Toolchain.h"
#include "pdc/Support/Diagnostics.h"
#include "pdc/Support/Expected.h"

#include <string>

namespace pdc {

struct SupervisorOptions {
  int ranks = 1;
  bool otherHosts = false; ///< ranks run on other machines, too: listen to the network
  std::string address;     ///< by which they reach this machine; empty: its host name
  /// Seconds without any rank getting on after which the run counts as hung.
  double watchdogSeconds = 60;
  double startSeconds = 60; ///< without a further rank, after which a run that has not begun counts as failed
  bool launcher = false;    ///< the command is mpirun, whose own messages are shown only where they help
  std::string recordings;   ///< folder of the ranks' flight recorders; those of earlier runs are removed
};

struct RunEnding {
  int code = 0;      ///< with which pdc-run exits
  bool lost = false; ///< a rank died or hung: the run may be started again
};

/// Runs `command`, which starts all ranks, to its end. SIGINT and SIGTERM are handed on: the ranks write a checkpoint
/// and end; a second one ends everything at once. A rank that is lost is told once, with what it did last, and the
/// others end within seconds. So ends a run with ranks that do not come, or come twice. What the launcher says of
/// itself is shown while no rank is there, and where the run fails before it trains or without a word of its ranks.
/// Errors: the command cannot be started, or ends before all ranks were there.
Expected<RunEnding> supervise(const Command& command, const SupervisorOptions& options, Diagnostics& diags);

} // namespace pdc
