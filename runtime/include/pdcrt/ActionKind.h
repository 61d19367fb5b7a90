// The kinds of actions of a schedule, and what follows from a kind: one row each.
// Standard library only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>

namespace pdcrt {

enum class ActionKind : std::uint8_t {
  forward,
  backward,
  backwardInput,
  backwardWeight,
  update,
  evaluate,
  sendForward,
  receiveForward,
  sendBackward,
  receiveBackward,
  allReduce,
  sendVersion,
  receiveVersion,
  sendPart,
  receivePart,
  gradientNorm,
  reduceScatter,
  allGather,
  unshard,
  reshard
};

/// What an action does.
enum class ActionClass : std::uint8_t {
  computation, ///< of this rank alone
  transfer,    ///< a send or a receive of a minibatch's values or gradients, between two stages
  tied,        ///< a send or a receive of shared parameters, or of their gradients, between two stages
  reduction    ///< all replicas of a stage, or of all stages, do it together
};

/// What the index of an action counts.
enum class Counted : std::uint8_t {
  minibatches, ///< of the whole pipeline, from 0
  versions,    ///< from 1: of the stage itself, or of the owner of shared parameters
  sweeps       ///< from 1: ScheduleStage::sweeps of them are of one update of the stage
};

/// Where an action takes place: a rank does the actions of one lane in order, one at a time. A transfer lane belongs to
/// an edge, and has two ends.
enum class ActionLane : std::uint8_t {
  compute,   ///< the list itself
  values,    ///< of minibatches, to later stages
  gradients, ///< of minibatches, to earlier stages
  versions,  ///< of shared parameters, from their owner
  parts,     ///< gradients of shared parameters, to their owner
  allReduce, ///< by stage, as those below
  reduceScatter,
  allGather,
  unshard,
  norm ///< of all stages; by stage, where each updates by itself
};

struct ActionKindRow {
  ActionKind kind;
  std::string_view letters; ///< in text: "1SF3>2" is a sendForward
  char arrow;               ///< before the peer: '>' for a send, '<' for a receive; 0 without a peer
  Counted index;
  ActionClass does;
  ActionLane lane;
};

/// In the order of ActionKind.
inline constexpr ActionKindRow actionKinds[] = {
    {ActionKind::forward, "F", 0, Counted::minibatches, ActionClass::computation, ActionLane::compute},
    {ActionKind::backward, "B", 0, Counted::minibatches, ActionClass::computation, ActionLane::compute},
    {ActionKind::backwardInput, "I", 0, Counted::minibatches, ActionClass::computation, ActionLane::compute},
    {ActionKind::backwardWeight, "W", 0, Counted::minibatches, ActionClass::computation, ActionLane::compute},
    {ActionKind::update, "U", 0, Counted::versions, ActionClass::computation, ActionLane::compute},
    {ActionKind::evaluate, "E", 0, Counted::minibatches, ActionClass::computation, ActionLane::compute},
    {ActionKind::sendForward, "SF", '>', Counted::minibatches, ActionClass::transfer, ActionLane::values},
    {ActionKind::receiveForward, "RF", '<', Counted::minibatches, ActionClass::transfer, ActionLane::values},
    {ActionKind::sendBackward, "SB", '>', Counted::minibatches, ActionClass::transfer, ActionLane::gradients},
    {ActionKind::receiveBackward, "RB", '<', Counted::minibatches, ActionClass::transfer, ActionLane::gradients},
    {ActionKind::allReduce, "AR", 0, Counted::versions, ActionClass::reduction, ActionLane::allReduce},
    {ActionKind::sendVersion, "SV", '>', Counted::versions, ActionClass::tied, ActionLane::versions},
    {ActionKind::receiveVersion, "RV", '<', Counted::versions, ActionClass::tied, ActionLane::versions},
    {ActionKind::sendPart, "SG", '>', Counted::versions, ActionClass::tied, ActionLane::parts},
    {ActionKind::receivePart, "RG", '<', Counted::versions, ActionClass::tied, ActionLane::parts},
    {ActionKind::gradientNorm, "GN", 0, Counted::versions, ActionClass::reduction, ActionLane::norm},
    {ActionKind::reduceScatter, "RS", 0, Counted::versions, ActionClass::reduction, ActionLane::reduceScatter},
    {ActionKind::allGather, "AG", 0, Counted::versions, ActionClass::reduction, ActionLane::allGather},
    {ActionKind::unshard, "UN", 0, Counted::sweeps, ActionClass::reduction, ActionLane::unshard},
    {ActionKind::reshard, "RE", 0, Counted::sweeps, ActionClass::computation, ActionLane::compute},
};

constexpr const ActionKindRow& kindRow(ActionKind kind) {
  return actionKinds[static_cast<std::size_t>(kind)];
}

/// Whether `kind` is a send or a receive of a minibatch's values or gradients.
constexpr bool isTransfer(ActionKind kind) {
  return kindRow(kind).does == ActionClass::transfer;
}

/// Whether `kind` is a send or a receive of shared parameters or of their gradients.
constexpr bool isTied(ActionKind kind) {
  return kindRow(kind).does == ActionClass::tied;
}

/// Whether the index of such an action counts with the updates of a stage: of its own, or of the owner of shared
/// parameters. Schedule::versionOf says with which one.
constexpr bool isVersioned(ActionKind kind) {
  return kindRow(kind).index != Counted::minibatches;
}

/// Whether `kind` is a send or a receive of values (not of gradients).
constexpr bool isForwardTransfer(ActionKind kind) {
  return kindRow(kind).lane == ActionLane::values;
}

/// Whether `kind` is something that all replicas, of a stage or of all stages, do together. (An all-gather counts, too:
/// it is one half of an all-reduce.)
constexpr bool isReduction(ActionKind kind) {
  return kindRow(kind).does == ActionClass::reduction;
}

/// Whether `kind` is a computation of this rank: neither a transfer of any kind nor an all-reduce. Giving up gathered
/// weights is one that takes no time.
constexpr bool isComputation(ActionKind kind) {
  return kindRow(kind).does == ActionClass::computation;
}

/// Whether `kind` sends something to another stage, of a minibatch or of shared parameters.
constexpr bool isSend(ActionKind kind) {
  return kindRow(kind).arrow == '>';
}

/// The receive of a send, the send of a receive; `kind` itself where it has no other end.
constexpr ActionKind otherEnd(ActionKind kind) {
  for (const ActionKindRow& row : actionKinds)
    if (row.kind != kind && row.arrow != 0 && row.lane == kindRow(kind).lane) return row.kind;
  return kind;
}

/// The send of a transfer lane.
constexpr ActionKind sendOf(ActionLane lane) {
  for (const ActionKindRow& row : actionKinds)
    if (row.lane == lane && row.arrow == '>') return row.kind;
  return ActionKind::forward;
}

/// Whether the rows are in the order of the kinds.
constexpr bool areActionKindsInOrder() {
  for (std::size_t i = 0; i < std::size(actionKinds); ++i)
    if (static_cast<std::size_t>(actionKinds[i].kind) != i) return false;
  return true;
}
static_assert(areActionKindsInOrder());

} // namespace pdcrt
