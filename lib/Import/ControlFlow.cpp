// A body may read values of the graphs around it. Since it is converted where its node stands, and iteration by
// iteration, that is a matter of names, which the importer looks up.
#include "ControlFlow.h"

#include "OnnxFile.h"

#include <algorithm>
#include <set>

using namespace pdc;

bool pdc::isControlFlow(const onnx::NodeProto& node) {
  return isDefaultDomain(node.domain()) && (node.op_type() == "If" || node.op_type() == "Loop" ||
                                            node.op_type() == "Scan" || node.op_type() == "SequenceMap");
}

std::vector<const onnx::GraphProto*> pdc::bodiesOf(const onnx::NodeProto& node) {
  std::vector<const onnx::GraphProto*> bodies;
  for (const onnx::AttributeProto& attribute : node.attribute()) {
    if (attribute.has_g()) bodies.push_back(&attribute.g());
    for (const onnx::GraphProto& graph : attribute.graphs()) bodies.push_back(&graph);
  }
  return bodies;
}

std::vector<std::string> pdc::readsOf(const onnx::NodeProto& node) {
  std::set<std::string> reads(node.input().begin(), node.input().end());
  for (const onnx::GraphProto* body : bodiesOf(node)) {
    std::set<std::string> own, outside;
    for (const onnx::ValueInfoProto& input : body->input()) own.insert(input.name());
    for (const onnx::TensorProto& tensor : body->initializer()) own.insert(tensor.name());
    for (const onnx::NodeProto& inner : body->node()) {
      for (const std::string& name : readsOf(inner)) outside.insert(name);
      own.insert(inner.output().begin(), inner.output().end());
    }
    for (const onnx::ValueInfoProto& output : body->output()) outside.insert(output.name());
    std::set_difference(outside.begin(), outside.end(), own.begin(), own.end(), std::inserter(reads, reads.end()));
  }
  reads.erase("");
  return {reads.begin(), reads.end()};
}

namespace {

class ControlFlowExpansion {
public:
  ControlFlowExpansion(const onnx::NodeProto& node, std::int64_t opset, const std::vector<ModelValue>& inputs,
                       Builder& builder, const ConvertBody& convertBody)
      : node_(node), opset_(opset), inputs_(inputs), builder_(builder), where_(builder.location()),
        convertBody_(convertBody) {}

  Expected<std::vector<ModelValue>> run() {
    if (node_.op_type() == "If") return branch();
    if (node_.op_type() == "Loop") return loop();
    return node_.op_type() == "Scan" ? scan() : map();
  }

private:
  Diagnostics::Builder error() const {
    return builder_.diags().error(where_) << "'" << node_.op_type() << "' operator ";
  }
  Diagnostics::Builder unsupported() const {
    return builder_.diags().error(where_).exit(ExitCode::unsupported) << "'" << node_.op_type() << "' operator ";
  }
  ModelValue input(std::size_t i) const { return i < inputs_.size() ? inputs_[i] : ModelValue(); }

  const onnx::AttributeProto* attribute(const std::string& name) const {
    for (const onnx::AttributeProto& attribute : node_.attribute())
      if (attribute.name() == name) return &attribute;
    return nullptr;
  }
  Expected<const onnx::GraphProto*> body(const std::string& name) const {
    if (const onnx::AttributeProto* found = attribute(name); found && found->has_g()) return &found->g();
    return error() << "has no attribute '" << name << "'";
  }
  /// An attribute with a number per scanned value; `count` times 0 where it is absent.
  Expected<std::vector<std::int64_t>> perValue(const std::string& name, std::size_t count) const {
    const onnx::AttributeProto* found = attribute(name);
    if (!found) return std::vector<std::int64_t>(count, 0);
    std::vector<std::int64_t> numbers(found->ints().begin(), found->ints().end());
    if (numbers.size() == count) return numbers;
    return error() << "has " << numbers.size() << " numbers in '" << name << "', expected " << count;
  }
  /// The single element of a constant.
  Expected<std::int64_t> constant(const ModelValue& value, const std::string& what) const {
    if (value.sequence) return error() << "needs a tensor as " << what << ", it is a sequence";
    if (const std::optional<Tensor> tensor = Builder::constantValue(value.tensor); tensor && tensor->elements() == 1)
      return tensor->asInt(0);
    const Value* input = value.tensor;
    const bool isInput = input && !input->definer() && !input->parameter();
    return unsupported().help(isInput ? "give '" + input->name() + "' one value: --bind " + input->name() + "=VALUE"
                                      : "export the model with static shapes, or with the loop unrolled")
           << "needs a constant " << what << ", it is computed from the model's data";
  }

  Expected<std::vector<ModelValue>> branch() {
    if (!input(0)) return error() << "has no condition";
    const Expected<std::int64_t> taken = constant(input(0), "input 0 (cond)");
    if (!taken) return failure;
    const Expected<const onnx::GraphProto*> graph = body(*taken ? "then_branch" : "else_branch");
    if (!graph) return failure;
    return convertBody_(**graph, {}, *taken ? "then/" : "else/");
  }

  /// The body's outputs of one iteration, which must be at least `least`.
  Expected<std::vector<ModelValue>> iterate(const onnx::GraphProto& graph, const std::vector<ModelValue>& values,
                                            std::size_t least, std::int64_t iteration) {
    Expected<std::vector<ModelValue>> outputs = convertBody_(graph, values, std::to_string(iteration) + "/");
    builder_.setLocation(where_);
    if (!outputs) return failure;
    if (outputs->size() < least)
      return error() << "has a body of " << outputs->size() << " outputs, expected at least " << least;
    return outputs;
  }

  /// Inputs: number of iterations, condition, carried values. The body takes the iteration, the condition and the
  /// carried values, and returns the condition, the carried values and what is stacked.
  Expected<std::vector<ModelValue>> loop() {
    const Expected<const onnx::GraphProto*> graph = body("body");
    if (!graph) return failure;
    std::int64_t most = INT64_MAX;
    if (input(0)) {
      const Expected<std::int64_t> stated = constant(input(0), "input 0 (M)");
      if (!stated) return failure;
      most = *stated;
    }
    ModelValue condition = input(1) ? input(1) : builder_.constant(1, ElementType::boolean);
    const std::size_t count = inputs_.size() > 2 ? inputs_.size() - 2 : 0;
    std::vector<ModelValue> carried(inputs_.end() - static_cast<std::ptrdiff_t>(count), inputs_.end());
    std::vector<std::vector<ModelValue>> stacked;
    for (std::int64_t i = 0; i < most; ++i) {
      const Expected<std::int64_t> holds =
          constant(condition, i == 0 ? "input 1 (cond)" : "condition in the body's output 0");
      if (!holds) return failure;
      if (!*holds) break;
      std::vector<ModelValue> values = {builder_.constant(Tensor::ofInts({}, std::vector<std::int64_t>{i})), condition};
      values.insert(values.end(), carried.begin(), carried.end());
      const Expected<std::vector<ModelValue>> outputs = iterate(**graph, values, count + 1, i);
      if (!outputs) return failure;
      condition = (*outputs)[0];
      std::copy_n(outputs->begin() + 1, count, carried.begin());
      stacked.resize(outputs->size() - 1 - count);
      for (std::size_t k = 0; k < stacked.size(); ++k) stacked[k].push_back((*outputs)[1 + count + k]);
    }
    for (const std::vector<ModelValue>& parts : stacked) {
      carried.push_back(stack(parts, 0));
      if (!carried.back()) return failure;
    }
    return carried; // of no iterations: what would be stacked is missing, which is told where it is read
  }

  /// Inputs: states, then values whose slices the iterations take. The body takes states and slices and returns states
  /// and slices.
  Expected<std::vector<ModelValue>> scan() {
    if (opset_ < 9) return unsupported() << "of opset 8 scans whole batches, known are those of opset 9 on";
    const Expected<const onnx::GraphProto*> graph = body("body");
    if (!graph) return failure;
    const onnx::AttributeProto* scanned = attribute("num_scan_inputs");
    const std::int64_t slices = scanned ? scanned->i() : 0;
    if (slices < 1 || slices > static_cast<std::int64_t>(inputs_.size()))
      return error() << "scans " << slices << " of its " << inputs_.size() << " inputs";
    const std::size_t states = inputs_.size() - static_cast<std::size_t>(slices);
    const auto axes = perValue("scan_input_axes", inputs_.size() - states);
    const auto backwards = perValue("scan_input_directions", inputs_.size() - states);
    if (!axes || !backwards) return failure;
    const Expected<std::int64_t> length = lengthOf(states, *axes);
    if (!length) return failure;

    std::vector<ModelValue> carried(inputs_.begin(), inputs_.begin() + static_cast<std::ptrdiff_t>(states));
    std::vector<std::vector<ModelValue>> stacked;
    for (std::int64_t i = 0; i < *length; ++i) {
      std::vector<ModelValue> values = carried;
      for (std::size_t k = states; k < inputs_.size(); ++k) {
        values.push_back(slice(inputs_[k].tensor, (*axes)[k - states], (*backwards)[k - states] ? *length - 1 - i : i));
        if (!values.back()) return failure;
      }
      const Expected<std::vector<ModelValue>> outputs = iterate(**graph, values, states, i);
      if (!outputs) return failure;
      std::copy_n(outputs->begin(), states, carried.begin());
      stacked.resize(outputs->size() - states);
      for (std::size_t k = 0; k < stacked.size(); ++k) stacked[k].push_back((*outputs)[states + k]);
    }
    const auto outputAxes = perValue("scan_output_axes", stacked.size());
    const auto prepended = perValue("scan_output_directions", stacked.size());
    if (!outputAxes || !prepended) return failure;
    for (std::size_t k = 0; k < stacked.size(); ++k) {
      if ((*prepended)[k]) std::reverse(stacked[k].begin(), stacked[k].end());
      carried.push_back(stack(stacked[k], (*outputAxes)[k]));
      if (!carried.back()) return failure;
    }
    return carried;
  }

  /// SequenceMap. Inputs: a sequence, then sequences of its length, and tensors that every call of the body takes. The
  /// body takes one tensor of each and returns one for each output, which is a sequence.
  Expected<std::vector<ModelValue>> map() {
    const Expected<const onnx::GraphProto*> graph = body("body");
    if (!graph) return failure;
    if (!input(0).sequence) return error() << "takes a sequence as input 0, it is none";
    const std::size_t length = inputs_[0].sequence->size(), count = static_cast<std::size_t>(node_.output_size());
    std::vector<std::vector<Value*>> mapped(count);
    for (std::size_t i = 0; i < length; ++i) {
      std::vector<ModelValue> values;
      for (const ModelValue& value : inputs_) {
        if (value.sequence && value.sequence->size() != length)
          return error() << "takes sequences of " << length << " and of " << value.sequence->size() << " tensors";
        values.push_back(value.sequence ? ModelValue((*value.sequence)[i]) : value);
      }
      const Expected<std::vector<ModelValue>> outputs = iterate(**graph, values, count, static_cast<std::int64_t>(i));
      if (!outputs) return failure;
      for (std::size_t k = 0; k < count; ++k) {
        if ((*outputs)[k].sequence) return error() << "has a body whose output " << k << " is a sequence";
        mapped[k].push_back((*outputs)[k].tensor);
      }
    }
    return std::vector<ModelValue>(mapped.begin(), mapped.end());
  }

  /// How many slices the scanned inputs have.
  Expected<std::int64_t> lengthOf(std::size_t states, const std::vector<std::int64_t>& axes) const {
    std::int64_t length = -1;
    for (std::size_t k = states; k < inputs_.size(); ++k) {
      if (!inputs_[k]) return error() << "lacks input " << k;
      if (inputs_[k].sequence) return error() << "scans a sequence, input " << k;
      const Shape& shape = inputs_[k].tensor->type().shape;
      const auto rank = static_cast<std::int64_t>(shape.size());
      std::int64_t axis = axes[k - states];
      if (axis < -rank || axis >= rank)
        return error() << "scans axis " << axis << " of input " << k << ", which is "
                       << toString(inputs_[k].tensor->type());
      const std::int64_t dim = shape[static_cast<std::size_t>(axis < 0 ? axis + rank : axis)];
      if (length >= 0 && dim != length)
        return error() << "scans " << length << " slices of one input and " << dim << " of another";
      length = dim;
    }
    return length;
  }

  /// `x` at a place of an axis, which is left out.
  Value* slice(Value* x, std::int64_t axis, std::int64_t place) {
    Shape sizes = x->type().shape;
    const std::size_t at = static_cast<std::size_t>(axis < 0 ? axis + static_cast<std::int64_t>(sizes.size()) : axis);
    Shape starts(sizes.size(), 0), steps(sizes.size(), 1);
    starts[at] = place;
    sizes[at] = 1;
    Value* part = builder_.value("slice", {x}, {{"starts", starts}, {"sizes", sizes}, {"steps", steps}});
    sizes.erase(sizes.begin() + static_cast<std::ptrdiff_t>(at));
    return part ? builder_.value("reshape", {part}, {{"shape", sizes}}) : nullptr;
  }

  /// The parts along a new axis.
  Value* stack(const std::vector<ModelValue>& parts, std::int64_t axis) {
    std::vector<Value*> slices;
    for (const ModelValue& value : parts) {
      if (value.sequence) {
        static_cast<void>(error() << "stacks sequences, which has no meaning");
        return nullptr;
      }
      Value* const part = value.tensor;
      Shape shape = part->type().shape;
      const auto rank = static_cast<std::int64_t>(shape.size()) + 1;
      if (axis < -rank || axis >= rank) {
        static_cast<void>(error() << "stacks " << toString(part->type()) << " along axis " << axis);
        return nullptr;
      }
      if (axis < 0) axis += rank;
      shape.insert(shape.begin() + axis, 1);
      slices.push_back(builder_.value("reshape", {part}, {{"shape", shape}}));
      if (!slices.back()) return nullptr;
    }
    return slices.size() == 1 ? slices[0] : builder_.value("concat", slices, {{"axis", axis}});
  }

  const onnx::NodeProto& node_;
  const std::int64_t opset_;
  const std::vector<ModelValue>& inputs_;
  Builder& builder_;
  const Location where_;
  const ConvertBody& convertBody_;
};

} // namespace

Expected<std::vector<ModelValue>> pdc::expandControlFlow(const onnx::NodeProto& node, std::int64_t opset,
                                                         const std::vector<ModelValue>& inputs, Builder& builder,
                                                         const ConvertBody& convertBody) {
  return ControlFlowExpansion(node, opset, inputs, builder, convertBody).run();
}
