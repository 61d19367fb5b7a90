#include "Kinds/Given.h"

#include <charconv>

using namespace pdc;

static constexpr std::string_view givenPrefix = "given:", splitsSuffix = ",split";

GivenKind::GivenKind(const Facts& facts) : ScheduleDef(std::string(givenPrefix)) {
  hasBatches = facts.updates != Updates::alone;
  flushes = facts.updates == Updates::flush;
  inFlightFitsBatch = facts.updates == Updates::twoVersions;
  splitsBackward = facts.splitsBackward;
  stagesPerRank = facts.stagesPerRank;
  isGiven = true;
  name += !hasBatches ? "alone" : flushes ? "flush" : "two-versions";
  if (splitsBackward) name += splitsSuffix;
  if (stagesPerRank > 1) name += "," + std::to_string(stagesPerRank);
}

int GivenKind::versions(pdcrt::WeightPolicy asked, const StageShape& input, const StageShape& own, int stage) const {
  return hasBatches && !flushes ? 2 : ScheduleDef::versions(asked, input, own, stage);
}

pdcrt::WeightPolicy GivenKind::weights(pdcrt::WeightPolicy asked) const {
  return hasBatches && !flushes ? pdcrt::WeightPolicy::twoVersions : asked;
}

pdcrt::Schedule GivenKind::frame(const PipelineShape& shape) const {
  return emptySchedule(shape, *this);
}

/// Takes `word` from the front of `text`.
static bool takes(std::string_view& text, std::string_view word) {
  if (!text.starts_with(word)) return false;
  text.remove_prefix(word.size());
  return true;
}

static std::shared_ptr<const ScheduleDef> givenNamed(std::string_view text) {
  if (!takes(text, givenPrefix)) return nullptr;
  GivenKind::Facts facts;
  if (takes(text, "alone"))
    facts.updates = GivenKind::Updates::alone;
  else if (takes(text, "two-versions"))
    facts.updates = GivenKind::Updates::twoVersions;
  else if (!takes(text, "flush"))
    return nullptr;
  facts.splitsBackward = takes(text, splitsSuffix);
  if (takes(text, ",")) {
    const char* end = text.data() + text.size();
    auto [next, code] = std::from_chars(text.data(), end, facts.stagesPerRank);
    if (code != std::errc() || next != end || facts.stagesPerRank < 2 || facts.stagesPerRank > 1 << 20) return nullptr;
    text = {};
  }
  return text.empty() ? std::make_shared<GivenKind>(facts) : nullptr;
}

static const RegisterSchedule registeredGiven(ScheduleFamily{"", givenNamed});
