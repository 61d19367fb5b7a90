// The model's protobuf without its weights is changed and written again, with the weights put back in the field in
// which each was found.
#include "pdc/Import/TrainedOnnx.h"

#include "DataFile.h"
#include "EqualInitializers.h"
#include "Operators.h"
#include "ProgramOrder.h"
#include "TensorReader.h"
#include "Weights/Int8Records.h"
#include "Weights/OwnInitializers.h"

#include <algorithm>
#include <climits>
#include <cstring>
#include <set>

using namespace pdc;

namespace {

using Bytes = std::span<const std::byte>;

void toInferenceMode(onnx::NodeProto& node, std::int64_t opset) {
  if (isBatchNormalization(node) && isInTrainingMode(node, opset)) {
    for (onnx::AttributeProto& attribute : *node.mutable_attribute())
      if (attribute.name() == "training_mode") attribute.set_i(0);
    node.mutable_output()->DeleteSubrange(1, node.output_size() - 1); // running statistics are outputs of training
  }
  constexpr int trainingMode = 2;
  if (isDropout(node) && node.input_size() > trainingMode)
    node.mutable_input()->DeleteSubrange(trainingMode, node.input_size() - trainingMode);
  for (onnx::AttributeProto& attribute : *node.mutable_attribute()) // bodies of control flow
    if (attribute.has_g())
      for (onnx::NodeProto& inner : *attribute.mutable_g()->mutable_node()) toInferenceMode(inner, opset);
}

class Writer {
public:
  Writer(const OnnxFile& file, const std::map<std::string, pdcrt::TensorRecord>& trained, const std::string& out,
         Diagnostics& diags)
      : file_(file), trained_(trained), out_(out), diags_(diags), reader_(file, diags, /*elementsMayLack=*/true),
        model_(file.model()), data_(out) {}

  Status run() {
    chainToFirstStatistics();
    if (!checkStatistics()) return failure;
    for (onnx::NodeProto& node : *model_.mutable_graph()->mutable_node()) toInferenceMode(node, file_.opset());
    for (onnx::FunctionProto& function : *model_.mutable_functions())
      for (onnx::NodeProto& node : *function.mutable_node()) toInferenceMode(node, opsetOf(function));
    for (int i = 0; i < model_.graph().initializer_size(); ++i)
      if (!fill(i)) return failure;
    for (const auto& [name, tensor] : trained_)
      if (!written_.contains(name))
        return diags_.error({.file = file_.path(), .node = name}) << "was trained, but is no initializer of the model";
    return write();
  }

private:
  std::int64_t opsetOf(const onnx::FunctionProto& function) const {
    for (const onnx::OperatorSetIdProto& import : function.opset_import())
      if (isDefaultDomain(import.domain())) return import.version();
    return file_.opset();
  }

  /// A layer that is applied several times may read the statistics that it made before: in inference mode they are
  /// those that it had.
  void chainToFirstStatistics() {
    std::map<std::string, std::string> former;
    for (onnx::NodeProto& node : *model_.mutable_graph()->mutable_node()) {
      if (!isBatchNormalization(node)) continue;
      for (RunningStatistic statistic : runningStatistics) {
        if (statistic.input >= node.input_size()) continue;
        std::string& input = *node.mutable_input(statistic.input);
        if (const auto found = former.find(input); found != former.end()) input = found->second;
        if (statistic.output < node.output_size() && !node.output(statistic.output).empty())
          former[node.output(statistic.output)] = input;
      }
    }
  }

  /// Running statistics that a node computes exist in training mode only: nothing may read them.
  Status checkStatistics() {
    std::set<std::string> read;
    for (const onnx::NodeProto& node : model_.graph().node()) read.insert(node.input().begin(), node.input().end());
    for (const onnx::ValueInfoProto& output : file_.graph().output()) read.insert(output.name());
    for (const onnx::NodeProto& node : file_.graph().node())
      for (int i = 1; isBatchNormalization(node) && i < node.output_size(); ++i)
        if (!node.output(i).empty() && read.contains(node.output(i)))
          return diags_.error({.file = file_.path(), .node = nameOfNode(node)})
                     .exit(ExitCode::unsupported)
                     .help("export the model without '" + node.output(i) + "'")
                 << "its new running statistics, '" << node.output(i)
                 << "', are read in the model, which inference mode does not compute";
    return success;
  }

  /// Puts the elements of initializer i where the model has them.
  Status fill(int i) {
    onnx::TensorProto& proto = *model_.mutable_graph()->mutable_initializer(i);
    Location where{.file = file_.path(), .node = proto.name()};
    const ElementRange& range = file_.elements(i);
    bool isExternal = proto.data_location() == onnx::TensorProto::EXTERNAL;
    auto trained = trained_.find(proto.name());
    if (trained == trained_.end())
      if (const auto copy = copiedMatrix(file_, reader_, i, [&](const auto& name) { return trained_.contains(name); }))
        return fillCopy(proto, range, *copy);
    if (trained == trained_.end() && !isExternal) {
      if (range.scattered) return failureOf(reader_.initializer(i)); // says why
      if (range.field != 0) setElements(proto, range.field, file_.bytes().subspan(range.offset, range.length));
      return success;
    }
    Expected<StoredTensor> stored = reader_.initializer(i);
    if (!stored) return failure;
    if (trained == trained_.end() && isExternal) {
      Expected<Tensor> tensor = reader_.load(*stored, where);
      if (!tensor) return failure;
      data_.add(proto, tensor->bytes());
      return success;
    }
    const pdcrt::TensorRecord& record = trained->second;
    if (Type type{record.element, record.shape}; type != stored->type)
      return diags_.error(where) << "is " << toString(stored->type) << " in the model, but was trained as "
                                 << toString(type);
    written_.insert(proto.name());
    put(proto, range, record.values);
    return success;
  }

  /// Where the model has its elements.
  void put(onnx::TensorProto& proto, const ElementRange& range, Bytes elements) {
    if (proto.data_location() == onnx::TensorProto::EXTERNAL) return data_.add(proto, elements);
    if (range.field == 0) proto.clear_int32_data(); // f16 as numbers
    setElements(proto, range.field == 0 ? std::uint32_t{onnx::TensorProto::kRawDataFieldNumber} : range.field,
                elements);
  }

  /// A matrix that was stored twice and trained as one (--tie=auto): whatever was trained for itself is in trained_,
  /// frozen parameters too.
  Status fillCopy(onnx::TensorProto& proto, const ElementRange& range, const MatrixCopy& copy) {
    const pdcrt::TensorRecord& original = trained_.at(copy.original);
    if (!copy.transposed) {
      put(proto, range, original.values);
      return success;
    }
    put(proto, range,
        transposed(original.values, original.shape[0], original.shape[1], pdcrt::bytesOf(original.element)));
    return success;
  }

  static Status failureOf(const Expected<StoredTensor>& tensor) {
    if (tensor) return success;
    return failure;
  }

  static void setElements(onnx::TensorProto& proto, std::uint32_t field, Bytes bytes) {
    auto copy = [&](auto& numbers, std::size_t size) {
      numbers.Resize(static_cast<int>(bytes.size() / size), 0);
      if (!bytes.empty()) std::memcpy(numbers.mutable_data(), bytes.data(), bytes.size() / size * size);
    };
    if (field == onnx::TensorProto::kFloatDataFieldNumber)
      copy(*proto.mutable_float_data(), sizeof(float));
    else if (field == onnx::TensorProto::kDoubleDataFieldNumber)
      copy(*proto.mutable_double_data(), sizeof(double));
    else
      proto.set_raw_data(bytes.data(), bytes.size());
  }

  Status write() {
    if (model_.ByteSizeLong() > INT_MAX)
      return diags_.error({.file = out_}).help("store the weights of the model as external data")
             << "needs " << model_.ByteSizeLong() << " bytes, an ONNX file has at most " << INT_MAX;
    if (out_.empty()) return success;
    if (!report(data_.write())) return failure;
    return report(pdcrt::writeAtomically(out_, model_.SerializeAsString()));
  }

  Status report(const pdcrt::Status& status) {
    if (status) return success;
    return diags_.error({}) << status.message();
  }

  const OnnxFile& file_;
  const std::map<std::string, pdcrt::TensorRecord>& trained_;
  const std::string& out_;
  Diagnostics& diags_;
  TensorReader reader_;
  onnx::ModelProto model_;
  std::set<std::string> written_;
  DataFile data_;
};

} // namespace

Status pdc::writeTrainedOnnx(const std::string& model, const std::map<std::string, pdcrt::TensorRecord>& stored,
                             const std::string& out, Diagnostics& diags) {
  const Int8Records records(stored);
  const std::map<std::string, pdcrt::TensorRecord>& trained = records.whole();
  const Expected<OnnxFile> file = openWithOwnInitializers(
      model, [&](const std::string& name) { return trained.contains(name); }, diags);
  if (!file) return failure;
  return Writer(*file, trained, out, diags).run();
}
