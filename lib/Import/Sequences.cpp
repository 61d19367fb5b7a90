#include "Sequences.h"

#include "OnnxFile.h"

#include <algorithm>
#include <map>

using namespace pdc;

namespace {

class SequenceNode {
public:
  SequenceNode(const onnx::NodeProto& node, const std::vector<ModelValue>& inputs, Builder& builder)
      : node_(node), inputs_(inputs), builder_(builder) {}

  Expected<ModelValue> empty() { return ModelValue(std::vector<Value*>{}); }

  Expected<ModelValue> construct() {
    std::vector<Value*> tensors;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      const Expected<Value*> value = tensor(i);
      if (!value) return failure;
      tensors.push_back(*value);
    }
    return ModelValue(std::move(tensors));
  }

  Expected<ModelValue> insert() {
    Expected<std::vector<Value*>> list = sequence(0);
    if (!list) return failure;
    const Expected<Value*> value = tensor(1);
    const auto length = static_cast<std::int64_t>(list->size());
    const Expected<std::int64_t> at = position(2, length, length, length);
    if (!value || !at) return failure;
    list->insert(list->begin() + *at, *value);
    return ModelValue(*std::move(list));
  }

  Expected<ModelValue> erase() {
    Expected<std::vector<Value*>> list = sequence(0);
    if (!list) return failure;
    const auto length = static_cast<std::int64_t>(list->size());
    const Expected<std::int64_t> at = position(1, length, length - 1, length - 1);
    if (!at) return failure;
    list->erase(list->begin() + *at);
    return ModelValue(*std::move(list));
  }

  Expected<ModelValue> at() {
    const Expected<std::vector<Value*>> list = sequence(0);
    if (!list) return failure;
    const auto length = static_cast<std::int64_t>(list->size());
    const Expected<std::int64_t> place = position(1, length, length - 1, {});
    if (!place) return failure;
    return ModelValue((*list)[static_cast<std::size_t>(*place)]);
  }

  Expected<ModelValue> length() {
    const Expected<std::vector<Value*>> list = sequence(0);
    if (!list) return failure;
    return ofValue(
        builder_.constant(Tensor::ofInts({}, std::vector<std::int64_t>{static_cast<std::int64_t>(list->size())})));
  }

  /// `split` has the length of every part, or that of all but the last. Without it, each part is one slice, and
  /// keepdims says whether it keeps the axis.
  Expected<ModelValue> split() {
    const Expected<Value*> whole = tensor(0);
    if (!whole) return failure;
    const Shape& shape = (*whole)->type().shape;
    const Expected<std::size_t> axis = axisOf(integer("axis", 0), shape.size());
    if (!axis) return failure;
    const std::int64_t size = shape[*axis];
    const bool keeps = given(1) || integer("keepdims", 1) != 0;
    std::vector<std::int64_t> lengths;
    if (!given(1)) {
      if (!requireFew(size)) return failure;
      lengths.assign(static_cast<std::size_t>(size), 1);
    } else {
      const Expected<std::vector<std::int64_t>> stated = integers(1, "the lengths of the parts");
      if (!stated) return failure;
      if (inputs_[1].tensor->type().rank() == 0) {
        if (stated->front() < 1) return error() << "splits into parts of " << stated->front();
        if (!requireFew((size + stated->front() - 1) / stated->front())) return failure;
        for (std::int64_t left = size; left > 0; left -= stated->front())
          lengths.push_back(std::min(left, stated->front()));
      } else {
        lengths = *stated;
      }
    }
    std::int64_t sum = 0;
    for (std::int64_t length : lengths) {
      if (length < 0 || length > size - sum)
        return error() << "splits an axis of " << size << " into parts, one of them of " << length << " after " << sum;
      sum += length;
    }
    if (sum != size) return error() << "splits an axis of " << size << " into parts of " << sum << " together";
    std::vector<Value*> parts;
    Shape starts(shape.size(), 0);
    const Shape steps(shape.size(), 1);
    for (std::int64_t length : lengths) {
      Shape sizes = shape;
      sizes[*axis] = length;
      Value* part = builder_.value("slice", {*whole}, {{"starts", starts}, {"sizes", sizes}, {"steps", steps}});
      if (part && !keeps) {
        sizes.erase(sizes.begin() + static_cast<std::ptrdiff_t>(*axis));
        part = builder_.value("reshape", {part}, {{"shape", sizes}});
      }
      if (!part) return failure;
      parts.push_back(part);
      starts[*axis] += length;
    }
    return ModelValue(std::move(parts));
  }

  Expected<ModelValue> concat() {
    Expected<std::vector<Value*>> parts = sequence(0);
    if (!parts) return failure;
    if (parts->empty()) return error() << "concatenates a sequence of no tensors";
    const bool stacks = integer("new_axis", 0) != 0;
    if (!attribute("axis")) return error() << "has no attribute 'axis'";
    const std::size_t rank = parts->front()->type().shape.size() + (stacks ? 1 : 0);
    const Expected<std::size_t> axis = axisOf(integer("axis", 0), rank);
    if (!axis) return failure;
    for (Value*& part : *parts) {
      if (!stacks) continue;
      Shape shape = part->type().shape;
      if (shape.size() + 1 != rank)
        return error() << "stacks " << toString(parts->front()->type()) << " and " << toString(part->type());
      shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(*axis), 1);
      if (!(part = builder_.value("reshape", {part}, {{"shape", shape}}))) return failure;
    }
    if (parts->size() == 1) return ModelValue(parts->front());
    return ofValue(builder_.value("concat", *parts, {{"axis", static_cast<std::int64_t>(*axis)}}));
  }

private:
  /// Parts that a sequence may have.
  static constexpr std::int64_t mostParts = 10'000;

  Diagnostics::Builder start(ExitCode code) const {
    return builder_.diags().error(builder_.location()).exit(code) << "'" << node_.op_type() << "' operator ";
  }
  Diagnostics::Builder error() const { return start(ExitCode::invalidInput); }

  Status requireFew(std::int64_t parts) const {
    if (parts <= mostParts) return success;
    return start(ExitCode::unsupported) << "makes a sequence of " << parts << " tensors, pdc takes " << mostParts;
  }

  Expected<ModelValue> ofValue(Value* value) const { return value ? Expected(ModelValue(value)) : failure; }

  bool given(std::size_t i) const { return i < inputs_.size() && inputs_[i]; }
  Expected<Value*> tensor(std::size_t i) const {
    if (!given(i)) return error() << "lacks input " << i;
    if (inputs_[i].sequence) return error() << "takes a tensor as input " << i << ", it is a sequence";
    return inputs_[i].tensor;
  }
  Expected<std::vector<Value*>> sequence(std::size_t i) const {
    if (!given(i)) return error() << "lacks input " << i;
    if (!inputs_[i].sequence)
      return error() << "takes a sequence as input " << i << ", it is " << toString(inputs_[i].tensor->type());
    return *inputs_[i].sequence;
  }

  Expected<std::vector<std::int64_t>> integers(std::size_t i, const char* what) const {
    const Expected<Value*> value = tensor(i);
    if (!value) return failure;
    const std::optional<Tensor> constant = builder_.evaluated(*value);
    if (!constant || isFloat(constant->type().element) || constant->elements() > mostParts)
      return start(ExitCode::unsupported)
                 .help("export the model with static shapes: sequences are lists that are known when it is compiled")
             << "needs " << what << " (input " << i << ") as a constant, "
             << (constant ? "it is " + toString(constant->type()) : "it is computed from the model's data");
    std::vector<std::int64_t> numbers;
    for (std::int64_t k = 0; k < constant->elements(); ++k) numbers.push_back(constant->asInt(k));
    return numbers;
  }
  /// Input i: a place in a sequence of `length`, counted from the front, no larger than `last`.
  Expected<std::int64_t> position(std::size_t i, std::int64_t length, std::int64_t last,
                                  std::optional<std::int64_t> standard) const {
    if (!given(i) && standard && *standard >= 0) return *standard;
    std::int64_t stated = -1;
    if (given(i)) {
      const Expected<std::vector<std::int64_t>> numbers = integers(i, "the position");
      if (!numbers) return failure;
      if (numbers->size() != 1) return error() << "has " << numbers->size() << " positions, expected one";
      stated = numbers->front();
    } else if (!standard) {
      return error() << "lacks input " << i;
    }
    const std::int64_t place = stated < 0 ? stated + length : stated;
    if (place < 0 || place > last)
      return error() << "has position " << stated << " in a sequence of " << length << " tensors";
    return place;
  }

  Expected<std::size_t> axisOf(std::int64_t stated, std::size_t rank) const {
    const auto count = static_cast<std::int64_t>(rank);
    if (stated < -count || stated >= count)
      return error() << "has axis " << stated << ", the tensor has " << rank << " axes";
    return static_cast<std::size_t>(stated < 0 ? stated + count : stated);
  }

  const onnx::AttributeProto* attribute(const std::string& name) const {
    for (const onnx::AttributeProto& attribute : node_.attribute())
      if (attribute.name() == name) return &attribute;
    return nullptr;
  }
  std::int64_t integer(const std::string& name, std::int64_t standard) const {
    const onnx::AttributeProto* found = attribute(name);
    return found ? found->i() : standard;
  }

  const onnx::NodeProto& node_;
  const std::vector<ModelValue>& inputs_;
  Builder& builder_;
};

const std::map<std::string, Expected<ModelValue> (SequenceNode::*)()>& operators() {
  static const std::map<std::string, Expected<ModelValue> (SequenceNode::*)()> map = {
      {"SequenceEmpty", &SequenceNode::empty},   {"SequenceConstruct", &SequenceNode::construct},
      {"SequenceInsert", &SequenceNode::insert}, {"SequenceErase", &SequenceNode::erase},
      {"SequenceAt", &SequenceNode::at},         {"SequenceLength", &SequenceNode::length},
      {"SplitToSequence", &SequenceNode::split}, {"ConcatFromSequence", &SequenceNode::concat}};
  return map;
}

} // namespace

bool pdc::isSequenceOperator(const onnx::NodeProto& node) {
  return isDefaultDomain(node.domain()) && operators().contains(node.op_type());
}

Expected<ModelValue> pdc::convertSequenceOperator(const onnx::NodeProto& node, const std::vector<ModelValue>& inputs,
                                                  Builder& builder) {
  SequenceNode converted(node, inputs, builder);
  return (converted.*operators().at(node.op_type()))();
}
