// POSIX calls, through the table that tests can replace; CRC-32C by the processor, or by tables, eight bytes at a time.
#include "pdcrt/WriteFile.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>

namespace pdcrt {

FileCalls fileCalls = {
    .open = [](const char* path, int flags, mode_t mode) { return ::open(path, flags, mode); },
    .write = ::write,
    .fsync = ::fsync,
    .close = ::close,
    .rename = std::rename,
    .unlink = ::unlink,
    .mkdir = ::mkdir,
    .rmdir = ::rmdir,
};

namespace {

using CrcTables = std::array<std::array<std::uint32_t, 256>, 8>;

/// tables[k][b]: what byte b, followed by k zero bytes, makes of the remainder.
constexpr CrcTables crcTables = [] {
  CrcTables tables{};
  for (std::uint32_t b = 0; b < 256; ++b) {
    std::uint32_t crc = b;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78u : 0);
    tables[0][b] = crc;
  }
  for (std::size_t k = 1; k < 8; ++k)
    for (std::size_t b = 0; b < 256; ++b) {
      const std::uint32_t crc = tables[k - 1][b];
      tables[k][b] = crc >> 8 ^ tables[0][crc & 255];
    }
  return tables;
}();

std::uint32_t remainderByTables(std::uint32_t crc, std::span<const std::byte> bytes) {
  const CrcTables& t = crcTables;
  for (; bytes.size() >= 8; bytes = bytes.subspan(8)) {
    std::uint32_t low, high;
    std::memcpy(&low, bytes.data(), 4);
    std::memcpy(&high, bytes.data() + 4, 4);
    low ^= crc;
    crc = t[7][low & 255] ^ t[6][low >> 8 & 255] ^ t[5][low >> 16 & 255] ^ t[4][low >> 24] ^ t[3][high & 255] ^
          t[2][high >> 8 & 255] ^ t[1][high >> 16 & 255] ^ t[0][high >> 24];
  }
  for (std::byte b : bytes) crc = crc >> 8 ^ t[0][(crc ^ static_cast<std::uint32_t>(b)) & 255];
  return crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) std::uint32_t remainderByProcessor(std::uint32_t crc,
                                                                     std::span<const std::byte> bytes) {
  std::uint64_t wide = crc;
  for (; bytes.size() >= 8; bytes = bytes.subspan(8)) {
    std::uint64_t word;
    std::memcpy(&word, bytes.data(), 8);
    wide = __builtin_ia32_crc32di(wide, word);
  }
  crc = static_cast<std::uint32_t>(wide);
  for (std::byte b : bytes) crc = __builtin_ia32_crc32qi(crc, static_cast<unsigned char>(b));
  return crc;
}
#endif

Status cannotWrite(const std::string& path, int reason) {
  return {Exit::cannotWrite, path + ": cannot be written: " + std::strerror(reason)};
}

/// Writes all of `part`; 0, or the reason why not.
int writeAll(int file, std::span<const std::byte> part) {
  while (!part.empty()) {
    const ssize_t count = fileCalls.write(file, part.data(), part.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return count < 0 ? errno : ENOSPC;
    part = part.subspan(static_cast<std::size_t>(count));
  }
  return 0;
}

} // namespace

FileSum extended(FileSum sum, std::span<const std::byte> bytes) {
#if defined(__x86_64__)
  static const bool byProcessor = __builtin_cpu_supports("sse4.2");
  sum.crc = ~(byProcessor ? remainderByProcessor(~sum.crc, bytes) : remainderByTables(~sum.crc, bytes));
#else
  sum.crc = ~remainderByTables(~sum.crc, bytes);
#endif
  sum.bytes += bytes.size();
  return sum;
}

static std::string temporaryOf(const std::string& path) {
  return path + ".tmp-" + std::to_string(::getpid());
}

Status checkWritable(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode))
    return cannotWrite(path, S_ISDIR(info.st_mode) ? EISDIR : EINVAL);
  const std::string temporary = temporaryOf(path);
  const int file = fileCalls.open(temporary.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  const int reason = file < 0 ? errno : 0;
  if (file >= 0) {
    fileCalls.close(file);
    fileCalls.unlink(temporary.c_str());
  }
  if (reason == 0) return {};
  const std::string folder = path.substr(0, path.rfind('/'));
  return {Exit::cannotWrite, cannotWrite(path, reason).message(),
          reason == ENOENT && folder != path ? "make its folder: mkdir -p " + folder
                                             : "name a file that can be written"};
}

Status writeAtomically(const std::string& path, std::span<const std::span<const std::byte>> parts, FileSum* sum) {
  const auto partOf = [&](std::size_t i, std::span<const std::byte>& part) {
    part = parts[i];
    return Status();
  };
  return writeAtomically(path, parts.size(), partOf, sum);
}

Status writeAtomically(const std::string& path, std::size_t count, const PartGiver& partOf, FileSum* sum) {
  const std::string temporary = temporaryOf(path);
  const int file = fileCalls.open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0) return cannotWrite(path, errno);
  if (sum) *sum = {};
  int reason = 0;
  // In pieces that the cache still holds for the second look.
  constexpr std::size_t piece = 1 << 18;
  Status given;
  for (std::size_t i = 0; i < count && given && reason == 0; ++i) {
    std::span<const std::byte> part;
    given = partOf(i, part);
    for (; given && reason == 0 && !part.empty(); part = part.subspan(std::min(piece, part.size()))) {
      const std::span<const std::byte> next = part.first(std::min(piece, part.size()));
      if (sum) *sum = extended(*sum, next);
      reason = writeAll(file, next);
    }
  }
  if (given && reason == 0 && fileCalls.fsync(file) != 0) reason = errno;
  if (fileCalls.close(file) != 0 && reason == 0) reason = errno;
  if (given && reason == 0 && fileCalls.rename(temporary.c_str(), path.c_str()) != 0) reason = errno;
  if (given && reason == 0) return {};
  fileCalls.unlink(temporary.c_str());
  if (!given) return given;
  return cannotWrite(path, reason);
}

Status writeAtomically(const std::string& path, const std::string& text) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(text));
  return writeAtomically(path, std::span(&bytes, 1));
}

Status makeFolder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (std::filesystem::is_directory(folder, error) && ::access(folder.c_str(), W_OK | X_OK) == 0) return {};
  return {Exit::cannotWrite, folder + ": cannot be written", "name a folder that is yours, or does not exist yet"};
}

Status syncFolder(const std::string& path) {
  const int folder = fileCalls.open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
  if (folder < 0) return cannotWrite(path, errno);
  const int reason = fileCalls.fsync(folder) == 0 ? 0 : errno;
  fileCalls.close(folder);
  if (reason == 0 || reason == EINVAL) return {}; // EINVAL: a file system that has nothing to sync in a folder
  return cannotWrite(path, reason);
}

} // namespace pdcrt
