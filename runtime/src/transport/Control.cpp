// Rings of pre-posted receives and of sends, one per pair of ranks.
#include "Control.h"

#include <algorithm>

namespace pdcrt {

Control::Control(Communicator& communicator, std::size_t depth) : communicator_(communicator), depth_(depth) {
  const Transport& transport = communicator.transport();
  for (int rank = 0; rank < transport.ranks(); ++rank) {
    if (rank == transport.rank() || (transport.rank() != 0 && rank != 0)) continue;
    auto lane = std::make_unique<Lane>();
    lane->rank = rank;
    lane->outgoing.resize(depth);
    lane->incoming.resize(depth);
    lane->sends = std::vector<Transfer>(depth);
    lane->receives = std::vector<Transfer>(depth);
    for (std::size_t i = 0; i < depth; ++i) {
      auto fill = [&](Transfer& transfer, Message& message, bool outgoing) {
        transfer.outgoing = outgoing;
        transfer.peer = rank;
        transfer.channel = 0;
        transfer.data = reinterpret_cast<std::byte*>(&message);
        transfer.bytes = sizeof(Message);
        transfer.traffic = Traffic::control;
      };
      fill(lane->sends[i], lane->outgoing[i], true);
      fill(lane->receives[i], lane->incoming[i], false);
      communicator_.post(lane->receives[i]);
    }
    lanes_.push_back(std::move(lane));
  }
}

bool Control::send(int rank, Message message) {
  message.rank = communicator_.transport().rank();
  for (const std::unique_ptr<Lane>& lane : lanes_) {
    if (lane->rank != rank) continue;
    const std::size_t i = lane->sent++ % depth_;
    if (lane->sends[i].pending() && !communicator_.wait(lane->sends[i])) return false;
    lane->outgoing[i] = message;
    communicator_.post(lane->sends[i]);
  }
  return true;
}

bool Control::poll(Message& message) {
  for (const std::unique_ptr<Lane>& lane : lanes_) {
    const std::size_t i = lane->received % depth_;
    if (!lane->receives[i].complete()) continue;
    message = lane->incoming[i];
    communicator_.post(lane->receives[i]);
    ++lane->received;
    return true;
  }
  return false;
}

bool Control::arrived() const {
  return std::any_of(lanes_.begin(), lanes_.end(), [this](const std::unique_ptr<Lane>& lane) {
    return lane->receives[lane->received % depth_].complete();
  });
}

bool Control::wait(Message& message) {
  return communicator_.waitUntil([&] { return arrived(); }) && poll(message);
}

bool Control::flush() {
  for (const std::unique_ptr<Lane>& lane : lanes_)
    for (const Transfer& send : lane->sends)
      if (send.pending() && !communicator_.wait(send)) return false;
  return true;
}

} // namespace pdcrt
