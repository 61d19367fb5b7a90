// Texts that people and other programs write for the planner and the simulator.
#include "Readers.h"

#include "pdc/Plan/Cluster.h"
#include "pdc/Plan/CostGraph.h"
#include "pdc/Plan/Plan.h"
#include "pdc/Predict/RunTrace.h"
#include "pdc/Published/DnnPartitioning.h"
#include "pdc/Published/PipedreamProfile.h"
#include "pdc/Published/Piper.h"
#include "pdc/Report/Report.h"
#include "pdc/Schedule/ScheduleFile.h"
#include "pdc/Support/Diagnostics.h"

using namespace pdc;

namespace {

/// Reads `text` and returns what was read, null where it was refused, with an error.
template <class T>
const T* checked(const Expected<T>& read, const Diagnostics& diags) {
  if (static_cast<bool>(read) == diags.hasErrors()) fuzz::fail("success and errors disagree");
  return read ? &*read : nullptr;
}

template <auto Read>
void refuseOrRead(const std::string& text) {
  Diagnostics diags(nullptr);
  const auto read = Read(text, "fuzz", diags);
  checked(read, diags);
}

template <auto Read>
void roundTrip(const std::string& text) {
  Diagnostics diags(nullptr);
  const auto read = Read(text, "fuzz", diags);
  const auto* record = checked(read, diags);
  if (!record) return;
  const std::string written = toJson(*record);
  const auto again = Read(written, "written", diags);
  if (!again || toJson(*again) != written) fuzz::fail("does not read back");
}

/// Two stages on two ranks.
Plan smallPlan() {
  Plan plan;
  plan.stages.resize(2);
  for (int rank = 0; rank < 2; ++rank) plan.ranks.push_back({.rank = rank, .devices = {rank}, .hosts = {{rank, 0}}});
  return plan;
}

void trace(const std::string& text) {
  Diagnostics diags(nullptr);
  checked(readTrace(smallPlan(), text, "fuzz", diags), diags);
}

/// A schedule as --schedule=FILE takes it, in pdc's text or PyTorch's CSV.
void schedule(const std::string& text) {
  Diagnostics diags(nullptr);
  checked(readScheduleFile(fuzz::fileOf(text), diags), diags);
}

} // namespace

std::span<const fuzz::Reader> fuzz::jsonReaders() {
  static const Reader readers[] = {{"pipedream-profile", refuseOrRead<pipedreamProfileFromText>},
                                   {"cost-graph", roundTrip<costGraphFromJson>},
                                   {"cluster", roundTrip<clusterFromJson>},
                                   {"plan", roundTrip<planFromJson>},
                                   {"placement", refuseOrRead<dnnPartitioningFromJson>},
                                   {"piper", refuseOrRead<piperFromJson>},
                                   {"trace", trace},
                                   {"metrics", refuseOrRead<readMetrics>},
                                   {"torch-csv", refuseOrRead<torchBatchFromCsv>},
                                   {"schedule-file", schedule}};
  return readers;
}
