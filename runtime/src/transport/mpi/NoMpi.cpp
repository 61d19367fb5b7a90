// Where the runtime was built without MPI.
#include "MpiTransport.h"

namespace pdcrt {

Status openMpi(int, const MpiOptions&, std::unique_ptr<Transport>&) {
  return {Exit::usage, "this program was built without MPI", "run all ranks as threads of one process: --threads"};
}

} // namespace pdcrt
