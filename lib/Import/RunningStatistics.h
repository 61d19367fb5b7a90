// The running statistics of BatchNormalization while a model is converted.
#pragma once

#include "OnnxProto.h"
#include "pdc/IR/Graph.h"
#include "pdc/IR/OpDef.h"
#include "pdc/Import/OnnxImport.h"

#include <vector>

namespace pdc {

class RunningStatistics {
public:
  explicit RunningStatistics(BatchNormMode mode) : mode_(mode) {}

  /// Whether the node is trained with the statistics of the minibatch; applies --bn. Asks for the new running
  /// statistics.
  bool prepare(OnnxNode& node, const onnx::NodeProto& proto) const;
  /// A layer that is applied several times moves its statistics each time: the next node takes what the last one made.
  void takeNewest(OnnxNode& node, Graph& graph) const;
  /// Without training (--bn=frozen) the new statistics are the old ones.
  static void keep(const OnnxNode& node, std::vector<Value*>& results);
  /// Notes what a node in training mode made.
  void add(const OnnxNode& node, const std::vector<Value*>& results);

  /// The newest statistics of each layer: outputs of the graph.
  const std::vector<GraphOutput>& outputs() const { return outputs_; }

private:
  BatchNormMode mode_;
  std::vector<GraphOutput> outputs_;
};

} // namespace pdc
