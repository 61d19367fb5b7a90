// LINK: pdcrt_base
// The files of a checkpoint: crashes at every call, damage of every kind, and what a manifest must be.
#include "Rounds.h"
#include "ScratchFolder.h"

#include "pdcrt/Checkpoint.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <random>
#include <sstream>
#include <unistd.h>

using namespace pdcrt;
namespace fs = std::filesystem;

namespace {

std::string contentOf(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void put(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

/// What two ranks and rank 0 do for a checkpoint: two stages, the first with two replicas and momentum.
Status writeCheckpoint(const std::string& directory, std::int64_t minibatches, int keep) {
  const std::string folder = checkpointFolder(directory, minibatches);
  if (fileCalls.mkdir(folder.c_str(), 0777) != 0 && errno != EEXIST) return {Exit::cannotWrite, "mkdir"};
  Manifest manifest;
  manifest.minibatches = minibatches;
  manifest.minibatchesPerUpdate = 4;
  manifest.samples = 100;
  manifest.optimizer = "momentum";
  manifest.learningRate = 0.1;
  manifest.modelHash = "00ff";
  manifest.replicas = {2, 1};
  for (Shard shard : {Shard{ShardKind::weights, 0, 0}, Shard{ShardKind::optimizer, 0, 0}, Shard{ShardKind::state, 0, 1},
                      Shard{ShardKind::weights, 1, 0}, Shard{ShardKind::optimizer, 1, 0}}) {
    std::vector<float> values(24, static_cast<float>(minibatches) + static_cast<float>(shard.stage) / 8);
    const TensorRecord record = {"w", Element::f32, {4, 6}, std::as_bytes(std::span(values))};
    if (Status status = writeSafetensors(folder + "/" + fileOf(shard), std::span(&record, 1),
                                         {{"minibatches", std::to_string(minibatches)}}, &shard.sum);
        !status)
      return status;
    manifest.shards.push_back(shard);
  }
  return completeCheckpoint(directory, manifest, keep);
}

/// The newest checkpoint all of which is as it was written; -1: none.
std::int64_t newest(const std::string& directory) {
  const std::vector<CheckpointEntry> all = listCheckpoints(directory);
  for (std::size_t i = all.size(); i-- > 0;)
    if (all[i].complete && verifyCheckpoint(directory, all[i].minibatches)) return all[i].minibatches;
  return -1;
}

TEST(FileSums, AreCrc32c) {
  auto crc = [](const std::string& text) { return extended({}, std::as_bytes(std::span(text))).crc; };
  EXPECT_EQ(crc("123456789"), 0xE3069283u);           // the check value of CRC-32/ISCSI
  EXPECT_EQ(crc(std::string(32, '\0')), 0x8A9136AAu); // RFC 3720, B.4
  EXPECT_EQ(crc(std::string(32, '\xff')), 0x62A8AB43u);
  const std::string text = "two parts, of any length";
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    const FileSum first = extended({}, std::as_bytes(std::span(text)).first(cut));
    EXPECT_EQ(extended(first, std::as_bytes(std::span(text)).subspan(cut)).crc, crc(text));
  }
}

// ---- A disk that forgets ----

/// What would be on the disk if the machine stopped: names and bytes that have been synced, and those that have not.
/// Calls go to the real files, too, so that the code under test sees them.
struct Disk {
  struct File {
    std::string data, durable;
  };
  using Names = std::map<std::string, std::shared_ptr<File>>; ///< null: a folder

  static inline FileCalls real;
  static inline Disk* current = nullptr;
  std::map<std::string, Names> names, durable; ///< by folder
  std::map<int, std::pair<std::string, std::shared_ptr<File>>> open;
  long calls = 0, limit = -1; ///< the machine stops before call `limit`

  explicit Disk(const std::string& folder) {
    read(folder);
    durable = names;
    real = fileCalls;
    current = this;
    fileCalls.open = [](const char* path, int flags, mode_t mode) { return current->onOpen(path, flags, mode); };
    fileCalls.write = [](int file, const void* data, std::size_t bytes) -> ssize_t {
      if (current->stopped()) return -1;
      current->open[file].second->data.append(static_cast<const char*>(data), bytes);
      return real.write(file, data, bytes);
    };
    fileCalls.fsync = [](int file) {
      if (current->stopped()) return -1;
      auto& [path, data] = current->open[file];
      if (data)
        data->durable = data->data;
      else
        current->durable[path] = current->names[path];
      return 0;
    };
    fileCalls.close = [](int file) { return current->stopped() ? -1 : real.close(file); };
    fileCalls.rename = [](const char* from, const char* to) {
      if (current->stopped()) return -1;
      current->at(to) = current->at(from);
      current->names[fs::path(from).parent_path()].erase(fs::path(from).filename());
      return real.rename(from, to);
    };
    fileCalls.unlink = [](const char* path) {
      if (current->stopped()) return -1;
      current->names[fs::path(path).parent_path()].erase(fs::path(path).filename());
      return real.unlink(path);
    };
    fileCalls.mkdir = [](const char* path, mode_t mode) {
      if (current->stopped()) return -1;
      current->at(path) = nullptr;
      return real.mkdir(path, mode);
    };
    fileCalls.rmdir = [](const char* path) {
      if (current->stopped()) return -1;
      current->names[fs::path(path).parent_path()].erase(fs::path(path).filename());
      return real.rmdir(path);
    };
  }
  ~Disk() {
    fileCalls = real;
    current = nullptr;
  }

  void read(const fs::path& folder) {
    for (const auto& entry : fs::directory_iterator(folder)) {
      const bool file = entry.is_regular_file();
      auto& place = at(entry.path());
      place = file ? std::make_shared<File>() : nullptr;
      if (file)
        place->data = place->durable = contentOf(entry.path());
      else
        read(entry.path());
    }
  }
  std::shared_ptr<File>& at(const fs::path& path) { return names[path.parent_path()][path.filename()]; }
  bool stopped() {
    errno = EIO;
    return limit >= 0 && calls++ >= limit;
  }
  int onOpen(const char* path, int flags, mode_t mode) {
    if (stopped()) return -1;
    const int file = real.open(path, flags, mode);
    if (flags & O_CREAT) {
      // O_TRUNC of a name that is there keeps the file; what it loses is not on the disk yet.
      std::shared_ptr<File>& place = at(path);
      if (!place) place = std::make_shared<File>();
      place->data.clear();
      open[file] = {path, place};
    } else
      open[file] = {path, nullptr};
    return file;
  }

  /// Writes to `to` what the disk holds after the stop, where `choose` says of each name and each file whether the
  /// unsynced change has reached it (2: of a file, the first half).
  template <class Choose>
  void leave(const fs::path& from, const fs::path& to, Choose choose) {
    fs::create_directories(to);
    Names both = durable[from];
    for (const auto& [name, file] : names[from]) both[name] = file;
    for (const auto& [name, ignored] : both) {
      const auto old = durable[from].find(name), fresh = names[from].find(name);
      const bool same = old != durable[from].end() && fresh != names[from].end() && old->second == fresh->second;
      const bool takesFresh = same || choose() != 0;
      const auto& chosen = takesFresh ? fresh : old;
      if (chosen == (takesFresh ? names[from].end() : durable[from].end())) continue;
      const std::shared_ptr<File>& file = chosen->second;
      if (!file) {
        leave(from / name, to / name, choose);
        continue;
      }
      const int part = file->data == file->durable ? 1 : choose();
      put(to / name, part == 0 ? file->durable : part == 1 ? file->data : file->data.substr(0, file->data.size() / 2));
    }
  }
};

/// Stops the machine before each call that writing the checkpoint after 20 minibatches makes, and looks at what is
/// left.
void stopAtEachCall(int keep) {
  long calls = -1, states = 0;
  for (long limit = 0; calls < 0 || limit <= calls; ++limit) {
    ScratchFolder work;
    const std::string directory = work.path + "/c";
    fs::create_directories(directory);
    for (std::int64_t before : {4, 8, 12}) ASSERT_TRUE(writeCheckpoint(directory, before, 2));
    Disk disk(work.path);
    disk.limit = limit;
    const bool written = static_cast<bool>(writeCheckpoint(directory, 20, keep));
    if (calls < 0 && written && disk.calls <= limit) calls = disk.calls;
    // Nothing unsynced is there, or all of it, or all names but no bytes, or anything in between.
    std::mt19937 random(static_cast<unsigned>(limit));
    for (int variant = 0; variant < 12; ++variant, ++states) {
      ScratchFolder left;
      bool name = false;
      disk.leave(work.path, left.path, [&]() -> int {
        switch (variant) {
        case 0: return 0;
        case 1: return 1;
        case 2: return (name = !name) ? 1 : 0;
        default: return static_cast<int>(random() % 3);
        }
      });
      const std::int64_t found = newest(left.path + "/c");
      ASSERT_TRUE(found == 20 || (found == 12 && !written))
          << "stopped at call " << limit << ", variant " << variant << ": the newest is " << found;
    }
  }
  EXPECT_GT(calls, 40);
  std::printf("%ld calls, %ld states of the disk\n", calls, states);
}

TEST(Crashes, AtAnyCallLeaveTheLastCheckpoint) {
  stopAtEachCall(1);
  stopAtEachCall(2);
}

// ---- Damage ----

/// Two checkpoints, as bytes by path below the folder.
std::map<std::string, std::string> goodFiles() {
  ScratchFolder folder;
  EXPECT_TRUE(writeCheckpoint(folder.path, 8, 2));
  EXPECT_TRUE(writeCheckpoint(folder.path, 12, 2));
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder.path))
    if (entry.is_regular_file()) files[fs::relative(entry.path(), folder.path)] = contentOf(entry.path());
  EXPECT_EQ(files.size(), 12u);
  return files;
}

TEST(Damage, OfAnyKindIsSeen) {
  const std::map<std::string, std::string> good = goodFiles();
  ScratchFolder folder;
  for (const auto& [name, text] : good) {
    fs::create_directories(fs::path(folder.path + "/" + name).parent_path());
    put(folder.path + "/" + name, text);
  }
  ASSERT_EQ(newest(folder.path), 12);
  std::vector<std::string> names, older;
  for (const auto& [name, text] : good) (name.find("12/") != std::string::npos ? names : older).push_back(name);

  std::mt19937 random(1);
  auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  const int rounds = pdc::rounds(500);
  int kinds[5] = {};
  for (int round = 0; round < rounds; ++round) {
    const std::string& name = names[below(names.size())];
    std::string text = good.at(name);
    const std::size_t kind = below(5);
    switch (kind) {
    case 0: text.resize(below(text.size())); break;                              // truncated
    case 1: text[below(text.size())] ^= static_cast<char>(1 << below(8)); break; // a bit
    case 2:
      text =
          good.at(names[(below(names.size() - 1) + 1 + static_cast<std::size_t>(&name - names.data())) % names.size()]);
      break;                                                                              // swapped
    case 3: text = good.at(older[static_cast<std::size_t>(&name - names.data())]); break; // of another step
    case 4: text.replace(below(text.size()), 1 + below(64), std::string(below(64), static_cast<char>(random()))); break;
    }
    if (text == good.at(name)) continue;
    ++kinds[kind];
    put(folder.path + "/" + name, text);
    const Status status = verifyCheckpoint(folder.path, 12);
    ASSERT_EQ(status.code(), Exit::badData) << "round " << round << ", kind " << kind << ", " << name;
    ASSERT_NE(status.message().find("checkpoint-0000000012"), std::string::npos) << status.message();
    ASSERT_EQ(newest(folder.path), 8);
    put(folder.path + "/" + name, good.at(name));
  }
  ASSERT_EQ(newest(folder.path), 12);
  for (int count : kinds) EXPECT_GT(count, rounds / 20);
}

TEST(Damage, OfAMissingFileIsSeen) {
  for (const auto& [name, text] : goodFiles()) {
    if (name.find("12/") == std::string::npos) continue;
    ScratchFolder folder;
    ASSERT_TRUE(writeCheckpoint(folder.path, 8, 2));
    ASSERT_TRUE(writeCheckpoint(folder.path, 12, 2));
    fs::remove(folder.path + "/" + name);
    EXPECT_EQ(newest(folder.path), 8) << name;
  }
}

// ---- Manifests ----

TEST(Manifests, ReadBackAndNothingElseIsTaken) {
  Manifest manifest;
  manifest.minibatches = 1'000'000'000'000;
  manifest.seed = UINT64_MAX;
  manifest.learningRate = 0.1;
  manifest.lossScale = 65536;
  manifest.modelHash = "a\"\n\xff";
  manifest.replicas = {1};
  manifest.shards = {{ShardKind::weights, 0, 0, {UINT64_MAX, UINT32_MAX}}, {ShardKind::optimizer, 0, 0, {1, 2}}};
  const std::string text = toJson(manifest);
  Manifest read;
  const Status status = parseManifest(text, "m", read);
  ASSERT_TRUE(status) << status.message();
  EXPECT_EQ(toJson(read), text);

  // Checksums that are right do not make a manifest of what is none.
  auto refused = [&](Manifest wrong) { return !parseManifest(toJson(wrong), "m", read); };
  Manifest wrong = manifest;
  wrong.shards.pop_back();
  EXPECT_TRUE(refused(wrong)) << "a shard is missing";
  wrong = manifest;
  wrong.shards.push_back({ShardKind::state, 0, 1, {}});
  EXPECT_TRUE(refused(wrong)) << "a replica that does not exist";
  wrong = manifest;
  wrong.replicas = {1, 1};
  EXPECT_TRUE(refused(wrong)) << "a stage without shards";
  wrong = manifest;
  wrong.replicas = {};
  EXPECT_TRUE(refused(wrong));
  wrong = manifest;
  wrong.minibatches = -1;
  EXPECT_TRUE(refused(wrong));
  EXPECT_FALSE(refused(manifest));

  // Numbers that an int does not hold.
  for (const char* number : {"1e99", "1.5", "33333333333333333333333333333333"}) {
    std::string body = text.substr(0, text.rfind(" \"crc32c\""));
    const std::string one = "\"replicas\": [\n  1\n ]";
    ASSERT_NE(body.find(one), std::string::npos);
    body.replace(body.find(one), one.size(), "\"replicas\": [\n  " + std::string(number) + "\n ]");
    char sum[9];
    std::snprintf(sum, sizeof sum, "%08x", extended({}, std::as_bytes(std::span(body))).crc);
    const Status bad = parseManifest(body + " \"crc32c\": \"" + sum + "\"\n}\n", "m", read);
    EXPECT_NE(bad.message().find("where an integer must be"), std::string::npos) << number << ": " << bad.message();
  }
}

TEST(Manifests, NamesOfOtherFoldersAreNoCheckpoints) {
  ScratchFolder folder;
  for (const char* name : {"checkpoint-", "checkpoint-12", "checkpoint-00000000x1", "checkpoint-99999999999999999999",
                           "Checkpoint-0000000001", "0000000001", "checkpoint--000000001"})
    fs::create_directories(folder.path + "/" + name);
  EXPECT_TRUE(listCheckpoints(folder.path).empty());
  EXPECT_TRUE(listCheckpoints(folder.path + "/none").empty());
}

} // namespace
