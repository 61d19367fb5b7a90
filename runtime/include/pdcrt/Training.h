// training.json: what the compiler was told about learning, and the runtime needs. The file lies beside plan.json;
// flags of the stage program override it.
//
//   {"optimizer": "sgd", "lr": 0.01, "momentum": 0.9, "nesterov": false, "weight_decay": 0.0001, "betas": [0.9, 0.999],
//    "eps": 1e-08, "lr_schedule": {"kind": "constant"}, "seed": 0, "batch": 32, "loss": "softmax-cross-entropy",
//    "ignore_index": null, "metric": "accuracy"}
#pragma once

#include "pdcrt/Status.h"

#include <cstdint>
#include <optional>
#include <string>

namespace pdcrt {

enum class OptimizerKind : std::uint8_t { sgd, momentum, adam, adamw };

/// Learning rate as a function of the minibatch index b (never of a stage's own update count):
///   constant   lr
///   step       lr · factor^floor(b / period)
///   cosine     lr · (1 + cos(π · min(b, period) / period)) / 2
/// times b / warmup for b < warmup.
struct LearningRateSchedule {
  enum class Kind : std::uint8_t { constant, step, cosine } kind = Kind::constant;
  std::int64_t period = 1; ///< minibatches
  double factor = 0.1;
  std::int64_t warmup = 0; ///< minibatches

  double at(double learningRate, std::int64_t minibatch) const;
};

struct Training {
  OptimizerKind optimizer = OptimizerKind::sgd;
  double learningRate = 0.01;
  double momentum = 0;
  bool nesterov = false;
  double weightDecay = 0;
  double beta1 = 0.9, beta2 = 0.999;
  double epsilon = 1e-8;
  LearningRateSchedule schedule;
  std::uint64_t seed = 0;
  std::int64_t batch = 1;                     ///< samples per minibatch
  std::string loss = "softmax-cross-entropy"; ///< or mse, bce-with-logits, output
  std::optional<std::int64_t> ignoreIndex;    ///< label that the loss leaves out
  std::string metric = "accuracy";            ///< or top5, mse, none
};

std::string toJson(const Training& training);

/// Reads training.json. Fails with Exit::invalid, naming the file and the key.
Status parseTraining(const std::string& text, const std::string& file, Training& training);

} // namespace pdcrt
