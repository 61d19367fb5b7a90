// Moves weight gradients forward in program order. Linear in the size of the graph; in that of a team, for each
// gradient that has to move.
#include "pdc/Stage/StagePasses.h"

#include "pdc/Memory/MemoryPlan.h"
#include "pdc/Transforms/GraphUtilities.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

using namespace pdc;

namespace {

using Order = std::vector<Operation*>;

/// Which weight gradients move; null: all.
using Moved = std::unordered_set<const Operation*>;

class Reordering {
public:
  Reordering(const Graph& graph, bool afterReaders) : graph_(graph) {
    for (const GraphOutput& output : graph.outputs)
      if (afterReaders && output.kind == OutputKind::gradient) findReaders(output);
  }

  Order order(const Moved* moved) {
    moved_ = moved;
    order_.clear();
    emitted_.clear();
    for (const auto& operation : graph_.operations()) emit(*operation);
    return std::exchange(order_, {});
  }

private:
  /// A gradient that can be made in parts is, where they are used up at once: nothing may read the parameter any more.
  void findReaders(const GraphOutput& gradient) {
    const Operation* maker = gradient.value->definer();
    if (!maker || maker->phase != Phase::weightGradient || maker->def().kind != OpKind::kernel ||
        maker->def().kernel.use(*maker).partBytes == 0)
      return;
    for (const Value* value : graph_.parameterValues())
      if (value->parameter() == gradient.parameter)
        for (const Operation* reader : value->users())
          if (reader != maker && reader->phase == Phase::inputGradient) readers_[maker].push_back(reader);
  }

  void emit(Operation& operation) {
    if (!emitted_.insert(&operation).second) return;
    order_.push_back(&operation);
    if (isForward(operation)) return;
    for (const Value* result : operation.results())
      if (result)
        for (Operation* user : result->users())
          if (user->phase == Phase::weightGradient && (!moved_ || moved_->contains(user)) && isReady(*user))
            emit(*user);
  }

  bool isReady(const Operation& operation) const {
    for (const Value* operand : operation.operands())
      if (operand && operand->definer() && !emitted_.contains(operand->definer())) return false;
    const auto readers = readers_.find(&operation);
    return readers == readers_.end() || std::all_of(readers->second.begin(), readers->second.end(),
                                                    [&](const Operation* reader) { return emitted_.contains(reader); });
  }

  const Graph& graph_;
  const Moved* moved_ = nullptr;
  Order order_;
  std::unordered_set<const Operation*> emitted_;
  std::unordered_map<const Operation*, std::vector<const Operation*>> readers_; ///< of the parameter, by its gradient's
};

/// The place of an order where the most bytes of values are alive.
struct Peak {
  std::size_t at = 0;
  std::int64_t bytes = 0;
};

struct Life {
  std::size_t begin = 0, end = 0;
  std::int64_t bytes = 0;
};
using Lives = std::unordered_map<const Value*, Life>;

/// Results of the operation that lie where an operand ends begin behind it.
void replaceOperands(Lives& lives, const Operation& operation, std::size_t at) {
  std::unordered_set<const Value*> taken;
  for (const auto& [from, to] : replaceableIn(operation)) {
    if (from >= operation.operands().size() || to >= operation.results().size()) continue;
    const Value *const operand = operation.operand(from), *const result = operation.result(to);
    if (!operand || !result) continue;
    const auto old = lives.find(storageOf(operand)), made = lives.find(result);
    if (old == lives.end() || made == lives.end() || old->second.end != at || old->second.begin == at) continue;
    if (made->second.begin != at || old->second.bytes < made->second.bytes) continue;
    if (taken.insert(old->first).second) made->second.begin = at + 1;
  }
}

Peak peakOf(const Graph& graph, const Order& order) {
  Lives lives;
  for (std::size_t at = 0; at < order.size(); ++at) {
    for (const Value* result : order[at]->results())
      if (result && storageOf(result) == result) lives[result] = {at, at, result->type().bytes()};
    for (const Value* operand : order[at]->operands())
      if (const auto life = operand ? lives.find(storageOf(operand)) : lives.end(); life != lives.end())
        life->second.end = at;
  }
  for (const GraphOutput& output : graph.outputs) {
    const auto life = lives.find(storageOf(output.value));
    if (life == lives.end()) continue;
    if (output.kind == OutputKind::gradient)
      lives.erase(life); // has a block of its own
    else
      life->second.end = order.size();
  }
  for (std::size_t at = 0; at < order.size(); ++at) replaceOperands(lives, *order[at], at);
  std::vector<std::int64_t> change(order.size() + 2);
  for (const auto& [value, life] : lives) {
    change[life.begin] += life.bytes;
    change[life.end + 1] -= life.bytes;
  }
  Peak peak;
  std::int64_t alive = 0;
  for (std::size_t at = 0; at < order.size(); ++at) {
    alive += change[at];
    if (alive > peak.bytes) peak = {at, alive};
  }
  return peak;
}

/// While a collective is under way, a member computes gradients of weights (HideCollectives.cpp). They move where more
/// would be alive than if all moved.
Order orderOfTeam(const Graph& graph, Reordering& reordering) {
  const std::int64_t most = peakOf(graph, reordering.order(nullptr)).bytes;
  for (Moved moved;;) {
    Order order = reordering.order(&moved);
    const Peak peak = peakOf(graph, order);
    const auto late = std::find_if(order.begin() + static_cast<std::ptrdiff_t>(peak.at), order.end(), [&](auto* each) {
      return each->phase == Phase::weightGradient && !moved.contains(each);
    });
    if (peak.bytes <= most || late == order.end()) return order;
    moved.insert(*late);
  }
}

} // namespace

void pdc::computeWeightGradientsEarly(Graph& stage, bool afterReaders) {
  Reordering reordering(stage, afterReaders);
  stage.reorder(stage.team.members > 1 ? orderOfTeam(stage, reordering) : reordering.order(nullptr));
}
