// GPipe (arXiv 1811.06965): all forwards of a batch, then all backwards, then one update of every stage: 1F1B with a
// flush in which each stage is as far ahead as a batch is long.
#include "Kinds/Flush.h"

using namespace pdc;

namespace {

class GPipe : public FlushKind {
public:
  GPipe() : FlushKind("gpipe") { forwardsFirst = true; }
};

const RegisterSchedule registeredGPipe(std::make_shared<GPipe>());

} // namespace
