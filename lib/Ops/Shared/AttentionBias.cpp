// See AttentionBias.h.
#include "Shared/AttentionBias.h"

#include "Kernels/AttentionOptions.h"
#include "Shared/Define.h"

#include <limits>

using namespace pdc;
using namespace pdc::ops;
using namespace pdc::ops::attention;

namespace {

class BiasGradient {
public:
  BiasGradient(GradientContext& context, const pdcrt::Attention::Options& options, const AttentionHeads& given)
      : g(context), op(g.op()), o(options), heads(given) {}

  Value* run() {
    const Shape rows = {o.batch, o.groups, o.heads / o.groups * o.queries, 0};
    Value* products = multiply(heads.query, heads.key, rows, o.size);
    Value* dp = multiply(heads.dy, heads.value, rows, o.valueSize);
    Value *largest = column(op.result(1)), *inverse = column(op.result(2));
    if (!products || !dp || !largest || !inverse) return nullptr;
    if (op.attributes.has("ratio")) {
      Value* mask = reshape(op.result(3), scores());
      dp = mask
               ? g.value(bias, "dropout_gradient", {dp, mask},
                         {{"ratio", op.attributes.getFloat("ratio")}, {"op_number", op.attributes.getInt("op_number")}})
               : nullptr;
    }
    Value* scaled = g.value(bias, "mul", {products, number(o.scale)});
    Value* biased = scaled ? g.value(bias, "add", {scaled, op.operand(bias)}) : nullptr;
    if (o.causal && biased) biased = g.value(bias, "add", {biased, triangle()});
    Value* p = biased ? compute("exp(a0 - a1) * a2", {biased, largest, inverse}) : nullptr;
    Value* weighted = p && dp ? g.value(bias, "mul", {p, dp}) : nullptr;
    Value* sum = weighted ? g.value(bias, "reduce_sum", {weighted},
                                    {{"axes", std::vector<std::int64_t>{3}}, {"keep_dims", true}})
                          : nullptr;
    return sum ? summed(compute("a0 * (a1 - a2)", {p, dp, sum})) : nullptr;
  }

private:
  ElementType element() const { return besideQueries(op.operand(query)->type().element); }
  Shape scores() const { return {o.batch, o.heads, o.queries, o.keys}; }
  /// Scores are not rounded to what queries and keys have.
  Value* widened(Value* x) {
    if (!x || x->type().element == element()) return x;
    return g.value(bias, "cast", {x}, {{"to", std::string(nameOf(element()))}});
  }
  Value* reshape(Value* x, const Shape& shape) { return g.value(bias, "reshape", {x}, {{"shape", shape}}); }
  Value* column(Value* x) { return reshape(x, {o.batch, o.heads, o.queries, 1}); }
  Value* compute(const char* expression, std::vector<Value*> operands) {
    return g.value(bias, "elementwise", std::move(operands), {{"expressions", std::vector<std::string>{expression}}});
  }
  Value* number(double of) {
    Tensor tensor(Type{element(), {}});
    tensor.set(0, of);
    return g.value(bias, "constant", {}, {{"value", tensor}});
  }
  Value* triangle() {
    Tensor tensor(Type{element(), {o.queries, o.keys}});
    for (std::int64_t i = 0; i < o.queries; ++i)
      for (std::int64_t j = i + o.keys - o.queries + 1; j < o.keys; ++j)
        tensor.set(i * o.keys + j, -std::numeric_limits<double>::infinity());
    return g.value(bias, "constant", {}, {{"value", tensor}});
  }
  /// left · transposed right, of all heads, whose last axis has `size` elements.
  Value* multiply(Value* left, Value* right, Shape rows, std::int64_t size) {
    rows[3] = size;
    left = reshape(widened(left), rows);
    right = left ? reshape(widened(right), {o.batch, o.groups, o.keys, size}) : nullptr;
    Value* y = right ? g.value(bias, "matmul", {left, right}, {{"transpose_b", true}}) : nullptr;
    return y ? reshape(y, scores()) : nullptr;
  }
  /// Over what the bias is the same for.
  Value* summed(Value* gradient) {
    const Shape& shape = op.operand(bias)->type().shape;
    std::vector<std::int64_t> axes;
    for (std::size_t axis = 0; gradient && axis < 4; ++axis)
      if (shape[axis] != gradient->type().shape[axis]) axes.push_back(static_cast<std::int64_t>(axis));
    return axes.empty() ? gradient : g.value(bias, "reduce_sum", {gradient}, {{"axes", axes}, {"keep_dims", true}});
  }

  GradientContext& g;
  const Operation& op;
  pdcrt::Attention::Options o;
  AttentionHeads heads;
};

} // namespace

Value* pdc::ops::attentionBiasGradient(GradientContext& context, const pdcrt::Attention::Options& options,
                                       const AttentionHeads& heads) {
  return BiasGradient(context, options, heads).run();
}
