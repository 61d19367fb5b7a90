// The JSON of plans.
#include "pdc/Plan/Plan.h"

#include "pdc/Plan/PlanJson.h"
#include "pdc/Plan/PolicyText.h"

#include <set>

using namespace pdc;
using nlohmann::ordered_json;

static ordered_json toObject(const PlanStage& stage) {
  ordered_json object = {{"nodes", stage.nodes},
                         {"node_names", stage.nodeNames},
                         {"replicas", stage.replicas},
                         {"warmup", stage.warmup},
                         {"sync_delay", stage.syncDelay},
                         {"forward_ms", stage.forwardMs},
                         {"input_gradient_ms", stage.inputGradientMs},
                         {"weight_gradient_ms", stage.weightGradientMs},
                         {"update_ms", stage.updateMs},
                         {"all_reduce_ms", stage.allReduceMs},
                         {"parameter_bytes", stage.parameterBytes},
                         {"gradient_bytes", stage.gradientBytes},
                         {"saved_bytes", stage.savedBytes},
                         {"scratch_bytes", stage.scratchBytes},
                         {"memory_bytes", stage.memoryBytes}};
  // What few plans have is left out where it says nothing.
  if (stage.handoverBytes != 0) object["handover_bytes"] = stage.handoverBytes;
  if (stage.frozenBytes != 0) object["frozen_bytes"] = stage.frozenBytes;
  if (stage.optimizerBytes != 0) object["optimizer_bytes"] = stage.optimizerBytes;
  if (stage.reducedBytes != 0) object["reduced_bytes"] = stage.reducedBytes;
  if (stage.teamBytes != 0) object["team_bytes"] = stage.teamBytes;
  if (stage.dividedBytes != 0) object["divided_bytes"] = stage.dividedBytes;
  if (stage.recompute) object["recompute"] = true;
  if (stage.tensorParallel != 1) object["tensor_parallel"] = stage.tensorParallel;
  if (stage.split != TeamSplit{}) object["split"] = toText(stage.split);
  if (stage.isSharded()) object["shard"] = nameOf(stage.sharding);
  if (stage.shardDegree != 0) object["shard_degree"] = stage.shardDegree;
  if (stage.forwardTeamMs != 0) object["forward_team_ms"] = stage.forwardTeamMs;
  if (stage.backwardTeamMs != 0) object["backward_team_ms"] = stage.backwardTeamMs;
  if (stage.forwardHiddenTeamMs != 0) object["forward_hidden_team_ms"] = stage.forwardHiddenTeamMs;
  if (stage.backwardHiddenTeamMs != 0) object["backward_hidden_team_ms"] = stage.backwardHiddenTeamMs;
  if (stage.allReduceCoreMs != 0) object["all_reduce_core_ms"] = stage.allReduceCoreMs;
  if (stage.exposedSyncMs != 0) object["exposed_sync_ms"] = stage.exposedSyncMs;
  for (const GradientBucket& bucket : stage.buckets)
    object["buckets"].push_back({{"bytes", bucket.bytes}, {"final", bucket.final}});
  if (!stage.device.empty()) object["device"] = stage.device;
  if (!stage.choices.empty()) object["choices"] = stage.choices;
  for (const PlanNest& nest : stage.nest)
    object["nest"].push_back({{"stage", nest.stage}, {"replicas", nest.replicas}});
  return object;
}

std::string pdc::toJson(const Plan& plan) {
  ordered_json stages = ordered_json::array(), tensors = ordered_json::array(), ranks = ordered_json::array();
  for (const PlanStage& stage : plan.stages) stages.push_back(toObject(stage));
  for (const PlanTensor& tensor : plan.tensors) {
    tensors.push_back({{"name", tensor.name},
                       {"from", tensor.from},
                       {"to", tensor.to},
                       {"bytes", tensor.bytes},
                       {"has_gradient", tensor.hasGradient}});
    if (tensor.codec) tensors.back()["codec"] = toText(*tensor.codec);
  }
  for (const PlanRank& rank : plan.ranks) {
    ordered_json hosts = ordered_json::array();
    for (const PlanRank::Host& host : rank.hosts) hosts.push_back({{"stage", host.stage}, {"replica", host.replica}});
    ranks.push_back({{"rank", rank.rank}, {"devices", rank.devices}, {"hosts", std::move(hosts)}});
  }
  ordered_json object = {{"model", plan.model},
                         {"model_hash", plan.modelHash},
                         {"cost_source", plan.costSource},
                         {"schedule", plan.schedule.name()},
                         {"weights", nameOf(plan.weights)},
                         {"sync", nameOf(plan.sync)},
                         {"microbatches", plan.microbatches},
                         {"time_ms", plan.timeMs},
                         {"lower_bound_ms", plan.lowerBoundMs}};
  if (!plan.scheduleFile.empty()) object["schedule_file"] = plan.scheduleFile;
  if (plan.gradientNorm) object["gradient_norm"] = true;
  if (plan.optimal) object["optimal"] = true;
  if (plan.gap() > 0) object["gap"] = plan.gap();
  if (plan.costModel != "pdc") object["cost_model"] = plan.costModel;
  object["stages"] = std::move(stages);
  object["tensors"] = std::move(tensors);
  if (plan.gradients) {
    ordered_json gradients = ordered_json::array();
    for (const PlanGradient& gradient : *plan.gradients)
      gradients.push_back(
          {{"name", gradient.name}, {"from", gradient.from}, {"to", gradient.to}, {"bytes", gradient.bytes}});
    object["gradients"] = std::move(gradients);
  }
  for (const PlanSharedParameter& shared : plan.sharedParameters)
    object["shared_parameters"].push_back(
        {{"name", shared.name}, {"bytes", shared.bytes}, {"stages", shared.stages}, {"uses", shared.uses}});
  object["ranks"] = std::move(ranks);
  for (const PlanAlternative& other : plan.alternatives)
    object["alternatives"].push_back({{"name", other.name}, {"time_ms", other.timeMs}, {"reason", other.reason}});
  if (!plan.cluster.levels.empty()) object["cluster"] = clusterToJson(plan.cluster);
  return pretty(object);
}

static const std::initializer_list<std::string_view> costModels = {
    "pdc", "sosp19", "pipedream-2018", "pipedream-code", "dnn-partitioning", "piper"};

constexpr std::int64_t largestCount = 1 << 20;

static int readCount(const JsonNode& node, std::int64_t least, std::int64_t most = largestCount) {
  return static_cast<int>(node.integer(least, most));
}

static void readChoices(const JsonNode& json, PlanStage& stage) {
  std::optional<JsonNode> choices = json.find("choices");
  if (!choices) return;
  for (const JsonNode& element : choices->elements()) stage.choices.push_back(element.text());
  if (stage.choices.size() != stage.nodes.size())
    choices->error() << "expected one choice for each of " << stage.nodes.size() << " nodes, got "
                     << stage.choices.size();
}

static void readNest(const JsonNode& json, PlanStage& stage) {
  std::optional<JsonNode> nest = json.find("nest");
  if (!nest) return;
  std::int64_t product = 1;
  for (const JsonNode& element : nest->elements()) {
    element.allow({"stage", "replicas"});
    const std::int64_t most = largestCount / product;
    stage.nest.push_back({readCount(element["stage"], 0), readCount(element["replicas"], 1, most)});
    product *= stage.nest.back().replicas;
  }
  if (product != stage.replicas)
    nest->error() << "the replicas of its levels multiply to " << product << ", the stage has " << stage.replicas;
}

static void readBuckets(const JsonNode& json, PlanStage& stage) {
  std::optional<JsonNode> buckets = json.find("buckets");
  if (!buckets) return;
  for (const JsonNode& element : buckets->elements()) {
    element.allow({"bytes", "final"});
    const JsonNode final = element["final"];
    stage.buckets.push_back({element["bytes"].bytes(), final.nonNegative()});
    if (stage.buckets.back().final > 1)
      final.error() << "expected a part of the backward, at most 1, got " << stage.buckets.back().final;
  }
}

static PlanStage readStage(const JsonNode& json, std::set<std::int64_t>& seenNodes) {
  json.allow({"nodes",
              "node_names",
              "replicas",
              "warmup",
              "sync_delay",
              "forward_ms",
              "input_gradient_ms",
              "weight_gradient_ms",
              "update_ms",
              "all_reduce_ms",
              "parameter_bytes",
              "gradient_bytes",
              "saved_bytes",
              "scratch_bytes",
              "handover_bytes",
              "frozen_bytes",
              "memory_bytes",
              "optimizer_bytes",
              "recompute",
              "tensor_parallel",
              "split",
              "exposed_sync_ms",
              "buckets",
              "device",
              "choices",
              "nest",
              "reduced_bytes",
              "team_bytes",
              "divided_bytes",
              "shard",
              "shard_degree",
              "all_reduce_core_ms",
              "forward_team_ms",
              "backward_team_ms",
              "forward_hidden_team_ms",
              "backward_hidden_team_ms"});
  PlanStage stage;
  for (const JsonNode& element : json["nodes"].elements()) {
    stage.nodes.push_back(element.integer(0, INT64_MAX));
    if (!seenNodes.insert(stage.nodes.back()).second)
      element.error() << "node " << stage.nodes.back() << " is in two places, expected one";
  }
  if (std::optional<JsonNode> names = json.find("node_names"))
    for (const JsonNode& element : names->elements()) stage.nodeNames.push_back(element.text());
  stage.replicas = readCount(json["replicas"], 1);
  stage.warmup = readCount(json["warmup"], 0);
  stage.syncDelay = readCount(json["sync_delay"], 0, 1);
  stage.forwardMs = json["forward_ms"].nonNegative();
  stage.inputGradientMs = json["input_gradient_ms"].nonNegative();
  stage.weightGradientMs = json["weight_gradient_ms"].nonNegative();
  stage.updateMs = optionalNumber(json, "update_ms");
  stage.forwardTeamMs = optionalNumber(json, "forward_team_ms");
  stage.backwardTeamMs = optionalNumber(json, "backward_team_ms");
  stage.forwardHiddenTeamMs = optionalNumber(json, "forward_hidden_team_ms");
  stage.backwardHiddenTeamMs = optionalNumber(json, "backward_hidden_team_ms");
  stage.allReduceMs = optionalNumber(json, "all_reduce_ms");
  stage.parameterBytes = optionalBytes(json, "parameter_bytes");
  stage.gradientBytes = optionalBytes(json, "gradient_bytes", stage.parameterBytes);
  stage.optimizerBytes = optionalBytes(json, "optimizer_bytes");
  stage.reducedBytes = optionalBytes(json, "reduced_bytes");
  stage.teamBytes = optionalBytes(json, "team_bytes");
  stage.dividedBytes = optionalBytes(json, "divided_bytes");
  stage.savedBytes = optionalBytes(json, "saved_bytes");
  stage.scratchBytes = optionalBytes(json, "scratch_bytes");
  stage.handoverBytes = optionalBytes(json, "handover_bytes");
  stage.frozenBytes = optionalBytes(json, "frozen_bytes");
  stage.memoryBytes = optionalBytes(json, "memory_bytes");
  if (std::optional<JsonNode> recompute = json.find("recompute")) stage.recompute = recompute->boolean();
  if (std::optional<JsonNode> degree = json.find("tensor_parallel")) stage.tensorParallel = readCount(*degree, 1);
  if (std::optional<JsonNode> split = json.find("split")) {
    if (const std::optional<TeamSplit> read = costSplitFromText(split->text()))
      stage.split = *read;
    else
      split->error() << "expected \"none\", \"tp:2\" or \"tp:2,all\", with 2 to 1024 members, got \"" << split->text()
                     << "\"";
  }
  if (std::optional<JsonNode> shard = json.find("shard")) {
    stage.sharding = policyNamed(shardings, shard->oneOf({"none", "optimizer", "weights"})).value_or(stage.sharding);
    if (stage.sharding != pdcrt::Sharding::none && stage.replicas == 1)
      shard->error() << "expected \"none\", because the stage has 1 replica, got \"" << shard->text() << "\"";
  }
  if (std::optional<JsonNode> degree = json.find("shard_degree")) {
    stage.shardDegree = readCount(*degree, 2);
    if (!stage.isSharded() || stage.shardDegree >= stage.replicas || stage.replicas % stage.shardDegree != 0)
      degree->error() << "expected a number below " << stage.replicas
                      << " that divides it, of a stage with \"shard\", got " << stage.shardDegree;
  }
  stage.allReduceCoreMs = optionalNumber(json, "all_reduce_core_ms");
  stage.exposedSyncMs = optionalNumber(json, "exposed_sync_ms");
  readBuckets(json, stage);
  stage.device = optionalText(json, "device");
  readChoices(json, stage);
  readNest(json, stage);
  return stage;
}

static PlanTensor readPlanTensor(const JsonNode& json, std::int64_t stages) {
  json.allow({"name", "from", "to", "bytes", "has_gradient", "codec"});
  PlanTensor tensor;
  tensor.name = json["name"].text();
  tensor.from = readCount(json["from"], 0, stages - 1);
  tensor.to = readCount(json["to"], 0, stages - 1);
  if (tensor.to <= tensor.from)
    json.error() << "expected a tensor that goes to a later stage, got one from stage " << tensor.from << " to stage "
                 << tensor.to;
  tensor.bytes = json["bytes"].bytes();
  tensor.hasGradient = json["has_gradient"].boolean();
  if (const std::optional<JsonNode> codec = json.find("codec")) {
    tensor.codec = edgeCodecFromText(codec->text());
    if (!tensor.codec)
      codec->error().help("write \"int8\", or \"int8,alpha=6,columns=4\", or leave it out")
          << "expected a codec of edges, got '" << codec->text() << "'";
  }
  return tensor;
}

static PlanGradient readGradient(const JsonNode& json, std::int64_t stages) {
  json.allow({"name", "from", "to", "bytes"});
  PlanGradient gradient{.name = json["name"].text(),
                        .from = readCount(json["from"], 0, stages - 1),
                        .to = readCount(json["to"], 0, stages - 1),
                        .bytes = json["bytes"].bytes()};
  if (gradient.to >= gradient.from)
    json.error() << "expected a gradient that goes to an earlier stage, got one from stage " << gradient.from
                 << " to stage " << gradient.to;
  return gradient;
}

static PlanSharedParameter readSharedParameter(const JsonNode& json, std::int64_t stages) {
  json.allow({"name", "bytes", "stages", "uses"});
  PlanSharedParameter shared;
  shared.name = json["name"].text();
  shared.bytes = json["bytes"].bytes();
  for (const JsonNode& element : json["stages"].elements()) {
    const int stage = readCount(element, 0, stages - 1);
    if (!shared.stages.empty() && stage <= shared.stages.back())
      element.error() << "expected a stage after stage " << shared.stages.back() << ", got " << stage;
    shared.stages.push_back(stage);
  }
  for (const JsonNode& element : json["uses"].elements()) shared.uses.push_back(readCount(element, 1));
  if (shared.stages.empty() || shared.uses.size() != shared.stages.size())
    json.error() << "expected at least one stage and its uses, got " << shared.stages.size() << " stages and uses of "
                 << shared.uses.size();
  return shared;
}

static PlanRank readRank(const JsonNode& json, const Plan& plan, std::set<std::pair<int, int>>& hosted) {
  json.allow({"rank", "devices", "hosts"});
  PlanRank rank;
  rank.rank = readCount(json["rank"], 0);
  if (rank.rank != static_cast<int>(plan.ranks.size()))
    json["rank"].error() << "expected rank " << plan.ranks.size() << ", got " << rank.rank;
  for (const JsonNode& element : json["devices"].elements())
    rank.devices.push_back(element.integer(0, plan.cluster.deviceCount() - 1));
  for (const JsonNode& element : json["hosts"].elements()) {
    element.allow({"stage", "replica"});
    PlanRank::Host host;
    host.stage = readCount(element["stage"], 0, static_cast<std::int64_t>(plan.stages.size()) - 1);
    if (plan.stages.empty()) break;
    host.replica = readCount(element["replica"], 0, plan.stages[host.stage].replicas - 1);
    if (!hosted.insert({host.stage, host.replica}).second)
      element.error() << "replica " << host.replica << " of stage " << host.stage << " is hosted twice";
    rank.hosts.push_back(host);
  }
  return rank;
}

static ScheduleKind readSchedule(const JsonNode& json) {
  std::string name = json.text();
  std::optional<ScheduleKind> kind = ScheduleKind::named(name);
  if (!kind) json.error() << "expected one of " << scheduleNamesText() << ", got '" << name << "'";
  return kind.value_or(ScheduleKind());
}

Expected<Plan> pdc::planFromJson(const std::string& text, const std::string& file, Diagnostics& diags) {
  Expected<JsonDocument> document = JsonDocument::parse(text, file, diags);
  if (!document) return failure;
  JsonNode root = document->root();
  root.allow({"model",        "model_hash",   "cost_source",   "schedule", "schedule_file",     "weights",
              "sync",         "microbatches", "gradient_norm", "time_ms",  "lower_bound_ms",    "optimal",
              "gap",          "cost_model",   "stages",        "tensors",  "shared_parameters", "ranks",
              "alternatives", "cluster",      "gradients"});
  Plan plan;
  plan.file = file;
  plan.model = optionalText(root, "model");
  plan.modelHash = optionalText(root, "model_hash");
  plan.costSource = optionalText(root, "cost_source");
  plan.schedule = readSchedule(root["schedule"]);
  plan.scheduleFile = optionalText(root, "schedule_file");
  if (std::optional<JsonNode> norm = root.find("gradient_norm")) plan.gradientNorm = norm->boolean();
  plan.weights =
      policyNamed(weightPolicies, root["weights"].oneOf({"stash", "vertical-sync", "latest"})).value_or(plan.weights);
  plan.sync = policyNamed(syncPolicies, root["sync"].oneOf({"overlap", "barrier"})).value_or(plan.sync);
  plan.microbatches = root["microbatches"].integer(1, largestCount);
  plan.timeMs = optionalNumber(root, "time_ms");
  plan.lowerBoundMs = optionalNumber(root, "lower_bound_ms");
  optionalNumber(root, "gap"); // follows from time and bound
  constexpr double rounding = 1 - 1e-6;
  if (plan.timeMs < plan.lowerBoundMs * rounding)
    root["lower_bound_ms"].error() << "expected at most time_ms, " << plan.timeMs << ", got " << plan.lowerBoundMs;
  if (std::optional<JsonNode> optimal = root.find("optimal")) plan.optimal = optimal->boolean();
  if (std::optional<JsonNode> model = root.find("cost_model")) plan.costModel = model->oneOf(costModels);
  const bool isPlacement = plan.costModel == "dnn-partitioning" || plan.costModel == "piper"; // devices without a place
  if (!isPlacement || root.find("cluster")) plan.cluster = readCluster(root["cluster"]);

  std::set<std::int64_t> seenNodes;
  JsonNode stages = root["stages"];
  for (const JsonNode& element : stages.elements()) plan.stages.push_back(readStage(element, seenNodes));
  if (document->ok() && plan.stages.empty()) stages.error() << "expected at least one stage";
  if (!document->ok()) return failure;
  for (const JsonNode& element : root["tensors"].elements())
    plan.tensors.push_back(readPlanTensor(element, static_cast<std::int64_t>(plan.stages.size())));
  if (std::optional<JsonNode> gradients = root.find("gradients")) {
    plan.gradients.emplace();
    for (const JsonNode& element : gradients->elements())
      plan.gradients->push_back(readGradient(element, static_cast<std::int64_t>(plan.stages.size())));
  }
  if (std::optional<JsonNode> shared = root.find("shared_parameters"))
    for (const JsonNode& element : shared->elements())
      plan.sharedParameters.push_back(readSharedParameter(element, static_cast<std::int64_t>(plan.stages.size())));
  if (std::optional<JsonNode> others = root.find("alternatives"))
    for (const JsonNode& element : others->elements()) {
      element.allow({"name", "time_ms", "reason"});
      plan.alternatives.push_back(
          {element["name"].text(), optionalNumber(element, "time_ms"), optionalText(element, "reason")});
    }
  std::set<std::pair<int, int>> hosted;
  JsonNode ranks = root["ranks"];
  for (const JsonNode& element : ranks.elements()) plan.ranks.push_back(readRank(element, plan, hosted));
  std::size_t replicas = 0;
  for (const PlanStage& stage : plan.stages) replicas += static_cast<std::size_t>(stage.replicas);
  if (document->ok() && hosted.size() != replicas && !(plan.ranks.empty() && plan.costModel != "pdc"))
    ranks.error().help("every replica of every stage needs a rank that hosts it")
        << "the stages have " << replicas << " replicas, the ranks host " << hosted.size();
  if (!document->ok()) return failure;
  for (PlanStage& stage : plan.stages) stage.hideSync(plan.schedule->splitsBackward); // times may have been edited
  return plan;
}
