#include "AnnotatedStages.h"

#include "pdc/Support/Names.h"

#include <algorithm>
#include <charconv>
#include <map>

using namespace pdc;

namespace {

constexpr int unknown = -1;

class Reader {
public:
  Reader(const StagesOfFile& from, const CostGraph& costs, Diagnostics& diags)
      : from_(from), costs_(costs), diags_(diags), stages_(costs.nodes.size(), unknown), says_(costs.nodes.size()) {}

  Expected<std::vector<int>> run() {
    if (!readMetadata() || !readNodes() || !readColours()) return failure;
    if (std::ranges::all_of(stages_, [](int stage) { return stage == unknown; })) return std::vector<int>();
    fill();
    for (const CostTensor& tensor : costs_.tensors)
      for (const std::int64_t to : tensor.to)
        if (of(to) < of(tensor.from))
          return diags_.error(at(nodeOf(to)))
                     .help("stages are numbered in the order in which a minibatch goes through them")
                 << "is in stage " << of(to) << ", but reads what '" << nodeOf(tensor.from) << "' makes in stage "
                 << of(tensor.from);
    return std::move(stages_);
  }

private:
  int& of(std::int64_t group) { return stages_[static_cast<std::size_t>(group)]; }
  Location at(const std::string& node) const { return {.file = from_.path, .node = node}; }
  /// Who says the stage of the group, or what the group is called.
  const std::string& nodeOf(std::int64_t group) const {
    const auto g = static_cast<std::size_t>(group);
    return says_[g].empty() ? costs_.nodes[g].name : says_[g];
  }

  Status readMetadata() {
    if (from_.configuration != ownConfiguration) return success;
    const std::vector<std::string> names = uniqueNames(costs_);
    for (std::size_t g = 0; g < names.size(); ++g) {
      const auto found = from_.file.metadata.find(groupMetadata + names[g]);
      if (found == from_.file.metadata.end()) continue;
      const std::string& text = found->second;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), stages_[g]);
      if (error != std::errc() || end != text.data() + text.size() || stages_[g] < 0)
        return diags_.error(at("")).help("write the annotations again")
               << "the metadata '" << found->first << "' is '" << text << "', expected a stage";
      fromMetadata_.insert(static_cast<int>(g));
    }
    return success;
  }

  Status readNodes() {
    for (std::size_t i = 0; i < from_.file.nodes.size(); ++i) {
      const std::optional<std::int32_t> stage = from_.of(i);
      if (!stage) continue;
      const std::string& name = from_.file.nodes[i].name;
      for (const int group : from_.places.groups[i]) {
        if (fromMetadata_.contains(group)) continue;
        if (of(group) != unknown && of(group) != *stage)
          return diags_.error(at(name)).help("give both one stage: fusion groups cannot be cut")
                 << "is in stage " << *stage << ", but '" << nodeOf(group)
                 << "', which is computed together with it, is in stage " << of(group);
        if (of(group) == unknown) says_[static_cast<std::size_t>(group)] = name;
        of(group) = *stage;
      }
    }
    return success;
  }

  Status readColours() {
    std::map<std::int64_t, std::int64_t> first; // group of each colour that has a stage
    for (std::size_t g = 0; g < stages_.size(); ++g) {
      const std::int64_t colour = costs_.nodes[g].colour;
      if (colour < 0 || stages_[g] == unknown) continue;
      const std::int64_t other = first.emplace(colour, g).first->second;
      if (of(other) != stages_[g])
        return diags_.error(at(nodeOf(static_cast<std::int64_t>(g)))).help("give both one stage")
               << "is in stage " << stages_[g] << ", but '" << nodeOf(other)
               << "', with which it shares a parameter that must stay in one stage, is in stage " << of(other);
    }
    for (std::size_t g = 0; g < stages_.size(); ++g)
      if (const auto found = first.find(costs_.nodes[g].colour); found != first.end()) stages_[g] = of(found->second);
    return success;
  }

  /// Groups are in program order, which is topological.
  void fill() {
    std::vector<std::vector<std::int64_t>> reads(stages_.size()), readers(stages_.size());
    for (const CostTensor& tensor : costs_.tensors)
      for (const std::int64_t to : tensor.to) {
        reads[static_cast<std::size_t>(to)].push_back(tensor.from);
        readers[static_cast<std::size_t>(tensor.from)].push_back(to);
      }
    std::vector<char> isFree(stages_.size());
    for (std::size_t g = 0; g < stages_.size(); ++g) {
      if (stages_[g] != unknown) continue;
      for (const std::int64_t from : reads[g]) stages_[g] = std::max(stages_[g], of(from));
    }
    for (std::size_t g = stages_.size(); g-- > 0;) {
      if (stages_[g] != unknown) continue;
      for (const std::int64_t to : readers[g])
        if (of(to) != unknown && (stages_[g] == unknown || of(to) < stages_[g])) stages_[g] = of(to);
    }
    int least = *std::ranges::max_element(stages_);
    for (const int stage : stages_)
      if (stage != unknown) least = std::min(least, stage);
    for (int& stage : stages_)
      if (stage == unknown) stage = least;
  }

  const StagesOfFile& from_;
  const CostGraph& costs_;
  Diagnostics& diags_;
  std::vector<int> stages_;
  std::vector<std::string> says_; ///< by group: the node that has said its stage
  std::set<int> fromMetadata_;
};

} // namespace

std::optional<std::int32_t> StagesOfFile::of(std::size_t node) const {
  for (const NodeConfiguration& each : file.nodes[node].configurations)
    if (each.configuration == configuration && each.stage) return each.stage;
  return std::nullopt;
}

std::vector<std::string> pdc::uniqueNames(const CostGraph& costs) {
  std::map<std::string, int> counts;
  std::vector<std::string> names;
  for (const CostNode& node : costs.nodes) {
    const int count = ++counts[node.name];
    names.push_back(node.name + (count > 1 ? " (" + std::to_string(count) + ")" : ""));
  }
  return names;
}

Expected<std::vector<int>> pdc::stagesOfGroups(const StagesOfFile& stages, const CostGraph& costs, Diagnostics& diags) {
  return Reader(stages, costs, diags).run();
}

void pdc::warnOfNodesElsewhere(const StagesOfFile& stages, const std::vector<int>& stageOfGroup, Diagnostics& diags) {
  const std::vector<AnnotatedNode>& nodes = stages.file.nodes;
  const std::vector<int> computed = stagesOfNodes(stages.file, stages.places, stageOfGroup);
  std::map<std::string, int> made; // stage of each value
  for (std::size_t i = 0; i < nodes.size(); ++i)
    for (const std::string& output : nodes[i].outputs) made[output] = computed[i];
  std::int64_t count = 0;
  std::size_t example = 0;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const std::optional<std::int32_t> stage = stages.of(i);
    if (!stage || !stages.places.groups[i].empty()) continue;
    // Between what it reads and what reads it, any stage is as good.
    int last = 0;
    for (const std::string& name : nodes[i].reads)
      if (const auto found = made.find(name); found != made.end()) last = std::max(last, found->second);
    if (*stage <= computed[i] && *stage >= std::min(last, computed[i])) continue;
    if (count++ == 0) example = i;
  }
  if (count > 0)
    diags.warning({.file = stages.path, .node = nodes[example].name})
        << counted(count, "node") << (count == 1 ? " is a part" : " are parts")
        << " of operations in other stages than the file says: this one is annotated with stage " << *stages.of(example)
        << " and computed in stage " << computed[example];
}
