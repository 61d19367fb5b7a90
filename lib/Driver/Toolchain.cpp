// Processes and temporary folders, over POSIX.
#include "pdc/Driver/Toolchain.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
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
  for (char** variable = environ; *variable; ++variable) {
    const std::string entry = *variable;
    const bool isLeftOut = std::any_of(command.without.begin(), command.without.end(),
                                       [&](const std::string& beginning) { return entry.starts_with(beginning); });
    if (!isLeftOut && !command.environment.contains(entry.substr(0, entry.find('=')))) variables.push_back(entry);
  }
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
  if (command.errors >= 0) posix_spawn_file_actions_adddup2(&actions, command.errors, STDERR_FILENO);
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
