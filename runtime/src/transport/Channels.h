// Channels tell apart everything that goes on between two ranks: control, gathers and spreads of the all-reduces of
// each stage, each pair of replicas of each edge in either direction, for each shared edge each replica of the user in
// either direction, and the norm of the gradients.
#pragma once

#include "pdcrt/Schedule.h"
#include "pdcrt/Stage.h"

namespace pdcrt {

/// The first of two: gathers, spreads.
int allReduceChannel(int stage);

/// `lowReplica` is that of the earlier stage.
int edgeChannel(const Schedule& schedule, int edge, Direction direction, int lowReplica, int highReplica);

/// Versions, or gradients (`parts`), of the parameters that shared edge `shared` is about.
int sharedChannel(const Schedule& schedule, int shared, bool parts, int userReplica);

/// The first of two for each replica of each stage: its part of the gradients' norm, and the norm.
int normChannel(const Schedule& schedule);

} // namespace pdcrt
