// What each fusion group costs: measured in a generated program, or estimated from operations and bytes.
//
//   {"pdc": "0.1.0", "source": "measured", "model_hash": "8f0c…", "device": "cpu", "busy_cores": 2,
//    "split_backward": false, "step_ms": 4.1, "update_ms": 0.2, "data_ms": 0.1,
//    "link": {"latency_s": 0.0009, "bandwidth_bytes_per_s": 2.1e9},
//    "groups": [{"id": 0, "name": "/conv1/Conv, …", "forward_ms": 0.51, "input_gradient_ms": 0, "weight_gradient_ms":
//    0.62,
//                "update_ms": 0.01, "spread": 0.03}, …],
//    "kernels": [{"kernel": "Conv2d{.input = {8, 64, 56, 56}, …}", "method": "forward", "algorithm": "winograd", "ms":
//    6.8}, …]}
//
// Where data was looked at, also "kept_inputs": {"h.0.mlp.c_fc.weight": [3, 77], …}. Of a GPU also "clock_mhz",
// "reserved_bytes" and, of each kernel, "workspace_bytes".
#pragma once

#include "pdc/Analysis/KernelTimes.h"
#include "pdc/IR/KeptInputs.h"
#include "pdc/IR/OpDef.h"
#include "pdc/IR/Target.h"
#include "pdc/Plan/Cluster.h"
#include "pdc/Plan/CostGraph.h"

#include <optional>
#include <string>
#include <vector>

namespace pdc {

class JsonNode;

/// Times of one minibatch on one device, in milliseconds.
struct GroupTimes {
  int id = 0;
  std::string name; ///< for people
  double forwardMs = 0, inputGradientMs = 0, weightGradientMs = 0;
  double updateMs = 0; ///< optimizer, of the group's parameters, as a pass of its own
  /// What it takes where gradients are used up as soon as they are made (`--updates=early`), which may save passes
  /// over them; nothing: that was not measured.
  std::optional<double> earlyUpdateMs = {};
  double spread = 0; ///< (90th - 10th percentile) / median over repetitions; 0 when estimated
};

/// What a message between two ranks of the machine took while both computed.
struct LinkProfile {
  double latencyS = 0, bandwidthBytesPerS = 0;
  double coreSPerByte = 0; ///< what a byte sent or received takes from the core that computes
};

/// {"latency_s": …, "bandwidth_bytes_per_s": …, "core_s_per_byte": …}: of a profile, and what `pipeline --link` writes.
/// Errors are the document's; the last may be missing.
LinkProfile readLink(const JsonNode& node);

struct Profile {
  std::string version;            ///< of pdc
  std::string source;             ///< "measured", "analytic", or "scaled" from those measured of another graph
  std::string modelHash;          ///< hashOf the training graph, which fixes batch, shapes and fusion groups
  std::string device;             ///< as the cluster's, or as a GPU that measured calls itself
  double clockMhz = 0;            ///< of that GPU, while it measured
  std::int64_t reservedBytes = 0; ///< what it held beside the arena; 0: not measured
  std::int64_t busyCores = 1;     ///< of the machine, that computed the same at once: they share memory and frequency
  /// Whether the halves of a backward were timed apart; else both are in inputGradientMs.
  bool splitBackward = true;
  std::vector<GroupTimes> groups;
  double stepMs = 0;       ///< a whole minibatch: forward and backward of all groups
  double updateMs = 0;     ///< of all parameters
  double accumulateMs = 0; ///< adding all gradients to those of the microbatches before; 0: not measured
  double dataMs = 0; ///< reading the samples of a minibatch: of the first group that uses them, if nobody reads ahead
  std::optional<LinkProfile> link; ///< where it was measured
  std::vector<KernelTime> kernels; ///< where it was measured: what decides between algorithms
  /// Where data was looked at: by frozen weights of 8 bits, the inputs that they keep in f32, ascending.
  KeptInputs keptInputs = {};
};

std::string toJson(const Profile& profile);
/// The list "kernels" of a profile, or of what a program that measures writes: times of different things, each once.
void readKernelTimes(const JsonNode& root, std::vector<KernelTime>& times);
Expected<Profile> profileFromJson(const std::string& text, const std::string& file, Diagnostics& diags);

/// What is wrong with using `profile` for a model with this hash and so many groups, made by this version; empty if
/// nothing is. States both hashes.
std::string profileMismatch(const Profile& profile, const std::string& modelHash, std::size_t groups,
                            const std::string& version);

/// A fingerprint of a graph: FNV-1a over its text and the names and types of its parameters, 16 hexadecimal digits.
/// Equal for equal models, batch sizes and fusion groups, wherever the files lie; not meant against forgery.
std::string hashOf(const Graph& graph);

/// Fusion groups of `graph`: one more than the largest group id.
int groupCount(const Graph& graph);

/// What to call each fusion group: the ONNX nodes of its forward operations, in program order.
std::vector<std::string> groupNames(const Graph& graph);

/// What an operation takes on the device by the roofline model.
double estimatedMs(const Operation& operation, const DeviceKind& device);

/// Estimates every group by the roofline model (Williams, Waterman and Patterson, CACM 2009): an operation takes the
/// longer of its floating-point operations at the device's peak and its bytes at the bandwidth of the memory. The
/// update of a parameter reads the weight and its gradient and writes the weight.
Profile analyticProfile(const Graph& graph, const DeviceKind& device, const std::string& version);
/// The same without the model hash, which takes longer than all else.
Profile estimatedTimes(const Graph& graph, const DeviceKind& device, const std::string& version);

/// What of a run the costs depend on.
struct CostOptions {
  bool splitBackward = false; ///< the schedule separates the halves of a backward; else nothing is handed over
  Target target = Target::cpu;
  bool readsAhead = false; ///< data is read while the minibatch before is computed, and takes nobody's time
  /// Gradients are used up as soon as they are made, where replicas do not add them up first.
  bool earlyUpdates = false;
  int threads = 1;               ///< OpenMP threads of a kernel, on which its workspace depends
  std::int64_t microbatches = 1; ///< per update: all but the first add their gradients to a sum, in their backward
};

/// The planner's view of a differentiated and fused graph: a node per group, a tensor per value that groups hand on.
/// Parameters that several groups use give them a colour. Errors: a kernel refuses its shapes, or the target lacks it.
Expected<CostGraph> costGraphOf(const Graph& graph, const std::string& model, const Profile& profile,
                                const CostOptions& options, Diagnostics& diags);

} // namespace pdc
