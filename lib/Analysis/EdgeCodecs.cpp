#include "pdc/Analysis/EdgeCodecs.h"

#include "pdc/IR/Encoding.h"

using namespace pdc;

Status pdc::addEdgeCodecs(CostGraph& cost, const Graph& graph, const EdgeCodec& codec, const DeviceKind& device,
                          const OpRegistry& registry, Diagnostics& diags) {
  const Attributes attributes{{"alpha", codec.alpha}, {"columns", codec.columns}};
  const double msPerByte = 1e3 / device.memoryBandwidthBytesPerS;
  for (CostTensor& tensor : cost.tensors) {
    const Value* value = graph.find(tensor.name);
    if (!value || !canBeEncoded(value->type())) continue;
    const Expected<Type> encoded = encodedType(value->type(), attributes, registry, diags);
    if (!encoded) return failure;
    if (encoded->bytes() >= tensor.bytes) continue;
    const auto whole = static_cast<double>(tensor.bytes), less = static_cast<double>(encoded->bytes());
    tensor.codec = {
        .bytes = encoded->bytes(), .encodeMs = msPerByte * (2 * whole + less), .decodeMs = msPerByte * (less + whole)};
  }
  return success;
}
