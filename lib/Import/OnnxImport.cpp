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
#include "Repairs.h"
#include "RunningStatistics.h"
#include "Sequences.h"
#include "TensorReader.h"
#include "Weights/InputsAsWeights.h"
#include "Weights/ModuleNames.h"
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
        reader_(file, diags, options.weightsMayLack), statistics_(options.batchNorm) {}

  Expected<std::unique_ptr<Module>> run() {
    if (!checkOperators(file_, registry_, diags_)) return failure;
    Expected<std::vector<int>> order = programOrder(file_, diags_);
    if (!order) return failure;
    Expected<std::vector<DataInput>> inputs = dataInputs(file_, diags_);
    if (!inputs) return failure;
    if (!options_.weightsMayLack && !hasItsWeights(file_, *inputs, reader_, diags_)) return failure;
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
    warnOfRepairs(file_, options_, diags_);
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
    graph_->outputs.insert(graph_->outputs.end(), statistics_.outputs().begin(), statistics_.outputs().end());
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
               .help("leave out --batch, or export it with a symbolic batch: dynamic_shapes=({0: 'batch'},), for the "
                     "older exporter dynamic_axes={'" +
                     file_.graph().input(0).name() + "': {0: 'batch'}}")
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
    if (isBatchNormalization(proto)) statistics_.takeNewest(node, *graph_);
    node.outputs = static_cast<std::size_t>(proto.output_size());
    for (const std::string& output : proto.output()) node.outputUsed.push_back(isRead(output)); // exporters list all
    for (const onnx::AttributeProto& attribute : proto.attribute()) {
      Expected<Attribute> value = convertAttribute(attribute, node.location);
      if (!value) return failure;
      node.attributes.set(attribute.name(), *std::move(value));
    }
    builder_->setLocation(node.location);
    bool inTraining = isBatchNormalization(proto) && statistics_.prepare(node, proto);
    if (inTraining && !bodies_.empty())
      return diags_.error(node.location).exit(ExitCode::unsupported).help("--bn=frozen takes the running statistics")
             << "is a BatchNormalization in training mode in the body of control flow, which is not supported";
    if (isDropout(proto) && options_.dropout) prepareDropout(node, *options_.dropout, *builder_);
    keptDropouts_ += isDropout(proto) && !options_.dropout && keepsAll(node);

    const OnnxMapping* mapping =
        isDefaultDomain(proto.domain()) ? registry_.findOnnx(node.opType, node.version) : nullptr;
    if (!mapping) // in a body: others have been checked
      return diags_.error(node.location).exit(ExitCode::unsupported)
             << "'" << node.opType << "' is not an operator that pdc knows in opset " << node.version;
    noteSequence(node);
    Expected<std::vector<Value*>> results = mapping->convert(node, *builder_, diags_);
    if (!results) return reportedAt(node.location);
    if (isBatchNormalization(proto) && !inTraining) RunningStatistics::keep(node, *results);
    if (!define(proto, node.location, {results->begin(), results->end()})) return failure;
    if (inTraining) statistics_.add(node, *results);
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
  RunningStatistics statistics_;
  std::string scope_;         ///< before the names of nodes: the bodies that are being converted
  std::vector<Body> bodies_;  ///< the innermost last
  std::int64_t expanded_ = 0; ///< nodes and bodies
  int keptDropouts_ = 0;      ///< that keep everything
  std::set<std::string> bodyWeights_;
};

} // namespace

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
  if (module) tellModuleNames(*file, **module);
  return module;
}
