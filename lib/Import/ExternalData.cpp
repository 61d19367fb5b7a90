// openat2(2) with RESOLVE_BENEATH and RESOLVE_NO_SYMLINKS: the kernel resolves the name, so there is no race between a
// check and its use.
#include "ExternalData.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

using namespace pdc;
namespace fs = std::filesystem;

namespace {

/// A file descriptor that closes itself.
struct Descriptor {
  int number = -1;
  explicit Descriptor(int n) : number(n) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (number >= 0) ::close(number);
  }
};

} // namespace

static std::string folderOf(const std::string& modelPath) {
  return modelPath.substr(0, modelPath.rfind('/') + 1);
}

/// Opens `location` beneath `folder` ("": the current one). A descriptor, or -1 with errno set.
static int openBeneath(const std::string& folder, const std::string& location) {
  if (location.find('\0') != std::string::npos) {
    errno = EINVAL;
    return -1;
  }
  const Descriptor base(::open(folder.empty() ? "." : folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  open_how how{};
  how.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK; // a pipe must not block before it is refused
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS;
  return static_cast<int>(::syscall(SYS_openat2, base.number, location.c_str(), &how, sizeof how));
}

/// Opens what the model at `model` calls `location`. A cache of models (Hugging Face's) keeps all files of a model in
/// one folder, under names of its own, and others of links to them: where the model is such a link, the data may be one
/// to a file beside the model itself.
static int openExternal(const std::string& model, const std::string& location) {
  const int plain = openBeneath(folderOf(model), location);
  if (plain >= 0 || errno != ELOOP) return plain;
  std::error_code error;
  if (!fs::is_symlink(model, error)) {
    errno = ELOOP; // which the look at the model has changed
    return -1;
  }
  const fs::path real = fs::canonical(model, error),
                 data = error ? fs::path() : fs::canonical(folderOf(model) + location, error);
  if (!error && data.parent_path() == real.parent_path())
    return openBeneath(real.parent_path().string(), data.filename().string());
  errno = ELOOP;
  return -1;
}

namespace {

/// What is wrong with the opened file (its descriptor, or -1 with errno set); empty if nothing is.
struct Problem {
  std::string text, help;
};

Problem problemOf(int descriptor, std::int64_t& size) {
  if (descriptor < 0 && (errno == EXDEV || errno == ELOOP))
    return {std::string("leaves the folder of the model") + (errno == ELOOP ? " by a symbolic link" : ""),
            "put the data beside the model, as plain files"};
  if (descriptor < 0) return {std::string("cannot be opened: ") + std::strerror(errno), ""};
  struct stat info {};
  if (::fstat(descriptor, &info) != 0 || !S_ISREG(info.st_mode)) return {"is not a regular file", ""};
  size = info.st_size;
  if (info.st_nlink != 1) return {"has " + std::to_string(info.st_nlink) + " hard links, 1 is allowed", "copy it"};
  return {};
}

} // namespace

struct ExternalData::File {
  explicit File(int descriptor) : handle(descriptor) {}
  Descriptor handle;
  std::int64_t size = 0;
};

ExternalData::ExternalData(const std::string& modelPath) : model_(modelPath), folder_(folderOf(modelPath)) {}
ExternalData::~ExternalData() = default;

bool ExternalData::lacks(const std::string& location) const {
  if (location.empty()) return false;
  const Descriptor file(openExternal(model_, location));
  return file.number < 0 && errno == ENOENT;
}

Expected<const ExternalData::File*> ExternalData::open(const std::string& location, const Location& where,
                                                       Diagnostics& diags) {
  if (auto known = files_.find(location); known != files_.end()) return known->second.get();
  auto file = std::make_unique<File>(openExternal(model_, location));
  if (const Problem problem = problemOf(file->handle.number, file->size); !problem.text.empty()) {
    Diagnostic diagnostic{.location = where, .message = "external data '" + location + "' " + problem.text};
    if (!problem.help.empty()) diagnostic.helps.push_back(problem.help);
    diags.report(diagnostic);
    return failure;
  }
  return files_.emplace(location, std::move(file)).first->second.get();
}

Expected<ExternalData::Range> ExternalData::locate(const std::string& location, std::int64_t offset,
                                                   std::int64_t length, const Location& where, Diagnostics& diags) {
  Expected<const File*> file = open(location, where, diags);
  if (!file) return failure;
  std::int64_t size = (*file)->size;
  if (offset < 0 || length < 0 || offset > size || length > size - offset)
    return diags.error(where) << "needs " << length << " bytes from byte " << offset << " of external data '"
                              << location << "', which has " << size;
  return Range{folder_ + location, offset, length};
}

Expected<std::vector<std::byte>> ExternalData::read(const std::string& location, const Range& range,
                                                    const Location& where, Diagnostics& diags) {
  Expected<const File*> file = open(location, where, diags);
  if (!file) return failure;
  std::vector<std::byte> bytes(static_cast<std::size_t>(range.length));
  for (std::size_t done = 0; done < bytes.size();) {
    ssize_t count = ::pread((*file)->handle.number, bytes.data() + done, bytes.size() - done,
                            range.offset + static_cast<std::int64_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return diags.error(where) << "external data '" << location << "' cannot be read";
    done += static_cast<std::size_t>(count);
  }
  return bytes;
}

pdcrt::Status pdc::mapExternalData(const std::string& model, const std::string& file, pdcrt::MappedFile& mapped) {
  const std::string folder = folderOf(model);
  if (!file.starts_with(folder)) return {pdcrt::Exit::badData, file + ": external data leaves the folder of the model"};
  const Descriptor descriptor(openExternal(model, file.substr(folder.size())));
  std::int64_t size = 0;
  if (const Problem problem = problemOf(descriptor.number, size); !problem.text.empty())
    return {pdcrt::Exit::badData, file + ": external data " + problem.text, problem.help};
  return mapped.map(descriptor.number, file);
}
