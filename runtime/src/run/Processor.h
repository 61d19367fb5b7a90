// What computes for a process. Libraries and compilers choose kernels by it: members of
// a team, which must compute the same bits, have processors of one kind.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace pdcrt {

/// The lines of /proc/cpuinfo that say of what kind its first processor is: its names, the numbers of its model, its
/// instructions. Empty where there are none.
std::string processorKind(std::string_view cpuinfo);

/// The kind of the calling thread's device: of the GPU, else of this machine's processor. 32 bits, so that a double
/// holds it.
std::uint32_t kindOfDevice();

} // namespace pdcrt
