// Small messages between rank 0 and the others, beside the training: who takes part, losses, results, the wish to stop.
// Fixed size, from fixed pools, in order; a message is a copy of its bytes, so ranks run on machines of one kind.
#pragma once

#include "Transport.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace pdcrt {

enum class Topic : std::int32_t {
  hello,
  verdict,
  loss,
  term,
  stopWish,
  stop,
  load,
  evaluation,
  statistics,
  shard,
  checkpointed
};

struct Message {
  Topic topic = Topic::hello;
  std::int32_t rank = 0; ///< sender: its process
  std::int32_t stage = 0;
  std::int32_t replica = 0;
  std::int32_t member = 0; ///< of the team that computes for the replica
  std::int64_t index = 0;  ///< minibatch, or whatever the topic counts
  std::uint64_t numbers[5] = {};
  double values[16] = {};
  char text[64] = {};
};

class Control {
public:
  /// `depth` messages from one rank to another may be on their way.
  Control(Communicator& communicator, std::size_t depth);

  /// Sends to `rank`; either it or this rank is 0. Sleeps while too many messages are on their way. False: a rank has
  /// given up.
  bool send(int rank, Message message);
  /// Takes a message that has arrived, in the order of arrival from each rank.
  bool poll(Message& message);
  /// Sleeps until one has arrived. False: a rank has given up.
  bool wait(Message& message);
  /// Sleeps until all messages have been sent.
  bool flush();

private:
  struct Lane {
    int rank = 0;
    std::vector<Message> outgoing, incoming;
    std::vector<Transfer> sends, receives;
    std::size_t sent = 0, received = 0; ///< counts
  };
  bool arrived() const;

  Communicator& communicator_;
  std::size_t depth_;
  std::vector<std::unique_ptr<Lane>> lanes_; ///< to all others from rank 0, to rank 0 from others
};

} // namespace pdcrt
