// Running other programs: CMake for what was generated, mpirun, generated programs themselves.
#pragma once

#include "pdc/Support/Diagnostics.h"
#include "pdc/Support/Expected.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace pdc {

/// The folder where find_package finds the runtime that belongs to the running tool: its build tree or install prefix,
/// the parent of the folder of its executable. Error when there is none: the tool was copied away.
Expected<std::string> runtimePrefix(Diagnostics& diags);

/// A folder that is removed with all it contains when the object goes.
class TemporaryFolder {
public:
  /// Below $TMPDIR (default /tmp).
  static Expected<TemporaryFolder> create(Diagnostics& diags);
  TemporaryFolder(TemporaryFolder&& other) noexcept;
  TemporaryFolder& operator=(TemporaryFolder&&) = delete;
  ~TemporaryFolder();

  const std::string& path() const { return path_; }
  /// Its path; from now on it stays.
  std::string release() { return std::exchange(path_, {}); }

private:
  explicit TemporaryFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

struct Command {
  std::vector<std::string> words;                 ///< the program (found in $PATH) and its arguments
  std::map<std::string, std::string> environment; ///< in addition to what is there
  std::string log;                                ///< file for stdout and stderr; empty: they are the caller's
  std::vector<std::string> without;               ///< variables that are left out: beginnings of their names
  int errors = -1;                                ///< descriptor for stderr, instead of the caller's
};

/// Runs `command` and returns its exit code (128 + n when signal n ended it). Error: it cannot be started.
Expected<int> run(const Command& command, Diagnostics& diags);

/// Starts `command` and returns its process. `ownGroup`: in a process group of its own, without a terminal to read
/// from.
Expected<int> start(const Command& command, bool ownGroup, Diagnostics& diags);

/// Waits until the process that start() returned ends: its exit code (128 + n when signal n ended it).
Expected<int> waitFor(int process, const std::string& program, Diagnostics& diags);

/// Where in $PATH a program is that can be run; empty: nowhere.
std::string findProgram(const std::string& name);

/// Configures and builds the CMake project in `folder` into `folder`/`output`. `targets`: all when empty. What the
/// compiler said is in `folder`/`output`/build.log, and its end in the error. What was built there when the folder was
/// elsewhere, or with another runtime, is removed first. A second process waits. Where nothing can be written, what is
/// built is taken as it is.
Status buildProject(const std::string& folder, const std::string& output, const std::vector<std::string>& targets,
                    Diagnostics& diags);

} // namespace pdc
