// Processes and temporary folders, over POSIX.
#include "pdc/Driver/Toolchain.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

using namespace pdc;
namespace fs = std::filesystem;

extern char** environ; // NOLINT: POSIX declares it nowhere

Expected<std::string> pdc::runtimePrefix(Diagnostics& diags) {
  std::error_code ignored;
  const fs::path prefix = fs::read_symlink("/proc/self/exe", ignored).parent_path().parent_path();
  if (fs::exists(prefix / "pdcrtConfig.cmake") || fs::exists(prefix / "lib/cmake/pdcrt/pdcrtConfig.cmake"))
    return prefix.string();
  return diags.error({prefix.string(), "", 0, 0}).help("install pdc, or run it from its build folder")
         << "the runtime is not here: there is no pdcrtConfig.cmake";
}

Expected<TemporaryFolder> TemporaryFolder::create(Diagnostics& diags) {
  const char* parent = std::getenv("TMPDIR");
  std::string pattern = std::string(parent && *parent ? parent : "/tmp") + "/pdc-XXXXXX";
  if (!mkdtemp(pattern.data()))
    return diags.error({pattern, "", 0, 0}).help("set TMPDIR to a folder that can be written")
           << "a temporary folder cannot be made: " << std::strerror(errno);
  return TemporaryFolder(pattern);
}

TemporaryFolder::TemporaryFolder(TemporaryFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

Expected<int> pdc::start(const Command& command, bool ownGroup, Diagnostics& diags) {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable; ++variable)
    if (!command.environment.contains(std::string(*variable).substr(0, std::string(*variable).find('='))))
      variables.emplace_back(*variable);
  for (const auto& [name, value] : command.environment) variables.push_back(name + "=" + value);
  auto pointers = [](const std::vector<std::string>& texts) {
    std::vector<char*> result;
    for (const std::string& text : texts) result.push_back(const_cast<char*>(text.c_str()));
    result.push_back(nullptr);
    return result;
  };

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  if (!command.log.empty()) {
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, command.log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
    posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  }
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  if (ownGroup) {
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  }
  pid_t child = 0;
  const int error = posix_spawnp(&child, command.words[0].c_str(), &actions, &attributes,
                                 pointers(command.words).data(), pointers(variables).data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error != 0)
    return diags.error({}).help("install it, or put it on PATH")
           << "'" << command.words[0] << "' cannot be started: " << std::strerror(error);
  return static_cast<int>(child);
}

Expected<int> pdc::run(const Command& command, Diagnostics& diags) {
  Expected<int> child = start(command, /*ownGroup=*/false, diags);
  return child ? waitFor(*child, command.words[0], diags) : Expected<int>(failure);
}

Expected<int> pdc::waitFor(int process, const std::string& program, Diagnostics& diags) {
  int state = 0;
  while (waitpid(process, &state, 0) < 0)
    if (errno != EINTR) return diags.error({}) << "waiting for '" << program << "' failed: " << std::strerror(errno);
  return WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
}

namespace {

/// The last `count` lines of a file.
std::vector<std::string> lastLines(const std::string& path, std::size_t count) {
  std::ifstream in(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  if (lines.size() > count) lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(count));
  return lines;
}

} // namespace

std::string pdc::findProgram(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::string folder;
  for (const char* c = path ? path : "";; ++c) {
    if (*c && *c != ':') {
      folder += *c;
      continue;
    }
    if (std::string program = folder + "/" + name; access(program.c_str(), X_OK) == 0) return program;
    folder.clear();
    if (!*c) return {};
  }
}

/// Whether `build` was configured for `folder` and the runtime in `prefix`: its build tool configures again where a
/// file has changed. FindMPI compiles a program each time, which takes longer than everything else that pdc-run does.
static bool isConfigured(const std::string& folder, const std::string& build, const std::string& prefix) {
  std::error_code error;
  if (!fs::exists(build + "/build.ninja", error) && !fs::exists(build + "/Makefile", error)) return false;
  std::ifstream cache(build + "/CMakeCache.txt");
  bool sameSource = false, samePrefix = false;
  for (std::string line; std::getline(cache, line);) {
    samePrefix = samePrefix || line == "CMAKE_PREFIX_PATH:UNINITIALIZED=" + prefix;
    if (line.starts_with("CMAKE_HOME_DIRECTORY:INTERNAL="))
      sameSource = fs::equivalent(line.substr(line.find('=') + 1), folder, error);
  }
  return sameSource && samePrefix;
}

Status pdc::buildProject(const std::string& folder, const std::string& output, const std::vector<std::string>& targets,
                         Diagnostics& diags) {
  Expected<std::string> prefix = runtimePrefix(diags);
  if (!prefix) return failure;
  const std::string build = folder + "/" + output, log = build + "/build.log";
  std::error_code ignored;
  fs::create_directories(build, ignored);
  fs::remove(log, ignored);
  Command configure{{"cmake", "-S", folder, "-B", build, "-DCMAKE_PREFIX_PATH=" + *prefix}, {}, log};
  // A generator cannot be changed in a folder that has one.
  if (!fs::exists(build + "/CMakeCache.txt") && !findProgram("ninja").empty())
    configure.words.insert(configure.words.end(), {"-G", "Ninja"});
  Command compile{{"cmake", "--build", build, "--parallel"}, {}, log};
  if (!targets.empty()) {
    compile.words.push_back("--target");
    compile.words.insert(compile.words.end(), targets.begin(), targets.end());
  }
  std::vector<Command> commands = {configure, compile};
  if (isConfigured(folder, build, *prefix)) commands.erase(commands.begin());
  for (const Command& command : commands) {
    Expected<int> code = run(command, diags);
    if (!code) return failure;
    if (*code == 0) continue;
    Diagnostic diagnostic{.location = {folder, "", 0, 0}, .message = "the generated program cannot be built"};
    for (const std::string& line : lastLines(log, 20)) diagnostic.notes.push_back(line);
    diagnostic.helps.push_back("all that was said is in " + log);
    diags.report(diagnostic);
    return failure;
  }
  return success;
}
