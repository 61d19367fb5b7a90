// Files of a run: plan, schedule, training, weights.
#include "RunFiles.h"

#include "base/Invalid.h"
#include "files/MemberRecords.h"
#include "files/WeightFile.h"
#include "pdcrt/Checkpoint.h"
#include "pdcrt/Device.h"
#include "pdcrt/Hash.h"
#include "pdcrt/Machine.h"
#include "pdcrt/MappedFile.h"
#include "pdcrt/StoredTensor.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <unistd.h>

namespace pdcrt {
namespace {

using Json = nlohmann::ordered_json;

double numberOr0(const Json& object, const char* key) {
  auto at = object.find(key);
  return at != object.end() && at->is_number() ? at->get<double>() : 0;
}

/// What of plan.json concerns a run: predictions, and hosts that must be the schedule's.
Status readPlan(const std::string& file, const Json& plan, RunFiles& files) {
  auto stages = plan.find("stages"), ranks = plan.find("ranks");
  if (!plan.is_object() || stages == plan.end() || ranks == plan.end() || !stages->is_array() || !ranks->is_array())
    return invalid(file + ": is not a plan: it needs 'stages' and 'ranks'");
  for (const Json& stage : *stages) {
    if (!stage.is_object()) return invalid(file + ": has a stage that is not an object");
    files.predicted.push_back({numberOr0(stage, "forward_ms") + numberOr0(stage, "input_gradient_ms") +
                                   numberOr0(stage, "weight_gradient_ms"),
                               numberOr0(stage, "memory_bytes"), numberOr0(stage, "team_bytes")});
  }
  if (const auto tensors = plan.find("tensors"); tensors != plan.end() && tensors->is_array())
    files.encodesEdges = std::any_of(tensors->begin(), tensors->end(),
                                     [](const Json& tensor) { return tensor.is_object() && tensor.contains("codec"); });
  files.timeMs = numberOr0(plan, "time_ms");
  if (auto hash = plan.find("model_hash"); hash != plan.end() && hash->is_string())
    files.modelHash = hash->get<std::string>();

  if (files.predicted.size() != files.schedule.stages.size() || ranks->size() != files.schedule.ranks.size())
    return invalid(file + ": has " + std::to_string(files.predicted.size()) + " stages on " +
                       std::to_string(ranks->size()) + " ranks, schedule.txt has " +
                       std::to_string(files.schedule.stages.size()) + " on " +
                       std::to_string(files.schedule.ranks.size()),
                   "run pdc --plan=" + file + " to make a schedule for the plan");
  for (std::size_t rank = 0; rank < ranks->size(); ++rank) {
    std::vector<Host> hosts;
    const Json& entry = (*ranks)[rank];
    if (entry.is_object() && entry.contains("hosts") && entry["hosts"].is_array())
      for (const Json& host : entry["hosts"])
        if (host.is_object())
          hosts.push_back({static_cast<int>(numberOr0(host, "stage")), static_cast<int>(numberOr0(host, "replica"))});
    if (hosts != files.schedule.ranks[rank].hosts)
      return invalid(file + ": rank " + std::to_string(rank) + " hosts other stages than in schedule.txt",
                     "run pdc --plan=" + file + " to make a schedule for the plan");
  }
  return {};
}

/// The newest version as files have it, for as long as this lives. Filters that lie in blocks are converted where they
/// are: a copy would be the largest of a run. Their layout is one of devices whose memory the host sees.
class InFileOrder {
public:
  InFileOrder(const HostedStage& hosted, std::byte* newest)
      : stage_(*hosted.stage), newest_(newest), frozen_(hosted.frozen) {
    if (device::hostSeesBlocks()) status_ = WeightFile::store(stage_.parameters, newest_, frozen_);
  }
  ~InFileOrder() {
    if (device::hostSeesBlocks()) static_cast<void>(WeightFile::load(stage_.parameters, newest_, frozen_));
  }
  InFileOrder(const InFileOrder&) = delete;
  InFileOrder& operator=(const InFileOrder&) = delete;
  const Status& status() const { return status_; }

private:
  const Stage& stage_;
  std::byte* const newest_;
  std::byte* const frozen_;
  Status status_;
};

} // namespace

Status readRunFiles(const RunOptions& options, RunFiles& files) {
  const std::string planFile = options.directory + "/plan.json", scheduleFile = options.directory + "/schedule.txt",
                    trainingFile = options.directory + "/training.json";
  std::string plan, schedule, training, error;
  for (auto [file, text] : {std::pair(&planFile, &plan), {&scheduleFile, &schedule}, {&trainingFile, &training}})
    if (Status status = readText(*file, *text, Exit::invalid); !status)
      return {status.code(), status.message(), "name the folder that pdc wrote with --dir"};
  if (!parseSchedule(schedule, files.schedule, error) || !isWellFormed(files.schedule, error))
    return invalid(scheduleFile + ": " + error);
  if (Status status = parseTraining(training, trainingFile, files.training); !status) return status;
  if (options.seed) files.training.seed = *options.seed;
  if (options.learningRate) files.training.learningRate = *options.learningRate;
  std::error_code ignored;
  const std::string adaptersFile = options.directory + "/adapters.json";
  if (std::filesystem::exists(adaptersFile, ignored))
    if (Status status = readText(adaptersFile, files.adapters, Exit::invalid); !status) return status;
  const Json json = Json::parse(plan, nullptr, /*allow_exceptions=*/false);
  if (Status status = readPlan(planFile, json, files); !status) return status;
  files.hash = hashOf(plan + schedule + toJson(files.training) + (options.shuffle ? "shuffled" : "") +
                      options.checkpointFolder + " " + std::to_string(options.checkpointEvery) + " " +
                      std::to_string(options.evaluateEvery) + (options.labelShift == 1 ? "" : " unshifted"));
  return {};
}

Status checkSchedule(const Schedule& schedule, std::int64_t minibatches) {
  // A longer run repeats itself in between.
  const std::int64_t period = periodMinibatches(schedule);
  const std::int64_t longEnough = (minibatchesInFlight(schedule) / period + 3) * period;
  if (minibatches > longEnough) minibatches = longEnough + minibatches % period;
  const CheckResult result = check(schedule, minibatches);
  if (result.passed) return {};
  return invalid("schedule.txt cannot run " + std::to_string(minibatches) + " minibatches: " + result.problem,
                 "undo the edit, or run pdc again");
}

Status openInitial(const std::string& directory, StoredTensors& tensors) {
  const std::string folder = directory + "/weights";
  std::error_code error;
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error))
    if (entry.path().extension() == ".safetensors") paths.push_back(entry.path().string());
  if (error || paths.empty())
    return {Exit::badData, folder + ": holds no .safetensors file",
            "run pdc again: it writes the initial weights there"};
  std::sort(paths.begin(), paths.end());
  return tensors.open(paths);
}

Status initialWeights(const std::string& directory, Executor& executor) {
  const std::string folder = directory + "/weights";
  StoredTensors tensors;
  if (Status status = openInitial(directory, tensors); !status) return status;

  return executor.setWeights([&](const char* name, Element element, const Shape& shape, std::span<std::byte> to,
                                 const MemberPart& part) -> Status {
    const StoredTensor* const tensor = tensors.find(name);
    if (!tensor)
      return {Exit::badData, folder + ": no file holds '" + name + "'",
              "run pdc again: it writes the initial weights there"};
    return tensor->read({element, shape, part}, to);
  });
}

Status frozenSums(const std::string& directory, Executor& executor, std::map<std::string, FileSum>& sums) {
  StoredTensors tensors;
  for (const HostedStage& hosted : executor.hosted())
    for (const ParameterRow& row : hosted.stage->parameters) {
      if (row.trained || sums.contains(row.name)) continue;
      if (sums.empty())
        if (Status status = openInitial(directory, tensors); !status) return status;
      const StoredTensor* const tensor = tensors.find(row.name);
      if (!tensor) return {Exit::badData, directory + "/weights: no file holds '" + row.name + "'"};
      std::vector<std::byte> made;
      sums[row.name] = extended({}, tensor->whole(made).values);
    }
  return {};
}

/// Writes where `path` says, or else where there is room: what was learned must not be lost.
static Status writeOrRescue(const std::string& path, const MemberRecords& written) {
  const Status status = writeSafetensors(path, written.records, written.metadata);
  if (status) return {};
  const char* other = std::getenv("TMPDIR");
  const std::string name = path.substr(path.rfind('/') + 1);
  for (const std::string& parent :
       {std::string(other ? other : ""), std::string("/tmp"), std::string("/var/tmp"), std::string(".")}) {
    std::string folder = parent + "/pdc-weights-XXXXXX";
    if (parent.empty() || !::mkdtemp(folder.data())) continue;
    if (writeSafetensors(folder + "/" + name, written.records, written.metadata))
      return {status.code(), status.message(),
              "these trained weights are in " + folder + "/" + name + ", copy them from there"};
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
  }
  return status;
}

/// Removes what earlier runs in larger teams have exported of a stage: no member of this one writes these names.
static void removeFilesOfOthers(const std::string& stem, const Stage& stage) {
  std::int64_t members = 1;
  for (const ParameterRow& row : stage.parameters) members = std::max(members, row.part.of);
  for (const StateRow& row : stage.states) members = std::max(members, row.part.of);
  std::error_code ignored;
  while (std::filesystem::remove(stem + memberSuffix(static_cast<int>(members)) + ".safetensors", ignored)) ++members;
}

/// Writes what a stage has; `newest` are its weights.
static Status exportStage(const std::string& folder, const std::string& adapters, Executor& executor,
                          const HostedStage& hosted, std::byte* newest) {
  if (hosted.host.replica != 0 || !writesWeights(*hosted.stage, hosted.member)) return {};
  const InFileOrder ordered(hosted, newest);
  if (!ordered.status()) return ordered.status();
  MemberRecords written(hosted.member, {{"updates", std::to_string(hosted.updates)}});
  if (!adapters.empty()) written.metadata[adaptersKey] = adapters;
  auto add = [&](const auto& row, const std::byte* block) { written.add(row, row.name, block + row.offset); };
  const BlockBytes& bytes = hosted.stage->bytes;
  const std::byte* weights = executor.onHost(newest, bytes.weights);
  const std::byte* frozen = executor.onHost(hosted.frozen, bytes.frozen);
  const std::byte* state = executor.onHost(hosted.state, bytes.state);
  for (const ParameterRow& row : hosted.stage->parameters) add(row, row.trained ? weights : frozen);
  for (const StateRow& row : hosted.stage->states) add(row, state);
  const std::string stem = folder + "/stage" + std::to_string(hosted.host.stage);
  const Status status = writeOrRescue(stem + memberSuffix(hosted.member) + ".safetensors", written);
  if (hosted.member == 0) removeFilesOfOthers(stem, *hosted.stage);
  return status;
}

Status exportWeights(const std::string& folder, const std::string& adapters, Executor& executor) {
  std::vector<HostedStage*> byStage; // all ranks gather what lies in shards in one order
  for (HostedStage& hosted : executor.hosted()) byStage.push_back(&hosted);
  std::sort(byStage.begin(), byStage.end(),
            [](const HostedStage* a, const HostedStage* b) { return a->host.stage < b->host.stage; });
  Status first;
  for (HostedStage* hosted : byStage) {
    Status written;
    const auto write = [&](std::byte* newest) { written = exportStage(folder, adapters, executor, *hosted, newest); };
    if (Status status = executor.withWeights(*hosted, write); !status) return status;
    if (first) first = written;
  }
  return first;
}

} // namespace pdcrt
