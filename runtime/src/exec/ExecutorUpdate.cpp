// What the executor does between the all-reduce of gradients (ExecutorBuckets.cpp) and the next version of the weights.
// The other actions are in Executor.cpp.
#include "Executor.h"

#include <algorithm>
#include <cmath>

namespace pdcrt {
namespace {

/// Updates each parameter as soon as its gradient is there.
class EarlyUpdates : public GradientTaker {
public:
  EarlyUpdates(Stream& q, const Optimizer& optimizer, const UpdateBlocks& blocks, const UpdateStep& step)
      : q_(q), optimizer_(optimizer), blocks_(blocks), step_(step) {}
  void take(int parameter, const float* gradient, Elements elements) override {
    optimizer_.updateOne(q_, parameter, gradient, elements, blocks_, step_);
  }

private:
  Stream& q_;
  const Optimizer& optimizer_;
  UpdateBlocks blocks_;
  UpdateStep step_;
};

} // namespace

/// A backward_input that updates parameters.
void Executor::backwardWithUpdates(HostedStage& hosted, const Call& call, std::int64_t update) {
  EarlyUpdates updates(stream_, *hosted.optimizer, blocksOf(hosted, nullptr),
                       stepOf(hosted, update, 1 / hosted.lossScale.scale));
  stream_.giveGradientsTo(&updates);
  hosted.stage->backwardInput(call);
  stream_.giveGradientsTo(nullptr);
  hosted.updating = true;
}

/// The squares of a stage's gradients, added up.
Status Executor::squaresOf(const HostedStage& hosted, const HostedStage::GradientSet& set, ExactSum& sum) {
  sum.clear();
  squared_.clear();
  for (const TrainedParameter& parameter : hosted.optimizer->parameters())
    squared_.push_back(
        {reinterpret_cast<const float*>(set.memory + parameter.gradient), parameter.row->shape.elements()});
  squares_.resize(squared_.size());
  if (Status status = device::sumsOfSquares(stream_, squared_, squares_); !status) return status;
  for (double squares : squares_) sum.add(squares);
  return {};
}

Status Executor::gradientNorm(HostedStage& hosted, const Action& action) {
  if (action.wait) {
    hosted.normOf = action.index;
    return waitFor(action, *hosted.norm);
  }
  HostedStage::GradientSet& set = gradientsOf(hosted, action.index);
  if (hosted.norm->pending() || (!set.allReduces.empty() && !set.reduced))
    return {Exit::invalid, "action " + toString(action) + " needs the last norm, and the sum over the replicas",
            "await them earlier in schedule.txt"};
  if (!set.usesAdded)
    if (Status status = addUses(hosted, set, action); !status) return status;
  set.usesAdded = true;
  if (Status status = squaresOf(hosted, set, hosted.norm->sum); !status) return status;
  hosted.norm->prepare();
  post(*hosted.norm);
  return {};
}

/// The factor of the mean gradient: the loss scale is divided out, then it is clipped as PyTorch's clip_grad_norm_
/// does. Nothing where a gradient is not finite: of any stage, where the schedule has the norm of all.
Status Executor::gradientScale(const HostedStage& hosted, const HostedStage::GradientSet& set, std::int64_t minibatches,
                               std::optional<double>& scale) {
  const Training& training = *setup_.training;
  const double unscaled = 1 / hosted.lossScale.scale;
  scale = unscaled;
  if (!training.checksGradients()) return {};
  const bool own = !hosted.norm || (training.clipNorm && training.clipScope == ClipScope::stage);
  ExactSum squares;
  if (!own)
    squares = hosted.norm->sum;
  else if (Status status = squaresOf(hosted, set, squares); !status)
    return status;
  if (!squares.finite() || (hosted.norm && !hosted.norm->sum.finite())) {
    scale.reset();
  } else if (training.clipNorm) {
    const double norm = std::sqrt(squares.value()) / static_cast<double>(minibatches) * unscaled;
    scale = std::min(1.0, *training.clipNorm / (norm + 1e-6)) * unscaled;
  }
  return {};
}

Status Executor::update(HostedStage& hosted, const Action& action) {
  const Schedule& schedule = *setup_.schedule;
  HostedStage::GradientSet& set = gradientsOf(hosted, action.index);
  if (action.index != hosted.versions.newest() + 1)
    return {Exit::invalid,
            "action " + toString(action) + " follows version " + std::to_string(hosted.versions.newest())};
  if (!set.allReduces.empty() && !set.reduced)
    return {Exit::invalid, "action " + toString(action) + " needs the sum over the replicas",
            "await it earlier in schedule.txt"};
  if (!set.usesAdded)
    if (Status status = addUses(hosted, set, action); !status) return status;

  if (hosted.norm && hosted.normOf != action.index)
    return {Exit::invalid, "action " + toString(action) + " needs the norm of its gradients",
            "await it earlier in schedule.txt"};

  const std::int64_t from = schedule.updateFirst(hosted.host.stage, action.index);
  const std::int64_t to = std::min(schedule.updateLast(hosted.host.stage, action.index), minibatches_);
  std::optional<double> scale;
  if (Status status = gradientScale(hosted, set, to - from, scale); !status) return status;
  const UpdateBlocks blocks = blocksOf(hosted, set.memory);
  if (scale) hosted.optimizer->update(stream_, blocks, stepOf(hosted, action.index, *scale));
  ++hosted.updates;
  if (!scale)
    if (Status status = skipUpdate(hosted, blocks, action.index); !status) return status;
  hosted.lossScale.step(scale.has_value());
  hosted.versions.advance();
  hosted.updating = false;
  set.inputs = set.minibatches = 0;
  set.posted = 0;
  set.usesAdded = set.reduced = false;
  return {};
}

UpdateBlocks Executor::blocksOf(const HostedStage& hosted, const std::byte* gradients) const {
  return {.old = hosted.versions.at(hosted.versions.newest()),
          .fresh = hosted.versions.next(),
          .gradients = gradients,
          .state = hosted.optimizerState,
          .stateStride = arenaBytes(hosted.stage->bytes.weights)};
}

/// The next update of the stage.
UpdateStep Executor::stepOf(const HostedStage& hosted, std::int64_t update, double gradientScale) const {
  const Schedule& schedule = *setup_.schedule;
  const std::int64_t from = schedule.updateFirst(hosted.host.stage, update);
  const std::int64_t to = std::min(schedule.updateLast(hosted.host.stage, update), minibatches_);
  double rate = setup_.training->schedule.at(setup_.training->learningRate, first_ + from);
  double factor = setup_.training->schedule.at(1, first_ + from);
  // Where each stage updates on its own, one with fewer replicas takes more and smaller steps.
  if (schedule.minibatchesPerUpdate == 0)
    for (double* scaled : {&rate, &factor})
      *scaled = *scaled * static_cast<double>(to - from) / static_cast<double>(schedule.stages[0].replicas);
  return {.learningRate = rate,
          .rateFactor = factor,
          .minibatches = to - from,
          .count = hosted.updates + 1 - hosted.skipped,
          .gradientScale = gradientScale};
}

/// An update with gradients that are not finite changes nothing but the version's number.
Status Executor::skipUpdate(HostedStage& hosted, const UpdateBlocks& blocks, std::int64_t update) {
  if (setup_.training->nonFinite == NonFinite::stop)
    return {Exit::lossNotFinite,
            "the gradients of update " + std::to_string(update) + " of stage " + std::to_string(hosted.host.stage) +
                " are not finite",
            "lower the learning rate, or skip such updates: pdc --non-finite=skip, \"non_finite\" in training.json"};
  ++hosted.skipped;
  if (blocks.fresh != blocks.old) device::copy(stream_, blocks.fresh, blocks.old, hosted.stage->bytes.weights);
  if (setup_.observer) setup_.observer->skipped(hosted, update);
  return {};
}

} // namespace pdcrt
