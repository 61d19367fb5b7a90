#include "Repairs.h"

#include "Operators.h"

#include <set>

using namespace pdc;

bool pdc::keepsAll(const OnnxNode& node) {
  if (node.version < 12) return false;
  if (node.inputs.size() < 3 || !node.inputs[2]) return true;
  const std::optional<Tensor> flag = Builder::constantValue(node.inputs[2]);
  return flag && flag->elements() == 1 && flag->asInt(0) == 0;
}

void pdc::prepareDropout(OnnxNode& node, double ratio, Builder& builder) {
  if (node.version < 12) {
    node.attributes.set("ratio", ratio);
    return;
  }
  node.inputs.resize(3, nullptr);
  node.inputs[1] = builder.constant(ratio);
  node.inputs[2] = builder.constant(1, ElementType::boolean);
}

void pdc::warnOfRepairs(const OnnxFile& file, const ImportOptions& options, Diagnostics& diags) {
  int inference = 0, normalizations = 0, dropouts = 0;
  std::set<std::string> computed; // statistics that are, are those of the minibatch
  for (const onnx::NodeProto& node : file.graph().node())
    if (node.op_type() != "Constant" && node.op_type() != "Identity")
      computed.insert(node.output().begin(), node.output().end());
  for (const onnx::NodeProto& node : file.graph().node()) {
    normalizations += isBatchNormalization(node);
    inference += isBatchNormalization(node) && !isInTrainingMode(node, file.opsetOf(node)) &&
                 !(node.input_size() > 4 && computed.contains(node.input(3)) && computed.contains(node.input(4)));
    dropouts += isDropout(node);
  }
  Location where{.file = file.path()};
  if (inference > 0 && options.batchNorm == BatchNormMode::exported)
    diags.warning(where).help(
        "--bn=batch trains with the statistics of each minibatch, --bn=frozen says that this is meant")
        << inference << (inference == 1 ? " BatchNormalization node was" : " BatchNormalization nodes were")
        << " exported in inference mode: running statistics stay as they are";
  const bool isBatch = options.batchNorm == BatchNormMode::batch || options.batchNorm == BatchNormMode::pytorch;
  if (isBatch && normalizations == 0)
    diags.warning(where).help("export with training=torch.onnx.TrainingMode.TRAINING")
        << (options.batchNorm == BatchNormMode::batch ? "--bn=batch" : "--bn=pytorch")
        << " finds no BatchNormalization node, the exporter may have folded them into convolutions";
  if (options.dropout && dropouts == 0)
    diags.warning(where).help("export with training=torch.onnx.TrainingMode.TRAINING")
        << "--dropout finds no Dropout node, exporters leave them out in inference mode";
}
