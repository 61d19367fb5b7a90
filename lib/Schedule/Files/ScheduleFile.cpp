#include "pdc/Schedule/ScheduleFile.h"

#include "pdc/Schedule/PlanSchedule.h"
#include "pdc/Support/Diagnostics.h"
#include "pdc/Support/DiagnosticsBuilder.h"
#include "pdcrt/MappedFile.h"
#include "pdcrt/Verify.h"

#include <algorithm>
#include <filesystem>
#include <utility>

using namespace pdc;

/// The named schedule under which a plan for the file is made and reported.
static std::string plannedAs(const pdcrt::Schedule& schedule) {
  const std::string& kind = schedule.kind;
  const bool batches = schedule.minibatchesPerUpdate > 0;
  const bool twoVersions = schedule.weights == pdcrt::WeightPolicy::twoVersions;
  const auto hosted = static_cast<int>(schedule.ranks[0].hosts.size());
  if (isScheduleName(kind) && hasBatches(kind) == batches && (kind == "2bw") == twoVersions &&
      stagesPerRank(kind) == hosted)
    return kind;
  if (!batches) return "1f1b";
  if (twoVersions) return "2bw";
  if (hosted == 1) return "1f1b-flush";
  const bool turns = schedule.ranks[0].hosts.back().stage == static_cast<int>(schedule.stages.size()) - 1;
  return hosted == 2 && turns ? "zb-v" : "interleaved:" + std::to_string(hosted);
}

static ScheduleFile fileOf(pdcrt::Schedule schedule) {
  ScheduleFile file;
  file.shape.kind = plannedAs(schedule);
  file.shape.weights = schedule.weights;
  file.shape.microbatches = schedule.minibatchesPerUpdate;
  file.shape.gradientNorm = schedule.gradientNorm;
  for (const pdcrt::ScheduleStage& stage : schedule.stages)
    file.shape.stages.push_back({stage.replicas, stage.warmup, stage.syncDelay});
  for (const pdcrt::RankList& rank : schedule.ranks) file.hosts.push_back(rank.hosts);
  file.schedule = std::move(schedule);
  return file;
}

/// Without transfers, of which the file says nothing.
static ScheduleFile fileOf(TorchBatch batch) {
  ScheduleFile file = fileOf(scheduleOfBatch(batch, {}));
  file.batch = std::move(batch);
  file.schedule = {};
  return file;
}

Expected<ScheduleFile> pdc::readScheduleFile(const std::string& path, Diagnostics& diags) {
  std::string text;
  if (pdcrt::Status status = pdcrt::readText(path, text, pdcrt::Exit::invalid); !status)
    return diags.error({}) << status.message();
  ScheduleFile file;
  const bool comma = text.substr(0, text.find('\n')).find(',') != std::string::npos;
  if (path.ends_with(".csv") || (comma && !text.starts_with("#"))) {
    Expected<TorchBatch> batch = torchBatchFromCsv(text, path, diags);
    if (!batch) return failure;
    file = fileOf(std::move(*batch));
  } else {
    pdcrt::Schedule schedule;
    std::string error;
    if (!pdcrt::parseSchedule(text, schedule, error)) return diags.error({.file = path}) << error;
    file = fileOf(std::move(schedule));
  }
  file.path = path;
  file.name = std::filesystem::path(path).filename().string();
  return file;
}

Expected<bool> pdc::isScheduleFile(const std::string& nameOrFile, Diagnostics& diags) {
  if (isScheduleName(nameOrFile)) return false;
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
  pdcrt::CheckResult result = pdcrt::checkEveryDrain(schedule);
  if (!result.passed) return diags.error({.file = file.path}) << "the schedule cannot be executed: " << result.problem;
  if (!result.proven)
    return diags.error({.file = file.path})
           << "the schedule repeats itself after " << pdcrt::periodMinibatches(schedule)
           << " minibatches, too many to show that it never stops; " << result.minibatches << " were executed";
  return schedule;
}

static const char* weightsName(pdcrt::WeightPolicy weights) {
  return weights == pdcrt::WeightPolicy::verticalSync ? "vertical-sync"
         : weights == pdcrt::WeightPolicy::latest     ? "latest"
                                                      : "stash";
}

void pdc::adopt(Plan& plan, const ScheduleFile& file) {
  plan.schedule = file.shape.kind;
  plan.scheduleFile = file.name;
  plan.weights = weightsName(file.shape.weights);
  plan.microbatches = std::max<std::int64_t>(1, file.shape.microbatches);
  if (!file.batch) plan.gradientNorm = file.shape.gradientNorm;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    plan.stages[s].warmup = file.shape.stages[s].warmup;
    plan.stages[s].syncDelay = file.shape.stages[s].syncDelay;
  }
}
