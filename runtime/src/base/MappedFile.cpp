// Mapping over POSIX calls.
#include "pdcrt/MappedFile.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace pdcrt {

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)), path_(std::move(other.path_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this != &other) {
    close();
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    path_ = std::move(other.path_);
  }
  return *this;
}

MappedFile::~MappedFile() {
  close();
}

void MappedFile::close() {
  if (data_) ::munmap(const_cast<std::byte*>(data_), size_);
  data_ = nullptr;
  size_ = 0;
}

Status MappedFile::open(const std::string& path, Exit code) {
  close();
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) {
    path_ = path;
    return {code, path + ": cannot be read: " + std::strerror(errno)};
  }
  const Status status = map(file, path, code);
  ::close(file);
  return status;
}

Status MappedFile::map(int descriptor, const std::string& path, Exit code) {
  close();
  path_ = path;
  struct stat info {};
  if (::fstat(descriptor, &info) != 0 || !S_ISREG(info.st_mode)) return {code, path + ": is not a regular file"};
  if (info.st_size == 0) return {};
  void* address = ::mmap(nullptr, static_cast<std::size_t>(info.st_size), PROT_READ, MAP_PRIVATE, descriptor, 0);
  if (address == MAP_FAILED) return {code, path + ": cannot be mapped: " + std::strerror(errno)};
  data_ = static_cast<const std::byte*>(address);
  size_ = static_cast<std::size_t>(info.st_size);
  return {};
}

void MappedFile::copyOut(std::span<const std::byte> part, std::byte* to) const {
  constexpr std::size_t piece = 4 << 20;
  for (; !part.empty(); part = part.subspan(std::min(piece, part.size()))) {
    const std::span<const std::byte> next = part.first(std::min(piece, part.size()));
    std::memcpy(to, next.data(), next.size());
    to += next.size();
    forget(next);
  }
}

void MappedFile::forget(std::span<const std::byte> part) const {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t begin = static_cast<std::size_t>(part.data() - data_) / page * page; // the mapping begins on a page
  const std::size_t end = static_cast<std::size_t>(part.data() - data_) + part.size();
  ::madvise(const_cast<std::byte*>(data_) + begin, end - begin, MADV_DONTNEED);
}

Status readText(const std::string& path, std::string& text, Exit code) {
  MappedFile file;
  if (Status status = file.open(path, code); !status) return status;
  text.assign(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  return {};
}

} // namespace pdcrt
