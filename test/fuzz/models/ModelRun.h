// Random models as pipelines: cut, emitted, compiled many at once, and trained for two batches on threads.
#pragma once

#include "RandomModel.h"

#include "pdc/Memory/MemoryPlan.h"
#include "pdc/Schedule/PipelineShape.h"

#include <memory>

namespace pdc::testing {

/// A model cut into stages, ready to be compiled.
struct Cut {
  std::unique_ptr<Module> module;
  std::vector<MemoryPlan> memories;
  std::vector<std::string> sources; ///< by stage
  PipelineShape shape;
  /// Where what the planner is told to cross between the stages is not what their programs send; empty: nowhere.
  std::string misplanned;
};

/// Runs the compiler's passes and cuts the model into at most `stages` stages, between intervals of groups or across
/// parallel branches, some of them recomputed, with a schedule that flushes: how follows from the model's seed and
/// `variant`. Errors: what a pass or an emitter says.
Expected<Cut> cutModel(const RandomModel& model, int stages, Diagnostics& diags, std::uint64_t variant = 0);

/// What two batches of `dataMinibatches` microbatches each came to.
struct Trained {
  std::string error; ///< of the runtime; empty: none
  double loss = 0;   ///< of all microbatches of the first batch, summed
  Tensors gradients; ///< means over the first batch
  Tensors states;    ///< after the first batch
  Tensors weights;   ///< after both batches, and states
};

/// Programs of many cuts in one shared object.
class Programs {
public:
  static Expected<std::unique_ptr<Programs>> build(const std::vector<const Cut*>& cuts, Diagnostics& diags);
  ~Programs();
  Trained train(std::size_t which, const RandomModel& model) const;

private:
  struct Impl;
  explicit Programs(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

} // namespace pdc::testing
