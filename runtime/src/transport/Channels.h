// Channels tell apart everything that goes on between two processes: control, gathers and spreads of the all-reduces of
// each stage, each pair of replicas of each edge in either direction, for each shared edge each replica of the user in
// either direction, the norm of the gradients, and what the members of a team do together. Members have the channels of
// their replica: they are processes of their own.
#pragma once

#include "pdcrt/Schedule.h"
#include "pdcrt/Stage.h"

namespace pdcrt {

/// Of the stage with this number.
int replicasOf(const Schedule& schedule, int stage);

/// The first of two: gathers, spreads.
int allReduceChannel(int stage);

/// `lowReplica` is that of the earlier stage.
int edgeChannel(const Schedule& schedule, int edge, Direction direction, int lowReplica, int highReplica);

/// Versions, or gradients (`parts`), of the parameters that shared edge `shared` is about.
int sharedChannel(const Schedule& schedule, int shared, bool parts, int userReplica);

/// The first of two for each member of each replica of each stage: its part of the gradients' norm, and the norm.
int normChannel(const Schedule& schedule);

/// For what ranks ask each other before they train.
int startChannel(const Schedule& schedule);

/// The same as normChannel() among the members of a team alone: the first of two for each.
int teamNormChannel(const Schedule& schedule);

/// The first of those of a team's collectives (TeamWork.h), of which any number follow.
int teamChannel(const Schedule& schedule);

} // namespace pdcrt
