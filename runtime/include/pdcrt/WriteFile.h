// Files that are there whole or not at all, and the system calls by which they are written.
#pragma once

#include "pdcrt/Status.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <sys/types.h>

namespace pdcrt {

/// The calls by which results and checkpoints are written, as in POSIX. Tests replace some, to see what a failure or a
/// crash at each of them leaves behind; nobody else does.
struct FileCalls {
  int (*open)(const char* path, int flags, mode_t mode);
  ssize_t (*write)(int file, const void* data, std::size_t bytes);
  int (*fsync)(int file);
  int (*close)(int file);
  int (*rename)(const char* from, const char* to);
  int (*unlink)(const char* path);
  int (*mkdir)(const char* path, mode_t mode);
  int (*rmdir)(const char* path);
};
extern FileCalls fileCalls;

/// By which a change of a file is seen: its size, and the CRC-32C (Castagnoli) of its bytes.
struct FileSum {
  std::uint64_t bytes = 0;
  std::uint32_t crc = 0;
  friend bool operator==(const FileSum&, const FileSum&) = default;
};

/// The sum of what `sum` is of and then `bytes`.
FileSum extended(FileSum sum, std::span<const std::byte> bytes);

/// Writes `parts` one after the other to `path`: under a temporary name, synced, then renamed, so that whoever opens
/// `path` finds all of it or what was there before. Fails with Exit::cannotWrite. `sum`, if given, is that of the file.
Status writeAtomically(const std::string& path, std::span<const std::span<const std::byte>> parts,
                       FileSum* sum = nullptr);
Status writeAtomically(const std::string& path, const std::string& text);
/// Gives part i of what is written, which is used before the next one is asked for. An error ends the writing, and is
/// returned.
using PartGiver = std::function<Status(std::size_t i, std::span<const std::byte>& part)>;
/// The same for parts that are made one after the other.
Status writeAtomically(const std::string& path, std::size_t count, const PartGiver& partOf, FileSum* sum = nullptr);

/// Whether writeAtomically() could write `path` now: tries it with a file beside it. Fails with Exit::cannotWrite.
Status checkWritable(const std::string& path);

/// Makes a folder that results can be written to. Fails with Exit::cannotWrite.
Status makeFolder(const std::string& folder);

/// Makes a folder durable: which names it holds. Fails with Exit::cannotWrite.
Status syncFolder(const std::string& path);

} // namespace pdcrt
