// Checkpoints as files: what one consists of, which of a folder's are whole, and what they hold. docs/FileFormats.md
// states the format; Checkpointer.h writes it while a run goes on.
//
//   DIR/checkpoint-0000000120/      after exactly the minibatches 0 … 119
//     stage0.safetensors            newest weights of stage 0, and its state (of replica 0); of what is frozen the sums
//     stage0.optimizer.safetensors  what its optimizer keeps of each trained parameter, and how often it updated it
//     stage0.replica1.safetensors   state of replica 1; where replicas divide the optimizer, its ranges of the weights,
//                                   too (StoredTensor.h), and stage0.optimizer.replica1.safetensors has those of what
//                                   the optimizer keeps
//     stage0.member1.safetensors    where a team divides tensors, the parts of its member 1 (StoredTensor.h); so, too,
//                                   stage0.optimizer.member1.safetensors, stage0.replica1.member1.safetensors
//     manifest.json                 everything else, and the sums of these files; written last
#pragma once

#include "pdcrt/StoredTensor.h"
#include "pdcrt/Training.h"
#include "pdcrt/WriteFile.h"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pdcrt {

/// Metadata of files of trained weights: what adapters.json of the program's folder says, as it is.
inline constexpr const char* adaptersKey = "adapters";
/// "frozen/NAME" and the text for the metadata of a shard that leaves out a frozen parameter: the sum of its values.
std::pair<std::string, std::string> frozenMetadata(const std::string& name, const FileSum& sum);

enum class ShardKind : std::uint8_t { weights, optimizer, state };

/// One file of a checkpoint. Weights and optimizer are of replica 0, or of each replica where they divide them.
struct Shard {
  ShardKind kind = ShardKind::weights;
  int stage = 0, replica = 0;
  FileSum sum;
  int member = 0; ///< of the team that computes for the replica
  friend bool operator==(const Shard&, const Shard&) = default;
};
/// "stage0.optimizer.safetensors", "stage0.optimizer.member1.safetensors".
std::string fileOf(const Shard& shard);

/// manifest.json.
struct Manifest {
  std::int64_t minibatches = 0;          ///< that the weights have learnt from: where the data goes on
  std::int64_t minibatchesPerUpdate = 0; ///< of the schedule; 0: each stage updates on its own
  std::int64_t batch = 1;                ///< samples of a minibatch
  std::int64_t samples = 0;              ///< of the data set; 0: it was made up
  std::uint64_t seed = 0;                ///< of the order of samples, and of random operators
  bool shuffle = true;
  std::string optimizer = "sgd"; ///< as in training.json
  double learningRate = 0;       ///< of training.json or --lr, for information
  double lossScale = 1;          ///< and its count, where it is dynamic
  std::int64_t finiteSteps = 0;
  std::string modelHash;
  std::vector<int> replicas; ///< by stage
  std::vector<int> members;  ///< by stage: that have files; 1 where nothing is divided
  std::vector<int> owners;   ///< by stage: replicas that write weights and optimizer, the first ones
  std::vector<Shard> shards; ///< by stage, kind, replica and member
  friend bool operator==(const Manifest&, const Manifest&) = default;
};

/// The text, whose last line is the CRC-32C of all before: of format 3 where replicas of a stage divide its weights, of
/// format 2 where a stage has files of several members, else of format 1.
std::string toJson(const Manifest& manifest);
/// Fails with Exit::badData, naming `file`: anything in the text is not as toJson writes it, or a shard is missing.
Status parseManifest(const std::string& text, const std::string& file, Manifest& manifest);

/// DIR/checkpoint-0000000120.
std::string checkpointFolder(const std::string& directory, std::int64_t minibatches);

/// A folder with the name of a checkpoint. Without a manifest it is not one: it was being written, or removed.
struct CheckpointEntry {
  std::int64_t minibatches = 0;
  bool complete = false; ///< has a manifest
};
/// All of `directory`, in ascending order; empty where there is no such folder.
std::vector<CheckpointEntry> listCheckpoints(const std::string& directory);

/// Reads the manifest of a checkpoint.
Status readManifest(const std::string& directory, std::int64_t minibatches, Manifest& manifest);
/// Reads every byte of it. Fails with Exit::badData, naming the first file whose size or sum is another.
Status verifyCheckpoint(const std::string& directory, std::int64_t minibatches);

/// Makes what the ranks have written a checkpoint: makes it durable, writes the manifest, then removes all others but
/// the `keep` newest (and what is unfinished). Fails with Exit::cannotWrite; then it is no checkpoint, and nothing else
/// has changed.
Status completeCheckpoint(const std::string& directory, const Manifest& manifest, int keep);
/// Removes a checkpoint, its manifest first.
void removeCheckpoint(const std::string& directory, std::int64_t minibatches);

/// The tensors of a checkpoint, read when they are asked for.
class CheckpointReader {
public:
  /// Reads manifest and headers of the shards, not yet their values.
  Status open(const std::string& directory, std::int64_t minibatches);
  const Manifest& manifest() const { return manifest_; }

  struct Found {
    const Shard* shard = nullptr; ///< null: no shard of this kind holds it
    const TensorRecord* record = nullptr;
    const SafetensorsFile* file = nullptr;
  };
  /// The record called `name` among shards of this kind (state: of `replica`, where that of replica 0 lies among the
  /// weights) and, if it is not -1, of this stage; of a divided tensor, that of some member.
  Found find(ShardKind kind, const std::string& name, int stage = -1, int replica = 0) const;
  /// The tensor that has this record: the parts of all members, where it is divided. Reads every byte of their shards,
  /// once. Fails with Exit::badData: a shard is damaged, or the parts are not those of one tensor.
  Status stored(const Found& found, StoredTensor& tensor);
  /// Weights and, of replica 0, state of all stages, by name and whole, for as long as this is open. Fails as stored();
  /// verifies nothing.
  Status weights(std::map<std::string, TensorRecord>& all);
  /// The sums of the values of frozen parameters, which the checkpoint does not hold, by name. Fails with
  /// Exit::badData: a text is not one of frozenMetadata().
  Status frozen(std::map<std::string, FileSum>& sums) const;
  /// The metadata `adaptersKey`; empty: there are no adapters.
  std::string adapters() const;
  /// The names of f32 state that several replicas have.
  std::vector<std::string> averagedNames() const;
  /// The mean of a running statistic (f32), whole, over the replicas that have it, added in their order as
  /// Executor::averageState does. Fails with Exit::badData: damaged, or not of one shape.
  Status meanState(const std::string& name, std::vector<float>& mean);
  /// Reads every byte of a shard, once, and compares sizes and sums. Fails with Exit::badData.
  Status verify(const Shard& shard);
  std::string pathOf(const Shard& shard) const { return folder_ + "/" + fileOf(shard); }

private:
  Status gather(const Found& found, bool verifies, StoredTensor& tensor);
  int ownersOf(int stage) const { return manifest_.owners[static_cast<std::size_t>(stage)]; }

  std::string folder_;
  Manifest manifest_;
  std::vector<SafetensorsFile> files_;      ///< by shard
  std::vector<char> verified_;              ///< by shard
  std::deque<std::vector<std::byte>> made_; ///< values of whole tensors that are in parts
};

} // namespace pdcrt
