// ONNX's annotations for several devices (IR version 11): a model names configurations of devices, and each node says
// for one of them in which stage of a pipeline it is, and how its tensors lie over devices.
//
//   ModelProto.configuration           [DeviceConfigurationProto]
//   NodeProto.device_configurations    [NodeDeviceConfigurationProto], with a ShardingSpecProto for each tensor
//
// They are those of https://onnx.ai/onnx/api/classes.html; the onnx package that pdc is built with may not know them.
#pragma once

#include "pdc/Support/Diagnostics.h"
#include "pdc/Support/Expected.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace pdc {

struct DeviceConfiguration {
  std::string name;
  std::int64_t devices = 0;
  std::vector<std::string> deviceNames = {}; ///< empty, or one for each
  friend bool operator==(const DeviceConfiguration&, const DeviceConfiguration&) = default;
};

/// A factor of an axis and the equal parts that it is divided in.
struct ShardedFactor {
  std::optional<std::int64_t> size; ///< nothing: it is symbolic
  std::int64_t shards = 1;
  friend bool operator==(const ShardedFactor&, const ShardedFactor&) = default;
};

/// An axis as the product of its factors, slowest first: several where an axis holds blocks, each of which is divided.
struct ShardedAxis {
  std::int64_t axis = 0; ///< may be negative: from the last
  std::vector<ShardedFactor> factors = {};
  friend bool operator==(const ShardedAxis&, const ShardedAxis&) = default;
};

/// How an input or output of a node lies over devices: shard i on the device `devices[i]`, or on all of the group
/// `groups[devices[i]]`.
struct ShardingSpec {
  std::string tensor;
  std::vector<std::int64_t> devices = {};
  std::map<std::int64_t, std::vector<std::int64_t>> groups = {};
  std::vector<ShardedAxis> axes = {};
  friend bool operator==(const ShardingSpec&, const ShardingSpec&) = default;
};

struct NodeConfiguration {
  std::string configuration; ///< the name of one of the model's
  std::vector<ShardingSpec> shardings = {};
  std::optional<std::int32_t> stage = {};
  friend bool operator==(const NodeConfiguration&, const NodeConfiguration&) = default;
};

/// A node of the model's graph, in the order of the file.
struct AnnotatedNode {
  std::string name;     ///< of its first output, where it has none
  bool isScope = false; ///< it calls a function, or has bodies: names of nodes in there begin with `name` and a slash
  std::vector<std::string> reads; ///< names of values, also of those that its bodies read
  std::vector<std::string> inputs, outputs;
  std::vector<NodeConfiguration> configurations;
  friend bool operator==(const AnnotatedNode&, const AnnotatedNode&) = default;
};

struct DeviceAnnotations {
  std::vector<DeviceConfiguration> configurations;
  std::vector<AnnotatedNode> nodes;
  std::map<std::string, int> ranks;            ///< of values of which the file states a shape
  std::map<std::string, std::string> metadata; ///< of the model, with keys that begin with "pdc."
};

/// Reads those of the model at `path`. Errors beside a file that is no model: a message that is cut off or lacks what
/// it must have, a configuration or a tensor that is not there, a device or a number of shards out of range.
Expected<DeviceAnnotations> readDeviceAnnotations(const std::string& path, Diagnostics& diags);

/// Copies the model at `path` to `out` with these annotations instead of its own; nodes are those that were read.
/// Everything else stays as it is, but for the IR version, which is at least 11. In another folder the copy has its own
/// external data, OUT.data.
Status writeDeviceAnnotations(const std::string& path, const DeviceAnnotations& annotations, const std::string& out,
                              Diagnostics& diags);

} // namespace pdc
