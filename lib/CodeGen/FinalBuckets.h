// Where in the backward of a stage the gradients of a bucket are final.
#pragma once

#include "pdc/CodeGen/StageEmitter.h"

#include <map>
#include <string>
#include <vector>

namespace pdc {

/// The bucket of each parameter of the stage: that of the first fusion group that uses it.
std::map<const Parameter*, int> bucketsOfParameters(const StageProgram& program);

struct FinalBucket {
  int bucket = 0;
  std::vector<const Parameter*> parameters;
};

/// Of a replicated stage: by operation, the buckets of which nothing is written or read after it, in ascending order.
/// A bucket of which other stages have a part (shared parameters) is left out, and so are those after it.
std::map<const Operation*, std::vector<FinalBucket>> finalBuckets(const StageProgram& program);

} // namespace pdc
