// Minibatches from a data set: a folder with one `.npy` file per graph input and label. A file has the shape of the
// input, but for the axis along which the samples lie (Training::batchAxes), where it has all samples of the set. An
// input without such an axis has a file of exactly its shape, which every minibatch reads whole.
//
// Minibatch b of B samples takes the samples at places (b mod n)·B … of its epoch b / n, where an epoch has
// n = floor(samples / B) minibatches, in the order permutation(seed, epoch, samples), or, not shuffled, in file order.
// An evaluation takes every sample in file order; its last minibatch is filled up with the last sample.
#pragma once

#include "pdcrt/Executor.h"
#include "pdcrt/Npy.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace pdcrt {

struct DataOptions {
  std::string path; ///< a folder, or "synthetic": noise, and labels below the number of classes
  std::int64_t batch = 1;
  std::map<std::string, int> batchAxes; ///< of Training
  std::uint64_t seed = 0;
  bool shuffle = true;
  bool evaluation = false;
  std::vector<double> mean,
      deviation; ///< of float inputs: one value, or one per channel (the first axis beside samples)
  std::optional<std::int64_t> ignoredLabel;
  std::int64_t syntheticSamples = 0;
};

/// "MEAN/STD", each a number or a comma-separated list of equal length.
Status parseNormalize(const std::string& text, std::vector<double>& mean, std::vector<double>& deviation);

class DataSet : public BatchSource {
public:
  /// Opens the files for the data rows of `stages`. Fails with Exit::badData: a missing file (and lists what is
  /// expected), a wrong shape, a label out of range.
  Status open(const DataOptions& options, std::span<const Stage* const> stages);

  /// -1 where no stage of this rank reads data.
  std::int64_t samples() const { return samples_; }
  std::int64_t minibatchesPerEpoch() const;

  Status read(const DataRow& row, std::int64_t minibatch, std::byte* destination) override;

private:
  struct Input {
    const DataRow* row;
    int batchAxis = 0; ///< or noBatchAxis
    NpyFile file;
    std::int64_t outer = 1, inner = 1; ///< elements before and after the batch axis
  };
  Status setAxis(Input& input) const;
  Status openInput(Input& input);
  Status checkValues(const Input& input) const;
  Status checkChoices(const Input& input) const;
  static int channelAxis(const Input& input);
  std::int64_t sampleAt(std::int64_t place);
  void normalize(const Input& input, float* values) const;
  void synthesize(const DataRow& row, std::int64_t minibatch, std::byte* destination) const;

  DataOptions options_;
  std::vector<Input> inputs_;
  std::int64_t samples_ = -1;
  std::int64_t epoch_ = -1;
  std::vector<std::int64_t> order_; ///< of epoch_
};

} // namespace pdcrt
