#include "Costs.h"

#include "Measure.h"
#include "pdc/Analysis/EdgeCodecs.h"
#include "pdc/Analysis/TeamTimes.h"

#include <algorithm>

using namespace pdc;

/// What a measurement found out about this machine, where no cluster file describes it.
static void adoptMeasured(const Profile& profile, Cluster& machines) {
  if (profile.link) {
    machines.levels[0].bandwidthBytesPerS = profile.link->bandwidthBytesPerS;
    machines.levels[0].latencyS = profile.link->latencyS;
    machines.device.coreSPerByte = profile.link->coreSPerByte;
  }
  if (profile.reservedBytes > 0)
    machines.device.reservedBytes = std::min(profile.reservedBytes, machines.device.memoryBytes);
}

Expected<Costs> pdc::costsOf(PassContext& context, const CompileOptions& options, const pdcrt::Training& training,
                             const Provenance& provenance, PlanRequest& request, const Profile* given) {
  const bool splitBackward = request.planner.schedule->splitsBackward;
  // Members of teams keep cores busy, each its own.
  Cluster measuring = request.machines;
  measuring.levels = request.devices.levels;
  measuring.device.cores = request.devices.device.cores / request.threads;
  if (request.devices.device.cores > 0) measuring.device.cores = std::max<std::int64_t>(measuring.device.cores, 1);
  Expected<Profile> profile =
      given ? Expected<Profile>(*given)
            : chooseProfile(options.profile, context, training, provenance, measuring,
                            {.splitBackward = splitBackward, .target = options.target, .threads = request.threads});
  if (!profile) return failure;
  if (given) { // which may have been measured with the kernels of the undivided graph, too
    profile->kernels = calledOnly(given->kernels, context.module, options.target);
    if (!chooseAlgorithms(context.module, profile->kernels, "", context.diags, options.target)) return failure;
  }
  if (options.clusterFile.empty())
    for (Cluster* machines : {&request.machines, &request.devices}) adoptMeasured(*profile, *machines);
  const CostOptions costOptions = {.splitBackward = splitBackward,
                                   .target = options.target,
                                   // A GPU's data is read ahead, unless the host looks at gradients before it goes on.
                                   .readsAhead = options.target == Target::cuda && !training.checksGradients(),
                                   .earlyUpdates = updatesEarly(request.stages, request.expectedSchedule()),
                                   .threads = request.threads,
                                   .microbatches = request.expectedSchedule().minibatchesPerUpdate};
  Expected<CostGraph> graph =
      costGraphOf(*context.module.findGraph("main"), provenance.model, *profile, costOptions, context.diags);
  if (!graph) return failure;
  if (const EdgeCodecChoice& edges = request.planner.edgeCodec; edges.policy != EdgeCodecPolicy::none)
    if (!addEdgeCodecs(*graph, *context.module.findGraph("main"), edges.codec, request.machines.device,
                       context.registry, context.diags))
      return failure;
  if (!options.split.isNone())
    addTeamTimes(*graph, *context.module.findGraph("main"), *profile,
                 {.device = request.machines.device, .link = request.devices.levels[0]}, splitBackward);
  return Costs{std::move(*profile), std::move(*graph)};
}
