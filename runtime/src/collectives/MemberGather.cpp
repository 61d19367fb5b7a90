#include "MemberGather.h"

#include <algorithm>
#include <utility>

namespace pdcrt {

MemberGather::MemberGather(TeamGroup group) : group_(std::move(group)) {
  transfers_.resize(2 * (group_.processes.size() - 1));
}

void MemberGather::prepare(std::span<const std::uint32_t> own) {
  const auto placeOf = [&](int member) { return static_cast<std::size_t>(member) * own.size(); };
  all_.resize(placeOf(group_.members()));
  std::copy(own.begin(), own.end(), &all_[placeOf(group_.self)]);
  transfers_.used = 0;
  const auto add = [&](int member, bool outgoing) {
    Transfer& transfer = transfers_.parts[transfers_.used++];
    transfer.outgoing = outgoing;
    transfer.peer = group_.processes[static_cast<std::size_t>(member)];
    transfer.channel = group_.channel + TeamWork::channels - 1;
    transfer.data = reinterpret_cast<std::byte*>(&all_[placeOf(outgoing ? group_.self : member)]);
    transfer.bytes = own.size_bytes();
    transfer.traffic = Traffic::control;
  };
  for (int member = 0; member < group_.members(); ++member) {
    if (member == group_.self) continue;
    add(member, /*outgoing=*/false);
    add(member, /*outgoing=*/true);
  }
}

} // namespace pdcrt
