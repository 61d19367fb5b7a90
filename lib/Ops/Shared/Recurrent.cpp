#include "Shared/Recurrent.h"

#include "Shared/RecurrentWeights.h"

#include <algorithm>
#include <cctype>

namespace pdc::ops {

namespace {

/// An activation that recurrent operators know, and ONNX's defaults of its parameters.
struct Known {
  const char* name;
  bool hasAlpha, hasBeta;
  double alpha, beta;
};
constexpr Known knownActivations[] = {
    {"relu", false, false, 0, 0},           {"tanh", false, false, 0, 0},
    {"sigmoid", false, false, 0, 0},        {"softsign", false, false, 0, 0},
    {"softplus", false, false, 0, 0},       {"affine", true, true, 1, 0},
    {"leakyrelu", true, false, 0.01, 0},    {"elu", true, false, 1, 0},
    {"thresholdedrelu", true, false, 1, 0}, {"scaledtanh", true, true, 1, 1},
    {"hardsigmoid", true, true, 0.2, 0.5},
};

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

const Known* findActivation(const std::string& name) {
  const auto* found = std::find_if(std::begin(knownActivations), std::end(knownActivations),
                                   [&](const Known& known) { return known.name == name; });
  return found == std::end(knownActivations) ? nullptr : found;
}

} // namespace

bool RecurrentDirection::activatedBy(std::initializer_list<const char*> names) const {
  return std::equal(activations.begin(), activations.end(), names.begin(), names.end(),
                    [](const RecurrentActivation& activation, const char* name) { return activation.name == name; });
}

Status RecurrentNode::requireInput(std::size_t i, const char* name, const Shape& shape) {
  if (!n.input(i) || n.type(i).shape == shape) return success;
  return n.error().help(
             "ONNX has recurrent layers without projections (proj_size) only; another setting of the exporter "
             "may write this layer right")
         << "has input " << name << " of " << toString(n.type(i)) << ", its shape should be " << toString(shape);
}

Status RecurrentNode::readShapes() {
  const auto gates = static_cast<std::int64_t>(gates_.size());
  x = n.input(0);
  for (std::size_t i : {0, 1, 2})
    if (n.type(i).rank() != 3 || !isFloat(n.type(i).element) || n.type(i).elements() == 0)
      return n.error() << "needs floats of rank 3 as inputs X, W and R, input " << i << " is " << toString(n.type(i));
  batchFirst_ = n.integer("layout", 0) != 0;
  if (batchFirst_) x = n.transpose(x, {1, 0, 2});
  if (!x) return failure;
  steps = x->type().shape[0];
  batch = x->type().shape[1];
  hidden = n.type(2).shape[2];
  const std::int64_t stated = n.integer("hidden_size", hidden);
  if (stated != hidden) return n.error() << "has hidden_size " << stated << ", R has " << hidden << " columns";
  const std::string direction = n.text("direction", "forward");
  if (direction != "forward" && direction != "reverse" && direction != "bidirectional")
    return n.error() << "has direction '" << direction << "'";
  directions.resize(direction == "bidirectional" ? 2 : 1);
  const auto count = static_cast<std::int64_t>(directions.size());
  directions.back().reverse = direction != "forward";

  const Shape state = batchFirst_ ? Shape{batch, count, hidden} : Shape{count, batch, hidden};
  if (!requireInput(1, "W", {count, gates * hidden, x->type().shape[2]}) ||
      !requireInput(2, "R", {count, gates * hidden, hidden}) || !requireInput(3, "B", {count, 2 * gates * hidden}) ||
      !requireInput(4, "sequence_lens", {batch}) || !requireInput(5, "initial_h", state) ||
      !requireInput(6, "initial_c", state) || !requireInput(7, "P", {count, 3 * hidden}))
    return failure;
  return success;
}

/// The initial state of a direction, [B, H]; null where it is always zero.
Value* RecurrentNode::initialState(std::size_t input, std::int64_t direction) {
  Value* state = n.input(input);
  if (!state || isAlwaysZero(state)) return nullptr;
  return n.reshape(sliced(n, state, batchFirst_ ? 1 : 0, direction, 1), {batch, hidden});
}

Status RecurrentNode::readDirections() {
  const auto blocks = static_cast<std::int64_t>(gates_.size());
  for (std::size_t d = 0; d < directions.size(); ++d) {
    const auto index = static_cast<std::int64_t>(d);
    RecurrentDirection& direction = directions[d];
    std::vector<Value*> weights = {entry(n, n.input(1), index), entry(n, n.input(2), index)};
    if (n.input(3)) {
      Value* biases = entry(n, n.input(3), index);
      for (std::int64_t half : {0, 1})
        weights.push_back(biases ? rows(n, biases, half * blocks * hidden, blocks * hidden) : nullptr);
    }
    if (std::find(weights.begin(), weights.end(), nullptr) != weights.end()) return failure;
    direction.order = takeFromStored(weights, gates_);
    direction.w = weights[0];
    direction.r = weights[1];
    if (n.input(3)) {
      direction.wb = isAlwaysZero(weights[2]) ? nullptr : weights[2];
      direction.rb = isAlwaysZero(weights[3]) ? nullptr : weights[3];
    }
    direction.h0 = initialState(5, index);
    direction.c0 = initialState(6, index);
    if (n.input(7) && !isAlwaysZero(n.input(7))) direction.peepholes = entry(n, n.input(7), index);
  }
  return success;
}

/// Names and parameters are lists over the directions; a parameter is consumed by the next activation that has one.
Status RecurrentNode::readActivations() {
  std::vector<std::string> names;
  for (std::size_t d = 0; d < directions.size(); ++d) names.insert(names.end(), standard_.begin(), standard_.end());
  const std::vector<std::string> stated = n.texts("activations", names);
  if (stated.size() != names.size())
    return n.error() << "names " << stated.size() << " activations, it needs " << names.size();
  const std::vector<double> alphas = n.numbers("activation_alpha"), betas = n.numbers("activation_beta");
  std::size_t alpha = 0, beta = 0;
  for (std::size_t i = 0; i < stated.size(); ++i) {
    const Known* known = findActivation(lower(stated[i]));
    if (!known) return n.unsupported() << "has activation '" << stated[i] << "', which pdc does not know";
    RecurrentActivation activation{known->name, known->alpha, known->beta};
    if (known->hasAlpha && alpha < alphas.size()) activation.alpha = alphas[alpha++];
    if (known->hasBeta && beta < betas.size()) activation.beta = betas[beta++];
    directions[i / standard_.size()].activations.push_back(activation);
  }
  return success;
}

Status RecurrentNode::read() {
  if (!readShapes() || !readDirections() || !readActivations()) return failure;
  clip = n.number("clip", 0);
  if (!(clip >= 0)) return n.error() << "has clip " << clip << ", which should be positive";
  lengths = n.input(4);
  if (!lengths) return success;
  if (lengths->type().element != ElementType::i32)
    return n.error() << "needs sequence_lens of i32, they are " << toString(lengths->type());
  if (const std::optional<Tensor> constant = Builder::constantValue(lengths)) {
    const std::vector<std::int64_t> values = constant->toInts();
    for (std::int64_t value : values)
      if (value < 0 || value > steps)
        return n.error() << "has a sequence of " << value << " steps, the input has " << steps;
    if (std::all_of(values.begin(), values.end(), [&](std::int64_t value) { return value == steps; }))
      lengths = nullptr;
  }
  return success;
}

Value* RecurrentNode::sumOfBiases(const RecurrentDirection& direction) {
  if (!direction.wb || !direction.rb) return direction.wb ? direction.wb : direction.rb;
  return n.value("add", {direction.wb, direction.rb});
}

Value* RecurrentNode::projection(const RecurrentDirection& direction, Value* bias) {
  return n.value("linear", {x, direction.w, bias}, {{"transposed", true}});
}

/// y, and 0 where a row is over.
Value* RecurrentNode::masked(Value* y) {
  if (!lengths || !y) return y;
  std::vector<std::int64_t> positions;
  for (std::int64_t t = 0; t < steps; ++t) positions.push_back(t);
  Value* position =
      n.reshape(n.b.constant(Tensor::ofInts({steps}, positions).convertedTo(ElementType::i32)), {steps, 1, 1});
  Value* running = n.value("less", {position, n.reshape(lengths, {batch, 1})});
  return n.value("where", {running, y, n.b.constant(0, y->type().element)});
}

Expected<std::vector<Value*>> RecurrentNode::outputs(const std::vector<RecurrentStates>& states) {
  std::vector<Value*> all, lastStates, lastCells;
  for (std::size_t d = 0; d < states.size(); ++d) {
    if (!states[d].y) return failure;
    const bool reverse = directions[d].reverse;
    if (n.used(0)) all.push_back(n.reshape(masked(states[d].y), {steps, 1, batch, hidden}));
    if (n.used(1)) lastStates.push_back(sliced(n, states[d].y, 0, reverse ? 0 : steps - 1, 1));
    if (n.used(2)) lastCells.push_back(n.reshape(states[d].lastCells, {1, batch, hidden}));
  }
  const auto together = [&](const std::vector<Value*>& parts, std::int64_t axis,
                            std::vector<std::int64_t> batchFirst) -> Value* {
    if (parts.empty()) return nullptr;
    if (std::find(parts.begin(), parts.end(), nullptr) != parts.end()) return nullptr;
    Value* value = parts.size() == 1 ? parts[0] : n.value("concat", parts, {{"axis", axis}});
    return batchFirst_ ? n.transpose(value, std::move(batchFirst)) : value;
  };
  std::vector<Value*> outputs = {together(all, 1, {2, 0, 1, 3}), together(lastStates, 0, {1, 0, 2}),
                                 together(lastCells, 0, {1, 0, 2})};
  for (std::size_t i = 0; i < outputs.size(); ++i)
    if (n.used(i) && !outputs[i]) return failure;
  return outputs;
}

Operation* create(OnnxReader& n, const std::string& op, std::vector<Value*> operands, Attributes attributes) {
  while (!operands.empty() && !operands.back()) operands.pop_back();
  return n.b.create(op, std::move(operands), std::move(attributes));
}

Value* sliced(OnnxReader& n, Value* x, std::size_t axis, std::int64_t begin, std::int64_t count) {
  if (!x) return nullptr;
  Shape sizes = x->type().shape;
  if (sizes[axis] == count) return x;
  std::vector<std::int64_t> starts(sizes.size(), 0), steps(sizes.size(), 1);
  sizes[axis] = count;
  starts[axis] = begin;
  return n.value("slice", {x}, {{"starts", starts}, {"sizes", sizes}, {"steps", steps}});
}

Unrolled::Unrolled(RecurrentNode& node, const RecurrentDirection& direction, Value* input)
    : node_(node), direction_(direction), n_(node.n), input_(input), possible_(input && node.steps <= mostSteps) {
  if (node.steps > mostSteps)
    static_cast<void>(n_.unsupported().help("use the standard activations, without clip, peepholes and input_forget")
                      << "has to be unrolled over " << node.steps << " steps, at most " << mostSteps
                      << " are supported");
}

RecurrentStates Unrolled::run(const Step& step) {
  if (!possible_) return {};
  std::vector<Value*> states(static_cast<std::size_t>(node_.steps));
  Value *h = direction_.h0, *c = direction_.c0;
  for (std::int64_t count = 0; count < node_.steps; ++count) {
    const std::int64_t t = direction_.reverse ? node_.steps - 1 - count : count;
    Value* input = sliced(n_, input_, 0, t, 1);
    if (!input) return {};
    const std::array<Value*, 2> after = step(n_.reshape(input, {node_.batch, input->type().shape[2]}), h, c);
    if (!after[0]) return {};
    h = whileRunning(t, after[0], h);
    c = whileRunning(t, after[1], c);
    states[static_cast<std::size_t>(t)] = n_.reshape(h, {1, node_.batch, node_.hidden});
    if (!states[static_cast<std::size_t>(t)]) return {};
  }
  return {states.size() == 1 ? states[0] : n_.value("concat", states, {{"axis", std::int64_t{0}}}), c};
}

/// The state after a step, or the one before it in rows that are over.
Value* Unrolled::whileRunning(std::int64_t step, Value* after, Value* before) {
  if (!node_.lengths || !after) return after;
  Value* position = n_.b.constant(Tensor::scalar(static_cast<double>(step), ElementType::i32));
  Value* running = n_.value("less", {position, n_.reshape(node_.lengths, {node_.batch, 1})});
  return n_.value("where", {running, after, before ? before : number(0)});
}

Value* Unrolled::number(double value) {
  return n_.b.constant(value, node_.x->type().element);
}

Value* Unrolled::elementwise(const char* op, Value* a, Value* b) {
  return a && b ? n_.value(op, {a, b}) : nullptr;
}

Value* Unrolled::recurrent(Value* h, Value* r) {
  return h && r ? n_.value("matmul", {h, r}, {{"transpose_b", true}}) : nullptr;
}

Value* Unrolled::gate(Value* all, char gate, std::size_t axis) {
  const auto place = static_cast<std::int64_t>(direction_.order.find(gate));
  return sliced(n_, all, axis, place * node_.hidden, node_.hidden);
}

Value* Unrolled::add(Value* a, Value* b) {
  return a && b ? elementwise("add", a, b) : a ? a : b;
}

Value* Unrolled::multiply(Value* a, Value* b) {
  return elementwise("mul", a, b);
}

Value* Unrolled::activate(std::size_t activation, Value* x) {
  if (!x) return nullptr;
  const auto& [name, alpha, beta] = direction_.activations[activation];
  if (node_.clip > 0) x = elementwise("minimum", elementwise("maximum", x, number(-node_.clip)), number(node_.clip));
  if (name == "affine") return add(multiply(x, number(alpha)), number(beta));
  if (name == "leakyrelu") return n_.value("leaky_relu", {x}, {{"alpha", alpha}});
  if (name == "elu") return n_.value("elu", {x}, {{"alpha", alpha}});
  if (name == "hardsigmoid") return n_.value("hard_sigmoid", {x}, {{"alpha", alpha}, {"beta", beta}});
  if (name == "scaledtanh") {
    Value* scaled = multiply(x, number(beta));
    return scaled ? multiply(n_.value("tanh", {scaled}), number(alpha)) : nullptr;
  }
  if (name == "thresholdedrelu") {
    Value* above = elementwise("greater", x, number(alpha));
    return above ? n_.value("where", {above, x, number(0)}) : nullptr;
  }
  return n_.value(name, {x});
}

} // namespace pdc::ops
