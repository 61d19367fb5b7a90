// NumPy's .npy files (format versions 1 to 3): mapped for reading, written whole.
#pragma once

#include "pdcrt/MappedFile.h"
#include "pdcrt/View.h"

#include <cstdint>
#include <vector>

namespace pdcrt {

/// A C-ordered, little-endian array in a mapped file.
class NpyFile {
public:
  /// Maps `path` and checks its header against the size of the file. Fails with Exit::badData, naming the file.
  Status open(const std::string& path);

  Element element() const { return element_; }
  const std::vector<std::int64_t>& shape() const { return shape_; }
  /// The values, in C order; exactly as many bytes as element and shape say.
  std::span<const std::byte> values() const { return values_; }
  const std::string& path() const { return file_.path(); }
  /// Fails with Exit::badData where the file has been written to since open().
  Status unchanged() const { return file_.unchanged(); }

private:
  MappedFile file_;
  Element element_ = Element::f32;
  std::vector<std::int64_t> shape_;
  std::span<const std::byte> values_;
};

/// Writes an array that NpyFile and NumPy read. bf16, which NumPy lacks, fails.
Status writeNpy(const std::string& path, Element element, std::span<const std::int64_t> shape,
                std::span<const std::byte> values);

/// "[1797, 8, 8]".
std::string toString(std::span<const std::int64_t> shape);

} // namespace pdcrt
