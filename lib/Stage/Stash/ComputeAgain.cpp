// Computes values again that one pass over memory gives, right before the backward reads them, so that they need not be
// kept from the forward: BatchNorm with its ReLU from the input and the statistics that are saved, an elementwise
// operation that computes little from its operands.
//
// A value qualifies where all that it is computed from stays until then anyway, for readers of its own. So nothing
// stays longer than it did, and at no time is more alive. Those that give the most bytes back for their time come
// first, until the time allowed is spent; what one of them is computed from is kept. Time is estimated by the roofline
// model (Williams, Waterman and Patterson, CACM 2009). Linear in the size of the graph for each value that
// qualifies.
#include "pdc/Stage/StagePasses.h"

#include "pdc/Transforms/GraphUtilities.h"

#include "pdc/IR/Builder.h"

#include <algorithm>
#include <unordered_set>

using namespace pdc;

/// What processors and GPUs compute while they read or write a byte, within a factor of two: Plan/Cluster.cpp.
static constexpr double flopsPerByte = 10;

/// Whether an elementwise operation takes as long as its bytes on every processor. Those that call a function such as
/// tanh do where that is vectorized well, which flops do not tell.
static bool isBoundByMemory(const Operation& operation) {
  const Cost cost = costOf(operation);
  return cost.flops <= cost.bytes;
}

/// In bytes that could be moved meanwhile.
static double timeOf(const Operation& operation) {
  const Cost cost = costOf(operation);
  return std::max(cost.bytes, cost.flops / flopsPerByte);
}

namespace {

/// Of the bytes of a forward value, in the backward. Positions are those in the order in which operations run.
struct Readers {
  std::vector<Operation*> operations; ///< views are none
  std::size_t firstPosition = 0, lastPosition = 0;
  Phase earliest = Phase::weightGradient, latest = Phase::inputGradient;
  bool throughView = false;
};

struct Candidate {
  const Value* value;
  Operation* made; ///< gives it again
  double time;
  double bytes() const { return static_cast<double>(value->type().bytes()); }
};

class ComputingAgain {
public:
  ComputingAgain(PassContext& context, Graph& graph, const ComputeAgainOptions& options)
      : context_(context), graph_(graph), options_(options) {}

  Status run() {
    findReaders();
    if (!findCandidates()) return failure;
    choose();
    return success;
  }

private:
  void findReaders();
  void read(Operation& reader, std::size_t position);
  bool mayGoWithout(const Value* value) const;
  Operation* makeAgain(Operation& operation);
  bool staysUntil(const Operation& reader, const Readers& readers) const;
  Status findCandidates();
  bool fits(const Candidate& candidate) const;
  void choose();
  void use(const Candidate& candidate);

  PassContext& context_;
  Graph& graph_;
  const ComputeAgainOptions& options_;
  std::unordered_map<const Value*, Readers> readers_; ///< by what holds the bytes
  std::vector<Candidate> candidates_;
  std::unordered_set<const Value*> given_, needed_; ///< values computed again, and what they are computed from
  double allowed_ = 0;
};

} // namespace

void ComputingAgain::findReaders() {
  std::size_t position = 0;
  const auto add = [&](auto belongs) {
    for (const auto& operation : graph_.operations())
      if (!isForward(*operation) && belongs(operation->phase)) read(*operation, ++position);
  };
  if (options_.splitBackward) {
    add([](Phase phase) { return phase == Phase::inputGradient; });
    add([](Phase phase) { return phase == Phase::weightGradient; });
  } else {
    add([](Phase) { return true; });
  }
  for (const auto& operation : graph_.operations()) allowed_ += options_.share * timeOf(*operation);
}

void ComputingAgain::read(Operation& reader, std::size_t position) {
  for (Value* operand : reader.operands()) {
    if (!operand) continue;
    Value* root = rootOf(operand);
    Readers& readers = readers_[root];
    if (operand != root || reader.def().kind == OpKind::view) readers.throughView = true;
    if (reader.def().kind == OpKind::view) continue;
    if (readers.operations.empty()) readers.firstPosition = position;
    readers.operations.push_back(&reader);
    readers.lastPosition = position;
    readers.earliest = std::min(readers.earliest, reader.phase);
    readers.latest = std::max(readers.latest, reader.phase);
  }
}

/// Whether nobody but operations of the backward that run together needs `value` after the forward.
bool ComputingAgain::mayGoWithout(const Value* value) const {
  const auto found = value ? readers_.find(value) : readers_.end();
  if (found == readers_.end() || found->second.operations.empty() || found->second.throughView) return false;
  if (options_.splitBackward && found->second.earliest != found->second.latest) return false;
  return value->type().bytes() >= options_.leastBytes &&
         std::none_of(graph_.outputs.begin(), graph_.outputs.end(),
                      [&](const GraphOutput& output) { return rootOf(output.value) == value; });
}

/// An operation that gives result 0 of `operation` again, before the first that reads it; null: there is none.
Operation* ComputingAgain::makeAgain(Operation& operation) {
  const OpDef& def = operation.def();
  const Readers& readers = readers_.at(operation.result());
  const Value& value = *operation.result();
  Operation* made = nullptr;
  if (def.rewrites.again) {
    Builder builder(context_.module, graph_, context_.registry, context_.diags);
    builder.setInsertionPoint(readers.operations.front());
    builder.setLocation(operation.location);
    made = def.rewrites.again(operation, builder);
  } else {
    made = graph_.addOperation(def, operation.operands(), {&value.type()}, operation.attributes, operation.location,
                               readers.operations.front());
  }
  if (!made) return nullptr;
  made->result()->setType(value.type()); // its layout, too
  made->phase = readers.earliest;
  made->setOrigin(&operation);
  made->again = true;
  made->group = operation.group;
  made->stage = operation.stage;
  return made;
}

/// Whether what `made` reads is there when the first of `readers` runs, whether or not `made` exists.
bool ComputingAgain::staysUntil(const Operation& made, const Readers& readers) const {
  return std::all_of(made.operands().begin(), made.operands().end(), [&](Value* operand) {
    if (!operand) return true;
    const Value* root = rootOf(operand);
    if (root->parameter()) return root->parameter()->role != ParameterRole::state; // which the forward replaces
    if (root->definer() && isConstant(*root->definer())) return true;
    const auto found = readers_.find(root);
    return found != readers_.end() && found->second.lastPosition >= readers.firstPosition;
  });
}

Status ComputingAgain::findCandidates() {
  std::vector<Operation*> forward; // making others changes the list
  for (const auto& operation : graph_.operations()) {
    const OpDef& def = operation->def();
    const bool onePass = def.rewrites.again || (def.kind == OpKind::elementwise && operation->results().size() == 1 &&
                                                isBoundByMemory(*operation));
    if (isForward(*operation) && onePass && !def.facts.random && mayGoWithout(operation->result()))
      forward.push_back(operation.get());
  }
  for (Operation* operation : forward) {
    Operation* made = makeAgain(*operation);
    if (!made) return failure;
    if (staysUntil(*made, readers_.at(operation->result())))
      candidates_.push_back({operation->result(), made, timeOf(*made)});
    else
      graph_.erase(made);
  }
  std::stable_sort(candidates_.begin(), candidates_.end(),
                   [](const Candidate& a, const Candidate& b) { return a.bytes() * b.time > b.bytes() * a.time; });
  return success;
}

/// Whether nothing that was chosen speaks against it, and there is time for it.
bool ComputingAgain::fits(const Candidate& candidate) const {
  if (candidate.time > allowed_ || needed_.contains(candidate.value)) return false;
  return std::none_of(candidate.made->operands().begin(), candidate.made->operands().end(),
                      [&](Value* operand) { return operand && given_.contains(rootOf(operand)); });
}

void ComputingAgain::choose() {
  for (const Candidate& candidate : candidates_)
    if (fits(candidate))
      use(candidate);
    else
      graph_.erase(candidate.made);
}

void ComputingAgain::use(const Candidate& candidate) {
  allowed_ -= candidate.time;
  given_.insert(candidate.value);
  for (Value* operand : candidate.made->operands())
    if (operand) needed_.insert(rootOf(operand));
  graph_.rename(candidate.made->result(), candidate.value->name() + ".again");
  for (Operation* reader : readers_.at(candidate.value).operations)
    for (std::size_t i = 0; i < reader->operands().size(); ++i)
      if (reader->operand(i) == candidate.value) reader->setOperand(i, candidate.made->result());
}

Status pdc::computeAgain(PassContext& context, Graph& stage, const ComputeAgainOptions& options) {
  return ComputingAgain(context, stage, options).run();
}
