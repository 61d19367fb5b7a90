// A file mapped into memory for reading.
#pragma once

#include "pdcrt/Status.h"
#include "pdcrt/WriteFile.h"

#include <cstddef>
#include <span>
#include <string>

namespace pdcrt {

/// The bytes of a regular file, for as long as the object lives. Movable; an empty file has no bytes.
class MappedFile {
public:
  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  /// Maps `path`. Fails, with `code`, when it is not a readable regular file.
  Status open(const std::string& path, Exit code = Exit::badData);
  /// Maps the file that is open for reading as `descriptor`, which is left open; `path` is for messages.
  Status map(int descriptor, const std::string& path, Exit code = Exit::badData);

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

  /// Copies `part` of bytes() to `to`, piece by piece, and gives back the memory that held each: it is read from the
  /// file again when somebody looks.
  void copyOut(std::span<const std::byte> part, std::byte* to) const;

private:
  void close();
  void forget(std::span<const std::byte> part) const;

  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::string path_;
};

/// The text of a small file such as plan.json.
Status readText(const std::string& path, std::string& text, Exit code = Exit::badData);

} // namespace pdcrt
