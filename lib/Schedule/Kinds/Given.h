// Schedules whose lists a file gives (Files/ScheduleFile.cpp). What planners ask is read from the lists and stands in
// the name, so that a plan says it without the file: "given:flush", "given:alone", "given:two-versions,split,2".
#pragma once

#include "Kinds/ListBuilder.h"

namespace pdc {

class GivenKind : public ScheduleDef {
public:
  /// When stages update: each by itself; all after a flush; all after a batch, with two versions of the weights.
  enum class Updates { alone, flush, twoVersions };
  struct Facts {
    Updates updates = Updates::flush;
    bool splitsBackward = false;
    int stagesPerRank = 1;
  };
  explicit GivenKind(const Facts& facts);

  int versions(pdcrt::WeightPolicy asked, const StageShape& input, const StageShape& own, int stage) const override;
  pdcrt::WeightPolicy weights(pdcrt::WeightPolicy asked) const override;
  /// The frame of a plan without its file, as 1F1B has it.
  pdcrt::Schedule frame(const PipelineShape& shape) const override;
  pdcrt::Schedule build(const PipelineShape&) const override { return {}; }
};

} // namespace pdc
