// A folder is a checkpoint from the moment on in which its manifest has its name.
#include "pdcrt/Checkpoint.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <sys/stat.h>

namespace pdcrt {
namespace {

constexpr const char* manifestName = "manifest.json";
constexpr std::string_view prefix = "checkpoint-", frozenPrefix = "frozen/";

/// The number in the name of a checkpoint's folder; -1: it is no such name.
std::int64_t numberOf(const std::string& name) {
  if (name.size() < prefix.size() + 10 || name.size() > prefix.size() + 18 || name.rfind(prefix, 0) != 0) return -1;
  std::int64_t number = 0;
  for (char c : name.substr(prefix.size())) {
    if (c < '0' || c > '9') return -1;
    number = 10 * number + (c - '0');
  }
  return number;
}

FileSum sumOf(const MappedFile& file) {
  FileSum sum;
  constexpr std::size_t piece = 1 << 20;
  for (std::span<const std::byte> rest = file.bytes(); !rest.empty(); rest = rest.subspan(std::min(piece, rest.size())))
    sum = extended(sum, rest.first(std::min(piece, rest.size())));
  return sum;
}

} // namespace

std::pair<std::string, std::string> frozenMetadata(const std::string& name, const FileSum& sum) {
  char text[40];
  std::snprintf(text, sizeof text, "%llu %08" PRIx32, static_cast<unsigned long long>(sum.bytes), sum.crc);
  return {std::string(frozenPrefix) + name, text};
}

std::string checkpointFolder(const std::string& directory, std::int64_t minibatches) {
  char name[32];
  std::snprintf(name, sizeof name, "%s%010lld", prefix.data(), static_cast<long long>(minibatches));
  return directory + "/" + name;
}

std::vector<CheckpointEntry> listCheckpoints(const std::string& directory) {
  std::vector<CheckpointEntry> entries;
  std::error_code error;
  for (auto at = std::filesystem::directory_iterator(directory, error); !error && at != decltype(at)();
       at.increment(error)) {
    const std::int64_t number = numberOf(at->path().filename().string());
    std::error_code ignored;
    if (number >= 0) entries.push_back({number, std::filesystem::exists(at->path() / manifestName, ignored)});
  }
  std::sort(entries.begin(), entries.end(),
            [](const CheckpointEntry& a, const CheckpointEntry& b) { return a.minibatches < b.minibatches; });
  return entries;
}

Status readManifest(const std::string& directory, std::int64_t minibatches, Manifest& manifest) {
  const std::string file = checkpointFolder(directory, minibatches) + "/" + manifestName;
  std::string text;
  if (Status status = readText(file, text); !status) return status;
  if (Status status = parseManifest(text, file, manifest); !status) return status;
  if (manifest.minibatches != minibatches)
    return {Exit::badData, file + ": is that of a checkpoint after " + std::to_string(manifest.minibatches) +
                               " minibatches, the folder's is after " + std::to_string(minibatches)};
  return {};
}

Status verifyCheckpoint(const std::string& directory, std::int64_t minibatches) {
  CheckpointReader reader;
  if (Status status = reader.open(directory, minibatches); !status) return status;
  for (const Shard& shard : reader.manifest().shards)
    if (Status status = reader.verify(shard); !status) return status;
  return {};
}

void removeCheckpoint(const std::string& directory, std::int64_t minibatches) {
  const std::string folder = checkpointFolder(directory, minibatches);
  const std::string manifest = folder + "/" + manifestName;
  std::error_code ignored;
  // From here on it is none, whatever happens to the other files.
  if (fileCalls.unlink(manifest.c_str()) == 0 && !syncFolder(folder)) return;
  if (std::filesystem::exists(manifest, ignored)) return;
  std::vector<std::string> files;
  for (auto at = std::filesystem::directory_iterator(folder, ignored); !ignored && at != decltype(at)();
       at.increment(ignored))
    files.push_back(at->path().string());
  for (const std::string& file : files) fileCalls.unlink(file.c_str());
  fileCalls.rmdir(folder.c_str());
}

/// Syncs the shards' names, then writes the manifest.
static Status writeManifest(const std::string& directory, const Manifest& manifest) {
  const std::string folder = checkpointFolder(directory, manifest.minibatches);
  for (const std::string& durable : {folder, directory})
    if (Status status = syncFolder(durable); !status) return status;
  if (Status status = writeAtomically(folder + "/" + manifestName, toJson(manifest)); !status) return status;
  return syncFolder(folder);
}

Status completeCheckpoint(const std::string& directory, const Manifest& manifest, int keep) {
  if (Status status = writeManifest(directory, manifest); !status) {
    removeCheckpoint(directory, manifest.minibatches);
    return status;
  }
  const std::vector<CheckpointEntry> all = listCheckpoints(directory);
  int newer = 0;
  for (std::size_t i = all.size(); i-- > 0;) {
    if (all[i].minibatches > manifest.minibatches) continue; // somebody is writing it
    if (all[i].complete && newer++ < keep) continue;
    removeCheckpoint(directory, all[i].minibatches);
  }
  return {};
}

Status CheckpointReader::open(const std::string& directory, std::int64_t minibatches) {
  folder_ = checkpointFolder(directory, minibatches);
  files_.clear();
  made_.clear();
  if (Status status = readManifest(directory, minibatches, manifest_); !status) return status;
  files_.resize(manifest_.shards.size());
  verified_.assign(files_.size(), false);
  for (std::size_t i = 0; i < files_.size(); ++i)
    if (Status status = files_[i].open(pathOf(manifest_.shards[i])); !status) return status;
  return {};
}

CheckpointReader::Found CheckpointReader::find(ShardKind kind, const std::string& name, int stage, int replica) const {
  for (std::size_t i = 0; i < files_.size(); ++i) {
    const Shard& shard = manifest_.shards[i];
    const int owners = ownersOf(shard.stage);
    const ShardKind file = kind == ShardKind::state && replica < owners ? ShardKind::weights : kind;
    // Of what replicas divide, some may have nothing of a tensor.
    const bool anyReplica = owners > 1 && kind != ShardKind::state;
    if (shard.kind != file || (stage >= 0 && shard.stage != stage) || (shard.replica != replica && !anyReplica))
      continue;
    if (const TensorRecord* record = files_[i].find(name)) return {&shard, record, &files_[i]};
  }
  return {};
}

Status CheckpointReader::gather(const Found& found, bool verifies, StoredTensor& tensor) {
  for (std::size_t i = 0; i < files_.size(); ++i) {
    const Shard& shard = manifest_.shards[i];
    const bool together = hasRanges(*found.file, found.record->name);
    if (shard.kind != found.shard->kind || shard.stage != found.shard->stage ||
        (shard.replica != found.shard->replica && !together))
      continue;
    const TensorRecord* record = files_[i].find(found.record->name);
    if (!record) continue;
    if (verifies)
      if (Status status = verify(shard); !status) return status;
    if (Status status = tensor.add(files_[i], *record); !status) return status;
  }
  return tensor.complete();
}

Status CheckpointReader::stored(const Found& found, StoredTensor& tensor) {
  return gather(found, /*verifies=*/true, tensor);
}

Status CheckpointReader::weights(std::map<std::string, TensorRecord>& all) {
  all.clear();
  for (std::size_t i = 0; i < files_.size(); ++i) {
    if (manifest_.shards[i].kind != ShardKind::weights) continue;
    for (const auto& [name, record] : files_[i].tensors()) {
      if (all.contains(name)) continue;
      StoredTensor tensor;
      if (Status status = gather({&manifest_.shards[i], &record, &files_[i]}, /*verifies=*/false, tensor); !status)
        return status;
      all[name] = tensor.whole(made_.emplace_back());
    }
  }
  return {};
}

Status CheckpointReader::frozen(std::map<std::string, FileSum>& sums) const {
  sums.clear();
  for (const SafetensorsFile& file : files_)
    for (const auto& [key, text] : file.metadata()) {
      if (!key.starts_with(frozenPrefix)) continue;
      FileSum& sum = sums[key.substr(frozenPrefix.size())];
      unsigned long long bytes = 0;
      int end = 0;
      if (std::sscanf(text.c_str(), "%llu %8" SCNx32 "%n", &bytes, &sum.crc, &end) != 2 ||
          static_cast<std::size_t>(end) != text.size())
        return {Exit::badData, file.path() + ": '" + key + "' is '" + text + "', which is no number of bytes and sum"};
      sum.bytes = bytes;
    }
  return {};
}

std::string CheckpointReader::adapters() const {
  for (const SafetensorsFile& file : files_)
    if (const auto found = file.metadata().find(adaptersKey); found != file.metadata().end()) return found->second;
  return {};
}

std::vector<std::string> CheckpointReader::averagedNames() const {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < files_.size(); ++i)
    if (manifest_.shards[i].kind != ShardKind::optimizer && manifest_.shards[i].replica == 1)
      for (const auto& [name, record] : files_[i].tensors())
        if (!hasRanges(files_[i], name) && record.element == Element::f32 &&
            std::find(names.begin(), names.end(), name) == names.end())
          names.push_back(name);
  return names;
}

Status CheckpointReader::meanState(const std::string& name, std::vector<float>& mean) {
  const Found first = find(ShardKind::state, name);
  mean.clear();
  if (!first.record) return {Exit::badData, folder_ + ": holds no '" + name + "'"};
  const int replicas = manifest_.replicas[static_cast<std::size_t>(first.shard->stage)];
  std::vector<std::int64_t> shape;
  for (int replica = 0; replica < replicas; ++replica) {
    const Found one = find(ShardKind::state, name, first.shard->stage, replica);
    StoredTensor tensor;
    if (one.record)
      if (Status status = stored(one, tensor); !status) return status;
    if (!one.record || tensor.element() != Element::f32 || (replica > 0 && tensor.shape() != shape))
      return {Exit::badData, folder_ + ": '" + name + "' is not the same in all replicas"};
    shape = tensor.shape();
    std::vector<std::byte> made;
    const std::span<const std::byte> bytes = tensor.whole(made).values;
    std::vector<float> values(bytes.size() / sizeof(float));
    if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
    if (replica == 0)
      mean = std::move(values);
    else
      std::transform(mean.begin(), mean.end(), values.begin(), mean.begin(), std::plus<>());
  }
  for (float& value : mean) value /= static_cast<float>(replicas);
  return {};
}

Status CheckpointReader::verify(const Shard& shard) {
  const auto i = static_cast<std::size_t>(&shard - manifest_.shards.data());
  if (verified_[i]) return {};
  MappedFile file;
  if (Status status = file.open(pathOf(shard)); !status) return status;
  if (file.bytes().size() != shard.sum.bytes)
    return {Exit::badData, file.path() + ": is damaged: it has " + std::to_string(file.bytes().size()) +
                               " bytes, the manifest says " + std::to_string(shard.sum.bytes)};
  if (sumOf(file) != shard.sum)
    return {Exit::badData, file.path() + ": is damaged: its checksum is not that of the manifest"};
  verified_[i] = true;
  return {};
}

} // namespace pdcrt
