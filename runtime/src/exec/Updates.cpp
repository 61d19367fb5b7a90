// The executor's update: from the gradients that GradientFlow has summed to the next version of the weights.
#include "Executor.h"

#include <algorithm>
#include <optional>

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

Status Executor::update(HostedStage& hosted, const Action& action) {
  const Schedule& schedule = *setup_.schedule;
  if (action.index != hosted.versions.newest() + 1)
    return {Exit::invalid,
            "action " + toString(action) + " follows version " + std::to_string(hosted.versions.newest())};
  if (Status status = hosted.gradients.finishFor(action); !status) return status;
  if (!hosted.sweeps.isDone(action.index))
    return {Exit::invalid, "action " + toString(action) + " changes weights that are gathered for the version before",
            "give them up earlier in schedule.txt"};

  const std::int64_t from = schedule.updateFirst(hosted.host.stage, action.index);
  const std::int64_t to = std::min(schedule.updateLast(hosted.host.stage, action.index), run_.minibatches);
  std::optional<double> scale;
  if (Status status = hosted.gradients.scale(action.index, to - from, hosted.lossScale.scale, scale); !status)
    return status;
  const UpdateBlocks blocks = blocksOf(hosted, hosted.gradients.memory(action.index));
  if (scale) hosted.optimizer->update(stream_, blocks, stepOf(hosted, action.index, *scale));
  ++hosted.updates;
  if (!scale)
    if (Status status = skipUpdate(hosted, blocks, action.index); !status) return status;
  hosted.lossScale.step(scale.has_value());
  hosted.versions.advance();
  hosted.updating = false;
  hosted.gradients.updated(action.index);
  return {};
}

UpdateBlocks Executor::blocksOf(const HostedStage& hosted, const std::byte* gradients) const {
  return {.old = hosted.versions.at(hosted.versions.newest()),
          .fresh = hosted.versions.next(),
          .gradients = gradients,
          .state = hosted.optimizerState};
}

/// The next update of the stage.
UpdateStep Executor::stepOf(const HostedStage& hosted, std::int64_t update, double gradientScale) const {
  const Schedule& schedule = *setup_.schedule;
  const std::int64_t from = schedule.updateFirst(hosted.host.stage, update);
  const std::int64_t to = std::min(schedule.updateLast(hosted.host.stage, update), run_.minibatches);
  double rate = setup_.training->schedule.at(setup_.training->learningRate, run_.first + from);
  double factor = setup_.training->schedule.at(1, run_.first + from);
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
  if (blocks.fresh != blocks.old) {
    // The other shards of the old version may be on their way, and those of the new one come likewise.
    for (const Optimizer::Own& own : hosted.optimizer->own()) {
      const std::size_t at = own.parameter->row->offset + static_cast<std::size_t>(own.range.begin) * sizeof(float);
      device::copy(stream_, blocks.fresh + at, blocks.old + at,
                   static_cast<std::size_t>(own.range.count) * sizeof(float));
    }
    if (!hosted.optimizer->shards()) device::copy(stream_, blocks.fresh, blocks.old, hosted.stage->bytes.weights);
  }
  if (setup_.observer) setup_.observer->skipped(hosted, update);
  return {};
}

} // namespace pdcrt
