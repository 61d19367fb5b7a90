// Tests whose ranks are processes: a test starts mpirun on itself, and its ranks run one of its disabled tests.
#pragma once

#include "pdcrt/MappedFile.h"

#include <cstdlib>
#include <filesystem>
#include <string>
#include <sys/wait.h>

namespace mpi {

struct Finished {
  int code;
  std::string log;
};

/// Runs a disabled test of this program in as many processes, with these variables.
inline Finished mpirun(std::size_t ranks, const std::string& test, const std::string& variables,
                       const std::string& folder) {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe");
  const std::string command = "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TEST_FOLDER=" + folder + " " +
                              variables + " mpirun --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 -n " +
                              std::to_string(ranks) + " " + program +
                              " --gtest_also_run_disabled_tests --gtest_filter=" + test + " > " + folder + "/log 2>&1";
  const int status = std::system(command.c_str());
  Finished result = {WIFEXITED(status) ? WEXITSTATUS(status) : -1, ""};
  if (pdcrt::Status read = pdcrt::readText(folder + "/log", result.log); !read) result.log = read.message();
  return result;
}

} // namespace mpi
