// Whether programs for CUDA can be built and run on this machine.
#pragma once

#include "pdc/IR/Target.h"
#include "pdc/Support/Diagnostics.h"

#include <string>

namespace pdc {

struct GpuSupport {
  int devices = 0;   ///< GPUs that programs can use, as the driver counts them (CUDA_VISIBLE_DEVICES included)
  int older = 0;     ///< others: their compute capability is below 8.0
  std::string lacks; ///< what a build of programs needs and this machine lacks; empty: nothing
  std::string remedy;
};

GpuSupport examineGpus();

/// --target=auto: CUDA where a GPU can be used and programs can be built for it, else the CPU. A remark says what was
/// chosen where there is a GPU. `looksAtResults`: programs are for the CPU, which sees its memory (--debug-nan).
Target automaticTarget(bool looksAtResults, Diagnostics& diags);

} // namespace pdc
