// Layouts of values. Targets whose kernels prefer blocked or channels-last tensors will choose them here, after fusion
// and before costs; the CPU target keeps the blocked layouts of oneDNN inside its kernels, so that nothing is to be
// chosen yet.
#include "pdc/Transforms/Transforms.h"

using namespace pdc;

Status pdc::chooseLayouts(PassContext&) {
  return success;
}
