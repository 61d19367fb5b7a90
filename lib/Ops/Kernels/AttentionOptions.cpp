// See AttentionOptions.h.
#include "Kernels/AttentionOptions.h"

#include "Kernels/NamedAlgorithms.h"

using namespace pdc;
using namespace pdc::ops;
using namespace pdc::ops::attention;

namespace {

const std::vector<std::string> attentionMethods = {"forward", "inputGradient"};
constexpr AlgorithmMember<pdcrt::Attention> attentionMembers[] = {&pdcrt::Attention::Algorithms::forward,
                                                                  &pdcrt::Attention::Algorithms::inputGradient};

/// What the attributes say, where the op has them. Nothing where it is not one name for each method.
std::optional<pdcrt::Attention::Algorithms> algorithmsOf(const Attributes& attributes) {
  if (!attributes.has("algorithms")) return pdcrt::Attention::Algorithms();
  std::optional<pdcrt::Attention::Algorithms> algorithms =
      algorithmsNamed<pdcrt::Attention>(attributes, attentionMembers);
  if (algorithms) algorithms->workspace = attributes.getInt("workspace");
  return algorithms;
}

} // namespace

Shape pdc::ops::withHeads(const Shape& x) {
  return x.size() == 3 ? Shape{x[0], 1, x[1], x[2]} : x;
}

pdcrt::Attention::Options pdc::ops::attentionOptions(const Operation& op, std::size_t first) {
  const Shape q = withHeads(operandType(op, first + query).shape), k = withHeads(operandType(op, first + key).shape);
  const Value* added = op.operand(first + bias);
  return {.batch = q[0],
          .heads = q[1],
          .groups = k[1],
          .queries = q[2],
          .keys = k[2],
          .size = q[3],
          .valueSize = operandType(op, first + value).shape.back(),
          .scale = op.attributes.getFloat("scale"),
          .causal = op.attributes.get<bool>("causal"),
          .bias = added ? toRuntime(added->type().shape) : pdcrt::Shape{},
          .hides = op.attributes.get<bool>("hides"),
          .ratio = op.attributes.getOr("ratio", 0.0),
          .op = static_cast<std::uint32_t>(op.attributes.getOr("op_number", std::int64_t{0})),
          .run = op.attributes.getOr("run", std::int64_t{0}),
          .members = op.attributes.getOr("members", std::int64_t{1}),
          .element = operandType(op, first + query).element,
          .algorithms = *algorithmsOf(op.attributes)};
}

std::vector<AttributeDef> pdc::ops::attentionAlgorithms() {
  return {namedAlgorithms<pdcrt::Attention>(
              std::size(attentionMembers), {"fused", "plain"},
              "of forward and input gradient: automatic, plain or fused (of 16 bits, for CUDA)"),
          integer("workspace", 0, "bytes that the fused ones take, where they were measured on a GPU")};
}

pdcrt::Attention::Algorithms pdc::ops::attentionAlgorithmsOf(const Attributes& attributes) {
  return *algorithmsOf(attributes);
}

Status pdc::ops::requireAttentionAlgorithms(const InferContext& c, const char* op) {
  if (algorithmsOf(c.attributes)) return success;
  return c.error() << "'" << op << "' op needs two algorithms, each of them automatic or one of pdcrt::Attention's";
}

KernelAlternatives pdc::ops::attentionAlternatives(const pdcrt::Attention::Options& options, const char* method,
                                                   Target target) {
  std::vector<std::string> algorithms = {"plain"};
  if (target == Target::cuda && pdcrt::Attention::takesFused(options)) algorithms.push_back("fused");
  return {.kernel = pdcrt::Attention::profileName(options),
          .method = method,
          .methods = attentionMethods,
          .algorithms = algorithms,
          .calls = nullptr}; // CPUs have nothing to choose
}

Status pdc::ops::requireAttentionBias(const InferContext& c, const char* op, std::size_t i, const Type& scores) {
  if (!has(c, i)) return success;
  const Type& added = c.operand(i);
  bool fits = added.element == scores.element && added.rank() == 4 && added.shape[3] == scores.shape[3];
  for (std::size_t axis = 0; fits && axis < 3; ++axis)
    fits = added.shape[axis] == scores.shape[axis] || added.shape[axis] == 1;
  if (fits) return success;
  return c.error() << "'" << op << "' op has a bias " << toString(added) << " for scores " << toString(scores);
}

std::vector<std::int64_t> pdc::ops::biasStrides(const Shape& bias) {
  std::vector<std::int64_t> strides = stridesOf(bias);
  for (std::size_t axis = 0; axis < bias.size(); ++axis)
    if (bias[axis] == 1) strides[axis] = 0;
  return strides;
}

ElementType pdc::ops::besideQueries(ElementType element) {
  return isLowPrecision(element) ? ElementType::f32 : element;
}
