#include "Weights/LiftedWeights.h"

#include "ControlFlow.h"
#include "OnnxFields.h"
#include "ProgramOrder.h"
#include "Weights/ExportedProgram.h"
#include "Weights/InitializerRules.h"
#include "Wire.h"
#include "pdc/IR/OpDef.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

using namespace pdc;
using namespace pdc::fields;

namespace {

/// A message where it lies in the file.
struct Message {
  std::span<const std::byte> bytes;
  std::size_t offset = 0;
};

std::vector<Message> fieldsOf(const Message& message, std::uint32_t number) {
  std::vector<Message> fields;
  WireReader reader(message.bytes, message.offset);
  for (WireField field; reader.next(field);)
    if (field.number == number && field.type == WireType::bytes)
      fields.push_back({field.payload, reader.position() - field.payload.size()});
  return fields;
}

/// A graph's parts that are messages, which may be spread over several.
struct GraphMessages {
  std::vector<Message> nodes, initializers;
  void add(const Message& graph) {
    for (const Message& node : fieldsOf(graph, graphNode)) nodes.push_back(node);
    for (const Message& tensor : fieldsOf(graph, graphInitializer)) initializers.push_back(tensor);
  }
};

ElementRange rangeIn(const Message& tensor) {
  ElementRange range;
  WireReader reader(tensor.bytes, tensor.offset);
  for (WireField field; reader.next(field);) {
    if (field.number != tensorRawData && field.number != tensorFloatData && field.number != tensorDoubleData) continue;
    range.scattered |= range.field != 0 || field.type != WireType::bytes;
    range.field = field.number;
    range.offset = reader.position() - field.payload.size();
    range.length = field.payload.size();
  }
  return range;
}

bool isConstantNode(const onnx::NodeProto& node) {
  return node.op_type() == "Constant" && isDefaultDomain(node.domain()) && node.output_size() == 1;
}

/// Renames what `graph`, or a body in it that does not define the name itself, reads.
void renameReads(onnx::GraphProto& graph, const std::string& from, const std::string& to) {
  for (onnx::NodeProto& node : *graph.mutable_node()) {
    for (std::string& input : *node.mutable_input())
      if (input == from) input = to;
    for (onnx::AttributeProto& attribute : *node.mutable_attribute()) {
      const auto inBody = [&](onnx::GraphProto& body) {
        const auto defines = [&](const auto& list) {
          return std::any_of(list.begin(), list.end(), [&](const auto& value) { return value.name() == from; });
        };
        const bool hides =
            defines(body.input()) || defines(body.initializer()) ||
            std::any_of(body.node().begin(), body.node().end(), [&](const onnx::NodeProto& inner) {
              return std::find(inner.output().begin(), inner.output().end(), from) != inner.output().end();
            });
        if (!hides) renameReads(body, from, to);
      };
      if (attribute.has_g()) inBody(*attribute.mutable_g());
      for (onnx::GraphProto& body : *attribute.mutable_graphs()) inBody(body);
    }
  }
}

class Lifting {
public:
  Lifting(OnnxFile& file, const std::function<bool(const LiftableWeight&)>& wanted)
      : file_(file), wanted_(wanted), saysItself_(ExportedProgram(file).isKnown()),
        isPyTorch_(file.model().producer_name() == "pytorch") {
    countNames(file.graph());
  }

  std::vector<LiftableWeight> run() {
    GraphMessages messages;
    for (const Message& graph : fieldsOf({file_.bytes(), 0}, modelGraph)) messages.add(graph);
    visit(file_.mutableGraph(), messages, "", /*isBody=*/false);
    for (auto& [tensor, range] : lifted_) file_.addInitializer(std::move(tensor), range);
    return std::move(result_);
  }

private:
  void countNames(const onnx::GraphProto& graph) {
    for (const onnx::ValueInfoProto& input : graph.input()) ++names_[input.name()];
    for (const onnx::TensorProto& tensor : graph.initializer()) ++names_[tensor.name()];
    for (const onnx::NodeProto& node : graph.node()) {
      for (const std::string& output : node.output()) ++names_[output];
      for (const onnx::GraphProto* body : bodiesOf(node)) countNames(*body);
    }
  }

  void visit(onnx::GraphProto& graph, const GraphMessages& messages, const std::string& scope, bool isBody) {
    // A message that is there twice is merged with itself, and its parts cannot be told apart.
    if (static_cast<int>(messages.nodes.size()) != graph.node_size() ||
        (isBody && static_cast<int>(messages.initializers.size()) != graph.initializer_size()))
      return;
    std::set<std::string> outputs;
    for (const onnx::ValueInfoProto& output : graph.output()) outputs.insert(output.name());
    const ValueUses uses(graph);
    std::vector<std::vector<Message>> attributes;
    for (const Message& node : messages.nodes) attributes.push_back(fieldsOf(node, nodeAttribute));
    const std::set<std::string> gone = liftConstants(graph, attributes, scope, uses, outputs, isBody);
    if (isBody) liftInitializers(graph, messages, scope, uses, outputs);
    for (int n = 0; n < graph.node_size(); ++n) { // last: `uses` knows nodes of the bodies
      onnx::NodeProto& node = *graph.mutable_node(n);
      const std::vector<Message>& found = attributes[static_cast<std::size_t>(n)];
      if (!isControlFlow(node) || static_cast<int>(found.size()) != node.attribute_size()) continue;
      for (int i = 0; i < node.attribute_size(); ++i)
        visitBodies(*node.mutable_attribute(i), found[static_cast<std::size_t>(i)], scope + nameOfNode(node) + "/");
    }
    if (gone.empty()) return;
    google::protobuf::RepeatedPtrField<onnx::NodeProto> kept;
    for (onnx::NodeProto& node : *graph.mutable_node())
      if (!isConstantNode(node) || !gone.contains(node.output(0))) *kept.Add() = std::move(node);
    graph.mutable_node()->Swap(&kept);
  }

  /// The outputs of the nodes that are to go.
  std::set<std::string> liftConstants(onnx::GraphProto& graph, const std::vector<std::vector<Message>>& attributes,
                                      const std::string& scope, const ValueUses& uses,
                                      const std::set<std::string>& outputs, bool isBody) {
    const bool mayBeWeight = !saysItself_ && !isPyTorch_; // PyTorch stores no parameter as a Constant node
    std::set<std::string> gone;
    for (int n = 0; n < graph.node_size(); ++n) {
      const onnx::NodeProto& node = graph.node(n);
      const std::vector<Message>& found = attributes[static_cast<std::size_t>(n)];
      if (!isConstantNode(node) || node.attribute_size() != 1 || found.size() != 1 || !node.attribute(0).has_t() ||
          outputs.contains(node.output(0)))
        continue;
      const std::vector<Message> tensors = fieldsOf(found[0], attributeTensor);
      if (tensors.size() == 1 &&
          lift(graph, node.attribute(0).t(), node.output(0), rangeIn(tensors[0]), scope, uses, isBody, mayBeWeight))
        gone.insert(node.output(0));
    }
    return gone;
  }

  void visitBodies(onnx::AttributeProto& attribute, const Message& message, const std::string& scope) {
    if (attribute.has_g()) {
      const std::vector<Message> bodies = fieldsOf(message, attributeGraph);
      GraphMessages inside;
      for (const Message& body : bodies) inside.add(body);
      visit(*attribute.mutable_g(), inside, scope, /*isBody=*/true);
    }
    const std::vector<Message> bodies = fieldsOf(message, attributeGraphs);
    for (int i = 0; i < attribute.graphs_size() && i < static_cast<int>(bodies.size()); ++i) {
      GraphMessages inside;
      inside.add(bodies[static_cast<std::size_t>(i)]);
      visit(*attribute.mutable_graphs(i), inside, scope, /*isBody=*/true);
    }
  }

  void liftInitializers(onnx::GraphProto& body, const GraphMessages& messages, const std::string& scope,
                        const ValueUses& uses, const std::set<std::string>& outputs) {
    std::vector<int> gone;
    for (int i = 0; i < body.initializer_size(); ++i) {
      const onnx::TensorProto tensor = body.initializer(i);
      if (!outputs.contains(tensor.name()) &&
          lift(body, tensor, tensor.name(), rangeIn(messages.initializers[static_cast<std::size_t>(i)]), scope, uses,
               /*isBody=*/true, !saysItself_))
        gone.push_back(i);
    }
    for (auto i = gone.rbegin(); i != gone.rend(); ++i) body.mutable_initializer()->DeleteSubrange(*i, 1);
  }

  /// Whether `proto`, the value `name` of `graph`, becomes an initializer of the model.
  bool lift(onnx::GraphProto& graph, const onnx::TensorProto& proto, const std::string& name, const ElementRange& range,
            const std::string& scope, const ValueUses& uses, bool isBody, bool mayBeWeight) {
    const std::optional<ElementType> element = elementTypeFromOnnx(proto.data_type());
    const bool isExternal = proto.data_location() == onnx::TensorProto::EXTERNAL;
    if (std::find(proto.dims().begin(), proto.dims().end(), 0) != proto.dims().end()) return false; // no elements
    if (!element || !isFloat(*element) || (!isExternal && (range.field == 0 || range.scattered))) return false;
    const bool isMany = std::any_of(proto.dims().begin(), proto.dims().end(), [](std::int64_t dim) { return dim > 1; });
    LiftableWeight weight{.name = name, .isInBody = isBody};
    weight.isWeight =
        mayBeWeight && !leadsToSettings(name, uses) && (isMany || isScalarParameter(name, uses, /*isOfPyTorch=*/false));
    if (names_[name] > 1) { // in the model: there are others in bodies
      weight.name = scope + name;
      while (names_[weight.name]++ > 0) weight.name += "'";
    }
    if (!wanted_(weight)) return false;
    if (weight.name != name) renameReads(graph, name, weight.name);
    onnx::TensorProto tensor = proto;
    tensor.set_name(weight.name);
    tensor.clear_raw_data();
    tensor.clear_float_data();
    tensor.clear_double_data();
    lifted_.emplace_back(std::move(tensor), range);
    result_.push_back(std::move(weight));
    return true;
  }

  OnnxFile& file_;
  const std::function<bool(const LiftableWeight&)>& wanted_;
  const bool saysItself_, isPyTorch_;
  std::map<std::string, int> names_; ///< how often they are defined, in all graphs
  std::vector<std::pair<onnx::TensorProto, ElementRange>> lifted_;
  std::vector<LiftableWeight> result_;
};

} // namespace

std::vector<LiftableWeight> pdc::liftWeights(OnnxFile& file, const std::function<bool(const LiftableWeight&)>& wanted) {
  return Lifting(file, wanted).run();
}
