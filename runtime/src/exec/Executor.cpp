// The executor's actions. Setting up is in ExecutorSetup.cpp, updates are in ExecutorUpdate.cpp.
#include "Executor.h"

#include "machine/ListCursor.h"
#include "pdcrt/Ranges.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>
#include <memory>

namespace pdcrt {
namespace {

constexpr std::size_t index(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

double scalar(Element element, const std::byte* at) {
  return element == Element::f64 ? *reinterpret_cast<const double*>(at) : *reinterpret_cast<const float*>(at);
}

std::size_t bytesOf(const DataRow& row) {
  return index(row.shape.elements()) * bytesOf(row.element);
}

} // namespace

// ---- Runs ----

Status Executor::train(std::int64_t first, std::int64_t minibatches) {
  first_ = first;
  minibatches_ = minibatches;
  if (Status status = refreshShared(); !status) return status;
  for (HostedStage& hosted : hosted_) {
    hosted.versions.restart();
    hosted.tied.restart();
    hosted.reduced = 0;
  }
  trained_ = true;
  if (isOrdered()) {
    if (!order_.covers(minibatches)) order_ = StartOrder(*setup_.schedule, setup_.rank, minibatches);
    if (Status status = follow(order_); !status) return status;
  }
  for (ListCursor list(*setup_.schedule, setup_.rank, minibatches); list.peek(); list.pop()) {
    if (Status status = execute(*list.peek()); !status) return status;
    if (setup_.observer) {
      const std::int64_t left = setup_.observer->minibatches(minibatches_);
      if (left >= minibatches_) continue;
      minibatches_ = left;
      list.limit(minibatches_);
      setup_.communicator->transport().gate().limit(minibatches_);
      setup_.communicator->transport().wake();
    }
  }
  return drain();
}

Status Executor::evaluate(std::int64_t minibatches, BatchSource& data, const Predicted& predicted) {
  first_ = 0;
  minibatches_ = minibatches;
  evaluationData_ = &data;
  predicted_ = &predicted;
  if (Status status = refreshShared(); !status) return status;
  if (isOrdered()) {
    if (!evaluationOrder_.covers(minibatches))
      evaluationOrder_ = StartOrder::ofEvaluation(*setup_.schedule, setup_.rank, minibatches);
    if (Status status = follow(evaluationOrder_); !status) return status;
  }
  for (ListCursor list(*setup_.schedule, setup_.rank, minibatches, /*evaluation=*/true); list.peek(); list.pop())
    if (Status status = execute(*list.peek()); !status) return status;
  return drain();
}

Status Executor::drain() {
  for (HostedStage& hosted : hosted_) {
    for (HostedStage::Edge& edge : hosted.edges)
      for (TransferGroup& transfers : edge.transfers)
        if (transfers.pending())
          if (Status status = waitFor({}, transfers); !status) return status;
    for (HostedStage::GradientSet& set : hosted.gradients)
      for (const std::unique_ptr<AllReduce>& reduction : set.allReduces)
        if (reduction->pending())
          if (Status status = waitFor({}, *reduction); !status) return status;
    if (hosted.norm && hosted.norm->pending())
      if (Status status = waitFor({}, *hosted.norm); !status) return status;
    for (TransferGroup* transfers : hosted.tied.transfers())
      if (transfers->pending())
        if (Status status = waitFor({}, *transfers); !status) return status;
  }
  if (Status status = device::wait(stream_); !status) return status;
  return tellLosses(/*all=*/true);
}

/// The transfers of this run are started in this order.
Status Executor::follow(const StartOrder& order) {
  followed_ = &order;
  opening_.order = &order;
  opening_.minibatches = minibatches_;
  post(opening_);
  return waitFor({}, opening_);
}

/// After a drain: every user of shared parameters gets the newest version, from which evaluation and training go on.
/// These transfers have no turns, so all ranks post them in one order.
Status Executor::refreshShared() {
  if (!trained_) return {};
  trained_ = false;
  std::vector<TiedParameters::Refresh> refreshes;
  for (HostedStage& hosted : hosted_) hosted.tied.refresh(hosted.versions, refreshes);
  std::stable_sort(refreshes.begin(), refreshes.end(),
                   [](const TiedParameters::Refresh& a, const TiedParameters::Refresh& b) {
                     return std::pair(a.shared, a.userReplica) < std::pair(b.shared, b.userReplica);
                   });
  for (const TiedParameters::Refresh& refresh : refreshes) post(*refresh.transfers);
  for (const TiedParameters::Refresh& refresh : refreshes)
    if (Status status = waitFor({}, *refresh.transfers); !status) return status;
  return {};
}

/// Hands work to the communication thread: it may touch memory when the stream has come here.
void Executor::post(Work& work) {
  work.ready.record(stream_);
  setup_.communicator->post(work);
}

Status Executor::waitFor(const Action& action, const Work& work) {
  const double begin = now();
  if (!await(work)) return setup_.communicator->transport().failure();
  tellWait(action, begin, work.postedAt, work.completedAt);
  return {};
}

/// False: another rank has given up.
bool Executor::await(const Work& work) {
  if (!setup_.communicator->wait(work)) return false;
  work.precede(stream_);
  return true;
}

void Executor::tellWait(const Action& action, double begin, double posted, double completed) {
  if (!setup_.observer || !action.wait) return;
  setup_.observer->acted(action, begin, now());
  setup_.observer->transferred(action, posted, completed);
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
              toString(action) + "' of minibatch " + std::to_string(first_ + action.index),
          "lower the learning rate, or look for values in the data that are not finite"};
}

Status Executor::execute(const Action& action) {
  if (setup_.observer) setup_.observer->begins(action);
  HostedStage& hosted = hostedStage(action.stage);
  if (isTransfer(action.kind)) return transfer(hosted, action);
  if (isTied(action.kind)) return share(hosted, action);
  if (action.kind == ActionKind::allReduce) return allReduce(hosted, action);
  if (action.kind == ActionKind::gradientNorm) return gradientNorm(hosted, action);

  const double begin = now();
  Status status;
  switch (action.kind) {
  case ActionKind::forward: status = forward(hosted, action); break;
  case ActionKind::backward:
  case ActionKind::backwardInput:
  case ActionKind::backwardWeight: status = backward(hosted, action); break;
  case ActionKind::update: status = update(hosted, action); break;
  case ActionKind::evaluate: status = evaluateOne(hosted, action); break;
  default: break;
  }
  if (setup_.observer) setup_.observer->acted(action, begin, now());
  if (const std::optional<NotFinite> bad = takeNotFinite()) return notFinite(action, *bad);
  return status;
}

// ---- Transfers ----

Status Executor::transfer(HostedStage& hosted, const Action& action) {
  const Direction direction = isForwardTransfer(action.kind) ? Direction::forward : Direction::backward;
  auto found = std::find_if(hosted.edges.begin(), hosted.edges.end(), [&](const HostedStage::Edge& edge) {
    return edge.direction == direction && edge.buffers.peer == action.peer;
  });
  assert(found != hosted.edges.end());
  HostedStage::Edge& edge = *found;
  const std::int64_t local = hosted.routing.local(action.index);
  TransferGroup& transfers = edge.transfers[index(local) % edge.transfers.size()];
  if (action.wait) return waitFor(action, transfers);
  if (transfers.pending())
    return {Exit::invalid, "action " + toString(action) + " needs a buffer whose last transfer is not complete",
            "await it earlier in schedule.txt"};

  const bool outgoing = isSend(action.kind);
  const std::int64_t turn = followed_ ? followed_->turn(action) : -1;
  const std::size_t peer = index(edge.peerRouting.replica(action.index));
  std::byte* memory = edge.memory ? edge.memory + index(local % edge.buffers.copies) * edge.stride
                                  : hosted.slots[index(local) % hosted.slots.size()].memory;
  for (std::size_t i = 0; i < edge.ports.size(); ++i) {
    Transfer& part = transfers.parts[i];
    part.outgoing = outgoing;
    part.peer = edge.ranks[peer];
    part.channel = edge.channels[peer];
    part.data = memory + edge.ports[i]->offset;
    part.bytes = edge.ports[i]->bytes;
    part.traffic = direction == Direction::forward ? Traffic::forward : Traffic::backward;
    part.inBlocks = true;
    part.turn = turn;
  }
  post(transfers);
  return {};
}

Status Executor::share(HostedStage& hosted, const Action& action) {
  TransferGroup* transfers = hosted.tied.transfersOf(action);
  if (!transfers) return {};
  if (action.wait) return waitFor(action, *transfers);
  if (transfers->pending())
    return {Exit::invalid, "action " + toString(action) + " needs a buffer whose last transfer is not complete",
            "await it earlier in schedule.txt"};
  hosted.tied.fill(action, hosted.versions, followed_, *transfers);
  post(*transfers);
  return {};
}

// ---- Phases ----

Call Executor::callFor(HostedStage& hosted, std::int64_t minibatch) {
  const std::int64_t local = hosted.routing.local(minibatch);
  HostedStage::Slot& slot = hosted.slots[index(local) % hosted.slots.size()];
  for (std::size_t i = 0; i < hosted.edges.size(); ++i) {
    const HostedStage::Edge& edge = hosted.edges[i];
    hosted.frameEdges[i] = edge.memory ? edge.memory + index(local % edge.buffers.copies) * edge.stride : nullptr;
  }
  return {.kernels = hosted.kernels.get(),
          .weights = nullptr,
          .state = hosted.state,
          .gradients = nullptr,
          .handover = hosted.handovers + index(local % hosted.handoverCount) * arenaBytes(hosted.stage->bytes.handover),
          .scratch = hosted.scratch,
          .frame = {.slot = slot.memory, .edges = hosted.frameEdges.data(), .shared = hosted.tied.chosen()},
          .draw = {.seed = setup_.training->seed, .minibatch = static_cast<std::uint64_t>(first_ + minibatch)},
          .stream = &stream_};
}

void Executor::run(const char* name, void (*phase)(const Call&), const HostedStage& hosted, const Call& call) {
  const PhaseRange range(stream_, name, hosted.stage->groups);
  replays_.run(phase, call, hosted.edges.size(), hosted.stage->shared.size());
}

Status Executor::readData(HostedStage& hosted, std::int64_t minibatch, std::byte* slot, BatchSource* data) {
  const bool staged = data && hosted.dataStaging.memory;
  if (staged)
    if (Status status = stageData(hosted, minibatch, slot, *data); !status) return status;
  for (const DataRow& row : hosted.stage->data) {
    if (row.ofDataSet() && (!data || staged)) continue;
    const std::size_t bytes = bytesOf(row);
    std::byte* place = device::hostSeesBlocks() ? slot + row.offset : staging_.place(bytes);
    if (!place) return {Exit::noDevice, "the host has no " + std::to_string(bytes) + " bytes for '" + row.name + "'"};
    if (row.lossScale) {
      const auto scale = static_cast<float>(hosted.lossScale.scale);
      std::memcpy(place, &scale, sizeof scale);
    } else if (row.share) {
      float share = 1; // while nothing is trained it is of no account
      if (data && data == setup_.data)
        if (Status status = lossShares_.of(row, hosted.stage->data, *setup_.schedule, minibatch, minibatches_, first_,
                                           *data, share);
            !status)
          return status;
      std::memcpy(place, &share, sizeof share);
    } else if (Status status = data->read(row, first_ + minibatch, place); !status) {
      return status;
    }
    if (place != slot + row.offset) staging_.send(stream_, slot + row.offset, bytes);
  }
  return {};
}

/// The minibatch before may read the slot until its backward is over, so data waits beside it: it comes from the host
/// in a stream of its own, while the device computes, and the compute stream only copies it on the device.
Status Executor::stageData(HostedStage& hosted, std::int64_t minibatch, std::byte* slot, BatchSource& data) {
  HostedStage::DataStaging& staging = hosted.dataStaging;
  const std::size_t bytes = hosted.stage->bytes.dataStaging;
  std::byte* place = dataStaging_.place(bytes);
  if (!place) return {Exit::noDevice, "the host has no " + std::to_string(bytes) + " bytes for a minibatch's data"};
  auto eachRow = [&](auto act) -> Status {
    std::size_t offset = 0;
    for (const DataRow& row : hosted.stage->data) {
      if (!row.ofDataSet()) continue;
      if (Status status = act(row, offset); !status) return status;
      offset += arenaBytes(bytesOf(row));
    }
    return {};
  };
  Status status = eachRow(
      [&](const DataRow& row, std::size_t offset) { return data.read(row, first_ + minibatch, place + offset); });
  if (!status) return status;
  staging.taken.precede(dataStream_);
  dataStaging_.send(dataStream_, staging.memory, bytes).precede(stream_);
  status = eachRow([&](const DataRow& row, std::size_t offset) -> Status {
    device::copy(stream_, slot + row.offset, staging.memory + offset, bytesOf(row));
    return {};
  });
  staging.taken.record(stream_);
  return status;
}

std::byte* Executor::Staging::place(std::size_t bytes) {
  Place& place = places_[++used_ % places_.size()];
  place.sent.wait();
  if (place.memory.size() < bytes) place.memory = HostMemory(bytes);
  return place.memory.data();
}

const Event& Executor::Staging::send(Stream& q, std::byte* to, std::size_t bytes) {
  Place& place = places_[used_ % places_.size()];
  device::copy(q, to, place.memory.data(), bytes);
  place.sent.record(q);
  return place.sent;
}

const std::byte* Executor::onHost(const std::byte* block, std::size_t bytes) {
  if (device::hostSeesBlocks()) return block;
  mirrors_.emplace_back(bytes);
  device::copy(stream_, mirrors_.back().data(), block, bytes);
  static_cast<void>(device::wait(stream_));
  return mirrors_.back().data();
}

Status Executor::forward(HostedStage& hosted, const Action& action) {
  const std::int64_t local = hosted.routing.local(action.index);
  HostedStage::Slot& slot = hosted.slots[index(local) % hosted.slots.size()];
  if (Status status = readData(hosted, action.index, slot.memory, setup_.data); !status) return status;

  slot.version = setup_.schedule->weights == WeightPolicy::latest
                     ? hosted.versions.newest()
                     : setup_.schedule->versionUsed(hosted.host.stage, action.index);
  if (!hosted.versions.alive(slot.version))
    return {Exit::invalid, "action " + toString(action) + " needs version " + std::to_string(slot.version) +
                               " of its weights, the newest is " + std::to_string(hosted.versions.newest()) + " of " +
                               std::to_string(hosted.versions.count()) + " kept"};
  if (Status status = hosted.tied.choose(action.index, action); !status) return status;
  if (hosted.updating && hosted.versions.count() == 1)
    return {Exit::invalid, "action " + toString(action) + " comes before the update that its stage has begun",
            "compile with --updates=late"};
  Call call = callFor(hosted, action.index);
  call.weights = hosted.versions.at(slot.version);
  run("forward", hosted.stage->forward, hosted, call);

  for (const OutputRow& row : hosted.stage->outputs) {
    if (row.kind != OutputKind::loss) continue;
    if (lossesBegun_ - lossesTold_ == losses_.size())
      if (Status status = tellLosses(/*all=*/true); !status) return status;
    const std::size_t place = lossesBegun_++ % losses_.size();
    PendingLoss& loss = losses_[place];
    loss.hosted = &hosted;
    loss.row = &row;
    loss.minibatch = first_ + action.index;
    device::copy(stream_, lossMemory_.data() + place * sizeof(double), slot.memory + row.offset, bytesOf(row.element));
    loss.copied.record(stream_);
  }
  return tellLosses(/*all=*/false);
}

/// Checks and tells the losses that have come; `all`: waits for the others.
Status Executor::tellLosses(bool all) {
  for (; lossesTold_ < lossesBegun_; ++lossesTold_) {
    const std::size_t place = lossesTold_ % losses_.size();
    const PendingLoss& pending = losses_[place];
    if (all)
      pending.copied.wait();
    else if (!pending.copied.passed())
      return {};
    const double loss = scalar(pending.row->element, lossMemory_.data() + place * sizeof(double));
    if (!std::isfinite(loss))
      return {Exit::lossNotFinite,
              "the loss of minibatch " + std::to_string(pending.minibatch) + " is " + std::to_string(loss),
              "lower the learning rate, or look for values in the data that are not finite"};
    if (setup_.observer) setup_.observer->loss(pending.hosted->host.stage, pending.minibatch, loss);
  }
  return {};
}

HostedStage::GradientSet& Executor::gradientsOf(HostedStage& hosted, std::int64_t version) {
  return hosted.gradients[index(version - 1) % hosted.gradients.size()];
}

Status Executor::backward(HostedStage& hosted, const Action& action) {
  const std::int64_t local = hosted.routing.local(action.index);
  const HostedStage::Slot& slot = hosted.slots[index(local) % hosted.slots.size()];
  const bool latest = setup_.schedule->weights == WeightPolicy::latest;
  const std::int64_t version = latest ? hosted.versions.newest() : slot.version;
  if (!hosted.versions.alive(version))
    return {Exit::invalid, "action " + toString(action) + " needs version " + std::to_string(version) +
                               " of its weights, which has been overwritten"};

  const std::int64_t update = action.index / setup_.schedule->minibatchesOfUpdate(hosted.host.stage) + 1;
  HostedStage::GradientSet& set = gradientsOf(hosted, update);
  if ((set.inputs > 0 || set.minibatches > 0) && set.update != update)
    return {Exit::invalid, "action " + toString(action) + " overwrites the gradients of update " +
                               std::to_string(set.update) + ", which is not made"};
  set.update = update;
  if (hosted.optimizer->hasEarly() && (update != hosted.versions.newest() + 1 || hosted.updating))
    return {Exit::invalid,
            "action " + toString(action) + " updates some parameters, which must follow version " +
                std::to_string(update - 1),
            "compile with --updates=late"};
  if (Status status = hosted.tied.choose(action.index, action); !status) return status;
  Call call = callFor(hosted, action.index);
  call.weights = hosted.versions.at(version);
  if (action.kind != ActionKind::backwardWeight) {
    call.gradients = set.inputs == 0 ? set.memory : hosted.spareGradients;
    runHalf(hosted, set, call, /*withInput=*/true);
    if (Status status = hosted.tied.addToPart(stream_, action.index, call.gradients, /*withInput=*/true, action);
        !status)
      return status;
  }
  if (action.kind != ActionKind::backwardInput) {
    call.gradients = set.minibatches == 0 ? set.memory : hosted.spareGradients;
    runHalf(hosted, set, call, /*withInput=*/false);
    if (Status status = hosted.tied.addToPart(stream_, action.index, call.gradients, /*withInput=*/false, action);
        !status)
      return status;
    set.usesAdded = false;
  }
  return {};
}

Status Executor::evaluateOne(HostedStage& hosted, const Action& action) {
  hosted.tied.chooseFirst();
  Call call = callFor(hosted, action.index);
  call.weights = hosted.versions.at(hosted.versions.newest());
  if (Status status = readData(hosted, action.index, call.frame.slot, evaluationData_); !status) return status;
  run("evaluate", hosted.stage->evaluate, hosted, call);
  return tellPredictions(hosted, action, call.frame.slot);
}

Status Executor::tellPredictions(const HostedStage& hosted, const Action& action, const std::byte* slot) {
  const Stage& stage = *hosted.stage;
  if (device::hostSeesBlocks()) return (*predicted_)(hosted, action.index, slot);
  // Of a slot's gigabytes only what is read of it is copied, and so much of this is ever memory.
  const std::unique_ptr<std::byte[]> mirror(new std::byte[stage.bytes.slot]);
  const auto take = [&](const auto& row) {
    device::copy(stream_, mirror.get() + row.offset, slot + row.offset,
                 index(row.shape.elements()) * bytesOf(row.element));
  };
  for (const OutputRow& row : stage.outputs)
    if (row.kind == OutputKind::prediction) take(row);
  for (const DataRow& row : stage.data)
    if (row.label) take(row);
  if (Status status = device::wait(stream_); !status) return status;
  return (*predicted_)(hosted, action.index, mirror.get());
}

} // namespace pdcrt
