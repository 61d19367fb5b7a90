// CMake over a generated folder. What is in its build folder is pdc's own, and is made anew where it is of no use.
#include "FolderLock.h"
#include "pdc/Driver/Toolchain.h"

#include <filesystem>
#include <fstream>
#include <unistd.h>

using namespace pdc;
namespace fs = std::filesystem;

namespace {

/// The last `count` lines of a file.
std::vector<std::string> lastLines(const std::string& path, std::size_t count) {
  std::ifstream in(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  if (lines.size() > count) lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(count));
  return lines;
}

/// What CMakeCache.txt says of where it belongs.
struct Cache {
  bool exists = false, isPipeline = false;
  std::string source, folder, prefix;
};

Cache readCache(const std::string& build) {
  std::ifstream file(build + "/CMakeCache.txt");
  Cache cache{.exists = file.good()};
  const std::pair<const char*, std::string*> entries[] = {{"CMAKE_HOME_DIRECTORY:INTERNAL=", &cache.source},
                                                          {"CMAKE_CACHEFILE_DIR:INTERNAL=", &cache.folder},
                                                          {"CMAKE_PREFIX_PATH:UNINITIALIZED=", &cache.prefix}};
  for (std::string line; std::getline(file, line);) {
    cache.isPipeline = cache.isPipeline || line == "CMAKE_PROJECT_NAME:STATIC=pipeline";
    for (const auto& [name, value] : entries)
      if (line.starts_with(name)) *value = line.substr(std::string(name).size());
  }
  return cache;
}

/// Builds one project in one folder.
class ProjectBuilder {
public:
  ProjectBuilder(const std::string& folder, const std::string& output, std::string prefix,
                 const std::vector<std::string>& targets, Diagnostics& diags)
      : folder_(folder), build_(folder + "/" + output), log_(build_ + "/build.log"), prefix_(std::move(prefix)),
        targets_(targets), diags_(diags) {}

  Status run() {
    std::error_code error;
    fs::create_directories(build_, error);
    if (error || ::access(build_.c_str(), W_OK | X_OK) != 0) return withoutWriting(error);
    FolderLock lock(build_);
    if (lock.isOthers()) {
      diags_.remark({.file = folder_}) << "is being built by another process, which is waited for";
      lock.wait();
    }
    const Cache cache = readCache(build_);
    const bool isElsewhere = cache.exists && (!fs::equivalent(cache.source, folder_, error) ||
                                              !fs::equivalent(cache.folder, build_, error) || cache.prefix != prefix_);
    if (isElsewhere && cache.isPipeline) {
      diags_.remark({.file = folder_}) << "was built "
                                       << (cache.prefix != prefix_ ? "with the runtime in " + cache.prefix
                                                                   : "as " + cache.source)
                                       << ", and is built again";
      clear();
    }
    const bool isFresh = !fs::exists(build_ + "/CMakeCache.txt", error);
    Expected<int> code = build();
    // What an interrupted build, or a compiler that is gone, has left may be in the way.
    if (code && *code != 0 && !isFresh && readCache(build_).isPipeline) {
      clear();
      code = build();
    }
    if (!code) return failure;
    return *code == 0 ? success : report();
  }

private:
  void clear() {
    std::error_code ignored;
    std::vector<fs::path> all;
    for (const fs::directory_entry& entry : fs::directory_iterator(build_, ignored)) all.push_back(entry.path());
    for (const fs::path& path : all) fs::remove_all(path, ignored);
  }

  /// The build tool configures again where a file has changed. FindMPI compiles a program each time, which takes longer
  /// than everything else that pdc-run does.
  bool isConfigured() const {
    std::error_code ignored;
    return fs::exists(build_ + "/CMakeCache.txt", ignored) &&
           (fs::exists(build_ + "/build.ninja", ignored) || fs::exists(build_ + "/Makefile", ignored));
  }

  /// The exit code of the first command that fails, or 0.
  Expected<int> build() {
    std::error_code ignored;
    fs::remove(log_, ignored);
    Command configure{{"cmake", "-S", folder_, "-B", build_, "-DCMAKE_PREFIX_PATH=" + prefix_}, {}, log_};
    // A generator cannot be changed in a folder that has one.
    if (!fs::exists(build_ + "/CMakeCache.txt", ignored) && !findProgram("ninja").empty())
      configure.words.insert(configure.words.end(), {"-G", "Ninja"});
    Command compile{{"cmake", "--build", build_, "--parallel"}, {}, log_};
    if (!targets_.empty()) {
      compile.words.push_back("--target");
      compile.words.insert(compile.words.end(), targets_.begin(), targets_.end());
    }
    std::vector<Command> commands = {configure, compile};
    if (isConfigured()) commands.erase(commands.begin());
    for (const Command& command : commands) {
      const Expected<int> code = pdc::run(command, diags_);
      if (!code || *code != 0) return code;
    }
    return 0;
  }

  Status report() {
    Diagnostic diagnostic{.location = {.file = folder_}, .message = "the generated program cannot be built"};
    diagnostic.notes = lastLines(log_, 20);
    diagnostic.helps.push_back("all that was said is in " + log_);
    diags_.report(diagnostic);
    return failure;
  }

  /// A folder that cannot be written can still be run where it was built before.
  Status withoutWriting(const std::error_code& error) {
    std::error_code ignored;
    if (fs::exists(build_ + "/pipeline", ignored)) {
      diags_.remark({.file = folder_}) << "cannot be written; what was built there before is run";
      return success;
    }
    return diags_.error({.file = folder_}).help("copy it to a folder that can be written: cp -r " + folder_ + " /tmp")
           << "cannot be written, and is not built yet" << (error ? ": " + error.message() : "");
  }

  const std::string& folder_;
  const std::string build_, log_, prefix_;
  const std::vector<std::string>& targets_;
  Diagnostics& diags_;
};

} // namespace

Status pdc::buildProject(const std::string& folder, const std::string& output, const std::vector<std::string>& targets,
                         Diagnostics& diags) {
  const Expected<std::string> prefix = runtimePrefix(diags);
  if (!prefix) return failure;
  return ProjectBuilder(folder, output, *prefix, targets, diags).run();
}
