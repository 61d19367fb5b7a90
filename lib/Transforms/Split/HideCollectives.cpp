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
#include "Split/HideGathers.h"
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

bool isFinish(const Operation& operation) {
  return operation.def().split.half == CollectiveHalf::finish;
}

/// Whether a phase function computes both, if backwards are not split in two.
bool runTogether(const Operation& a, const Operation& b) {
  return a.group == b.group && (a.phase == Phase::forward) == (b.phase == Phase::forward);
}

/// What crosses the link, up to a factor that all collectives of a team share.
double bytesOf(const Operation& start) {
  const Operation& finish = *start.result()->users().front();
  return static_cast<double>(std::max(start.operand(0)->type().bytes(), finish.result()->type().bytes()));
}

/// Starts that bring tokens to experts and back, and those that are as large, where members divide experts. Small ones
/// are over before anything else is computed.
std::vector<Operation*> startsOfTokens(const Graph& graph) {
  constexpr double least = 1.0 / 16; // of the largest one
  std::vector<Operation*> starts;
  if (!graph.team.sums || graph.team.parts.empty()) return starts;
  double most = 0;
  for (const auto& operation : graph.operations()) {
    if (!isStart(*operation) || operation->phase == Phase::weightGradient) continue;
    const Reformed forms = operation->def().split.forms(*operation);
    if (!forms.from.isSplit() && !(forms.from.isPartial() && forms.to.isSplit())) continue;
    starts.push_back(operation.get());
    most = std::max(most, bytesOf(*operation));
  }
  std::erase_if(starts, [&](const Operation* start) { return bytesOf(*start) < least * most; });
  return starts;
}

/// Operations that stay where they are.
using Placed = std::unordered_set<const Operation*>;

/// Puts gradients of weights behind the next start of the backward, before its finish, unless something before it reads
/// them. Those of the start's own group follow it already. Where members divide experts, a start of tokens and the next
/// one share them, so that both have as much between start and finish for a byte.
class GradientsBehindStarts {
public:
  GradientsBehindStarts(Graph& graph, const Placed& placed) : graph_(graph), placed_(placed) {
    for (const auto& operation : graph.operations()) operations_.push_back(operation.get());
    for (Operation* start : startsOfTokens(graph))
      if (!isForward(*start)) starts_.push_back(start);
    deals_ = !starts_.empty();
    if (!deals_)
      std::copy_if(operations_.begin(), operations_.end(), std::back_inserter(starts_),
                   [](const Operation* each) { return !isForward(*each) && isStart(*each); });
  }

  void put() {
    std::size_t next = 0; // of the starts
    int startedGroup = -1;
    for (Operation* const operation : operations_) {
      if (next < starts_.size() && operation->phase == Phase::weightGradient && operation->group != startedGroup &&
          !placed_.contains(operation)) {
        waiting_.push_back(operation);
        for (const Value* result : operation->results())
          if (result) results_.insert(result);
        continue;
      }
      if (std::any_of(operation->operands().begin(), operation->operands().end(),
                      [&](const Value* operand) { return operand && results_.contains(operand); }))
        release(waiting_.size());
      order_.push_back(operation);
      if (next == starts_.size() || operation != starts_[next]) continue;
      startedGroup = operation->group;
      release(shareOf(next++));
      old_ = waiting_.size();
    }
    release(waiting_.size());
    graph_.reorder(order_);
  }

private:
  void release(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      order_.push_back(waiting_[i]);
      for (const Value* result : waiting_[i]->results()) results_.erase(result);
    }
    waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(count));
    old_ -= std::min(old_, count);
  }

  /// How many of those that wait go behind a start: all that have waited for another one, and of the others its share.
  std::size_t shareOf(std::size_t start) const {
    if (!deals_ || start + 1 == starts_.size()) return waiting_.size();
    const double bytes = bytesOf(*starts_[start]), later = bytesOf(*starts_[start + 1]);
    double own = flopsBehind(*starts_[start]), all = own + flopsBehind(*starts_[start + 1]);
    for (const Operation* each : waiting_) all += costOf(*each).flops;
    std::size_t count = 0;
    for (; count < waiting_.size(); ++count) {
      const double flops = costOf(*waiting_[count]).flops;
      if (count >= old_ && own + flops / 2 > all * bytes / (bytes + later)) break;
      own += flops;
    }
    return count;
  }

  /// What lies between a start and its finish and stays there.
  double flopsBehind(const Operation& start) const {
    double flops = 0;
    for (auto at = std::find(operations_.begin(), operations_.end(), &start) + 1;
         (*at)->operands().empty() || !isFinish(**at) || (*at)->operand(1) != start.result(); ++at)
      if ((*at)->phase != Phase::weightGradient || (*at)->group == start.group || placed_.contains(*at))
        flops += costOf(**at).flops;
    return flops;
  }

  Graph& graph_;
  const Placed& placed_;
  std::vector<Operation*> operations_, starts_, order_, waiting_;
  std::size_t old_ = 0;                      ///< of those that wait, the first, which a start has left for the next one
  std::unordered_set<const Value*> results_; ///< of those that wait
  bool deals_ = false;
};

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
/// that take so much computation together and what they need. Gradients of weights come along with what they read.
class Between {
public:
  using Set = Placed;

  /// `placed` stay where they are.
  Between(const Graph& graph, const Operation& start, const Set& placed, double flops)
      : start_(start), finish_(*start.result()->users().front()), placed_(placed), left_(flops) {
    for (const auto& operation : graph.operations()) operations_.push_back(operation.get());
    begin_ = std::find(operations_.begin(), operations_.end(), &start) - operations_.begin();
    end_ = std::find(operations_.begin(), operations_.end(), &finish_) - operations_.begin();
  }

  const Set& taken() const { return taken_; }
  /// The computation that may still be moved.
  double left() const { return left_; }
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

private:
  bool mayMove(const Operation& operation) const {
    return isForward(operation) == isForward(start_) && operation.def().kind != OpKind::collective &&
           !placed_.contains(&operation);
  }
  /// Whether it is taken for itself: at least a half of it is what is left to take.
  bool isWanted(const Operation& operation) const {
    return operation.phase == start_.phase && isLong(operation) && left_ > 0 && costOf(operation).flops <= 2 * left_;
  }
  void take(const Operation& operation) {
    if (taken_.insert(&operation).second && operation.phase == start_.phase) left_ -= costOf(operation).flops;
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
/// Returns what stays there.
Placed putBranchesBetween(Graph& graph) {
  constexpr double most = 16 * leastFlopsPerByte; // what lies between a start and its finish needs memory
  const std::vector<Operation*> starts = startsOfTokens(graph);
  std::unordered_map<const Operation*, Placed> fitting;
  std::unordered_map<const Operation*, double> bytesAround; // of all starts that a product fits behind
  for (const Operation* start : starts) {
    Between all(graph, *start, {}, INFINITY);
    all.takeLater();
    all.takeEarlier();
    fitting[start] = all.taken();
    for (const Operation* each : all.taken()) bytesAround[each] += bytesOf(*start);
  }
  std::unordered_map<const Operation*, double> left;
  for (const Operation* start : starts) {
    double flops = 0;
    for (const Operation* each : fitting[start])
      if (each->phase == start->phase && Between::isLong(*each))
        flops += costOf(*each).flops * bytesOf(*start) / bytesAround.at(each);
    left[start] = std::min(flops, most * bytesOf(*start));
  }
  Placed placed;
  const auto put = [&](const Operation& start, void (Between::*take)()) {
    Between between(graph, start, placed, left[&start]);
    (between.*take)();
    left[&start] = between.left();
    placed.insert(between.taken().begin(), between.taken().end());
    graph.reorder(between.order());
  };
  // What comes first goes behind the first start, so that the next one may have what reads it, and the other way round.
  for (const Operation* start : starts) put(*start, &Between::takeLater);
  for (auto start = starts.rbegin(); start != starts.rend(); ++start) put(**start, &Between::takeEarlier);
  return placed;
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

Value* pdc::divideInHalves(PassContext& context, Graph& graph, Operation& whole) {
  const OpSplit& split = whole.def().split;
  const OpDef& startDef = *context.registry.find(split.start);
  const InferContext infer{{&whole.operand(0)->type()}, whole.attributes, whole.location, context.diags};
  const Expected<std::vector<Type>> types = startDef.infer(infer);
  if (!types) return nullptr;
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
  return finish->result();
}

Status pdc::hideCollectives(PassContext& context) {
  const bool inParts = context.options.contains("parts");
  for (const auto& graph : context.module.graphs) {
    if (graph->team.members < 2) continue;
    std::vector<Operation*> wholes;
    for (const auto& operation : graph->operations())
      if (!operation->def().split.start.empty()) wholes.push_back(operation.get());
    for (Operation* whole : wholes)
      if (!divideInHalves(context, *graph, *whole)) return failure;
    const Placed first = hideGathers(*graph);
    Placed placed = putBranchesBetween(*graph);
    placed.insert(first.begin(), first.end());
    GradientsBehindStarts(*graph, placed).put();
    finishLate(*graph);
    if (inParts) sendInParts(*graph);
  }
  return success;
}
