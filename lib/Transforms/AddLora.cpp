// Each layer keeps its operation, and the adapter stands behind it. B starts with zeros, so the first update has the
// loss of the model without adapters, in every bit.
#include "pdc/Transforms/Transforms.h"

#include "pdc/IR/Builder.h"
#include "pdc/Support/NamePattern.h"
#include "pdc/Support/Names.h"
#include "pdc/Transforms/GraphUtilities.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

using namespace pdc;

namespace {

constexpr const char* allLinear = "all-linear";

/// A layer that may get an adapter.
struct Layer {
  Operation* operation = nullptr;
  AdaptableMatrix matrix;
  std::string path;
  Parameter* parameter() const { return operation->operand(matrix.weight)->parameter(); }
  std::int64_t inputs() const { return operation->operand(matrix.input)->type().shape.back(); }
  std::int64_t outputs() const { return operation->result()->type().shape.back(); }
};

class AddLora {
public:
  AddLora(PassContext& context, Graph& graph, const LoraOptions& options)
      : context_(context), graph_(graph), options_(options), train_("--train", options.train),
        targets_("--lora: targets", options.targets) {}

  Status run();

private:
  std::vector<Layer> layersOf();
  std::string pathOf(const Operation& operation, const Value& weight) const;
  bool isOfParameters(const Value& value);
  std::set<const Operation*> logitsLayers() const;
  Expected<std::vector<Layer>> chosenOf(const std::vector<Layer>& layers);
  Failure nothingMatches(const std::vector<Layer>& layers) const;
  Status check(const Layer& layer);
  void freezeOthers();
  Status adapt(const Layer& layer, const Operation* next);
  Value* added(Builder& b, const Layer& layer, Value* input, const Adapter& adapter);
  Value* parameterOf(const std::string& name, Shape shape, InitialValues values, const Layer& layer);
  Failure error(const Layer& layer, const std::string& message, const std::string& help) const {
    return context_.diags.error({.file = context_.module.file, .node = layer.path}).help(help) << message;
  }

  PassContext& context_;
  Graph& graph_;
  const LoraOptions& options_;
  NamePattern train_, targets_;
  std::int64_t lastDropout_ = -1;
  std::map<const Value*, bool> ofParameters_;
};

std::string parentOf(const std::string& name) {
  const std::size_t dot = name.rfind('.');
  return dot == std::string::npos ? "" : name.substr(0, dot);
}

/// What the module calls its weight says where the layer is. Of a weight with several names, tied ones, that of the
/// module that has called the operation. An exporter's own name ("onnx::MatMul_7") says nothing, but perhaps the
/// caller.
std::string AddLora::pathOf(const Operation& operation, const Value& weight) const {
  const auto found = context_.module.callers.find(operation.location.node);
  const std::string caller = found == context_.module.callers.end() ? "" : found->second;
  const Parameter* parameter = weight.parameter();
  if (!parameter) return caller.empty() ? describe(operation) : caller;
  std::vector<std::string> names = parameter->moduleNames;
  if (names.empty()) names = {parameter->name};
  for (const std::string& name : names)
    if (!caller.empty() && parentOf(name) == caller) return caller;
  const std::string& name = names.front();
  if (name.ends_with(".weight")) return parentOf(name);
  const bool isOfExporter = name.find("::") != std::string::npos || name.find('.') == std::string::npos;
  return isOfExporter && !caller.empty() ? caller : name;
}

/// Whether no input of the model leads to it, but some parameter.
bool AddLora::isOfParameters(const Value& value) {
  if (value.parameter()) return true;
  if (!value.definer()) return false;
  const auto [known, isNew] = ofParameters_.try_emplace(&value, false);
  if (!isNew) return known->second;
  bool some = false;
  for (const Value* operand : value.definer()->operands()) {
    if (!operand || (operand->definer() && isConstant(*operand->definer()))) continue;
    if (!isOfParameters(*operand)) return false;
    some = true;
  }
  return ofParameters_[&value] = some;
}

std::vector<Layer> AddLora::layersOf() {
  std::vector<Layer> layers;
  for (const auto& operation : graph_.operations()) {
    const auto& hook = operation->def().rewrites.adaptable;
    const std::optional<AdaptableMatrix> matrix = hook ? hook(*operation) : std::nullopt;
    if (!matrix || operation->result()->type().element != ElementType::f32) continue;
    const Value& weight = *operation->operand(matrix->weight);
    if (!isOfParameters(weight)) continue;
    const std::string path = pathOf(*operation, weight);
    // The products of an adapter are such layers, too.
    if (std::none_of(context_.module.adapters.begin(), context_.module.adapters.end(), [&](const Adapter& adapter) {
          return weight.parameter() &&
                 (weight.parameter()->name == adapter.nameOfA() || weight.parameter()->name == adapter.nameOfB());
        }))
      layers.push_back({operation.get(), *matrix, path});
  }
  return layers;
}

/// The layers whose results are what losses read, whatever has been made of them one by one.
std::set<const Operation*> AddLora::logitsLayers() const {
  std::vector<const Value*> ends;
  for (const GraphOutput& output : graph_.outputs)
    if (output.kind == OutputKind::prediction) ends.push_back(output.value);
  for (const auto& operation : graph_.operations())
    if (operation->def().facts.lossLike) ends.push_back(operation->operand(0));
  if (ends.empty())
    for (const GraphOutput& output : graph_.outputs) ends.push_back(output.value);
  std::set<const Operation*> found;
  for (const Value* value : ends)
    while (value && value->definer()) {
      const Operation& operation = *value->definer();
      const auto& hook = operation.def().rewrites.adaptable;
      if (hook && hook(operation)) {
        found.insert(&operation);
        break;
      }
      const Value* data = nullptr;
      bool several = false;
      for (const Value* operand : operation.operands()) {
        if (!operand || operand->parameter() || (operand->definer() && isConstant(*operand->definer()))) continue;
        several = several || data;
        data = operand;
      }
      value = several ? nullptr : data;
    }
  return found;
}

Failure AddLora::nothingMatches(const std::vector<Layer>& layers) const {
  std::vector<std::string_view> known;
  std::string all;
  for (const Layer& layer : layers) {
    if (!layer.parameter()) continue;
    all += (all.empty() ? "" : ", ") + layer.path;
    known.push_back(layer.path);
    for (std::size_t begin = 0, end = 0; begin < layer.path.size(); begin = end + 1) {
      end = std::min(layer.path.find('.', begin), layer.path.size());
      known.push_back(std::string_view(layer.path).substr(begin, end - begin));
    }
  }
  const std::string near = nearestName(options_.targets, known);
  if (options_.targets == allLinear)
    return context_.diags.error({.file = context_.module.file})
               .note(all.empty() ? "the model has none whose weight is a parameter" : "its layers are " + all)
               .help("all-linear leaves out the layer that computes the logits, and what --train names: name a layer "
                     "itself")
           << "--lora: targets=all-linear is none of the model's "
           << counted(static_cast<std::int64_t>(layers.size()), "linear layer");
  return context_.diags.error({.file = context_.module.file})
             .note(all.empty() ? "the model has none whose weight is a parameter" : "its layers are " + all)
             .help(near.empty() ? "name some of them, or all-linear" : "did you mean '" + near + "'?")
         << "--lora: targets='" << options_.targets << "' matches none of the model's "
         << counted(static_cast<std::int64_t>(layers.size()), "linear layer");
}

Expected<std::vector<Layer>> AddLora::chosenOf(const std::vector<Layer>& layers) {
  std::vector<Layer> chosen;
  if (options_.targets == allLinear) {
    const std::set<const Operation*> logits = logitsLayers();
    for (const Layer& layer : layers)
      if (layer.parameter() && !logits.contains(layer.operation) && !train_.matches(layer.parameter()->name))
        chosen.push_back(layer);
  } else {
    for (const Layer& layer : layers)
      if (targets_.matches(layer.path)) chosen.push_back(layer);
  }
  if (chosen.empty()) return nothingMatches(layers);
  return chosen;
}

Status AddLora::check(const Layer& layer) {
  if (!layer.parameter())
    return error(layer, "--lora: its weight is computed in the model, and an adapter needs one that is stored",
                 "export the model with its constants folded, or choose other targets");
  if (train_.matches(layer.parameter()->name))
    return error(layer,
                 "--lora: its weight '" + layer.parameter()->name + "' trains in full by --train='" + options_.train +
                     "'",
                 "choose other targets, or leave it out of --train");
  for (const Adapter& adapter : context_.module.adapters)
    if (adapter.path == layer.path)
      return error(layer, "--lora: has an adapter already", "let one --lora choose each layer");
  if (layer.outputs() % options_.slices != 0)
    return error(layer,
                 "--lora: " + std::to_string(options_.slices) + " slices do not divide its " +
                     std::to_string(layer.outputs()) + " outputs",
                 "give the number of layers that were packed into it, as in slices=0/2 of 3");
  const std::int64_t most = std::min(layer.inputs(), layer.outputs() / options_.slices);
  if (options_.rank > most)
    return error(layer,
                 "--lora: rank=" + std::to_string(options_.rank) + " is above " + std::to_string(most) +
                     ", the highest rank that " + std::to_string(layer.inputs()) + " inputs and " +
                     std::to_string(layer.outputs() / options_.slices) + " outputs have",
                 "choose a lower rank, or other targets");
  return success;
}

void AddLora::freezeOthers() {
  std::set<std::string> own;
  for (const Adapter& adapter : context_.module.adapters) own.insert({adapter.nameOfA(), adapter.nameOfB()});
  for (const auto& parameter : context_.module.parameters)
    if (parameter->role == ParameterRole::trained && !own.contains(parameter->name) && !train_.matches(parameter->name))
      parameter->role = ParameterRole::frozen;
}

Value* AddLora::parameterOf(const std::string& name, Shape shape, InitialValues values, const Layer& layer) {
  Parameter* parameter = context_.module.findParameter(name);
  if (!parameter)
    parameter = context_.module.addParameter({.name = name,
                                              .type = {ElementType::f32, std::move(shape)},
                                              .role = ParameterRole::trained,
                                              .reference = {},
                                              .location = layer.operation->location,
                                              .drawn = DrawnValues{values, options_.seed}});
  return graph_.parameterValue(*parameter);
}

/// What the adapter adds to its outputs. A starts as PEFT lets it start: kaiming_uniform with a = √5.
Value* AddLora::added(Builder& b, const Layer& layer, Value* input, const Adapter& adapter) {
  const double bound = 1 / std::sqrt(static_cast<double>(adapter.inputs));
  Value* const a =
      parameterOf(adapter.nameOfA(), {adapter.rank, adapter.inputs}, {InitialValues::Kind::uniform, bound}, layer);
  Value* const up =
      parameterOf(adapter.nameOfB(), {adapter.sliceOutputs(), adapter.rank}, {InitialValues::Kind::constant, 0}, layer);
  Value* value = b.value("linear", {input, a}, {{"transposed", true}});
  if (value) value = b.value("linear", {value, up}, {{"transposed", true}});
  Value* const scale = value ? b.constant(adapter.scale()) : nullptr;
  if (scale) value = b.value("mul", {value, scale});
  if (!value || !scale || adapter.slices == 1) return scale ? value : nullptr;
  std::vector<std::int64_t> before(value->type().shape.size(), 0), after = before;
  before.back() = adapter.slice * adapter.sliceOutputs();
  after.back() = adapter.outputs - before.back() - adapter.sliceOutputs();
  return b.value("pad", {value}, {{"before", before}, {"after", after}});
}

/// Adds the adapters of a layer, or uses those of the layer again that another operation is, too.
Status AddLora::adapt(const Layer& layer, const Operation* next) {
  Builder b(context_.module, graph_, context_.registry, context_.diags);
  b.setInsertionPoint(next);
  b.setLocation(layer.operation->location);
  Value* input = layer.operation->operand(layer.matrix.input);
  if (options_.dropout > 0) {
    const Operation* dropout =
        b.create("dropout", {input}, {{"ratio", options_.dropout}, {"op_number", ++lastDropout_}});
    if (!dropout) return failure;
    input = dropout->result();
  }
  Value* const plain = layer.operation->result();
  std::vector<Value*> sums = {plain};
  for (std::int64_t slice : options_.chosenSlices) {
    Adapter adapter = {.path = layer.path,
                       .weight = layer.parameter()->name,
                       .outputsFirst = layer.matrix.outputsFirst,
                       .outputsFirstInModule = layer.matrix.outputsFirst != layer.parameter()->isTransposeOfModule,
                       .inputs = layer.inputs(),
                       .outputs = layer.outputs(),
                       .rank = options_.rank,
                       .alpha = options_.alpha,
                       .dropout = options_.dropout,
                       .slice = slice,
                       .slices = options_.slices};
    Value* const more = added(b, layer, input, adapter);
    Value* const sum = more ? b.value("add", {sums.back(), more}) : nullptr;
    if (!sum) return failure;
    sums.push_back(sum);
    auto& all = context_.module.adapters;
    if (std::find(all.begin(), all.end(), adapter) == all.end()) all.push_back(std::move(adapter));
  }
  const std::string name = plain->name();
  graph_.replaceAllUses(plain, sums.back());
  sums[1]->definer()->setOperand(0, plain);
  graph_.rename(plain, name + ".base");
  graph_.rename(sums.back(), name);
  return success;
}

Status AddLora::run() {
  if (!train_.check(context_.diags) || (options_.targets != allLinear && !targets_.check(context_.diags)))
    return failure;
  for (const auto& operation : graph_.operations())
    lastDropout_ = std::max(lastDropout_, operation->attributes.getOr<std::int64_t>("op_number", -1));
  const std::vector<Layer> layers = layersOf();
  const Expected<std::vector<Layer>> chosen = chosenOf(layers);
  if (!chosen) return failure;
  std::map<std::string, const Parameter*> weights;
  for (const Layer& layer : *chosen) {
    if (!check(layer)) return failure;
    if (const auto [first, isNew] = weights.emplace(layer.path, layer.parameter()); first->second != layer.parameter())
      return error(layer,
                   "--lora: has two weights, '" + first->second->name + "' and '" + layer.parameter()->name + "'",
                   "export the model so that it keeps its names (docs/FromPyTorch.md)");
  }
  for (const Layer& layer : *chosen) {
    const auto& all = graph_.operations();
    const auto at = std::find_if(all.begin(), all.end(), [&](const auto& o) { return o.get() == layer.operation; });
    if (!adapt(layer, at + 1 == all.end() ? nullptr : (at + 1)->get())) return failure;
  }
  freezeOthers();
  return success;
}

} // namespace

Status pdc::addLora(PassContext& context, const LoraOptions& options) {
  Expected<Graph*> graph = mainGraph(context);
  return graph ? AddLora(context, **graph, options).run() : Status(failure);
}
