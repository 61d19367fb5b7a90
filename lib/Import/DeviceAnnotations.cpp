// Both directions in the wire format, so that no package's age matters.
#include "pdc/Import/DeviceAnnotations.h"

#include "AnnotationFields.h"
#include "ControlFlow.h"
#include "OnnxFile.h"
#include "Operators.h"
#include "ProgramOrder.h"
#include "Wire.h"
#include "pdc/Support/Names.h"

#include <algorithm>
#include <set>

using namespace pdc;

namespace {

/// Reads the messages of one model; the first problem ends it.
class Reader {
public:
  Reader(const OnnxFile& file, Diagnostics& diags) : file_(file), diags_(diags) {}

  Expected<DeviceAnnotations> run() {
    std::set<std::string> functions;
    for (const onnx::FunctionProto& function : file_.model().functions())
      functions.insert(function.domain() + "::" + function.name());
    for (const onnx::NodeProto& node : file_.graph().node())
      found_.nodes.push_back(
          {.name = nameOfNode(node),
           .isScope = isControlFlow(node) || functions.contains(node.domain() + "::" + node.op_type()),
           .reads = readsOf(node),
           .inputs = {node.input().begin(), node.input().end()},
           .outputs = {node.output().begin(), node.output().end()},
           .configurations = {}});
    for (const onnx::StringStringEntryProto& entry : file_.model().metadata_props())
      if (entry.key().starts_with(ownMetadata)) found_.metadata[entry.key()] = entry.value();
    for (const auto* values : {&file_.graph().input(), &file_.graph().output(), &file_.graph().value_info()})
      for (const onnx::ValueInfoProto& value : *values)
        if (value.type().tensor_type().has_shape())
          found_.ranks[value.name()] = value.type().tensor_type().shape().dim_size();
    for (const onnx::TensorProto& tensor : file_.graph().initializer())
      found_.ranks[tensor.name()] = tensor.dims_size();
    // The configurations first, which may stand behind the graph.
    if (!readModel(field::modelConfiguration) || !readModel(field::modelGraph)) return failure;
    return std::move(found_);
  }

private:
  Failure fail(const std::string& fact, const std::string& help = "write the annotations again") {
    return diags_.error({.file = file_.path(), .node = node_}).help(help) << fact;
  }

  /// Calls `visit` for each field of `message` until one fails.
  template <class Visit>
  Status forEach(std::span<const std::byte> message, const Visit& visit) {
    WireReader reader(message);
    WireField field;
    while (reader.next(field))
      if (!visit(field)) return failure;
    if (reader.failed()) return fail("its annotations for devices are cut off or damaged: " + reader.problem());
    return success;
  }

  Status readModel(std::uint32_t wanted) {
    std::size_t node = 0;
    return forEach(file_.bytes(), [&](const WireField& field) -> Status {
      if (field.number != wanted || field.type != WireType::bytes) return success;
      if (wanted == field::modelConfiguration) return readConfiguration(field.payload);
      return forEach(field.payload, [&](const WireField& inner) -> Status {
        if (inner.number != field::graphNode || inner.type != WireType::bytes) return success;
        AnnotatedNode& annotated = found_.nodes.at(node++);
        node_ = annotated.name;
        return forEach(inner.payload, [&](const WireField& own) -> Status {
          if (own.number != field::nodeConfigurations || own.type != WireType::bytes) return success;
          return readNode(annotated, own.payload);
        });
      });
    });
  }

  /// A number of a field that has one, and where that may be.
  Expected<std::int64_t> number(const WireField& field, const char* what, std::int64_t least, std::int64_t most) {
    if (field.type != WireType::varint) return fail(std::string(what) + " is not a number");
    const auto value = static_cast<std::int64_t>(numberOf(field));
    if (value >= least && value <= most) return value;
    return fail(std::string(what) + " is " + std::to_string(value) + ", expected a number from " +
                std::to_string(least) + " to " + std::to_string(most));
  }

  Status readConfiguration(std::span<const std::byte> message) {
    DeviceConfiguration configuration;
    const Status status = forEach(message, [&](const WireField& field) -> Status {
      if (field.number == 1) configuration.name = textOf(field);
      if (field.number == 3) configuration.deviceNames.emplace_back(textOf(field));
      if (field.number != 2) return success;
      const Expected<std::int64_t> devices = number(field, "the number of devices of a configuration", 1, mostDevices);
      if (!devices) return failure;
      configuration.devices = *devices;
      return success;
    });
    if (!status) return failure;
    const std::string name = "configuration '" + configuration.name + "'";
    if (configuration.name.empty()) return fail("a configuration of devices has no name");
    if (configuration.devices == 0) return fail(name + " has no number of devices");
    if (!configuration.deviceNames.empty() &&
        static_cast<std::int64_t>(configuration.deviceNames.size()) != configuration.devices)
      return fail(name + " has " + std::to_string(configuration.devices) + " devices and names for " +
                  std::to_string(configuration.deviceNames.size()));
    if (find(configuration.name))
      return fail("two configurations of devices have the name '" + configuration.name + "'");
    found_.configurations.push_back(std::move(configuration));
    return success;
  }

  const DeviceConfiguration* find(const std::string& name) const {
    for (const DeviceConfiguration& each : found_.configurations)
      if (each.name == name) return &each;
    return nullptr;
  }

  Status readNode(AnnotatedNode& node, std::span<const std::byte> message) {
    NodeConfiguration configuration;
    const Status status = forEach(message, [&](const WireField& field) -> Status {
      if (field.number == 1) configuration.configuration = textOf(field);
      if (field.number == 2 && field.type == WireType::bytes) return readSharding(configuration, field.payload);
      if (field.number != 3) return success;
      const Expected<std::int64_t> stage = number(field, "its pipeline_stage", 0, INT32_MAX);
      if (!stage) return failure;
      configuration.stage = static_cast<std::int32_t>(*stage);
      return success;
    });
    if (!status) return failure;
    const DeviceConfiguration* known = find(configuration.configuration);
    if (!known) {
      std::vector<std::string_view> names;
      for (const DeviceConfiguration& each : found_.configurations) names.push_back(each.name);
      return fail("names the configuration of devices '" + configuration.configuration + "', which the model has not",
                  names.empty() ? "add it to ModelProto.configuration"
                                : helpForUnknown(configuration.configuration, names));
    }
    for (const ShardingSpec& spec : configuration.shardings)
      if (!check(spec, node, *known)) return failure;
    node.configurations.push_back(std::move(configuration));
    return success;
  }

  /// Tensors are those of the node, devices those of the configuration.
  Status check(const ShardingSpec& spec, const AnnotatedNode& node, const DeviceConfiguration& configuration) {
    const auto has = [&](const std::vector<std::string>& names) {
      return std::find(names.begin(), names.end(), spec.tensor) != names.end();
    };
    if (spec.tensor.empty() || (!has(node.inputs) && !has(node.outputs)))
      return fail("has a sharding_spec of '" + spec.tensor + "', which is none of its inputs and outputs");
    const auto checkDevice = [&](std::int64_t device) -> Status {
      if (device >= 0 && device < configuration.devices) return success;
      return fail("its sharding_spec of '" + spec.tensor + "' names device " + std::to_string(device) +
                  ", configuration '" + configuration.name + "' has " + std::to_string(configuration.devices) +
                  " devices");
    };
    for (const std::int64_t device : spec.devices)
      if (!spec.groups.contains(device) && !checkDevice(device)) return failure;
    for (const auto& [index, devices] : spec.groups)
      for (const std::int64_t device : devices)
        if (!checkDevice(device)) return failure;
    return success;
  }

  Status append(std::vector<std::int64_t>& numbers, const WireField& field) {
    const auto more = numbersOf(field);
    if (!more) return fail("the devices of a sharding_spec are no numbers");
    for (const std::uint64_t each : *more) numbers.push_back(static_cast<std::int64_t>(each));
    return success;
  }

  Status readSharding(NodeConfiguration& configuration, std::span<const std::byte> message) {
    ShardingSpec& spec = configuration.shardings.emplace_back();
    return forEach(message, [&](const WireField& field) -> Status {
      if (field.number == 1) spec.tensor = textOf(field);
      if (field.number == 2) return append(spec.devices, field);
      if (field.number == 3) return readGroup(spec, field.payload);
      return field.number == 4 ? readAxis(spec, field.payload) : Status(success);
    });
  }

  Status readGroup(ShardingSpec& spec, std::span<const std::byte> message) {
    std::int64_t key = 0;
    std::vector<std::int64_t> devices;
    const Status status = forEach(message, [&](const WireField& field) -> Status {
      if (field.number == 1) key = static_cast<std::int64_t>(numberOf(field));
      return field.number == 2 ? append(devices, field) : Status(success);
    });
    if (!status) return failure;
    spec.groups[key] = std::move(devices);
    return success;
  }

  Status readAxis(ShardingSpec& spec, std::span<const std::byte> message) {
    ShardedAxis& axis = spec.axes.emplace_back();
    return forEach(message, [&](const WireField& field) -> Status {
      if (field.number == 1) axis.axis = static_cast<std::int64_t>(numberOf(field));
      return field.number == 2 ? readFactor(axis, field.payload) : Status(success);
    });
  }

  Status readFactor(ShardedAxis& axis, std::span<const std::byte> message) {
    ShardedFactor factor{.size = std::nullopt, .shards = 0};
    const Status status = forEach(message, [&](const WireField& field) -> Status {
      if (field.number != 1 && field.number != 3) return success;
      const bool isSize = field.number == 1;
      const Expected<std::int64_t> value =
          number(field, isSize ? "a sharded dimension" : "a number of shards", 1, isSize ? INT64_MAX : mostDevices);
      if (!value) return failure;
      (isSize ? factor.size.emplace() : factor.shards) = *value;
      return success;
    });
    if (!status) return failure;
    if (factor.shards == 0) return fail("a sharded dimension has no num_shards");
    axis.factors.push_back(factor);
    return success;
  }

  static constexpr std::int64_t mostDevices = 1 << 20;

  const OnnxFile& file_;
  Diagnostics& diags_;
  DeviceAnnotations found_;
  std::string node_; ///< that is being read
};

} // namespace

Expected<DeviceAnnotations> pdc::readDeviceAnnotations(const std::string& path, Diagnostics& diags) {
  const Expected<OnnxFile> file = OnnxFile::open(path, diags);
  if (!file) return failure;
  return Reader(*file, diags).run();
}
