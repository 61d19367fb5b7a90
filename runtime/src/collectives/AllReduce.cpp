#include "AllReduce.h"

namespace pdcrt {

AllReduce::AllReduce(const std::shared_ptr<const ReduceGroup>& group, std::shared_ptr<ReduceLane> lane)
    : AllReduce(group, std::move(lane), group) {}

AllReduce::AllReduce(std::shared_ptr<const ReduceGroup> group, std::shared_ptr<ReduceLane> lane,
                     const std::shared_ptr<const ReduceGroup>& sharers)
    : parts_(std::make_shared<const ExchangeParts>(std::move(group))), lane_(std::move(lane)), spreads_(sharers),
      contributes_(static_cast<std::size_t>(parts_->replicas()), true), gather_(parts_), add_(parts_),
      spread_(sharers ? std::make_shared<const ExchangeParts>(sharers) : parts_) {
  gather_.stagingRead = &lane_->stagingRead;
}

void AllReduce::prepare(std::byte* block, const std::vector<bool>& contributes) {
  block_ = block;
  contributes_ = contributes;
  gather_.prepare(block, contributes_, &ready);
  add_.prepare(block, contributes_);
  spread_.prepare(block, &add_.done());
  step_ = Step::waiting;
}

void AllReduce::prepare(std::byte* block) {
  contributes_.assign(contributes_.size(), true);
  prepare(block, contributes_);
}

/// Whether what is staged has been read, and it is its turn. Of a turn, one begins when the last one has ended.
bool AllReduce::mayGather(Transport& transport) const {
  if (turn >= 0 && (lane_->summing || lane_->spreading)) return false;
  const bool isRead = !lane_->summing || lane_->summing->parts_->group().staging != parts_->group().staging;
  return isRead && transport.gate().mayStart(turn);
}

void AllReduce::endTurn(Transport& transport) const {
  if (endsTurn) transport.gate().started(turn);
  if (turn >= 0) transport.lookAgain(); // for the next one
}

bool AllReduce::advance(Transport& transport) {
  if (step_ == Step::waiting && !lane_->gathering) {
    step_ = Step::next; // none that was posted later overtakes it
    lane_->gathering = this;
  }
  if (step_ == Step::next && mayGather(transport)) step_ = Step::gathering;
  if (step_ == Step::gathering && gather_.advance(transport)) step_ = Step::gathered;
  if (step_ == Step::gathered && !lane_->summing) {
    // The next one begins to gather first, in this round.
    step_ = Step::summing;
    lane_->gathering = nullptr;
    lane_->summing = this;
    transport.lookAgain();
    return false;
  }
  if (step_ == Step::summing) {
    gather_.precede(transport.stream());
    if (!add_.advance(transport)) return false;
    lane_->stagingRead.record(transport.stream());
    step_ = Step::summed;
    if (!spreads_) {
      lane_->summing = nullptr;
      transport.lookAgain(); // for the next one
      endTurn(transport);
      return true;
    }
  }
  if (step_ == Step::summed && !lane_->spreading) {
    lane_->summing = nullptr;
    lane_->spreading = this;
    step_ = Step::spreading;
    transport.lookAgain();
  }
  if (step_ != Step::spreading || !spread_.advance(transport)) return false;
  lane_->spreading = nullptr;
  endTurn(transport);
  return true;
}

void AllReduce::cancel(Transport& transport) {
  gather_.cancel(transport);
  spread_.cancel(transport);
}

} // namespace pdcrt
