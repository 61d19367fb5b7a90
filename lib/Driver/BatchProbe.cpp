// Shapes tell what names do not: every conversion infers them.
#include "BatchProbe.h"

#include "pdc/IR/Builder.h"
#include "pdcrt/Training.h"

#include <algorithm>

using namespace pdc;

/// The axes along which `wider` is longer than `shape`.
static std::vector<std::size_t> grownAxes(const Shape& shape, const Shape& wider) {
  std::vector<std::size_t> axes;
  for (std::size_t axis = 0; axis < shape.size() && axis < wider.size(); ++axis)
    if (shape[axis] != wider[axis]) axes.push_back(axis);
  return axes;
}

/// Whether these positions are computed from a constant that numbers the samples along `axis`: each then picks among
/// rows of its own, as TopK and GatherElements do, whose axes are merged.
static bool numbersSamples(const Value& positions, std::size_t axis) {
  if (const std::optional<Tensor> constant = Builder::constantValue(&positions)) {
    const Shape& shape = constant->type().shape;
    if (isFloat(constant->type().element) || axis >= shape.size() || constant->type().elements() != shape[axis])
      return false;
    for (std::int64_t i = 0; i < shape[axis]; ++i)
      if (constant->asInt(i) != i) return false;
    return true;
  }
  const Operation* made = positions.definer();
  return made && made->def().kind == OpKind::elementwise &&
         std::any_of(made->operands().begin(), made->operands().end(),
                     [&](const Value* operand) { return operand && numbersSamples(*operand, axis); });
}

static bool hasBatch(const BatchAxes& batch) {
  return std::any_of(batch.axes.begin(), batch.axes.end(), [](const auto& input) { return input.second >= 0; });
}

/// The operation that put `samples` and other positions on one axis, before the loss with this label; or null.
static const Operation* mergerBefore(const Value& label, std::int64_t samples) {
  const Value* value = &label;
  while (value->users().size() == 1 && !value->users()[0]->def().facts.lossLike &&
         value->users()[0]->operands().size() == 1)
    value = value->users()[0]->result();
  const Operation* next = value->users().size() == 1 ? value->users()[0]->operand(0)->definer() : nullptr;
  while (next && next->def().kind == OpKind::view && next->operands().size() == 1) {
    const Shape& shape = next->operand(0)->type().shape;
    if (std::find(shape.begin(), shape.end(), samples) != shape.end()) return next;
    next = next->operand(0)->definer();
  }
  return nullptr;
}

BatchProbe::BatchProbe(const CompileOptions& options, const ImportOptions& import, const OpRegistry& ops,
                       const PassRegistry& passes, const Graph& main, const BatchAxes& batch)
    : options_(options), before_(batch), samples_(std::max<std::int64_t>(2, batch.size)) {
  const bool asked = !options.losses.empty() || !batch.guessed.empty() || batch.before;
  if (!asked || !hasBatch(batch)) return;
  Diagnostics silent(nullptr);
  const auto importWith = [&](std::int64_t samples, BatchAxes& found) {
    ImportOptions other = import;
    other.insteadOfSize = samples;
    return importOnnx(options.model, other, ops, silent, &found);
  };
  if (samples_ == batch.size) {
    main_ = clone(main, "main");
  } else { // terms of positions that are 0 for one sample are left out
    Expected<std::unique_ptr<Module>> base = importWith(samples_, before_);
    if (!base) return;
    main_ = clone(*(*base)->findGraph("main"), "main");
  }
  BatchAxes wider;
  Expected<std::unique_ptr<Module>> module = importWith(samples_ + 1, wider);
  if (!module) return;
  sequences_ = wider.sequences;
  wider_ = clone(*(*module)->findGraph("main"), "wider");
  if (!runPipeline(lossSteps(options.losses, false), passes, **module, ops, silent, {})) return;
  for (const GraphInput& input : (*module)->findGraph("main")->inputs)
    if (input.kind == InputKind::label) labels_[input.value->name()] = input.value->type().shape;
}

Diagnostics::Builder BatchProbe::refuse(const std::string& node, Diagnostics& diags) const {
  std::string flags, inputs;
  for (const std::string& name : before_.guessed) {
    const std::string axis = std::to_string(before_.axes.at(name));
    flags += " --batch-axis=" + name + ":" + axis;
    inputs += (inputs.empty() ? "axis " : ", axis ") + axis + " of '" + name + "'";
  }
  return diags.error({.file = options_.model, .node = node})
      .note("the batch was taken to be " + inputs)
      .help("name the axis along which samples lie: --batch-axis=NAME:N")
      .help("it is as taken:" + flags);
}

Status BatchProbe::check(Diagnostics& diags) const {
  if (!wider_ || (before_.guessed.empty() && !before_.before)) return success;
  const auto& operations = main_->operations();
  const auto& others = wider_->operations();
  if (!before_.guessed.empty() && (operations.size() != others.size() || before_.sequences.size() != sequences_.size()))
    return refuse("", diags) << "has " << operations.size() << " operations with " << samples_ << " samples and "
                             << others.size() << " with one more";
  for (std::size_t i = 0; i < sequences_.size() && i < before_.sequences.size() && !before_.guessed.empty(); ++i)
    if (sequences_[i] != before_.sequences[i])
      return refuse("", diags) << "has a recurrent operator that goes from sample to sample: its sequence has "
                               << before_.sequences[i] << " steps with " << samples_ << " samples and " << sequences_[i]
                               << " with one more";
  for (std::size_t i = 0; i < operations.size() && i < others.size(); ++i)
    if (&operations[i]->def() == &others[i]->def() && !compare(*operations[i], *others[i], diags)) return failure;
  return success;
}

Status BatchProbe::compare(const Operation& operation, const Operation& wider, Diagnostics& diags) const {
  const std::string& node = operation.location.node;
  const auto shapeOf = [](const Value* value) { return value ? value->type().shape : Shape{}; };
  for (std::size_t i = 0; i < operation.results().size(); ++i) {
    const Shape shape = shapeOf(operation.result(i));
    const std::vector<std::size_t> grown = grownAxes(shape, shapeOf(wider.result(i)));
    if (before_.before && operation.attributes.has("shape") && grown.size() == 1 && grown[0] > 0 &&
        shape[0] == *before_.before &&
        grownAxes(shapeOf(operation.operand(0)), shapeOf(wider.operand(0))) == std::vector<std::size_t>{0})
      return diags.error({.file = options_.model, .node = node})
                 .help("export it with a symbolic batch, or leave out --batch")
             << "keeps the batch of " << *before_.before << " for which the model was exported: its result "
             << toString(operation.result(i)->type()) << " puts the " << samples_ << " samples of --batch in a row";
    if (before_.guessed.empty()) continue;
    if (grown.size() > 1)
      return refuse(node, diags) << "compares samples with each other: its result "
                                 << toString(operation.result(i)->type()) << " grows with the batch along axes "
                                 << grown[0] << " and " << grown[1];
  }
  for (std::size_t i = 0; !before_.guessed.empty() && operation.def().usage.choices && i < operation.operands().size();
       ++i) {
    const Value* value = operation.operand(i);
    if (!value || Builder::constantValue(value)) continue;
    const std::int64_t among = operation.def().usage.choices(operation, i),
                       more = operation.def().usage.choices(wider, i);
    const Value& others = *wider.operand(i);
    const std::vector<std::size_t> grown = grownAxes(value->type().shape, others.type().shape);
    const bool ownRows = grown.size() == 1 && among * (samples_ + 1) == more * samples_ &&
                         numbersSamples(*value, grown[0]) && numbersSamples(others, grown[0]);
    if (among != more && !ownRows)
      return refuse(node, diags) << "chooses by '" << value->name() << "' among " << among << " rows, which are "
                                 << more << " with one sample more";
  }
  return success;
}

Status BatchProbe::addLabels(const Module& module, BatchAxes& batch, Diagnostics& diags) const {
  for (const GraphInput& input : module.findGraph("main")->inputs) {
    const std::string& name = input.value->name();
    if (input.kind != InputKind::label || batch.axes.contains(name)) continue;
    const Type& type = input.value->type();
    const Shape& shape = type.shape;
    if (!hasBatch(batch)) {
      batch.axes[name] = pdcrt::noBatchAxis;
      continue;
    }
    const auto known = labels_.find(name);
    std::vector<std::size_t> axes;
    if (known != labels_.end())
      axes = grownAxes(shape, known->second);
    else // a model that takes no other batch
      for (std::size_t axis = 0; axis < shape.size(); ++axis)
        if (shape[axis] == batch.size) axes.push_back(axis);
    if (known == labels_.end() && axes.size() > 1 && axes[0] == 0 &&
        std::all_of(batch.axes.begin(), batch.axes.end(), [](const auto& other) { return other.second <= 0; }))
      axes.resize(1);
    if (axes.size() == 1 && shape[axes[0]] == batch.size) {
      batch.axes[name] = static_cast<int>(axes[0]);
      if (known == labels_.end() && axes[0] != 0)
        diags.remark({.file = options_.model})
            << "the samples of '" << name << "' are taken to lie along axis " << axes[0] << " of " << toString(type);
      continue;
    }
    auto problem = diags.error({.file = options_.model, .node = name});
    const std::string what = "is what the loss compares with, " + toString(type) + ": ";
    if (axes.empty() && std::find(shape.begin(), shape.end(), batch.size) != shape.end())
      return std::move(problem).help("export it with a symbolic batch: dynamic_shapes=({0: 'batch'},), for the older "
                                     "exporter dynamic_axes={INPUT: {0: 'batch'}}")
             << what << "none of its axes grows with the batch: a node keeps the " << batch.size
             << " samples for which the model was exported";
    if (axes.empty())
      return std::move(problem).help("give the loss another value: --loss=KIND:NAME")
             << what << "none of its axes has the " << batch.size << " samples of a minibatch";
    if (axes.size() > 1)
      return std::move(problem).help(known == labels_.end() ? "compile with a --batch that no other dimension has"
                                                            : "give the loss another value: --loss=KIND:NAME")
             << what << "both axis " << axes[0] << " and axis " << axes[1]
             << (known == labels_.end() ? " could be the batch" : " grow with the batch");
    const Operation* merger = mergerBefore(*input.value, batch.size);
    const auto apart = merger ? module.firstInputs.find(merger->location.node) : module.firstInputs.end();
    return std::move(problem).help("give the loss a value that has samples on an axis of their own: --loss=KIND:" +
                                   (apart == module.firstInputs.end() ? std::string("NAME") : apart->second))
           << what << "axis " << axes[0] << " has " << shape[axes[0]] << " positions of " << batch.size
           << " samples together";
  }
  return success;
}
