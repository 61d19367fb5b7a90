// Trained weights of 8 bits as the matrices that they stand for.
#pragma once

#include "pdcrt/Safetensors.h"

#include <deque>
#include <map>
#include <string>
#include <vector>

namespace pdc {

/// Tensors by name, where `NAME.int8` and `NAME.scale` (transposed: `NAME.T.int8`, `NAME.T.scale`) are one matrix NAME
/// of f32: each integer times the scale of its row, with the rows' own values in `NAME.kept` at the places in
/// `NAME.kept_inputs` if there are some. So a model that is written computes with the weights that were trained with.
class Int8Records {
public:
  explicit Int8Records(const std::map<std::string, pdcrt::TensorRecord>& stored);
  const std::map<std::string, pdcrt::TensorRecord>& whole() const { return whole_; }

private:
  std::map<std::string, pdcrt::TensorRecord> whole_;
  std::deque<std::vector<float>> made_;
};

} // namespace pdc
