// The C++ or CUDA program of one stage: a translation unit in `namespace stageK` that exports one pdcrt::Stage.
//
// In this order: front matter, includes, tables of plain data, views with one member per buffer, kernel objects, fused
// kernels, the phases, the export. Nothing in it depends on anything but the model, the cut and the flags: same input,
// same bytes.
#pragma once

#include "pdc/IR/Target.h"
#include "pdc/Memory/MemoryPlan.h"

#include <string>
#include <vector>

namespace pdc {

/// Where a generated program comes from, for its front matter.
struct Provenance {
  std::string version;   ///< of pdc
  std::string command;   ///< that the user typed
  std::string model;     ///< name of the ONNX file, without folders
  std::string modelHash; ///< what ranks compare
};

struct StageProgram {
  int index = 0, count = 1, replicas = 1;
  const Graph* training = nullptr;
  const Graph* evaluation = nullptr; ///< null: the stage evaluates nothing
  const MemoryPlan* memory = nullptr;
  bool debugNan = false; ///< looks at every floating-point result, right after the call that computes it
  Target target = Target::cpu;
  std::vector<int> buckets = {}; ///< of gradients, by fusion group of the whole model (pdc/Plan/GradientBuckets.h)
};

/// The text of stageK.cpp, or stageK.cu. Errors: an operation that the target has no form of.
Expected<std::string> emitStage(const StageProgram& program, const Provenance& provenance, Diagnostics& diags);

} // namespace pdc
