// Asks the driver for its GPUs, through its library, which is there or not when the tool runs.
#include "pdc/Driver/Gpu.h"

#include "pdc/Driver/Toolchain.h"
#include "pdc/Support/DiagnosticsBuilder.h"
#include "pdc/Support/Names.h"

#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <memory>

using namespace pdc;

namespace {

/// Calls of the driver's interface (cuda.h), which the tool does not link.
class CudaDriver {
public:
  CudaDriver()
      : library_(dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), [](void* handle) {
          if (handle) dlclose(handle);
        }) {}

  /// -1: there is no driver, or it fails.
  template <typename... Arguments>
  int call(const char* name, Arguments... arguments) const {
    using Function = int (*)(Arguments...);
    const auto function = library_ ? reinterpret_cast<Function>(dlsym(library_.get(), name)) : nullptr;
    return function ? function(arguments...) : -1;
  }

private:
  std::unique_ptr<void, void (*)(void*)> library_;
};

constexpr int capabilityMajor = 75; ///< CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
constexpr int oldestMajor = 8;      ///< that the kernels are compiled for

bool hasCompiler() {
  if (std::getenv("CUDACXX") || !findProgram("nvcc").empty()) return true;
  const char* home = std::getenv("CUDA_HOME"); // the places where generated CMake files look
  std::error_code ignored;
  return std::filesystem::exists(std::string(home ? home : "/usr/local/cuda") + "/bin/nvcc", ignored) ||
         std::filesystem::exists("/usr/local/cuda/bin/nvcc", ignored);
}

} // namespace

GpuSupport pdc::examineGpus() {
  GpuSupport support;
  const CudaDriver driver;
  int count = 0;
  if (driver.call("cuInit", 0U) == 0 && driver.call("cuDeviceGetCount", &count) == 0)
    for (int device = 0; device < count; ++device) {
      int major = 0;
      driver.call("cuDeviceGetAttribute", &major, capabilityMajor, device);
      ++(major >= oldestMajor ? support.devices : support.older);
    }
  if (!PDC_HAS_CUDA_RUNTIME) {
    support.lacks = "this pdc was built without the runtime for CUDA";
    support.remedy = "build pdc where nvcc and cuDNN are";
  } else if (!hasCompiler()) {
    support.lacks = "nvcc is missing";
    support.remedy = "install the CUDA toolkit, or set CUDA_HOME";
  }
  return support;
}

Target pdc::automaticTarget(bool looksAtResults, Diagnostics& diags) {
  const GpuSupport support = examineGpus();
  if (support.devices + support.older == 0) return Target::cpu;
  if (support.devices == 0) {
    diags.remark({}) << "the target is the CPU: " << counted(support.older, "GPU")
                     << " of this machine cannot run the programs, which need compute capability 8.0";
    return Target::cpu;
  }
  if (looksAtResults) {
    diags.remark({}) << "the target is the CPU: --debug-nan looks at memory that a GPU does not show";
    return Target::cpu;
  }
  if (!support.lacks.empty()) {
    diags.remark({}).help(support.remedy)
        << "the target is the CPU, though " << counted(support.devices, "GPU") << " could be used: " << support.lacks;
    return Target::cpu;
  }
  diags.remark({}).help("--target=cpu for programs that run on its cores")
      << "the target is CUDA: this machine has " << counted(support.devices, "GPU");
  return Target::cuda;
}
