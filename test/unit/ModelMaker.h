// Small ONNX models, made message by message, and the files that hold them.
#pragma once

#include "pdc/Import/OnnxImport.h"
#include "pdc/Ops/AllOps.h"

#include <onnx/onnx_pb.h>

#include <fstream>

namespace pdc::test {

inline void writeFile(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}
inline std::string readFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Builds a model step by step; every step returns the message that it added.
struct ModelMaker {
  onnx::ModelProto model;

  explicit ModelMaker(std::int64_t opset = 14) {
    model.set_ir_version(7);
    model.set_producer_name("test");
    model.add_opset_import()->set_version(opset);
    model.mutable_graph()->set_name("g");
  }
  onnx::GraphProto& graph() { return *model.mutable_graph(); }

  /// Dimensions that are numbers are fixed, others symbols; an empty one has no name.
  static void describe(onnx::ValueInfoProto& info, const std::string& name, const std::vector<std::string>& dims,
                       int type) {
    info.set_name(name);
    onnx::TypeProto::Tensor& tensor = *info.mutable_type()->mutable_tensor_type();
    tensor.set_elem_type(type);
    onnx::TensorShapeProto& shape = *tensor.mutable_shape();
    for (const std::string& text : dims) {
      onnx::TensorShapeProto::Dimension& dim = *shape.add_dim();
      if (text.find_first_not_of("-0123456789") != std::string::npos)
        dim.set_dim_param(text);
      else if (!text.empty())
        dim.set_dim_value(std::stoll(text));
    }
  }
  void input(const std::string& name, const std::vector<std::string>& dims, int type = onnx::TensorProto::FLOAT) {
    describe(*graph().add_input(), name, dims, type);
  }
  void output(const std::string& name, const std::vector<std::string>& dims = {}) {
    describe(*graph().add_output(), name, dims, onnx::TensorProto::FLOAT);
  }
  onnx::NodeProto& node(const std::string& opType, const std::vector<std::string>& inputs,
                        const std::vector<std::string>& outputs, const std::string& name = "") {
    onnx::NodeProto& node = *graph().add_node();
    node.set_op_type(opType);
    node.set_name(name);
    for (const std::string& value : inputs) node.add_input(value);
    for (const std::string& value : outputs) node.add_output(value);
    return node;
  }
  onnx::TensorProto& tensor(const std::string& name, const std::vector<std::int64_t>& dims,
                            int type = onnx::TensorProto::FLOAT) {
    onnx::TensorProto& tensor = *graph().add_initializer();
    tensor.set_name(name);
    tensor.set_data_type(type);
    for (std::int64_t dim : dims) tensor.add_dims(dim);
    return tensor;
  }
  template <class T>
  onnx::TensorProto& raw(const std::string& name, const std::vector<std::int64_t>& dims, const std::vector<T>& values,
                         int type = onnx::TensorProto::FLOAT) {
    onnx::TensorProto& made = tensor(name, dims, type);
    made.set_raw_data(values.data(), values.size() * sizeof(T));
    return made;
  }
  /// `raw` with numbers 1, 2, ….
  onnx::TensorProto& weight(const std::string& name, const std::vector<std::int64_t>& dims) {
    std::size_t count = 1;
    for (std::int64_t dim : dims) count *= static_cast<std::size_t>(dim);
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i + 1);
    return raw(name, dims, values);
  }

  void write(const std::string& path) const { writeFile(path, model.SerializeAsString()); }
};

inline onnx::AttributeProto& attribute(onnx::NodeProto& node, const std::string& name, std::int64_t value) {
  onnx::AttributeProto& made = *node.add_attribute();
  made.set_name(name);
  made.set_type(onnx::AttributeProto::INT);
  made.set_i(value);
  return made;
}

/// y = relu(x · w) with x: f32[batch, 2] and w: f32[2, 3].
inline ModelMaker smallModel(std::int64_t opset = 14) {
  ModelMaker maker(opset);
  maker.input("x", {"batch", "2"});
  maker.weight("w", {2, 3});
  maker.node("MatMul", {"x", "w"}, {"h"}, "matmul");
  maker.node("Relu", {"h"}, {"y"}, "relu");
  maker.output("y", {"batch", "3"});
  return maker;
}

inline const OpRegistry& registry() {
  static const OpRegistry* ops = [] {
    auto* made = new OpRegistry;
    registerAllOps(*made);
    return made;
  }();
  return *ops;
}

} // namespace pdc::test
