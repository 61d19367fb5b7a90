// Dropout (Srivastava et al. 2014), inverted, from a counter-based generator. Kernel: pdcrt::Dropout.
#include "Convert/Onnx.h"
#include "Kernels/KernelOptions.h"
#include "Shared/Define.h"
#include "Shared/OwnElements.h"

#include "pdcrt/Random.h"

#include <cmath>

namespace pdc::ops::Dropout {

namespace {

KernelUse kernel(const Operation& op, const char* method) {
  pdcrt::Dropout::Options options{.elements = resultType(op).elements(),
                                  .op = static_cast<std::uint32_t>(op.attributes.getInt("op_number")),
                                  .ratio = op.attributes.getFloat("ratio")};
  const bool draws = std::string(method) == "forward";
  if (draws) {
    const pdcrt::OwnElements own = ownElementsOf(op.attributes);
    options.run = own.run;
    options.members = own.members;
  }
  KernelUse use = kernelUse<pdcrt::Dropout>("Dropout", method, options);
  use.draws = draws;
  return use;
}

const std::vector<AttributeDef> attributes = {
    number("ratio", std::nullopt, "the probability with which an element becomes 0"),
    integer("op_number", std::nullopt, "number of the operation in the model, which keys its random numbers")};

std::vector<AttributeDef> forwardAttributes() {
  std::vector<AttributeDef> defs = attributes;
  for (AttributeDef& def : ownElementsAttributes()) defs.push_back(std::move(def));
  return defs;
}

Status requireAttributes(const InferContext& c, const char* op) {
  const double ratio = c.attributes.getFloat("ratio");
  const std::int64_t number = integerOf(c, "op_number");
  if (!(ratio >= 0 && ratio < 1))
    return c.error() << "'" << op << "' op has ratio " << ratio << ", it must lie in [0, 1)";
  if (number < 0 || number >= pdcrt::permutationStream)
    return c.error() << "'" << op << "' op has op_number " << number << ", it must lie in 0 to "
                     << pdcrt::permutationStream - 1;
  return success;
}

/// ONNX Dropout. Before opset 12 it has no flag and an exported one means training (exporters drop it for inference).
Expected<std::vector<Value*>> convert(OnnxReader& n) {
  double ratio = 0.5;
  bool training = true;
  // The mask has X's type before opset 10.
  const ElementType maskType = n.version() < 10 ? n.type(0).element : ElementType::boolean;
  if (n.version() < 12) {
    ratio = n.number("ratio", 0.5);
  } else {
    // The generator is pdc's own, keyed by the run's seed.
    n.ignore("seed");
    const auto scalar = [&](std::size_t i, const char* what) -> std::optional<double> {
      const std::optional<Tensor> tensor = n.constant(i, what);
      return tensor && tensor->elements() == 1 ? std::optional(tensor->asDouble(0)) : std::nullopt;
    };
    const std::optional<double> stated = n.input(1) ? scalar(1, "ratio") : 0.5;
    const std::optional<double> flag = n.input(2) ? scalar(2, "training_mode") : 0;
    if (!stated || !flag) return failure;
    ratio = *stated;
    training = *flag != 0;
  }
  if (!training || ratio == 0) {
    Value* all = n.used(1) ? n.b.constant(1, maskType) : nullptr;
    if (all) all = n.value("broadcast", {all}, {{"shape", n.type(0).shape}});
    return std::vector<Value*>{n.input(0), all};
  }
  // A position in the graph is the same in every plan, which a counter of the converter would not be in two imports.
  const auto number = static_cast<std::int64_t>(n.b.graph().operations().size());
  Operation* op = n.b.create("dropout", {n.input(0)}, {{"ratio", ratio}, {"op_number", number}});
  if (!op) return failure;
  Value* mask = nullptr;
  if (n.used(1))
    mask = maskType == ElementType::boolean ? n.value("not_equal", {op->result(1), n.b.constant(0, ElementType::u8)})
                                            : n.value("cast", {op->result(1)}, {{"to", std::string(nameOf(maskType))}});
  return std::vector<Value*>{op->result(0), mask};
}

std::vector<std::string> examples() {
  std::vector<std::string> texts;
  for (const char* shape : {"[8]", "[2, 3]", "[1, 2, 3, 3]", "[1]", "[5, 5]"})
    texts.push_back(
        example("%x: f32" + std::string(shape),
                "%y, %mask = dropout %x {op_number = 7, ratio = 0.25} : f32" + std::string(shape) + ", u8" + shape));
  // Of the last axis, divided over a team.
  texts.push_back(example("%x: f32[3, 2]",
                          "%y, %mask = dropout %x {members = 3, op_number = 7, ratio = 0.25, run = 2} : f32[3, 2], u8"
                          "[3, 2]"));
  return texts;
}

} // namespace

std::vector<OpDef> define() {
  return {
      {
          .name = "dropout",
          .summary = "X / (1 - ratio) where the mask is 1, 0 where it is 0; drawn anew for each minibatch",
          .onnx = {onnxMany("Dropout", 1, convert)},
          .operands = {{"X"}},
          .results = {{"Y"}, {"mask"}},
          .attributes = forwardAttributes(),
          .infer = [](const InferContext& c) -> Types {
            if (!requireFloat(c, "dropout", 0) || !requireAttributes(c, "dropout") ||
                !requireOwnElements(c, "dropout", c.operand(0)))
              return failure;
            return std::vector<Type>{c.operand(0), {ElementType::u8, c.operand(0).shape}};
          },
          .cost = perElement(20),
          .gradient = [](GradientContext& g) -> std::vector<Value*> {
            if (!g.resultGradient(0)) return {nullptr};
            Attributes kept;
            for (const AttributeDef& def : attributes) kept.set(def.name, *g.op().attributes.find(def.name));
            return {g.value(0, "dropout_gradient", {g.resultGradient(0), g.op().result(1)}, std::move(kept))};
          },
          .kernel = {.use = [](const Operation& op) { return kernel(op, "forward"); }, .replaceable = {{.operand = 0}}},
          .rewrites = {.evaluation = [](const Operation& op, Builder& b) -> std::vector<Value*> {
            const Value* mask = op.result(1);
            if (!mask || (mask->users().empty() && !b.graph().isOutput(mask))) return {op.operand(0), nullptr};
            Value* kept = b.constant(1, ElementType::u8);
            if (kept) kept = b.value("broadcast", {kept}, {{"shape", mask->type().shape}});
            return {op.operand(0), kept};
          }},
          .split = {.loops =
                        [](const Operation& op) {
                          return loopsOfWhole(op, alongAxes({.operands = {0}, .results = {0, 1}})(op));
                        },
                    .divide = [](const Operation& op, const Loops& loops, const Division& division,
                                 const std::vector<Value*>& operands,
                                 Builder& b) { return divideDrawn(op, 1, loops, division, operands, b); }},
          .usage = {.staysFinite = [](const Operation&) { return true; }},
          .reference = reference([]<class T>(ReferenceContext& c) {
            const double ratio = c.op.attributes.getFloat("ratio");
            const auto number = static_cast<std::uint32_t>(c.op.attributes.getInt("op_number"));
            const auto threshold = static_cast<std::uint64_t>(std::llround(ratio * 4294967296.0));
            const pdcrt::OwnElements own = ownElementsOf(c.op.attributes, c.member);
            const auto x = c.in<T>(0);
            const auto y = c.out<T>(0);
            const auto mask = c.out<std::uint8_t>(1);
            for (std::size_t i = 0; i < x.size(); ++i) {
              const std::int64_t element = own.at(static_cast<std::int64_t>(i));
              mask[i] = pdcrt::philoxWord(element, number, c.minibatch, c.seed) >= threshold;
              y[i] = mask[i] ? x[i] * static_cast<T>(1 / (1 - ratio)) : T(0);
            }
          }),
          .examples = examples(),
          .facts = {.random = true},
      },
      {
          .name = "dropout_gradient",
          .summary = "Gradient of dropout: dY / (1 - ratio) where the mask is 1",
          .operands = {{"dY"}, {"mask"}},
          .results = {{"dX"}},
          .attributes = attributes,
          .infer = [](const InferContext& c) -> Types {
            if (!requireFloat(c, "dropout_gradient", 0) || !requireAttributes(c, "dropout_gradient") ||
                !requireType(c, "dropout_gradient", 1, {ElementType::u8, c.operand(0).shape}, "operand 0"))
              return failure;
            return std::vector<Type>{c.operand(0)};
          },
          .cost = perElement(2),
          .kernel = {.use = [](const Operation& op) { return kernel(op, "inputGradient"); },
                     .replaceable = {{.operand = 0}}},
          .split = {.loops = alongAxes({.operands = {0, 1}, .results = {0}})},
          .reference = reference([]<class T>(ReferenceContext& c) {
            const auto dy = c.in<T>(0);
            const auto mask = c.in<std::uint8_t>(1);
            const T scale = static_cast<T>(1 / (1 - c.op.attributes.getFloat("ratio")));
            for (std::size_t i = 0; i < dy.size(); ++i) c.out<T>(0)[i] = mask[i] ? dy[i] * scale : T(0);
          }),
          .examples = {example("%dy: f32[2, 3], %mask: u8[2, 3]",
                               "%dx = dropout_gradient %dy, %mask {op_number = 7, ratio = 0.25} : f32[2, 3]")},
      },
  };
}

} // namespace pdc::ops::Dropout
