// Sets up an executor: arena, kernels, buffers of every edge, channels.
#include "Executor.h"

#include "base/Index.h"
#include "base/Invalid.h"
#include "collectives/TeamWork.h"
#include "files/WeightFile.h"
#include "pdcrt/ExchangeProblem.h"
#include "pdcrt/FilterBlocks.h"
#include "transport/Channels.h"

#include <algorithm>
#include <cstring>
#include <exception>

namespace pdcrt {
namespace {

std::string name(const Stage& stage) {
  return "stage " + std::to_string(stage.index);
}

/// What the executor can run: trained parameters in f32, and edges that the schedule has too.
Status checkStage(const Stage& stage, const Schedule& schedule) {
  if (stage.count != static_cast<int>(schedule.stages.size()))
    return invalid(name(stage) + " was generated for " + std::to_string(stage.count) + " stages, schedule.txt has " +
                       std::to_string(schedule.stages.size()),
                   "run pdc again, or build the programs again");
  if (const int team = schedule.stages[index(stage.index)].team; stage.members != team)
    return invalid(name(stage) + " was generated for teams of " + std::to_string(stage.members) +
                       ", schedule.txt has teams of " + std::to_string(team),
                   "run pdc again, or build the programs again");
  for (const ParameterRow& row : stage.parameters)
    if (row.trained && row.element != Element::f32)
      return invalid(std::string("parameter '") + row.name + "' is not f32, which the optimizers need");
  for (const ParameterRow& row : stage.parameters)
    if (row.inBlocks && (row.element != Element::f32 || !fitsFilterBlocks(row.shape)))
      return invalid(std::string("parameter '") + row.name +
                         "' cannot lie in blocks, which are of f32 and have 16 "
                         "outputs and 16 inputs",
                     "run pdc again");
  std::size_t staged = 0;
  for (const DataRow& row : stage.data)
    if (row.ofDataSet()) staged += arenaBytes(index(row.shape.elements()) * bytesOf(row.element));
  if (stage.bytes.dataStaging > 0 && stage.bytes.dataStaging != staged)
    return invalid(name(stage) + " has " + std::to_string(stage.bytes.dataStaging) +
                       " bytes beside its slots for data of " + std::to_string(staged) + " bytes",
                   "run pdc again");
  const std::string problem = exchangeProblem(schedule, stage.index, stage.edges, stage.shared);
  if (!problem.empty()) return invalid(problem, "run pdc again");
  return {};
}

/// A stage that updates parameters before the backward is over needs an update after each minibatch, of which it knows
/// beforehand that nothing is wrong with the gradients.
Status checkEarlyUpdates(const Stage& stage, const Schedule& schedule, const Training& training) {
  const bool early =
      std::any_of(stage.parameters.begin(), stage.parameters.end(), [](const ParameterRow& row) { return row.early; });
  if (!early) return {};
  const std::string help = "compile again with these settings, or with --updates=late";
  for (const ParameterRow& row : stage.parameters)
    if (row.early && !updateOf(training, row).mayBeEarly())
      return invalid(name(stage) + " was generated to update '" + row.name +
                         "' before its whole gradient is there, which the optimizer of training.json needs",
                     help);
  if (training.checksGradients())
    return invalid(name(stage) + " was generated to update parameters before all gradients are there, training.json "
                                 "asks to look at all of them first",
                   help);
  if (const std::int64_t each = schedule.minibatchesOfUpdate(stage.index); each != 1)
    return invalid(name(stage) + " was generated to update parameters in every backward, schedule.txt has " +
                       std::to_string(each) + " minibatches per update",
                   help);
  return {};
}

/// Padding of parts is zero, and its gradient is. Every update keeps it so, but one that divides 0 by 0.
Status checkPadding(const Stage& stage, const Training& training) {
  const bool divides = training.optimizer == OptimizerKind::adam || training.optimizer == OptimizerKind::adamw;
  if (!divides || static_cast<float>(training.epsilon) > 0) return {};
  for (const ParameterRow& row : stage.parameters)
    if (row.trained && row.part.isPadded())
      return invalid(std::string("parameter '") + row.name + "', whose axis of " + std::to_string(row.part.wholeSize) +
                         " is filled up for " + std::to_string(row.part.of) +
                         " members, would become nan with the \"eps\" of training.json, which is 0 in f32",
                     "write \"eps\": 1e-08, or compile without --split");
  return {};
}

} // namespace

Executor::Executor(const ExecutorSetup& setup)
    : setup_(setup), places_(*setup.schedule), posting_(*setup.communicator, setup.observer) {
  posting_.use(stream_);
}

Executor::~Executor() {
  device::close(stream_);
  device::release(memory_, arena_.bytes);
}

/// Whether the stage has no loss, or an input for the scale with which it is seeded.
static bool seedsWithScale(const Stage& stage) {
  return std::none_of(stage.outputs.begin(), stage.outputs.end(),
                      [](const OutputRow& row) { return row.kind == OutputKind::loss; }) ||
         std::any_of(stage.data.begin(), stage.data.end(), [](const DataRow& row) { return row.lossScale; });
}

/// Whether every stage computes every minibatch with the weights that its update changes.
static bool flushes(const Schedule& schedule) {
  for (int stage = 0; stage < static_cast<int>(schedule.stages.size()); ++stage) {
    const std::int64_t each = schedule.minibatchesOfUpdate(stage);
    for (std::int64_t b = 0; b < 8 * each; ++b)
      if (schedule.versionUsed(stage, b) != b / each) return false;
  }
  return true;
}

/// What the training needs of the schedule: training.json and schedule.txt can be edited.
Status Executor::checkTraining() const {
  const Schedule& schedule = *setup_.schedule;
  const Training& training = *setup_.training;
  for (int stage = 0; stage < static_cast<int>(schedule.stages.size()); ++stage)
    if (training.checksGradients() && schedule.stages[index(stage)].isSharded() && !schedule.hasNorm(stage))
      return invalid("the replicas of stage " + std::to_string(stage) +
                         " have sums of a part of its gradients each, and must tell each other whether all are finite "
                         "and how large they are; schedule.txt has no line 'gradient-norm'",
                     "compile again with these settings");
  const bool alone = schedule.stages.size() == 1 || schedule.gradientNorm;
  if (training.clipNorm && training.clipScope == ClipScope::global && !alone)
    return invalid("clip_norm over all stages needs a schedule that adds up their norms, schedule.txt has no line "
                   "'gradient-norm'",
                   "compile with --clip-norm, or write \"clip_scope\": \"stage\" in training.json");
  if (training.lossScaleInterval == 0) return {};
  if (!flushes(schedule))
    return invalid("a dynamic loss scale needs a schedule that flushes, '" + schedule.kind + "' does not",
                   "compile with --schedule=1f1b-flush, or write \"loss_scale_interval\": 0 in training.json");
  if (!alone)
    return invalid("a dynamic loss scale needs a schedule that tells all stages of gradients that are not finite, "
                   "schedule.txt has no line 'gradient-norm'",
                   "compile with --loss-scale=dynamic");
  return {};
}

Status Executor::prepare() {
  device::use(posting_.transport().rank());
  replays_.enable(setup_.recordsPhases);
  if (Status status = checkTraining(); !status) return status;
  for (const Host& each : setup_.schedule->ranks[index(setup_.rank)].hosts)
    if (Status status = host(each); !status) return status;
  if (Status status = allocate(); !status) return status;
  std::size_t losses = 1;
  for (const HostedStage& hosted : hosted_) {
    if (stagesData(*hosted.stage)) data_.open();
    for (const OutputRow& row : hosted.stage->outputs)
      losses += row.kind == OutputKind::loss || row.kind == OutputKind::term ? 8 : 0;
  }
  losses_.resize(losses);
  for (std::size_t i = 0; i < hosted_.size(); ++i)
    if (Status status = prepareStage(hosted_[i], arena_.hosts[i]); !status) return status;
  return {};
}

/// Adds a stage replica, without its memory.
Status Executor::host(const Host& host) {
  const Schedule& schedule = *setup_.schedule;
  auto linked = std::find_if(setup_.stages.begin(), setup_.stages.end(),
                             [&](const Stage* stage) { return stage->index == host.stage; });
  if (linked == setup_.stages.end())
    return invalid("rank " + std::to_string(setup_.rank) + " hosts stage " + std::to_string(host.stage) +
                       ", which this program does not contain",
                   "start the program of that rank, or 'pipeline', which contains all");
  const Stage& stage = **linked;
  // An action names its stage only.
  for (const HostedStage& other : hosted_)
    if (other.host.stage == host.stage)
      return invalid("rank " + std::to_string(setup_.rank) + " hosts two replicas of stage " +
                     std::to_string(host.stage) + ", which is not supported");
  if (Status status = checkStage(stage, schedule); !status) return status;
  if (setup_.training->lossScaleInterval > 0 && !seedsWithScale(stage))
    return invalid(name(stage) + " was generated for a fixed loss scale, training.json has a dynamic one",
                   "compile with --loss-scale=dynamic, or write \"loss_scale_interval\": 0 in training.json");
  if (Status status = checkEarlyUpdates(stage, schedule, *setup_.training); !status) return status;
  if (Status status = checkPadding(stage, *setup_.training); !status) return status;
  HostedStage hosted;
  hosted.stage = &stage;
  hosted.host = host;
  hosted.routing = schedule.routing(host.stage);
  hosted.replicas = hosted.routing.replicas();
  hosted.member = setup_.member;
  hosted.members = schedule.stages[index(host.stage)].team;
  const ScheduleStage& shape = schedule.stages[index(host.stage)];
  ShardPlace place;
  if (shape.isSharded()) place = {hosted.replicas, host.replica, shape.owners(), shape.sharding == Sharding::weights};
  hosted.optimizer = std::make_unique<Optimizer>(*setup_.training, stage, place);
  hosted.lossScale = {.scale = setup_.training->lossScale, .interval = setup_.training->lossScaleInterval};
  hosted_.push_back(std::move(hosted));
  return {};
}

Status Executor::allocate() {
  std::vector<ArenaStage> sizes;
  for (const HostedStage& hosted : hosted_) {
    const Shards* shards = hosted.optimizer->shards();
    const ScheduleStage& shape = setup_.schedule->stages[index(hosted.host.stage)];
    sizes.push_back(
        {.stage = hosted.host.stage,
         .bytes = hosted.stage->bytes,
         .edges = hosted.stage->edges,
         .shared = hosted.stage->shared,
         .trainedBytes = hosted.optimizer->trainedBytes(),
         .optimizerBytes = hosted.optimizer->layout().bytes(),
         .shardBytes = shards ? index(shards->most()) * sizeof(float) : 0,
         .summedBytes = shards ? index(shards->mostSummed(shape.terms() / shape.replicas)) * sizeof(float) : 0});
  }
  const RankList& rank = setup_.schedule->ranks[index(setup_.rank)];
  arena_ = layoutArena(*setup_.schedule, sizes, rank);
  if (arena_.bytes > 0) {
    memory_ = device::allocate(arena_.bytes);
    if (!memory_)
      return {Exit::noDevice, "the arena of rank " + std::to_string(setup_.rank) + " has " +
                                  std::to_string(arena_.bytes) + " bytes, which the system does not give"};
  }
  stream_ = device::openStream(memory_ + arena_.workspace, arena_.workspaceBytes);
  pool_.prepare(memory_ + arena_.pool, arena_.poolStride, rank.pool);
  sumPlaces_.resize(index(rank.sums));
  return {};
}

Status Executor::prepareStage(HostedStage& hosted, const ArenaHost& place) {
  const Schedule& schedule = *setup_.schedule;
  const Stage& stage = *hosted.stage;
  const ScheduleStage& shape = schedule.stages[index(stage.index)];

  Setup kernelSetup; // generated programs state the workspace of each kernel, others have one block for all
  if (stage.bytes.workspace > 0) kernelSetup.within(stage.bytes.workspace);
  kernelSetup.timing(setup_.kernelTimes);
  try {
    hosted.kernels = stage.buildKernels(kernelSetup);
  } catch (const WorkspaceTooSmall& error) {
    return invalid(name(stage) + ": " + error.what(), "run pdc on this machine");
  } catch (const std::exception& error) {
    return {Exit::noDevice, name(stage) + ": " + error.what()};
  }
  if (Status status = joinTeam(hosted, kernelSetup.collectives()); !status) return status;
  const bool isInShards = shape.sharding == Sharding::weights;
  const RankList& rank = schedule.ranks[index(setup_.rank)];
  hosted.versions =
      Versions(memory_ + place.weights,
               arenaBytes(isInShards ? index(hosted.optimizer->shards()->most()) * sizeof(float) : stage.bytes.weights),
               shape.versions);
  hosted.frozen = stage.bytes.frozen > 0 ? memory_ + place.frozen : nullptr;
  hosted.state = memory_ + place.state;
  hosted.optimizerState = memory_ + place.optimizer;
  hosted.scratch = memory_ + arena_.scratch;
  hosted.handovers = memory_ + place.handovers;
  hosted.handoverCount = shape.handovers;
  for (int i = 0; i < shape.slots; ++i)
    hosted.slots.push_back({memory_ + place.slots + arenaBytes(stage.bytes.slot, index(i)), 0});
  if (stagesData(stage)) hosted.data.memory = memory_ + place.dataStaging;

  std::vector<std::byte*> slots;
  for (const HostedStage::Slot& slot : hosted.slots) slots.push_back(slot.memory);
  hosted.edges.prepare(schedule, places_, hosted.host, hosted.member, stage, place, memory_, std::move(slots));
  hosted.tied.prepare(schedule, places_, hosted.host, hosted.member, stage, place, memory_);
  if (hosted.optimizer->shards()) {
    const auto replicas = ownersOfWeights(places_, hosted.host, hosted.member, stage, *hosted.optimizer);
    if (isInShards)
      hosted.sweeps.prepare(schedule, hosted.host, *hosted.optimizer, replicas, pool_, rank.pool, posting_);
    else
      hosted.gathered.prepare(replicas, shape.versions, posting_);
  }
  hosted.gradients.prepare({.schedule = &schedule,
                            .places = &places_,
                            .training = setup_.training,
                            .host = hosted.host,
                            .member = hosted.member,
                            .members = hosted.members,
                            .stage = &stage,
                            .optimizer = hosted.optimizer.get(),
                            .tied = &hosted.tied,
                            .posting = &posting_,
                            .run = &run_,
                            .sumPlace = isInShards ? &sumPlaces_[index(schedule.sumPlace(rank, stage.index))] : nullptr,
                            .floatsOfReduction = setup_.floatsOfReduction},
                           place, memory_);
  return {};
}

Status Executor::joinTeam(HostedStage& hosted, const std::vector<Collective>& collectives) {
  if (hosted.members == 1) {
    if (collectives.empty()) return {};
    return invalid(name(*hosted.stage) + " has collectives of a team, and no team", "run pdc again");
  }
  if (setup_.isLone) {
    hosted.team = std::make_unique<LoneTeam>(hosted.member, hosted.members, collectives);
  } else {
    const auto place = static_cast<int>(&hosted - hosted_.data());
    TeamGroup group{
        .processes = {}, .self = hosted.member, .channel = teamChannel(*setup_.schedule) + place * TeamWork::channels};
    for (int member = 0; member < hosted.members; ++member)
      group.processes.push_back(places_.process(hosted.host, member));
    hosted.gather = std::make_unique<MemberGather>(group);
    if (Status status = posting_.transport().makeTeam(collectives, hosted.team); !status) return status;
    if (!hosted.team)
      hosted.team = std::make_unique<TeamWork>(std::move(group), collectives, *setup_.communicator, setup_.observer);
  }
  stream_.join(hosted.team.get());
  return {};
}

Status Executor::setWeights(const ReadTensor& read) {
  // Where the host does not see the blocks, each tensor goes through memory that it sees.
  auto placeAs = [&](const auto& row, int member, std::byte* block, const ParameterRow* parameter) -> Status {
    std::byte* const to = block + row.offset;
    const std::size_t bytes = index(row.shape.elements()) * bytesOf(row.element);
    std::byte* seen = device::hostSeesBlocks() ? to : data_.staging().place(bytes);
    if (!seen) return {Exit::noDevice, "the host has no " + std::to_string(bytes) + " bytes for a tensor"};
    if (Status status = read(row.name, row.element, row.shape, {seen, bytes}, {row.part, member}); !status)
      return status;
    if (parameter)
      if (Status status = WeightFile::load(*parameter, {seen, bytes}); !status) return status;
    if (seen != to) data_.staging().send(stream_, to, bytes);
    return {};
  };
  for (HostedStage& hosted : hosted_) {
    const Stage& stage = *hosted.stage;
    // Each replica reads all weights, and keeps its own where they lie in shards.
    std::byte* const all = hosted.sweeps.isUsed() ? pool_.take() : nullptr;
    std::byte* const weights = all ? all : hosted.versions.raw(0);
    for (const ParameterRow& row : stage.parameters)
      if (Status status = placeAs(row, hosted.member, row.trained ? weights : hosted.frozen, &row); !status)
        return status;
    if (all) {
      takeOwnWeights(stream_, *hosted.optimizer, all, hosted.versions.raw(0));
      pool_.give(all);
    }
    for (int i = 1; i < hosted.versions.count(); ++i)
      device::copy(stream_, hosted.versions.raw(i), hosted.versions.raw(0), stage.bytes.weights);
    const auto placeShared = [&](const SharedValueRow& row, std::byte* block) {
      return placeAs(row, hosted.member, block, /*parameter=*/nullptr);
    };
    if (Status status = hosted.tied.readValues(placeShared); !status) return status;
    for (const StateRow& row : stage.states)
      if (Status status = placeAs(row, hosted.member, hosted.state, /*parameter=*/nullptr); !status) return status;
  }
  return device::wait(stream_);
}

Status Executor::withWeights(HostedStage& hosted, const std::function<void(std::byte* weights)>& see) {
  std::byte* const newest = hosted.versions.at(hosted.versions.newest());
  if (!hosted.sweeps.isUsed()) {
    see(newest);
    return {};
  }
  hosted.sweeps.restart();
  const Action gather{.kind = ActionKind::unshard, .stage = hosted.host.stage, .index = 1};
  Action await = gather, giveUp = gather;
  await.wait = true;
  giveUp.kind = ActionKind::reshard;
  if (Status status = hosted.sweeps.gather(gather, newest, /*newest=*/-1, /*order=*/nullptr); !status) return status;
  if (Status status = hosted.sweeps.gather(await, newest, /*newest=*/-1, /*order=*/nullptr); !status) return status;
  see(hosted.sweeps.weights(/*version=*/-1));
  return hosted.sweeps.giveUp(giveUp);
}

Status Executor::averageState() {
  std::vector<std::pair<std::byte*, std::size_t>> staging;
  // These have no turns, so all ranks post them in one order, and each before the steps of the next one.
  std::vector<HostedStage*> byStage;
  for (HostedStage& hosted : hosted_) byStage.push_back(&hosted);
  std::sort(byStage.begin(), byStage.end(),
            [](const HostedStage* a, const HostedStage* b) { return a->host.stage < b->host.stage; });
  for (HostedStage* one : byStage) {
    HostedStage& hosted = *one;
    if (hosted.replicas == 1) continue;
    auto group = std::make_shared<ReduceGroup>();
    std::size_t floats = 0;
    for (const StateRow& row : hosted.stage->states) {
      if (row.element != Element::f32) continue; // counters are the same on every replica, or meaningless
      group->segments.push_back({row.offset, index(row.shape.elements())});
      floats += group->segments.back().count;
    }
    if (floats == 0) continue;
    group->self = hosted.host.replica;
    group->channel = allReduceChannel(hosted.host.stage);
    for (int replica = 0; replica < hosted.replicas; ++replica)
      group->ranks.push_back(places_.process({hosted.host.stage, replica}, hosted.member));
    const std::size_t replicas = group->ranks.size();
    const std::size_t bytes = (floats + replicas - 1) / replicas * sizeof(float) * (replicas - 1);
    staging.emplace_back(device::allocate(bytes), bytes);
    group->staging = staging.back().first;
    AllReduce reduction(group, std::make_shared<ReduceLane>());
    reduction.prepare(hosted.state);
    posting_.post(reduction);
    if (Status status = posting_.waitFor(reduction); !status) return status;
  }
  for (HostedStage& hosted : hosted_) {
    if (hosted.replicas == 1) continue;
    for (const StateRow& row : hosted.stage->states) {
      if (row.element != Element::f32) continue;
      device::divide(stream_, reinterpret_cast<float*>(hosted.state + row.offset), static_cast<float>(hosted.replicas),
                     row.shape.elements());
    }
  }
  Status status = device::wait(stream_);
  for (const auto& [memory, bytes] : staging) device::release(memory, bytes);
  return status;
}

} // namespace pdcrt
