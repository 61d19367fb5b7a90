#include "Weights/InitializerRules.h"

#include "ControlFlow.h"
#include "EqualInitializers.h"
#include "Operators.h"
#include "Weights/ExportedProgram.h"
#include "pdc/IR/OpDef.h"

#include <algorithm>
#include <array>
#include <cmath>

using namespace pdc;

namespace {

constexpr std::array scalarParameters = {"log_temperature", "logit_bias", "logit_scale", "temperature"};
constexpr std::array settings = {"eps", "epsilon", "momentum", "ratio"};

template <std::size_t n>
bool contains(const std::array<const char*, n>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

bool isOf(const InitializerUse& use, const char* type) {
  return use.node->op_type() == type && isDefaultDomain(use.node->domain());
}

bool isReshape(const onnx::NodeProto& node) {
  return node.op_type() == "Reshape" && isDefaultDomain(node.domain());
}

bool isRecurrent(const InitializerUse& use) {
  return isOf(use, "LSTM") || isOf(use, "GRU") || isOf(use, "RNN");
}

template <class Test>
bool all(const InitializerUses& uses, const Test& test) {
  return !uses.empty() && std::all_of(uses.begin(), uses.end(), test);
}

/// Whether a Cast leaves the floats.
bool isToIntegers(const onnx::NodeProto& cast) {
  for (const onnx::AttributeProto& attribute : cast.attribute())
    if (attribute.name() == "to") {
      const std::optional<ElementType> element = elementTypeFromOnnx(attribute.i());
      return element && !isFloat(*element);
    }
  return false;
}

/// A name that a converter counts: "helper.constant.80" (paddle2onnx).
bool isCounted(const std::string& name) {
  const std::size_t last = name.rfind('.'), before = last == std::string::npos ? last : name.rfind('.', last - 1);
  if (last == std::string::npos || last == 0 || last + 1 == name.size()) return false;
  const std::size_t first = before == std::string::npos ? 0 : before + 1;
  const std::string word = name.substr(first, last - first);
  return (word == "constant" || word == "const") && name.find_first_not_of("0123456789", last + 1) == std::string::npos;
}

/// A name that says nothing of a module: "val_68", "onnx::Mul_12", "/attn/Constant_output_0", "1234".
bool isMadeUp(const std::string& name) {
  return name.starts_with("val_") || name.starts_with("onnx::") || name.starts_with("/") ||
         name.find("Constant") != std::string::npos || name.starts_with("const_fold_opt") || isCounted(name) ||
         name.find_first_not_of("0123456789") == std::string::npos;
}

bool isPath(const std::string& name) {
  return name.find('.') != std::string::npos && name.find_first_of("/:") == std::string::npos &&
         name.find_first_not_of("0123456789.") != std::string::npos;
}

std::vector<double> readNumbers(const StoredTensor& tensor, TensorReader& reader, std::int64_t most) {
  if (tensor.lacksElements() || tensor.type.elements() > most) return {};
  const Expected<Tensor> values = reader.load(tensor, {});
  std::vector<double> numbers;
  for (std::int64_t i = 0; values && i < tensor.type.elements(); ++i) numbers.push_back(values->asDouble(i));
  return numbers;
}

/// 1, r, r², …: rotary frequencies.
bool areFrequencies(const std::vector<double>& x) {
  if (x.size() < 4 || x[0] != 1 || !(x[1] > 0 && x[1] < 1)) return false;
  for (std::size_t i = 1; i < x.size(); ++i)
    if (std::abs(x[i] - x[i - 1] * x[1]) > 1e-4 * x[i - 1]) return false;
  return true;
}

/// A table whose row t holds sines and cosines of t times frequencies: row 0 has only zeros and ones, and every number
/// of the rows 1 and 2 is what its frequency says.
bool isTableOfAngles(const std::vector<double>& x, std::int64_t columns) {
  const auto width = static_cast<std::size_t>(columns);
  if (width < 2 || x.size() < 3 * width) return false;
  bool varies = false;
  for (std::size_t j = 0; j < width; ++j) {
    const bool isCosine = x[j] == 1;
    const double first = x[width + j], second = x[2 * width + j];
    if ((!isCosine && x[j] != 0) || std::abs(first) > 1) return false;
    // cos 2a = 2 cos² a - 1; (sin 2a)² = 4 sin² a (1 - sin² a)
    const double doubled = isCosine ? 2 * first * first - 1 : 4 * first * first * (1 - first * first);
    if (std::abs((isCosine ? second : second * second) - doubled) > 1e-3) return false;
    varies |= first != x[j];
  }
  return varies;
}

} // namespace

bool pdc::isNamedByExporter(const std::string& name) {
  return isMadeUp(name);
}

ValueUses::ValueUses(const onnx::GraphProto& graph) {
  forEachNode(graph, [&](const onnx::NodeProto& node) {
    for (int k = 0; k < node.input_size(); ++k) uses[node.input(k)].push_back({&node, k});
    if (isReshape(node)) reshaped.insert(node.output().begin(), node.output().end());
  });
}

const InitializerUses& ValueUses::of(const std::string& name) const {
  static const InitializerUses none;
  const auto found = uses.find(name);
  return found == uses.end() ? none : found->second;
}

bool pdc::isInsideGroupNorm(const onnx::NodeProto& node) {
  return node.op_type() == "InstanceNormalization" &&
         scopeOf(node).operatorName.find("group_norm") != std::string::npos;
}

bool pdc::isSetting(const InitializerUses& uses) {
  return all(uses, [](const InitializerUse& use) {
    const int k = use.input;
    if (isListOfNumbers(*use.node, k)) return true;
    if (isOf(use, "Pow")) return k == 1;
    if (isOf(use, "Cast")) return isToIntegers(*use.node);
    if (isOf(use, "Clip") || isOf(use, "Dropout") || isOf(use, "OneHot") || isOf(use, "Pad") ||
        isOf(use, "QuantizeLinear") || isOf(use, "DequantizeLinear") || isOf(use, "NonMaxSuppression"))
      return k >= 1;
    // What chooses, counts or finds needs the values of its input, or gives no gradient.
    for (const char* type : {"Max", "Min", "Range", "Less", "Greater", "LessOrEqual", "GreaterOrEqual", "Equal",
                             "Unique", "NonZero", "ArgMax", "ArgMin", "Sign"})
      if (isOf(use, type)) return true;
    return false;
  });
}

static bool leadsToSettings(const std::string& name, const ValueUses& uses, int steps) {
  constexpr std::array arithmetic = {"Add", "Cast",  "Ceil",  "Concat", "Div",     "Floor", "Gather",   "Identity",
                                     "Mul", "Round", "Slice", "Split",  "Squeeze", "Sub",   "Unsqueeze"};
  return all(uses.of(name), [&](const InitializerUse& use) {
    if (isSetting({use})) return true;
    if (steps == 0 || !contains(arithmetic, use.node->op_type())) return false;
    const auto& outputs = use.node->output();
    return std::all_of(outputs.begin(), outputs.end(),
                       [&](const std::string& output) { return leadsToSettings(output, uses, steps - 1); });
  });
}

bool pdc::leadsToSettings(const std::string& name, const ValueUses& uses) {
  return ::leadsToSettings(name, uses, /*steps=*/6);
}

bool pdc::isPackedForRecurrence(const InitializerUses& uses) {
  return all(uses, [](const InitializerUse& use) { return use.input >= 1 && use.input <= 3 && isRecurrent(use); });
}

bool pdc::hasFoldedBatchNorm(const onnx::NodeProto& node, bool isSaid) {
  if (isSaid) return rewriteRulesOf(node).find("FuseBatchNorm") != std::string::npos;
  // The older exporter computes weight and bias of a convolution only to fold, and the default one calls the bias of a
  // convolution that had none after its input. (So do layers that are no convolution of all channels.)
  if ((node.op_type() != "Conv" && node.op_type() != "ConvTranspose") || node.input_size() < 3) return false;
  if (node.input(1).starts_with("onnx::Conv")) return node.input(2).starts_with("onnx::Conv");
  return node.input(2) == node.input(0) + "_bias" &&
         std::none_of(node.attribute().begin(), node.attribute().end(),
                      [](const auto& attribute) { return attribute.name() == "group" && attribute.i() > 1; });
}

bool pdc::isAddedUnderRoot(const std::string& name, const ValueUses& values) {
  const auto isRoot = [](const InitializerUse& use) { return isOf(use, "Sqrt"); };
  return all(values.of(name), [&](const InitializerUse& use) {
    return isOf(use, "Add") && use.node->output_size() == 1 && all(values.of(use.node->output(0)), isRoot);
  });
}

bool pdc::isScalarParameter(const std::string& name, const ValueUses& values, bool isOfPyTorch) {
  const InitializerUses& uses = values.of(name);
  if (isAddedUnderRoot(name, values)) return false;
  const auto isChosen = [](const InitializerUse& use) { return isOf(use, "Where"); }; // a number that masks
  if (isSetting(uses) || std::any_of(uses.begin(), uses.end(), isChosen)) return false;
  if (all(uses, [](const InitializerUse& use) { return isOf(use, "PRelu") && use.input == 1; })) return true;
  const std::string word = name.substr(name.rfind('.') + 1);
  if (contains(settings, word)) return false;
  return contains(scalarParameters, word) || (isPath(name) && !isCounted(name)) || (isOfPyTorch && !isMadeUp(name));
}

std::string pdc::whyConstant(const std::string& name, const ValueUses& values, const OnnxFile& file,
                             const StoredTensor& tensor, TensorReader& reader) {
  const InitializerUses& uses = values.of(name);
  const auto holds = [&](double number) {
    if (!holdsOneNumber(file, tensor)) return false;
    StoredTensor first = tensor;
    if (!tensor.value) {
      first.type.shape = {1};
      first.reference->length = first.type.bytes();
    }
    const Expected<Tensor> value = reader.load(first, {});
    return value && value->asDouble(0) == number;
  };
  const auto isFirstState = [](const InitializerUse& use) {
    return (use.input == 5 || use.input == 6) && isRecurrent(use);
  };
  if (all(uses, isFirstState) && holds(0)) return "first states of recurrent layers";
  const auto isOfGroups = [&](const InitializerUse& use) {
    return isOf(use, "InstanceNormalization") && values.reshaped.contains(use.node->input(0)) &&
           ((use.input == 1 && holds(1)) || (use.input == 2 && holds(0)));
  };
  if (all(uses, [&](const InitializerUse& use) { return isInsideGroupNorm(*use.node) || isOfGroups(use); }))
    return "ones and zeros inside GroupNorm";
  const auto isFilled = [](const InitializerUse& use) {
    return use.input == 0 && (isOf(use, "ScatterND") || isOf(use, "ScatterElements") || isOf(use, "Scatter"));
  };
  if (all(uses, isFilled) && holdsOneNumber(file, tensor)) return "values that a scatter fills";
  if (tensor.type.elements() == 1 && isMadeUp(name)) return "single numbers with names that an exporter made";
  if (tensor.type.rank() == 1 && areFrequencies(readNumbers(tensor, reader, 4096))) return "frequencies";
  if (tensor.type.rank() >= 2) {
    StoredTensor rows = tensor;
    const std::int64_t columns = tensor.type.shape.back();
    if (!tensor.reference || tensor.type.elements() / 3 < columns) return "";
    rows.type.shape = {3 * columns};
    rows.reference->length = rows.type.bytes();
    if (isTableOfAngles(readNumbers(rows, reader, 1 << 16), columns)) return "tables of sines and cosines";
  }
  return "";
}
