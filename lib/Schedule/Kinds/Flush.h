// What schedules share that are 1F1B with a flush, as far ahead as their warm-up says.
#pragma once

#include "Kinds/ListBuilder.h"

namespace pdc {

class FlushKind : public FlatKind {
public:
  explicit FlushKind(std::string kindName) : FlatKind(std::move(kindName)) { hasSafeOrder = true; }
  pdcrt::Schedule build(const PipelineShape& shape) const override;
};

} // namespace pdc
