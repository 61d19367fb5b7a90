// Metrics are the runtime's own: they must not depend on how a stage computed its loss.
#include "Evaluation.h"

#include <algorithm>
#include <cmath>

namespace pdcrt {
namespace {

std::int64_t labelAt(const DataRow& row, const std::byte* labels, std::int64_t i) {
  return row.element == Element::i32 ? reinterpret_cast<const std::int32_t*>(labels)[i]
                                     : reinterpret_cast<const std::int64_t*>(labels)[i];
}

double weightOf(const Training& training, std::int64_t label) {
  const auto i = static_cast<std::size_t>(label);
  return i < training.classWeights.size() ? training.classWeights[i] : 1;
}

/// Of a probability; at least -100, as in training.
double logarithm(double probability) {
  return std::max(std::log(probability), -100.0);
}

/// Of a prediction x and a number t, by the loss that was trained.
double lossOfNumber(const Training& training, double x, double t) {
  // max(x, 0) - x·t + log(1 + exp(-|x|)): binary cross-entropy of a logit, without overflow.
  if (training.loss == "bce-with-logits") return std::max(x, 0.0) - x * t + std::log1p(std::exp(-std::fabs(x)));
  if (training.loss == "bce") return -(t * logarithm(x) + (1 - t) * logarithm(1 - x));
  return (x - t) * (x - t);
}

/// What one position adds to the sum of the loss: the formula of kernels/SoftmaxCrossEntropy.h.
double smoothedLoss(const Training& training, const float* scores, std::int64_t stride, std::int64_t classes,
                    double logSum, std::int64_t label) {
  const double own = weightOf(training, label) * (logSum - scores[label * stride]);
  if (training.labelSmoothing == 0) return own;
  double all = 0;
  for (std::int64_t c = 0; c < classes; ++c) all += weightOf(training, c) * (logSum - scores[c * stride]);
  return (1 - training.labelSmoothing) * own + training.labelSmoothing / static_cast<double>(classes) * all;
}

/// The sample of the minibatch to which element `i` of a label belongs.
class SampleOf {
public:
  SampleOf(const Training& training, const DataRow& label) {
    const int axis = training.batchAxisOf(label.name);
    if (axis == noBatchAxis || axis >= label.shape.rank) return;
    samples_ = label.shape.dims[axis];
    for (int i = axis + 1; i < label.shape.rank; ++i) inner_ *= label.shape.dims[i];
  }
  std::int64_t operator()(std::int64_t i) const { return i / inner_ % samples_; }

private:
  std::int64_t samples_ = 1, inner_ = 1;
};

/// Where the places that a member has of a prediction are in the whole one (Part.h). A place has all classes.
class WholePlaceOf {
public:
  /// `classes`: the axis that is no place's own; -1: there is none.
  WholePlaceOf(const OutputRow& row, int classes, int member) : part_(row.part), member_(member) {
    if (part_.isWhole()) return;
    own_ = row.shape.dims[part_.axis];
    for (int i = part_.axis + 1; i < row.shape.rank; ++i)
      if (i != classes) inner_ *= row.shape.dims[i];
  }
  std::int64_t operator()(std::int64_t place) const {
    if (part_.isWhole()) return place;
    const std::int64_t j = place / inner_ % own_, share = part_.share();
    const std::int64_t whole = j / share * (part_.wholeSize / part_.blocks) + member_ * share + j % share;
    return (place / inner_ / own_ * part_.wholeSize + whole) * inner_ + place % inner_;
  }

private:
  Part part_;
  int member_;
  std::int64_t own_ = 1, inner_ = 1;
};

/// Predictions of classes against integer labels.
void addClasses(EvaluationSums& sums, const Training& training, const OutputRow& prediction, const float* scores,
                const DataRow& label, const std::byte* labels, std::int64_t valid, int member) {
  const Shape& shape = prediction.shape;
  const int axis = classAxis(shape.rank);
  const std::int64_t classes = shape.dims[axis];
  std::int64_t inner = 1;
  for (int i = axis + 1; i < shape.rank; ++i) inner *= shape.dims[i];
  // A model that computes its loss itself may have made samples and positions one axis; labels have their samples
  // apart.
  const SampleOf sampleOf(training, label);
  const WholePlaceOf wholePlaceOf(prediction, axis, member);
  const std::int64_t positions = shape.elements() / classes;
  // Otherwise it is not known which label belongs to which position.
  if (positions * prediction.part.of != label.shape.elements()) return;
  for (std::int64_t place = 0; place < positions; ++place) {
    const std::int64_t labelled = wholePlaceOf(place);
    if (sampleOf(labelled) >= valid) continue;
    const std::int64_t correct = labelAt(label, labels, labelled);
    if (correct == training.ignoreIndex || correct < 0 || correct >= classes) continue;
    const float* first = scores + place / inner * classes * inner + place % inner;
    const double own = first[correct * inner];
    double greatest = own;
    std::int64_t above = 0, firstAmongEquals = 0;
    for (std::int64_t c = 0; c < classes; ++c) {
      const double score = first[c * inner];
      greatest = std::max(greatest, score);
      if (score > own) ++above;
      if (score == own && c < correct) ++firstAmongEquals;
    }
    double sum = 0;
    for (std::int64_t c = 0; c < classes; ++c) sum += std::exp(first[c * inner] - greatest);
    const double logSum = std::log(sum) + greatest;
    const bool probabilities = training.loss == "nll";
    const double surprise = probabilities ? -logarithm(own) : logSum - own;
    sums.samples += 1;
    sums.correct += above == 0 && firstAmongEquals == 0;
    sums.correctTop5 += above + firstAmongEquals < 5;
    sums.surprise += surprise;
    sums.loss += probabilities ? weightOf(training, correct) * surprise
                               : smoothedLoss(training, first, inner, classes, logSum, correct);
    sums.lossWeight += weightOf(training, correct);
  }
}

} // namespace

void EvaluationSums::add(const EvaluationSums& other) {
  samples += other.samples;
  correct += other.correct;
  correctTop5 += other.correctTop5;
  surprise += other.surprise;
  squaredError += other.squaredError;
  elements += other.elements;
  loss += other.loss;
  lossWeight += other.lossWeight;
  output += other.output;
  outputs += other.outputs;
}

void addStage(EvaluationSums& sums, const Training& training, const Stage& stage, const std::byte* slot,
              std::int64_t valid, int member) {
  const OutputRow* prediction = nullptr;
  const DataRow* label = nullptr;
  const std::string output = outputOfMetric(training.metric);
  for (const OutputRow& row : stage.outputs) {
    if (row.kind != OutputKind::prediction || (row.part.isWhole() && member > 0)) continue;
    if (!output.empty() && row.name == output && row.shape.elements() == 1) {
      if (valid < training.batch) continue;
      sums.output += *reinterpret_cast<const float*>(slot + row.offset);
      sums.outputs += 1;
    } else if (!prediction) {
      prediction = &row;
    }
  }
  for (const DataRow& row : stage.data)
    if (row.label && !label) label = &row;
  if (prediction && label) addMinibatch(sums, training, *prediction, *label, slot, valid, member);
}

void addMinibatch(EvaluationSums& sums, const Training& training, const OutputRow& prediction, const DataRow& label,
                  const std::byte* slot, std::int64_t valid, int member) {
  const auto* scores = reinterpret_cast<const float*>(slot + prediction.offset);
  const std::byte* labels = slot + label.offset;
  if (label.element == Element::i64 || label.element == Element::i32) {
    addClasses(sums, training, prediction, scores, label, labels, valid, member);
    return;
  }
  const auto* targets = reinterpret_cast<const float*>(labels);
  const SampleOf sampleOf(training, label);
  const WholePlaceOf wholePlaceOf(prediction, /*classes=*/-1, member);
  if (prediction.shape.elements() * prediction.part.of != label.shape.elements()) return;
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < prediction.shape.elements(); ++i) {
    const std::int64_t labelled = wholePlaceOf(i);
    if (sampleOf(labelled) >= valid) continue;
    ++count;
    const double x = scores[i], t = targets[labelled], error = (x - t) * (x - t);
    sums.squaredError += error;
    sums.loss += lossOfNumber(training, x, t);
    sums.correct += (x > (training.loss == "bce" ? 0.5 : 0)) == (t > 0.5);
  }
  sums.samples += static_cast<double>(count);
  sums.elements += static_cast<double>(count);
  sums.lossWeight += static_cast<double>(count);
}

Status checkSums(const EvaluationSums& sums, const Training& training) {
  if (!outputOfMetric(training.metric).empty()) {
    if (sums.outputs > 0) return {};
    return {Exit::badData,
            "'" + training.metric + "' counts in whole minibatches, the data has fewer than " +
                std::to_string(training.batch) + " samples",
            "evaluate on more samples"};
  }
  if (sums.samples > 0) return {};
  return {Exit::invalid, "the model has no prediction to compare with labels"};
}

double metricOf(const EvaluationSums& sums, const Training& training) {
  if (!outputOfMetric(training.metric).empty()) return sums.output / sums.outputs;
  if (training.metric == "mse") return sums.squaredError / sums.elements;
  if (training.metric == "perplexity") return std::exp(sums.surprise / sums.samples);
  if (training.metric == "top5") return sums.correctTop5 / sums.samples;
  return sums.correct / sums.samples;
}

double lossOf(const EvaluationSums& sums) {
  return sums.loss / sums.lossWeight;
}

} // namespace pdcrt
