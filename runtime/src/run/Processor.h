// What computes for a process. Libraries and compilers choose kernels by it. Members of a team must compute the same
// bits, so they have processors of one kind.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace pdcrt {

/// The lines of /proc/cpuinfo that say of what kind its first processor is: its names, the numbers of its model, its
/// instructions. Empty where there are none.
std::string processorKind(std::string_view cpuinfo);

/// A number for the kind of the calling thread's GPU, or of this machine's processor where there is none. A double
/// holds its 32 bits.
std::uint32_t kindOfDevice();

} // namespace pdcrt
