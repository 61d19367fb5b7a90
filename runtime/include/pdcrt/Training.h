// training.json: what the compiler was told about learning, and the runtime needs. The file lies beside plan.json;
// flags of the stage program override it.
//
//   {"optimizer": "sgd", "lr": 0.01, "momentum": 0.9, "nesterov": false, "weight_decay": 0.0001, "betas": [0.9, 0.999],
//    "eps": 1e-08, "parameter_groups": [{"match": "bias", "weight_decay": 0}], "lr_schedule": {"kind": "constant"},
//    "clip_norm": null, "clip_scope": "global", "loss_scale": 1, "loss_scale_interval": 0, "non_finite": "take",
//    "seed": 0, "batch": 32, "batch_axes": {"state": 1, "mask": null},
//    "loss": "softmax-cross-entropy", "ignore_index": null, "label_smoothing": 0, "class_weights": [],
//    "metric": "accuracy"}
#pragma once

#include "pdcrt/Status.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace pdcrt {

enum class OptimizerKind : std::uint8_t { sgd, momentum, adam, adamw };
/// As in training.json.
const char* nameOf(OptimizerKind kind);

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

/// Parameters that learn in a way of their own. `match` is a POSIX extended regular expression that is found anywhere
/// in the parameter's name, or "@vectors": every parameter of at most one dimension, which biases and the scales and
/// shifts of normalisations are.
struct ParameterGroup {
  std::string match;
  std::optional<double> learningRate, weightDecay; ///< instead of those of all
};

/// Whether `text` can be a ParameterGroup's match.
bool isParameterMatch(const std::string& text);
/// Whether `group` has the parameter `name` of `rank` dimensions.
bool matches(const ParameterGroup& group, const std::string& name, int rank);

/// Of which gradients the norm is clipped.
enum class ClipScope : std::uint8_t {
  global, ///< of all stages together; the schedule has its all-reduce
  stage   ///< of each stage by itself
};

/// What an update does whose gradients are not finite.
enum class NonFinite : std::uint8_t {
  take, ///< no update looks; but where gradients are clipped or the loss scale is dynamic, it is skipped
  skip, ///< the weights stay; where all stages update together, those of all
  stop  ///< the run ends: Exit::lossNotFinite
};

/// In place of an axis: an input is the same for all samples.
inline constexpr int noBatchAxis = -1;

struct Training {
  OptimizerKind optimizer = OptimizerKind::sgd;
  double learningRate = 0.01;
  double momentum = 0;
  bool nesterov = false;
  double weightDecay = 0;
  double beta1 = 0.9, beta2 = 0.999;
  double epsilon = 1e-8;
  std::vector<ParameterGroup> groups; ///< where several have a parameter, the last that says something counts
  LearningRateSchedule schedule;
  /// Gradients whose norm is above it are scaled down to it; one that is not finite skips the update. Infinity: only
  /// the latter. None: gradients are taken as they are.
  std::optional<double> clipNorm;
  ClipScope clipScope = ClipScope::global;
  double lossScale = 1; ///< factor of the gradients that the stages compute; divided out by updates
  /// 0: the loss scale is fixed. Else it starts with `lossScale`; an update with gradients that are not finite is
  /// skipped and halves it, so many others in a row double it (LossScale.h).
  std::int64_t lossScaleInterval = 0;
  NonFinite nonFinite = NonFinite::take;
  std::uint64_t seed = 0;
  std::int64_t batch = 1; ///< samples per minibatch
  /// Of an input or label: the axis along which its samples lie, where that is not 0. noBatchAxis: it has none, and is
  /// the same in every minibatch. In training.json that is null.
  std::map<std::string, int> batchAxes;
  std::string loss = "softmax-cross-entropy"; ///< or mse, bce-with-logits, output
  std::optional<std::int64_t> ignoreIndex;    ///< label that the loss leaves out
  double labelSmoothing = 0;                  ///< of softmax-cross-entropy, as what follows
  std::vector<double> classWeights;           ///< empty: all 1
  std::string metric = "accuracy";            ///< or top5, perplexity, mse, none, output:NAME
  std::vector<std::string> terms;             ///< names of scalars that a run reports beside the loss
  std::vector<std::string> loads;             ///< names of layers whose loads an evaluation reports

  /// The axis of the input or label `name` along which its samples lie, or noBatchAxis.
  int batchAxisOf(const std::string& name) const {
    const auto found = batchAxes.find(name);
    return found == batchAxes.end() ? 0 : found->second;
  }
  /// Whether updates look for gradients that are not finite.
  bool checksGradients() const { return clipNorm || lossScaleInterval > 0 || nonFinite != NonFinite::take; }
};

/// NAME of the metric "output:NAME", which is the mean of the model's scalar output NAME; empty: it is another metric.
std::string outputOfMetric(const std::string& metric);

/// The place of `name` in a list of names, if it is there.
std::optional<std::size_t> placeOf(const std::vector<std::string>& names, std::string_view name);

std::string toJson(const Training& training);

/// Reads training.json. Fails with Exit::invalid, naming the file and the key.
Status parseTraining(const std::string& text, const std::string& file, Training& training);

} // namespace pdcrt
