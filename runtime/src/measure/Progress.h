// What rank 0 tells while a run goes on: the progress line, metrics as one JSON object per step, curves for
// TensorBoard.
//
// A step is a minibatch, or, where a schedule flushes, the minibatches of an update; its loss is the mean of theirs.
#pragma once

#include "EventFile.h"
#include "MeasuredStage.h"
#include "pdcrt/Status.h"
#include "pdcrt/Training.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

namespace pdcrt {

struct ProgressOptions {
  std::int64_t first = 0;       ///< minibatch with which the run goes on
  std::int64_t minibatches = 0; ///< at its end
  std::int64_t minibatchesPerStep = 1;
  std::int64_t minibatchesPerEpoch = 1;
  std::int64_t inFlight = 1; ///< minibatches whose losses may come out of order
  int lossStages = 1;        ///< stages that tell a loss for each minibatch; they are added
  int terms = 0;             ///< that are told for each minibatch, of those that training.json names
  std::int64_t logEvery = 0;
  std::string metricsFile;
  std::string tensorboardFolder;
};

class Progress {
public:
  Progress(const ProgressOptions& options, const Training& training);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Opens the metrics file and the one for TensorBoard. Fails with Exit::cannotWrite.
  Status open();

  void loss(std::int64_t minibatch, double value);
  /// That of this place in training.json.
  void term(std::int64_t minibatch, std::size_t place, double value);
  /// Whether the losses of all minibatches have come.
  bool complete() const { return told_ >= options_.minibatches; }
  std::int64_t told() const { return told_; }
  void shorten(std::int64_t minibatches) { options_.minibatches = minibatches; }
  /// The result of an evaluation, as a line of metrics, with the loads of layers (Loads::text); while training goes on,
  /// beside the progress line.
  void evaluated(const std::string& metric, double value, double loss, const std::string& loads = "");
  /// So many seconds since the last step are not of training.
  void leaveOut(double seconds);
  /// Ends the progress line.
  void finish();
  /// Memory of the stages, at the end of the run, for TensorBoard. Fails with Exit::cannotWrite where curves were lost.
  Status memory(std::span<const MeasuredStage> stages);

  /// Seconds per minibatch from a fifth of the run on; 0 before there are two steps.
  double secondsPerMinibatch() const;

private:
  struct Entry {
    double sum = 0;
    int losses = 0, terms = 0;  ///< so many have come
    std::vector<double> values; ///< of terms, by their places; 0 where no stage has one
    void clear() {
      sum = losses = terms = 0;
      std::fill(values.begin(), values.end(), 0);
    }
  };
  Entry& entryOf(std::int64_t minibatch) { return entries_[static_cast<std::size_t>(minibatch) % entries_.size()]; }
  void tellWhole();
  /// `terms`: of those that have come.
  void step(std::int64_t first, std::int64_t last, double loss, const std::vector<double>& terms);
  std::int64_t stepsTold() const { return told_ / options_.minibatchesPerStep; }
  /// By its number. A later one would be dropped by TensorBoard when a run goes on from here (EventFile::open).
  std::int64_t lastStepTold() const { return std::max<std::int64_t>(0, stepsTold() - 1); }

  ProgressOptions options_;
  const Training& training_;
  std::vector<Entry> entries_; ///< a ring over minibatches
  std::int64_t told_ = 0;      ///< minibatches whose steps are complete
  std::FILE* metrics_ = nullptr;
  EventFile events_;
  Status unwritten_; ///< of events_
  std::vector<char> buffer_;
  bool terminal_ = false, lineOpen_ = false;
  double begin_ = 0, lastStep_ = 0, lastLine_ = 0, flushedAt_ = 0;
  double steadyBegin_ = 0;
  std::int64_t steadyFrom_ = -1;
};

/// Peak resident memory of this process, in bytes.
std::int64_t peakMemoryBytes();

} // namespace pdcrt
