#include "pdc/Schedule/ScheduleFile.h"

#include "Kinds/Given.h"
#include "pdc/Plan/PolicyText.h"
#include "pdc/Schedule/PlanSchedule.h"
#include "pdc/Support/Diagnostics.h"
#include "pdc/Support/DiagnosticsBuilder.h"
#include "pdcrt/MappedFile.h"
#include "pdcrt/Verify.h"

#include <algorithm>
#include <filesystem>
#include <utility>

using namespace pdc;

namespace {

/// The lists of a file as a kind of schedule, for the pipeline that they are for.
class GivenLists : public GivenKind {
public:
  GivenLists(const Facts& facts, pdcrt::Schedule schedule, std::optional<TorchBatch> batch, std::vector<int> rankOf)
      : GivenKind(facts), schedule_(std::move(schedule)), batch_(std::move(batch)), rankOf_(std::move(rankOf)) {}

  int versions(pdcrt::WeightPolicy asked, const StageShape& input, const StageShape& own, int stage) const override {
    return knows(stage) ? at(stage).versions : GivenKind::versions(asked, input, own, stage);
  }
  StageDepths depths(std::int64_t microbatches, const StageShape& input, const StageShape& own,
                     int stage) const override {
    if (!knows(stage)) return GivenKind::depths(microbatches, input, own, stage);
    return {at(stage).slots, at(stage).handovers};
  }
  int rankOfStage(int stage, int stages) const override {
    return knows(stage) ? rankOf_[static_cast<std::size_t>(stage)] : GivenKind::rankOfStage(stage, stages);
  }
  pdcrt::Schedule frame(const PipelineShape& shape) const override {
    pdcrt::Schedule schedule = build(shape);
    return schedule.ranks.empty() ? GivenKind::frame(shape) : schedule;
  }
  pdcrt::Schedule build(const PipelineShape& shape) const override {
    if (shape.stages.size() != schedule_.stages.size()) return {};
    for (std::size_t s = 0; s < shape.stages.size(); ++s)
      if (shape.stages[s].replicas != schedule_.stages[s].replicas) return {};
    if (batch_) return scheduleOfBatch(*batch_, shape);
    std::vector<std::pair<int, int>> shared;
    for (const pdcrt::SharedEdge& edge : schedule_.shared) shared.emplace_back(edge.owner, edge.user);
    return shape.edges == schedule_.edges && shape.shared == shared ? schedule_ : pdcrt::Schedule();
  }

private:
  bool knows(int stage) const { return static_cast<std::size_t>(stage) < schedule_.stages.size(); }
  const pdcrt::ScheduleStage& at(int stage) const { return schedule_.stages[static_cast<std::size_t>(stage)]; }

  pdcrt::Schedule schedule_;
  std::optional<TorchBatch> batch_;
  std::vector<int> rankOf_; ///< by stage: the rank within one copy of the pipeline
};

} // namespace

/// Where the lists place the stages of one copy of the pipeline: planners know ranks that host equally many stages, and
/// copies of such a pipeline.
static Expected<std::vector<int>> ranksOf(const pdcrt::Schedule& schedule, const std::string& path,
                                          Diagnostics& diags) {
  const std::size_t chunks = schedule.ranks[0].hosts.size();
  const int copies = schedule.stages[0].replicas;
  std::vector<int> rankOf(schedule.stages.size(), 0);
  int rank = 0;
  for (std::size_t r = 0; r < schedule.ranks.size(); ++r) {
    const std::vector<pdcrt::Host>& hosts = schedule.ranks[r].hosts;
    if (hosts.size() != chunks)
      return diags.error({.file = path}).help("let every rank host as many stages")
             << "rank 0 hosts " << chunks << " stages, rank " << r << " hosts " << hosts.size()
             << ": there is no plan for that";
    if (chunks == 1) continue;
    for (const pdcrt::Host& host : hosts) {
      if (schedule.stages[static_cast<std::size_t>(host.stage)].replicas != copies)
        return diags.error({.file = path}).help("replicate all stages equally, or let every rank host one stage")
               << "stage 0 has " << copies << " replicas, stage " << host.stage << " has "
               << schedule.stages[static_cast<std::size_t>(host.stage)].replicas
               << ": ranks that host several stages are copies of one pipeline";
      if (host.replica == 0) rankOf[static_cast<std::size_t>(host.stage)] = rank;
    }
    rank += hosts[0].replica == 0 ? 1 : 0;
  }
  return rankOf;
}

static GivenKind::Facts factsOf(const pdcrt::Schedule& schedule) {
  GivenKind::Facts facts;
  if (schedule.minibatchesPerUpdate == 0)
    facts.updates = GivenKind::Updates::alone;
  else if (schedule.weights == pdcrt::WeightPolicy::twoVersions)
    facts.updates = GivenKind::Updates::twoVersions;
  facts.stagesPerRank = static_cast<int>(schedule.ranks[0].hosts.size());
  for (const pdcrt::RankList& rank : schedule.ranks)
    for (const auto* list : {&rank.start, &rank.repeat})
      for (const pdcrt::Action& action : *list)
        facts.splitsBackward = facts.splitsBackward || action.kind == pdcrt::ActionKind::backwardWeight;
  return facts;
}

/// Reports lists that stop. A file with complete lists is executed when it is read, before the planner plans for it.
static Status checkLists(const pdcrt::Schedule& schedule, const std::string& path, Diagnostics& diags) {
  pdcrt::CheckResult result = pdcrt::checkEveryDrain(schedule);
  if (!result.passed) return diags.error({.file = path}) << "the schedule cannot be executed: " << result.problem;
  if (!result.proven)
    return diags.error({.file = path}) << "the schedule repeats itself after " << pdcrt::periodMinibatches(schedule)
                                       << " minibatches, too many to show that it never stops; " << result.minibatches
                                       << " were executed";
  return success;
}

/// The record of a file with lists `schedule`, or with the `batch` that they were made of. A batch states no transfers.
static Expected<ScheduleFile> fileOf(const std::string& path, pdcrt::Schedule schedule, std::optional<TorchBatch> batch,
                                     Diagnostics& diags) {
  ScheduleFile file;
  Expected<std::vector<int>> rankOf = ranksOf(schedule, path, diags);
  if (!rankOf || (!batch && !checkLists(schedule, path, diags))) return failure;
  file.path = path;
  file.name = std::filesystem::path(path).filename().string();
  if (schedule.weights != pdcrt::WeightPolicy::twoVersions) file.shape.weights = schedule.weights;
  file.shape.microbatches = schedule.minibatchesPerUpdate;
  file.shape.gradientNorm = schedule.gradientNorm;
  for (const pdcrt::ScheduleStage& stage : schedule.stages)
    file.shape.stages.push_back({.replicas = stage.replicas,
                                 .warmup = stage.warmup,
                                 .syncDelay = stage.syncDelay,
                                 .sharding = stage.sharding,
                                 .shardDegree = stage.shardDegree});
  for (const pdcrt::RankList& rank : schedule.ranks) file.hosts.push_back(rank.hosts);
  file.shape.kind = ScheduleKind(std::make_shared<GivenLists>(factsOf(schedule), schedule, batch, std::move(*rankOf)));
  file.batch = std::move(batch);
  if (!file.batch) file.schedule = std::move(schedule);
  return file;
}

Expected<ScheduleFile> pdc::readScheduleFile(const std::string& path, Diagnostics& diags) {
  std::string text;
  if (pdcrt::Status status = pdcrt::readText(path, text, pdcrt::Exit::invalid); !status)
    return diags.error({}) << status.message();
  const bool comma = text.substr(0, text.find('\n')).find(',') != std::string::npos;
  if (path.ends_with(".csv") || (comma && !text.starts_with("#"))) {
    Expected<TorchBatch> batch = torchBatchFromCsv(text, path, diags);
    if (!batch) return failure;
    pdcrt::Schedule schedule = scheduleOfBatch(*batch, {});
    return fileOf(path, std::move(schedule), std::move(*batch), diags);
  }
  pdcrt::Schedule schedule;
  std::string error;
  if (!pdcrt::parseSchedule(text, schedule, error)) return diags.error({.file = path}) << error;
  return fileOf(path, std::move(schedule), std::nullopt, diags);
}

Expected<bool> pdc::isScheduleFile(const std::string& nameOrFile, Diagnostics& diags) {
  if (ScheduleKind::named(nameOrFile)) return false;
  if (std::filesystem::is_regular_file(nameOrFile)) return true;
  return diags.error({}).exit(ExitCode::usage).help("type one of " + scheduleNamesText() + ", or a file's name")
         << "--schedule: '" << nameOrFile << "' is not the name of a schedule, and there is no such file";
}

static std::string textOf(const std::vector<pdcrt::Host>& hosts) {
  std::string text;
  for (const pdcrt::Host& host : hosts)
    text += (text.empty() ? "" : " ") + std::to_string(host.stage) + "." + std::to_string(host.replica);
  return text;
}

static std::string textOf(const pdcrt::ScheduleEdge* edge) {
  if (!edge) return "none";
  return edge->forward && edge->backward ? "forward and backward" : edge->forward ? "forward" : "backward";
}

/// Stages, replicas and ranks.
static Status checkPlaces(const Plan& plan, const ScheduleFile& file, Diagnostics& diags) {
  auto error = [&] { return diags.error({.file = file.path}); };
  if (file.shape.stages.size() != plan.stages.size())
    return error() << "the schedule is for " << file.shape.stages.size() << " stages, the plan has "
                   << plan.stages.size();
  for (std::size_t s = 0; s < plan.stages.size(); ++s)
    if (file.shape.stages[s].replicas != plan.stages[s].replicas)
      return error() << "stage " << s << " has " << file.shape.stages[s].replicas << " replicas in the schedule, "
                     << plan.stages[s].replicas << " in the plan";
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const StageShape& given = file.shape.stages[s];
    const PlanStage& planned = plan.stages[s];
    if (file.batch && given.sharding == pdcrt::Sharding::none) continue;
    if (given.sharding != planned.sharding)
      return error() << "the replicas of stage " << s << " divide '" << nameOf(given.sharding) << "' in the schedule, '"
                     << nameOf(planned.sharding) << "' in the plan";
    if (!file.batch && given.shardDegree != planned.shardDegree)
      return error() << "shards of stage " << s << " have degree " << given.shardDegree << " in the schedule, "
                     << planned.shardDegree << " in the plan (0: all replicas)";
  }
  if (file.hosts.size() != plan.ranks.size())
    return error() << "the schedule is for " << file.hosts.size() << " ranks, the plan has " << plan.ranks.size();
  for (std::size_t r = 0; r < plan.ranks.size(); ++r) {
    std::vector<pdcrt::Host> planned, hosts = file.hosts[r];
    for (const PlanRank::Host& host : plan.ranks[r].hosts) planned.push_back({host.stage, host.replica});
    for (auto* list : {&planned, &hosts})
      std::sort(list->begin(), list->end(), [](const auto& a, const auto& b) { return a.stage < b.stage; });
    if (planned != hosts)
      return error() << "rank " << r << " hosts '" << textOf(hosts) << "' in the schedule, '" << textOf(planned)
                     << "' in the plan";
  }
  return success;
}

/// Edges and shared parameters of pdc's text.
static Status checkEdges(const PipelineShape& planned, const ScheduleFile& file, Diagnostics& diags) {
  auto find = [](const std::vector<pdcrt::ScheduleEdge>& edges, int from, int to) {
    auto found = std::find_if(edges.begin(), edges.end(), [&](const auto& e) { return e.from == from && e.to == to; });
    return found == edges.end() ? nullptr : &*found;
  };
  for (const auto* list : {&planned.edges, &file.schedule.edges})
    for (const pdcrt::ScheduleEdge& edge : *list) {
      const auto *here = find(file.schedule.edges, edge.from, edge.to),
                 *there = find(planned.edges, edge.from, edge.to);
      if (!here || !there || *here != *there)
        return diags.error({.file = file.path})
               << "the edge " << edge.from << ">" << edge.to << " in the schedule: " << textOf(here)
               << ", in the plan: " << textOf(there);
    }
  using Pairs = std::vector<std::pair<int, int>>;
  Pairs shared;
  for (const pdcrt::SharedEdge& edge : file.schedule.shared) shared.push_back({edge.owner, edge.user});
  for (const Pairs* list : {&planned.shared, &std::as_const(shared)})
    for (const auto& [owner, user] : *list) {
      const bool here = std::ranges::count(shared, std::pair(owner, user)) > 0;
      const bool there = std::ranges::count(planned.shared, std::pair(owner, user)) > 0;
      if (here != there)
        return diags.error({.file = file.path}) << "stages " << owner << " and " << user << " share parameters in the "
                                                << (here ? "schedule, not in the plan" : "plan, not in the schedule");
    }
  return success;
}

Expected<pdcrt::Schedule> pdc::scheduleFor(const Plan& plan, const ScheduleFile& file, Diagnostics& diags) {
  if (!checkPlaces(plan, file, diags)) return failure;
  PipelineShape shape = shapeOf(plan);
  if (!file.batch && !checkEdges(shape, file, diags)) return failure;
  pdcrt::Schedule schedule = file.batch ? scheduleOfBatch(*file.batch, shape) : file.schedule;
  if (file.batch && !checkLists(schedule, file.path, diags)) return failure;
  for (std::size_t s = 0; s < schedule.stages.size(); ++s) {
    int& team = schedule.stages[s].team;
    const int members = plan.stages[s].split.members;
    if (team != 1 && team != members)
      return diags.error({.file = file.path})
                 .help("take a --split over " + std::to_string(team) + ", or leave `team` out")
             << "stage " << s << " has a team of " << team << ", --split=" << toText(plan.stages[s].split)
             << " makes teams of " << members;
    team = members;
    schedule.stages[s].teamSums = plan.stages[s].split.tokens;
  }
  return schedule;
}

void pdc::adopt(Plan& plan, const ScheduleFile& file) {
  plan.schedule = file.shape.kind;
  plan.scheduleFile = file.name;
  plan.weights = file.shape.weights;
  plan.microbatches = std::max<std::int64_t>(1, file.shape.microbatches);
  if (!file.batch) plan.gradientNorm = file.shape.gradientNorm;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    plan.stages[s].warmup = file.shape.stages[s].warmup;
    plan.stages[s].syncDelay = file.shape.stages[s].syncDelay;
    if (!file.batch || file.shape.stages[s].sharding != pdcrt::Sharding::none) {
      plan.stages[s].sharding = file.shape.stages[s].sharding;
      if (!file.batch) plan.stages[s].shardDegree = file.shape.stages[s].shardDegree;
    }
  }
}
