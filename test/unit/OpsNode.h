// One ONNX node under conversion, for the tests of conversions.
#pragma once

#include "OpsExamples.h"

namespace pdc::testing {

/// One node under conversion, with graph inputs x0, x1, … and constants as its inputs.
class Node {
public:
  Node(std::string opType, std::int64_t version) {
    node_.opType = std::move(opType);
    node_.version = version;
    node_.location = {.file = "m.onnx", .node = "n"};
    module_.graphs.push_back(std::make_unique<Graph>("main"));
    builder_.emplace(module_, graph(), allOps(), diags_, /*fold=*/true);
  }

  Node& input(ElementType element, Shape shape) {
    const std::string name = "x" + std::to_string(node_.inputs.size());
    node_.inputs.push_back(graph().addInput({element, std::move(shape)}, name));
    return *this;
  }
  Node& floats(Shape shape) { return input(ElementType::f32, std::move(shape)); }
  Node& constant(const Tensor& tensor) {
    node_.inputs.push_back(builder_->constant(tensor));
    return *this;
  }
  Node& integers(std::vector<std::int64_t> values) {
    return constant(Tensor::ofInts({static_cast<std::int64_t>(values.size())}, values));
  }
  Node& attribute(const std::string& name, Attribute value) {
    node_.attributes.set(name, std::move(value));
    return *this;
  }

  /// Converts; the results that are there become outputs "0", "1", ….
  bool convert(std::size_t outputs = 1) {
    node_.outputs = outputs;
    node_.outputUsed.assign(outputs, true);
    const OnnxMapping* mapping = allOps().findOnnx(node_.opType, node_.version);
    if (!mapping) return false;
    auto values = mapping->convert(node_, *builder_, diags_);
    if (!values) return false;
    for (std::size_t i = 0; i < values->size(); ++i)
      if (Value* value = (*values)[i])
        graph().outputs.push_back(
            {.kind = OutputKind::result, .value = value, .name = std::to_string(i), .parameter = nullptr});
    return true;
  }

  /// The ops of the graph, constants left out: "reshape softmax reshape".
  std::string ops() {
    std::string names;
    for (const auto& operation : graph().operations())
      if (operation->def().kind != OpKind::constant) names += (names.empty() ? "" : " ") + operation->def().name;
    return names;
  }
  const Operation& last() { return *graph().operations().back(); }
  Tensor run(const std::string& output = "0") {
    const auto result = interpret(graph(), Inputs(4).of(graph()), {}, Precision::f64, diags_);
    EXPECT_TRUE(result) << error();
    return result ? result->outputs.at(output) : Tensor();
  }
  Module& module() { return module_; }
  Graph& graph() { return *module_.graphs.front(); }
  Builder& builder() { return *builder_; }
  /// A value made by the builder, as the next input.
  Node& value(Value* input) {
    node_.inputs.push_back(input);
    return *this;
  }
  Node& absent() { return value(nullptr); }
  std::string error() const { return messages(diags_); }
  ExitCode exitCode() const { return diags_.exitCode(); }

private:
  Module module_;
  Diagnostics diags_{nullptr};
  OnnxNode node_;
  std::optional<Builder> builder_;
};

} // namespace pdc::testing
