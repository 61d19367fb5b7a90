// Running sums, whose kernel is pdcrt::CumSum, and running products, which are made of slices.
#include "Convert/Onnx.h"
#include "Kernels/KernelOptions.h"
#include "Shared/Define.h"
#include "Shared/LoopsOf.h"

namespace pdc::ops::CumSum {

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

/// What CumSum and CumProd have in common.
struct Course {
  std::int64_t axis;
  bool exclusive, reverse;
};

/// Nothing, with an error reported, where the axis is not one.
std::optional<Course> courseOf(OnnxReader& n) {
  const auto stated = n.constantIntegers(1, "axis");
  const bool exclusive = n.integer("exclusive", 0) != 0, reverse = n.integer("reverse", 0) != 0;
  if (!stated) return std::nullopt;
  if (stated->size() != 1) {
    static_cast<void>(n.error() << "has " << stated->size() << " axes, it needs one");
    return std::nullopt;
  }
  const auto axis = n.axis(stated->front(), n.type(0).rank());
  return axis ? std::optional(Course{*axis, exclusive, reverse}) : std::nullopt;
}

Value* convertSum(OnnxReader& n) {
  const auto course = courseOf(n);
  if (!course) return nullptr;
  return n.value("cumsum", {n.input(0)},
                 {{"axis", course->axis}, {"exclusive", course->exclusive}, {"reverse", course->reverse}});
}

/// In each of log2(n) steps an element is multiplied by the product that ends where its own begins (Hillis and Steele
/// 1986).
class RunningProduct {
public:
  RunningProduct(OnnxReader& reader, std::size_t axis) : n(reader), axis_(axis) {}

  Value* of(Value* x, bool exclusive, bool reverse) {
    if (reverse) x = part(x, -1, 0);
    if (exclusive) x = x ? shifted(x) : nullptr;
    for (std::int64_t step = 1; x && step < size(x); step *= 2) {
      Value* later = part(x, 1, step);
      Value* product = later ? n.value("mul", {later, part(x, 1, 0, size(later))}) : nullptr;
      x = product ? n.value("concat", {part(x, 1, 0, step), product}, {{"axis", axis()}}) : nullptr;
    }
    return reverse && x ? part(x, -1, 0) : x;
  }

private:
  std::int64_t axis() const { return static_cast<std::int64_t>(axis_); }
  std::int64_t size(const Value* x) const { return x->type().shape[axis_]; }

  /// The elements from `begin` on, `count` of them or all; backwards where step is -1.
  Value* part(Value* x, std::int64_t step, std::int64_t begin, std::int64_t count = -1) {
    Shape sizes = x->type().shape;
    Shape starts(sizes.size(), 0), steps(sizes.size(), 1);
    starts[axis_] = step < 0 ? sizes[axis_] - 1 : begin;
    steps[axis_] = step;
    sizes[axis_] = count < 0 ? sizes[axis_] - begin : count;
    return n.value("slice", {x}, {{"starts", starts}, {"sizes", sizes}, {"steps", steps}});
  }
  /// 1, then all elements but the last.
  Value* shifted(Value* x) {
    Type type = x->type();
    const std::int64_t count = type.shape[axis_];
    type.shape[axis_] = 1;
    Tensor ones(type);
    for (std::int64_t i = 0; i < ones.elements(); ++i) ones.set(i, 1);
    Value* one = n.b.constant(ones);
    return count == 1 ? one : n.value("concat", {one, part(x, 1, 0, count - 1)}, {{"axis", axis()}});
  }

  OnnxReader& n;
  const std::size_t axis_;
};

Value* convertProduct(OnnxReader& n) {
  const auto course = courseOf(n);
  if (!course) return nullptr;
  return RunningProduct(n, static_cast<std::size_t>(course->axis)).of(n.input(0), course->exclusive, course->reverse);
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
  if (!floats) *c.results[0] = Tensor::ofInts(x.shape(), sums, x.type().element);
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

std::vector<OpDef> define() {
  return {{
              .name = "cumsum",
              .summary = "Sums of all elements up to each along an axis",
              .onnx = {onnx("CumSum", 2, convertSum, 11)},
              .operands = {{"X"}},
              .results = {{"Y"}},
              .attributes = {integer("axis", std::nullopt, "along which is summed"),
                             boolean("exclusive", false, "whether an element is left out of its own sum"),
                             boolean("reverse", false, "whether sums begin at the end")},
              .infer = [](const InferContext& c) -> Types {
                if (!requireRank(c, "cumsum", 0) ||
                    !requireAxis(c, "cumsum", integerOf(c, "axis"), c.operand(0).rank()))
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
              .kernel = {.use =
                             [](const Operation& op) {
                               return kernelUse<pdcrt::CumSum>("CumSum", "forward", optionsOf(op));
                             }},
              .split = {.loops = loopsBesideAxis},
              .reference = moving(compute),
              .examples = examples(),
              .facts = {.takesDouble = true},
          },
          composed("cumprod", "Running products along an axis: log2(n) products of slices",
                   {onnx("CumProd", 2, convertProduct, 26)})};
}

} // namespace pdc::ops::CumSum
