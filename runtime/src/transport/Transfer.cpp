// Single transfers, and groups that complete together.
#include "Transport.h"

#include <algorithm>

namespace pdcrt {

void Transfer::start(Transport& transport) {
  started = true;
  if (outgoing && peer != transport.rank()) transport.bytesSent[static_cast<std::size_t>(traffic)] += bytes;
  transport.start(*this);
}

bool Transfer::advance(Transport& transport) {
  if (!started) start(transport);
  if (!transport.test(*this)) return false;
  started = false;
  return true;
}

void Transfer::cancel(Transport& transport) {
  if (started) transport.cancel(*this);
  started = false;
}

void TransferGroup::resize(std::size_t pool) {
  parts = std::vector<Transfer>(pool);
  states_.assign(pool, State::done);
}

void TransferGroup::startParts(Transport& transport) {
  for (std::size_t begin = 0, end = 0; begin < used; begin = end) {
    const std::int64_t turn = parts[begin].turn;
    while (end < used && parts[end].turn == turn) ++end;
    if (states_[begin] != State::waiting || !transport.gate().mayStart(turn)) continue;
    transport.beginGroup();
    for (std::size_t i = begin; i < end; ++i) {
      if (parts[i].peer < 0) { // the turn passes
        states_[i] = State::done;
        continue;
      }
      parts[i].after = after;
      parts[i].start(transport);
      states_[i] = State::underWay;
    }
    transport.endGroup();
    transport.gate().started(turn);
  }
}

bool TransferGroup::advance(Transport& transport) {
  if (!started_) {
    started_ = true;
    std::fill(states_.begin(), states_.end(), State::waiting);
  }
  startParts(transport);
  bool all = true;
  for (std::size_t i = 0; i < used; ++i) {
    if (states_[i] == State::underWay && parts[i].advance(transport)) states_[i] = State::done;
    all = all && states_[i] == State::done;
  }
  if (all) started_ = false;
  return all;
}

void TransferGroup::cancel(Transport& transport) {
  for (std::size_t i = 0; started_ && i < used; ++i)
    if (states_[i] == State::underWay) parts[i].cancel(transport);
  started_ = false;
}

} // namespace pdcrt
