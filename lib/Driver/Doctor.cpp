// Looks for programs, asks them for their versions, and reads what the kernel says of the machine.
#include "pdc/Driver/Doctor.h"

#include "pdc/Driver/Gpu.h"
#include "pdc/Driver/Toolchain.h"
#include "pdcrt/Cores.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <ostream>
#include <sstream>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>

using namespace pdc;
namespace fs = std::filesystem;

namespace {

struct Finding {
  std::string name;
  bool there = false;
  bool needed = true;
  std::string detail; ///< a version, an amount
  std::string remedy; ///< what to type
};

/// The first line that `program` says of its version.
std::string versionOf(const std::string& program) {
  Diagnostics quiet(nullptr);
  Expected<TemporaryFolder> folder = TemporaryFolder::create(quiet);
  if (!folder) return {};
  const std::string log = folder->path() + "/version";
  const Expected<int> code = run({{program, "--version"}, {}, log}, quiet);
  std::string line;
  std::ifstream in(log);
  while (std::getline(in, line))
    if (!line.empty()) break;
  return code && *code == 0 ? line.substr(0, 60) : "";
}

Finding program(const std::string& name, bool needed, const std::string& remedy) {
  const std::string path = findProgram(name);
  return {name, !path.empty(), needed, path.empty() ? "" : versionOf(path), remedy};
}

std::string gibibytes(double bytes) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(1) << bytes / (1 << 30) << " GiB";
  return text.str();
}

/// "MemAvailable" of /proc/meminfo, in bytes.
double availableMemory() {
  std::ifstream in("/proc/meminfo");
  for (std::string key, unit; in >> key;) {
    double value = 0;
    in >> value;
    std::getline(in, unit);
    if (key == "MemAvailable:") return value * 1024;
  }
  return 0;
}

Finding memory() {
  struct sysinfo info {};
  if (::sysinfo(&info) != 0) return {"memory", true, false, "", ""};
  const double total = static_cast<double>(info.totalram) * info.mem_unit;
  return {"memory", true, false, gibibytes(availableMemory()) + " free of " + gibibytes(total), ""};
}

/// MPI's ranks of one machine send through shared memory.
Finding sharedMemory() {
  struct statvfs info {};
  if (::statvfs("/dev/shm", &info) != 0) return {"/dev/shm", false, false, "", "mount a tmpfs on /dev/shm"};
  const double bytes = static_cast<double>(info.f_bavail) * static_cast<double>(info.f_frsize);
  return {"/dev/shm", bytes >= (64 << 20), false, gibibytes(bytes) + " free", "give containers more: --shm-size=1g"};
}

} // namespace

bool pdc::examineMachine(std::ostream& out) {
  Diagnostics quiet(nullptr);
  const Expected<std::string> prefix = runtimePrefix(quiet);
  const int cores = pdcrt::ownCores().count;
  const GpuSupport gpus = examineGpus();
  const std::string packages = "apt-get install ";
  const Finding findings[] = {
      program("g++", true, packages + "g++"),
      program("cmake", true, packages + "cmake"),
      program("ninja", false, packages + "ninja-build: builds go faster"),
      {"runtime", static_cast<bool>(prefix), true, prefix ? *prefix : "",
       "install pdc, or run it from its build folder"},
      program("mpirun", true, packages + "openmpi-bin, or give pdc-run --threads"),
      {"cores", true, false, std::to_string(cores) + ": as many ranks compute at full speed", ""},
      memory(),
      sharedMemory(),
      program("nvcc", false, "install the CUDA toolkit to compile for GPUs"),
      {"GPU", gpus.devices > 0, false, std::to_string(gpus.devices) + (gpus.lacks.empty() ? "" : ", but " + gpus.lacks),
       gpus.older > 0 ? "compute capability 8.0 is needed" : "programs for the CPU need none"}};
  bool complete = true;
  for (const Finding& finding : findings) {
    complete = complete && (finding.there || !finding.needed);
    out << std::left << std::setw(10) << finding.name << std::setw(9)
        << (finding.there    ? "ok"
            : finding.needed ? "MISSING"
                             : "none")
        << (finding.there ? finding.detail : finding.remedy) << "\n";
  }
  out << (complete ? "this machine has what runs on its CPUs need\n" : "something is missing\n");
  return complete;
}
