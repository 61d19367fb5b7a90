// Weight files in the safetensors format: a 64-bit header length, a JSON header of names, types, shapes and offsets,
// and the values.
#pragma once

#include "pdcrt/MappedFile.h"
#include "pdcrt/View.h"

#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <vector>

namespace pdcrt {

/// A named tensor. `values` points into the mapped file or to the caller's memory.
struct TensorRecord {
  std::string name;
  Element element = Element::f32;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> values;
};

/// The elements, of type T, of bytes of a file: a copy, since no file aligns them.
template <class T>
std::vector<T> elementsOf(std::span<const std::byte> values) {
  std::vector<T> elements(values.size() / sizeof(T));
  if (!elements.empty()) std::memcpy(elements.data(), values.data(), elements.size() * sizeof(T));
  return elements;
}

class SafetensorsFile {
public:
  /// Maps `path` and checks every entry of its header: one entry of a name, known type, a byte range inside the file
  /// which is as long as type and shape say, no overlap with another. Fails with Exit::badData, naming the file and the
  /// tensor.
  Status open(const std::string& path);

  /// The tensor called `name`, or null.
  const TensorRecord* find(const std::string& name) const;
  /// All tensors, by name.
  const std::map<std::string, TensorRecord>& tensors() const { return tensors_; }
  /// The strings of the header's __metadata__.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::string& path() const { return file_.path(); }
  /// Where in the file the values of one of its tensors begin, in bytes.
  std::size_t offsetOf(const TensorRecord& record) const {
    return static_cast<std::size_t>(record.values.data() - file_.bytes().data());
  }
  /// Copies the values of one of its tensors to `to`, without keeping them in memory here as well.
  void copyOut(const TensorRecord& record, std::byte* to) const { file_.copyOut(record.values, to); }
  /// Gives back the memory that holds the values of one of its tensors.
  void forget(const TensorRecord& record) const { file_.forget(record.values); }

private:
  MappedFile file_;
  std::map<std::string, TensorRecord> tensors_;
  std::map<std::string, std::string> metadata_;
};

/// Gives the values of tensor i of a list, which are used before the next ones are asked for.
using ValuesGiver = std::function<Status(std::size_t i, std::span<const std::byte>& values)>;

/// Writes `tensors`, whose values are asked for one after the other, otherwise as the next one. An error of `valuesOf`
/// is returned, and then nothing is written.
Status writeSafetensors(const std::string& path, std::span<const TensorRecord> tensors, const ValuesGiver& valuesOf,
                        const std::map<std::string, std::string>& metadata = {}, FileSum* sum = nullptr);

/// Writes `tensors`, those with the widest elements first, so that each is aligned; atomically, and `sum` is that of
/// the file (WriteFile.h).
Status writeSafetensors(const std::string& path, std::span<const TensorRecord> tensors,
                        const std::map<std::string, std::string>& metadata = {}, FileSum* sum = nullptr);

} // namespace pdcrt
