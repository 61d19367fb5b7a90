#include "Summary.h"

#include "Teams.h"

#include "pdc/Support/DiagnosticsBuilder.h"
#include "pdc/Support/Units.h"

#include <iomanip>
#include <ostream>
#include <set>
#include <sstream>

using namespace pdc;

std::string pdc::certificateOf(const Plan& plan) {
  if (plan.optimal) return "proven optimal";
  if (plan.lowerBoundMs <= 0) return "not compared with others";
  std::ostringstream text;
  text << std::fixed << std::setprecision(3) << "lower bound " << plan.lowerBoundMs << " ms, gap "
       << std::setprecision(1) << 100 * plan.gap() << " %";
  return text.str();
}

void pdc::printSummary(const GeneratedProgram& program, const std::string& costSource, const std::string& output,
                       const std::string& dataFiles, std::ostream& out) {
  const Plan& plan = program.plan;
  out << "stage  replicas  groups  forward ms  backward ms  arena MiB  alive MiB\n" << std::fixed;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const PlanStage& stage = plan.stages[s];
    out << std::setw(5) << s << std::setw(10) << stage.replicas << std::setw(8) << stage.nodes.size() << std::setw(12)
        << std::setprecision(3) << stage.forwardMs << std::setw(13) << stage.inputGradientMs + stage.weightGradientMs
        << std::setw(11) << static_cast<double>(stage.memoryBytes) / (1024 * 1024) << std::setw(11)
        << static_cast<double>(program.liveBytes[s]) / (1024 * 1024) << "\n";
  }
  out << "predicted " << std::setprecision(3) << plan.timeMs << " ms per minibatch (" << plan.schedule.name()
      << (plan.scheduleFile.empty() ? "" : ", really " + plan.scheduleFile) << ", costs " << costSource << "), "
      << certificateOf(plan) << "\nnext: pdc-run " << output << " --data DATA\nDATA is a folder with\n"
      << dataFiles;
}

std::string pdc::int8Text(const std::vector<StageGraphs>& stages) {
  std::string text;
  for (const StageGraphs& stage : stages) {
    std::int64_t weights = 0, bytes = 0, inFloats = 0;
    for (const Value* value : stage.training->parameterValues()) {
      const std::optional<DerivedValues>& derived = value->parameter()->derived;
      if (!derived || value->users().empty()) continue;
      bytes += value->type().bytes();
      if (derived->kind != DerivedValues::Kind::int8) continue;
      ++weights;
      inFloats += value->type().elements() * static_cast<std::int64_t>(sizeof(float));
    }
    if (weights > 0)
      text += "stage " + std::to_string(stage.stage) + ": " + std::to_string(weights) +
              (weights == 1 ? " weight takes " : " weights take ") + sizeText(bytes) + " in 8 bits, " +
              sizeText(inFloats) + " in f32\n";
  }
  return text;
}

void pdc::printProfile(const Profile& profile, std::ostream& out) {
  out << std::fixed << std::setprecision(3) << "  forward ms  input gradient ms  weight gradient ms  group\n";
  double sum = 0;
  for (const GroupTimes& group : profile.groups) {
    out << std::setw(12) << group.forwardMs << std::setw(19) << group.inputGradientMs << std::setw(20)
        << group.weightGradientMs << "  " << group.name << "\n";
    sum += group.forwardMs + group.inputGradientMs + group.weightGradientMs;
  }
  for (const KernelTime& time : profile.kernels)
    out << std::setw(12) << time.ms << "  " << time.method << " by " << time.algorithm << " of " << time.kernel << "\n";
  if (profile.reservedBytes > 0)
    out << "beside its arena the GPU holds " << profile.reservedBytes << " bytes, which plans will reserve\n";
  out << "step " << profile.stepMs << " ms, sum of the groups " << sum << " ms, update " << profile.updateMs
      << " ms, reading the samples " << profile.dataMs << " ms\n";
}

void pdc::remarkOnUnused(const Plan& plan, const Cluster& machines, const CompileOptions& options,
                         bool replicasAreGiven, Diagnostics& diags) {
  const std::int64_t devices = machines.deviceCount();
  // Where all stages have teams of one size, these are the devices.
  const auto used = static_cast<std::int64_t>(
      differentSplits(plan).empty() ? plan.ranks.size() : static_cast<std::size_t>(processesOf(plan)));
  if (used >= devices || !options.planFile.empty() || !options.scheduleFile.empty() || replicasAreGiven) return;
  const std::string help =
      used == 1 ? "--explain says why; --replicas=1,1 makes two stages all the same" : "--explain says why";
  diags.remark({}).help(help) << used << " of " << devices << (used == 1 ? " devices is" : " devices are")
                              << " used: the planner has found no faster plan with more";
}

void pdc::warnOfCodecs(const Plan& plan, Diagnostics& diags) {
  std::set<std::string> names;
  for (const PlanTensor& tensor : plan.tensors)
    if (tensor.codec) names.insert(tensor.name);
  if (names.empty()) return;
  diags.warning({}).help("leave out --edge-codec where every plan shall train the same")
      << names.size() << (names.size() == 1 ? " tensor crosses" : " tensors cross")
      << " between stages as int8: another cut trains other weights";
}
