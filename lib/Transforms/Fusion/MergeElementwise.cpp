// Merges elementwise operations, greedily in program order.
//
// Operations of one group and phase are clustered along the edges between them. Two clusters may become one unless
// another path leads from the first to the second (the merged operation would wait for itself); such a path stays
// inside the group and phase, so the search is short. At the end each cluster becomes one operation.
#include "MergeElementwise.h"

#include "GroupOrder.h"

#include "pdc/IR/Builder.h"
#include "pdc/IR/Elementwise.h"
#include "pdc/Support/Units.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <queue>

using namespace pdc;

/// Expressions with more nodes than this are not put into others: a value that is used twice is computed twice.
static constexpr std::size_t maxExpressionNodes = 96;

static const std::string expressionsAttribute = "expressions";

static std::size_t nodesOf(const Expression& e) {
  std::size_t nodes = 1;
  for (const ExpressionPtr& argument : e.arguments) nodes += nodesOf(*argument);
  return nodes;
}

namespace {

using Cluster = std::vector<Operation*>; ///< in program order

/// What a cluster becomes.
struct Merged {
  std::vector<Value*> operands;
  std::vector<Value*> results; ///< those of the members that others need
  std::vector<std::string> expressions;
};

class Merging {
public:
  Merging(PassContext& context, Graph& graph)
      : context_(context), graph_(graph), generic_(*context.registry.find("elementwise")),
        remarks_(context.options.contains("remarks")) {}
  Status run();

private:
  void dropIdentityViews();
  void cluster(Phase phase);
  bool canMerge(const Operation& operation) const;
  bool otherPath(std::size_t from, std::size_t to) const;
  std::string join(const Operation& producer, const Operation& user);
  void remarkFused(const Cluster& members, const Merged& merged) const;
  std::optional<Merged> combine(const Cluster& members, bool inlineConstants) const;
  std::optional<Merged> combine(const Cluster& members) const;
  Status replace(const Cluster& members);
  void sortTopologically();

  bool sameBucket(const Operation& a, const Operation& b) const { return a.group == b.group && a.phase == b.phase; }

  PassContext& context_;
  Graph& graph_;
  const OpDef& generic_;
  const bool remarks_;
  const GroupOrder order_{graph_};
  std::vector<Cluster> clusters_;
  std::unordered_map<const Operation*, std::size_t> clusterOf_; ///< of operations that can merge
  Positions positions_;
};

} // namespace

static bool isIdentityView(const Operation& operation) {
  return operation.def().kind == OpKind::view && operation.operand(0)->type() == operation.result()->type();
}

/// `differentiate` marks gradients that pass through an operation with views. A view is not needed when it is used in
/// its own group only, or when it stands for a value of its group that nothing outside it uses otherwise.
void Merging::dropIdentityViews() {
  auto inGroup = [](const Value& value, int group, const Operation* except) {
    return std::all_of(value.users().begin(), value.users().end(), [&](const Operation* user) {
      return user == except || (user->group == group && !(except && isIdentityView(*user)));
    });
  };
  for (bool alsoLeaving : {false, true}) {
    std::vector<Operation*> views;
    for (const auto& operation : graph_.operations())
      if (isIdentityView(*operation) && !graph_.isOutput(operation->result())) views.push_back(operation.get());
    for (Operation* view : views) {
      Value *value = view->operand(0), *result = view->result();
      const Operation* definer = value->definer();
      const bool stays = inGroup(*result, view->group, nullptr);
      const bool onlyWayOut =
          definer && definer->group == view->group && inGroup(*value, view->group, view) && !graph_.isOutput(value);
      if (!stays && !(alsoLeaving && onlyWayOut)) continue;
      const std::string name = result->name();
      graph_.replaceAllUses(result, value);
      graph_.erase(view);
      if (!stays) graph_.rename(value, name);
    }
  }
}

static bool isUpTo32Bits(const Value& value) {
  return value.type().element == ElementType::f32 || isLowPrecision(value.type().element);
}

/// From one float type to another, which an expression can say.
static bool converts(const Operation& operation) {
  return operation.operands().size() == 1 && operation.results().size() == 1 && operation.operand(0) &&
         isUpTo32Bits(*operation.operand(0)) && isUpTo32Bits(*operation.result()) &&
         operation.operand(0)->type().element != operation.result()->type().element &&
         operation.operand(0)->type().layout == operation.result()->type().layout;
}

/// Floats of one type, or a conversion between two; booleans only between the members or from outside.
bool Merging::canMerge(const Operation& operation) const {
  if (operation.def().kind != OpKind::elementwise || operation.operands().empty()) return false;
  if (converts(operation)) return true;
  const Value* first = operation.result();
  std::optional<ElementType> element;
  auto fits = [&](const Value* value) {
    if (!value || value->type().layout != first->type().layout) return false;
    if (value->type().element == ElementType::boolean) return true;
    if (!element) element = value->type().element;
    return isFloat(value->type().element) && value->type().element == *element;
  };
  const auto &operands = operation.operands(), &results = operation.results();
  return std::all_of(operands.begin(), operands.end(), fits) && std::all_of(results.begin(), results.end(), fits);
}

/// Whether something leads from cluster `from` to cluster `to` by way of an operation in neither.
bool Merging::otherPath(std::size_t from, std::size_t to) const {
  std::vector<const Operation*> open(clusters_[from].begin(), clusters_[from].end());
  std::unordered_set<const Operation*> seen(open.begin(), open.end());
  const std::size_t starts = open.size();
  for (std::size_t i = 0; i < open.size(); ++i)
    for (const Value* result : open[i]->results()) {
      if (!result) continue;
      for (const Operation* user : result->users()) {
        if (!sameBucket(*user, *open[i])) continue;
        const auto cluster = clusterOf_.find(user);
        const bool reached = cluster != clusterOf_.end() && cluster->second == to;
        if (reached && i >= starts) return true;
        if (reached || !seen.insert(user).second) continue;
        open.push_back(user);
        if (cluster == clusterOf_.end()) continue;
        for (const Operation* member : clusters_[cluster->second])
          if (seen.insert(member).second) open.push_back(member);
      }
    }
  return false;
}

std::optional<Merged> Merging::combine(const Cluster& members, bool inlineConstants) const {
  Merged merged;
  std::unordered_map<const Value*, ExpressionPtr> inside;
  auto expressionFor = [&](Value* value) -> ExpressionPtr {
    if (auto it = inside.find(value); it != inside.end()) return it->second;
    Expression leaf;
    const std::optional<Tensor> constant = inlineConstants ? Builder::constantValue(value) : std::nullopt;
    if (constant && constant->elements() == 1 && std::isfinite(constant->asDouble(0)) &&
        constant->type().element != ElementType::boolean) {
      leaf.number = constant->asDouble(0);
    } else {
      leaf.kind = Expression::Kind::name;
      leaf.symbol = "a" + std::to_string(merged.operands.size());
      merged.operands.push_back(value);
    }
    return inside[value] = std::make_shared<const Expression>(std::move(leaf));
  };

  const std::unordered_set<const Operation*> own(members.begin(), members.end());
  std::vector<Type> types;
  for (const Operation* member : members) {
    const std::vector<ExpressionPtr> expressions = expressionsOf(*member);
    std::map<std::string, ExpressionPtr> operands;
    for (std::size_t i = 0; i < member->operands().size(); ++i)
      operands[operandNameInExpressions(member->def(), i)] = expressionFor(member->operand(i));
    for (std::size_t i = 0; i < member->results().size(); ++i) {
      Value* result = member->result(i);
      ExpressionPtr whole = substitute(expressions[i], [&](const std::string& name) { return operands.at(name); });
      if (converts(*member))
        whole = std::make_shared<const Expression>(
            Expression{.kind = Expression::Kind::call, .symbol = nameOf(result->type().element), .arguments = {whole}});
      if (nodesOf(*whole) > maxExpressionNodes) return {};
      inside[result] = whole;
      const bool needed =
          graph_.isOutput(result) || std::any_of(result->users().begin(), result->users().end(),
                                                 [&](const Operation* user) { return !own.contains(user); });
      if (!needed) continue;
      merged.results.push_back(result);
      merged.expressions.push_back(toString(*whole));
      types.push_back(result->type());
    }
  }

  Attributes attributes{{expressionsAttribute, merged.expressions}};
  Diagnostics silent(nullptr);
  InferContext inference{.attributes = attributes, .location = {}, .diags = silent};
  for (const Value* operand : merged.operands) inference.operands.push_back(&operand->type());
  if (merged.operands.empty()) return {};
  const Expected<std::vector<Type>> inferred = inferElementwise(generic_, inference);
  if (!inferred || *inferred != types) return {};
  return merged;
}

std::optional<Merged> Merging::combine(const Cluster& members) const {
  std::optional<Merged> merged = combine(members, true);
  return merged ? merged : combine(members, false);
}

void Merging::cluster(Phase phase) {
  clusters_.clear();
  clusterOf_.clear();
  for (const auto& operation : graph_.operations()) {
    if (operation->phase != phase || !canMerge(*operation)) continue;
    if (order_.isBelowItsOperands(*operation)) {
      clusterOf_[operation.get()] = clusters_.size();
      clusters_.push_back({operation.get()});
    } else if (remarks_) {
      context_.diags.remark(operation->location)
          << "'" << operation->def().name << "' of '%" << operation->result()->name()
          << "' is not fused: in which stage gradients of parallel branches are added depends on the cut";
    }
  }
  for (const auto& operation : graph_.operations()) {
    if (!clusterOf_.contains(operation.get())) continue;
    for (const Value* operand : operation->operands()) {
      const Operation* producer = operand->definer();
      if (!producer || producer->def().kind != OpKind::elementwise || producer->phase != phase) continue;
      const std::string obstacle = join(*producer, *operation);
      if (!obstacle.empty() && remarks_)
        context_.diags.remark(operation->location)
            << "'" << operation->def().name << "' is not fused with '" << producer->def().name << "', which makes '%"
            << operand->name() << "': " << obstacle;
    }
  }
}

/// Makes the clusters of `producer` and of `user`, which reads it, one. Returns why that cannot be; nothing if they are
/// one.
std::string Merging::join(const Operation& producer, const Operation& user) {
  if (!clusterOf_.contains(&producer)) return "only floats are, and conversions between them";
  if (!sameBucket(producer, user)) return "the model may be cut between them";
  const std::size_t from = clusterOf_.at(&producer), to = clusterOf_.at(&user);
  if (from == to) return {};
  const Shape &made = producer.result()->type().shape, &wanted = user.result()->type().shape;
  if (made != wanted) return "one is computed for " + toString(made) + ", the other for " + toString(wanted);
  if (otherPath(from, to)) return "an operation of another kind reads the one and is read by the other";
  Cluster both;
  std::merge(clusters_[from].begin(), clusters_[from].end(), clusters_[to].begin(), clusters_[to].end(),
             std::back_inserter(both),
             [&](const Operation* a, const Operation* b) { return positions_.at(a) < positions_.at(b); });
  if (!combine(both))
    return "an expression would have more than " + std::to_string(maxExpressionNodes) + " terms, or another type";
  for (const Operation* member : clusters_[to]) clusterOf_[member] = from;
  clusters_[from] = std::move(both);
  clusters_[to].clear();
  return {};
}

static Location joinedLocation(const Cluster& members) {
  Location joined = members.front()->location;
  std::vector<std::string> nodes{joined.node};
  for (const Operation* member : members) {
    const std::string& node = member->location.node;
    if (std::find(nodes.begin(), nodes.end(), node) != nodes.end()) continue;
    nodes.push_back(node);
    joined.node += (joined.node.empty() ? "" : ", ") + node;
  }
  return joined;
}

/// What is in one pass now, and what that does not write and read again.
void Merging::remarkFused(const Cluster& members, const Merged& merged) const {
  std::string names;
  std::int64_t bytes = 0;
  for (const Operation* member : members) {
    names += (names.empty() ? "'" : ", '") + member->def().name + "'";
    for (const Value* result : member->results())
      if (std::find(merged.results.begin(), merged.results.end(), result) == merged.results.end())
        bytes += result->type().bytes();
  }
  context_.diags.remark(joinedLocation(members))
      << "fused " << names << ": one pass, which does not store " << sizeText(bytes);
}

Status Merging::replace(const Cluster& members) {
  const std::optional<Merged> merged = combine(members);
  if (!merged) return success;
  if (members.size() == 1 && merged->operands == members[0]->operands()) return success; // nothing was gained
  if (members.size() > 1 && remarks_) remarkFused(members, *merged);

  Builder builder(context_.module, graph_, context_.registry, context_.diags);
  builder.setLocation(joinedLocation(members));
  Operation* origin = members[0]->origin();
  for (const Operation* member : members)
    if (origin && positions_.at(member->origin()) < positions_.at(origin)) origin = member->origin();
  builder.setPhase(members[0]->phase, origin);
  builder.setGroup(members[0]->group);
  Operation* made = builder.create("elementwise", merged->operands, {{expressionsAttribute, merged->expressions}});
  if (!made) return failure;
  positions_[made] = positions_.at(members.back());

  std::vector<std::string> names;
  for (std::size_t i = 0; i < merged->results.size(); ++i) {
    names.push_back(merged->results[i]->name());
    graph_.replaceAllUses(merged->results[i], made->result(i));
  }
  for (Operation* member : members) member->giveDerivedTo(*made);
  for (auto member = members.rbegin(); member != members.rend(); ++member) graph_.erase(*member);
  for (std::size_t i = 0; i < names.size(); ++i) graph_.rename(made->result(i), names[i]);
  return success;
}

/// The topological order that is nearest to the old one: a merged operation stands where its last member stood.
void Merging::sortTopologically() {
  auto later = [&](const Operation* a, const Operation* b) { return positions_.at(a) > positions_.at(b); };
  std::priority_queue<Operation*, std::vector<Operation*>, decltype(later)> ready(later);
  std::unordered_map<const Operation*, std::size_t> waiting;
  for (const auto& operation : graph_.operations()) {
    std::size_t& count = waiting[operation.get()];
    for (const Value* operand : operation->operands()) count += operand && operand->definer();
    if (count == 0) ready.push(operation.get());
  }
  std::vector<Operation*> order;
  while (!ready.empty()) {
    Operation* operation = ready.top();
    ready.pop();
    order.push_back(operation);
    for (const Value* result : operation->results())
      if (result)
        for (Operation* user : result->users())
          if (--waiting.at(user) == 0) ready.push(user);
  }
  graph_.reorder(order);
}

Status Merging::run() {
  dropIdentityViews();
  positions_ = positionsOf(graph_);
  for (Phase phase : {Phase::forward, Phase::inputGradient, Phase::weightGradient}) {
    cluster(phase);
    for (const Cluster& members : clusters_)
      if (!members.empty() && !replace(members)) return failure;
  }
  sortTopologically();
  eraseDeadOperations(graph_);
  return success;
}

Status pdc::mergeElementwise(PassContext& context, Graph& graph) {
  return Merging(context, graph).run();
}
