// A file mapped into memory for reading.
#pragma once

#include "pdcrt/Status.h"
#include "pdcrt/WriteFile.h"

#include <atomic>
#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace pdcrt {

/// The bytes of a regular file, for as long as the object lives. Movable; an empty file has no bytes.
///
/// Where a file becomes shorter, or its disk fails, looking at the bytes that are lost ends the process with the code
/// given to open(), after a message that names the file: there is nothing to return to (SIGBUS).
class MappedFile {
public:
  MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  /// Maps `path`. Fails, with `code`, when it is not a readable regular file.
  Status open(const std::string& path, Exit code = Exit::badData);
  /// Maps the file that is open for reading as `descriptor`, which is left open; `path` is for messages.
  Status map(int descriptor, const std::string& path, Exit code = Exit::badData);

  std::span<const std::byte> bytes() const;
  const std::string& path() const { return path_; }

  /// Fails with the code of open() where the file has been written to since then. Removed or replaced by another it may
  /// be: the bytes are those of the old one.
  Status unchanged() const;

  /// Copies `part` of bytes() to `to`, piece by piece, and gives back the memory that held each: it is read from the
  /// file again when somebody looks.
  void copyOut(std::span<const std::byte> part, std::byte* to) const;
  /// Gives back the memory that holds `part` of bytes(), as copyOut() does.
  void forget(std::span<const std::byte> part) const;

private:
  struct Mapping;

  std::unique_ptr<Mapping> mapping_; ///< null: not open
  std::string path_;
};

/// Called with the exit code before a process ends because bytes of a mapped file are lost, in a signal handler.
using LastWords = void (*)(int code);
extern std::atomic<LastWords> lastWords;

/// The text of a small file such as plan.json.
Status readText(const std::string& path, std::string& text, Exit code = Exit::badData);

} // namespace pdcrt
