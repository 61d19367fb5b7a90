// Programs for CPUs have no NCCL.
#include "NcclTransport.h"

namespace pdcrt {

Status ncclAvailable() {
  return {Exit::usage, "--transport=nccl is for GPUs, this program was compiled for cpu",
          "leave it out, or compile the model with --target=cuda"};
}

std::string gpuOf(int) {
  return "";
}

Status makeNcclTransport(const std::vector<NcclLane>&, std::unique_ptr<Transport>&) {
  return ncclAvailable();
}

} // namespace pdcrt
