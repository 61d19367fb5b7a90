// A ring under a lock that is hardly ever contended.
#include "pdcrt/FlightRecorder.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace pdcrt {

void FlightRecorder::begin(const Action& action, double time) {
  std::lock_guard lock(mutex_);
  if (count_ > 0) {
    Entry& last = entries_[static_cast<std::size_t>(count_ - 1) % size];
    if (last.end == 0) last.end = time;
  }
  entries_[static_cast<std::size_t>(count_++) % size] = {action, time, 0};
  collective_ = nullptr;
}

void FlightRecorder::end(double time) {
  std::lock_guard lock(mutex_);
  if (count_ > 0) entries_[static_cast<std::size_t>(count_ - 1) % size].end = time;
}

void FlightRecorder::enter(RunPhase phase) {
  std::lock_guard lock(mutex_);
  phase_ = phase;
}

void FlightRecorder::await(const char* collective, int number) {
  std::lock_guard lock(mutex_);
  collective_ = collective;
  number_ = number;
}

void FlightRecorder::met() {
  std::lock_guard lock(mutex_);
  collective_ = nullptr;
}

std::string toString(const FlightRecorder::Now& now) {
  if (now.count == 0) return "-";
  if (!now.collective) return toString(now.action);
  return "?" + toString(now.action) + "." + now.collective + "-" + std::to_string(now.number);
}

FlightRecorder::Now FlightRecorder::now() const {
  std::lock_guard lock(mutex_);
  Now result = {.count = count_, .phase = phase_, .collective = collective_, .number = number_};
  if (count_ == 0) return result;
  const Entry& last = entries_[static_cast<std::size_t>(count_ - 1) % size];
  result.running = last.end == 0;
  result.action = last.action;
  result.since = result.running ? last.begin : last.end;
  return result;
}

std::string FlightRecorder::toJson(double time, const std::string& why) const {
  using Json = nlohmann::ordered_json;
  constexpr const char* phases[] = {"starting", "training", "finishing", "joining"};
  std::lock_guard lock(mutex_);
  Json json = {{"rank", rank_}, {"why", why}, {"phase", phases[static_cast<std::size_t>(phase_)]}, {"actions", count_}};
  if (member_ >= 0) json["member"] = member_;
  if (collective_) json["awaits"] = std::string(collective_) + " " + std::to_string(number_);
  for (const Host& host : hosts_) json["stages"].push_back({{"stage", host.stage}, {"replica", host.replica}});
  Json last = Json::array();
  for (std::int64_t i = std::max<std::int64_t>(0, count_ - static_cast<std::int64_t>(size)); i < count_; ++i) {
    const Entry& entry = entries_[static_cast<std::size_t>(i) % size];
    Json row = {{"action", toString(entry.action)}, {"begin_ms", (entry.begin - time) * 1e3}};
    row["took_ms"] = entry.end == 0 ? Json() : Json((entry.end - entry.begin) * 1e3); // null: it is not over
    last.push_back(std::move(row));
  }
  json["last"] = std::move(last);
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string recordingOf(const std::string& folder, int rank) {
  return folder + "/flight-rank" + std::to_string(rank) + ".json";
}

} // namespace pdcrt
