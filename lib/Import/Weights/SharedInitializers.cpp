#include "Weights/SharedInitializers.h"

#include "EqualInitializers.h"
#include "Operators.h"
#include "ProgramOrder.h"
#include "Weights/ExportedProgram.h"
#include "Weights/InitializerRules.h"
#include "pdc/IR/OpDef.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>

using namespace pdc;

namespace {

/// How PyTorch calls inputs 1 to 4 of BatchNormalization.
constexpr std::array<const char*, 5> batchNormRoles = {"", "weight", "bias", "running_mean", "running_var"};

/// How modules call the parameter that a node reads as input `input`; empty: it varies.
std::string roleOf(const onnx::NodeProto& node, int input) {
  const std::string& type = node.op_type();
  if (isBatchNormalization(node)) return input < 5 ? batchNormRoles[static_cast<std::size_t>(input)] : "";
  if (type == "Mul") return "weight";
  if (type == "Add") return "bias";
  if (type == "LayerNormalization" || type == "RMSNormalization" || type == "Gemm" || type == "Conv" ||
      type == "ConvTranspose" || type == "InstanceNormalization" || type == "GroupNormalization")
    return input == 1 ? "weight" : input == 2 ? "bias" : "";
  return "";
}

/// "weight_ih_l" of "rnn.weight_ih_l0": what one layer calls its first parameter, another may call its second.
std::string kindOf(const std::string& parameter) {
  const std::string leaf = leafOf(parameter);
  return leaf.substr(0, leaf.find_last_not_of("0123456789") + 1);
}

class Parting {
public:
  Parting(const OnnxFile& file, TensorReader& reader) : file_(file), reader_(reader), program_(file) {
    const onnx::GraphProto& graph = file.graph();
    for (int i = 0; i < graph.initializer_size(); ++i) {
      const std::optional<ElementType> element = elementTypeFromOnnx(graph.initializer(i).data_type());
      if (element && isFloat(*element)) initializers_[graph.initializer(i).name()] = i;
      taken_.insert(graph.initializer(i).name());
    }
    for (const onnx::ValueInfoProto& input : graph.input()) taken_.insert(input.name());
    for (int n = 0; n < graph.node_size(); ++n) {
      taken_.insert(graph.node(n).output().begin(), graph.node(n).output().end());
      for (int k = 0; k < graph.node(n).input_size(); ++k)
        if (const auto found = initializers_.find(graph.node(n).input(k)); found != initializers_.end())
          uses_[found->second].push_back({n, k});
    }
  }

  PartedInputs run() {
    for (const auto& [initializer, uses] : uses_)
      if (uses.size() > 1 && program_.isKnown()) partByModule(initializer, uses);
    partBatchNorms();
    std::sort(result_.inputs.begin(), result_.inputs.end(), [](const PartedInput& a, const PartedInput& b) {
      return std::tie(a.node, a.input) < std::tie(b.node, b.input);
    });
    return std::move(result_);
  }

private:
  struct Use {
    int node, input;
  };
  const onnx::NodeProto& nodeOf(const Use& use) const { return file_.graph().node(use.node); }
  const std::string& nameOf(int initializer) const { return file_.graph().initializer(initializer).name(); }
  bool isOneNumber(int initializer) {
    const auto [known, isNew] = oneNumber_.try_emplace(initializer, false);
    if (isNew)
      if (Expected<StoredTensor> tensor = reader_.initializer(initializer))
        known->second = tensor->type.rank() > 0 && holdsOneNumber(file_, *tensor);
    return known->second;
  }

  // By module.

  void partByModule(int initializer, const std::vector<Use>& uses) {
    const std::string& name = nameOf(initializer);
    const std::vector<std::string> sources = program_.sourcesOf(name);
    // The name in the module of what the file stores.
    const std::string own = sources.size() == 1 ? sources.front() : name;
    bool isClaimed = false; // by a node of its module
    for (const Use& use : uses) {
      const ModuleScope scope = scopeOf(nodeOf(use));
      if (scope.className.empty()) continue;
      const std::string path = scope.path.empty() ? "" : scope.path + ".";
      const std::string target = path + roleOf(nodeOf(use), use.input);
      const std::vector<std::string> reads = program_.readsOf(nodeOf(use));
      if (!reads.empty() && !isInsideGroupNorm(nodeOf(use))) {
        give(use, initializer, meantBy(reads, sources.empty() ? std::vector{name} : sources, target));
        continue;
      }
      if (!isOneNumber(initializer)) continue; // it is one parameter that several modules have
      if (isInsideGroupNorm(nodeOf(use))) {
        if (program_.isParameter(own)) add(use, initializer, path + roleOf(nodeOf(use), use.input) + ".constant", {});
      } else if (target == own) {
        isClaimed = true;
      } else if (isLacking(target)) {
        // Of tied parameters the file has the last.
        if (program_.placeOf(target) > program_.placeOf(own) || program_.isBuffer(target))
          give(use, initializer, {target});
      } else if (!program_.isParameter(own)) {
        continue; // a constant
      } else if (moduleOf(own) == scope.path && !isClaimed) {
        isClaimed = true;
      } else if (const std::string other = firstLacking(scope.path, own); !other.empty()) {
        give(use, initializer, {other});
        assigned_.insert(other);
      }
    }
  }

  /// Which of the values that an operation of PyTorch reads an input with the initializer of `owns` is: those that the
  /// file lacks, and that its module calls as their modules call `owns`. `target`: by the role of the input. Empty: it
  /// is `owns`, or none.
  std::vector<std::string> meantBy(const std::vector<std::string>& reads, const std::vector<std::string>& owns,
                                   const std::string& target) const {
    const auto isRead = [&](const std::string& name) {
      return std::find(reads.begin(), reads.end(), name) != reads.end();
    };
    const bool isOwn = owns.size() == 1 && owns.front() == target;
    if (!isOwn && isRead(target) && isLacking(target)) return {target};
    if (std::any_of(owns.begin(), owns.end(), isRead)) return {};
    std::vector<std::string> meant;
    for (const std::string& own : owns)
      for (const std::string& read : reads)
        if (isLacking(read) && kindOf(read) == kindOf(own)) meant.push_back(read);
    if (!meant.empty()) return meant;
    if (!program_.isParameter(owns.front())) return {}; // a constant of the operation
    std::vector<std::string> lacking;
    for (const std::string& read : reads)
      if (isLacking(read)) lacking.push_back(read);
    return lacking.size() == 1 ? lacking : std::vector<std::string>();
  }

  bool isLacking(const std::string& target) const {
    return (program_.isParameter(target) || program_.isBuffer(target)) && !program_.isInFile(target);
  }

  /// A parameter of the module at `path` that the file lacks and that no input has got yet.
  std::string firstLacking(const std::string& path, const std::string& own) const {
    for (const std::string& name : program_.names())
      if (program_.isParameter(name) && moduleOf(name) == path && isLacking(name) && !assigned_.contains(name) &&
          program_.placeOf(name) > program_.placeOf(own))
        return name;
    return "";
  }

  /// A parameter that is stored in another form does not get its name in the module.
  void give(const Use& use, int initializer, const std::vector<std::string>& targets) {
    if (targets.empty()) return;
    const std::string& name = nameOf(initializer);
    if (program_.isParameter(name) || program_.isBuffer(name)) {
      add(use, initializer, targets.front(), {});
    } else {
      const bool isFolded = program_.isParameter(targets.front());
      add(use, initializer, name + "." + targets.front(), isFolded ? targets : std::vector<std::string>());
    }
  }

  // BatchNormalization.

  /// The initializers of scale, bias, mean and variance; -1: another value.
  using Four = std::array<int, 4>;

  Four fourOf(const onnx::NodeProto& node) const {
    Four four = {-1, -1, -1, -1};
    for (int k = 1; k < std::min(node.input_size(), 5); ++k)
      if (const auto found = initializers_.find(node.input(k)); found != initializers_.end())
        four[static_cast<std::size_t>(k - 1)] = found->second;
    return four;
  }

  bool areEqual(int a, int b) {
    if (a == b || a < 0 || b < 0) return a == b;
    Expected<StoredTensor> first = reader_.initializer(a), second = reader_.initializer(b);
    return first && second && haveEqualElements(file_, *first, *second);
  }

  enum class Sharing { oneLayer, several, unclear };
  /// Whether nodes that have all four initializers in common are one layer, applied several times.
  Sharing sharingOf(const Four& four) {
    for (int i : four)
      if (i >= 0 && !isOneNumber(i)) return Sharing::oneLayer;
    const auto [scale, bias, mean, variance] = four;
    // Nobody has merged equal initializers where equal ones are apart.
    const bool merged = scale == variance || bias == mean;
    const bool apart = (scale != variance && areEqual(scale, variance)) || (bias != mean && areEqual(bias, mean));
    return merged ? Sharing::unclear : apart ? Sharing::oneLayer : Sharing::unclear;
  }

  void partBatchNorms() {
    std::map<Four, int> firstWith; // these initializers
    for (int n = 0; n < file_.graph().node_size(); ++n) {
      const onnx::NodeProto& node = file_.graph().node(n);
      if (!isBatchNormalization(node)) continue;
      const Four four = fourOf(node);
      const auto [known, isNew] = firstWith.emplace(four, n);
      layers_[n] = known->second;
      if (isNew) continue;
      const std::string path = scopeOf(node).path, former = scopeOf(file_.graph().node(known->second)).path;
      const bool isSaid = !path.empty() || !former.empty();
      const Sharing sharing = !isSaid ? sharingOf(four) : path == former ? Sharing::oneLayer : Sharing::several;
      if (sharing != Sharing::oneLayer) layers_[n] = n;
      if (sharing == Sharing::unclear) result_.guessed.push_back(nameOfNode(node));
    }
    for (const auto& [node, layer] : layers_) partRoles(node, layer);
  }

  void partRoles(int n, int layer) {
    const Four four = fourOf(file_.graph().node(n));
    for (int k = 1; k <= 4; ++k) {
      const int initializer = four[static_cast<std::size_t>(k - 1)];
      if (initializer < 0 || isParted({n, k})) continue;
      const Owner keeper = keeperOf(initializer);
      if (keeper == Owner{layer, k}) continue;
      // Numbers that differ are shared on purpose, but for different purposes nobody shares them.
      if ((keeper.second > 0 && keeper.second != k) || isOneNumber(initializer))
        add({n, k}, initializer, baseOf(layer) + "." + batchNormRoles[static_cast<std::size_t>(k)], {});
    }
  }

  /// How the module of a layer is called, or else its node.
  std::string baseOf(int layer) {
    const onnx::NodeProto& node = file_.graph().node(layer);
    if (const std::string path = scopeOf(node).path; !path.empty()) return path;
    for (int initializer : fourOf(node))
      if (initializer >= 0 && keeperOf(initializer).first == layer && !moduleOf(nameOf(initializer)).empty())
        return moduleOf(nameOf(initializer));
    return nameOfNode(node);
  }

  /// What an input is for: role 1 to 4 of the layer whose first node is `first`; anything else is {-1, 0}.
  using Owner = std::pair<int, int>;

  /// Who keeps an initializer: what it is called after, else the first use that is no statistic, else the first.
  Owner keeperOf(int initializer) {
    const auto [known, isNew] = keepers_.try_emplace(initializer, Owner{-1, 0});
    if (!isNew) return known->second;
    const std::string& name = nameOf(initializer);
    const std::string leaf = name.substr(name.rfind('.') + 1);
    std::vector<Owner> owners;
    for (const Use& use : uses_[initializer]) {
      if (isParted(use)) continue;
      const bool isRole = isBatchNormalization(nodeOf(use)) && use.input >= 1 && use.input <= 4;
      owners.push_back(isRole ? Owner{layers_.at(use.node), use.input} : Owner{-1, 0});
      if (isRole && leaf == batchNormRoles[static_cast<std::size_t>(use.input)]) return known->second = owners.back();
    }
    const auto first = std::find_if(owners.begin(), owners.end(), [](const Owner& owner) { return owner.second < 3; });
    if (first != owners.end()) return known->second = *first;
    return known->second = owners.front();
  }

  bool isParted(const Use& use) const { return parted_.contains({use.node, use.input}); }

  std::string unique(std::string name) {
    const std::string wanted = name;
    for (int i = 2; !taken_.insert(name).second; ++i) name = wanted + "." + std::to_string(i);
    return name;
  }

  void add(const Use& use, int initializer, const std::string& wanted, const std::vector<std::string>& foldedFrom) {
    const auto [known, isNew] = names_.try_emplace({initializer, wanted});
    if (isNew) known->second = unique(wanted);
    parted_.insert({use.node, use.input});
    result_.inputs.push_back({use.node, use.input, initializer, known->second, foldedFrom});
  }

  const OnnxFile& file_;
  TensorReader& reader_;
  const ExportedProgram program_;
  std::map<std::string, int> initializers_; ///< floats
  std::set<std::string> taken_;
  std::map<int, std::vector<Use>> uses_; ///< of initializers, in the order of the nodes
  std::map<int, bool> oneNumber_;
  std::map<int, Owner> keepers_;
  std::map<int, int> layers_;            ///< of the nodes of BatchNormalization: the first node of their layer
  std::set<std::string> assigned_;       ///< parameters that firstLacking found
  std::set<std::pair<int, int>> parted_; ///< node and input
  std::map<std::pair<int, std::string>, std::string> names_;
  PartedInputs result_;
};

} // namespace

PartedInputs pdc::partedInputs(const OnnxFile& file, TensorReader& reader) {
  return Parting(file, reader).run();
}

void pdc::part(OnnxFile& file, const std::vector<PartedInput>& inputs) {
  std::set<std::string> made;
  for (const PartedInput& input : inputs) {
    if (made.insert(input.name).second) {
      file.addInitializerLike(input.initializer, input.name);
      if (!input.foldedFrom.empty()) stateFoldedFrom(file.mutableGraph(), input.name, input.foldedFrom);
    }
    file.mutableGraph().mutable_node(input.node)->set_input(input.input, input.name);
  }
}
