// What an evaluation reports, computed in double from predictions and labels.
#pragma once

#include "pdcrt/Stage.h"
#include "pdcrt/Status.h"
#include "pdcrt/Training.h"

#include <cstddef>
#include <cstdint>

namespace pdcrt {

/// Sums over samples; add those of several ranks, then divide.
struct EvaluationSums {
  double samples = 0;     ///< predictions with a label that counts
  double correct = 0;     ///< the label is the greatest of the classes (the first one of equals)
  double correctTop5 = 0; ///< fewer than five classes are greater
  double surprise = 0;    ///< -log of the label's probability, in nats; perplexity is the exponential of its mean
  double squaredError = 0, elements = 0;
  double loss = 0, lossWeight = 0;
  double output = 0, outputs = 0; ///< of the scalar that is the metric, over whole minibatches

  void add(const EvaluationSums& other);
};

/// Adds the first `valid` samples of a minibatch, or what `member` of a team has of them. `prediction` has classes on
/// its classAxis(), labels are integers; or both have one shape, for mse and bce. Labels are whole.
void addMinibatch(EvaluationSums& sums, const Training& training, const OutputRow& prediction, const DataRow& label,
                  const std::byte* slot, std::int64_t valid, int member = 0);

/// Adds what a stage has in `slot` after the evaluation of a minibatch of which the first `valid` samples count: its
/// prediction against its labels, and the scalar that is the metric, which knows no single samples and so counts in
/// whole minibatches only. What all members of a team have, member 0 adds.
void addStage(EvaluationSums& sums, const Training& training, const Stage& stage, const std::byte* slot,
              std::int64_t valid, int member = 0);

/// Whether anything counted.
Status checkSums(const EvaluationSums& sums, const Training& training);

/// The metric that `training` names.
double metricOf(const EvaluationSums& sums, const Training& training);
double lossOf(const EvaluationSums& sums);

} // namespace pdcrt
