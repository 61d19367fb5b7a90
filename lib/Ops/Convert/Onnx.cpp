#include "Convert/Onnx.h"

#include <algorithm>

namespace pdc::ops {

Diagnostics::Builder OnnxReader::start(ExitCode code) {
  auto error = diags.error(node.location).exit(code);
  return std::move(error) << "'" << node.opType << "' operator ";
}

void OnnxReader::wrongKind(const std::string& name) {
  failed_ = true;
  static_cast<void>(error() << "has attribute '" << name << "' of the wrong kind");
}

std::optional<Tensor> OnnxReader::constant(std::size_t i, const char* what) {
  if (std::optional<Tensor> tensor = Builder::constantValue(input(i))) return tensor;
  const Value* value = input(i);
  const bool isInput = value && !value->definer() && !value->parameter();
  static_cast<void>(
      unsupported().help(isInput ? "give '" + value->name() + "' one value: --bind " + value->name() + "=VALUE"
                                 : "export the model with static shapes and constant folding of shapes")
      << "needs a constant input " << i << " (" << what << "), it is computed from the model's data");
  return std::nullopt;
}

std::optional<std::vector<std::int64_t>> OnnxReader::constantIntegers(std::size_t i, const char* what) {
  const std::optional<Tensor> tensor = constant(i, what);
  if (!tensor) return std::nullopt;
  if (tensor->type().element == ElementType::i64 || tensor->type().element == ElementType::i32) return tensor->toInts();
  static_cast<void>(error() << "needs integers as input " << i << " (" << what << "), it is "
                            << toString(tensor->type()));
  return std::nullopt;
}

std::optional<std::vector<std::int64_t>> OnnxReader::movedIntegers(const std::string& name, std::int64_t moved,
                                                                   std::size_t i, std::vector<std::int64_t> standard) {
  if (version() < moved) return integers(name, std::move(standard));
  return input(i) ? constantIntegers(i, name.c_str()) : standard;
}

std::optional<std::int64_t> OnnxReader::axis(std::int64_t axis, int rank) {
  if (axis >= -rank && axis < rank) return axis < 0 ? axis + rank : axis;
  static_cast<void>(error() << "has axis " << axis << ", its input has rank " << rank);
  return std::nullopt;
}

std::optional<std::vector<std::int64_t>> OnnxReader::axes(std::vector<std::int64_t> axes, int rank) {
  for (std::int64_t& each : axes) {
    const std::optional<std::int64_t> fromFront = axis(each, rank);
    if (!fromFront) return std::nullopt;
    each = *fromFront;
  }
  std::sort(axes.begin(), axes.end());
  if (std::adjacent_find(axes.begin(), axes.end()) == axes.end()) return axes;
  static_cast<void>(error() << "names an axis twice");
  return std::nullopt;
}

Value* OnnxReader::reshape(Value* x, Shape shape) {
  return !x || x->type().shape == shape ? x : value("reshape", {x}, {{"shape", std::move(shape)}});
}

Value* OnnxReader::transpose(Value* x, std::vector<std::int64_t> permutation) {
  return x ? value("transpose", {x}, {{"permutation", std::move(permutation)}}) : nullptr;
}

Status OnnxReader::finish() {
  if (failed_) return failure;
  for (const auto& [name, value] : node.attributes)
    if (!read_.contains(name))
      return unsupported() << "has attribute '" << name << "', which pdc does not know in opset " << version();
  return success;
}

OnnxMapping onnxMany(std::string opType, std::size_t inputs,
                     std::function<Expected<std::vector<Value*>>(OnnxReader&)> convert, std::int64_t since,
                     std::int64_t until) {
  return {std::move(opType), since, until,
          [inputs, convert = std::move(convert)](const OnnxNode& node, Builder& b,
                                                 Diagnostics& diags) -> Expected<std::vector<Value*>> {
            OnnxReader reader(node, b, diags);
            for (std::size_t i = 0; i < inputs; ++i)
              if (!reader.input(i))
                return reader.error() << "needs " << inputs << (inputs == 1 ? " input" : " inputs") << ", input " << i
                                      << " is absent";
            Expected<std::vector<Value*>> results = convert(reader);
            if (!results || !reader.finish()) return failure;
            return results;
          }};
}

OnnxMapping onnx(std::string opType, std::size_t inputs, std::function<Value*(OnnxReader&)> convert, std::int64_t since,
                 std::int64_t until) {
  return onnxMany(
      std::move(opType), inputs,
      [convert = std::move(convert)](OnnxReader& n) -> Expected<std::vector<Value*>> {
        Value* value = convert(n);
        if (!value) return failure;
        return std::vector<Value*>{value};
      },
      since, until);
}

OnnxMapping onnxSame(std::string opType, std::size_t inputs, std::string name) {
  return onnx(std::move(opType), inputs, [inputs, name = std::move(name)](OnnxReader& n) {
    std::vector<Value*> operands;
    for (std::size_t i = 0; i < inputs; ++i) operands.push_back(n.input(i));
    return n.value(name, std::move(operands));
  });
}

OpDef composed(std::string name, std::string summary, std::vector<OnnxMapping> onnx) {
  return {.name = std::move(name), .summary = std::move(summary), .kind = OpKind::composed, .onnx = std::move(onnx)};
}

} // namespace pdc::ops
