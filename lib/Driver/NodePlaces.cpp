#include "NodePlaces.h"

#include "pdc/IR/OpDef.h"

#include <algorithm>
#include <map>

using namespace pdc;

namespace {

/// Finds nodes by what locations of operations say.
class Names {
public:
  explicit Names(const DeviceAnnotations& file) {
    for (std::size_t i = 0; i < file.nodes.size(); ++i) {
      byName_[file.nodes[i].name].push_back(i);
      if (file.nodes[i].isScope) scopes_[file.nodes[i].name].push_back(i);
    }
  }

  /// The nodes at a location, which may be those of several operations in a row: "a, b". The last ones come last.
  std::vector<std::size_t> at(const std::string& location) const {
    if (const std::vector<std::size_t>* found = named(location)) return *found;
    std::vector<std::size_t> nodes;
    for (std::size_t begin = 0; begin <= location.size();) {
      const std::size_t end = std::min(location.find(", ", begin), location.size());
      if (const std::vector<std::size_t>* found = named(location.substr(begin, end - begin)))
        nodes.insert(nodes.end(), found->begin(), found->end());
      begin = end + 2;
    }
    return nodes;
  }

private:
  /// The node itself, or the one in whose function or body it is.
  const std::vector<std::size_t>* named(const std::string& name) const {
    if (const auto found = byName_.find(name); found != byName_.end()) return &found->second;
    for (std::size_t slash = name.find('/'); slash != std::string::npos; slash = name.find('/', slash + 1))
      if (const auto scope = scopes_.find(name.substr(0, slash)); scope != scopes_.end()) return &scope->second;
    return nullptr;
  }

  std::map<std::string, std::vector<std::size_t>> byName_, scopes_;
};

} // namespace

NodePlaces pdc::placesOf(const DeviceAnnotations& file, const Graph& main) {
  NodePlaces places{.groups = std::vector<std::set<int>>(file.nodes.size()),
                    .values = std::vector<std::string>(file.nodes.size())};
  const Names names(file);
  std::vector<const Value*> made(file.nodes.size()); // so far, of several operations that a node is made of
  std::set<std::size_t> branched;                    // nodes of which these are no chain
  for (const auto& operation : main.operations()) {
    if (operation->group < 0 || operation->phase != Phase::forward || operation->def().kind == OpKind::constant)
      continue; // each group has its own copy of a constant
    const std::vector<std::size_t> nodes = names.at(operation->location.node);
    for (const std::size_t node : nodes) places.groups[node].insert(operation->group);
    if (nodes.empty() || !operation->result()) continue;
    const Value*& last = made[nodes.back()];
    if (last && std::ranges::count(operation->operands(), last) == 0) branched.insert(nodes.back());
    last = operation->result();
  }
  for (std::size_t i = 0; i < file.nodes.size(); ++i)
    if (made[i] && !file.nodes[i].isScope && !branched.contains(i)) places.values[i] = made[i]->name();
  return places;
}

std::vector<int> pdc::stagesOfNodes(const DeviceAnnotations& file, const NodePlaces& places,
                                    const std::vector<int>& stageOfGroup) {
  constexpr int unknown = -1;
  const std::size_t count = file.nodes.size();
  std::vector<int> stages(count, unknown);
  std::map<std::string, std::size_t> maker;
  std::vector<std::vector<std::size_t>> readers(count), makers(count);
  for (std::size_t i = 0; i < count; ++i) {
    for (const std::string& output : file.nodes[i].outputs)
      if (!output.empty()) maker[output] = i;
    for (const int group : places.groups[i])
      stages[i] = std::max(stages[i], stageOfGroup[static_cast<std::size_t>(group)]);
  }
  for (std::size_t i = 0; i < count; ++i)
    for (const std::string& name : file.nodes[i].reads)
      if (const auto found = maker.find(name); found != maker.end()) {
        readers[found->second].push_back(i);
        makers[i].push_back(found->second);
      }
  const std::vector<int> known = stages;
  // Files are in topological order but for odd ones, which need more rounds.
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t i = count; i-- > 0;) {
      if (known[i] != unknown) continue;
      int first = unknown;
      for (const std::size_t reader : readers[i])
        if (stages[reader] != unknown && (first == unknown || stages[reader] < first)) first = stages[reader];
      changed |= first != unknown && first != stages[i];
      if (first != unknown) stages[i] = first;
    }
  }
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t i = 0; i < count; ++i)
      for (const std::size_t from : makers[i])
        if (known[i] == unknown && std::ranges::none_of(readers[i], [&](auto r) { return stages[r] != unknown; }) &&
            stages[from] > stages[i])
          stages[i] = stages[from], changed = true;
  }
  for (int& stage : stages) stage = std::max(stage, 0);
  return stages;
}
