#include "Inputs.h"

#include "BatchAxes.h"
#include "TensorReader.h"
#include "pdcrt/Training.h"

#include <algorithm>
#include <cctype>
#include <set>

using namespace pdc;

/// Exporters write "?" or a size below 1 where they know none: each is a dimension of its own.
static StatedDim statedDim(const onnx::TensorShapeProto::Dimension& dim, const std::string& name, int axis) {
  if (dim.has_dim_value() && dim.dim_value() > 0) return {dim.dim_value(), {}};
  const std::string& symbol = dim.dim_param();
  const bool named = std::any_of(symbol.begin(), symbol.end(),
                                 [](unsigned char c) { return std::isalpha(c) || c >= 0x80 || c == '_'; }) &&
                     symbol != "None";
  return {0, named ? symbol : name + "." + std::to_string(axis), named};
}

Expected<std::vector<DataInput>> pdc::dataInputs(const OnnxFile& file, Diagnostics& diags) {
  std::set<std::string> initializers;
  for (const onnx::TensorProto& tensor : file.graph().initializer()) initializers.insert(tensor.name());
  std::vector<DataInput> inputs;
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
    for (int axis = 0; axis < tensor.shape().dim_size(); ++axis)
      input.dims.push_back(statedDim(tensor.shape().dim(axis), info.name(), axis));
  }
  return inputs;
}

std::vector<DataInput> pdc::statedOutputs(const OnnxFile& file) {
  std::vector<DataInput> outputs;
  for (const onnx::ValueInfoProto& info : file.graph().output()) {
    const onnx::TypeProto::Tensor& tensor = info.type().tensor_type();
    if (!info.type().has_tensor_type() || !tensor.has_shape()) continue;
    DataInput& output = outputs.emplace_back(
        DataInput{info.name(), elementTypeFromOnnx(tensor.elem_type()).value_or(ElementType::f32), {}});
    for (int axis = 0; axis < tensor.shape().dim_size(); ++axis)
      output.dims.push_back(statedDim(tensor.shape().dim(axis), info.name(), axis));
  }
  return outputs;
}

std::string pdc::listOf(const std::vector<DataInput>& inputs) {
  std::string list;
  for (const DataInput& input : inputs) list += (list.empty() ? "'" : ", '") + input.name + "'";
  return list.empty() ? "none" : list;
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
  Binder(const InputContext& context, std::vector<BatchAxis> axes, bool strict, BatchAxes& batch)
      : c_(context), axes_(std::move(axes)), strict_(strict), batch_(batch), values_(context.options.dims) {
    for (const DataInput& input : c_.inputs) sizes_.emplace_back(input.dims.size(), 0);
  }

  Expected<std::vector<Type>> run() {
    if (!takeFlags() || !takeBoundFiles()) return failure;
    if (strict_ && !checkBatchAxes(c_, axes_)) return failure;
    if (!bindBatch() || !checkAllBound() || !findBatchSize()) return failure;
    if (c_.options.insteadOfSize) replaceBatchSize();
    std::vector<Type> types;
    for (std::size_t i = 0; i < c_.inputs.size(); ++i) {
      Type& type = types.emplace_back(Type{c_.inputs[i].element, {}});
      for (std::size_t axis = 0; axis < sizes_[i].size(); ++axis) type.shape.push_back(sizeOf(i, axis));
      if (std::int64_t elements = elementsOf(type.shape); elements < 0 || elements > INT64_MAX / 8)
        return c_.diags.error({.file = c_.path, .node = c_.inputs[i].name})
               << "has the shape " << toString(type.shape) << ", which has too many elements";
    }
    return types;
  }

private:
  const StatedDim& dim(std::size_t input, std::size_t axis) const { return c_.inputs[input].dims[axis]; }
  static std::string place(const DataInput& input, std::size_t axis) { return input.name + "." + std::to_string(axis); }
  /// 0 where it is not known.
  std::int64_t sizeOf(std::size_t input, std::size_t axis) const {
    if (sizes_[input][axis] > 0) return sizes_[input][axis];
    const StatedDim& stated = dim(input, axis);
    if (stated.symbol.empty()) return stated.value;
    const auto value = values_.find(stated.symbol);
    return value == values_.end() ? 0 : value->second;
  }
  template <class Action>
  void forEachDim(Action action) {
    for (std::size_t i = 0; i < c_.inputs.size(); ++i)
      for (std::size_t axis = 0; axis < c_.inputs[i].dims.size(); ++axis) action(i, axis);
  }

  /// --dim by name, and by position, which wins over what the file says.
  Status takeFlags() {
    std::set<std::string> symbols, places;
    forEachDim([&](std::size_t i, std::size_t axis) {
      if (const StatedDim& stated = dim(i, axis); !stated.symbol.empty()) symbols.insert(stated.symbol);
      places.insert(place(c_.inputs[i], axis));
    });
    if (c_.options.batch && *c_.options.batch < 1)
      return c_.diags.error({}).exit(ExitCode::usage) << "--batch=" << *c_.options.batch << " is less than 1";
    for (const auto& [name, value] : c_.options.dims) {
      if (value < 1)
        return c_.diags.error({}).exit(ExitCode::usage) << "--dim " << name << "=" << value << " is less than 1";
      if (symbols.contains(name) || places.contains(name)) continue;
      std::string known;
      if (places.empty()) places.insert("none");
      for (const std::string& symbol : symbols) known += (known.empty() ? "'" : ", '") + symbol + "'";
      return c_.diags.error({.file = c_.path})
                 .note(known.empty() ? "all its dimensions are fixed: '" + *places.begin() + "' is the first, by place"
                                     : "it has " + known)
             << "has no symbolic dimension '" << name << "', which --dim gives a value";
    }
    forEachDim([&](std::size_t i, std::size_t axis) {
      const auto given = c_.options.dims.find(place(c_.inputs[i], axis));
      if (given == c_.options.dims.end()) return;
      sizes_[i][axis] = given->second;
      if (const std::string& symbol = dim(i, axis).symbol; !symbol.empty()) values_.emplace(symbol, given->second);
    });
    return success;
  }

  /// What a symbolic dimension of a bound input is, the file says.
  Status takeBoundFiles() {
    for (std::size_t i = 0; i < c_.inputs.size(); ++i) {
      const auto shape = c_.shapesOfBound.find(c_.inputs[i].name);
      if (shape == c_.shapesOfBound.end() || shape->second.size() != c_.inputs[i].dims.size()) continue;
      for (std::size_t axis = 0; axis < shape->second.size(); ++axis)
        if (const std::string& symbol = dim(i, axis).symbol; !symbol.empty())
          ofFiles_.emplace(symbol, shape->second[axis]);
    }
    return success;
  }

  /// --batch, for every batch axis. Where the file fixes another size, the axis takes the new one.
  Status bindBatch() {
    for (std::size_t i = 0; c_.options.batch && i < c_.inputs.size(); ++i) {
      const std::vector<StatedDim>& dims = c_.inputs[i].dims;
      const bool open = axes_[i].source == BatchAxis::Source::unknown || axes_[i].source == BatchAxis::Source::none;
      int axis = axes_[i].axis;
      if (open && !dims.empty() && !dims[0].symbol.empty() && !isBound(i)) axis = 0; // of no data set
      if (axis < 0) continue;
      const auto at = static_cast<std::size_t>(axis);
      if (dims[at].symbol.empty() || sizes_[i][at] > 0) {
        const std::int64_t before = sizeOf(i, at);
        if (sizes_[i][at] > 0 && before != *c_.options.batch) return twoBatches(place(c_.inputs[i], at), before);
        if (before != *c_.options.batch) batch_.before = before;
        sizes_[i][at] = *c_.options.batch;
        continue;
      }
      const auto [value, isNew] = values_.emplace(dims[at].symbol, *c_.options.batch);
      if (value->second != *c_.options.batch) return twoBatches(dims[at].symbol, value->second);
    }
    for (const auto& [symbol, size] : ofFiles_) values_.emplace(symbol, size);
    return success;
  }
  bool isBound(std::size_t i) const { return c_.options.bind.contains(c_.inputs[i].name); }
  Failure twoBatches(const std::string& name, std::int64_t value) {
    return c_.diags.error({.file = c_.path}) << "the batch dimension '" << name << "' gets " << value
                                             << " from --dim and " << *c_.options.batch << " from --batch";
  }

  Status checkAllBound() {
    std::set<std::string> missing;
    Diagnostic problem{.location = {.file = c_.path}};
    forEachDim([&](std::size_t i, std::size_t axis) {
      const DataInput& input = c_.inputs[i];
      if (sizeOf(i, axis) > 0) return;
      const std::string& symbol = dim(i, axis).symbol;
      if (c_.unread.contains(input.name) && strict_) {
        sizes_[i][axis] = 1;
        return;
      }
      if (!missing.insert(symbol).second) return;
      if (missing.size() == 1) problem.location.node = input.name;
      problem.notes.push_back("'" + symbol + "' is axis " + std::to_string(axis) + " of input '" + input.name + "'");
      const bool isBatch = axes_[i].axis == static_cast<int>(axis) || (axes_[i].axis < 0 && axis == 0 && !isBound(i));
      problem.helps.push_back(isBatch ? "give the batch: --batch=B" : "give its size: " + dimFlag(symbol));
    });
    if (missing.empty()) return success;
    std::string names;
    for (const std::string& symbol : missing) names += (names.empty() ? "'" : ", '") + symbol + "'";
    problem.message = (missing.size() == 1 ? "dimension " : "dimensions ") + names +
                      (missing.size() == 1 ? " is symbolic and has" : " are symbolic and have") + " no value";
    c_.diags.report(std::move(problem));
    return failure;
  }

  /// All inputs have the same number of samples. Tells what was guessed.
  Status findBatchSize() {
    if (!strict_) return success;
    std::optional<std::size_t> first;
    std::string told;
    bool likely = false;
    for (std::size_t i = 0; i < c_.inputs.size(); ++i) {
      const BatchAxis& axis = axes_[i];
      if (!isBound(i)) batch_.axes[c_.inputs[i].name] = axis.axis;
      if (axis.axis < 0) continue;
      const std::int64_t size = sizeOf(i, static_cast<std::size_t>(axis.axis));
      if (!first) {
        first = i;
        batch_.size = size;
      } else if (size != batch_.size) {
        return c_.diags.error({.file = c_.path})
                   .help("give another axis: --batch-axis=NAME:N, or none")
                   .help("or the size: --batch=B")
               << "a minibatch has " << batch_.size << " samples by " << describe(c_.inputs[*first], axes_[*first])
               << " and " << size << " by " << describe(c_.inputs[i], axis);
      }
      using Source = BatchAxis::Source;
      if (axis.source == Source::agreed || axis.source == Source::placed) batch_.guessed.push_back(c_.inputs[i].name);
      if (axis.source == Source::stated) continue;
      likely = likely || axis.source != Source::named || axis.axis > 0;
      told += (told.empty() ? "" : ", ") + describe(c_.inputs[i], axis);
    }
    if (likely && !c_.options.insteadOfSize)
      c_.diags.remark({.file = c_.path}) << "the batch is " << told
                                         << (batch_.before
                                                 ? ", with " + std::to_string(batch_.size) + " samples by --batch"
                                                 : "");
    return success;
  }

  /// Symbols of the batch have the new size wherever they are.
  void replaceBatchSize() {
    for (std::size_t i = 0; i < c_.inputs.size(); ++i) {
      if (axes_[i].axis < 0) continue;
      const auto at = static_cast<std::size_t>(axes_[i].axis);
      if (dim(i, at).symbol.empty() || sizes_[i][at] > 0)
        sizes_[i][at] = *c_.options.insteadOfSize;
      else
        values_[dim(i, at).symbol] = *c_.options.insteadOfSize;
    }
  }

  const InputContext& c_;
  std::vector<BatchAxis> axes_;
  const bool strict_;
  BatchAxes& batch_;
  std::map<std::string, std::int64_t> values_, ofFiles_; ///< of symbols
  std::vector<std::vector<std::int64_t>> sizes_;         ///< of dimensions that do not have what the file says
};

} // namespace

Expected<std::vector<Type>> pdc::bindDimensions(const InputContext& context, bool strict, BatchAxes& batch) {
  Expected<std::vector<BatchAxis>> axes = chooseBatchAxes(context);
  if (!axes) return failure;
  return Binder(context, *std::move(axes), strict, batch).run();
}
