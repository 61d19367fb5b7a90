// External data of a model that is written: the tensors that lie in a file beside it.
#pragma once

#include "OnnxProto.h"
#include "pdcrt/Status.h"

#include <cstddef>
#include <span>
#include <string>

namespace pdc {

class DataFile {
public:
  /// For the model that is written to `model`: its data lies in `model`.data.
  explicit DataFile(const std::string& model) : path_(model + ".data") {}

  /// Makes `tensor` one that lies here, with these elements.
  void add(onnx::TensorProto& tensor, std::span<const std::byte> elements);

  /// Writes the file if there are tensors in it; to be done before the model is, which must not name a file that is not
  /// there.
  pdcrt::Status write() const;

private:
  std::string path_;
  std::string bytes_;
  bool isUsed_ = false;
};

} // namespace pdc
