// Mapping over POSIX calls; a handler of SIGBUS that knows what is mapped.
#include "pdcrt/MappedFile.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <mutex>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace pdcrt {

std::atomic<LastWords> lastWords{nullptr};

/// What is mapped, and what the file was then.
struct MappedFile::Mapping {
  const std::byte* data = nullptr;
  std::size_t size = 0;
  Exit code = Exit::badData;
  struct stat was {};
  std::string lost; ///< the message when bytes are lost
  std::atomic<const Mapping*>* slot = nullptr;

  Mapping(const std::byte* bytes, const struct stat& info, const std::string& path, Exit exit);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  static void onLostBytes(int, siginfo_t* info, void*);
  static void listen();

  /// For the handler, which may neither wait nor allocate. Where there are more, those are not known to it.
  static inline std::array<std::atomic<const Mapping*>, 512> all{};
  static inline struct sigaction before {};
};

MappedFile::Mapping::Mapping(const std::byte* bytes, const struct stat& info, const std::string& path, Exit exit)
    : data(bytes), size(static_cast<std::size_t>(info.st_size)), code(exit), was(info),
      lost("error: " + path + ": has become shorter, or its disk has failed, while it was being read\n" +
           "help: put the file back as it was and run again\n") {
  if (size == 0) return;
  listen();
  for (std::atomic<const Mapping*>& free : all) {
    const Mapping* none = nullptr;
    if (!free.compare_exchange_strong(none, this)) continue;
    slot = &free;
    return;
  }
}

MappedFile::Mapping::~Mapping() {
  if (slot) *slot = nullptr;
  if (size > 0) ::munmap(const_cast<std::byte*>(data), size);
}

/// Whose bytes the process looked at, it says; then the process ends. Other errors are those that they were.
void MappedFile::Mapping::onLostBytes(int, siginfo_t* info, void*) {
  const auto at = reinterpret_cast<std::uintptr_t>(info->si_addr);
  for (const std::atomic<const Mapping*>& slot : all) {
    const Mapping* mapping = slot;
    if (!mapping) continue;
    const auto begin = reinterpret_cast<std::uintptr_t>(mapping->data);
    if (at < begin || at - begin >= mapping->size) continue;
    static_cast<void>(::write(STDERR_FILENO, mapping->lost.data(), mapping->lost.size()));
    if (const LastWords say = lastWords) say(static_cast<int>(mapping->code));
    ::_exit(static_cast<int>(mapping->code));
  }
  ::sigaction(SIGBUS, &before, nullptr);   // and the access is made again
  if (info->si_code <= 0) ::raise(SIGBUS); // it was none: somebody sent it
}

/// Whenever something is mapped: MPI has a handler of its own, too.
void MappedFile::Mapping::listen() {
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  struct sigaction now {};
  if (::sigaction(SIGBUS, nullptr, &now) != 0 || ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == onLostBytes))
    return;
  before = now;
  struct sigaction own {};
  own.sa_sigaction = onLostBytes;
  own.sa_flags = SA_SIGINFO;
  sigemptyset(&own.sa_mask);
  ::sigaction(SIGBUS, &own, nullptr);
}

MappedFile::MappedFile() = default;
MappedFile::MappedFile(MappedFile&& other) noexcept = default;
MappedFile& MappedFile::operator=(MappedFile&& other) noexcept = default;
MappedFile::~MappedFile() = default;

std::span<const std::byte> MappedFile::bytes() const {
  return mapping_ ? std::span(mapping_->data, mapping_->size) : std::span<const std::byte>();
}

Status MappedFile::open(const std::string& path, Exit code) {
  mapping_.reset();
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
  mapping_.reset();
  path_ = path;
  struct stat info {};
  if (::fstat(descriptor, &info) != 0 || !S_ISREG(info.st_mode)) return {code, path + ": is not a regular file"};
  void* address = nullptr;
  if (info.st_size > 0)
    address = ::mmap(nullptr, static_cast<std::size_t>(info.st_size), PROT_READ, MAP_PRIVATE, descriptor, 0);
  if (address == MAP_FAILED) return {code, path + ": cannot be mapped: " + std::strerror(errno)};
  mapping_ = std::make_unique<Mapping>(static_cast<const std::byte*>(address), info, path, code);
  return {};
}

Status MappedFile::unchanged() const {
  struct stat now {};
  if (!mapping_ || ::stat(path_.c_str(), &now) != 0) return {};
  const struct stat& was = mapping_->was;
  if (now.st_dev != was.st_dev || now.st_ino != was.st_ino) return {};
  const bool sameTime = now.st_mtim.tv_sec == was.st_mtim.tv_sec && now.st_mtim.tv_nsec == was.st_mtim.tv_nsec;
  if (now.st_size == was.st_size && sameTime) return {};
  return {mapping_->code,
          path_ + ": has been written to while it was being read: it has " + std::to_string(now.st_size) +
              " bytes, and had " + std::to_string(was.st_size),
          "put the file back as it was and run again; a new version belongs into a new file"};
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
  const std::byte* data = mapping_->data; // begins on a page
  const std::size_t begin = static_cast<std::size_t>(part.data() - data) / page * page;
  const std::size_t end = static_cast<std::size_t>(part.data() - data) + part.size();
  ::madvise(const_cast<std::byte*>(data) + begin, end - begin, MADV_DONTNEED);
}

Status readText(const std::string& path, std::string& text, Exit code) {
  MappedFile file;
  if (Status status = file.open(path, code); !status) return status;
  text.assign(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  return {};
}

} // namespace pdcrt
