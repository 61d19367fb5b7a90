// Between the start and the finish of a collective a member computes what does not need its result: the gradient of a
// weight beside the sum of the gradients of its operand, as linear layers of Megatron-LM do, and gradients of weights
// of the layers above that have no sum of their own. Only the order of operations changes, so no bit does.
//
// In a forward nothing is independent of a sum. There what makes its terms may make them in parts, each of which is
// sent while the next one is made.
//
// While tokens are on their way to experts and back, a member computes what other branches make of them, such as an
// expert that all tokens share.
#include "Split/ChooseClasses.h"
#include "pdc/IR/OpDef.h"
#include "pdc/Transforms/GraphUtilities.h"
#include "pdc/Transforms/Split.h"
#include "pdcrt/SumPieces.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <unordered_map>
#include <unordered_set>

using namespace pdc;

namespace {

/// Makes two operations of a collective.
Status divideInHalves(Graph& graph, Operation& whole, PassContext& context) {
  const OpSplit& split = whole.def().split;
  const OpDef& startDef = *context.registry.find(split.start);
  const InferContext infer{{&whole.operand(0)->type()}, whole.attributes, whole.location, context.diags};
  const Expected<std::vector<Type>> types = startDef.infer(infer);
  if (!types) return failure;
  auto annotated = [&](Operation* made) {
    made->phase = whole.phase;
    made->again = whole.again;
    made->group = whole.group;
    made->stage = whole.stage;
    if (whole.origin()) made->setOrigin(whole.origin());
    return made;
  };
  Operation* start = annotated(graph.addOperation(startDef, {whole.operand(0)}, {&types->front()}, whole.attributes,
                                                  whole.location, &whole, {whole.result()->name() + ".arriving"}));
  std::vector<Value*> operands = whole.operands();
  operands.insert(operands.begin() + 1, start->result());
  Operation* finish =
      annotated(graph.addOperation(*context.registry.find(split.finish), operands, {&whole.result()->type()},
                                   whole.attributes, whole.location, &whole));
  const std::string name = whole.result()->name();
  graph.replaceAllUses(whole.result(), finish->result());
  whole.giveDerivedTo(*finish);
  graph.erase(&whole);
  graph.rename(finish->result(), name);
  return success;
}

bool isFinish(const Operation& operation) {
  return operation.def().split.half == CollectiveHalf::finish;
}

/// Whether a phase function computes both, if backwards are not split in two.
bool runTogether(const Operation& a, const Operation& b) {
  return a.group == b.group && (a.phase == Phase::forward) == (b.phase == Phase::forward);
}

bool isStart(const Operation& operation) {
  return operation.def().split.half == CollectiveHalf::start;
}

using Operations = std::unordered_set<const Operation*>;

bool readsAnyOf(const Operation& operation, const Operations& makers) {
  return std::any_of(operation.operands().begin(), operation.operands().end(), [&](const Value* operand) {
    return operand && operand->definer() && makers.contains(operand->definer());
  });
}

/// What a gradient of a weight gathers of a forward starts before the other operations of its group's backward.
Operations startGathersFirst(Graph& graph) {
  Operations gathers;
  std::unordered_map<int, std::vector<Operation*>> ofGroup;
  for (const auto& operation : graph.operations()) {
    if (operation->phase != Phase::weightGradient || !isStart(*operation)) continue;
    const Operation* maker = operation->operand(0)->definer();
    if (maker && !isForward(*maker)) continue;
    gathers.insert(operation.get());
    ofGroup[operation->group].push_back(operation.get());
  }
  std::vector<Operation*> order;
  for (const auto& operation : graph.operations()) {
    if (gathers.contains(operation.get())) continue;
    if (const auto first = ofGroup.find(operation->group); !isForward(*operation) && first != ofGroup.end()) {
      order.insert(order.end(), first->second.begin(), first->second.end());
      ofGroup.erase(first);
    }
    order.push_back(operation.get());
  }
  graph.reorder(order);
  return gathers;
}

/// Puts gradients of weights right behind the last start of the backward of their group, before what reads its finish,
/// unless they read something that is made later.
void putOwnGradientsBehindStarts(Graph& graph, const Operations& first) {
  std::vector<Operation*> order;
  std::unordered_map<int, std::size_t> behindStart; // by group: where its last start ends, and what follows that start
  std::unordered_map<int, Operations> later;
  for (const auto& operation : graph.operations()) {
    const int group = operation->group;
    const auto behind = behindStart.find(group);
    if (behind != behindStart.end() && operation->phase == Phase::weightGradient && !isStart(*operation) &&
        !readsAnyOf(*operation, later[group])) {
      order.insert(order.begin() + static_cast<std::ptrdiff_t>(behind->second), operation.get());
      const std::size_t at = behind->second;
      for (auto& [other, end] : behindStart)
        if (end >= at) ++end;
      continue;
    }
    order.push_back(operation.get());
    if (operation->phase == Phase::inputGradient && isStart(*operation)) {
      behindStart[group] = order.size();
      later[group].clear();
    } else if (!first.contains(operation.get())) {
      later[group].insert(operation.get());
    }
  }
  graph.reorder(order);
}

/// Puts gradients of weights behind the next start of the backward, before its finish, unless something before it reads
/// them. Those of the start's own group follow it already.
void putGradientsBehindStarts(Graph& graph, const Operations& first) {
  std::vector<Operation*> operations;
  for (const auto& operation : graph.operations()) operations.push_back(operation.get());
  const auto startsBackward = [&](const Operation* operation) {
    return !isForward(*operation) && isStart(*operation) && !first.contains(operation);
  };
  const auto last = std::find_if(operations.rbegin(), operations.rend(), startsBackward).base();

  std::vector<Operation*> order, waiting;
  std::unordered_set<const Value*> results; // of those that wait
  const auto release = [&] {
    order.insert(order.end(), waiting.begin(), waiting.end());
    waiting.clear();
    results.clear();
  };
  int startedGroup = -1;
  for (auto at = operations.begin(); at != operations.end(); ++at) {
    Operation* const operation = *at;
    if (std::any_of(operation->operands().begin(), operation->operands().end(),
                    [&](const Value* operand) { return operand && results.contains(operand); }))
      release();
    if (at < last && operation->phase == Phase::weightGradient && operation->group != startedGroup &&
        !first.contains(operation)) {
      waiting.push_back(operation);
      for (const Value* result : operation->results())
        if (result) results.insert(result);
      continue;
    }
    order.push_back(operation);
    if (!startsBackward(operation)) continue;
    startedGroup = operation->group;
    release();
  }
  release();
  graph.reorder(order);
}

/// Puts finishes as late as what reads their results allows, to the end of their group at the latest. The order of
/// starts, and that of finishes, stays: all members have the same.
void finishLate(Graph& graph) {
  std::vector<Operation*> order;
  std::vector<Operation*> open; // finishes that are put off
  std::unordered_set<const Value*> awaited;
  auto finish = [&](std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      order.push_back(open[i]);
      awaited.erase(open[i]->result());
    }
    open.erase(open.begin(), open.begin() + static_cast<std::ptrdiff_t>(count));
  };
  for (const auto& operation : graph.operations()) {
    if (!open.empty() && !runTogether(*open.front(), *operation)) finish(open.size());
    std::size_t needed = 0; // finishes up to the last one that it reads
    for (const Value* operand : operation->operands())
      if (operand && awaited.contains(operand)) {
        const auto at = std::find(open.begin(), open.end(), operand->definer());
        needed = std::max(needed, static_cast<std::size_t>(at - open.begin()) + 1);
      }
    finish(needed);
    if (isFinish(*operation)) {
      open.push_back(operation.get());
      awaited.insert(operation->result());
    } else {
      order.push_back(operation.get());
    }
  }
  finish(open.size());
  graph.reorder(order);
}

/// The operations of a phase that neither lead to a start nor depend on its finish: moved between the two, products
/// that take so much computation together and what they need.
class Between {
public:
  using Set = std::unordered_set<const Operation*>;

  /// `placed` stay where they are.
  Between(const Graph& graph, const Operation& start, const Set& placed, double flops)
      : start_(start), finish_(*start.result()->users().front()), placed_(placed), left_(flops) {
    for (const auto& operation : graph.operations()) operations_.push_back(operation.get());
    begin_ = std::find(operations_.begin(), operations_.end(), &start) - operations_.begin();
    end_ = std::find(operations_.begin(), operations_.end(), &finish_) - operations_.begin();
    takeLater();
    takeEarlier();
  }

  const Set& taken() const { return taken_; }
  /// Whether it takes time: a product.
  static bool isLong(const Operation& operation) {
    constexpr double most = 16; // of an element by itself
    const Value* made = operation.result(0);
    return made && costOf(operation).flops > most * static_cast<double>(made->type().elements());
  }

  /// The operations in another order.
  std::vector<Operation*> order() const {
    std::vector<Operation*> order;
    for (Operation* operation : operations_) {
      if (operation == &finish_)
        for (Operation* between : operations_)
          if (taken_.contains(between)) order.push_back(between);
      if (!taken_.contains(operation)) order.push_back(operation);
    }
    return order;
  }

private:
  bool mayMove(const Operation& operation) const {
    return operation.phase == start_.phase && operation.def().kind != OpKind::collective &&
           !placed_.contains(&operation);
  }
  /// Whether it is taken for itself: at least a half of it is what is left to take.
  bool isWanted(const Operation& operation) const {
    return isLong(operation) && left_ > 0 && costOf(operation).flops <= 2 * left_;
  }
  void take(const Operation& operation) {
    if (taken_.insert(&operation).second) left_ -= costOf(operation).flops;
  }

  /// Takes later products that read no result made after the start, and the operations that lead to them.
  void takeLater() {
    Set behind(operations_.begin() + begin_, operations_.begin() + end_ + 1), movable;
    const std::function<void(const Operation&)> takeWithOperands = [&](const Operation& operation) {
      for (const Value* operand : operation.operands())
        if (operand && operand->definer() && movable.contains(operand->definer()))
          takeWithOperands(*operand->definer());
      take(operation);
    };
    for (auto at = operations_.begin() + end_ + 1; at != operations_.end(); ++at) {
      const auto isBehind = [&](const Value* operand) {
        return operand && operand->definer() && behind.contains(operand->definer());
      };
      const auto& operands = (*at)->operands();
      const bool may = mayMove(**at) && std::none_of(operands.begin(), operands.end(), isBehind);
      (may ? movable : behind).insert(*at);
      if (may && isWanted(**at)) takeWithOperands(**at);
    }
  }

  /// Takes earlier products whose results nothing reads before the finish, and the operations that follow from them.
  void takeEarlier() {
    Set before(operations_.begin() + begin_, operations_.begin() + end_ + 1), movable;
    const std::function<void(const Operation&)> takeWithUsers = [&](const Operation& operation) {
      for (const Value* result : operation.results())
        for (const Operation* user : result ? result->users() : std::vector<Operation*>())
          if (movable.contains(user)) takeWithUsers(*user);
      take(operation);
    };
    for (std::ptrdiff_t i = begin_ - 1; i >= 0; --i) {
      const Operation& operation = *operations_[static_cast<std::size_t>(i)];
      bool may = mayMove(operation);
      for (const Value* result : operation.results())
        may = may && (!result || std::none_of(result->users().begin(), result->users().end(),
                                              [&](const Operation* user) { return before.contains(user); }));
      (may ? movable : before).insert(&operation);
      if (may && isWanted(operation)) takeWithUsers(operation);
    }
  }

  const Operation &start_, &finish_;
  const Set& placed_;
  std::vector<Operation*> operations_;
  std::ptrdiff_t begin_ = 0, end_ = 0;
  double left_ = 0; ///< floating-point operations to be moved
  Set taken_;
};

/// Where members divide experts: moves other branches between starts and finishes of what brings tokens to them and
/// back. What may go between several is dealt to them by their bytes, so that all hide as much whatever a byte takes.
void putBranchesBetween(Graph& graph) {
  if (!graph.team.sums || graph.team.parts.empty()) return;
  constexpr double most = 16 * leastFlopsPerByte; // what lies between a start and its finish needs memory
  std::vector<const Operation*> starts;
  std::unordered_map<const Operation*, Between::Set> fitting;
  std::unordered_map<const Operation*, double> bytesAround; // of all starts that a product fits behind
  const auto bytesOf = [](const Operation& start) { return static_cast<double>(start.operand(0)->type().bytes()); };
  for (const auto& operation : graph.operations()) {
    if (!isStart(*operation) || !operation->def().split.forms(*operation).from.isSplit() ||
        operation->phase == Phase::weightGradient)
      continue;
    starts.push_back(operation.get());
    fitting[operation.get()] = Between(graph, *operation, {}, INFINITY).taken();
    for (const Operation* each : fitting[operation.get()]) bytesAround[each] += bytesOf(*operation);
  }
  Between::Set placed;
  for (const Operation* start : starts) {
    double flops = 0;
    for (const Operation* each : fitting[start])
      if (Between::isLong(*each)) flops += costOf(*each).flops * bytesOf(*start) / bytesAround.at(each);
    flops = std::min(flops, most * bytesOf(*start));
    const Between between(graph, *start, placed, flops);
    placed.insert(between.taken().begin(), between.taken().end());
    graph.reorder(between.order());
  }
}

/// In how many parts of equally many rows a value is made that two members sum; 1: as a whole.
std::int64_t partsFor(const Type& value) {
  constexpr std::int64_t fewestRows = 128; // a part of fewer is multiplied more slowly
  const std::int64_t rows = value.elements() / std::max<std::int64_t>(1, value.shape.back());
  for (std::int64_t parts = pdcrt::piecesOfSum(value.bytes()); parts > 1; --parts)
    if (rows % parts == 0 && rows / parts >= fewestRows) return parts;
  return 1;
}

/// Lets operations that can make in parts what is summed over two members. Of more members each adds one part of the
/// sum, which crosses those.
void sendInParts(Graph& graph) {
  if (graph.team.members != 2) return;
  for (const auto& operation : graph.operations()) {
    const Value* made = operation->results().empty() ? nullptr : operation->results().front();
    if (!made || !operation->attributes.has(partsAttribute) || made->type().element != ElementType::f32) continue;
    const Operation* const start = startThatSends(*made);
    if (!start || !runTogether(*operation, *start)) continue;
    const Reformed reformed = start->def().split.forms(*start);
    if (reformed.from.isPartial() && reformed.to.isWhole())
      operation->attributes.set(partsAttribute, partsFor(made->type()));
  }
}

} // namespace

Status pdc::hideCollectives(PassContext& context) {
  const bool inParts = context.options.contains("parts");
  for (const auto& graph : context.module.graphs) {
    if (graph->team.members < 2) continue;
    std::vector<Operation*> wholes;
    for (const auto& operation : graph->operations())
      if (!operation->def().split.start.empty()) wholes.push_back(operation.get());
    for (Operation* whole : wholes)
      if (!divideInHalves(*graph, *whole, context)) return failure;
    putBranchesBetween(*graph);
    const Operations first = startGathersFirst(*graph);
    putOwnGradientsBehindStarts(*graph, first);
    putGradientsBehindStarts(*graph, first);
    finishLate(*graph);
    if (inParts) sendInParts(*graph);
  }
  return success;
}
