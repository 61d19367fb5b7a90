// The tensors that a model stores: their types, values and places.
#pragma once

#include "ExternalData.h"
#include "OnnxFile.h"
#include "pdc/IR/Graph.h"
#include "pdc/Import/OnnxTensor.h"

#include <optional>
#include <utility>

namespace pdc {

/// "FLOAT16", or "type 42".
std::string onnxTypeName(int dataType);

/// A tensor that a model stores: where its elements lie, or, when the protobuf holds them one by one, their values.
struct StoredTensor {
  Type type;
  std::optional<Reference> reference;
  std::optional<Tensor> value;
  std::string externalLocation; ///< of external data, as the model calls it
  /// Whether the model has a type only.
  bool lacksElements() const { return !reference && !value; }
};

class TensorReader {
public:
  /// `elementsMayLack`: an initializer without elements, or with external data that is not there, is no error.
  TensorReader(const OnnxFile& file, Diagnostics& diags, bool elementsMayLack = false)
      : file_(file), diags_(diags), external_(file.path()), elementsMayLack_(elementsMayLack) {}

  /// Initializer i of the graph. Errors: a type that pdc lacks, dimensions that are negative or overflow, another
  /// number of elements than the dimensions say, external data that is not there.
  Expected<StoredTensor> initializer(int i);
  /// A file of external data that is not there, and how many initializers lie in it; or 0.
  std::pair<std::string, int> lackingData() const;
  /// The elements of `tensor`.
  Expected<Tensor> load(const StoredTensor& tensor, const Location& where);
  /// The value of an attribute.
  Expected<Tensor> attribute(const onnx::TensorProto& proto, const Location& where);

private:
  Expected<StoredTensor> external(const onnx::TensorProto& proto, Type type, const Location& where);

  const OnnxFile& file_;
  Diagnostics& diags_;
  ExternalData external_;
  bool elementsMayLack_;
};

} // namespace pdc
