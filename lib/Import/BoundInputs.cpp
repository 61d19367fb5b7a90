// A number fills the whole input. A file has its shape.
#include "BoundInputs.h"

#include "pdcrt/DataFile.h"
#include "pdcrt/Npy.h"

#include <charconv>
#include <cmath>
#include <filesystem>

using namespace pdc;

static constexpr std::int64_t largestConstant = 64 * 1024;

static bool isFile(const std::string& bound) {
  return bound.ends_with(".npy");
}

static Status open(pdcrt::NpyFile& file, const std::string& name, const std::string& path, Diagnostics& diags) {
  if (pdcrt::Status status = file.open(path); !status) {
    Diagnostic problem{.location = {.node = name}, .message = "is bound to a file: " + status.message()};
    if (!status.help().empty()) problem.helps.push_back(status.help());
    diags.report(std::move(problem));
    return failure;
  }
  return success;
}

Expected<std::map<std::string, Shape>> pdc::shapesOfBound(const std::vector<DataInput>& inputs,
                                                          const ImportOptions& options, const std::string& path,
                                                          Diagnostics& diags) {
  std::map<std::string, Shape> shapes;
  for (const auto& [name, bound] : options.bind) {
    if (std::none_of(inputs.begin(), inputs.end(), [&](const DataInput& input) { return input.name == name; }))
      return diags.error({.file = path}).note("it has " + listOf(inputs))
             << "has no data input '" << name << "', which --bind gives a value";
    if (!isFile(bound)) continue;
    pdcrt::NpyFile file;
    if (!open(file, name, bound, diags)) return failure;
    shapes[name] = file.shape();
  }
  return shapes;
}

namespace {

/// The number that the flag says, where the input's type has it.
std::optional<Tensor> numberFromText(const std::string& text, ElementType element) {
  Tensor number(Type{element, {}});
  const char* end = text.data() + text.size();
  if (element == ElementType::boolean) {
    if (text != "true" && text != "false" && text != "1" && text != "0") return {};
    number.setInt(0, text == "true" || text == "1");
  } else if (isFloat(element)) {
    double value = 0;
    const auto [at, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc() || at != end || std::isnan(value)) return {};
    number.set(0, value);
    if (std::isfinite(value) && !std::isfinite(number.asDouble(0))) return {};
  } else {
    std::int64_t value = 0;
    const auto [at, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc() || at != end) return {};
    number.setInt(0, value);
    if (number.asInt(0) != value) return {};
  }
  return number;
}

Value* filled(const Tensor& number, const Shape& shape, Builder& builder) {
  Value* scalar = builder.constant(number);
  if (!scalar || shape.empty()) return scalar;
  return builder.value("broadcast", {scalar}, {{"shape", shape}});
}

/// The values of `file` as `element`, where that changes none of them but for the rounding of floats.
std::optional<Tensor> convertedTo(const Tensor& tensor, ElementType element) {
  if (tensor.type().element == element) return tensor;
  if (isFloat(element) != isFloat(tensor.type().element)) return {};
  Tensor converted = tensor.convertedTo(element);
  if (!isFloat(element))
    for (std::int64_t i = 0; i < tensor.elements(); ++i)
      if (converted.asInt(i) != tensor.asInt(i)) return {};
  return converted;
}

} // namespace

Expected<Value*> pdc::valueOfBound(const std::string& name, const std::string& bound, const Type& type, bool shapeOnly,
                                   Builder& builder) {
  Diagnostics& diags = builder.diags();
  const Location where{.file = builder.module().file, .node = name};
  builder.setLocation(where);
  const auto made = [](Value* value) { return value ? Expected<Value*>(value) : Expected<Value*>(failure); };
  if (shapeOnly && isFile(bound)) {
    pdcrt::NpyFile file;
    if (!open(file, name, bound, diags)) return failure;
    if (file.shape() != type.shape) return made(filled(Tensor(Type{type.element, {}}), type.shape, builder));
  }
  if (!isFile(bound)) {
    const std::optional<Tensor> number =
        bound == "zeros" ? Tensor(Type{type.element, {}}) : numberFromText(bound, type.element);
    if (!number)
      return diags.error(where)
                 .exit(ExitCode::usage)
                 .help("--bind " + name + "=zeros, a number, or a file whose name ends with .npy")
             << "is " << toString(type) << ", --bind gives it '" << bound << "', which is no such number";
    return made(filled(*number, type.shape, builder));
  }

  pdcrt::NpyFile file;
  if (!open(file, name, bound, diags)) return failure;
  const Type found{file.element(), file.shape()};
  if (found.shape != type.shape)
    return diags.error(where) << "is " << toString(type) << ", " << bound << " has the shape " << toString(found.shape);
  if (found.element == type.element && type.bytes() > largestConstant) {
    std::error_code error;
    const auto end = static_cast<std::int64_t>(std::filesystem::file_size(bound, error));
    const auto length = static_cast<std::int64_t>(file.values().size());
    Parameter* parameter = builder.module().addParameter({.name = name,
                                                          .type = type,
                                                          .role = ParameterRole::frozen,
                                                          .reference = {.file = bound,
                                                                        .offset = end - length,
                                                                        .length = length,
                                                                        .stored = type.shape,
                                                                        .permutation = {},
                                                                        .origin = ReferenceOrigin::namedByUser},
                                                          .location = {.file = bound, .node = name}});
    return builder.graph().parameterValue(*parameter);
  }
  const std::optional<Tensor> tensor =
      type.bytes() > largestConstant ? std::nullopt : convertedTo(Tensor(found, file.values()), type.element);
  if (!tensor)
    return diags.error(where).help(pdcrt::astypeHelp(bound, type.element))
           << "is " << toString(type) << ", " << bound << " has elements of type " << nameOf(found.element);
  return made(builder.constant(*tensor));
}
