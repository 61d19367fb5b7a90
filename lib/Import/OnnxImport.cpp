// From an ONNX file to a module, step by step: check versions, expand functions, check operators, fix the order of the
// nodes, bind symbolic dimensions, decide what initializers are, convert node by node. Everything that can be wrong
// with the model as a whole is told before the first node is converted.
#include "pdc/Import/OnnxImport.h"

#include "BoundInputs.h"
#include "Buffers.h"
#include "ControlFlow.h"
#include "Functions.h"
#include "Initializers.h"
#include "Inputs.h"
#include "Operators.h"
#include "ProgramOrder.h"
#include "Sequences.h"
#include "TensorReader.h"
#include "Weights/OwnInitializers.h"
#include "pdc/IR/Builder.h"
#include "pdc/Support/Names.h"
#include "pdcrt/Training.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>
#include <set>

using namespace pdc;

namespace {

/// The number that somebody wrote and ONNX stores as `value`: 1e-05 rather than 9.999999747378752e-06, which in single
/// precision are the same.
double asWritten(float value) {
  char text[32];
  const char* end = std::to_chars(text, text + sizeof(text), value).ptr;
  double number = value;
  std::from_chars(text, end, number);
  return number;
}

/// The model's name in the text form: that of its file, as an identifier.
std::string moduleName(const std::string& path) {
  std::string stem = path.substr(path.rfind('/') + 1);
  if (stem.ends_with(".onnx")) stem.erase(stem.size() - 5);
  for (char& c : stem)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return stem.empty() || std::isdigit(static_cast<unsigned char>(stem[0])) ? "model_" + stem : stem;
}

/// Nodes that control flow may expand to.
constexpr std::int64_t mostExpanded = 10'000;

class Importer {
public:
  Importer(const OnnxFile& file, const ImportOptions& options, const OpRegistry& registry, Diagnostics& diags,
           bool strictBatch)
      : file_(file), options_(options), registry_(registry), diags_(diags), strictBatch_(strictBatch),
        reader_(file, diags, options.weightsMayLack) {}

  Expected<std::unique_ptr<Module>> run() {
    if (!checkOperators(file_, registry_, diags_)) return failure;
    Expected<std::vector<int>> order = programOrder(file_, diags_);
    if (!order) return failure;
    Expected<std::vector<DataInput>> inputs = dataInputs(file_, diags_);
    if (!inputs) return failure;
    if (!hasItsWeights(*inputs)) return failure;
    Expected<std::vector<Type>> types = typesOf(*inputs);
    if (!types) return failure;
    Expected<std::vector<Initializer>> initializers = readInitializers(file_, options_, reader_, diags_);
    if (!initializers) return failure;

    module_ = std::make_unique<Module>();
    module_->name = moduleName(file_.path());
    module_->file = file_.path();
    graph_ = module_->graphs.emplace_back(std::make_unique<Graph>("main")).get();
    builder_.emplace(*module_, *graph_, registry_, diags_, /*fold=*/true);
    if (!defineInputs(*inputs, *types) || !defineInitializers(*initializers)) return failure;
    warnOfRepairs();
    for (int node : *order)
      if (!convert(file_.graph().node(node))) return tellOfBatch();
    if (keptDropouts_ > 0)
      diags_.warning({.file = file_.path()})
              .help("--dropout=P switches them on with the ratio P, --dropout=0 says that this is meant")
          << keptDropouts_ << (keptDropouts_ == 1 ? " Dropout node was" : " Dropout nodes were")
          << " exported in inference mode and left out";
    if (!bodyWeights_.empty())
      diags_.warning(at(*bodyWeights_.begin())).help("store it as an initializer of the model, which bodies may read")
          << "is a weight in the body of control flow: such weights are constants, they are not trained";
    for (const onnx::ValueInfoProto& output : file_.graph().output())
      if (!addResult(output)) return failure;
    for (const std::string& name : options_.values)
      if (!addInnerResult(name)) return failure;
    graph_->outputs.insert(graph_->outputs.end(), states_.begin(), states_.end());
    return std::move(module_);
  }

  const BatchAxes& batch() const { return batch_; }

private:
  Expected<std::vector<Type>> typesOf(const std::vector<DataInput>& inputs) {
    const Expected<std::map<std::string, Shape>> files = shapesOfBound(inputs, options_, file_.path(), diags_);
    if (!files) return failure;
    std::set<std::string> unread;
    for (const DataInput& input : inputs)
      if (!isRead(input.name)) unread.insert(input.name);
    const std::vector<DataInput> outputs = statedOutputs(file_);
    return bindDimensions({inputs, outputs, unread, *files, options_, file_.path(), diags_}, strictBatch_, batch_);
  }

  Status defineInputs(const std::vector<DataInput>& inputs, const std::vector<Type>& types) {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const std::string& name = inputs[i].name;
      const auto bound = options_.bind.find(name);
      if (bound == options_.bind.end()) {
        values_[name] = graph_->addInput(types[i], name);
        continue;
      }
      const Expected<Value*> value =
          valueOfBound(name, bound->second, types[i], options_.insteadOfSize.has_value(), *builder_);
      if (!value) return failure;
      values_[name] = *value;
    }
    return success;
  }

  /// Why a node may not fit that fitted when the model was exported.
  Failure tellOfBatch() {
    if (!batch_.before) return failure;
    return diags_.error({.file = file_.path()})
               .help("export it with a symbolic batch, as dynamic_axes={'" + file_.graph().input(0).name() +
                     "': {0: 'batch'}} makes it, or leave out --batch")
           << "was exported for a batch of " << *batch_.before
           << ", which its nodes depend on: --batch=" << options_.batch.value_or(0) << " is not possible";
  }

  Status addResult(const onnx::ValueInfoProto& output) {
    const ModelValue& value = values_.at(output.name());
    if (value.sequence)
      return diags_.error(at(output.name())).exit(ExitCode::unsupported).help("let the model return tensors")
             << "is an output of the model and a sequence, which is not supported";
    GraphOutput result{.kind = OutputKind::result, .value = value.tensor, .name = output.name()};
    result.declared = output.type().tensor_type().has_shape();
    for (const auto& dimension : output.type().tensor_type().shape().dim())
      result.perSample |= !dimension.has_dim_value() || dimension.dim_value() < 0;
    graph_->outputs.push_back(std::move(result));
    return success;
  }

  /// A value that is no output of the model.
  Status addInnerResult(const std::string& name) {
    for (const GraphOutput& output : graph_->outputs)
      if (output.name == name) return success;
    const auto found = values_.find(name);
    if (found != values_.end() && found->second.tensor) {
      graph_->outputs.push_back({.kind = OutputKind::result, .value = found->second.tensor, .name = name});
      graph_->outputs.back().inner = true;
      return success;
    }
    std::vector<std::string_view> known;
    for (const auto& [other, value] : values_)
      if (value.tensor && !value.tensor->parameter()) known.push_back(other);
    const std::string nearest = nearestName(name, known);
    std::string outputs;
    for (const onnx::ValueInfoProto& output : file_.graph().output())
      outputs += (outputs.empty() ? "'" : ", '") + output.name() + "'";
    return diags_.error({.file = file_.path()})
               .note("outputs of the model: " + outputs)
               .help(nearest.empty() ? "name one of them, or an inner value as the file calls it"
                                     : "did you mean '" + nearest + "'?")
           << "the model has no output and no inner value '" << name << "'";
  }

  /// A model that was exported without weights has them as inputs; others have them in a file that was not copied.
  Status hasItsWeights(const std::vector<DataInput>& inputs) {
    if (options_.weightsMayLack) return success;
    const char* help = "--init=SEED starts with the usual initialisation of each operator, --init-from=F.safetensors "
                       "with stored weights";
    if (const auto [location, count] = reader_.lackingData(); count > 0)
      return diags_.error({.file = file_.path()}).help("put it beside the model").help(help)
             << "has no weights: external data '" << location << "', with " << count << " of its "
             << file_.graph().initializer_size() << " initializers, is not there";
    const auto isWeight = [](const DataInput& input) {
      return isFloat(input.element) && isNamedLikeWeight(input.name);
    };
    const auto count = std::count_if(inputs.begin(), inputs.end(), isWeight);
    if (count == 0 || file_.graph().initializer_size() > 0) return success;
    return diags_.error({.file = file_.path()})
               .exit(ExitCode::unsupported)
               .help("export with the weights: torch.onnx.export(…, export_params=True)")
               .help(help)
           << "has no weights: " << count << " of its " << inputs.size() << " inputs are called like some, '"
           << std::find_if(inputs.begin(), inputs.end(), isWeight)->name << "' first";
  }

  Location at(const std::string& node) const { return {.file = file_.path(), .node = scope_ + node}; }

  Status defineInitializers(const std::vector<Initializer>& initializers) {
    for (std::size_t i = 0; i < initializers.size(); ++i) {
      const auto& [role, tensor, triangle, tiedTo, transposed, reason] = initializers[i];
      const std::string& name = file_.graph().initializer(static_cast<int>(i)).name();
      if (role == InitializerRole::unused || role == InitializerRole::tied) continue;
      if (role == InitializerRole::constant) {
        builder_->setLocation(at(name));
        Expected<Tensor> value = reader_.load(tensor, at(name));
        if (!value) return failure;
        if (!(values_[name] = builder_->constant(*value)).tensor) return failure;
        continue;
      }
      if (role == InitializerRole::triangle) {
        builder_->setLocation(at(name));
        if (!(values_[name] = defineTriangle(triangle, tensor.type)).tensor) return failure;
        continue;
      }
      Parameter* parameter = module_->addParameter({.name = name,
                                                    .type = tensor.type,
                                                    .role = role == InitializerRole::trained ? ParameterRole::trained
                                                            : role == InitializerRole::state ? ParameterRole::state
                                                                                             : ParameterRole::frozen,
                                                    .reference = tensor.reference.value_or(Reference{}),
                                                    .location = at(name)});
      values_[name] = graph_->parameterValue(*parameter);
    }
    return defineTied(initializers);
  }

  /// From the numbers of its rows and columns.
  Value* defineTriangle(const Triangle& triangle, const Type& type) {
    const std::int64_t rows = type.shape[type.shape.size() - 2], columns = type.shape.back();
    Tensor row(Type{ElementType::i64, {rows, 1}}), column(Type{ElementType::i64, {1, columns}});
    for (std::int64_t i = 0; i < rows; ++i) row.set(i, static_cast<double>(i + triangle.diagonal));
    for (std::int64_t j = 0; j < columns; ++j) column.set(j, static_cast<double>(j));
    Value *last = builder_->constant(row), *own = builder_->constant(column);
    Value* value = last && own ? builder_->value("less_equal", {own, last}) : nullptr;
    if (value && (type.element != ElementType::boolean || triangle.below == 0)) {
      Value *below = builder_->constant(triangle.below, type.element),
            *above = builder_->constant(triangle.above, type.element);
      value = below && above ? builder_->value("where", {value, below, above}) : nullptr;
    }
    if (!value || type.rank() == 2) return value;
    return builder_->value("reshape", {value}, {{"shape", type.shape}});
  }

  Status defineTied(const std::vector<Initializer>& initializers) {
    for (std::size_t i = 0; i < initializers.size(); ++i) {
      if (initializers[i].role != InitializerRole::tied) continue;
      const std::string& name = file_.graph().initializer(static_cast<int>(i)).name();
      Value* value = values_.at(file_.graph().initializer(initializers[i].tiedTo).name()).tensor;
      builder_->setLocation(at(name));
      if (initializers[i].transposed)
        value = builder_->value("transpose", {value}, {{"permutation", std::vector<std::int64_t>{1, 0}}});
      if (!(values_[name] = value).tensor) return failure;
    }
    return success;
  }

  Expected<Attribute> convertAttribute(const onnx::AttributeProto& attribute, const Location& where) {
    switch (attribute.type()) {
    case onnx::AttributeProto::INT: return Attribute(attribute.i());
    case onnx::AttributeProto::FLOAT: return Attribute(asWritten(attribute.f()));
    case onnx::AttributeProto::STRING: return Attribute(attribute.s());
    case onnx::AttributeProto::INTS:
      return Attribute(std::vector<std::int64_t>(attribute.ints().begin(), attribute.ints().end()));
    case onnx::AttributeProto::FLOATS:
      if (attribute.floats().empty()) return Attribute(std::vector<std::int64_t>{});
      {
        std::vector<double> values;
        for (float value : attribute.floats()) values.push_back(asWritten(value));
        return Attribute(std::move(values));
      }
    case onnx::AttributeProto::STRINGS:
      if (attribute.strings().empty()) return Attribute(std::vector<std::int64_t>{});
      return Attribute(std::vector<std::string>(attribute.strings().begin(), attribute.strings().end()));
    case onnx::AttributeProto::TENSOR: {
      Expected<Tensor> tensor = reader_.attribute(attribute.t(), where);
      if (!tensor) return failure;
      return Attribute(*std::move(tensor));
    }
    default:
      return diags_.error(where).exit(ExitCode::unsupported)
             << "its attribute '" << attribute.name()
             << "' is of a kind that is not supported: " << onnx::AttributeProto::AttributeType_Name(attribute.type());
    }
  }

  /// The values of these names; null for "".
  Expected<std::vector<ModelValue>> valuesOf(const google::protobuf::RepeatedPtrField<std::string>& names,
                                             const Location& where) {
    std::vector<ModelValue> values;
    for (const std::string& name : names) {
      const auto found = values_.find(name);
      if (!name.empty() && found == values_.end())
        return diags_.error(where) << "uses '" << name << "', which nothing defines";
      values.push_back(name.empty() ? ModelValue() : found->second);
    }
    return values;
  }

  /// Gives the outputs of a node their values; null: not computed.
  Status define(const onnx::NodeProto& proto, const Location& where, const std::vector<ModelValue>& results) {
    for (int i = 0; i < proto.output_size(); ++i) {
      if (proto.output(i).empty()) continue;
      const auto at = static_cast<std::size_t>(i);
      const ModelValue result = at < results.size() ? results[at] : ModelValue();
      if (!result && isRead(proto.output(i)))
        return diags_.error(where).exit(ExitCode::unsupported)
               << "output " << i << " of '" << proto.op_type() << "' is used, but not supported";
      define(proto.output(i), result);
    }
    return success;
  }
  /// In a body, for as long as that is converted.
  void define(const std::string& name, const ModelValue& value) {
    if (!bodies_.empty()) {
      const auto outside = values_.find(name);
      bodies_.back().hidden.emplace_back(name,
                                         outside == values_.end() ? std::nullopt : std::optional(outside->second));
    }
    values_[name] = value;
  }

  /// Control flow is expanded: its bodies are converted in the place of the node.
  Status expand(const onnx::NodeProto& proto) {
    const Location where = at(nameOfNode(proto));
    const Expected<std::vector<ModelValue>> inputs = valuesOf(proto.input(), where);
    if (!inputs) return failure;
    builder_->setLocation(where);
    const std::int64_t opset = opsetOf(proto);
    const auto results = expandControlFlow(
        proto, opset, *inputs, *builder_,
        [&](const onnx::GraphProto& body, const std::vector<ModelValue>& values, const std::string& scope) {
          return convertBody(body, values, {scope_ + nameOfNode(proto) + "/" + scope, opset, {}});
        });
    return results ? define(proto, where, *results) : reportedAt(where);
  }

  /// A body of control flow that is being converted.
  struct Body {
    std::string scope; ///< before the names of its nodes
    std::int64_t opset;
    std::vector<std::pair<std::string, std::optional<ModelValue>>> hidden; ///< what its names meant outside
  };

  Expected<std::vector<ModelValue>> convertBody(const onnx::GraphProto& graph, const std::vector<ModelValue>& inputs,
                                                Body body) {
    const Location where = builder_->location();
    if (graph.input_size() != static_cast<int>(inputs.size()))
      return diags_.error(where) << "gives its body " << inputs.size() << " inputs, that has " << graph.input_size();
    if ((expanded_ += 1 + graph.node_size()) > mostExpanded)
      return diags_.error(where).exit(ExitCode::unsupported).help("export the model with fewer iterations")
             << "control flow expands to more than " << mostExpanded << " nodes";
    const std::string outerScope = std::exchange(scope_, body.scope);
    bodies_.push_back(std::move(body));
    Expected<std::vector<ModelValue>> outputs = convertNodesOf(graph, inputs, where);
    scope_ = outerScope;
    for (auto hidden = bodies_.back().hidden.rbegin(); hidden != bodies_.back().hidden.rend(); ++hidden)
      if (hidden->second)
        values_[hidden->first] = *hidden->second;
      else
        values_.erase(hidden->first);
    bodies_.pop_back();
    return outputs;
  }

  Expected<std::vector<ModelValue>> convertNodesOf(const onnx::GraphProto& graph, const std::vector<ModelValue>& inputs,
                                                   const Location& where) {
    for (int i = 0; i < graph.input_size(); ++i) define(graph.input(i).name(), inputs[static_cast<std::size_t>(i)]);
    for (const onnx::TensorProto& tensor : graph.initializer()) {
      Expected<Tensor> value = reader_.attribute(tensor, at(tensor.name()));
      if (!value) return failure;
      if (isFloat(value->type().element) && value->type().rank() > 1) bodyWeights_.insert(scope_ + tensor.name());
      builder_->setLocation(at(tensor.name()));
      define(tensor.name(), builder_->constant(*value));
    }
    for (const onnx::NodeProto& node : graph.node())
      if (!convert(node)) return failure;
    google::protobuf::RepeatedPtrField<std::string> names;
    for (const onnx::ValueInfoProto& output : graph.output()) *names.Add() = output.name();
    Expected<std::vector<ModelValue>> outputs = valuesOf(names, where);
    for (std::size_t i = 0; outputs && i < outputs->size(); ++i)
      if (!(*outputs)[i])
        return diags_.error(where) << "has a body whose output '" << names[static_cast<int>(i)] << "' is not computed";
    return outputs;
  }

  std::int64_t opsetOf(const onnx::NodeProto& proto) const {
    return bodies_.empty() ? file_.opsetOf(proto) : bodies_.back().opset;
  }

  Status convert(const onnx::NodeProto& proto) {
    if (isControlFlow(proto)) return expand(proto);
    OnnxNode node{.opType = proto.op_type(), .version = opsetOf(proto), .location = at(nameOfNode(proto))};
    if (bodies_.empty() && proto.input_size() > 0) module_->firstInputs.emplace(node.location.node, proto.input(0));
    const Expected<std::vector<ModelValue>> inputs = valuesOf(proto.input(), node.location);
    if (!inputs) return failure;
    builder_->setLocation(node.location);
    if (std::any_of(inputs->begin(), inputs->end(), [](const ModelValue& v) { return v.sequence != nullptr; }) ||
        isSequenceOperator(proto))
      return convertSequences(proto, *inputs, node.location);
    for (const ModelValue& input : *inputs) node.inputs.push_back(input.tensor);
    if (isBatchNormalization(proto)) takeNewStatistics(node);
    node.outputs = static_cast<std::size_t>(proto.output_size());
    for (const std::string& output : proto.output()) node.outputUsed.push_back(isRead(output)); // exporters list all
    for (const onnx::AttributeProto& attribute : proto.attribute()) {
      Expected<Attribute> value = convertAttribute(attribute, node.location);
      if (!value) return failure;
      node.attributes.set(attribute.name(), *std::move(value));
    }
    builder_->setLocation(node.location);
    bool inTraining = isBatchNormalization(proto) && prepareBatchNormalization(node, proto);
    if (inTraining && !bodies_.empty())
      return diags_.error(node.location).exit(ExitCode::unsupported).help("--bn=frozen takes the running statistics")
             << "is a BatchNormalization in training mode in the body of control flow, which is not supported";
    if (isDropout(proto) && options_.dropout) prepareDropout(node);
    keptDropouts_ += isDropout(proto) && !options_.dropout && keepsAll(node);

    const OnnxMapping* mapping =
        isDefaultDomain(proto.domain()) ? registry_.findOnnx(node.opType, node.version) : nullptr;
    if (!mapping) // in a body: others have been checked
      return diags_.error(node.location).exit(ExitCode::unsupported)
             << "'" << node.opType << "' is not an operator that pdc knows in opset " << node.version;
    noteSequence(node);
    Expected<std::vector<Value*>> results = mapping->convert(node, *builder_, diags_);
    if (!results) return reportedAt(node.location);
    if (isBatchNormalization(proto) && !inTraining) keepStatistics(node, *results);
    if (!define(proto, node.location, {results->begin(), results->end()})) return failure;
    if (inTraining) addStates(node, *results);
    return success;
  }

  /// Of recurrent operators, which go along axis 0 of their input, or with layout 1 along axis 1.
  void noteSequence(const OnnxNode& node) {
    if (node.opType != "LSTM" && node.opType != "GRU" && node.opType != "RNN") return;
    const auto axis = static_cast<std::size_t>(node.attributes.getOr<std::int64_t>("layout", 0));
    if (!node.inputs.empty() && node.inputs[0] && axis < node.inputs[0]->type().shape.size())
      batch_.sequences.push_back(node.inputs[0]->type().shape[axis]);
  }

  /// A node that takes or makes a sequence. Identity is the only other operator that has a meaning for one.
  Status convertSequences(const onnx::NodeProto& proto, const std::vector<ModelValue>& inputs, const Location& where) {
    if (isSequenceOperator(proto)) {
      const Expected<ModelValue> result = convertSequenceOperator(proto, inputs, *builder_);
      return result ? define(proto, where, {*result}) : reportedAt(where);
    }
    if (proto.op_type() == "Identity" && isDefaultDomain(proto.domain())) return define(proto, where, inputs);
    return diags_.error(where).exit(ExitCode::unsupported)
           << "'" << proto.op_type() << "' operator takes a sequence, which is not supported";
  }

  /// A conversion that fails has said why.
  Failure reportedAt(const Location& where) {
    if (!diags_.hasErrors()) diags_.error(where).exit(ExitCode::internal) << "cannot be converted, and nobody said why";
    return failure;
  }

  bool isRead(const std::string& name) {
    if (reads_.empty()) {
      forEachNode(file_.graph(), [&](const onnx::NodeProto& node) {
        reads_.insert(node.input().begin(), node.input().end());
        for (const onnx::GraphProto* body : bodiesOf(node))
          for (const onnx::ValueInfoProto& output : body->output()) reads_.insert(output.name());
      });
      for (const onnx::ValueInfoProto& output : file_.graph().output()) reads_.insert(output.name());
      reads_.erase(""); // an input left out
    }
    return reads_.contains(name);
  }

  /// Whether the node is trained with the statistics of the minibatch; applies --bn. Asks for the new running
  /// statistics.
  bool prepareBatchNormalization(OnnxNode& node, const onnx::NodeProto& proto) {
    bool exported = isInTrainingMode(proto, node.version);
    bool training =
        options_.batchNorm == BatchNormMode::exported ? exported : options_.batchNorm == BatchNormMode::batch;
    std::size_t formerOutputs = node.version < 14 ? 5 : 3;
    node.outputs = training ? std::max(node.outputs, formerOutputs) : 1;
    node.outputUsed.resize(node.outputs, false);
    if (node.version >= 14) node.attributes.set("training_mode", std::int64_t{training});
    if (training)
      for (RunningStatistic statistic : runningStatistics)
        node.outputUsed[static_cast<std::size_t>(statistic.output)] = true;
    return training;
  }

  /// A layer that is applied several times moves its statistics each time: the next node takes what the last one made.
  void takeNewStatistics(OnnxNode& node) const {
    for (RunningStatistic statistic : runningStatistics) {
      const auto input = static_cast<std::size_t>(statistic.input);
      if (input >= node.inputs.size() || !node.inputs[input]) continue;
      for (const GraphOutput& state : states_)
        if (node.inputs[input] == graph_->parameterValue(*state.parameter)) node.inputs[input] = state.value;
    }
  }

  /// Without training (--bn=frozen) the new statistics are the old ones.
  static void keepStatistics(const OnnxNode& node, std::vector<Value*>& results) {
    for (RunningStatistic statistic : runningStatistics) {
      const auto input = static_cast<std::size_t>(statistic.input), output = static_cast<std::size_t>(statistic.output);
      results.resize(std::max(results.size(), output + 1), nullptr);
      if (input < node.inputs.size() && !results[output]) results[output] = node.inputs[input];
    }
  }

  void addStates(const OnnxNode& node, const std::vector<Value*>& results) {
    for (RunningStatistic statistic : runningStatistics) {
      auto input = static_cast<std::size_t>(statistic.input), output = static_cast<std::size_t>(statistic.output);
      if (input >= node.inputs.size() || output >= results.size() || !node.inputs[input] || !results[output]) continue;
      const auto former = std::find_if(states_.begin(), states_.end(),
                                       [&](const GraphOutput& state) { return state.value == node.inputs[input]; });
      if (former != states_.end())
        former->value = results[output];
      else if (Parameter* parameter = node.inputs[input]->parameter())
        states_.push_back({.kind = OutputKind::state, .value = results[output], .parameter = parameter});
    }
  }

  /// Whether a Dropout says that it keeps everything: since opset 12, where `training_mode` is absent or false.
  static bool keepsAll(const OnnxNode& node) {
    if (node.version < 12) return false;
    if (node.inputs.size() < 3 || !node.inputs[2]) return true;
    const std::optional<Tensor> flag = Builder::constantValue(node.inputs[2]);
    return flag && flag->elements() == 1 && flag->asInt(0) == 0;
  }

  /// --dropout=P. The ratio is an attribute before opset 12, then an input beside `training_mode`.
  void prepareDropout(OnnxNode& node) {
    if (node.version < 12) {
      node.attributes.set("ratio", *options_.dropout);
      return;
    }
    node.inputs.resize(3, nullptr);
    node.inputs[1] = builder_->constant(*options_.dropout);
    node.inputs[2] = builder_->constant(1, ElementType::boolean);
  }

  /// What exporters lose, and flags that find nothing to repair.
  void warnOfRepairs() {
    int inference = 0, normalizations = 0, dropouts = 0;
    std::set<std::string> computed; // statistics that are, are those of the minibatch
    for (const onnx::NodeProto& node : file_.graph().node())
      if (node.op_type() != "Constant" && node.op_type() != "Identity")
        computed.insert(node.output().begin(), node.output().end());
    for (const onnx::NodeProto& node : file_.graph().node()) {
      normalizations += isBatchNormalization(node);
      inference += isBatchNormalization(node) && !isInTrainingMode(node, file_.opsetOf(node)) &&
                   !(node.input_size() > 4 && computed.contains(node.input(3)) && computed.contains(node.input(4)));
      dropouts += isDropout(node);
    }
    Location where{.file = file_.path()};
    if (inference > 0 && options_.batchNorm == BatchNormMode::exported)
      diags_.warning(where).help(
          "--bn=batch trains with the statistics of each minibatch, --bn=frozen says that this is meant")
          << inference << (inference == 1 ? " BatchNormalization node was" : " BatchNormalization nodes were")
          << " exported in inference mode: running statistics stay as they are";
    if (options_.batchNorm == BatchNormMode::batch && normalizations == 0)
      diags_.warning(where).help("export with training=torch.onnx.TrainingMode.TRAINING")
          << "--bn=batch finds no BatchNormalization node, the exporter may have folded them into convolutions";
    if (options_.dropout && dropouts == 0)
      diags_.warning(where).help("export with training=torch.onnx.TrainingMode.TRAINING")
          << "--dropout finds no Dropout node, exporters leave them out in inference mode";
  }

  const OnnxFile& file_;
  const ImportOptions& options_;
  const OpRegistry& registry_;
  Diagnostics& diags_;
  const bool strictBatch_;
  BatchAxes batch_;
  TensorReader reader_;
  std::unique_ptr<Module> module_;
  Graph* graph_ = nullptr;
  std::optional<Builder> builder_;
  std::map<std::string, ModelValue> values_; ///< by ONNX name; null: an output that nobody reads
  std::set<std::string> reads_;
  std::vector<GraphOutput> states_;
  std::string scope_;         ///< before the names of nodes: the bodies that are being converted
  std::vector<Body> bodies_;  ///< the innermost last
  std::int64_t expanded_ = 0; ///< nodes and bodies
  int keptDropouts_ = 0;      ///< that keep everything
  std::set<std::string> bodyWeights_;
};

} // namespace

/// Makes parameters of the inputs that look like weights, or that --train says are some.
static void takeInputsAsWeights(OnnxFile& file, const std::string& train, Diagnostics& diags) {
  std::set<std::string> initializers;
  for (const onnx::TensorProto& tensor : file.graph().initializer()) initializers.insert(tensor.name());
  const bool anyTrain = !train.empty() && pdcrt::isParameterMatch(train);
  std::vector<std::string> taken;
  for (int i = 0; i < file.graph().input_size();) {
    const onnx::ValueInfoProto& input = file.graph().input(i);
    const bool stated =
        anyTrain && pdcrt::matches({.match = train, .learningRate = {}, .weightDecay = {}}, input.name(), 2);
    if (initializers.contains(input.name()) || !isTypedLikeParameter(input) ||
        !(stated || isNamedLikeParameter(input.name()))) {
      ++i;
      continue;
    }
    taken.push_back(input.name());
    file.makeInitializer(i);
  }
  if (!taken.empty())
    diags.remark({.file = file.path()}) << taken.size() << (taken.size() == 1 ? " input is" : " inputs are")
                                        << " taken for weights that the model was exported without, '" << taken.front()
                                        << "' first";
}

Expected<std::unique_ptr<Module>> pdc::importOnnx(const std::string& path, const ImportOptions& options,
                                                  const OpRegistry& registry, Diagnostics& diags, BatchAxes* batch) {
  Expected<OnnxFile> file = OnnxFile::open(path, diags);
  if (!file || !checkVersions(*file, diags)) return failure;
  if (options.weightsMayLack) takeInputsAsWeights(*file, options.train, diags);
  giveOwnInitializers(*file, options, diags);
  if (!inlineFunctions(*file, registry, diags)) return failure;
  Importer importer(*file, options, registry, diags, batch != nullptr);
  Expected<std::unique_ptr<Module>> module = importer.run();
  if (batch) *batch = importer.batch();
  return module;
}
