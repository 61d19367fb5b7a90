// Minibatches from a data set. It is one of
//
// - a folder with one `.npy` file per graph input and label. A file has the shape of the input, but for the axis along
//   which the samples lie (Training::batchAxes), where it has all samples of the set. An input without such an axis has
//   a file of exactly its shape, which every minibatch reads whole.
// - a token stream (TokenStream.h), for models with one input of integers. A sample is a window of it, as long as the
//   input's sequences; its labels are the tokens DataOptions::labelShift places on. N tokens are
//   floor((N - labelShift) / length) windows.
// - "synthetic": noise, and labels below the number of classes.
//
// Minibatch b of B samples takes the samples at places (b mod n)·B … of its epoch b / n, where an epoch has
// n = floor(samples / B) minibatches, in the order permutation(seed, epoch, samples), or, not shuffled, in file order.
// An evaluation takes every sample in file order; its last minibatch is filled up with the last sample.
#pragma once

#include "BatchSource.h"
#include "files/TokenStream.h"
#include "pdcrt/Npy.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace pdcrt {

struct DataOptions {
  std::string path; ///< a folder, a token stream, or "synthetic"
  std::int64_t batch = 1;
  std::map<std::string, int> batchAxes; ///< of Training
  std::uint64_t seed = 0;
  bool shuffle = true;
  bool evaluation = false;
  std::vector<double> mean,
      deviation; ///< of float inputs: one value, or one per channel (the first axis beside samples)
  std::optional<std::int64_t> ignoredLabel;
  std::int64_t syntheticSamples = 0;
  std::optional<Element> tokenType; ///< of a token stream's raw tokens (TokenStream::open)
  int labelShift = 1;               ///< of a token stream: 0 where the model shifts its labels itself
};

/// What a token stream fills among the inputs that this rank reads.
struct WindowsRead {
  std::uint64_t input = 0;  ///< hashOf the input's name; 0: no stage of this rank reads one
  std::int64_t length = -1; ///< of a window; -1: no stage of this rank reads tokens
};

/// What to type for a model with several inputs, of which a token stream fills one.
std::string severalInputsHelp();

/// "MEAN/STD", each a number or a comma-separated list of equal length.
Status parseNormalize(const std::string& text, std::vector<double>& mean, std::vector<double>& deviation);

class DataSet : public BatchSource {
public:
  /// Opens the files for the data rows of `stages`. Fails with Exit::badData: a missing file (and lists what is
  /// expected), a wrong shape, a label out of range, inputs that a token stream does not fill. Tokens out of range are
  /// found in the first part of a stream here, elsewhere by read().
  Status open(const DataOptions& options, std::span<const Stage* const> stages);

  /// -1 where no stage of this rank reads data.
  std::int64_t samples() const { return samples_; }
  std::int64_t minibatchesPerEpoch() const;
  /// Ranks must agree on it.
  const WindowsRead& windows() const { return windows_; }

  Status read(const DataRow& row, std::int64_t minibatch, std::byte* destination) override;

private:
  /// Where the values of an input are: those of sample s, by their place `o` before the batch axis, are `inner`
  /// elements from first + s·perSample + o·perOuter on.
  struct Source {
    Element element;
    std::span<const std::byte> values;
    std::int64_t first, perSample, perOuter;
  };
  struct Input {
    const DataRow* row;
    int batchAxis = 0;                 ///< or noBatchAxis
    NpyFile file;                      ///< of a folder
    std::int64_t outer = 1, inner = 1; ///< elements before and after the batch axis
    Source source = {};
  };
  Status setAxis(Input& input) const;
  Status openInput(Input& input);
  Status openTokens();
  Status takeTokens(Input& input);
  Status refuseOtherInputs() const;
  Status checkWindow(const Input& input, std::int64_t window) const;
  Status checkValues(const Input& input) const;
  Status checkChoices(const Input& input) const;
  static int channelAxis(const Input& input);
  std::int64_t sampleAt(std::int64_t place);
  void normalize(const Input& input, float* values) const;
  void synthesize(const DataRow& row, std::int64_t minibatch, std::byte* destination) const;

  DataOptions options_;
  std::vector<Input> inputs_;
  std::optional<TokenStream> tokens_; ///< instead of the inputs' files
  WindowsRead windows_;
  std::int64_t samples_ = -1;
  std::int64_t epoch_ = -1;
  std::vector<std::int64_t> order_; ///< of epoch_
};

} // namespace pdcrt
