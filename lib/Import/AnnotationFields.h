// Numbers of onnx.proto's fields on the way to annotations for devices. Those inside of the messages stand where these
// are read and written: 1, 2, … in the order of the structs of DeviceAnnotations.h.
#pragma once

#include <cstdint>

namespace pdc {

namespace field {
inline constexpr std::uint32_t modelIrVersion = 1, modelGraph = 7, modelMetadata = 14, modelConfiguration = 26;
inline constexpr std::uint32_t graphNode = 1, graphInitializer = 5;
inline constexpr std::uint32_t nodeConfigurations = 10;
} // namespace field

/// The IR version that has annotations for devices.
inline constexpr std::int64_t annotatedIrVersion = 11;

/// What the keys of pdc's own metadata of a model begin with.
inline constexpr const char* ownMetadata = "pdc.";

} // namespace pdc
