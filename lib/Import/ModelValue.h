// What a name of an ONNX model stands for while the model is imported.
#pragma once

#include "pdc/IR/Graph.h"

#include <memory>
#include <vector>

namespace pdc {

/// A tensor, or a sequence of tensors. A sequence is a list that is known when a model is compiled: the IR has no type
/// for it, and nothing of it is left but the tensors.
struct ModelValue {
  Value* tensor = nullptr;
  std::shared_ptr<const std::vector<Value*>> sequence;

  ModelValue() = default;
  ModelValue(Value* value) : tensor(value) {}
  ModelValue(std::vector<Value*> tensors) : sequence(std::make_shared<const std::vector<Value*>>(std::move(tensors))) {}

  /// False: absent, or an output that nobody reads.
  explicit operator bool() const { return tensor || sequence; }
};

} // namespace pdc
