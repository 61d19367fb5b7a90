// Kahn's topological sort with the ready node of the lowest index first, which keeps an order that is topological
// already. O((nodes + names) log nodes).
#include "ProgramOrder.h"

#include "ControlFlow.h"

#include <functional>
#include <map>
#include <queue>
#include <set>

using namespace pdc;

std::string pdc::nameOfNode(const onnx::NodeProto& node) {
  if (!node.name().empty()) return node.name();
  for (const std::string& output : node.output())
    if (!output.empty()) return output;
  return node.op_type();
}

namespace {

class Sorter {
public:
  Sorter(const OnnxFile& file, Diagnostics& diags) : file_(file), graph_(file.graph()), diags_(diags) {}

  Expected<std::vector<int>> run() {
    if (!define() || !connect()) return failure;
    std::priority_queue<int, std::vector<int>, std::greater<>> ready;
    for (int i = 0; i < graph_.node_size(); ++i)
      if (waitsFor_[index(i)].empty()) ready.push(i);
    std::vector<int> order;
    while (!ready.empty()) {
      int node = ready.top();
      ready.pop();
      order.push_back(node);
      for (int user : usedBy_[index(node)])
        if (waitsFor_[index(user)].erase(node), waitsFor_[index(user)].empty()) ready.push(user);
    }
    if (static_cast<int>(order.size()) != graph_.node_size()) return reportCycle();
    return order;
  }

private:
  static std::size_t index(int i) { return static_cast<std::size_t>(i); }
  Location at(const std::string& node) const { return {.file = file_.path(), .node = node}; }

  /// Who defines each name: a node's index, or outside for inputs and initializers.
  static constexpr int outside = -1;
  bool define() {
    bool valid = true;
    std::set<std::string> initializers;
    for (const onnx::TensorProto& tensor : graph_.initializer())
      if (!initializers.insert(tensor.name()).second)
        diags_.error(at(tensor.name())) << "two initializers have this name", valid = false;
    for (const onnx::ValueInfoProto& input : graph_.input())
      if (!definer_.emplace(input.name(), outside).second)
        diags_.error(at(input.name())) << "two inputs have this name", valid = false;
    for (const std::string& name : initializers) definer_.emplace(name, outside); // old models list them as inputs too
    for (int i = 0; i < graph_.node_size(); ++i)
      for (const std::string& output : graph_.node(i).output()) {
        if (output.empty()) continue;
        auto [known, isNew] = definer_.emplace(output, i);
        if (isNew) continue;
        valid = false;
        std::string other =
            known->second == outside ? "an input or initializer" : "'" + nameOfNode(graph_.node(known->second)) + "'";
        diags_.error(at(nameOfNode(graph_.node(i)))) << "defines '" << output << "', which " << other << " defines too";
      }
    return valid;
  }

  bool connect() {
    bool valid = true;
    waitsFor_.resize(index(graph_.node_size()));
    usedBy_.resize(index(graph_.node_size()));
    for (int i = 0; i < graph_.node_size(); ++i)
      for (const std::string& input : readsOf(graph_.node(i))) {
        auto found = definer_.find(input);
        if (found == definer_.end()) {
          diags_.error(at(nameOfNode(graph_.node(i)))) << "uses '" << input << "', which nothing defines";
          valid = false;
        } else if (found->second != outside && waitsFor_[index(i)].insert(found->second).second) {
          usedBy_[index(found->second)].push_back(i);
        }
      }
    for (const onnx::ValueInfoProto& output : graph_.output())
      if (!definer_.contains(output.name()))
        diags_.error(at(output.name())) << "is an output of the model, but nothing defines it", valid = false;
    return valid;
  }

  /// Every node that is left waits for another one that is left: following them must come back.
  Failure reportCycle() {
    int node = 0;
    while (waitsFor_[index(node)].empty()) ++node;
    std::vector<int> path;
    std::set<int> seen;
    while (seen.insert(node).second) {
      path.push_back(node);
      node = *waitsFor_[index(node)].begin();
    }
    path.erase(path.begin(), std::find(path.begin(), path.end(), node)); // what leads to the cycle
    std::string names;
    for (int on : path) names += "'" + nameOfNode(graph_.node(on)) + "' needs ";
    names += "'" + nameOfNode(graph_.node(node)) + "'";
    return diags_.error(at(nameOfNode(graph_.node(node)))).note(names)
           << "is on a cycle of " << path.size() << (path.size() == 1 ? " node" : " nodes") << ", a model has none";
  }

  const OnnxFile& file_;
  const onnx::GraphProto& graph_;
  Diagnostics& diags_;
  std::map<std::string, int> definer_;
  std::vector<std::set<int>> waitsFor_;
  std::vector<std::vector<int>> usedBy_;
};

} // namespace

Expected<std::vector<int>> pdc::programOrder(const OnnxFile& file, Diagnostics& diags) {
  return Sorter(file, diags).run();
}
