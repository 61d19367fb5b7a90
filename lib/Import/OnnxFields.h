// Numbers of the fields of onnx.proto, of those that are read where they lie in a file.
#pragma once

#include <cstdint>

namespace pdc::fields {

inline constexpr std::uint32_t modelIrVersion = 1, modelGraph = 7;
inline constexpr std::uint32_t graphNode = 1, graphInitializer = 5;
inline constexpr std::uint32_t nodeAttribute = 5, attributeTensor = 5, attributeGraph = 6, attributeGraphs = 11;
inline constexpr std::uint32_t tensorFloatData = 4, tensorRawData = 9, tensorDoubleData = 10;

} // namespace pdc::fields
