// Which operators a model uses and which of them have a conversion; facts of ONNX that the importer itself needs.
#pragma once

#include "OnnxFile.h"
#include "pdc/Import/OnnxImport.h"

#include <vector>

namespace pdc {

inline constexpr std::int64_t oldestIrVersion = 3, newestIrVersion = 14;

/// One operator of a model.
struct OperatorUse {
  std::string name;    ///< with its domain where that is not ONNX's: "com.microsoft::Gelu"
  int count = 0;       ///< of nodes
  std::string example; ///< the name of the first node
  std::string problem; ///< why it cannot be converted; empty: it can
};

/// The operators of `file`'s graph, in alphabetical order.
std::vector<OperatorUse> operatorsOf(const OnnxFile& file, const OpRegistry& registry);

/// IR version and opset are ones that pdc reads.
Status checkVersions(const OnnxFile& file, Diagnostics& diags);
/// Every operator has a conversion; the error lists all that have none.
Status checkOperators(const OnnxFile& file, const OpRegistry& registry, Diagnostics& diags);

bool isBatchNormalization(const onnx::NodeProto& node);
bool isDropout(const onnx::NodeProto& node);
/// Whether input `input` of `node` is a list of numbers that must be known at import, although they are floats: the
/// scales and the region of Resize and Upsample.
bool isListOfNumbers(const onnx::NodeProto& node, int input);

/// Whether input `input` of `node` is a scale or a zero point of QuantizeLinear or DequantizeLinear.
bool isQuantizationParameter(const onnx::NodeProto& node, int input);
/// Whether input `input` of `node` is where quantized models have integer weights.
bool isQuantizedWeight(const onnx::NodeProto& node, int input);

/// Inputs 3 and 4 of BatchNormalization are the running mean and variance; in training mode its outputs 1 and 2 are
/// their new values.
struct RunningStatistic {
  int input, output;
};
inline constexpr RunningStatistic runningStatistics[] = {{3, 1}, {4, 2}};

/// Whether a BatchNormalization was exported in training mode: by its attribute since opset 14, before that by having
/// more than one output.
bool isInTrainingMode(const onnx::NodeProto& batchNormalization, std::int64_t opset);

} // namespace pdc
