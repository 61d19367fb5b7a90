#include "pdc/Plan/ScheduleDef.h"

#include <cstdio>
#include <cstdlib>
#include <numeric>

using namespace pdc;

std::optional<int> ScheduleDef::warmup(std::int64_t microbatches, int replicas) const {
  if (!forwardsFirst) return std::nullopt;
  return static_cast<int>((microbatches + replicas - 1) / replicas) - 1;
}

int ScheduleDef::syncDelay(SyncPolicy sync, int stages, int replicas) const {
  return !hasBatches && sync == SyncPolicy::overlap && stages > 1 && replicas > 1 ? 1 : 0;
}

int ScheduleDef::versions(pdcrt::WeightPolicy asked, const StageShape& input, const StageShape& own, int) const {
  if (hasBatches || asked == pdcrt::WeightPolicy::latest) return 1;
  if (asked == pdcrt::WeightPolicy::stash) return own.warmup + 1;
  // Vertical sync: the version that the input stage used, in units of this stage's updates.
  const int ahead =
      input.replicas * (input.warmup + input.syncDelay) + input.replicas - std::gcd(input.replicas, own.replicas);
  return (ahead + own.replicas - 1) / own.replicas - own.syncDelay + 1;
}

StageDepths ScheduleDef::depths(std::int64_t, const StageShape&, const StageShape& own, int) const {
  return {.slots = own.warmup + 1};
}

/// All families; a function, because static objects of other files register them.
static std::vector<ScheduleFamily>& families() {
  static std::vector<ScheduleFamily> all;
  return all;
}

RegisterSchedule::RegisterSchedule(ScheduleFamily family) {
  families().push_back(std::move(family));
}

RegisterSchedule::RegisterSchedule(std::shared_ptr<const ScheduleDef> def)
    : RegisterSchedule(ScheduleFamily{def->name, [def](std::string_view name) {
                                        return name == def->name ? def : std::shared_ptr<const ScheduleDef>();
                                      }}) {}

std::optional<ScheduleKind> ScheduleKind::named(std::string_view name) {
  for (const ScheduleFamily& family : families())
    if (std::shared_ptr<const ScheduleDef> def = family.named(name)) return ScheduleKind(std::move(def));
  return std::nullopt;
}

ScheduleKind::ScheduleKind(const char* name) {
  std::optional<ScheduleKind> kind = named(name);
  if (!kind) {
    std::fprintf(stderr, "internal error: there is no schedule '%s'\n", name);
    std::abort();
  }
  def_ = std::move(kind->def_);
}

const ScheduleDef& ScheduleKind::usual() {
  static const ScheduleKind kind("1f1b");
  return *kind.def_;
}

std::vector<std::string> pdc::scheduleNames() {
  std::vector<std::string> names;
  for (const ScheduleFamily& family : families())
    if (!family.pattern.empty()) names.push_back(family.pattern);
  std::sort(names.begin(), names.end());
  return names;
}

std::string pdc::scheduleNamesText() {
  std::string text;
  for (const std::string& name : scheduleNames()) text += (text.empty() ? "" : ", ") + name;
  return text;
}
