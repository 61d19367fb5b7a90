// The model as a column of stages, with what crosses between them.
#include "Sections.h"
#include "pdc/Plan/PolicyText.h"
#include "pdc/Support/Names.h"
#include "pdc/Support/Units.h"

#include <algorithm>

using namespace pdc;

/// "rank 0", "ranks 0, 1, 2 … and 5 more".
static std::string placesOf(const char* noun, const std::vector<std::int64_t>& numbers) {
  constexpr std::size_t shown = 8;
  std::string result = noun + std::string(numbers.size() == 1 ? " " : "s ");
  for (std::size_t i = 0; i < std::min(shown, numbers.size()); ++i)
    result += (i > 0 ? ", " : "") + std::to_string(numbers[i]);
  std::string more = andMore(numbers.size(), shown);
  return result + (more.empty() ? "" : " " + more);
}

static std::string namesOf(const PlanStage& stage) {
  std::vector<std::string> names = stage.nodeNames;
  if (names.empty())
    for (std::int64_t node : stage.nodes) names.push_back("node " + std::to_string(node));
  auto list = [&](std::size_t from, std::size_t to) {
    std::string items;
    for (std::size_t i = from; i < to; ++i)
      items += "<li>" + escaped(shortened(names[i], most::nameLength)) + "</li>\n";
    return items.empty() ? "" : "<ul>\n" + items + "</ul>\n";
  };
  std::size_t first = std::min(names.size(), most::namesShown), last = std::min(names.size(), most::namesOfStage);
  std::string result = list(0, first);
  if (last > first)
    result += "<details><summary>" + counted(static_cast<std::int64_t>(names.size() - first), "more node") +
              "</summary>\n" + list(first, last) +
              (names.size() > last ? "<p class=\"note\">" + andMore(names.size(), last) + "</p>" : "") + "</details>\n";
  return result;
}

/// What a replica computes per minibatch of the pipeline, against the time per minibatch.
static std::string loadBar(const ReportData& data, int s, double fullMs) {
  const PlanStage& stage = data.plan.stages[s];
  constexpr double width = 1040, height = 14;
  double scale = fullMs > 0 ? width / fullMs : 0, x = 0;
  std::string body = box(0, 0, width, height, "row");
  auto part = [&](double ms, const char* kind, const char* pattern, const char* name) {
    double length = ms / stage.replicas * scale;
    if (length <= 0) return;
    std::string hover = std::string(name) + " " + timeText(ms);
    body += box(x, 0, length, height, kind, hover);
    if (*pattern) body += box(x, 0, length, height, pattern, hover);
    x += length;
  };
  part(stage.forwardMs - stage.forwardTeamMs, "f", "", "forward");
  const double gradientsMs = stage.inputGradientMs + stage.weightGradientMs;
  const double computed = gradientsMs > 0 ? 1 - stage.backwardTeamMs / gradientsMs : 0;
  part(computed * stage.inputGradientMs, "i", "", "input gradient");
  part(computed * stage.weightGradientMs, "w", "hatch", "weight gradient");
  part(stage.forwardTeamMs + stage.backwardTeamMs, "m", "", "waits within the team");
  part(stage.updateMs * stage.replicas / static_cast<double>(data.schedule.minibatchesOfUpdate(s)), "u", "", "update");
  return picture(width, height, "load of stage " + std::to_string(s), body);
}

static std::string cardOf(const ReportData& data, int s, double fullMs) {
  const PlanStage& stage = data.plan.stages[s];
  const pdcrt::ScheduleStage& frame = data.schedule.stages[s];
  std::vector<std::int64_t> ranks, devices;
  for (const PlanRank& rank : data.plan.ranks)
    for (const PlanRank::Host& host : rank.hosts)
      if (host.stage == s) {
        ranks.push_back(rank.rank);
        devices.insert(devices.end(), rank.devices.begin(), rank.devices.end());
      }
  std::string device = !stage.device.empty() ? stage.device
                       : devices.empty() || data.plan.cluster.levels.empty()
                           ? ""
                           : data.plan.cluster.deviceAt(devices[0]).name;
  std::string places = counted(stage.replicas, "replica");
  if (!ranks.empty()) places += " · " + placesOf("rank", ranks);
  if (!devices.empty()) places += " · " + placesOf("device", devices) + (device.empty() ? "" : " (" + device + ")");
  std::string facts = "<dl>";
  auto fact = [&](const char* name, const std::string& value) {
    facts += std::string("<div><dt>") + name + "</dt><dd>" + escaped(value) + "</dd></div>";
  };
  fact("forward", timeText(stage.forwardMs));
  fact("backward", timeText(stage.inputGradientMs) + " + " + timeText(stage.weightGradientMs));
  if (stage.exposedTeamMs() > 0) fact("waits within the team", timeText(stage.exposedTeamMs()));
  if (stage.hiddenTeamMs() > 0) fact("hidden of the team", timeText(stage.hiddenTeamMs()));
  if (stage.updateMs > 0) fact("update", timeText(stage.updateMs));
  if (stage.allReduceMs > 0) fact("all-reduce", timeText(stage.allReduceMs));
  if (stage.isSharded())
    fact("divided by its replicas",
         nameOf(stage.sharding) + (stage.shardDegree > 0 ? ", in groups of " + std::to_string(stage.shardDegree) : ""));
  fact("parameters", sizeText(stage.parameterBytes));
  if (stage.frozenBytes > 0) fact("frozen", sizeText(stage.frozenBytes));
  fact("in flight", counted(frame.slots, "minibatch"));
  fact("weight versions", std::to_string(frame.versions));
  if (stage.recompute) fact("recomputes", "its forward");
  facts += "</dl>";
  return "<div class=\"stage\">\n<h3>Stage " + std::to_string(s) + "<small>" + escaped(places) + "</small></h3>\n" +
         loadBar(data, s, fullMs) + facts + "\n" + namesOf(stage) + "</div>\n";
}

/// What leaves a stage: each tensor once, with the stages that it goes to if that is not just the next one.
static std::string cutAfter(const ReportData& data, int s) {
  constexpr std::size_t shown = 4;
  std::int64_t forward = 0, backward = 0;
  std::vector<std::pair<std::string, std::vector<int>>> tensors;
  for (const PlanTensor& tensor : data.plan.tensors) {
    if (tensor.from != s) continue;
    forward += tensor.bytes;
    backward += tensor.hasGradient ? tensor.bytes : 0;
    auto known = std::find_if(tensors.begin(), tensors.end(), [&](const auto& t) { return t.first == tensor.name; });
    if (known == tensors.end()) known = tensors.insert(tensors.end(), {tensor.name, {}});
    known->second.push_back(tensor.to);
  }
  if (tensors.empty()) return "";
  std::string names;
  for (std::size_t i = 0; i < std::min(shown, tensors.size()); ++i) {
    const auto& [name, to] = tensors[i];
    names += (i > 0 ? ", " : "") + std::string("<code>") + escaped(shortened(name, 80)) + "</code>";
    if (to.size() == 1 && to[0] == s + 1) continue;
    names += " (to " + placesOf("stage", std::vector<std::int64_t>(to.begin(), to.end())) + ")";
  }
  std::string more = andMore(tensors.size(), shown);
  return "<div class=\"cut\">↓ <b>" + escaped(sizeText(forward)) + "</b>" +
         (backward > 0 ? " &nbsp;↑ <b>" + escaped(sizeText(backward)) + "</b> of gradients" : "") +
         " per minibatch: " + names + (more.empty() ? "" : " " + more) + "</div>\n";
}

std::string pdc::stagesSection(const ReportData& data) {
  double fullMs = data.prediction.timePerMinibatchMs;
  for (std::size_t s = 0; s < data.plan.stages.size(); ++s) {
    const PlanStage& stage = data.plan.stages[s];
    fullMs = std::max(fullMs, (stage.computeMs() + stage.updateMs) / stage.replicas);
  }
  std::vector<std::pair<const char*, const char*>> entries = {
      {"f", "forward"}, {"i", "input gradient"}, {"w hatch", "weight gradient"}, {"u", "update"}};
  const auto waits = [](const PlanStage& stage) { return stage.forwardTeamMs + stage.backwardTeamMs > 0; };
  if (std::any_of(data.plan.stages.begin(), data.plan.stages.end(), waits))
    entries.insert(entries.end() - 1, {"m", "waits within the team"});
  std::string body = legend(entries);
  std::size_t shown = std::min(data.plan.stages.size(), most::stages);
  for (std::size_t s = 0; s < shown; ++s) {
    body += cardOf(data, static_cast<int>(s), fullMs);
    if (s + 1 < data.plan.stages.size()) body += cutAfter(data, static_cast<int>(s));
  }
  if (std::string more = andMore(data.plan.stages.size(), shown); !more.empty())
    body += "<p class=\"note\">" + more + "</p>\n";
  return section(
      "stages", "Stages",
      "From the input down to the loss, by the names of the ONNX nodes. Each bar is what a device computes per "
      "minibatch; its full width is " +
          escaped(timeText(fullMs)) + ", and what stays grey is idle or waiting.",
      body);
}
