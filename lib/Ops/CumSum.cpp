// Running sums. Kernel: pdcrt::CumSum.
#include "Helpers/Define.h"
#include "Helpers/KernelOptions.h"
#include "Helpers/Onnx.h"

using namespace pdc;
using namespace pdc::ops;

namespace {

pdcrt::CumSum::Options optionsOf(const Operation& op) {
  const Shape& x = operandType(op, 0).shape;
  const auto axis = static_cast<std::size_t>(op.attributes.getInt("axis"));
  return {.outer = product(x, 0, axis),
          .size = x[axis],
          .inner = product(x, axis + 1, x.size()),
          .exclusive = op.attributes.get<bool>("exclusive"),
          .reverse = op.attributes.get<bool>("reverse")};
}

Value* convert(OnnxReader& n) {
  const auto stated = n.constantIntegers(1, "axis");
  const bool exclusive = n.integer("exclusive", 0) != 0, reverse = n.integer("reverse", 0) != 0;
  if (!stated) return nullptr;
  if (stated->size() != 1) {
    static_cast<void>(n.error() << "has " << stated->size() << " axes, it needs one");
    return nullptr;
  }
  const auto axis = n.axis(stated->front(), n.type(0).rank());
  if (!axis) return nullptr;
  return n.value("cumsum", {n.input(0)}, {{"axis", *axis}, {"exclusive", exclusive}, {"reverse", reverse}});
}

void compute(ReferenceContext& c) {
  const pdcrt::CumSum::Options o = optionsOf(c.op);
  const Tensor& x = *c.operands[0];
  const bool floats = isFloat(x.type().element);
  std::vector<std::int64_t> sums(floats ? 0 : static_cast<std::size_t>(x.elements()));
  for (std::int64_t at = 0; at < x.elements(); ++at) {
    const std::int64_t i = at / o.inner % o.size, first = at - i * o.inner;
    // From the definition: all that come before (or after), itself unless exclusive.
    double sum = 0;
    std::uint64_t wrapped = 0;
    for (std::int64_t j = 0; j < o.size; ++j) {
      if (!(o.reverse ? j > i : j < i) && (o.exclusive || j != i)) continue;
      if (floats)
        sum += x.asDouble(first + j * o.inner);
      else
        wrapped += static_cast<std::uint64_t>(x.asInt(first + j * o.inner));
    }
    if (floats)
      c.results[0]->set(at, sum);
    else
      sums[static_cast<std::size_t>(at)] = static_cast<std::int64_t>(wrapped);
  }
  if (!floats) *c.results[0] = Tensor::ofInts(x.shape(), sums).convertedTo(x.type().element);
}

std::vector<std::string> examples() {
  const auto text = [](const std::string& type, const std::string& options) {
    return example("%x: " + type, "%y = cumsum %x {" + options + "} : " + type);
  };
  return {text("f32[5]", "axis = 0"),
          text("f32[2, 3]", "axis = 1, exclusive = true"),
          text("f32[2, 3, 2]", "axis = 1, reverse = true"),
          text("f32[4, 1, 2]", "axis = 0, exclusive = true, reverse = true"),
          text("f32[2, 1]", "axis = 1"),
          text("i64[2, 3]", "axis = 1"),
          text("i32[3]", "axis = 0, exclusive = true")};
}

} // namespace

PDC_OPS(CumSum) {
  return {{
      .name = "cumsum",
      .summary = "Sums of all elements up to each along an axis",
      .onnx = {onnx("CumSum", 2, convert, 11)},
      .operands = {{"X"}},
      .results = {{"Y"}},
      .attributes = {integer("axis", std::nullopt, "along which is summed"),
                     boolean("exclusive", false, "whether an element is left out of its own sum"),
                     boolean("reverse", false, "whether sums begin at the end")},
      .infer = [](const InferContext& c) -> Types {
        if (!requireRank(c, "cumsum", 0) || !requireAxis(c, "cumsum", integerOf(c, "axis"), c.operand(0).rank()))
          return failure;
        if (c.operand(0).element == ElementType::boolean)
          return c.error() << "'cumsum' op needs numbers, operand 0 is " << toString(c.operand(0));
        return std::vector<Type>{c.operand(0)};
      },
      .precision = PrecisionClass::keepHigh,
      .cost = perElement(1),
      .gradient = [](GradientContext& g) -> std::vector<Value*> {
        if (!g.resultGradient(0)) return {nullptr};
        Attributes back = g.op().attributes;
        back.set("reverse", !back.get<bool>("reverse"));
        return {g.value(0, "cumsum", {g.resultGradient(0)}, back)};
      },
      .kernel = [](const Operation& op) { return kernelUse<pdcrt::CumSum>("CumSum", "forward", optionsOf(op)); },
      .reference = moving(compute),
      .examples = examples(),
  }};
}
