// A manifest is accepted only where it is, byte by byte, what toJson makes of what was read from it: so there is one
// way to write each, and no change of a file goes unseen.
#include "pdcrt/Checkpoint.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace pdcrt {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kindNames[] = {"weights", "optimizer", "state"};

std::string hex32(std::uint32_t value) {
  char text[9];
  std::snprintf(text, sizeof text, "%08" PRIx32, value);
  return text;
}

/// 1 where no tensor is divided, as older versions write and read it.
int formatOf(const Manifest& m) {
  const auto several = [](int count) { return count != 1; };
  if (std::any_of(m.owners.begin(), m.owners.end(), several)) return 3;
  return std::any_of(m.members.begin(), m.members.end(), several) ? 2 : 1;
}

Json shardJson(const Shard& shard, int format) {
  Json json = {{"file", fileOf(shard)},
               {"kind", kindNames[static_cast<std::size_t>(shard.kind)]},
               {"stage", shard.stage},
               {"replica", shard.replica}};
  if (format >= 2) json["member"] = shard.member;
  json["bytes"] = shard.sum.bytes;
  json["crc32c"] = hex32(shard.sum.crc);
  return json;
}

/// The line that ends a manifest whose text before it is `body`.
std::string lastLine(const std::string& body) {
  return " \"crc32c\": \"" + hex32(extended({}, std::as_bytes(std::span(body))).crc) + "\"\n}\n";
}

/// nlohmann's conversion of a fraction to an integer that cannot hold it is undefined.
template <class Integer>
void readInteger(const Json& json, Integer& integer) {
  if (!json.is_number_integer()) throw std::invalid_argument("has " + json.dump() + " where an integer must be");
  json.get_to(integer);
}

void read(const Json& json, int format, Shard& shard) {
  const auto kind = json.at("kind").get<std::string>();
  for (std::size_t i = 0; i < std::size(kindNames); ++i)
    if (kind == kindNames[i]) shard.kind = static_cast<ShardKind>(i);
  readInteger(json.at("stage"), shard.stage);
  readInteger(json.at("replica"), shard.replica);
  if (format >= 2) readInteger(json.at("member"), shard.member);
  readInteger(json.at("bytes"), shard.sum.bytes);
  shard.sum.crc = static_cast<std::uint32_t>(std::stoul(json.at("crc32c").get<std::string>(), nullptr, 16));
}

/// Throws where something is missing or of another type.
void read(const Json& json, int format, Manifest& m) {
  readInteger(json.at("minibatches"), m.minibatches);
  readInteger(json.at("minibatches_per_update"), m.minibatchesPerUpdate);
  const Json& data = json.at("data");
  readInteger(data.at("batch"), m.batch);
  readInteger(data.at("samples"), m.samples);
  readInteger(data.at("seed"), m.seed);
  data.at("shuffle").get_to(m.shuffle);
  json.at("optimizer").get_to(m.optimizer);
  json.at("lr").get_to(m.learningRate);
  json.at("loss_scale").at("scale").get_to(m.lossScale);
  readInteger(json.at("loss_scale").at("finite_steps"), m.finiteSteps);
  json.at("model_hash").get_to(m.modelHash);
  for (const Json& replicas : json.at("replicas")) readInteger(replicas, m.replicas.emplace_back());
  m.members.assign(m.replicas.size(), 1);
  if (format >= 2) {
    m.members.clear();
    for (const Json& members : json.at("members")) readInteger(members, m.members.emplace_back());
  }
  m.owners.assign(m.replicas.size(), 1);
  if (format == 3) {
    m.owners.clear();
    for (const Json& owners : json.at("owners")) readInteger(owners, m.owners.emplace_back());
  }
  for (const Json& shard : json.at("shards")) read(shard, format, m.shards.emplace_back());
}

/// Every shard of every stage, once, in their order. Replicas without state have none; those whose state is whole have
/// that of member 0. Owners of the weights have those and the state in one file.
bool isWhole(const Manifest& m) {
  std::size_t next = 0;
  // How many members have this shard, one after the other from 0 on.
  auto take = [&](ShardKind kind, int stage, int replica) {
    int members = 0;
    while (next < m.shards.size() && m.shards[next].kind == kind && m.shards[next].stage == stage &&
           m.shards[next].replica == replica && m.shards[next].member == members)
      ++next, ++members;
    return members;
  };
  if (m.members.size() != m.replicas.size() || m.owners.size() != m.replicas.size()) return false;
  for (int stage = 0; stage < static_cast<int>(m.replicas.size()); ++stage) {
    const int replicas = m.replicas[static_cast<std::size_t>(stage)],
              members = m.members[static_cast<std::size_t>(stage)];
    const int owners = m.owners[static_cast<std::size_t>(stage)];
    if (replicas < 1 || members < 1 || members > mostMembers || owners < 1 || replicas % owners != 0) return false;
    for (const ShardKind kind : {ShardKind::weights, ShardKind::optimizer})
      for (int owner = 0; owner < owners; ++owner)
        if (take(kind, stage, owner) != members) return false;
    if (owners == replicas) continue;
    const int state = take(ShardKind::state, stage, owners);
    for (int replica = owners + 1; replica < replicas; ++replica)
      if (take(ShardKind::state, stage, replica) != state) return false;
    if (state > 0 && state != 1 && state != members) return false;
  }
  return next == m.shards.size() && next > 0;
}

} // namespace

std::string fileOf(const Shard& shard) {
  std::string name = "stage" + std::to_string(shard.stage);
  if (shard.kind == ShardKind::optimizer) name += ".optimizer";
  if (shard.replica > 0) name += ".replica" + std::to_string(shard.replica);
  return name + memberSuffix(shard.member) + ".safetensors";
}

std::string toJson(const Manifest& m) {
  const int format = formatOf(m);
  Json json = {{"format", format},
               {"minibatches", m.minibatches},
               {"minibatches_per_update", m.minibatchesPerUpdate},
               {"step", m.minibatches / (m.minibatchesPerUpdate > 0 ? m.minibatchesPerUpdate : 1)},
               {"data", {{"batch", m.batch}, {"samples", m.samples}, {"seed", m.seed}, {"shuffle", m.shuffle}}},
               {"optimizer", m.optimizer},
               {"lr", m.learningRate},
               {"loss_scale", {{"scale", m.lossScale}, {"finite_steps", m.finiteSteps}}},
               {"model_hash", m.modelHash},
               {"replicas", m.replicas}};
  if (format >= 2) json["members"] = m.members;
  if (format == 3) json["owners"] = m.owners;
  Json shards = Json::array();
  for (const Shard& shard : m.shards) shards.push_back(shardJson(shard, format));
  json["shards"] = std::move(shards);
  std::string body = json.dump(1, ' ', false, Json::error_handler_t::replace);
  body.erase(body.rfind("\n}"));
  body += ",\n";
  return body + lastLine(body);
}

Status parseManifest(const std::string& text, const std::string& file, Manifest& manifest) {
  auto bad = [&](const std::string& why) { return Status(Exit::badData, file + ": " + why); };
  const std::size_t length = lastLine("").size();
  const std::string body = text.substr(0, text.size() < length ? 0 : text.size() - length);
  if (text.size() < length || text.substr(body.size()) != lastLine(body))
    return bad("is damaged: its checksum is not that of its text");
  Manifest result;
  try {
    const Json json = Json::parse(text);
    std::int64_t format = 0;
    readInteger(json.at("format"), format);
    if (format < 1 || format > 3)
      return bad("has the format " + std::to_string(format) + ", this version reads 1 to 3");
    read(json, static_cast<int>(format), result);
  } catch (const std::exception& error) {
    return bad(std::string("is not a manifest: ") + error.what());
  }
  if (toJson(result) != text || !isWhole(result) || result.minibatches < 0 || result.minibatchesPerUpdate < 0)
    return bad("is not a manifest as this version writes it");
  manifest = std::move(result);
  return {};
}

} // namespace pdcrt
