// The executor's runs and actions.
#include "Executor.h"

#include "base/Index.h"
#include "machine/ListCursor.h"
#include "pdcrt/Ranges.h"

#include <algorithm>
#include <cassert>
#include <memory>
#include <string>

namespace pdcrt {

// ---- Runs ----

Status Executor::train(std::int64_t first, std::int64_t minibatches) {
  run_ = {.first = first, .minibatches = minibatches};
  evaluating_ = false;
  if (Status status = refreshTied(); !status) return status;
  for (HostedStage& hosted : hosted_) {
    hosted.versions.restart();
    hosted.tied.restart();
    hosted.gradients.restart();
    hosted.gathered.restart();
    hosted.sweeps.restart();
  }
  trained_ = true;
  if (Status status = follow(order_, /*evaluation=*/false); !status) return status;
  for (ListCursor list(*setup_.schedule, setup_.rank, minibatches); list.peek(); list.pop()) {
    if (Status status = execute(*list.peek()); !status) return status;
    if (!setup_.observer) continue;
    const std::int64_t left = setup_.observer->minibatches(run_.minibatches);
    if (left >= run_.minibatches) continue;
    run_.minibatches = left;
    list.limit(left);
    posting_.transport().gate().limit(left);
    posting_.transport().wake();
  }
  return drain();
}

Status Executor::gatherFromTeam(const HostedStage& hosted, std::span<const std::uint32_t> own,
                                std::span<std::uint32_t> all) {
  hosted.gather->prepare(own);
  posting_.post(*hosted.gather);
  if (Status status = posting_.waitFor(*hosted.gather); !status) return status;
  std::copy(hosted.gather->all().begin(), hosted.gather->all().end(), all.begin());
  return {};
}

Status Executor::evaluate(std::int64_t minibatches, BatchSource& data, const Predicted& predicted) {
  run_ = {.first = 0, .minibatches = minibatches};
  evaluating_ = true;
  evaluationData_ = &data;
  predicted_ = &predicted;
  for (HostedStage& hosted : hosted_) hosted.sweeps.restart();
  if (Status status = refreshTied(); !status) return status;
  if (Status status = follow(evaluationOrder_, /*evaluation=*/true); !status) return status;
  for (ListCursor list(*setup_.schedule, setup_.rank, minibatches, /*evaluation=*/true); list.peek(); list.pop())
    if (Status status = execute(*list.peek()); !status) return status;
  return drain();
}

Status Executor::drain() {
  auto finish = [&](Work& work) { return work.pending() ? posting_.waitFor(work) : Status(); };
  for (HostedStage& hosted : hosted_) {
    for (std::span<TransferGroup> ring : hosted.edges.rings())
      for (TransferGroup& transfers : ring)
        if (Status status = finish(transfers); !status) return status;
    if (Status status = hosted.gradients.forEachWork(finish); !status) return status;
    if (Status status = hosted.gathered.forEachWork(finish); !status) return status;
    if (Status status = hosted.sweeps.forEachWork(finish); !status) return status;
    for (TransferGroup* transfers : hosted.tied.transfers())
      if (Status status = finish(*transfers); !status) return status;
  }
  if (Status status = finish(turn_.giving()); !status) return status;
  if (Status status = device::wait(stream_); !status) return status;
  return losses_.tell(/*all=*/true, setup_.observer);
}

/// Where the transport wants an order, the transfers of this run are started in that of the check.
Status Executor::follow(StartOrder& order, bool evaluation) {
  if (!posting_.transport().ordered()) return {};
  if (!order.covers(run_.minibatches))
    order = evaluation ? StartOrder::ofEvaluation(*setup_.schedule, setup_.rank, run_.minibatches)
                       : StartOrder(*setup_.schedule, setup_.rank, run_.minibatches);
  followed_ = &order;
  opening_.order = &order;
  opening_.minibatches = run_.minibatches;
  posting_.post(opening_);
  return posting_.waitFor(opening_);
}

/// After a drain: every user of tied parameters gets the newest version, from which evaluation and training go on.
/// These transfers have no turns, so all ranks post them in one order.
Status Executor::refreshTied() {
  if (!trained_) return {};
  trained_ = false;
  std::vector<TiedParameters::Refresh> refreshes;
  for (HostedStage& hosted : hosted_) hosted.tied.refresh(hosted.versions, refreshes);
  std::stable_sort(refreshes.begin(), refreshes.end(),
                   [](const TiedParameters::Refresh& a, const TiedParameters::Refresh& b) {
                     return std::pair(a.shared, a.userReplica) < std::pair(b.shared, b.userReplica);
                   });
  for (const TiedParameters::Refresh& refresh : refreshes) posting_.post(*refresh.transfers);
  for (const TiedParameters::Refresh& refresh : refreshes)
    if (Status status = posting_.waitFor(*refresh.transfers); !status) return status;
  return {};
}

HostedStage& Executor::hostedStage(int stage) {
  for (HostedStage& hosted : hosted_)
    if (hosted.host.stage == stage) return hosted;
  assert(false && "the schedule was checked: its actions are of hosted stages");
  return hosted_.front();
}

/// What a program that was compiled with --debug-nan has found.
Status Executor::notFinite(const Action& action, const NotFinite& bad) const {
  return {Exit::lossNotFinite,
          "'" + std::string(bad.what) + "' is the first tensor that is not finite: " + std::to_string(bad.value) +
              " at element " + std::to_string(bad.element) + ", " + std::to_string(bad.count) + " in all, in action '" +
              toString(action) + "' of minibatch " + std::to_string(run_.first + action.index),
          "lower the learning rate, or look for values in the data that are not finite"};
}

Status Executor::execute(const Action& action) {
  if (setup_.observer) setup_.observer->begins(action);
  HostedStage& hosted = hostedStage(action.stage);
  switch (kindRow(action.kind).does) {
  case ActionClass::transfer: return transfer(hosted, action);
  case ActionClass::tied: return exchangeTied(hosted, action);
  case ActionClass::reduction: return reduce(hosted, action);
  case ActionClass::computation: break;
  }

  const double begin = now();
  Status status;
  try {
    status = compute(hosted, action);
  } catch (const PeerGone&) {
    return posting_.failure();
  }
  if (setup_.observer) setup_.observer->acted(action, begin, now());
  if (const std::optional<NotFinite> bad = takeNotFinite()) return notFinite(action, *bad);
  if (!status || !setup_.observer) return status;
  return setup_.observer->computed(action);
}

Status Executor::compute(HostedStage& hosted, const Action& action) {
  switch (action.kind) {
  case ActionKind::forward: return forward(hosted, action);
  case ActionKind::update: return update(hosted, action);
  case ActionKind::evaluate: return evaluateOne(hosted, action);
  case ActionKind::reshard: return hosted.sweeps.giveUp(action);
  default: return backward(hosted, action);
  }
}

Status Executor::reduce(HostedStage& hosted, const Action& action) {
  switch (action.kind) {
  case ActionKind::gradientNorm: return hosted.gradients.norm(action);
  case ActionKind::allGather: return hosted.gathered.act(action, hosted.versions, followed_);
  case ActionKind::unshard:
    return hosted.sweeps.gather(action, hosted.versions.at(hosted.versions.newest()),
                                evaluating_ ? -1 : hosted.versions.newest(), followed_);
  default: return hosted.gradients.allReduce(action, followed_);
  }
}

// ---- Transfers ----

Status Executor::transfer(HostedStage& hosted, const Action& action) {
  TransferGroup& transfers = hosted.edges.transfersOf(action);
  if (action.wait) return posting_.waitFor(action, transfers);
  if (transfers.pending()) return busyBuffer(action);
  hosted.edges.fill(action, followed_, transfers);
  posting_.post(transfers);
  return {};
}

Status Executor::exchangeTied(HostedStage& hosted, const Action& action) {
  TransferGroup* transfers = hosted.tied.transfersOf(action);
  if (!transfers) return {};
  if (action.wait) return posting_.waitFor(action, *transfers);
  if (transfers->pending()) return busyBuffer(action);
  hosted.tied.fill(action, hosted.versions, followed_, *transfers);
  posting_.post(*transfers);
  return {};
}

// ---- Phases ----

Call Executor::callFor(HostedStage& hosted, std::int64_t minibatch) {
  stream_.join(hosted.team.get());
  const std::int64_t local = hosted.routing.local(minibatch);
  return {.kernels = hosted.kernels.get(),
          .weights = nullptr,
          .state = hosted.state,
          .gradients = nullptr,
          .handover = hosted.handovers + index(local % hosted.handoverCount) * arenaBytes(hosted.stage->bytes.handover),
          .scratch = hosted.scratch,
          .frame = {.slot = hosted.slotOf(minibatch).memory,
                    .edges = hosted.edges.buffersOf(minibatch),
                    .shared = hosted.tied.chosen()},
          .draw = {.seed = setup_.training->seed, .minibatch = static_cast<std::uint64_t>(run_.first + minibatch)},
          .stream = &stream_,
          .frozen = hosted.frozen};
}

void Executor::run(const char* name, void (*phase)(const Call&), const HostedStage& hosted, const Call& call) {
  const PhaseRange range(stream_, name, hosted.stage->groups);
  replays_.run(phase, call, hosted.edges.count(), hosted.stage->shared.size());
}

Status Executor::readData(HostedStage& hosted, std::int64_t minibatch, std::byte* slot, BatchSource* data) {
  return data_.read(stream_, *setup_.schedule, run_,
                    {.stage = *hosted.stage,
                     .place = hosted.data,
                     .slot = slot,
                     .minibatch = minibatch,
                     .lossScale = hosted.lossScale.scale,
                     .source = data,
                     .trains = data && data == setup_.data});
}

const std::byte* Executor::onHost(const std::byte* block, std::size_t bytes) {
  if (device::hostSeesBlocks()) return block;
  mirrors_.emplace_back(bytes);
  device::copy(stream_, mirrors_.back().data(), block, bytes);
  static_cast<void>(device::wait(stream_));
  return mirrors_.back().data();
}

/// The weights of a version for a phase; null where not all of them are here.
static const std::byte* weightsOf(const HostedStage& hosted, std::int64_t version) {
  if (hosted.sweeps.isUsed()) return hosted.sweeps.weights(version);
  return hosted.gathered.has(version) ? hosted.versions.at(version) : nullptr;
}

static Status notGathered(const Action& action, std::int64_t version) {
  return {Exit::invalid,
          "action " + toString(action) + " needs version " + std::to_string(version) +
              " of its weights, of which other replicas have parts",
          "await its all-gather earlier in schedule.txt"};
}

Status Executor::forward(HostedStage& hosted, const Action& action) {
  HostedStage::Slot& slot = hosted.slotOf(action.index);
  if (Status status = readData(hosted, action.index, slot.memory, setup_.data); !status) return status;

  slot.version = setup_.schedule->weights == WeightPolicy::latest
                     ? hosted.versions.newest()
                     : setup_.schedule->versionUsed(hosted.host.stage, action.index);
  if (!hosted.versions.alive(slot.version))
    return {Exit::invalid, "action " + toString(action) + " needs version " + std::to_string(slot.version) +
                               " of its weights, the newest is " + std::to_string(hosted.versions.newest()) + " of " +
                               std::to_string(hosted.versions.count()) + " kept"};
  const std::byte* const weights = weightsOf(hosted, slot.version);
  if (!weights) return notGathered(action, slot.version);
  if (Status status = hosted.tied.choose(action.index, action); !status) return status;
  if (hosted.updating && hosted.versions.count() == 1)
    return {Exit::invalid, "action " + toString(action) + " comes before the update that its stage has begun",
            "compile with --updates=late"};
  Call call = callFor(hosted, action.index);
  call.weights = weights;
  if (Status status = turn_.take(followed_, action); !status) return status;
  run("forward", hosted.stage->forward, hosted, call);
  turn_.give();

  for (const OutputRow& row : hosted.stage->outputs) {
    if (row.kind != OutputKind::loss && row.kind != OutputKind::term) continue;
    if (Status status =
            losses_.begin(stream_, hosted.host.stage, row, run_.first + action.index, slot.memory, setup_.observer);
        !status)
      return status;
  }
  return losses_.tell(/*all=*/false, setup_.observer);
}

Status Executor::backward(HostedStage& hosted, const Action& action) {
  const bool latest = setup_.schedule->weights == WeightPolicy::latest;
  const std::int64_t version = latest ? hosted.versions.newest() : hosted.slotOf(action.index).version;
  if (!hosted.versions.alive(version))
    return {Exit::invalid, "action " + toString(action) + " needs version " + std::to_string(version) +
                               " of its weights, which has been overwritten"};
  const std::byte* const weights = weightsOf(hosted, version);
  if (!weights) return notGathered(action, version);

  const std::int64_t update = action.index / setup_.schedule->minibatchesOfUpdate(hosted.host.stage) + 1;
  if (Status status = hosted.gradients.claim(action, update); !status) return status;
  if (hosted.optimizer->hasEarly() && (update != hosted.versions.newest() + 1 || hosted.updating))
    return {Exit::invalid,
            "action " + toString(action) + " updates some parameters, which must follow version " +
                std::to_string(update - 1),
            "compile with --updates=late"};
  if (Status status = hosted.tied.choose(action.index, action); !status) return status;
  Call call = callFor(hosted, action.index);
  call.weights = weights;
  if (Status status = turn_.take(followed_, action); !status) return status;
  if (action.kind != ActionKind::backwardWeight)
    if (Status status = runHalf(hosted, action, update, call, /*withInput=*/true); !status) return status;
  if (action.kind != ActionKind::backwardInput)
    if (Status status = runHalf(hosted, action, update, call, /*withInput=*/false); !status) return status;
  turn_.give();
  return {};
}

Status Executor::runHalf(HostedStage& hosted, const Action& action, std::int64_t update, Call& call, bool withInput) {
  GradientFlow::Half half(hosted.gradients, update, withInput);
  call.gradients = half.memory();
  if (!withInput)
    run("backward_weight", hosted.stage->backwardWeight, hosted, call);
  else if (hosted.optimizer->hasEarly())
    backwardWithUpdates(hosted, call, update);
  else
    run("backward_input", hosted.stage->backwardInput, hosted, call);
  half.finish();
  return hosted.tied.addToPart(stream_, action.index, call.gradients, withInput, action);
}

Status Executor::evaluateOne(HostedStage& hosted, const Action& action) {
  hosted.tied.chooseFirst();
  Call call = callFor(hosted, action.index);
  call.weights = hosted.sweeps.isUsed() ? hosted.sweeps.weights(-1) : hosted.versions.at(hosted.versions.newest());
  if (!call.weights) return notGathered(action, hosted.versions.newest());
  if (Status status = readData(hosted, action.index, call.frame.slot, evaluationData_); !status) return status;
  if (Status status = turn_.take(followed_, action); !status) return status;
  run("evaluate", hosted.stage->evaluate, hosted, call);
  turn_.give();
  return tellPredictions(hosted, action, call.frame.slot);
}

Status Executor::tellPredictions(const HostedStage& hosted, const Action& action, const std::byte* slot) {
  const Stage& stage = *hosted.stage;
  if (device::hostSeesBlocks()) return (*predicted_)(hosted, action.index, slot);
  // A slot may have gigabytes. Only the rows that are read are copied, so only their pages become memory.
  const std::unique_ptr<std::byte[]> mirror(new std::byte[stage.bytes.slot]);
  const auto take = [&](const auto& row) {
    device::copy(stream_, mirror.get() + row.offset, slot + row.offset,
                 index(row.shape.elements()) * bytesOf(row.element));
  };
  for (const OutputRow& row : stage.outputs)
    if (row.kind == OutputKind::prediction || row.kind == OutputKind::load) take(row);
  for (const DataRow& row : stage.data)
    if (row.label) take(row);
  if (Status status = device::wait(stream_); !status) return status;
  return (*predicted_)(hosted, action.index, mirror.get());
}

} // namespace pdcrt
