#include "DataFile.h"

#include "pdcrt/WriteFile.h"

using namespace pdc;

/// Alignment of tensors in external data, of which memory mappings of ONNX Runtime make use.
static constexpr std::size_t alignment = 4096;

void DataFile::add(onnx::TensorProto& tensor, std::span<const std::byte> elements) {
  bytes_.resize((bytes_.size() + alignment - 1) / alignment * alignment);
  tensor.clear_external_data();
  for (auto& [key, value] : {std::pair<std::string, std::string>{"location", path_.substr(path_.rfind('/') + 1)},
                             {"offset", std::to_string(bytes_.size())},
                             {"length", std::to_string(elements.size())}}) {
    onnx::StringStringEntryProto& entry = *tensor.add_external_data();
    entry.set_key(key);
    entry.set_value(value);
  }
  bytes_.append(reinterpret_cast<const char*>(elements.data()), elements.size());
  isUsed_ = true;
}

pdcrt::Status DataFile::write() const {
  return isUsed_ ? pdcrt::writeAtomically(path_, bytes_) : pdcrt::Status();
}
