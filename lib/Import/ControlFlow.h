// If, Loop, Scan and SequenceMap, where what they do is known when a model is compiled.
#pragma once

#include "ModelValue.h"
#include "OnnxProto.h"
#include "pdc/IR/Builder.h"

#include <functional>
#include <string>
#include <vector>

namespace pdc {

/// Whether `node` is an If, a Loop, a Scan or a SequenceMap of ONNX's own domain.
bool isControlFlow(const onnx::NodeProto& node);

/// The values that `node` reads: its inputs, and what its bodies take from outside. Absent inputs are left out.
std::vector<std::string> readsOf(const onnx::NodeProto& node);

/// The graphs in the attributes of `node`.
std::vector<const onnx::GraphProto*> bodiesOf(const onnx::NodeProto& node);

/// Calls `visit` for the nodes of `graph`, and for those of their bodies.
template <class Visit>
void forEachNode(const onnx::GraphProto& graph, const Visit& visit) {
  for (const onnx::NodeProto& node : graph.node()) {
    visit(node);
    for (const onnx::GraphProto* body : bodiesOf(node)) forEachNode(*body, visit);
  }
}

/// Converts the nodes of `body` for these values of its inputs and returns its outputs. `scope` goes before the names
/// of its nodes: "3/".
using ConvertBody = std::function<Expected<std::vector<ModelValue>>(
    const onnx::GraphProto& body, const std::vector<ModelValue>& inputs, const std::string& scope)>;

/// The outputs of an If, Loop, Scan or SequenceMap, which is expanded: the branch that the condition takes, or the body
/// once per iteration. Afterwards nothing is left of it; gradients and cuts are those of the nodes. Branches may yield
/// sequences, and a Loop may carry them.
///
/// Errors: a condition or a number of iterations that is computed from data; Scan of opset 8; a Loop without iterations
/// whose stacked outputs, of no known type, are read. How much a model may expand to is for `convertBody` to say.
Expected<std::vector<ModelValue>> expandControlFlow(const onnx::NodeProto& node, std::int64_t opset,
                                                    const std::vector<ModelValue>& inputs, Builder& builder,
                                                    const ConvertBody& convertBody);

} // namespace pdc
