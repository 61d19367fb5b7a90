// Blocks of a device over a transport that moves memory of the host only (MPI without knowledge of GPUs): a block is
// copied into pinned memory and then sent, and received there and then copied into the block.
#pragma once

#include "Transport.h"

#include <memory>

namespace pdcrt {

/// What is not in blocks goes through `transport` as it is. A send is complete when `transport` has sent the copy, a
/// receive when its copy into the block has been put into a stream. Pinned memory is allocated while a run warms up;
/// where there is none left, the transport has aborted() (Exit::noDevice).
std::unique_ptr<Transport> makeHostTransport(std::unique_ptr<Transport> transport);

} // namespace pdcrt
