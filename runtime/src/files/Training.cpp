// training.json, and the learning-rate schedules.
#include "pdcrt/Training.h"

#include "pdcrt/Shape.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>
#include <regex.h>

namespace pdcrt {

using Json = nlohmann::ordered_json;

NLOHMANN_JSON_SERIALIZE_ENUM(OptimizerKind, {{OptimizerKind::sgd, "sgd"},
                                             {OptimizerKind::momentum, "momentum"},
                                             {OptimizerKind::adam, "adam"},
                                             {OptimizerKind::adamw, "adamw"}})

namespace {

const char* nameOf(LearningRateSchedule::Kind kind) {
  switch (kind) {
  case LearningRateSchedule::Kind::constant: return "constant";
  case LearningRateSchedule::Kind::step: return "step";
  case LearningRateSchedule::Kind::cosine: return "cosine";
  }
  return "";
}

/// Reads keys of an object, remembering the first problem.
class SettingsReader {
public:
  SettingsReader(const Json& object, std::string place) : object_(object), place_(std::move(place)) {}

  template <class Number>
  void number(const char* key, Number& value, double least) {
    known_.push_back(key);
    const Json* found = find(key);
    if (!found) return;
    bool right = std::is_floating_point_v<Number> ? found->is_number() : found->is_number_integer();
    if (!right || found->get<double>() < least || !std::isfinite(found->get<double>()))
      fail(key, *found,
           std::string(std::is_floating_point_v<Number> ? "a number" : "a whole number") + " of at least " +
               Json(least).dump());
    else
      value = found->get<Number>();
  }
  void numbers(const char* key, std::vector<double>& values, double least) {
    const auto is = [&](const Json& value) { return value.is_number() && value.get<double>() >= least; };
    list(key, values, is, "a list of numbers of at least " + Json(least).dump());
  }
  void texts(const char* key, std::vector<std::string>& values) {
    list(
        key, values, [](const Json& value) { return value.is_string(); }, "a list of texts");
  }
  void text(const char* key, std::string& value, std::initializer_list<const char*> choices) {
    known_.push_back(key);
    const Json* found = find(key);
    if (!found) return;
    std::string expected;
    for (const char* choice : choices) {
      if (found->is_string() && found->get_ref<const std::string&>() == choice) {
        value = choice;
        return;
      }
      expected += (expected.empty() ? "" : ", ") + std::string(choice);
    }
    fail(key, *found, "one of " + expected);
  }
  const Json* object(const char* key) {
    known_.push_back(key);
    return find(key);
  }
  void fail(const std::string& key, const Json& value, const std::string& expected) {
    if (problem_.empty()) problem_ = place_ + key + " is " + value.dump() + ", expected " + expected;
  }
  /// The first problem, unknown keys included; empty if there is none.
  std::string finish() {
    for (const auto& [key, value] : object_.items())
      if (std::find(known_.begin(), known_.end(), key) == known_.end()) fail(key, value, "no such key");
    return problem_;
  }

private:
  /// A list whose values all are `expected`.
  template <class Value, class Is>
  void list(const char* key, std::vector<Value>& values, const Is& is, const std::string& expected) {
    known_.push_back(key);
    const Json* found = find(key);
    if (!found) return;
    values.clear();
    if (!found->is_array() || !std::all_of(found->begin(), found->end(), is)) return fail(key, *found, expected);
    for (const Json& value : *found) values.push_back(value.get<Value>());
  }
  const Json* find(const char* key) const {
    auto at = object_.find(key);
    return at == object_.end() || at->is_null() ? nullptr : &*at;
  }

  const Json& object_;
  std::string place_, problem_;
  std::vector<std::string> known_;
};

void readSchedule(const Json& json, LearningRateSchedule& schedule, std::string& problem) {
  if (!json.is_object()) {
    problem = "/lr_schedule is " + json.dump() + ", expected an object";
    return;
  }
  SettingsReader reader(json, "/lr_schedule/");
  std::string kind = "constant";
  reader.text("kind", kind, {"constant", "step", "cosine"});
  reader.number("period", schedule.period, 1);
  reader.number("factor", schedule.factor, 0);
  reader.number("warmup", schedule.warmup, 0);
  using Kind = LearningRateSchedule::Kind;
  schedule.kind = kind == "step" ? Kind::step : kind == "cosine" ? Kind::cosine : Kind::constant;
  problem = reader.finish();
}

} // namespace

namespace {

constexpr const char* vectors = "@vectors";

/// A compiled POSIX extended regular expression.
class Expression {
public:
  explicit Expression(const std::string& text)
      : valid_(::regcomp(&expression_, text.c_str(), REG_EXTENDED | REG_NOSUB) == 0) {}
  ~Expression() {
    if (valid_) ::regfree(&expression_);
  }
  Expression(const Expression&) = delete;
  Expression& operator=(const Expression&) = delete;
  bool valid() const { return valid_; }
  bool foundIn(const std::string& text) const {
    return valid_ && ::regexec(&expression_, text.c_str(), 0, nullptr, 0) == 0;
  }

private:
  regex_t expression_{};
  bool valid_;
};

void readGroups(const Json& json, std::vector<ParameterGroup>& groups, std::string& problem) {
  if (!json.is_array()) {
    problem = "/parameter_groups is " + json.dump() + ", expected a list";
    return;
  }
  for (const Json& object : json) {
    const std::string place = "/parameter_groups/" + std::to_string(groups.size()) + "/";
    if (!object.is_object() || !object.contains("match") || !object["match"].is_string() ||
        !isParameterMatch(object["match"].get<std::string>())) {
      problem = place + "match is " + (object.is_object() ? object.value("match", Json()).dump() : object.dump()) +
                ", expected a regular expression or \"@vectors\"";
      return;
    }
    SettingsReader reader(object, place);
    reader.object("match");
    ParameterGroup group{.match = object["match"].get<std::string>(), .learningRate = {}, .weightDecay = {}};
    double rate = 0, decay = 0;
    reader.number("lr", rate, 0);
    reader.number("weight_decay", decay, 0);
    if (reader.object("lr")) group.learningRate = rate;
    if (reader.object("weight_decay")) group.weightDecay = decay;
    if (std::string first = reader.finish(); !first.empty()) problem = first;
    groups.push_back(std::move(group));
  }
}

Json groupsToJson(const std::vector<ParameterGroup>& groups) {
  Json list = Json::array();
  for (const ParameterGroup& group : groups) {
    Json object = {{"match", group.match}};
    if (group.learningRate) object["lr"] = *group.learningRate;
    if (group.weightDecay) object["weight_decay"] = *group.weightDecay;
    list.push_back(std::move(object));
  }
  return list;
}

Json batchAxesToJson(const std::map<std::string, int>& axes) {
  Json object = Json::object();
  for (const auto& [name, axis] : axes) object[name] = axis == noBatchAxis ? Json(nullptr) : Json(axis);
  return object;
}

bool readBatchAxes(const Json& object, std::map<std::string, int>& axes) {
  if (!object.is_object()) return false;
  for (const auto& [name, axis] : object.items()) {
    if (!axis.is_null() && (!axis.is_number_integer() || axis < 0 || axis >= maxRank)) return false;
    axes[name] = axis.is_null() ? noBatchAxis : axis.get<int>();
  }
  return true;
}

} // namespace

bool isParameterMatch(const std::string& text) {
  return !text.empty() && (text == vectors || Expression(text).valid());
}

bool matches(const ParameterGroup& group, const std::string& name, int rank) {
  return group.match == vectors ? rank <= 1 : Expression(group.match).foundIn(name);
}

double LearningRateSchedule::at(double learningRate, std::int64_t minibatch) const {
  double rate = learningRate;
  if (kind == Kind::step)
    rate *= std::pow(factor, static_cast<double>(minibatch / period));
  else if (kind == Kind::cosine)
    rate *= (1 + std::cos(std::numbers::pi * static_cast<double>(std::min(minibatch, period)) /
                          static_cast<double>(period))) /
            2;
  if (minibatch < warmup) rate *= static_cast<double>(minibatch) / static_cast<double>(warmup);
  return rate;
}

std::string outputOfMetric(const std::string& metric) {
  constexpr std::string_view prefix = "output:";
  return metric.starts_with(prefix) ? metric.substr(prefix.size()) : std::string();
}

std::optional<std::size_t> placeOf(const std::vector<std::string>& names, std::string_view name) {
  const auto found = std::find(names.begin(), names.end(), name);
  return found == names.end() ? std::nullopt : std::optional(static_cast<std::size_t>(found - names.begin()));
}

static const char* nameOf(NonFinite what) {
  return what == NonFinite::take ? "take" : what == NonFinite::skip ? "skip" : "stop";
}

std::string toJson(const Training& t) {
  Json schedule = {{"kind", nameOf(t.schedule.kind)}};
  if (t.schedule.kind != LearningRateSchedule::Kind::constant) schedule["period"] = t.schedule.period;
  if (t.schedule.kind == LearningRateSchedule::Kind::step) schedule["factor"] = t.schedule.factor;
  if (t.schedule.warmup) schedule["warmup"] = t.schedule.warmup;
  Json json = {{"optimizer", t.optimizer},
               {"lr", t.learningRate},
               {"momentum", t.momentum},
               {"nesterov", t.nesterov},
               {"weight_decay", t.weightDecay},
               {"betas", {t.beta1, t.beta2}},
               {"eps", t.epsilon},
               {"parameter_groups", groupsToJson(t.groups)},
               {"lr_schedule", schedule},
               {"clip_norm", nullptr},
               {"clip_scope", t.clipScope == ClipScope::global ? "global" : "stage"},
               {"loss_scale", t.lossScale},
               {"loss_scale_interval", t.lossScaleInterval},
               {"non_finite", nameOf(t.nonFinite)},
               {"seed", t.seed},
               {"batch", t.batch},
               {"batch_axes", batchAxesToJson(t.batchAxes)},
               {"loss", t.loss},
               {"ignore_index", nullptr},
               {"label_smoothing", t.labelSmoothing},
               {"class_weights", t.classWeights},
               {"metric", t.metric}};
  if (!t.terms.empty()) json["terms"] = t.terms; // most models have none
  if (!t.loads.empty()) json["loads"] = t.loads;
  if (t.clipNorm) json["clip_norm"] = std::isinf(*t.clipNorm) ? Json("inf") : Json(*t.clipNorm);
  if (t.ignoreIndex) json["ignore_index"] = *t.ignoreIndex;
  return json.dump(2) + "\n";
}

Status parseTraining(const std::string& text, const std::string& file, Training& training) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  auto bad = [&](const std::string& what) { return Status(Exit::invalid, file + ": " + what); };
  if (!json.is_object()) return bad("is not a JSON object");

  SettingsReader reader(json, "/");
  std::string optimizer = "sgd", problem;
  reader.text("optimizer", optimizer, {"sgd", "momentum", "adam", "adamw"});
  reader.number("lr", training.learningRate, 0);
  reader.number("momentum", training.momentum, 0);
  if (const Json* nesterov = reader.object("nesterov")) {
    if (nesterov->is_boolean())
      training.nesterov = nesterov->get<bool>();
    else
      reader.fail("nesterov", *nesterov, "true or false");
  }
  reader.number("weight_decay", training.weightDecay, 0);
  if (const Json* betas = reader.object("betas")) {
    if (betas->is_array() && betas->size() == 2 && (*betas)[0].is_number() && (*betas)[1].is_number()) {
      training.beta1 = (*betas)[0].get<double>();
      training.beta2 = (*betas)[1].get<double>();
    } else {
      reader.fail("betas", *betas, "two numbers");
    }
  }
  reader.number("eps", training.epsilon, 0);
  if (const Json* groups = reader.object("parameter_groups")) readGroups(*groups, training.groups, problem);
  if (const Json* clip = reader.object("clip_norm")) {
    if (clip->is_number() && clip->get<double>() > 0)
      training.clipNorm = clip->get<double>();
    else if (*clip == "inf")
      training.clipNorm = HUGE_VAL;
    else
      reader.fail("clip_norm", *clip, "a number above 0, \"inf\" or null");
  }
  std::string scope = "global";
  reader.text("clip_scope", scope, {"global", "stage"});
  training.clipScope = scope == "stage" ? ClipScope::stage : ClipScope::global;
  reader.number("loss_scale", training.lossScale, 0);
  if (training.lossScale == 0) reader.fail("loss_scale", 0, "a number above 0");
  reader.number("loss_scale_interval", training.lossScaleInterval, 0);
  std::string nonFinite = "take";
  reader.text("non_finite", nonFinite, {"take", "skip", "stop"});
  training.nonFinite = nonFinite == "skip" ? NonFinite::skip : nonFinite == "stop" ? NonFinite::stop : NonFinite::take;
  if (const Json* schedule = reader.object("lr_schedule")) readSchedule(*schedule, training.schedule, problem);
  reader.number("seed", training.seed, 0);
  reader.number("batch", training.batch, 1);
  if (const Json* axes = reader.object("batch_axes"))
    if (!readBatchAxes(*axes, training.batchAxes))
      reader.fail("batch_axes", *axes, "an object with an axis, or null, for each name");
  reader.text("loss", training.loss, {"softmax-cross-entropy", "nll", "mse", "bce-with-logits", "bce", "output"});
  std::int64_t ignored = 0;
  reader.number("ignore_index", ignored, -1e18);
  if (reader.object("ignore_index")) training.ignoreIndex = ignored;
  reader.number("label_smoothing", training.labelSmoothing, 0);
  reader.numbers("class_weights", training.classWeights, 0);
  if (const Json* metric = reader.object("metric"); metric && metric->is_string() && !outputOfMetric(*metric).empty())
    training.metric = *metric;
  else
    reader.text("metric", training.metric, {"accuracy", "top5", "perplexity", "mse", "none", "output:NAME"});
  reader.texts("terms", training.terms);
  reader.texts("loads", training.loads);
  training.optimizer = Json(optimizer).get<OptimizerKind>();
  if (std::string first = reader.finish(); !first.empty()) problem = first;
  return problem.empty() ? Status() : bad(problem);
}

const char* nameOf(OptimizerKind kind) {
  constexpr const char* names[] = {"sgd", "momentum", "adam", "adamw"};
  return names[static_cast<std::size_t>(kind)];
}

} // namespace pdcrt
