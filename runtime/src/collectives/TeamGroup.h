// The members of a team, and what one sends another.
#pragma once

#include "transport/Transport.h"

#include <cstddef>
#include <vector>

namespace pdcrt {

/// The members of a team, by number, and where they meet.
struct TeamGroup {
  std::vector<int> processes;
  int self = 0;
  int channel = 0; ///< the first of TeamWork::channels

  int members() const { return static_cast<int>(processes.size()); }

  /// Adds a send to `member`, which only reads `data`, or a receive, of `size` bytes; of none: nothing.
  void add(TransferGroup& transfers, int member, bool outgoing, int onChannel, const std::byte* data,
           std::size_t size) const {
    if (size == 0) return;
    Transfer& transfer = transfers.parts[transfers.used++];
    transfer.outgoing = outgoing;
    transfer.peer = processes[static_cast<std::size_t>(member)];
    transfer.channel = onChannel;
    transfer.data = const_cast<std::byte*>(data);
    transfer.bytes = size;
    transfer.traffic = Traffic::team;
    transfer.inBlocks = true;
  }
};

} // namespace pdcrt
