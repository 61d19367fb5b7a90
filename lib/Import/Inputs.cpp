#include "Inputs.h"

#include "TensorReader.h"

#include <algorithm>
#include <cctype>
#include <set>

using namespace pdc;

Expected<std::vector<DataInput>> pdc::dataInputs(const OnnxFile& file, Diagnostics& diags) {
  std::set<std::string> initializers;
  for (const onnx::TensorProto& tensor : file.graph().initializer()) initializers.insert(tensor.name());
  std::vector<DataInput> inputs;
  bool valid = true;
  for (const onnx::ValueInfoProto& info : file.graph().input()) {
    if (initializers.contains(info.name())) continue;
    Location where{.file = file.path(), .node = info.name()};
    const onnx::TypeProto::Tensor& tensor = info.type().tensor_type();
    std::optional<ElementType> element = elementTypeFromOnnx(tensor.elem_type());
    if (!info.type().has_tensor_type())
      return diags.error(where).exit(ExitCode::unsupported) << "is an input, but not a tensor";
    if (!element)
      return diags.error(where).exit(ExitCode::unsupported)
             << "inputs of " << onnxTypeName(tensor.elem_type()) << " are not supported";
    if (!tensor.has_shape()) return diags.error(where) << "is an input without a shape";
    DataInput& input = inputs.emplace_back(DataInput{info.name(), *element, {}});
    for (int axis = 0; axis < tensor.shape().dim_size(); ++axis) {
      const onnx::TensorShapeProto::Dimension& dim = tensor.shape().dim(axis);
      if (dim.has_dim_value() && dim.dim_value() <= 0) {
        diags.error(where) << "has " << dim.dim_value() << " as dimension " << axis << ", dimensions are at least 1";
        valid = false;
      }
      std::string unnamed = info.name() + "." + std::to_string(axis);
      if (dim.has_dim_value())
        input.dims.push_back({dim.dim_value(), {}});
      else
        input.dims.push_back({0, dim.dim_param().empty() ? unnamed : dim.dim_param()});
    }
  }
  if (!valid) return failure;
  return inputs;
}

std::string pdc::toString(const DataInput& input) {
  std::string text = std::string(nameOf(input.element)) + "[";
  for (const StatedDim& dim : input.dims) {
    if (&dim != &input.dims.front()) text += ", ";
    text += dim.symbol.empty() ? std::to_string(dim.value) : dim.symbol;
  }
  return text + "]";
}

std::string pdc::dimFlag(const std::string& symbol) {
  bool plain = std::all_of(symbol.begin(), symbol.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '_' || c == '.' || c == '-' || c == '/';
  });
  return plain ? "--dim " + symbol + "=V" : "--dim '" + symbol + "=V'";
}

namespace {

class Binder {
public:
  Binder(const std::vector<DataInput>& inputs, const ImportOptions& options, const std::string& path,
         Diagnostics& diags)
      : inputs_(inputs), options_(options), where_{.file = path}, diags_(diags), values_(options.dims) {}

  Expected<std::vector<Type>> run() {
    if (!checkFlags() || !bindBatch() || !checkAllBound()) return failure;
    std::vector<Type> types;
    for (const DataInput& input : inputs_) {
      Type& type = types.emplace_back(Type{input.element, {}});
      for (const StatedDim& dim : input.dims)
        type.shape.push_back(dim.symbol.empty() ? dim.value : values_.at(dim.symbol));
      if (std::int64_t elements = elementsOf(type.shape); elements < 0 || elements > INT64_MAX / 8)
        return diags_.error({.file = where_.file, .node = input.name})
               << "has the shape " << toString(type.shape) << ", which has too many elements";
    }
    return types;
  }

private:
  Status checkFlags() {
    std::set<std::string> symbols;
    for (const DataInput& input : inputs_)
      for (const StatedDim& dim : input.dims)
        if (!dim.symbol.empty()) symbols.insert(dim.symbol);
    if (options_.batch && *options_.batch < 1)
      return diags_.error({}).exit(ExitCode::usage) << "--batch=" << *options_.batch << " is less than 1";
    for (const auto& [name, value] : options_.dims) {
      if (value < 1)
        return diags_.error({}).exit(ExitCode::usage) << "--dim " << name << "=" << value << " is less than 1";
      if (symbols.contains(name)) continue;
      std::string known;
      for (const std::string& symbol : symbols) known += (known.empty() ? "'" : ", '") + symbol + "'";
      return diags_.error(where_).note(known.empty() ? "all its dimensions are fixed" : "it has " + known)
             << "has no symbolic dimension '" << name << "', which --dim gives a value";
    }
    return success;
  }

  Status bindBatch() {
    if (!options_.batch) return success;
    bool bound = false;
    for (const DataInput& input : inputs_) {
      if (input.dims.empty() || input.dims.front().symbol.empty()) continue;
      const std::string& symbol = input.dims.front().symbol;
      auto [value, isNew] = values_.emplace(symbol, *options_.batch);
      if (value->second != *options_.batch)
        return diags_.error(where_) << "the batch dimension '" << symbol << "' gets " << value->second
                                    << " from --dim and " << *options_.batch << " from --batch";
      bound = true;
    }
    if (bound || inputs_.empty() || inputs_.front().dims.empty()) return success;
    const DataInput& first = inputs_.front();
    if (first.dims.front().value == *options_.batch) return success;
    return diags_.error({.file = where_.file, .node = first.name})
               .help("export it with dynamic_axes={'" + first.name + "': {0: 'batch'}}, or leave out --batch")
           << "was exported for a batch of " << first.dims.front().value << ", --batch asks for " << *options_.batch;
  }

  Status checkAllBound() {
    std::set<std::string> missing;
    Diagnostic problem{.location = where_};
    for (const DataInput& input : inputs_)
      for (std::size_t axis = 0; axis < input.dims.size(); ++axis) {
        const std::string& symbol = input.dims[axis].symbol;
        if (symbol.empty() || values_.contains(symbol) || !missing.insert(symbol).second) continue;
        if (missing.size() == 1) problem.location.node = input.name;
        problem.notes.push_back("'" + symbol + "' is axis " + std::to_string(axis) + " of input '" + input.name + "'");
        problem.helps.push_back(axis == 0 ? "give the batch: --batch=B" : "give its size: " + dimFlag(symbol));
      }
    if (missing.empty()) return success;
    std::string names;
    for (const std::string& symbol : missing) names += (names.empty() ? "'" : ", '") + symbol + "'";
    problem.message = (missing.size() == 1 ? "dimension " : "dimensions ") + names +
                      (missing.size() == 1 ? " is symbolic and has" : " are symbolic and have") + " no value";
    diags_.report(std::move(problem));
    return failure;
  }

  const std::vector<DataInput>& inputs_;
  const ImportOptions& options_;
  Location where_;
  Diagnostics& diags_;
  std::map<std::string, std::int64_t> values_;
};

} // namespace

Expected<std::vector<Type>> pdc::bindDimensions(const std::vector<DataInput>& inputs, const ImportOptions& options,
                                                const std::string& path, Diagnostics& diags) {
  return Binder(inputs, options, path, diags).run();
}
