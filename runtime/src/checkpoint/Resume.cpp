// Everything is found by the name of its ONNX initializer, wherever the plan that wrote it had it.
#include "Resume.h"

#include "files/WeightFile.h"
#include "pdcrt/Device.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace pdcrt {
namespace {

/// Reads single tensors, or parts of them, after their files have been verified.
class Loader {
public:
  Loader(CheckpointReader& reader, Stream stream) : reader_(reader), stream_(stream) {}

  Status read(ShardKind kind, const std::string& name, const WantedTensor& wanted, std::span<std::byte> to,
              int stage = -1, int replica = 0) {
    const CheckpointReader::Found found = reader_.find(kind, name, stage, replica);
    if (!found.record)
      return {Exit::badData,
              "checkpoint " + std::to_string(reader_.manifest().minibatches) + " holds no '" + name + "'",
              "the program was generated with other parameters; start it from the weights with pdc --init-from"};
    StoredTensor tensor;
    if (Status status = reader_.stored(found, tensor); !status) return status;
    return tensor.read(wanted, to);
  }

  /// A running statistic for one replica.
  Status readState(const StateRow& row, const HostedStage& hosted) {
    std::byte* const to = hosted.state + row.offset;
    const WantedTensor wanted = {row.element, row.shape, {row.part, hosted.member}};
    const CheckpointReader::Found first = reader_.find(ShardKind::state, row.name);
    if (!first.record) return readBlock(ShardKind::state, row.name, wanted, to); // says what is missing
    const int stage = first.shard->stage, replicas = reader_.manifest().replicas[static_cast<std::size_t>(stage)];
    if (replicas == hosted.replicas || row.element != Element::f32)
      return readBlock(ShardKind::state, row.name, wanted, to, stage,
                       replicas == hosted.replicas ? hosted.host.replica : 0);
    std::vector<float> mean;
    if (Status status = reader_.meanState(row.name, mean); !status) return status;
    const Shape whole = wholeShape(row.shape, row.part);
    if (mean.size() != static_cast<std::size_t>(whole.elements()))
      return {Exit::badData, first.file->path() + ": '" + row.name + "' has " + std::to_string(mean.size()) +
                                 " elements, the program needs " + std::to_string(whole.elements())};
    std::vector<float> own(static_cast<std::size_t>(row.shape.elements()));
    copyPart(whole, sizeof(float), {}, std::as_bytes(std::span(mean)), wanted.part,
             std::as_writable_bytes(std::span(own)));
    return place(std::as_bytes(std::span(own)), to);
  }

  /// Optimizer state, and the number of its updates, of every trained parameter.
  Status readOptimizer(HostedStage& hosted) {
    const OptimizerLayout& layout = hosted.optimizer->layout();
    std::vector<std::int64_t> counts;
    for (const TrainedParameter& parameter : hosted.optimizer->parameters()) {
      const ParameterRow& row = *parameter.row;
      for (std::size_t piece = 0; piece < layout.pieces(row).size(); ++piece)
        if (Status status = readPiece(hosted, row, piece); !status) return status;
      if (Status status = read(ShardKind::optimizer, "updates/" + std::string(row.name), {Element::i64, {}},
                               std::as_writable_bytes(std::span(&counts.emplace_back(), 1)));
          !status)
        return status;
    }
    // Parameters that came from stages with other numbers of replicas have other counts.
    hosted.updates = counts.empty() ? 0 : *std::max_element(counts.begin(), counts.end());
    hosted.skipped = 0;
    for (std::size_t i = 0; i < counts.size(); ++i)
      hosted.optimizer->parameters()[i].updatesBefore = counts[i] - hosted.updates;
    return {};
  }

private:
  /// What the optimizer keeps of a parameter; of a shard, its ranges.
  Status readPiece(HostedStage& hosted, const ParameterRow& row, std::size_t piece) {
    const OptimizerLayout& layout = hosted.optimizer->layout();
    const std::string name = layout.pieces(row)[piece] + "/" + row.name;
    const WantedTensor wanted = {row.element, row.shape, {row.part, hosted.member}};
    if (!hosted.optimizer->shards())
      return readBlock(ShardKind::optimizer, name, wanted, hosted.optimizerState + layout.offsetOf(piece, row), -1, 0,
                       &row);
    std::vector<std::byte> values(static_cast<std::size_t>(row.shape.elements()) * bytesOf(row.element));
    if (Status status = read(ShardKind::optimizer, name, wanted, values); !status) return status;
    if (Status status = WeightFile::load(row, values); !status) return status;
    for (const Optimizer::Own& own : hosted.optimizer->own()) {
      if (own.parameter->row != &row) continue;
      const auto begin = static_cast<std::size_t>(own.range.begin) * sizeof(float),
                 bytes = static_cast<std::size_t>(own.range.count) * sizeof(float);
      if (Status status = place(std::span(values).subspan(begin, bytes),
                                hosted.optimizerState + layout.offsetOf(piece, own.range.at));
          !status)
        return status;
    }
    return {};
  }

  /// As read(), into a block; of a `parameter` in its order there.
  Status readBlock(ShardKind kind, const std::string& name, const WantedTensor& wanted, std::byte* to, int stage = -1,
                   int replica = 0, const ParameterRow* parameter = nullptr) {
    std::vector<std::byte> values(static_cast<std::size_t>(wanted.shape.elements()) * bytesOf(wanted.element));
    if (Status status = read(kind, name, wanted, values, stage, replica); !status) return status;
    if (parameter)
      if (Status status = WeightFile::load(*parameter, values); !status) return status;
    return place(values, to);
  }
  Status place(std::span<const std::byte> values, std::byte* to) {
    if (!values.empty()) device::copy(stream_, to, values.data(), values.size());
    return device::wait(stream_);
  }

  CheckpointReader& reader_;
  Stream stream_;
};

} // namespace

Status newestWhole(const std::string& directory, std::int64_t& minibatches) {
  minibatches = -1;
  const std::vector<CheckpointEntry> all = listCheckpoints(directory);
  int damaged = 0;
  for (std::size_t i = all.size(); i-- > 0;) {
    if (!all[i].complete) continue;
    const Status status = verifyCheckpoint(directory, all[i].minibatches);
    if (status) {
      minibatches = all[i].minibatches;
      return {};
    }
    ++damaged;
    std::fprintf(stderr, "warning: %s; taking the checkpoint before it\n", status.message().c_str());
  }
  if (damaged == 0) return {};
  return {Exit::badData, directory + ": none of its " + std::to_string(damaged) + " checkpoints is whole",
          "start again in another folder, or from exported weights with pdc --init-from"};
}

Status checkContinues(const Manifest& manifest, const Continued& run) {
  const Training& training = *run.training;
  const std::string of = "the checkpoint after " + std::to_string(manifest.minibatches) + " minibatches ";
  if (!run.modelHash.empty() && manifest.modelHash != run.modelHash)
    return {Exit::badData,
            of + "is of a model with the hash " + manifest.modelHash + ", the program's is " + run.modelHash,
            "name the checkpoints of this model, or start from their weights with pdc --init-from"};
  if (manifest.batch != training.batch)
    return {Exit::badData,
            of + "counts minibatches of " + std::to_string(manifest.batch) + " samples, the program's have " +
                std::to_string(training.batch),
            "generate the program with --batch=" + std::to_string(manifest.batch)};
  if (manifest.samples != 0 && run.samples != 0 && manifest.samples != run.samples)
    return {Exit::badData,
            of + "is of a data set with " + std::to_string(manifest.samples) + " samples, this one has " +
                std::to_string(run.samples),
            "name the data set that it was trained with"};
  if (manifest.seed != training.seed)
    return {Exit::usage,
            of + "has the seed " + std::to_string(manifest.seed) + ", this run " + std::to_string(training.seed),
            "give --seed=" + std::to_string(manifest.seed)};
  if (manifest.shuffle != run.shuffle)
    return {Exit::usage, of + "has --shuffle=" + (manifest.shuffle ? "on" : "off") + ", this run has not",
            "give --shuffle=" + std::string(manifest.shuffle ? "on" : "off")};
  if (manifest.optimizer != nameOf(training.optimizer))
    return {Exit::invalid,
            of + "is of the optimizer '" + manifest.optimizer + "', training.json has '" + nameOf(training.optimizer) +
                "'",
            "write \"optimizer\": \"" + manifest.optimizer + "\", or start from its weights with pdc --init-from"};
  if (manifest.learningRate != training.learningRate)
    std::fprintf(stderr, "note: the learning rate is %g, that of the checkpoint was %g\n", training.learningRate,
                 manifest.learningRate);
  return {};
}

/// A frozen parameter, of which the checkpoint has the sum.
static Status readFrozen(const StoredTensors& initial, const std::string& name, const FileSum& sum,
                         const WantedTensor& wanted, std::span<std::byte> to) {
  const StoredTensor* const tensor = initial.find(name);
  if (!tensor) return {Exit::badData, "no file of the program's initial weights holds '" + name + "'", "run pdc again"};
  std::vector<std::byte> made;
  if (const FileSum own = extended({}, tensor->whole(made).values); own != sum)
    return {Exit::badData,
            tensor->firstFile().path() + ": '" + name +
                "' has other values than the frozen parameter of the checkpoint: it is " +
                frozenMetadata(name, own).second + " (bytes and CRC-32C), that was " + frozenMetadata(name, sum).second,
            "generate the program with the model and the --init-from of the run that wrote the checkpoint"};
  return tensor->read(wanted, to);
}

Status loadCheckpoint(CheckpointReader& reader, const Training& training, const StoredTensors& initial,
                      Executor& executor) {
  Loader loader(reader, executor.stream());
  std::map<std::string, FileSum> frozen;
  if (Status status = reader.frozen(frozen); !status) return status;
  // State, of replica 0 for a start, lies among the weights.
  if (Status status = executor.setWeights([&](const char* name, Element element, const Shape& shape,
                                              std::span<std::byte> to, const MemberPart& part) -> Status {
        if (const auto sum = frozen.find(name); sum != frozen.end())
          return readFrozen(initial, name, sum->second, {element, shape, part}, to);
        return loader.read(ShardKind::weights, name, {element, shape, part}, to);
      });
      !status)
    return status;
  for (HostedStage& hosted : executor.hosted()) {
    for (const StateRow& row : hosted.stage->states)
      if (Status status = loader.readState(row, hosted); !status) return status;
    if (Status status = loader.readOptimizer(hosted); !status) return status;
    if (training.lossScaleInterval == 0) continue;
    hosted.lossScale.scale = reader.manifest().lossScale;
    hosted.lossScale.finiteSteps = reader.manifest().finiteSteps;
  }
  return {};
}

} // namespace pdcrt
